#include "constrain/step.h"

#include <algorithm>
#include <cstring>

namespace stemma::constrain {
namespace {

constexpr uint32_t kHeader = 2;  // Words of a stack before its frames.
constexpr uint32_t kNoneAdded = 0xFFFF'FFFFU;
constexpr uint64_t kMaxStatesPassed = 50'000;  // For one byte, without reading.

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E37'79B9'7F4A'7C15ULL;
  hash ^= hash >> 32U;
  hash *= 0xD6E8'FEB8'6659'FD93ULL;
  return hash ^ (hash >> 29U);
}

uint64_t pair_of(uint32_t a, uint32_t b) { return uint64_t{a} << 32U | b; }

}  // namespace

Stepper::Stepper() : seen_(256) { added_by_.fill(kNoneAdded); }

void Stepper::begin(const Grammar& grammar, Stacks& to) {
  grammar_ = &grammar;
  to_ = &to;
  to.clear();
  for (const Added& added : added_) added_by_[added.skeleton % added_by_.size()] = kNoneAdded;
  added_.clear();
  work_ = 0;
  words_ = 0;
  seen_count_ = 0;
  ++round_;
}

StepOutcome Stepper::start(const Grammar& grammar, Stacks& to) {
  begin(grammar, to);
  frames_.clear();
  hashes_.assign(1, 0);
  const StepOutcome outcome = follow(grammar.entry());
  if (outcome == StepOutcome::limit) to.clear();
  return outcome;
}

StepOutcome Stepper::read(const Grammar& grammar, const Stacks& from, uint8_t byte, Stacks& to) {
  begin(grammar, to);
  words_ = from.words.size();
  const uint32_t* stack = from.words.data();
  for (uint32_t i = 0; i < from.count; ++i, stack += kHeader + 2 * stack[1]) {
    const Grammar::Instruction& at = grammar.at(stack[0]);
    const bool reads = at.op == Grammar::Op::byte ? at.small == byte : grammar.set(at.b).has(byte);
    if (!reads) continue;
    const Grammar::Op next = grammar.at(at.a).op;
    bool room = true;
    if (next == Grammar::Op::byte || next == Grammar::Op::set) {
      room =
          stack[1] + grammar.frames_needed(at.a) > grammar.limits().depth || add_plain(stack, at.a);
    } else {
      load(stack);
      room = follow(at.a) != StepOutcome::limit;
    }
    if (!room) {
      to.clear();
      return StepOutcome::limit;
    }
  }
  return to.dead() ? StepOutcome::refused : StepOutcome::read;
}

// Loads the frames of a stack. None of them is fresh, because a byte was read.
void Stepper::load(const uint32_t* stack) {
  const uint32_t depth = stack[1];
  frames_.resize(depth);
  hashes_.resize(depth + 1);
  hashes_[0] = 0;
  for (uint32_t i = 0; i < depth; ++i) {
    frames_[i] = {stack[kHeader + 2 * i], stack[kHeader + 2 * i + 1] & ~kFresh};
    hashes_[i + 1] = mix(hashes_[i], pair_of(frames_[i].what, frames_[i].count));
  }
}

// --- frames that can be restored -----------------------------------------------------------------

void Stepper::push(Frame frame) {
  hashes_.push_back(mix(hashes_.back(), pair_of(frame.what, frame.count)));
  frames_.push_back(frame);
  changes_.push_back({Change::Kind::pushed, frame});
}

Stepper::Frame Stepper::pop() {
  const Frame top = frames_.back();
  frames_.pop_back();
  hashes_.pop_back();
  changes_.push_back({Change::Kind::popped, top});
  return top;
}

void Stepper::set_count(uint32_t count) {
  Frame& top = frames_.back();
  changes_.push_back({Change::Kind::counted, top});
  top.count = count;
  hashes_.back() = mix(hashes_[hashes_.size() - 2], pair_of(top.what, count));
}

