#include "sequence/room_promises.h"

#include <algorithm>

namespace stemma::sequence {

namespace {

// Positions of a plan that are already in the context.
uint32_t has_without_room(const Books& books, const Plan& plan) noexcept {
  const bool shared = plan.base == Base::fork && books.traits.fork == Fork::shared;
  return plan.base == Base::stay || shared ? plan.base_tokens : 0;
}

// The same for another turn's plan, if this sequence changes before that plan is executed.
uint32_t will_have_without_room(const Books& books, const Plan& plan, uint32_t sequence) noexcept {
  const uint32_t has_now = has_without_room(books, plan);
  if (plan.base != Base::fork) return has_now;
  // Nobody knows what another plan leaves of its source.
  const SequenceRecord& source = books.records[plan.source];
  const bool stays = source.turn != nullptr ? in_turn(source) : plan.source != sequence;
  return stays ? std::min(has_now, books.room.length(SequenceId{plan.source})) : 0;
}

}  // namespace

uint64_t needs_room(const Books& books, const TurnRecord& turn, const Plan& plan) noexcept {
  // Segments are loaded whole and cut afterwards; no segment ends behind the context.
  const uint64_t tokens = books.options.segment_tokens;
  const auto end_of_segment = [&](uint64_t depth) {
    return std::min<uint64_t>((depth + tokens - 1) / tokens * tokens, books.traits.context_tokens);
  };
  uint64_t most =
      std::max<uint64_t>({turn.promised_end, plan.state_depth, end_of_segment(plan.segments_to)});
  // The part of a segment that lies inside the base is there twice until it is cut.
  if (books.traits.unified && plan.segments_to != 0) {
    most = std::max(most, end_of_segment(plan.base_tokens) + plan.base_tokens % tokens);
  }
  return most - has_without_room(books, plan);
}

uint64_t promised_to_others(const Books& books, uint32_t sequence) {
  if (!books.traits.unified) return 0;
  uint64_t total = 0;
  for (uint32_t s = 0; s < books.records.size(); ++s) {
    const TurnRecord* turn = books.records[s].turn;
    if (turn == nullptr || s == sequence) continue;
    uint64_t has_now = turn->computed;
    if (turn->phase == TurnPhase::planned) {
      // What its plan needs no room for, plus what it will free before it takes any.
      const SequenceId id{s};
      const uint32_t kept = turn->plan.base == Base::stay ? turn->plan.base_tokens : 0;
      has_now = will_have_without_room(books, turn->plan, sequence) +
                books.room.free_if(id, kept, books.nobody) - books.room.free_for(id);
    }
    total += turn->promised_end - std::min<uint64_t>(turn->promised_end, has_now);
  }
  return total;
}

bool is_source(const Books& books, uint32_t source, uint32_t sequence) noexcept {
  return books.traits.fork == Fork::shared &&
         std::any_of(books.records.begin(), books.records.end(), [&](const SequenceRecord& record) {
           const TurnRecord* turn = record.turn;
           return turn != nullptr && turn->sequence != sequence &&
                  turn->phase == TurnPhase::planned && turn->plan.source == source;
         });
}

bool could_have(Books& books, uint32_t sequence, uint32_t kept, uint64_t tokens, uint32_t spared) {
  for (uint32_t s = 0; s < books.records.size(); ++s) {
    const SequenceState state = books.records[s].state;
    const bool may_go = state == SequenceState::idle || state == SequenceState::broken;
    books.flags[s] = may_go && s != spared && !is_source(books, s, sequence) ? 1 : 0;
  }
  return books.room.free_if(SequenceId{sequence}, kept, books.flags) >=
         promised_to_others(books, sequence) + tokens;
}

bool fits(Books& books, const TurnRecord& turn, const Plan& plan) {
  const uint32_t kept = plan.base == Base::stay ? plan.base_tokens : 0;
  return could_have(books, plan.sequence, kept, needs_room(books, turn, plan), plan.source);
}

}  // namespace stemma::sequence
