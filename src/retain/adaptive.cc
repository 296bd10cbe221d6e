#include "retain/adaptive.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace stemma::retain {
namespace {

constexpr double kSecond = 1e9;
constexpr float kNotKnown = -1000;  // In place of a logarithm.
constexpr double kShortestGap_s = 0.05;
constexpr float kNewest = 0.3F;      // How much the last gap counts in the mean.
constexpr double kGapUnit_s = 0.25;  // The logarithmic places begin here.
constexpr double kLevelsPerDoubling = 16;
constexpr double kTurnovers = 2;  // The turnover is averaged over these.
constexpr double kDepthShare = 0.005;
// How much more deep entries are worth, because they take longer to compute again.
constexpr double kDepthTilt = 0.15;
constexpr double kTurnDetail = 1.7;  // Steps of turns are finer than doublings.

uint32_t mix(uint64_t value) noexcept {
  value *= 0x9E37'79B9'7F4A'7C15U;
  value ^= value >> 32U;
  return static_cast<uint32_t>(value);
}

uint32_t print_of(uint32_t before, std::span<const uint32_t> words) noexcept {
  uint64_t state = before + 0x243F'6A88'85A3'08D3U;
  for (uint32_t word : words) state = (std::rotl(state, 23) ^ word) * 0x9FB2'1C65'1E98'DF25U;
  state ^= state >> 29U;
  const uint32_t print = mix(state);
  return print == 0 ? 1 : print;
}

// Sessions of different tenants are different, whatever they are called.
uint32_t session_print(const Touch& touch) noexcept {
  const std::array<uint32_t, 2> tenant = {static_cast<uint32_t>(touch.tenant), 0};
  const auto session = static_cast<uint64_t>(touch.session);
  const std::array<uint32_t, 2> words = {static_cast<uint32_t>(session),
                                         static_cast<uint32_t>(session >> 32U)};
  return print_of(print_of(0, tenant), words);
}

bool says_nothing(const Touch& touch) noexcept {
  return touch.priority == kDefaultPriority && touch.phase == SessionPhase::unknown &&
         touch.deadline_ns == kNever && !touch.will_return;
}

}  // namespace

AdaptivePolicy::AdaptivePolicy(uint32_t cells)
    : cells_(cells),
      lru_(cells),
      max_slots_(slots_for(cells)),
      hash_mask_(std::bit_ceil(max_slots_ * 2) - 1) {
  ok_ = lru_.ok() && model_.create() && names_.reserve(cells) && prints_.reserve(cells) &&
        parents_.reserve(cells) && slots_.reserve(max_slots_) &&
        heads_.reserve(size_t{hash_mask_} + 1) && heads_.commit(0, size_t{hash_mask_} + 1) &&
        lists_.create(max_slots_, kLevels + 2) && ages_.create(max_slots_, HazardModel::kAges) &&
        rivals_.create(max_slots_);
}

bool AdaptivePolicy::prepare(CellIndex cell) {
  if (cell < covered_) return true;
  // In large steps, as its parts do.
  const auto end = static_cast<uint32_t>(std::min<uint64_t>(
      cells_, std::max<uint64_t>(uint64_t{cell} + 1, covered_ + covered_ / 2 + 64)));
  if (!lru_.prepare(end - 1) || !names_.commit(covered_, end) || !prints_.commit(covered_, end) ||
      !parents_.commit(covered_, end)) {
    return false;
  }
  const uint32_t slots = std::min(max_slots_, slots_for(end));
  if (slots > slots_ready_) {
    if (!slots_.commit(slots_ready_, slots) || !lists_.ensure(slots - 1) ||
        !rivals_.prepare(slots) || !ages_.ensure(slots - 1)) {
      return false;
    }
    for (; slots_ready_ < slots; ++slots_ready_) lists_.push_back(kFree, slots_ready_);
  }
  covered_ = end;
  return true;
}

// ---- Slots -------------------------------------------------------------------------------------

uint32_t AdaptivePolicy::slot_named(uint32_t name) const noexcept {
  if (name == kNobody || name == kFresh) return kNoSlot;
  name &= ~kPassedBy;
  const uint32_t slot = (name & ((1U << kSlotBits) - 1)) - 1;
  return slot < slots_ready_ && name_of(slot) == name ? slot : kNoSlot;
}