void Stepper::undo(size_t changes) {
  while (changes_.size() > changes) {
    const Change change = changes_.back();
    changes_.pop_back();
    if (change.kind != Change::Kind::popped) {
      frames_.pop_back();
      hashes_.pop_back();
    }
    if (change.kind != Change::Kind::pushed) {
      frames_.push_back(change.frame);
      hashes_.push_back(mix(hashes_.back(), pair_of(change.frame.what, change.frame.count)));
    }
  }
}

// --- from state to state without reading ---------------------------------------------------------

// Follows every way from `state` until it needs a byte. Depth first, with a list of postponed
// choices.
StepOutcome Stepper::follow(uint32_t state) {
  changes_.clear();
  choices_.clear();
  const uint32_t depth = grammar_->limits().depth;
  do {
    bool dead = false;
    while (!dead && frames_.size() + grammar_->frames_needed(state) <= depth) {
      if (++work_ > kMaxStatesPassed) return StepOutcome::limit;
      const Grammar::Instruction& at = grammar_->at(state);
      if (at.op == Grammar::Op::byte || at.op == Grammar::Op::set) {
        if (!add(state)) return StepOutcome::limit;
        break;
      }
      if (at.op == Grammar::Op::split) {
        if (first_visit(state)) choices_.push_back({at.a, at.a + at.b, changes_.size()});
        break;  // Its targets become choices.
      }
      state = next_state(at, dead);
    }
  } while (next_choice(state));
  undo(0);
  return StepOutcome::read;
}

// Takes the next postponed choice, and restores the frames as they were there.
bool Stepper::next_choice(uint32_t& state) {
  while (!choices_.empty() && choices_.back().next == choices_.back().end) choices_.pop_back();
  if (choices_.empty()) return false;
  Choice& choice = choices_.back();
  undo(choice.changes);
  if (choice.end == kLeave) {
    state = choice.next;
    choices_.pop_back();
    pop();
  } else {
    state = grammar_->target(choice.next++);
  }
  return true;
}

uint32_t Stepper::next_state(const Grammar::Instruction& at, bool& dead) {
  switch (at.op) {
    case Grammar::Op::jump: return at.a;
    case Grammar::Op::call: push({at.b, 0}); return at.a;
    case Grammar::Op::back:
      if (!frames_.empty()) return pop().what;
      to_->may_end = true;
      dead = true;
      return 0;
    case Grammar::Op::repeat:
      push({at.a | Stacks::kLoopFrame, 0});
      return loop_once(grammar_->loop(at.a), 0, dead);
    case Grammar::Op::again: {
      const uint32_t count = frames_.back().count;
      // A round that read nothing gets nowhere.
      dead = (count & kFresh) != 0;
      return dead ? 0 : loop_once(grammar_->loop(at.a), count, dead);
    }
    default: dead = true; return 0;
  }
}

// At the head of a loop: leaves it, goes through it, or both; then leaving is postponed.
uint32_t Stepper::loop_once(const Grammar::Loop& loop, uint32_t count, bool& dead) {
  const bool may_leave = count >= loop.min;
  if (count < loop.max) {
    if (may_leave) choices_.push_back({loop.exit, kLeave, changes_.size()});
    const uint32_t next = loop.max == kUnbounded ? std::min(count + 1, loop.min) : count + 1;
    set_count(loop.may_read_nothing ? next | kFresh : next);
    return loop.body;
  }
  dead = !may_leave;
  if (may_leave) pop();
  return loop.exit;
}

bool Stepper::first_visit(uint32_t state) {
  if (2 * (seen_count_ + 1) > seen_.size()) {
    std::vector<Seen> old(seen_.size() * 2);
    old.swap(seen_);
    for (const Seen& seen : old) {
      if (seen.round != round_) continue;
      size_t at = seen.key & (seen_.size() - 1);
      while (seen_[at].round == round_) at = (at + 1) & (seen_.size() - 1);
      seen_[at] = seen;
    }
  }
  const uint64_t key = mix(hashes_.back(), pair_of(state, static_cast<uint32_t>(frames_.size())));
  size_t at = key & (seen_.size() - 1);
  for (; seen_[at].round == round_; at = (at + 1) & (seen_.size() - 1)) {
    if (seen_[at].key == key) return false;
  }
  seen_[at] = {key, round_};
  ++seen_count_;
  return true;
}

