#include "retain/rivals.h"

#include <bit>
#include <utility>

#include "base/check.h"

namespace stemma::retain {
namespace {

// The index is trusted from a lead of kTrust deviations on, and no longer below kDoubt.
constexpr double kTrust = 0;
constexpr double kDoubt = -0.5;

}  // namespace

bool Rivals::create(uint32_t conversations) {
  return shares_.reserve(conversations) && levels_.reserve(conversations) &&
         lists_[kLru].create(conversations, 1) && lists_[kIndex].create(conversations, kLevels);
}

bool Rivals::prepare(uint32_t conversations) {
  const uint32_t ready = lists_[kLru].ensured();
  if (conversations <= ready) return true;
  return lists_[kLru].ensure(conversations - 1) && lists_[kIndex].ensure(conversations - 1) &&
         shares_.commit(ready, lists_[kLru].ensured()) &&
         levels_.commit(ready, lists_[kLru].ensured());
}

void Rivals::unlist(Rival rival, uint32_t who) noexcept {
  base::IndexLists& lists = lists_[rival];
  if (!lists.linked(who)) return;
  lists.unlink(who);
  if (rival == kLru) return;
  const uint32_t level = levels_[who];
  if (lists.empty(level)) filled_[level / 64] &= ~(uint64_t{1} << (level % 64));
}

void Rivals::place(uint32_t who, uint32_t level) noexcept {
  unlist(kIndex, who);
  levels_[who] = static_cast<uint16_t>(level);
  if (shares_[who].own[kIndex] == 0) return;
  lists_[kIndex].push_back(level, who);
  filled_[level / 64] |= uint64_t{1} << (level % 64);
}

void Rivals::forget(uint32_t who) noexcept {
  for (const Rival rival : {kLru, kIndex}) {
    unlist(rival, who);
    held_[rival] -= shares_[who].own[rival];
  }
  shares_[who] = {};
}

void Rivals::evict(Rival rival, uint64_t capacity_tokens) noexcept {
  while (held_[rival] > capacity_tokens) {
    uint32_t victim = kNone;
    if (rival == kLru) {
      victim = lists_[kLru].front(0);
    } else {
      for (uint32_t word = 0; word < filled_.size() && victim == kNone; ++word) {
        if (filled_[word] == 0) continue;
        victim = lists_[kIndex].front(word * 64 +
                                      static_cast<uint32_t>(std::countr_zero(filled_[word])));
      }
    }
    if (victim == kNone) return;
    uint32_t& own = shares_[victim].own[rival];
    const auto gone =
        static_cast<uint32_t>(std::min<uint64_t>(own, held_[rival] - capacity_tokens));
    own -= gone;
    held_[rival] -= gone;
    if (own == 0) unlist(rival, victim);
  }
}

void Rivals::use(uint32_t who, uint32_t from, uint32_t rest, uint32_t known, uint32_t depth,
                 uint64_t capacity_tokens) noexcept {
  std::array<double, 2> found = {};
  for (const Rival rival : {kLru, kIndex}) {
    if (from != kNone) {
      uint32_t& own = shares_[from].own[rival];
      const uint32_t end = shares_[from].base + own;
      found[rival] = std::min(known, end);
      const uint32_t left = end > known ? std::min(own, end - known) : 0;
      held_[rival] -= own - left;
      own = left;
      if (rest != kNone) std::swap(own, shares_[rest].own[rival]);
      if (own == 0) unlist(rival, from);
    }
    unlist(rival, who);
    held_[rival] -= shares_[who].own[rival];
    shares_[who].own[rival] = 0;
    held_[rival] += depth;
    evict(rival, capacity_tokens);  // Entries in use stay.
    shares_[who].own[rival] = depth;
  }
  if (from != kNone) shares_[from].base = std::max(shares_[from].base, known);
  if (rest != kNone) {
    shares_[rest].base = known;
    if (shares_[rest].own[kLru] != 0) lists_[kLru].push_back(0, rest);
  }
  shares_[who].base = 0;
  if (depth != 0) lists_[kLru].push_back(0, who);

  plain_.add(found[kIndex] - found[kLru]);
  const auto deep = [](double tokens) { return tokens * tokens; };
  deep_.add(deep(found[kIndex]) - deep(found[kLru]));
  const double least = ahead_ ? kDoubt : kTrust;
  ahead_ = plain_.above(least) && deep_.above(least);
}

void Rivals::check_invariants() const {
  for (const Rival rival : {kLru, kIndex}) {
    (void)lists_[rival].check_invariants();
    uint64_t held = 0;
    for (uint32_t who = 0; who < lists_[kLru].ensured(); ++who) {
      held += shares_[who].own[rival];
      STEMMA_CHECK((shares_[who].own[rival] != 0) == lists_[rival].linked(who));
    }
    STEMMA_CHECK(held == held_[rival]);
  }
}

}  // namespace stemma::retain
