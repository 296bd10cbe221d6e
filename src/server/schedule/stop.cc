#include "server/schedule/stop.h"

#include <algorithm>
#include <utility>

namespace stemma::server {
namespace {

// borders[n]: the length of the longest proper prefix of the first n + 1 bytes that is also a
// suffix of them.
std::vector<uint32_t> borders_of(std::string_view text) {
  std::vector<uint32_t> borders(text.size(), 0);
  for (uint32_t i = 1, k = 0; i < text.size(); ++i) {
    while (k != 0 && text[i] != text[k]) k = borders[k - 1];
    if (text[i] == text[k]) ++k;
    borders[i] = k;
  }
  return borders;
}

// Size of the first character of `text`, which is valid and not empty.
uint32_t first_character(std::string_view text) {
  const uint8_t byte = static_cast<uint8_t>(text.front());
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  matchers_.resize(stops_.size());
  for (size_t i = 0; i < stops_.size(); ++i) {
    // A matcher without borders is never used.
    if (is_utf8(stops_[i])) matchers_[i].borders = borders_of(stops_[i]);
  }
}

// Feeds `text` to the matchers up to the first byte that completes a stop text. Returns the longest
// stop text completed there, and in `end` how many bytes of `text` that took.
std::optional<uint32_t> TextStream::match(std::string_view text, uint64_t& end) {
  std::optional<uint32_t> found;
  for (end = 0; end < text.size() && !found;) {
    const char byte = text[end++];
    for (uint32_t i = 0; i < matchers_.size(); ++i) {
      Matcher& matcher = matchers_[i];
      if (matcher.borders.empty()) continue;
      const std::string& stop = stops_[i];
      uint32_t k = matcher.matched;
      while (k != 0 && byte != stop[k]) k = matcher.borders[k - 1];
      if (byte == stop[k]) ++k;
      matcher.matched = k;
      if (k == stop.size() && (!found || stop.size() > stops_[*found].size())) found = i;
    }
  }
  return found;
}

// Adds this call's characters to the text, and releases what no stop text can need.
TextStream::Released TextStream::take(std::string& out) {
  Released released;
  uint64_t hold = 0;
  if (matchers_.empty()) {
    held_.swap(fresh_);
  } else {
    uint64_t end = 0;
    released.stop = match(fresh_, end);
    held_.append(fresh_, 0, end);
    for (const Matcher& matcher : matchers_) hold = std::max<uint64_t>(hold, matcher.matched);
  }
  if (released.stop) {
    stopped_ = true;
    // The rest of held_ is the complete stop text, which is never released.
    hold = stops_[*released.stop].size();
  }
  released.tokens = release(hold, out);
  if (stopped_) {
    held_.clear();
    tokens_.clear();
  }
  return released;
}

// Appends all but the last `hold` bytes of the held text, and counts the tokens that end there.
uint32_t TextStream::release(uint64_t hold, std::string& out) {
  const uint64_t bytes = held_.size() - hold;
  out.append(held_, 0, bytes);
  held_.erase(0, bytes);
  released_ += bytes;
  const auto last = std::find_if(tokens_.begin(), tokens_.end(), [&](const Span& token) {
    // Nothing ends after a stop text: tokens with some text before it are counted with that text.
    return stopped_ ? token.begin >= released_ && token.end > released_ : token.end > released_;
  });
  const uint32_t count = static_cast<uint32_t>(last - tokens_.begin());
  tokens_.erase(tokens_.begin(), last);
  return count;
}

void TextStream::close_open(uint64_t end) {
  for (; open_ != 0; --open_) tokens_[tokens_.size() - open_].end = end;
}

TextStream::Released TextStream::add(std::string_view bytes, std::string& out) {
  if (stopped_) return {};
  const uint64_t begin = released_ + held_.size();
  fresh_.clear();
  // A character of several tokens belongs to each of them as a whole.
  const uint32_t waited = characters_.waiting();
  characters_.add(bytes, fresh_);
  const uint64_t end = begin + fresh_.size();
  // The waiting bytes are now a character, or U+FFFD: the first of the fresh ones.
  if (waited != 0 && !fresh_.empty()) close_open(begin + first_character(fresh_));
  tokens_.push_back({begin, end});
  if (characters_.waiting() != 0) {
    tokens_.back().end = kOpen;
    ++open_;
  }
  return take(out);
}

TextStream::Released TextStream::finish(std::string& out) {
  if (stopped_) return {};
  const uint64_t begin = released_ + held_.size();
  fresh_.clear();
  characters_.finish(fresh_);
  close_open(begin + fresh_.size());
  Released released = take(out);
  if (released.stop) return released;
  released.tokens += release(0, out);
  for (Matcher& matcher : matchers_) matcher.matched = 0;
  return released;
}

}  // namespace stemma::server
