#include "server/api/options.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace stemma::server {
namespace {

void put(std::optional<double> value, float& out) {
  if (value) out = static_cast<float>(*value);
}

void read_bias_entry(Fields& fields, std::optional<int64_t> token, const Json& bias,
                     Sampling& sampling) {
  if (!token || *token < 0 || *token >= kTokenLimit) {
    fields.fail_value("logit_bias", "expected token ids, whole numbers from 0 to 2147483647");
    return;
  }
  const std::optional<double> value = bias.number();
  if (const bool* flag = bias.boolean(); flag != nullptr && !*flag) {
    // llama-server's false: this token never comes.
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

}  // namespace

void read_sampling(Fields& fields, const ApiRules& rules, Sampling& sampling) {
  put(fields.number("temperature", 0.0, 2.0), sampling.temperature);
  put(fields.number("top_p", 0.0, 1.0), sampling.top_p);
  put(fields.number("min_p", 0.0, 1.0), sampling.min_p);
  put(fields.number("presence_penalty", -2.0, 2.0), sampling.presence_penalty);
  put(fields.number("frequency_penalty", -2.0, 2.0), sampling.frequency_penalty);
  // 0 and -1 mean all tokens, in llama-server and in vLLM.
  if (const auto top_k = fields.integer("top_k", -1, kMaxCount)) {
    sampling.top_k = static_cast<uint32_t>(std::max<int64_t>(*top_k, 0));
  }
  constexpr std::array<std::string_view, 2> kRepeat = {"repeat_penalty", "repetition_penalty"};
  put(agreed<double, 2>(
          fields, kRepeat,
          {fields.number(kRepeat[0], 0.01, 10.0), fields.number(kRepeat[1], 0.01, 10.0)}),
      sampling.repeat_penalty);
  // -1 means the whole context.
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
      // -1 means any seed in llama-server.
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

void read_cache(Fields& fields, const ApiRules& rules, RequestOptions& options) {
  options.session = fields.string("prompt_cache_key", rules.max_name_bytes).value_or("");
  const auto salt = fields.string("cache_salt", rules.max_name_bytes);
  // An empty salt would share with everybody what was meant to stay private.
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

}  // namespace stemma::server
