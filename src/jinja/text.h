// Text: bytes that know where they came from.
//
// A mark says that [begin, end) came from a text to which the caller gave an origin, for example a
// message. Marks are ascending, not empty, and do not touch if their origins are equal. Bytes
// without a mark are the template's own. Bytes should be UTF-8 but may be anything: a byte that
// belongs to no character counts as one.
//
// Threading: immutable values; a TextBuilder one thread at a time.
// Cost:      24 bytes a mark; cutting is O(bytes cut + log marks).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::jinja {

class Budget;

enum class Origin : uint32_t {};
inline constexpr Origin kNoOrigin{0xFFFF'FFFFU};

struct Mark {
  size_t begin = 0;
  size_t end = 0;
  Origin origin = kNoOrigin;

  bool operator==(const Mark&) const = default;
};

struct Text {
  std::string bytes;
  std::vector<Mark> marks;

  std::string_view view() const noexcept { return bytes; }
};

// Joins texts. Charges the budget as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(&budget) {}

  void add(std::string_view bytes, Origin origin = kNoOrigin);
  void add(const Text& text) { add(text, 0, text.bytes.size()); }
  void add(const Text& text, size_t begin, size_t end);

  size_t size() const noexcept { return text_.bytes.size(); }
  Budget& budget() noexcept { return *budget_; }
  Text take() noexcept { return std::move(text_); }

 private:
  void mark(size_t begin, size_t end, Origin origin);

  Budget* budget_;
  Text text_;
};

// The origins of a text's bytes. Positions must be asked from left to right.
class Origins {
 public:
  explicit Origins(const Text& text) : marks_(&text.marks) {}
  Origin at(size_t position) noexcept {
    while (next_ < marks_->size() && (*marks_)[next_].end <= position) ++next_;
    return next_ < marks_->size() && (*marks_)[next_].begin <= position ? (*marks_)[next_].origin
                                                                        : kNoOrigin;
  }

 private:
  const std::vector<Mark>* marks_;
  size_t next_ = 0;
};

// --- UTF-8 ---------------------------------------------------------------------------------------

struct Character {
  uint32_t code = 0;  // kNotACharacter: a byte that is part of no character.
  uint32_t bytes = 0;
};
inline constexpr uint32_t kNotACharacter = 0xFFFF'FFFFU;

Character wide_character_at(std::string_view text, size_t position) noexcept;
// The character at `position`, which is inside the text.
inline Character character_at(std::string_view text, size_t position) noexcept {
  const auto lead = static_cast<uint8_t>(text[position]);
  return lead < 0x80 ? Character{lead, 1} : wide_character_at(text, position);
}
// Where the character before `position` begins; `position` is not 0.
size_t character_before(std::string_view text, size_t position) noexcept;
size_t count_characters(std::string_view text) noexcept;
// Writes a character's bytes to `room`; those of U+FFFD if `code` is not a character.
std::string_view encode_utf8(uint32_t code, std::array<char, 4>& room) noexcept;
void append_utf8(std::string& out, uint32_t code);

// Like Python's str.isspace.
bool is_space(uint32_t code) noexcept;
// The bounds of `text` without the space at its ends.
size_t skip_space(std::string_view text, size_t begin) noexcept;
size_t skip_space_back(std::string_view text, size_t begin, size_t end) noexcept;

// Where `what` is in text[from, end), or npos. Always linear.
size_t find(Budget& budget, std::string_view text, std::string_view what, size_t from = 0);
size_t find_last(Budget& budget, std::string_view text, std::string_view what);

}  // namespace stemma::jinja
