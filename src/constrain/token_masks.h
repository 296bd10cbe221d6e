// TokenMasks say which tokens may come next in an answer.
//
// mask() walks the tree of tokens (token_table.h) and the grammar together. Known stacks have a
// number, and a table has the stacks that follow each byte, so most steps are one table lookup.
// Whole masks are cached too, because answers return to the same stacks: inside a string, every
// character does.
//
// Counts far from their bounds make no difference to any token, because no token has more bytes
// than the longest one. So a string of at most 65,536 characters has one mask until it nears its
// end.
//
// To check one token, ask the Matcher: that is quicker than a mask.
//
// Threading:  one thread at a time.
// Ownership:  holds the grammar; the table must outlive it.
// Cost:       about 1 to 3 ms for a new mask of 150,000 tokens, less than a microsecond for a known
//             one; at most about 25 ms with a grammar made to be slow. Both time and memory are
//             bounded: Options.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/matcher.h"
#include "constrain/token_table.h"

namespace stemma::constrain {

// A bit for each token.
struct TokenMask {
  std::vector<uint64_t> bits;
  uint32_t count = 0;  // Number of allowed tokens.

  bool allows(uint32_t token) const { return (bits[token >> 6U] >> (token & 63U) & 1U) != 0; }
};

class TokenMasks {
 public:
  struct Options {
    uint32_t masks = 64;  // At most this many; the least recently used is dropped.
    uint32_t positions_words =
        4U << 20U;              // Known stacks, in 4-byte words; all are dropped when full.
    uint64_t work = 4'000'000;  // Of one mask, as Stepper::work() counts it.
  };
  TokenMasks(const TokenTable& table, GrammarPtr grammar) : TokenMasks(table, grammar, Options()) {}
  TokenMasks(const TokenTable& table, GrammarPtr grammar, const Options& options);

  // Requires: the matcher has the same grammar. Tokens whose check passes the limit on stacks are
  // not allowed. A mask counts stacks with rounded counts, so near that limit the two may differ:
  // the mask may lack a token that the matcher takes, and may have one that it refuses. The matcher
  // decides.
  //
  // A mask that would take more than Options::work is cut short: it has all allowed tokens of one
  // byte, so that the answer can go on, and only some of the longer ones.
  std::shared_ptr<const TokenMask> mask(const Matcher& matcher);

  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }
  // How many steps of all masks so far passed the limit on stacks.
  uint64_t limited() const { return limited_; }
  // How many masks were cut short.
  uint64_t cut_short() const { return cut_short_; }

 private:
  static constexpr uint32_t kUnknown = 0xFFFF'FFFFU;
  static constexpr uint32_t kDead = 0xFFFF'FFFEU;
  struct Kept {
    std::shared_ptr<const TokenMask> mask;
    std::list<const std::u32string*>::iterator order;
  };

  std::u32string key_of(const Stacks& stacks, bool round_counts) const;
  uint32_t round_count(uint32_t count, const Grammar::Loop& loop) const;
  Stacks stacks_of(const std::u32string& key) const;
  uint32_t number_of(std::u32string key);
  uint32_t next(uint32_t position, uint8_t byte);
  uint32_t find_next(uint32_t position, uint8_t byte);
  void forget_positions(uint32_t depth);
  TokenMask compute(const std::u32string& key);
  bool walk(TokenMask& mask, bool first_bytes);
  void keep(const std::u32string& key, std::shared_ptr<const TokenMask> mask);

  const TokenTable& table_;
  GrammarPtr grammar_;
  Options options_;
  uint32_t kinds_;
  Stepper stepper_;
  Stacks scratch_;
  // Positions: stacks by number, and what follows each kind of byte.
  std::unordered_map<std::u32string, uint32_t> numbers_;
  std::vector<Stacks> positions_;
  std::vector<uint32_t> followers_;
  uint64_t words_ = 0;          // Of all positions.
  std::vector<uint32_t> path_;  // The position before each byte of the walk.
  // Masks, by stacks with rounded counts.
  std::unordered_map<std::u32string, Kept> kept_;
  std::list<const std::u32string*> order_;  // Used longest ago first.
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
  uint64_t limited_ = 0;
  uint64_t cut_short_ = 0;
  uint64_t work_ = 0;  // Of the mask that is being made.
};

}  // namespace stemma::constrain
