// A Grammar defines which byte strings are valid answers. It is a compiled pushdown automaton with
// counters.
//
// It is a small program. Each instruction is a state; `step.h` runs it. A stack has a frame for
// each called rule and for each counted repetition in progress, and the frame has the count. So a
// repetition of up to 65,536 characters is three instructions, whatever its bounds.
//
// A GrammarBuilder (grammar_builder.h) makes one, after checking that it can be run: no rule calls
// itself before it reads a byte, and some answer exists within the limit on depth.
//
// Invariant:  from every state that a matcher can reach, some answer can be completed within the
// limits.
// Threading:  immutable.
// Ownership:  shared_ptr; matchers and masks hold it.
// Cost:       14 bytes an instruction; a byte of literal text is one instruction.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "constrain/byte_set.h"

namespace stemma::constrain {

struct GrammarLimits {
  uint32_t rules = 1'000'000;
  uint32_t states = 8'000'000;  // Instructions; a byte of literal text is one.
  uint32_t depth = 256;         // Frames of a stack, at run time.
  uint32_t stacks = 4096;       // Ways to read an answer that are followed at once.
};

inline constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();

class Grammar {
 public:
  enum class Op : uint8_t {
    byte,    // Reads the byte `small`, goes to `a`.
    set,     // Reads a byte of set `b`, goes to `a`.
    split,   // Goes to each of the `b` targets from `a` on.
    call,    // Pushes a frame that returns to `b`, goes to the rule's entry `a`.
    jump,    // Goes to `a`: a call at the end of a rule.
    back,    // Returns to the state in the top frame; without a frame the answer may end.
    repeat,  // Pushes a frame with count 0 for loop `a`, then as `again`.
    again,   // Goes once more through loop `a`, or pops its frame and leaves.
  };
  struct Instruction {
    Op op;
    uint8_t small = 0;
    uint32_t a = 0;
    uint32_t b = 0;
  };
  struct Loop {
    uint32_t min = 0;
    uint32_t max = 0;   // At least 1, or kUnbounded.
    uint32_t body = 0;  // Goes on to `again`.
    uint32_t again = 0;
    uint32_t exit = 0;
    uint32_t least_bytes = 1;  // Of a round that reads something.
    // Whether the body may read nothing. Then `min` is 0, and rounds that read nothing do not
    // count.
    bool may_read_nothing = false;
  };
  // The highest count; a larger maximum means unbounded.
  static constexpr uint32_t kMaxCount = 0x7FFF'0000;
  // No answer can be completed from here.
  static constexpr uint16_t kHopeless = 0xFFFF;

  const Instruction& at(uint32_t state) const { return code_[state]; }
  const Loop& loop(uint32_t index) const { return loops_[index]; }
  const ByteSet& set(uint32_t index) const { return sets_[index]; }
  uint32_t target(uint32_t index) const { return targets_[index]; }
  // How many more frames the shortest way from a state to the end of its rule needs.
  uint16_t frames_needed(uint32_t state) const { return needs_[state]; }
  uint32_t entry() const { return entry_; }
  const GrammarLimits& limits() const { return limits_; }

  // Bytes that no state distinguishes have the same kind.
  uint32_t byte_kinds() const { return byte_kinds_; }
  uint8_t kind_of(uint8_t byte) const { return kind_of_[byte]; }

  uint32_t states() const { return static_cast<uint32_t>(code_.size()); }
  uint64_t memory_bytes() const;

 private:
  friend class GrammarCompiler;
  Grammar() = default;

  GrammarLimits limits_;
  std::vector<Instruction> code_;
  std::vector<Loop> loops_;
  std::vector<ByteSet> sets_;
  std::vector<uint32_t> targets_;
  std::vector<uint16_t> needs_;
  std::array<uint8_t, 256> kind_of_{};
  uint32_t byte_kinds_ = 1;
  uint32_t entry_ = 0;
};

using GrammarPtr = std::shared_ptr<const Grammar>;

}  // namespace stemma::constrain
