// AnswerWalker: random answers under a grammar, which always come to an end.
//
// It takes random bytes that the matcher allows; after a while it takes the shortest way to the
// end. It computes that way itself from the grammar's states, without the library's help.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "constrain/matcher.h"

namespace stemma::test {

class AnswerWalker {
 public:
  explicit AnswerWalker(constrain::GrammarPtr grammar) : grammar_(std::move(grammar)) { measure(); }

  // An answer that takes random turns for about `bytes` bytes; nothing if it gets stuck, which is a
  // bug.
  std::optional<std::string> walk(std::mt19937_64& random, size_t bytes) const {
    constrain::Matcher matcher(grammar_);
    std::string answer;
    while (answer.size() < bytes + 100'000) {
      const bool hurry = answer.size() >= bytes;
      if (matcher.must_end()) return matcher.may_end() ? std::optional(answer) : std::nullopt;
      if (matcher.may_end() && (hurry || random() % 4 == 0)) return answer;
      const std::optional<uint8_t> byte = hurry ? shortest(matcher) : any(matcher, random);
      if (!byte || !matcher.accept(std::string_view(reinterpret_cast<const char*>(&*byte), 1))) {
        return std::nullopt;
      }
      answer += static_cast<char>(*byte);
    }
    return std::nullopt;
  }

  // The bytes of the shortest way to the end, from the best of these stacks.
  uint64_t left(const constrain::Stacks& stacks) const {
    uint64_t best = stacks.may_end ? 0 : kFar;
    const uint32_t* at = stacks.words.data();
    for (uint32_t i = 0; i < stacks.count; ++i, at += 2 + 2 * at[1]) {
      uint64_t all = ways_[at[0]];
      for (uint32_t frame = 0; frame < at[1]; ++frame) {
        const uint32_t what = at[2 + 2 * frame];
        const uint32_t count = at[3 + 2 * frame] & ~constrain::Stacks::kFresh;
        all += (what & constrain::Stacks::kLoopFrame) == 0
                   ? ways_[what]
                   : loop_way(what & ~constrain::Stacks::kLoopFrame, count);
      }
      best = std::min(best, all);
    }
    return best;
  }

 private:
  using Op = constrain::Grammar::Op;
  static constexpr uint64_t kFar = 1'000'000'000'000;

  uint64_t loop_way(uint32_t index, uint32_t count) const {
    const constrain::Grammar::Loop& loop = grammar_->loop(index);
    const uint64_t rounds = count < loop.min ? loop.min - count : 0;
    return std::min(kFar, rounds * ways_[loop.body] + ways_[loop.exit]);
  }

  uint64_t way(uint32_t state) const {
    const constrain::Grammar::Instruction& at = grammar_->at(state);
    switch (at.op) {
      case Op::byte:
      case Op::set: return std::min(kFar, 1 + ways_[at.a]);
      case Op::jump: return ways_[at.a];
      case Op::call: return std::min(kFar, ways_[at.a] + ways_[at.b]);
      case Op::repeat: return loop_way(at.a, 0);
      case Op::back:
      case Op::again: return 0;
      case Op::split: break;
    }
    uint64_t best = kFar;
    for (uint32_t i = 0; i < at.b; ++i) best = std::min(best, ways_[grammar_->target(at.a + i)]);
    return best;
  }

  // The shortest way from each state to the end of its rule or of the loop around it.
  void measure() {
    ways_.assign(grammar_->states(), kFar);
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t state = 0; state < grammar_->states(); ++state) {
        const uint64_t found = way(state);
        changed |= found < ways_[state];
        ways_[state] = std::min(ways_[state], found);
      }
    }
  }

  // One byte of each kind that some stack reads.
  std::vector<uint8_t> candidates(const constrain::Stacks& stacks) const {
    std::vector<uint8_t> bytes;
    const uint32_t* at = stacks.words.data();
    for (uint32_t i = 0; i < stacks.count; ++i, at += 2 + 2 * at[1]) {
      const constrain::Grammar::Instruction& reads = grammar_->at(at[0]);
      for (uint32_t byte = 0; byte < 256; ++byte) {
        const auto value = static_cast<uint8_t>(byte);
        const bool yes =
            reads.op == Op::byte ? reads.small == value : grammar_->set(reads.b).has(value);
        if (yes) bytes.push_back(value);
      }
    }
    return bytes;
  }

  std::optional<uint8_t> any(const constrain::Matcher& matcher, std::mt19937_64& random) const {
    const std::vector<uint8_t> bytes = candidates(matcher.stacks());
    for (int tries = 0; tries < 1000 && !bytes.empty(); ++tries) {
      const uint8_t byte = bytes[random() % bytes.size()];
      if (byte >= 0x80 && random() % 4 != 0 && tries < 10)
        continue;  // Letters more often than others.
      if (matcher.allows(std::string_view(reinterpret_cast<const char*>(&byte), 1))) return byte;
    }
    return std::nullopt;
  }

  std::optional<uint8_t> shortest(const constrain::Matcher& matcher) const {
    std::optional<uint8_t> best;
    uint64_t least = kFar * 2;
    std::array<bool, 256> tried{};
    for (const uint8_t byte : candidates(matcher.stacks())) {
      if (std::exchange(tried[grammar_->kind_of(byte)], true)) continue;
      constrain::Matcher next = matcher;
      if (!next.accept(std::string_view(reinterpret_cast<const char*>(&byte), 1))) continue;
      const uint64_t way = left(next.stacks());
      if (way >= least) continue;
      least = way;
      best = byte;
    }
    return best;
  }

  constrain::GrammarPtr grammar_;
  std::vector<uint64_t> ways_;
};

}  // namespace stemma::test
