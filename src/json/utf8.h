// UTF-8 in portions: bytes cut anywhere become whole characters, and invalid bytes become U+FFFD.
//
// Like browsers and Python, it counts each longest incomplete beginning of a character as one
// error, so that the result does not depend on how the bytes were cut.
// Threading:  one thread at a time.
// Cost:       O(bytes); a run of ASCII is copied at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stemma {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

class Utf8Stream {
 public:
  // Appends the characters that `bytes` complete; an incomplete character waits.
  void add(std::string_view bytes, std::string& out);
  // Ends the text: appends U+FFFD if a character is incomplete.
  void finish(std::string& out);
  // Bytes of the incomplete character, 0 to 3.
  uint32_t waiting() const noexcept { return have_; }

 private:
  void begin(uint8_t byte, std::string& out);

  char part_[4] = {};
  uint32_t have_ = 0;
  uint32_t want_ = 0;
  uint8_t low_ = 0x80;  // The least value of the next byte.
  uint8_t high_ = 0xBF;
};

bool is_utf8(std::string_view text);
// `text` with every error replaced.
std::string to_utf8(std::string_view text);

}  // namespace stemma