uint32_t AdaptivePolicy::entry_at(CellIndex cell) const noexcept {
  if (cell >= covered_) return kNoSlot;
  const uint32_t slot = slot_named(names_[cell]);
  return slot != kNoSlot && slots_[slot].cell == cell ? slot : kNoSlot;
}

uint32_t AdaptivePolicy::last_user(CellIndex cell) const noexcept {
  if (cell >= covered_ || (names_[cell] & kPassedBy) != 0) return kNoSlot;
  return slot_named(names_[cell]);
}

void AdaptivePolicy::list(uint32_t slot, uint32_t list) noexcept {
  unlist(slot);
  lists_.push_back(list, slot);
  if (list < kLevels) {
    filled_[list / 64] |= uint64_t{1} << (list % 64);
    slots_[slot].level = static_cast<uint16_t>(list);
  } else {
    slots_[slot].level = kGhosts;
  }
}

void AdaptivePolicy::unlist(uint32_t slot) noexcept {
  if (!lists_.linked(slot)) return;
  lists_.unlink(slot);
  const uint32_t level = slots_[slot].level;
  if (level < kLevels && lists_.empty(level)) filled_[level / 64] &= ~(uint64_t{1} << (level % 64));
}

uint32_t AdaptivePolicy::take_slot() {
  uint32_t slot = lists_.front(kFree);
  if (slot == base::IndexLists::kNone) {
    slot = lists_.front(kGhosts);
    // Without ghosts, take the slot of the next entry to be evicted, which then goes as in LRU.
    for (uint32_t level = 0; slot == base::IndexLists::kNone && level < kLevels; ++level) {
      slot = lists_.front(level);
    }
    if (slot == base::IndexLists::kNone) return kNoSlot;
    for (const Mark which : {kEnd, kUpper, kSession}) hash(mark_of(slot, which), 0);
    if (ages_.linked(slot)) ages_.unlink(slot);
    rivals_.forget(slot);
  }
  unlist(slot);
  const auto generation = static_cast<uint16_t>((slots_[slot].generation + 1U) & 0x3FFU);
  slots_[slot] = {};
  slots_[slot].generation = generation;
  slots_[slot].cell = kNoCell;
  list(slot, kGhosts);
  return slot;
}

void AdaptivePolicy::become_ghost(uint32_t slot) noexcept {
  slots_[slot].cell = kNoCell;
  list(slot, kGhosts);
}

void AdaptivePolicy::hash(uint32_t mark, uint32_t print) noexcept {
  Slot& s = slots_[mark / kMarks];
  const uint32_t which = mark % kMarks;
  if (s.prints[which] == print) return;
  if (s.prints[which] != 0) {
    uint32_t* link = &heads_[mix(s.prints[which]) & hash_mask_];
    while (*link != mark + 1) {
      link = &slots_[(*link - 1) / kMarks].next_same_hash[(*link - 1) % kMarks];
    }
    *link = s.next_same_hash[which];
  }
  s.prints[which] = print;
  if (print == 0) return;
  uint32_t& head = heads_[mix(print) & hash_mask_];
  s.next_same_hash[which] = head;
  head = mark + 1;
}

uint32_t AdaptivePolicy::find_block(uint32_t print) const noexcept {
  uint32_t at = heads_[mix(print) & hash_mask_];
  while (at != 0) {
    const Slot& s = slots_[(at - 1) / kMarks];
    const uint32_t which = (at - 1) % kMarks;
    if (s.prints[which] == print && which != kSession) return at - 1;
    at = s.next_same_hash[which];
  }
  return kNoSlot;
}

uint32_t AdaptivePolicy::find_session(uint32_t print) const noexcept {
  uint32_t at = heads_[mix(print) & hash_mask_];
  while (at != 0) {
    const Slot& s = slots_[(at - 1) / kMarks];
    const uint32_t which = (at - 1) % kMarks;
    if (s.prints[which] == print && which == kSession) return (at - 1) / kMarks;
    at = s.next_same_hash[which];
  }
  return kNoSlot;
}

// ---- Learning ----------------------------------------------------------------------------------

float AdaptivePolicy::weight_of(const Slot& slot) const noexcept {
  return static_cast<float>(std::sqrt(slot.depth_tokens / usual_depth_));
}

