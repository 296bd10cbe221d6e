#include "server/api/openai/request.h"

#include <array>
#include <limits>
#include <utility>

#include "server/api/body.h"
#include "server/api/openai/message.h"
#include "server/api/openai/tools.h"
#include "server/api/options.h"
#include "server/api/prompts.h"

namespace stemma::server {
namespace {

// --- refused and ignored fields ------------------------------------------------------------------

// Of OpenAI, llama-server and vLLM, for both kinds of completions. null never requests anything.
const std::vector<Unsupported>& unsupported_fields() {
  static const std::vector<Unsupported> fields = {
      // OpenAI
      {"functions", {"[]"}},
      {"function_call", {R"("none")", R"("auto")"}},
      {"audio"},
      {"modalities", {R"(["text"])"}},
      // llama-server
      {"grammar_lazy", {"false"}},
      {"grammar_triggers", {"[]"}},
      {"mirostat", {"0"}},
      {"typical_p", {"1"}},
      {"tfs_z", {"1"}},
      {"xtc_probability", {"0"}},
      {"dry_multiplier", {"0"}},
      {"dynatemp_range", {"0"}},
      {"top_n_sigma", {"-1", "0"}},
      {"samplers"},
      {"n_keep", {"0"}},
      {"n_discard", {"0"}},
      {"n_probs", {"0"}},
      {"n_indent", {"0"}},
      {"min_keep", {"0"}},
      {"t_max_predict_ms", {"0", "-1"}},
      {"timings_per_token", {"false"}},
      {"post_sampling_probs", {"false"}},
      {"response_fields", {"[]"}},
      {"lora", {"[]"}},
      {"return_tokens", {"false"}},
      {"return_progress", {"false"}},
      {"image_data", {"[]"}},
      {"chat_template"},
      // vLLM
      {"documents", {"[]"}},
      {"min_tokens", {"0"}},
      {"stop_token_ids", {"[]"}},
      {"include_stop_str_in_output", {"false"}},
      {"skip_special_tokens", {"true"}},
      {"spaces_between_special_tokens", {"true"}},
      {"use_beam_search", {"false"}},
      {"length_penalty", {"1"}},
      {"early_stopping", {"false"}},
      {"prompt_logprobs"},
      {"truncate_prompt_tokens"},
      {"guided_json"},
      {"guided_regex"},
      {"guided_choice"},
      {"guided_grammar"},
      {"structured_outputs"},
      {"bad_words", {"[]"}},
      {"allowed_token_ids"},
      {"logits_processors"},
      {"priority", {"0"}},
      {"kv_transfer_params"},
      {"add_special_tokens"},
      {"return_token_ids", {"false"}},
      {"return_tokens_as_token_ids", {"false"}},
  };
  return fields;
}

// These fields change no answer: notes about the request, hints, and details of disabled features.
void ignore_notes(Fields& fields, std::vector<std::string>& ignored) {
  using Kind = Fields::Kind;
  constexpr std::array<std::pair<std::string_view, Kind>, 16> kNotes = {{
      {"user", Kind::string},
      {"safety_identifier", Kind::string},
      {"service_tier", Kind::string},
      {"request_id", Kind::string},
      {"metadata", Kind::object},
      {"store", Kind::boolean},
      {"prediction", Kind::any},
      {"web_search_options", Kind::any},
      {"mirostat_tau", Kind::any},
      {"mirostat_eta", Kind::any},
      {"xtc_threshold", Kind::any},
      {"dry_base", Kind::any},
      {"dry_allowed_length", Kind::any},
      {"dry_penalty_last_n", Kind::any},
      {"dry_sequence_breakers", Kind::any},
      {"dynatemp_exponent", Kind::any},
  }};
  for (const auto& [name, kind] : kNotes) fields.ignore(name, kind, ignored);
}

// Refuses fields that only chats have, because a completion would silently ignore them.
void refuse_of_chats(Fields& fields) {
  static const std::vector<Unsupported> kOfChats = {
      {"tools", {"[]"}},
      {"tool_choice", {R"("none")", R"("auto")"}},
      {"response_format", {R"({"type":"text"})"}},
      {"grammar", {R"("")"}},
      {"json_schema"},
      {"reasoning_effort", {R"("none")"}},
      {"reasoning_format", {R"("none")", R"("auto")"}},
  };
  for (const Unsupported& field : kOfChats) fields.refuse(field);
}

// --- pieces of requests --------------------------------------------------------------------------

void read_max_tokens(Fields& fields, bool chat, RequestOptions& options) {
  // -1 means no limit, as in llama-server, under any name. 0 evaluates the prompt and generates
  // nothing, which OpenAI allows for completions only.
  const int64_t least = -1;
  constexpr std::array<std::string_view, 3> kNames = {"max_completion_tokens", "max_tokens",
                                                      "n_predict"};
  std::array<std::optional<int64_t>, 3> values;
  for (size_t i = 0; i < kNames.size(); ++i) {
    values[i] = fields.integer(kNames[i], least, kMaxCount);
    if (chat && i < 2 && values[i] == 0) {
      fields.fail_value(kNames[i], "expected a value of 1 or more, or -1 for no limit, but got 0",
                        "integer_below_min_value");
    }
  }
  const std::optional<int64_t> said = agreed(fields, kNames, values);
  if (said && *said >= 0) options.max_tokens = static_cast<uint32_t>(*said);
}

void read_chat_logprobs(Fields& fields, const ApiRules& rules, RequestOptions& options) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, rules.max_top_logprobs);
  if (wanted) {
    options.top_logprobs = static_cast<uint32_t>(top.value_or(0));
  } else if (top && *top != 0) {
    fields.fail_value("top_logprobs", "it needs 'logprobs' to be true");
  }
}

