#include "server/api/openai/request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "server/api/fields.h"
#include "server/api/openai/message.h"

namespace stemma::server {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// --- what is refused, and what is passed over -------------------------------------------------------

// Of OpenAI, llama-server and vLLM, on both kinds of completions. null never asks for anything.
const std::vector<Unsupported>& unsupported_fields() {
  static const std::vector<Unsupported> fields = {
      // OpenAI
      {"tools", {"[]"}},
      {"tool_choice", {R"("none")", R"("auto")"}},
      {"functions", {"[]"}},
      {"function_call", {R"("none")", R"("auto")"}},
      {"response_format", {R"({"type":"text"})"}},
      {"audio"},
      {"modalities", {R"(["text"])"}},
      {"prediction"},
      {"web_search_options"},
      {"reasoning_effort", {R"("none")"}},
      {"verbosity", {R"("medium")"}},
      {"cache_control"},
      // llama-server
      {"grammar", {R"("")"}},
      {"grammar_lazy", {"false"}},
      {"grammar_triggers", {"[]"}},
      {"json_schema"},
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
      {"reasoning_format", {R"("none")", R"("auto")"}},
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

// They change no answer: notes about the request, and details of what is switched off.
void ignore_notes(Fields& fields, std::vector<std::string>& ignored) {
  using Kind = Fields::Kind;
  constexpr std::array<std::pair<std::string_view, Kind>, 15> kNotes = {{
      {"user", Kind::string},
      {"safety_identifier", Kind::string},
      {"service_tier", Kind::string},
      {"request_id", Kind::string},
      {"metadata", Kind::object},
      {"store", Kind::boolean},
      {"parallel_tool_calls", Kind::boolean},
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

// --- pieces of requests -----------------------------------------------------------------------------

void put(std::optional<double> value, float& out) {
  if (value) out = static_cast<float>(*value);
}

// The first of several names for one thing; if more are given they must agree.
template <class T, size_t N>
std::optional<T> agreed(Fields& fields, const std::array<std::string_view, N>& names,
                        const std::array<std::optional<T>, N>& values) {
  std::optional<T> said;
  for (size_t i = 0; i < N; ++i) {
    if (!values[i]) continue;
    if (said && *said != *values[i]) {
      fields.fail_value(names[i], "another name of it was given another value");
    }
    said = values[i];
  }
  return said;
}

void read_max_tokens(Fields& fields, bool chat, RequestOptions& options) {
  // -1 is llama-server's word for no limit, under any name. 0 evaluates the prompt and answers nothing,
  // which OpenAI allows for completions only.
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

void read_bias_entry(Fields& fields, std::optional<int64_t> token, const Json& bias,
                     Sampling& sampling) {
  if (!token || *token < 0 || *token >= kTokenLimit) {
    fields.fail_value("logit_bias", "expected token ids, whole numbers from 0 to 2147483647");
    return;
  }
  const std::optional<double> value = bias.number();
  if (const bool* flag = bias.boolean(); flag != nullptr && !*flag) {
    // llama-server's false: never.
    sampling.bias.emplace_back(static_cast<Token>(*token), -std::numeric_limits<float>::infinity());
  } else if (!value) {
    fields.fail_type("logit_bias", "biases that are numbers", bias);
  } else if (*value < -100.0 || *value > 100.0) {
    fields.fail_range("logit_bias", bias, -100.0, 100.0);
  } else {
    sampling.bias.emplace_back(static_cast<Token>(*token), static_cast<float>(*value));
  }
}

// OpenAI's {"15043": -1.5} or llama-server's [[15043, -1.5], [7, false]].
void read_bias(Fields& fields, const ApiRules& rules, Sampling& sampling) {
  const Json* const value = fields.take("logit_bias");
  if (value == nullptr) return;
  const Json::Object* const object = value->object();
  const Json::Array* const array = value->array();
  if (object == nullptr && array == nullptr) {
    fields.fail_type("logit_bias", "an object or an array of pairs", *value);
    return;
  }
  const size_t count = object != nullptr ? object->size() : array->size();
  if (count > rules.max_biases) {
    fields.fail_value("logit_bias", "expected at most " + std::to_string(rules.max_biases) +
                                        " entries, but got " + std::to_string(count));
    return;
  }
  if (object != nullptr) {
    for (const Json::Member& member : *object) {
      int64_t token = 0;
      const char* const end = member.name.data() + member.name.size();
      const auto [at, fault] = std::from_chars(member.name.data(), end, token);
      const bool good = fault == std::errc() && at == end;
      read_bias_entry(fields, good ? std::optional(token) : std::nullopt, member.value, sampling);
    }
    return;
  }
  for (const Json& entry : *array) {
    const Json::Array* const pair = entry.array();
    if (pair == nullptr || pair->size() != 2) {
      fields.fail_type("logit_bias", "pairs of a token id and a bias", entry);
      return;
    }
    if (pair->front().string() != nullptr) {
      fields.fail_unsupported("logit_bias", "a bias for a text is not; name tokens by their ids");
      return;
    }
    read_bias_entry(fields, whole_number(pair->front()), pair->back(), sampling);
  }
}

void read_sampling(Fields& fields, const ApiRules& rules, Sampling& sampling) {
  put(fields.number("temperature", 0.0, 2.0), sampling.temperature);
  put(fields.number("top_p", 0.0, 1.0), sampling.top_p);
  put(fields.number("min_p", 0.0, 1.0), sampling.min_p);
  put(fields.number("presence_penalty", -2.0, 2.0), sampling.presence_penalty);
  put(fields.number("frequency_penalty", -2.0, 2.0), sampling.frequency_penalty);
  // 0 and -1 are all tokens, in llama-server and in vLLM.
  if (const auto top_k = fields.integer("top_k", -1, kMaxCount)) {
    sampling.top_k = static_cast<uint32_t>(std::max<int64_t>(*top_k, 0));
  }
  constexpr std::array<std::string_view, 2> kRepeat = {"repeat_penalty", "repetition_penalty"};
  put(agreed<double, 2>(
          fields, kRepeat,
          {fields.number(kRepeat[0], 0.01, 10.0), fields.number(kRepeat[1], 0.01, 10.0)}),
      sampling.repeat_penalty);
  // -1: the whole context.
  if (const auto last = fields.integer("repeat_last_n", -1, kMaxCount)) {
    sampling.repeat_last =
        *last < 0 ? std::numeric_limits<uint32_t>::max() : static_cast<uint32_t>(*last);
  }
  if (const Json* seed = fields.take("seed")) {
    const auto* large = std::get_if<uint64_t>(&seed->value);
    const std::optional<int64_t> whole = whole_number(*seed);
    if (large != nullptr) {
      sampling.seed = *large;
    } else if (!whole) {
      fields.fail_type("seed", "an integer", *seed);
    } else {
      // -1 is llama-server's word for any.
      sampling.seed = *whole == -1 ? std::nullopt : std::optional(static_cast<uint64_t>(*whole));
    }
  }
  read_bias(fields, rules, sampling);
  if (const auto ignore = fields.boolean("ignore_eos")) sampling.ignore_eos = *ignore;
}

void read_stop(Fields& fields, const ApiRules& rules, std::vector<std::string>& stop) {
  const Json* const value = fields.take("stop");
  if (value == nullptr) return;
  const auto add = [&](const Json& entry) {
    const std::string* const text = entry.string();
    if (text == nullptr) {
      fields.fail_type("stop", "a string or an array of strings", entry);
    } else if (text->empty() || text->size() > rules.max_stop_bytes) {
      fields.fail_value("stop", "expected texts of 1 to " + std::to_string(rules.max_stop_bytes) +
                                    " bytes, but got one of " + std::to_string(text->size()));
    } else {
      stop.push_back(*text);
    }
  };
  const Json::Array* const array = value->array();
  if (array == nullptr) {
    add(*value);
    return;
  }
  if (array->size() > rules.max_stops) {
    fields.fail_value("stop",
                      "expected at most " + std::to_string(rules.max_stops) + " texts, but got " +
                          std::to_string(array->size()),
                      "array_above_max_length");
    return;
  }
  for (const Json& entry : *array) add(entry);
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
  inner.ignore("include_obfuscation", Fields::Kind::boolean, options.ignored);
  inner.finish();
}

void read_cache(Fields& fields, const ApiRules& rules, RequestOptions& options) {
  options.session = fields.string("prompt_cache_key", rules.max_name_bytes).value_or("");
  const auto salt = fields.string("cache_salt", rules.max_name_bytes);
  // An empty one would share with everybody what was meant to be shared with nobody.
  if (salt && salt->empty()) fields.fail_value("cache_salt", "expected a text that is not empty");
  options.salt = salt.value_or("");
  options.reuse = fields.boolean("cache_prompt").value_or(true);
  if (const auto retention = fields.string("prompt_cache_retention", rules.max_name_bytes)) {
    if (*retention == "in_memory" || *retention == "in-memory") {
      options.retention = CacheRetention::in_memory;
    } else if (*retention == "24h") {
      options.retention = CacheRetention::day;
    } else {
      fields.fail_value("prompt_cache_retention", "expected 'in_memory' or '24h'");
    }
  }
  if (const auto slot = fields.integer("id_slot", -1, kMaxCount); slot && *slot >= 0) {
    options.slot = static_cast<uint32_t>(*slot);
  }
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
}

// --- prompts and tokens -----------------------------------------------------------------------------

void read_tokens(Fields& fields, std::string_view name, const Json::Array& array,
                 std::vector<Token>& tokens) {
  tokens.reserve(array.size());
  for (const Json& entry : array) {
    const std::optional<int64_t> token = whole_number(entry);
    if (!token && !std::holds_alternative<uint64_t>(entry.value)) {
      fields.fail_type(name, "token ids", entry);
      return;
    }
    if (!token || *token < 0 || *token >= kTokenLimit) {
      fields.fail_range(name, entry, 0.0, kTokenLimit - 1.0);
      return;
    }
    tokens.push_back(static_cast<Token>(*token));
  }
}

void read_prompt(Fields& fields, CompletionRequest& request) {
  const Json* value = fields.take("prompt");
  if (value == nullptr) {
    fields.fail_missing("prompt");
    return;
  }
  if (const std::string* text = value->string()) {
    request.prompt = *text;
    return;
  }
  const Json::Array* array = value->array();
  if (array == nullptr) {
    fields.fail_type("prompt", "a string or an array", *value);
    return;
  }
  if (array->empty()) {
    fields.fail_value("prompt", "expected at least one prompt", "empty_array");
    return;
  }
  if (array->front().string() != nullptr || array->front().array() != nullptr) {
    if (array->size() > 1) {
      fields.fail_unsupported("prompt", "more than one prompt in a request is not; send one each");
      return;
    }
    if (const std::string* text = array->front().string()) {
      request.prompt = *text;
      return;
    }
    array = array->front().array();
    if (array->empty()) {
      fields.fail_value("prompt", "expected at least one token", "empty_array");
      return;
    }
  }
  read_tokens(fields, "prompt", *array, request.tokens);
}

// --- bodies -----------------------------------------------------------------------------------------

// Parses the body and hands its fields to `read`, which asks for all it knows.
template <class Read>
Failure decode(std::string_view body, const ApiRules& rules, Read&& read) {
  const std::variant<Json, JsonFault> parsed = parse_json(body, rules.json);
  if (const auto* fault = std::get_if<JsonFault>(&parsed)) {
    return ApiError{.message = "The body is not valid JSON: " + fault->message,
                    .code = "invalid_json"};
  }
  const Json& value = std::get<Json>(parsed);
  Failure failure;
  if (value.object() == nullptr) {
    return ApiError{
        .message = std::string("The body must be a JSON object, but it is ") + value.kind() + ".",
        .code = "invalid_type"};
  }
  Fields fields(*value.object(), "", failure);
  read(fields, failure);
  fields.finish();
  return failure;
}

}  // namespace

std::optional<ApiError> decode_chat(std::string_view body, const ApiRules& rules,
                                    ChatRequest& request) {
  request = {};
  return decode(body, rules, [&](Fields& fields, Failure& failure) {
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
    fields.refuse({"echo", {"false"}});
  });
}

std::optional<ApiError> decode_apply_template(std::string_view body, const ApiRules& rules,
                                              ChatRequest& request) {
  return decode_chat(body, rules, request);
}

std::optional<ApiError> decode_completion(std::string_view body, const ApiRules& rules,
                                          CompletionRequest& request) {
  request = {};
  return decode(body, rules, [&](Fields& fields, Failure& failure) {
    RequestOptions& options = request.options;
    read_options(fields, rules, false, options, failure);
    read_prompt(fields, request);
    if (const auto top = fields.integer("logprobs", 0, rules.max_top_logprobs)) {
      options.top_logprobs = static_cast<uint32_t>(*top);
    }
    request.echo = fields.boolean("echo").value_or(false);
    fields.refuse({"suffix", {R"("")"}});
    // As many candidates as answers is what happens anyway.
    const auto best_of = fields.integer("best_of", 0, kMaxCount);
    if (best_of && *best_of > 1 && *best_of != options.choices) {
      fields.fail_unsupported("best_of", "choosing among more answers than 'n' is not");
    }
  });
}

std::optional<ApiError> decode_purge(std::string_view body, const ApiRules& rules,
                                     PurgeRequest& request) {
  request = {};
  return decode(body, rules, [&](Fields& fields, Failure& /*failure*/) {
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
  return decode(body, rules, [&](Fields& fields, Failure& /*failure*/) {
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
  return decode(body, rules, [&](Fields& fields, Failure& /*failure*/) {
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