void AdaptivePolicy::judge(uint32_t slot) noexcept {
  const float index = model_.index(slots_[slot].traits, slots_[slot].interval, turnover_s_);
  const double depth = 1 + slots_[slot].depth_tokens / usual_depth_;
  const double doublings = std::log2(index + 1e-9F) + kDepthTilt * std::log2(depth);
  const double level = kLevels / 2.0 + kLevelsPerDoubling * (doublings + 4);
  const auto to = static_cast<uint32_t>(std::clamp(level, 0.0, kLevels - 1.0));
  rivals_.place(slot, to);
  if (slots_[slot].cell != kNoCell) list(slot, to);
}

void AdaptivePolicy::advance(uint64_t now_ns) noexcept {
  now_ns_ = std::max(now_ns_, now_ns);
  for (uint32_t i = HazardModel::kAges - 1; i-- > 0;) {
    for (;;) {
      const uint32_t slot = ages_.front(i);
      if (slot == base::IndexLists::kNone) break;
      Slot& s = slots_[slot];
      const uint64_t age_ns = now_ns_ - s.time_ns;
      if (age_ns < HazardModel::end_ns(i)) break;
      ages_.unlink(slot);
      const uint32_t now_in = HazardModel::interval(age_ns);
      for (; s.interval < now_in; ++s.interval) {
        model_.learn(s.traits, s.interval, false, weight_of(s));
      }
      ages_.push_back(s.interval, slot);
      if (s.cell != kNoCell || rivals_.index_holds(slot)) judge(slot);
    }
  }
}

void AdaptivePolicy::learn_return(Slot& slot) noexcept {
  const uint32_t now_in = HazardModel::interval(now_ns_ - slot.time_ns);
  for (; slot.interval < now_in; ++slot.interval) {
    model_.learn(slot.traits, slot.interval, false, weight_of(slot));
  }
  model_.learn(slot.traits, now_in, true, weight_of(slot));
}

void AdaptivePolicy::measure_turnover() noexcept {
  const double passed_s = static_cast<double>(now_ns_ - last_touch_ns_) / kSecond;
  const auto blocks = static_cast<double>(inserted_);
  const double keep = std::exp(-blocks / (kTurnovers * cells_));
  recent_blocks_ = recent_blocks_ * keep + blocks;
  recent_s_ = recent_s_ * keep + (last_touch_ns_ == 0 ? 0 : passed_s);
  if (recent_blocks_ > 0) turnover_s_ = cells_ * std::max(recent_s_, 1e-3) / recent_blocks_;
  inserted_ = 0;
  last_touch_ns_ = now_ns_;
}

AdaptivePolicy::Known AdaptivePolicy::look_back(CellIndex cell, const Touch& touch) const noexcept {
  Known known;
  known.cell = cell;
  uint32_t mark = kNoSlot;
  while (known.cell < covered_ && names_[known.cell] == kFresh) {
    if (mark == kNoSlot) mark = find_block(prints_[known.cell]);
    known.cell = parents_[known.cell];
    ++known.fresh;
  }
  if (mark != kNoSlot) {
    known.slot = mark / kMarks;
    const Slot& s = slots_[known.slot];
    known.tokens = mark % kMarks == kEnd ? s.depth_tokens : s.upper_tokens;
    known.evicted = true;
    return known;
  }
  if (known.cell >= covered_) return known;
  known.slot = slot_named(names_[known.cell]);
  known.tokens = known.cell == cell ? touch.depth_tokens : touch.reused_tokens;
  return known;
}

void AdaptivePolicy::start_age(uint32_t slot) noexcept {
  slots_[slot].time_ns = now_ns_;
  slots_[slot].interval = 0;
  if (ages_.linked(slot)) ages_.unlink(slot);
  ages_.push_back(0, slot);
  judge(slot);
}

// Makes an entry for the rest of a path that a conversation left from its middle.
uint32_t AdaptivePolicy::leave_rest(uint32_t slot) noexcept {
  unlist(slot);  // So that take_slot() does not take it.
  const uint32_t rest = take_slot();
  if (rest == kNoSlot) return kNoSlot;
  Slot& from = slots_[slot];
  Slot& to = slots_[rest];
  to.cell = from.cell;
  to.depth_tokens = from.depth_tokens;
  to.usual_gap = from.usual_gap;
  to.usual_after = from.usual_after;
  to.turn = from.turn;
  to.tenant = from.tenant;
  to.traits.kind = Traits::kRest;
  names_[to.cell] = name_of(rest);
  hash(mark_of(rest, kEnd), from.prints[kEnd]);
  from.cell = kNoCell;
  return rest;
}

