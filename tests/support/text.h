// Prompts for tests: short to write, and easy to tell apart.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "stemma/ids.h"
#include "stemma/prompt.h"

namespace stemma::test {

// A prompt that owns its tokens and media.
struct Text {
  std::vector<Token> tokens;
  std::vector<MediaItem> media;

  operator Prompt() const { return {.tokens = tokens, .media = media}; }  // NOLINT: on purpose
  uint32_t size() const { return static_cast<uint32_t>(tokens.size()); }

  // The first `count` positions, with the media items that end within them.
  Text first(uint32_t count) const {
    Text head;
    head.tokens.assign(tokens.begin(), tokens.begin() + count);
    for (const MediaItem& item : media) {
      if (item.offset + item.length <= count) head.media.push_back(item);
    }
    return head;
  }
  // The same text with one more media item over it.
  Text with(const MediaItem& item) const {
    Text more = *this;
    more.media.push_back(item);
    return more;
  }
  Text without_media() const { return {tokens, {}}; }

  friend Text operator+(const Text& head, const Text& tail) {
    Text sum = head;
    sum.tokens.insert(sum.tokens.end(), tail.tokens.begin(), tail.tokens.end());
    for (MediaItem item : tail.media) {
      item.offset += head.size();
      sum.media.push_back(item);
    }
    return sum;
  }
};

// "the cat sat": one token per word, the same token for the same word.
inline Text prompt(std::string_view words) {
  Text text;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    uint32_t token = 2166136261U;
    for (char letter : words.substr(0, end)) {
      token = (token ^ static_cast<uint8_t>(letter)) * 16777619U;
    }
    if (end != 0) text.tokens.push_back(token & (kTokenLimit - 1));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return text;
}

// `count` tokens. Texts of two seeds have no token in common (up to 100,000 of them).
inline Text tokens(uint32_t count, uint32_t seed = 1) {
  Text text;
  text.tokens.resize(count);
  for (uint32_t i = 0; i < count; ++i) text.tokens[i] = seed * 100'000 + i;
  return text;
}

// The tokens begin, begin + 1, ... end - 1.
inline Text counting(Token begin, Token end) {
  Text text;
  for (Token token = begin; token < end; ++token) text.tokens.push_back(token);
  return text;
}

inline Text of(std::vector<Token> list) { return {std::move(list), {}}; }

// Media items whose content is a single number.
inline MediaItem media(MediaKind kind, uint8_t content, uint32_t offset, uint32_t length,
                       bool causal = false) {
  MediaItem item{.kind = kind, .offset = offset, .length = length, .causal = causal};
  item.digest.fill(content);
  return item;
}
inline MediaItem image(uint8_t content, uint32_t offset, uint32_t length) {
  return media(MediaKind::image, content, offset, length);
}
inline MediaItem audio(uint8_t content, uint32_t offset, uint32_t length) {
  return media(MediaKind::audio, content, offset, length);
}
inline MediaItem video(uint8_t content, uint32_t offset, uint32_t length) {
  return media(MediaKind::video, content, offset, length);
}

}  // namespace stemma::test
