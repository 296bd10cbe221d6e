#include "sequence/relocator.h"

#include <algorithm>
#include <new>

namespace stemma::sequence {

void Relocator::move_down(uint64_t& spent_ns) noexcept try {
  if (books_.mover == nullptr || !books_.traits.unified || !books_.any()) return;
  for (SequenceRecord& record : books_.records) {
    if (!in_turn(record) || record.turn->freed_below == 0) continue;
    TurnRecord& turn = *record.turn;
    const bool worth_it = worth_moving(turn);
    turn.freed_below = 0;
    if (!worth_it) continue;
    const uint64_t started = books_.clock->now_ns();
    if (read(turn)) {
      bool there = false;
      try {
        there = put_back(turn).has_value();
      } catch (const std::bad_alloc&) {
        // Nobody knows what the sequence holds now.
      }
      if (there) {
        ++books_.stats.relocated;
      } else {
        books_.warn("stemma: a sequence could not be moved in the context; its request fails");
        clearer_.lose(turn);
      }
    }
    give_buffers_back();
    spent_ns += elapsed_ns(started, books_.clock->now_ns());
  }
} catch (const std::bad_alloc&) {
  give_buffers_back();
}

bool Relocator::worth_moving(const TurnRecord& turn) const {
  const SequenceId id{turn.sequence};
  if (turn.computed == 0 || turn.approximate || books_.room.length(id) != turn.computed)
    return false;
  // Cells shared with others would be there twice, and the others would keep the old place.
  const uint64_t own = books_.room.free_if(id, 0, books_.nobody) - books_.room.free_for(id);
  if (own != turn.computed) return false;
  // If other sequences lie higher still, attention would look as far as before.
  const uint64_t laid = books_.at(turn.sequence).laid;
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    if (s != turn.sequence && books_.room.length(SequenceId{s}) != 0 && books_.at(s).laid > laid)
      return false;
  }
  // All of it has to fit in buffers at once; two are left for others.
  if (books_.mover->buffers() < 3 || turn.computed > (books_.mover->buffers() - 2) * most_tokens())
    return false;
  const Costs& costs = books_.meter.costs();
  const Range all{0, turn.computed};
  const auto moving = [&](const MoveCost& cost) {
    return cost_of_moving(cost, books_.traits, books_.options.segment_tokens, all, false);
  };
  const uint64_t gain = costs.idle(turn.freed_below, turn.prompt_tokens - turn.computed,
                                   turn.promised_end - turn.prompt_tokens);
  return gain > 2 * (moving(costs.save) + moving(costs.load)) + kMomentNs;
}

uint64_t Relocator::most_tokens() const noexcept {
  const uint64_t frame = books_.traits.fixed_bytes + books_.traits.checkpoint_bytes;
  return (books_.mover->buffer_bytes() - frame) / books_.traits.bytes_per_token;
}

bool Relocator::read(const TurnRecord& turn) {
  const SequenceId id{turn.sequence};
  const EngineTraits& traits = books_.traits;
  const auto most = static_cast<uint32_t>(most_tokens());
  parts_.clear();
  const Books::Unlocked unlocked(books_);
  books_.engine->settle();
  for (uint32_t begin = 0; begin < turn.computed;) {
    Part part;
    part.range = {begin, std::min(turn.computed, begin + most)};
    part.bytes = traits.fixed_bytes + uint64_t{part.range.end - begin} * traits.bytes_per_token;
    parts_.push_back(part);
    Part& it = parts_.back();
    it.buffer = books_.mover->take();
    // Threads that have just cut saved state are cleaning their buffers.
    if (it.buffer == RangeMover::kNone && books_.mover->wait_for_buffer()) {
      it.buffer = books_.mover->take();
    }
    if (it.buffer == RangeMover::kNone) return false;
    const Result<uint64_t> written =
        books_.engine->save(id, stemma::Part::segment, it.range, books_.mover->bytes(it.buffer));
    if (!written || *written != it.bytes || books_.mover->unwritten(it.buffer, 0, it.bytes)) {
      return false;
    }
    begin = it.range.end;
  }
  return true;
}

Result<void> Relocator::put_back(const TurnRecord& turn) {
  const SequenceId id{turn.sequence};
  {
    const Books::Unlocked unlocked(books_);
    STEMMA_TRY_VOID(books_.engine->clear(id));
    for (const Part& part : parts_) {
      STEMMA_TRY_VOID(books_.engine->load(id, stemma::Part::segment, part.range, part.range,
                                          books_.mover->bytes(part.buffer).first(part.bytes)));
    }
  }
  if (!books_.verify(turn.sequence, turn.computed)) {
    return Error(Errc::corrupt, "the engine does not hold what was put back");
  }
  return {};
}

void Relocator::give_buffers_back() {
  for (const Part& part : parts_) {
    if (part.buffer != RangeMover::kNone)
      books_.mover->give_back(part.buffer, part.bytes + books_.traits.checkpoint_bytes);
  }
  parts_.clear();
}

}  // namespace stemma::sequence