void AdaptivePolicy::note_use(uint32_t slot, const Touch& touch, const Known& known,
                              bool goes_on) noexcept {
  Slot& s = slots_[slot];
  Traits& t = s.traits;
  if (goes_on) {
    const double gap_s =
        std::max(static_cast<double>(now_ns_ - s.time_ns) / kSecond, kShortestGap_s);
    const auto gap = static_cast<float>(std::log(gap_s));
    const auto average = [gap](float& usual) {
      usual = usual == kNotKnown ? gap : usual + kNewest * (gap - usual);
    };
    average(s.usual_gap);
    average(s.usual_after[t.finish]);
    t.numbers[Traits::gap_before] = t.numbers[Traits::gap];
    t.numbers[Traits::gap] = Traits::place(gap_s, kGapUnit_s);
    t.numbers[Traits::usual_gap] = Traits::place(std::exp(s.usual_gap), kGapUnit_s);
    t.kind = known.tokens >= s.depth_tokens ? Traits::kWentOn : Traits::kTurned;
    ++s.turn;
  } else {
    s.usual_gap = kNotKnown;
    s.usual_after.fill(kNotKnown);
    t = {};
    t.kind = known.tokens != 0 ? Traits::kBranched : Traits::kNew;
    s.turn = 1;
  }
  t.finish = static_cast<uint8_t>(std::min(touch.finish, FinishReason::cancelled));
  if (touch.finish == FinishReason::unknown && touch.session != kNoSession) {
    t.finish = Traits::kOtherwise;
  }
  const float after = s.usual_after[t.finish];
  t.numbers[Traits::gap_after_finish] =
      after == kNotKnown ? uint8_t{0} : Traits::place(std::exp(after), kGapUnit_s);
  t.numbers[Traits::turn] = Traits::place(std::pow(s.turn, kTurnDetail), 1);
  t.numbers[Traits::length] = Traits::place(touch.depth_tokens, 1);
  const uint32_t added = touch.depth_tokens - std::min(touch.depth_tokens, known.tokens);
  t.numbers[Traits::added] = added == 0 ? uint8_t{0} : Traits::place(added, 1);
  t.numbers[Traits::output] =
      touch.output_tokens == 0 ? uint8_t{0} : Traits::place(touch.output_tokens, 1);
  s.depth_tokens = touch.depth_tokens;
  s.tenant = touch.tenant;
}

// The session is now at this path and has left its previous one.
void AdaptivePolicy::note_session(uint32_t slot, const Touch& touch) noexcept {
  if (touch.session == kNoSession) return;
  const uint32_t print = session_print(touch);
  const uint32_t left = find_session(print);
  if (left == slot) return;
  if (left != kNoSlot) {
    hash(mark_of(left, kSession), 0);
    slots_[left].traits.kind = Traits::kLeft;
    if (slots_[left].cell != kNoCell || rivals_.index_holds(left)) judge(left);
  }
  hash(mark_of(slot, kSession), print);
}

void AdaptivePolicy::mark_upper(uint32_t slot, CellIndex cell, const Known& known) noexcept {
  Slot& s = slots_[slot];
  // Up as far as the new cells go, but not above the middle: above, it would be another's.
  const uint32_t up =
      std::min(known.fresh - std::min(known.fresh, 1U), s.depth_tokens / cell_tokens_ / 2);
  if (up != 0) {
    CellIndex at = cell;
    for (uint32_t i = 0; i < up; ++i) at = parents_[at];
    s.upper_tokens = s.depth_tokens - up * cell_tokens_;
    hash(mark_of(slot, kUpper), prints_[at]);
  } else if (s.upper_tokens > known.tokens) {
    hash(mark_of(slot, kUpper), 0);
  }
}

// ---- What the cache says -----------------------------------------------------------------------

