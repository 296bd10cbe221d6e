#include "sequence/lexicon.h"

#include <algorithm>
#include <new>

#include "base/vectors.h"

namespace stemma::sequence {

Prompt Text::prompt(uint32_t n) const noexcept {
  size_t items = media.size();
  while (items != 0 && media[items - 1].offset >= n) --items;
  return {std::span(tokens).first(n), std::span(media).first(items)};
}

Result<void> Lexicon::read(const Prompt& prompt, Text& out) try {
  release(out);
  if (prompt.tokens.size() > key::kMaxPromptPositions) {
    return Error(Errc::invalid_argument, "the prompt is longer than 2^31 - 1 positions");
  }
  if (const Result<void> found = key::find_media_spans(prompt, out.spans); !found) {
    const bool memory = found.error().code() == Errc::out_of_memory;
    return Error(memory ? Errc::out_of_memory : Errc::invalid_argument, found.error().message(),
                 found.error().value());
  }
  if (!key::all_tokens_valid(prompt.tokens)) {
    if (const auto bad = key::first_bad_token(prompt.tokens, out.spans)) {
      out.spans.clear();
      return Error(Errc::invalid_argument, "not a token (2^31 or more) at this position", *bad);
    }
  }
  out.tokens.assign(prompt.tokens.begin(), prompt.tokens.end());
  if (prompt.media.empty()) return {};
  out.media.assign(prompt.media.begin(), prompt.media.end());
  out.words = out.tokens;
  out.media_numbers.reserve(out.spans.size());
  for (const key::MediaSpan& span : out.spans) {
    Result<uint32_t> number = media_.intern(0, span.identity);
    if (!number) {
      const Error error = number.error();
      release(out);
      return error;
    }
    out.media_numbers.push_back(*number);
    std::fill(out.words.begin() + span.begin, out.words.begin() + span.end,
              key::media_word(*number));
  }
  return {};
} catch (const std::bad_alloc&) {
  release(out);
  return Error(Errc::out_of_memory, "no memory for the prompt");
}

Result<void> Lexicon::append(std::span<const Token> tokens, Text& text) try {
  if (tokens.size() > key::kMaxPromptPositions - text.tokens.size()) {
    return Error(Errc::invalid_argument, "the text would be longer than 2^31 - 1 positions");
  }
  if (const auto bad = key::first_bad_token(tokens)) {
    return Error(Errc::invalid_argument, "not a token (2^31 or more) at this position", *bad);
  }
  base::make_room(text.tokens, tokens.size());
  if (!text.media.empty()) base::make_room(text.words, tokens.size());
  text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
  if (!text.media.empty()) text.words.insert(text.words.end(), tokens.begin(), tokens.end());
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for more tokens");
}

void Lexicon::cut(Text& text, uint32_t n) noexcept {
  if (n >= text.tokens.size() && n != 0) return;
  text.tokens.resize(n);
  if (!text.words.empty()) text.words.resize(n);
  while (!text.media.empty() && text.media.back().offset >= n) text.media.pop_back();
  while (!text.spans.empty() && text.spans.back().begin >= n) {
    text.spans.pop_back();
    // A read that failed has fewer numbers than spans.
    if (text.media_numbers.size() <= text.spans.size()) continue;
    media_.drop_reference(text.media_numbers.back());
    text.media_numbers.pop_back();
  }
  if (text.media.empty()) text.words.clear();
}

Result<void> Lexicon::hold(const Text& text, uint32_t n, std::vector<uint32_t>& numbers) try {
  size_t items = text.spans.size();
  while (items != 0 && text.spans[items - 1].begin >= n) --items;
  base::make_room(numbers, items);
  for (size_t i = 0; i < items; ++i) {
    media_.add_reference(text.media_numbers[i]);
    numbers.push_back(text.media_numbers[i]);
  }
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a prompt's media items");
}

void Lexicon::drop(std::vector<uint32_t>& numbers) noexcept {
  for (uint32_t number : numbers) media_.drop_reference(number);
  numbers.clear();
}

}  // namespace stemma::sequence
