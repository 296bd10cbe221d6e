#include "sequence/idle_dropper.h"

#include <algorithm>
#include <new>

#include "sequence/capture_rules.h"

namespace stemma::sequence {

namespace {

// Whether another turn that has not been executed yet plans to copy from the sequence.
bool is_planned_source(const Books& books, uint32_t s, const TurnRecord& turn) noexcept {
  return std::ranges::any_of(books.records, [&](const SequenceRecord& record) {
    return record.turn != nullptr && record.turn != &turn &&
           record.turn->phase == TurnPhase::planned && record.turn->plan.source == s;
  });
}

}  // namespace

bool IdleDropper::may_go(uint32_t s, const TurnRecord& turn) const noexcept {
  // Another turn's plan still needs to copy from it.
  if (is_planned_source(books_, s, turn)) return false;
  // A sequence that waits to be saved stays: saving it now would make this turn wait.
  if (books_.at(s).capture != 0 && worth_saving_first(books_, s)) return false;
  return !capturer_.is_reading(s);
}

uint32_t IdleDropper::restorable_part(uint32_t sequence) {
  const Text& text = books_.text_of(sequence);
  const Scope& scope = books_.scope_of(sequence);
  const uint32_t length = books_.known(sequence);
  uint32_t depth = 0;
  if (books_.segments != nullptr)
    depth = books_.segments->reach(scope, text.prompt(), length).usable;
  // A memory that cannot go back also needs a checkpoint at the exact depth.
  if (books_.segments != nullptr && books_.use_checkpoints && depth != 0) {
    depth = books_.checkpoints->find(scope, text, depth).exact.depth;
  }
  if (books_.states != nullptr) {
    depth = std::max(depth, books_.states->find(scope, text, length).exact.depth);
  }
  return depth;
}

void IdleDropper::drop_for(TurnRecord& turn) noexcept { drop_for(turn, Stayers::charged); }

void IdleDropper::drop_for(TurnRecord& turn, Stayers stayers) noexcept try {
  if (!books_.traits.unified) return;
  const SequenceId id{turn.sequence};
  const uint32_t available = std::max(turn.plan.available, turn.computed);
  const PlanInput input = finder_.plan_input(turn);
  const uint32_t kept = books_.room.length(id);
  uint64_t free_cells = books_.room.free_if(id, kept, books_.nobody);
  for (uint32_t s = books_.idle_order.front(0), next = 0; s != base::IndexLists::kNone; s = next) {
    next = books_.idle_order.after(s);
    if (!may_go(s, turn)) continue;
    // The flags may be left over from another thread that looked while a sequence was emptied.
    std::ranges::fill(books_.flags, 0);
    books_.flags[s] = 1;
    const uint64_t without = books_.room.free_if(id, kept, books_.flags);
    IdleSequence idle;
    idle.length = books_.room.length(SequenceId{s});
    idle.own_cells = static_cast<uint32_t>(without - free_cells);
    idle.prompt_tokens = turn.prompt_tokens - available;
    idle.answer_tokens = turn.promised_end - turn.prompt_tokens;
    idle.slowed_ns = books_.at(s).slowed_ns;
    // The store is asked only about sequences that would go if all of them could be restored.
    idle.restorable = idle.length;
    bool goes = worth_dropping(input, idle);
    if (goes) {
      idle.restorable = restorable_part(s);
      goes = worth_dropping(input, idle);
    }
    if (!goes) {
      if (stayers == Stayers::charged) {
        books_.at(s).slowed_ns =
            std::min(kMostNs, idle.slowed_ns + input.costs.idle(idle.own_cells, idle.prompt_tokens,
                                                                idle.answer_tokens));
      }
      continue;
    }
    clearer_.release(s);
    if (turn.computed > turn.available) turn.freed_below += idle.own_cells;
    free_cells = books_.room.free_if(id, kept, books_.nobody);
    ++books_.stats.dropped_idle;
    ++turn.report.dropped_idle;
  }
} catch (const std::bad_alloc&) {
  // The sequences not yet looked at stay.
}

void IdleDropper::drop_for_all() noexcept {
  for (const SequenceRecord& record : books_.records) {
    if (in_turn(record) && record.turn->computed < record.turn->prompt_tokens)
      drop_for(*record.turn, Stayers::free);
  }
}

}  // namespace stemma::sequence