void AdaptivePolicy::inserted(CellIndex cell, CellIndex parent, std::span<const uint32_t> words) {
  ++inserted_;
  if (cell >= covered_ && !prepare(cell)) return;
  cell_tokens_ = std::max(cell_tokens_, static_cast<uint32_t>(words.size()));
  prints_[cell] = print_of(parent < covered_ ? prints_[parent] : 0, words);
  parents_[cell] = parent;
  names_[cell] = kFresh;
}

void AdaptivePolicy::touch(CellIndex cell, const Touch& touch) {
  lru_.touch(cell, touch);
  left_ = kNoCell;
  if (cell >= covered_ && !prepare(cell)) return;
  advance(touch.now_ns);
  measure_turnover();
  const Known known = look_back(cell, touch);
  const uint32_t there = entry_at(cell);
  uint32_t slot = known.slot;
  const bool goes_on = slot != kNoSlot && uint64_t{known.tokens} * 2 >= slots_[slot].depth_tokens;
  if (!says_nothing(touch)) {
    if (there != kNoSlot) become_ghost(there);
    slot = kNoSlot;
  } else {
    usual_depth_ += kDepthShare * (touch.depth_tokens - usual_depth_);
    if (!goes_on) slot = take_slot();
  }
  if (slot != kNoSlot) {
    uint32_t rest = kNoSlot;
    if (goes_on) {
      learn_return(slots_[slot]);
      const CellIndex before = slots_[slot].cell;
      if (before != kNoCell && before != cell && before != known.cell && !known.evicted) {
        rest = leave_rest(slot);
      }
      if (known.cell < covered_ && known.cell != cell && names_[known.cell] == name_of(slot)) {
        // It is inside the path now.
        names_[known.cell] |= kPassedBy;
        lru_.remove(known.cell);
      }
    }
    // Another conversation's use may have ended here before.
    if (there != kNoSlot && there != slot && slots_[there].cell == cell) become_ghost(there);
    note_use(slot, touch, known, goes_on);
    note_session(slot, touch);
    slots_[slot].cell = cell;
    hash(mark_of(slot, kEnd), prints_[cell]);
    mark_upper(slot, cell, known);
    rivals_.use(slot, known.slot, rest, known.tokens, touch.depth_tokens,
                uint64_t{cells_} * cell_tokens_);
    start_age(slot);
    if (rest != kNoSlot) start_age(rest);
  }
  const uint32_t name = slot == kNoSlot ? kNobody : name_of(slot);
  for (CellIndex at = cell; at < covered_ && names_[at] == kFresh; at = parents_[at]) {
    names_[at] = name == kNobody ? kNobody : name | kPassedBy;
  }
  names_[cell] = name;
}

void AdaptivePolicy::replace(CellIndex child, CellIndex parent) {
  const uint32_t slot = entry_at(child);
  lru_.replace(child, parent);
  left_ = kNoCell;
  if (slot == kNoSlot) return;
  const uint32_t other = last_user(parent);
  if (other == slot || other == kNoSlot || slots_[other].time_ns <= slots_[slot].time_ns) {
    if (other != kNoSlot && other != slot && slots_[other].cell == parent) become_ghost(other);
    slots_[slot].cell = parent;
    names_[parent] = name_of(slot);
    return;
  }
  become_ghost(slot);
  if (slots_[other].cell != kNoCell) return;
  // Slots are found by the words of prompts, so the last user may be another tenant with the same
  // prompt.
  slots_[other].tenant = slots_[slot].tenant;
  slots_[other].cell = parent;
  judge(other);
}

void AdaptivePolicy::remove(CellIndex cell) {
  const uint32_t slot = entry_at(cell);
  lru_.remove(cell);
  leave_out(slot);
}

void AdaptivePolicy::set_aside(CellIndex cell) {
  const uint32_t slot = entry_at(cell);
  lru_.set_aside(cell);
  leave_out(slot);
}

void AdaptivePolicy::leave_out(uint32_t slot) {
  const CellIndex left = left_;
  left_ = kNoCell;
  if (slot == kNoSlot) return;
  become_ghost(slot);
  if (left == kNoCell || parents_[left] >= covered_) return;
  // Other entries are below the path that was left: it counts once they are gone.
  const CellIndex parent = parents_[left];
  const uint32_t other = last_user(parent);
  if (names_[parent] != kNobody &&
      (other == kNoSlot || slots_[other].time_ns <= slots_[slot].time_ns)) {
    if (other != kNoSlot && slots_[other].cell == parent) become_ghost(other);
    names_[parent] = name_of(slot);
  }
}

