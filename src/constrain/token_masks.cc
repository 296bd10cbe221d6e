#include "constrain/token_masks.h"

#include <algorithm>
#include <utility>

namespace stemma::constrain {

TokenMasks::TokenMasks(const TokenTable& table, GrammarPtr grammar, const Options& options)
    : table_(table),
      grammar_(std::move(grammar)),
      options_(options),
      kinds_(grammar_->byte_kinds()),
      path_(table.longest_bytes() + 2) {}

// Returns a count that no token can tell apart from `count`: all counts far enough from the bounds
// give the same one.
uint32_t TokenMasks::round_count(uint32_t count, const Grammar::Loop& loop) const {
  // The longest token ends the current round, and begins as many other rounds as fit into it.
  const uint32_t longest = std::max(1U, table_.longest_bytes());
  const uint32_t reach = 2 + (longest - 1) / loop.least_bytes;
  if (count < loop.min) return loop.min - std::min(loop.min - count, reach);
  if (loop.max == kUnbounded) return count;
  return loop.max - std::min(loop.max - count, reach);
}

std::u32string TokenMasks::key_of(const Stacks& stacks, bool round_counts) const {
  std::u32string key(stacks.words.begin(), stacks.words.end());
  if (round_counts) {
    for (size_t at = 0; at < key.size();) {
      const uint32_t depth = key[at + 1];
      for (uint32_t i = 0; i < depth; ++i) {
        const uint32_t what = key[at + 2 + 2 * i];
        char32_t& count = key[at + 3 + 2 * i];
        if ((what & Stacks::kLoopFrame) == 0 || (count & Stacks::kFresh) != 0) continue;
        count = round_count(count, grammar_->loop(what & ~Stacks::kLoopFrame));
      }
      at += 2 + 2 * depth;
    }
  }
  key.push_back(stacks.count);
  key.push_back(stacks.may_end ? 1 : 0);
  return key;
}

Stacks TokenMasks::stacks_of(const std::u32string& key) const {
  Stacks stacks;
  stacks.words.assign(key.begin(), key.end() - 2);
  stacks.count = key[key.size() - 2];
  stacks.may_end = key.back() != 0;
  return stacks;
}

uint32_t TokenMasks::number_of(std::u32string key) {
  const auto [at, made] =
      numbers_.try_emplace(std::move(key), static_cast<uint32_t>(positions_.size()));
  if (made) {
    positions_.push_back(stacks_of(at->first));
    words_ += 2 * at->first.size() + kinds_;
    followers_.resize(followers_.size() + kinds_, kUnknown);
  }
  return at->second;
}

// Forgets all positions except those at the first `depth` places of the walk's path.
void TokenMasks::forget_positions(uint32_t depth) {
  std::vector<std::u32string> keys;
  for (uint32_t i = 0; i < depth; ++i) keys.push_back(key_of(positions_[path_[i]], false));
  numbers_.clear();
  positions_.clear();
  followers_.clear();
  words_ = 0;
  for (uint32_t i = 0; i < depth; ++i) path_[i] = number_of(std::move(keys[i]));
}

inline uint32_t TokenMasks::next(uint32_t position, uint8_t byte) {
  const uint32_t known = followers_[size_t{position} * kinds_ + grammar_->kind_of(byte)];
  return known != kUnknown ? known : find_next(position, byte);
}

uint32_t TokenMasks::find_next(uint32_t position, uint8_t byte) {
  uint32_t number = kDead;
  const StepOutcome outcome = stepper_.read(*grammar_, positions_[position], byte, scratch_);
  work_ += stepper_.work();
  if (outcome == StepOutcome::read) number = number_of(key_of(scratch_, false));
  if (outcome == StepOutcome::limit) ++limited_;
  followers_[size_t{position} * kinds_ + grammar_->kind_of(byte)] = number;
  return number;
}

// Adds the allowed tokens: those of one byte, or the longer ones. Returns false if it was cut short.
bool TokenMasks::walk(TokenMask& mask, bool first_bytes) {
  const TokenTable::Node* const nodes = table_.nodes().data();
  const size_t count = table_.nodes().size() - 1;
  const uint32_t* const tokens = table_.tokens().data();
  for (size_t i = 0; i < count;) {
    const TokenTable::Node& node = nodes[i];
    if (words_ > options_.positions_words) forget_positions(node.depth + 1U);
    // Without any token, the answer would end here.
    if (work_ > options_.work && mask.count > 0) return false;
    const uint32_t position = next(path_[node.depth], node.byte);
    if (position == kDead) {
      i = node.after;
      continue;
    }
    path_[node.depth + 1U] = position;
    if (first_bytes == (node.depth == 0)) {
      const uint32_t end = nodes[i + 1].first_token;
      for (uint32_t at = node.first_token; at < end; ++at) {
        mask.bits[tokens[at] >> 6U] |= uint64_t{1} << (tokens[at] & 63U);
        ++mask.count;
      }
    }
    i = first_bytes ? node.after : i + 1;
  }
  return true;
}

TokenMask TokenMasks::compute(const std::u32string& key) {
  TokenMask mask;
  mask.bits.assign((size_t{table_.size()} + 63) / 64, 0);
  path_[0] = number_of(key);
  work_ = 0;
  const bool whole = walk(mask, true) && walk(mask, false);
  if (!whole) ++cut_short_;
  return mask;
}

std::shared_ptr<const TokenMask> TokenMasks::mask(const Matcher& matcher) {
  const std::u32string key = key_of(matcher.stacks(), true);
  if (const auto at = kept_.find(key); at != kept_.end()) {
    ++hits_;
    order_.splice(order_.end(), order_, at->second.order);
    return at->second.mask;
  }
  ++misses_;
  auto made = std::make_shared<const TokenMask>(compute(key));
  keep(key, made);
  return made;
}

void TokenMasks::keep(const std::u32string& key, std::shared_ptr<const TokenMask> mask) {
  // Only hostile grammars have so many stacks; their keys would take too much memory.
  if (key.size() > options_.positions_words / options_.masks) return;
  while (!order_.empty() && kept_.size() >= options_.masks) {
    const std::u32string* const oldest = order_.front();
    order_.pop_front();
    kept_.erase(kept_.find(*oldest));
  }
  const auto at = kept_.emplace(key, Kept{std::move(mask), {}}).first;
  at->second.order = order_.insert(order_.end(), &at->first);
}

}  // namespace stemma::constrain
