// Decodes and encodes /v1/embeddings in OpenAI's format.
//
// Unknown fields are listed in `ignored`. `dimensions` may only name the model's own width: vectors
// are not shortened, because only models that were trained for it have vectors that can be.
//
// Threading:  pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/error.h"
#include "server/api/request.h"

namespace stemma::server {

struct EmbeddingsRequest {
  std::string model;                     // Empty: not given.
  std::vector<CompletionPrompt> inputs;  // At least one.
  bool base64 = false;                   // encoding_format: little-endian floats as base64.
  std::vector<std::string> ignored;
};

// `width`: of the model's vectors.
[[nodiscard]] std::optional<ApiError> decode_embeddings(std::string_view body,
                                                        const ApiRules& rules, uint32_t width,
                                                        EmbeddingsRequest& request);

// Writes the answer, vector by vector: only the text is held.
class EmbeddingsWriter {
 public:
  explicit EmbeddingsWriter(bool base64) : base64_(base64) {}
  void add(std::span<const float> vector);
  uint64_t bytes() const noexcept { return out_.size(); }
  std::string take(std::string_view model, uint64_t tokens);

 private:
  const bool base64_;
  std::string out_ = R"({"object":"list","data":[)";
  uint64_t count_ = 0;
};

// Appends bytes as base64 with padding.
void append_base64(std::string& out, std::span<const uint8_t> bytes);

}  // namespace stemma::server