void AdaptivePolicy::forgotten(CellIndex cell) {
  if (cell < covered_) names_[cell] = kNobody;
}

void AdaptivePolicy::evicted(CellIndex cell) { left_ = cell < covered_ ? cell : kNoCell; }

Victim AdaptivePolicy::victim(uint64_t now_ns, bool only_tenant, TenantId tenant) {
  advance(now_ns);
  chosen_ = kNoSlot;
  left_ = kNoCell;
  const Victim oldest = lru_.victim(now_ns, only_tenant, tenant);
  if (only_tenant || !choosing() || oldest.cell == kNoCell || entry_at(oldest.cell) == kNoSlot) {
    return oldest;
  }
  for (uint32_t word = 0; word < filled_.size(); ++word) {
    if (filled_[word] == 0) continue;
    const auto level = word * 64 + static_cast<uint32_t>(std::countr_zero(filled_[word]));
    chosen_ = lists_.front(level);
    return {slots_[chosen_].cell, slots_[chosen_].tenant};
  }
  return oldest;
}

bool AdaptivePolicy::parent_follows(CellIndex parent, CellIndex ahead) const noexcept {
  if (ahead < covered_) __builtin_prefetch(&names_[ahead]);
  if (!lru_.parent_follows(parent, ahead)) return false;
  const uint32_t other = last_user(parent);
  return other == kNoSlot || other == chosen_;
}

// ---- Looking -----------------------------------------------------------------------------------

void AdaptivePolicy::order(uint64_t now_ns, std::vector<CellIndex>& out) const {
  const size_t first = out.size();
  lru_.order(now_ns, out);
  if (!choosing()) return;
  // At a conversation's turn in the order, the one with the lowest index goes.
  uint32_t level = 0;
  uint32_t slot = lists_.front(0);
  for (size_t i = first; i < out.size(); ++i) {
    if (entry_at(out[i]) == kNoSlot) continue;
    while (slot == base::IndexLists::kNone && ++level < kLevels) slot = lists_.front(level);
    if (slot == base::IndexLists::kNone) return;
    out[i] = slots_[slot].cell;
    slot = lists_.after(slot);
  }
}

uint64_t AdaptivePolicy::bytes() const noexcept {
  return sizeof(*this) - sizeof(lru_) + lru_.bytes() + model_.bytes() + names_.bytes() +
         prints_.bytes() + parents_.bytes() + slots_.bytes() + heads_.bytes() + lists_.bytes() +
         ages_.bytes();
}

void AdaptivePolicy::clear() {
  lru_.clear();
  for (uint32_t slot = 0; slot < slots_ready_; ++slot) {
    if (slots_[slot].cell != kNoCell && slots_[slot].level != kGhosts) become_ghost(slot);
  }
}

void AdaptivePolicy::check_invariants() const {
  lru_.check_invariants();
  STEMMA_CHECK(lists_.check_invariants() == slots_ready_);
  (void)ages_.check_invariants();
  rivals_.check_invariants();
  // Walking back over new cells must come to an end.
  std::vector<CellIndex> seen_from(covered_, kNoCell);
  for (CellIndex cell = 0; cell < covered_; ++cell) {
    for (CellIndex at = cell; at < covered_ && names_[at] == kFresh; at = parents_[at]) {
      STEMMA_CHECK(seen_from[at] != cell);
      if (seen_from[at] != kNoCell) break;
      seen_from[at] = cell;
    }
  }
  for (uint32_t level = 0; level < kLevels; ++level) {
    const bool filled = (filled_[level / 64] >> (level % 64) & 1U) != 0;
    STEMMA_CHECK(filled != lists_.empty(level));
    for (uint32_t slot = lists_.front(level); slot != base::IndexLists::kNone;
         slot = lists_.after(slot)) {
      STEMMA_CHECK(slots_[slot].level == level && entry_at(slots_[slot].cell) == slot);
      STEMMA_CHECK(lru_.holds(slots_[slot].cell));
    }
  }
}

}  // namespace stemma::retain
