#include "server/api/request.h"

#include <algorithm>

namespace stemma::server {

std::string Message::text() const {
  std::string all;
  for (const ContentPart& part : parts) all += part.text;
  return all;
}

Generation RequestOptions::generation() const {
  Generation generation;
  generation.session = session;
  generation.salt = salt;
  generation.reuse = reuse;
  generation.sampling = sampling;
  generation.stop = stop;
  generation.max_tokens = max_tokens.value_or(generation.max_tokens);
  generation.choices = choices;
  generation.top_logprobs = top_logprobs;
  return generation;
}

std::optional<ApiError> check_vocabulary(const std::vector<Token>& tokens, std::string_view param,
                                         uint32_t vocabulary) {
  const auto beyond =
      std::find_if(tokens.begin(), tokens.end(), [&](Token token) { return token >= vocabulary; });
  if (beyond == tokens.end()) return {};
  return ApiError{.message = "Invalid '" + std::string(param) + "': expected token ids from 0 to " +
                             std::to_string(int64_t{vocabulary} - 1) + ", but got " +
                             std::to_string(*beyond) + ".",
                  .param = std::string(param),
                  .code = "invalid_value"};
}

std::optional<ApiError> check_vocabulary(const RequestOptions& options, uint32_t vocabulary) {
  std::vector<Token> tokens;
  for (const auto& [token, bias] : options.sampling.bias) tokens.push_back(token);
  return check_vocabulary(tokens, "logit_bias", vocabulary);
}

}  // namespace stemma::server
