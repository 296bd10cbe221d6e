#include "server/api/openai/embeddings.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "json/json.h"
#include "server/api/body.h"
#include "server/api/options.h"
#include "server/api/prompts.h"

namespace stemma::server {
namespace {

constexpr size_t kMostInputs = 2048;  // OpenAI's limit.

}  // namespace

std::optional<ApiError> decode_embeddings(std::string_view body, const ApiRules& rules,
                                          uint32_t width, EmbeddingsRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& /*failure*/) {
    request.model = fields.string("model", rules.max_name_bytes).value_or("");
    request.inputs =
        read_prompts(fields, "input",
                     {.prompts = kMostInputs,
                      .too_many = "expected at most " + std::to_string(kMostInputs) + " inputs"});
    const std::string format = fields.string("encoding_format", 64).value_or("float");
    if (format != "float" && format != "base64") {
      fields.fail_value("encoding_format", "expected 'float' or 'base64'");
    }
    request.base64 = format == "base64";
    const auto dimensions = fields.integer("dimensions", 1, kMaxCount);
    if (dimensions && *dimensions != width) {
      fields.fail_unsupported("dimensions", "this model's vectors have " + std::to_string(width) +
                                                " numbers and are not shortened");
    }
    fields.pass_over_rest(request.ignored);
  });
}

void append_base64(std::string& out, std::span<const uint8_t> bytes) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t three = 0;
    for (size_t i = 0; i < 3; ++i) three = three << 8U | (i < count ? bytes[at + i] : 0U);
    for (size_t i = 0; i < 4; ++i) {
      out += i <= count ? kLetters[three >> (18 - 6 * i) & 63U] : '=';
    }
  }
}

void EmbeddingsWriter::add(std::span<const float> vector) {
  if (count_ != 0) out_ += ',';
  out_ += R"({"object":"embedding","index":)";
  append_json_number(out_, count_++);
  out_ += R"(,"embedding":)";
  if (!base64_) {
    out_ += '[';
    for (size_t i = 0; i < vector.size(); ++i) {
      if (i != 0) out_ += ',';
      append_json_number(out_, vector[i]);
    }
    out_ += "]}";
    return;
  }
  std::vector<uint8_t> bytes;
  bytes.reserve(vector.size() * 4);
  for (const float each : vector) {
    const auto bits = std::bit_cast<uint32_t>(each);
    for (uint32_t shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<uint8_t>(bits >> shift));
    }
  }
  out_ += '"';
  append_base64(out_, bytes);
  out_ += "\"}";
}

std::string EmbeddingsWriter::take(std::string_view model, uint64_t tokens) {
  out_ += R"(],"model":)";
  append_json_string(out_, model);
  out_ += R"(,"usage":{"prompt_tokens":)";
  append_json_number(out_, tokens);
  out_ += R"(,"total_tokens":)";
  append_json_number(out_, tokens);
  out_ += "}}";
  return std::move(out_);
}

}  // namespace stemma::server
