// The vocabulary of made models: every byte is a token, and the token's number is the byte.
//
//     0 .. 255   the bytes
//   256 .. 260   <|bos|>  <|eos|>  <|im_start|>  <|im_end|>  <|pad|>
//   261 .. 265   "mentions": the texts of those five as plain text
//
// It is written as an RWKV vocabulary, the only kind that llama.cpp matches against raw bytes:
// others replace what is not UTF-8, or confuse a space with U+2581. So any bytes come back
// unchanged, one token each, in linear time. Two things follow:
//  - That matcher also sees the texts of control tokens. The mentions come after these with the
//    same bytes and take their place: text that is not parsed for special tokens never becomes one.
//    Such a text is one token instead of several bytes.
//  - llama.cpp puts no BOS in front for this kind, so the file asks for none. The chat template
//    does.
// Threading: immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf/gguf_writer.h"

namespace stemma::gguf {

inline constexpr uint32_t kByteTokens = 256;
inline constexpr uint32_t kBos = 256;
inline constexpr uint32_t kEos = 257;
inline constexpr uint32_t kImStart = 258;
inline constexpr uint32_t kImEnd = 259;  // Ends a turn; made models produce it now and then.
inline constexpr uint32_t kPad = 260;
inline constexpr uint32_t kFirstMention = 261;
inline constexpr uint32_t kVocabulary = 266;

// How the file spells a token: backslashes and bytes outside printable ASCII are escaped.
std::string token_spelling(uint32_t token);
// Writes a conversation with <|im_start|>role, a line end, the content, <|im_end|> and a line end.
std::string_view chat_template() noexcept;
// All of the tokenizer's keys.
void describe_vocabulary(GgufHeader& header);

}  // namespace stemma::gguf