void read_stream(Fields& fields, RequestOptions& options, Failure& failure) {
  options.stream = fields.boolean("stream").value_or(false);
  const Json* const value = fields.take("stream_options");
  if (value == nullptr) return;
  if (value->object() == nullptr) {
    fields.fail_type("stream_options", "an object", *value);
    return;
  }
  if (!options.stream) {
    fields.fail_value("stream_options", "it needs 'stream' to be true");
    return;
  }
  Fields inner(*value->object(), "stream_options.", failure);
  options.include_usage = inner.boolean("include_usage").value_or(false);
  inner.pass_over_rest(options.ignored);
}

void read_options(Fields& fields, const ApiRules& rules, bool chat, RequestOptions& options,
                  Failure& failure) {
  options.sampling = rules.sampling;
  options.model = fields.string("model", rules.max_name_bytes).value_or("");
  read_stream(fields, options, failure);
  options.choices = static_cast<uint32_t>(fields.integer("n", 1, rules.max_choices).value_or(1));
  read_max_tokens(fields, chat, options);
  read_sampling(fields, rules, options.sampling);
  read_stop(fields, rules, options.stop);
  read_cache(fields, rules, options);
  for (const Unsupported& field : unsupported_fields()) fields.refuse(field);
  ignore_notes(fields, options.ignored);
  const Json* const metadata = fields.take("metadata");
  const Json* const user = metadata == nullptr ? nullptr : metadata->find("user_id");
  if (user != nullptr && user->string() != nullptr &&
      user->string()->size() <= rules.max_name_bytes) {
    options.user_session = *user->string();
  }
}

// --- prompts and tokens --------------------------------------------------------------------------

void read_prompt(Fields& fields, const ApiRules& rules, CompletionRequest& request) {
  std::vector<CompletionPrompt> prompts =
      read_prompts(fields, "prompt",
                   {.prompts = rules.max_choices / request.options.choices,
                    .too_many = "expected at most " + std::to_string(rules.max_choices) +
                                " answers in all, prompts times 'n'"});
  if (fields.failed() || prompts.empty()) return;
  request.prompt = std::move(prompts.front().text);
  request.tokens = std::move(prompts.front().tokens);
  prompts.erase(prompts.begin());
  request.more = std::move(prompts);
}

}  // namespace

