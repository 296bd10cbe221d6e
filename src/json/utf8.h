// UTF-8 as it arrives: bytes in any portions become whole characters, and what is none becomes U+FFFD.
//
// Each longest beginning of a character that is not continued counts as one error, as browsers and Python
// do it, so that the outcome does not depend on how the bytes were cut.
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
  // Appends the characters that `bytes` complete; the beginning of another one waits.
  void add(std::string_view bytes, std::string& out);
  // Nothing follows: appends U+FFFD if a character waits for its end.
  void finish(std::string& out);
  // Bytes of the character that has begun, 0 to 3.
  uint32_t waiting() const noexcept { return have_; }

 private:
  void begin(uint8_t byte, std::string& out);

  char part_[4] = {};
  uint32_t have_ = 0;
  uint32_t want_ = 0;
  uint8_t low_ = 0x80;  // What the next byte may be.
  uint8_t high_ = 0xBF;
};

bool is_utf8(std::string_view text);
// `text` with every error replaced.
std::string to_utf8(std::string_view text);

}  // namespace stemma
