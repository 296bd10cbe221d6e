// A TextStream turns the bytes of generated tokens into text that may be sent: whole characters,
// without any stop text and without anything that may become the beginning of one.
//
//   token bytes --> characters --> held back while a stop text may begin there --> released
//                   (U+FFFD for invalid bytes; a partial character waits for the next token)
//
// The answer ends as soon as a stop text is complete, and does not include it. If several stop
// texts end at the same byte, the longest counts. So the outcome depends on the text alone and not
// on how it was cut into tokens.
//
// Invariant:  released texts, joined, are valid UTF-8 and the same for every way to cut the bytes;
//             a token is released with the text of its last byte.
// Threading:  one thread at a time.
// Cost:       O(bytes x stop texts): each has a Knuth-Morris-Pratt matcher of 4 bytes per byte of
//             text. Held text is shorter than the longest stop text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/utf8.h"

namespace stemma::server {

inline constexpr uint32_t kMaxStopTexts = 16;
inline constexpr uint32_t kMaxStopBytes = 1024;

class TextStream {
 public:
  // An empty stop text, or one that is not UTF-8, never matches.
  explicit TextStream(std::vector<std::string> stops = {});

  // What a call released, besides the text that it appended.
  struct Released {
    // How many more tokens are released, in the order they came. Tokens inside the stop text are
    // never released; a token that reaches into it is.
    uint32_t tokens = 0;
    std::optional<uint32_t> stop;  // Which stop text is complete. Later tokens are ignored.
  };

  // Takes the next token's bytes. Appends the text that can be sent now to `out`.
  Released add(std::string_view bytes, std::string& out);
  // Releases everything. Call it when the answer ended for another reason.
  Released finish(std::string& out);

  bool stopped() const noexcept { return stopped_; }
  // The stop texts, as given.
  const std::vector<std::string>& stops() const noexcept { return stops_; }
  // The size of the held text, without an incomplete character.
  uint64_t held_bytes() const noexcept { return held_.size(); }
  uint64_t released_bytes() const noexcept { return released_; }

 private:
  // The progress of one stop text.
  struct Matcher {
    std::vector<uint32_t> borders;  // KMP's failure table.
    uint32_t matched = 0;           // Bytes of it that the text ends with.
  };
  // Where a token's text lies in the whole text.
  struct Span {
    uint64_t begin;
    uint64_t end;  // kOpen: it ends in the incomplete character.
  };
  static constexpr uint64_t kOpen = ~uint64_t{0};

  std::optional<uint32_t> match(std::string_view text, uint64_t& end);
  Released take(std::string& out);
  uint32_t release(uint64_t hold, std::string& out);
  void close_open(uint64_t end);

  std::vector<std::string> stops_;
  std::vector<Matcher> matchers_;
  Utf8Stream characters_;
  std::string fresh_;  // Characters of this call.
  std::string held_;
  uint64_t released_ = 0;     // Bytes.
  std::vector<Span> tokens_;  // Not released; those of the incomplete character come last.
  uint32_t open_ = 0;         // How many of them end in that character.
  bool stopped_ = false;
};

}  // namespace stemma::server
