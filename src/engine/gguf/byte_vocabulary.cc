#include "engine/gguf/byte_vocabulary.h"

#include <array>

namespace stemma::gguf {
namespace {

constexpr std::array<std::string_view, 5> kSpecials = {"<|bos|>", "<|eos|>", "<|im_start|>",
                                                       "<|im_end|>", "<|pad|>"};
static_assert(kFirstMention == kBos + kSpecials.size());
static_assert(kVocabulary == kFirstMention + kSpecials.size());

// Kinds of tokens, numbered by the format.
constexpr int32_t kNormal = 1;
constexpr int32_t kControl = 3;

}  // namespace

std::string token_spelling(uint32_t token) {
  if (token >= kFirstMention) return "\\" + std::string(kSpecials[token - kFirstMention]);
  if (token >= kByteTokens) return std::string(kSpecials[token - kByteTokens]);
  if (token > 0x20 && token < 0x7F && token != '\\') return {static_cast<char>(token)};
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'\\', 'x', kDigits[token >> 4], kDigits[token & 15]};
}

std::string_view chat_template() noexcept {
  return "{{ bos_token }}"
         "{% for message in messages %}"
         "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
         "{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
}

void describe_vocabulary(GgufHeader& header) {
  std::vector<std::string> spellings;
  std::vector<int32_t> kinds;
  for (uint32_t token = 0; token < kVocabulary; ++token) {
    spellings.push_back(token_spelling(token));
    kinds.push_back(token >= kByteTokens && token < kFirstMention ? kControl : kNormal);
  }
  header.set_string("tokenizer.ggml.model", "rwkv");
  header.set_strings("tokenizer.ggml.tokens", spellings);
  header.set_i32s("tokenizer.ggml.token_type", kinds);
  header.set_u32("tokenizer.ggml.bos_token_id", kBos);
  header.set_u32("tokenizer.ggml.eos_token_id", kEos);
  header.set_u32("tokenizer.ggml.eot_token_id", kImEnd);
  header.set_u32("tokenizer.ggml.padding_token_id", kPad);
  header.set_bool("tokenizer.ggml.add_bos_token", false);
  header.set_bool("tokenizer.ggml.add_eos_token", false);
  header.set_string("tokenizer.chat_template", chat_template());
}

}  // namespace stemma::gguf