std::optional<ApiError> decode_chat(std::string_view body, const ApiRules& rules,
                                    ChatRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& failure) {
    read_options(fields, rules, true, request.options, failure);
    read_chat_logprobs(fields, rules, request.options);
    read_messages(fields, rules, failure, request.options.ignored, request.messages);
    request.continue_final_message = fields.boolean("continue_final_message").value_or(false);
    const auto add = fields.boolean("add_generation_prompt");
    request.add_generation_prompt = add.value_or(!request.continue_final_message);
    if (request.continue_final_message) {
      if (request.add_generation_prompt) {
        fields.fail_value("continue_final_message", "it excludes 'add_generation_prompt'");
      } else if (!request.messages.empty() && request.messages.back().role != "assistant") {
        fields.fail_value("continue_final_message", "the last message is not the assistant's");
      }
    }
    if (const Json* kwargs = fields.take("chat_template_kwargs")) {
      if (kwargs->object() == nullptr) {
        fields.fail_type("chat_template_kwargs", "an object", *kwargs);
      }
      request.template_kwargs = *kwargs;
    }
    read_tools(fields, rules, failure, request);
    read_tool_choice(fields, failure, request);
    read_answer_form(fields, failure, request);
    read_thinking(fields, failure, request);
    const bool must_call = request.tool_choice.kind == ToolChoice::Kind::required ||
                           request.tool_choice.kind == ToolChoice::Kind::named;
    if (request.continue_final_message &&
        (must_call || request.form.kind != AnswerForm::Kind::free)) {
      fields.fail_value("continue_final_message",
                        "an answer that must be a call or have a form cannot go on with a text");
    }
    fields.refuse({"echo", {"false"}});
    fields.pass_over_rest(request.options.ignored);
  });
}

std::optional<ApiError> decode_apply_template(std::string_view body, const ApiRules& rules,
                                              ChatRequest& request) {
  return decode_chat(body, rules, request);
}

std::optional<ApiError> decode_completion(std::string_view body, const ApiRules& rules,
                                          CompletionRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& failure) {
    RequestOptions& options = request.options;
    read_options(fields, rules, false, options, failure);
    read_prompt(fields, rules, request);
    if (const auto top = fields.integer("logprobs", 0, rules.max_top_logprobs)) {
      options.top_logprobs = static_cast<uint32_t>(*top);
    }
    request.echo = fields.boolean("echo").value_or(false);
    fields.refuse({"suffix", {R"("")"}});
    // Asking for as many candidates as answers changes nothing.
    const auto best_of = fields.integer("best_of", 0, kMaxCount);
    if (best_of && *best_of > 1 && *best_of != options.choices) {
      fields.fail_unsupported("best_of", "choosing among more answers than 'n' is not");
    }
    refuse_of_chats(fields);
  });
}

std::optional<ApiError> decode_purge(std::string_view body, const ApiRules& rules,
                                     PurgeRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& /*failure*/) {
    request.model = fields.string("model", rules.max_name_bytes).value_or("");
    const auto salt = fields.string("cache_salt", rules.max_name_bytes);
    if (!salt) fields.fail_missing("cache_salt");
    if (salt && salt->empty()) fields.fail_value("cache_salt", "expected a text that is not empty");
    request.salt = salt.value_or("");
  });
}

std::optional<ApiError> decode_tokenize(std::string_view body, const ApiRules& rules,
                                        TokenizeRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& /*failure*/) {
    request.model = fields.string("model", rules.max_name_bytes).value_or("");
    const auto content = fields.string("content", std::numeric_limits<uint32_t>::max());
    if (!content) fields.fail_missing("content");
    request.content = content.value_or("");
    request.add_special = fields.boolean("add_special").value_or(request.add_special);
    request.parse_special = fields.boolean("parse_special").value_or(request.parse_special);
    request.with_pieces = fields.boolean("with_pieces").value_or(request.with_pieces);
  });
}

std::optional<ApiError> decode_detokenize(std::string_view body, const ApiRules& rules,
                                          DetokenizeRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& /*failure*/) {
    request.model = fields.string("model", rules.max_name_bytes).value_or("");
    const Json* const tokens = fields.take("tokens");
    if (tokens == nullptr) {
      fields.fail_missing("tokens");
    } else if (const Json::Array* array = tokens->array()) {
      read_tokens(fields, "tokens", *array, request.tokens);
    } else {
      fields.fail_type("tokens", "an array", *tokens);
    }
  });
}

}  // namespace stemma::server