// --- resulting stacks ----------------------------------------------------------------------------

bool Stepper::add(uint32_t state) {
  const auto depth = static_cast<uint32_t>(frames_.size());
  const size_t begin = to_->words.size();
  to_->words.push_back(state);
  to_->words.push_back(depth);
  for (const Frame& frame : frames_) {
    to_->words.push_back(frame.what);
    to_->words.push_back(frame.count);
  }
  return keep_last(begin);
}

// The same with the frames of `stack`, which are no longer fresh.
bool Stepper::add_plain(const uint32_t* stack, uint32_t state) {
  const size_t begin = to_->words.size();
  to_->words.insert(to_->words.end(), stack, stack + kHeader + 2 * stack[1]);
  to_->words[begin] = state;
  for (uint32_t i = 0; i < stack[1]; ++i) to_->words[begin + kHeader + 2 * i + 1] &= ~kFresh;
  return keep_last(begin);
}

// Returns whether there is room for the last stack, which begins at `begin`. Removes it if another
// stack can do everything that it can.
bool Stepper::keep_last(size_t begin) {
  uint32_t* const stack = to_->words.data() + begin;
  const size_t words = to_->words.size() - begin;
  words_ += words;
  const uint64_t skeleton = skeleton_of(stack);
  uint32_t& head = added_by_[skeleton % added_by_.size()];
  for (uint32_t i = head; i != kNoneAdded; i = added_[i].next) {
    const Added& added = added_[i];
    if (added.skeleton != skeleton) continue;
    uint32_t* const other = to_->words.data() + added.at;
    if (other[0] != stack[0] || other[1] != stack[1]) continue;
    const bool other_covers = covers(other, stack);
    if (!other_covers && !covers(stack, other)) continue;
    if (!other_covers) std::memcpy(other, stack, words * sizeof(uint32_t));
    to_->words.resize(begin);
    return true;
  }
  if (to_->count == grammar_->limits().stacks) return false;
  added_.push_back({skeleton, static_cast<uint32_t>(begin), head});
  head = static_cast<uint32_t>(added_.size() - 1);
  ++to_->count;
  return true;
}

// Equal for stacks that differ only in counts that have reached their minimum.
uint64_t Stepper::skeleton_of(const uint32_t* stack) const {
  uint64_t hash = pair_of(stack[0], stack[1]);
  for (uint32_t i = 0; i < stack[1]; ++i) {
    const uint32_t what = stack[kHeader + 2 * i];
    uint32_t count = stack[kHeader + 2 * i + 1];
    if ((what & Stacks::kLoopFrame) != 0) {
      const uint32_t min = grammar_->loop(what & ~Stacks::kLoopFrame).min;
      count = std::min(count & ~kFresh, min) | (count & kFresh);
    }
    hash = mix(hash, pair_of(what, count));
  }
  return hash;
}

// Whether `one` can do everything that `other` can. They have the same state and depth.
bool Stepper::covers(const uint32_t* one, const uint32_t* other) const {
  for (uint32_t i = 0; i < one[1]; ++i) {
    const uint32_t what = one[kHeader + 2 * i];
    if (what != other[kHeader + 2 * i]) return false;
    const uint32_t a = one[kHeader + 2 * i + 1];
    const uint32_t b = other[kHeader + 2 * i + 1];
    if (a == b) continue;
    if ((what & Stacks::kLoopFrame) == 0 || ((a ^ b) & kFresh) != 0) return false;
    const uint32_t min = grammar_->loop(what & ~Stacks::kLoopFrame).min;
    if ((a & ~kFresh) < min || a > b) return false;
  }
  return true;
}

}  // namespace stemma::constrain
