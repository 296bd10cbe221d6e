// A CodePointSet is a set of Unicode characters, and knows their encoding as bytes. Surrogates are
// not characters: no set has them.
// Threading: a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "constrain/grammar_builder.h"

namespace stemma::constrain {

class CodePointSet {
 public:
  struct Range {
    uint32_t first;
    uint32_t last;
    bool operator==(const Range&) const = default;
  };
  static constexpr uint32_t kLast = 0x10FFFF;

  static CodePointSet all();
  static CodePointSet of(std::initializer_list<Range> ranges);

  void add(uint32_t first, uint32_t last);
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet intersection(const CodePointSet& other) const;
  bool has(uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  // Sorted, with gaps between ranges.
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  void tidy();
  std::vector<Range> ranges_;
};

void append_utf8(std::string& out, uint32_t code_point);
// Returns the character at `at` and moves `at` past it; kLast + 1 if there is no valid one.
uint32_t next_code_point(std::string_view text, size_t& at);

// One character of the set in UTF-8.
Expr one_of(GrammarBuilder& build, const CodePointSet& set);
// One character of the set as written in a JSON string. Each character has one spelling here:
// itself, or an escape if JSON asks for one.
Expr one_of_json(GrammarBuilder& build, const CodePointSet& set);

}  // namespace stemma::constrain
