#include "sequence/capture_rules.h"

#include <algorithm>

namespace stemma::sequence {

bool worth_saving_first(Books& books, uint32_t sequence) {
  const SequenceRecord& record = books.at(sequence);
  const uint32_t unsaved = record.unsaved();
  if (record.retain.asks_to_keep()) return unsaved != 0;
  const Range range{record.capture - unsaved, record.capture};
  return worth_saving(books.meter.costs(), books.traits, books.options.segment_tokens, range) &&
         !dear_to_save(books, sequence, range);
}

bool worth_keeping(const Books& books, uint32_t depth) noexcept {
  // Without measurements, assume that it pays: a wrong guess of "never" would never be corrected.
  if (!books.meter.moves_measured()) return true;
  return restores_faster(books.meter.costs(), books.traits, books.options.segment_tokens,
                         {0, depth});
}

bool worth_waiting(const Books& books, Range unsaved, uint32_t kept) noexcept {
  const Range lost{books.any() ? kept : 0, unsaved.end};
  if (lost.begin >= lost.end) return false;
  const uint64_t saving = cost_of_moving(books.meter.costs().save, books.traits,
                                         books.options.segment_tokens, unsaved, !books.any());
  return saving < std::max(books.meter.costs().compute(lost) / 2, kMomentNs) &&
         worth_saving(books.meter.costs(), books.traits, books.options.segment_tokens, unsaved);
}

bool fits_without_eviction(const Books& books, uint32_t sequence) {
  const auto fits = [](const StateStore& store, uint64_t bytes) {
    const StateStore::Stats stats = store.stats();
    return bytes <= stats.budget_bytes - stats.bytes;
  };
  // A checkpoint larger than the whole store is not saved, so it pushes nothing out.
  if (books.checkpoints != nullptr &&
      books.traits.checkpoint_bytes <= books.checkpoints->stats().budget_bytes &&
      !fits(*books.checkpoints, books.traits.checkpoint_bytes)) {
    return false;
  }
  if (books.segments != nullptr)
    return books.segments->free_tokens() >= books.at(sequence).unsaved();
  return books.states == nullptr ||
         fits(*books.states, books.traits.fixed_bytes + books.traits.checkpoint_bytes +
                                 books.at(sequence).capture * books.traits.bytes_per_token);
}

namespace {

// The time to save a range, in all its pieces.
uint64_t saving_ns(const Books& books, uint32_t sequence, Range range) {
  const uint64_t bytes =
      books.traits.fixed_bytes + uint64_t{range.end - range.begin} * books.traits.bytes_per_token;
  return books.meter.costs().save.of(books.engine->pieces(SequenceId{sequence}, range), bytes);
}

// The number of adjacent positions that one step reads.
uint32_t step_tokens(const Books& books) noexcept {
  const MoveCost& save = books.meter.costs().save;
  const uint64_t segment = books.options.segment_tokens;
  uint64_t tokens = 0;
  if (books.traits.range_tokens != 0) {
    const uint64_t call = save.of(1, books.traits.fixed_bytes);
    const uint64_t many = std::max<uint64_t>(save.of(0, 1024 * books.traits.bytes_per_token), 1);
    tokens = std::min<uint64_t>(std::max<uint64_t>(books.traits.range_tokens, segment),
                                (books.step_ns - std::min(books.step_ns, call)) * 1024 / many);
    const uint64_t allowed = books.step_limit.bytes(books.step_ns);
    if (allowed != 0) tokens = std::min(tokens, allowed / books.traits.bytes_per_token);
  } else {
    const uint64_t bytes = books.traits.fixed_bytes + segment * books.traits.bytes_per_token;
    tokens = books.step_ns / std::max<uint64_t>(save.of(1, bytes), 1) * segment;
  }
  return static_cast<uint32_t>(std::clamp<uint64_t>(tokens, segment, uint64_t{1} << 30U));
}

}  // namespace

uint32_t step_end(Books& books, uint32_t sequence, Range range) {
  const uint32_t most = std::min(range.end - range.begin, step_tokens(books));
  if (books.traits.range_tokens == 0) return range.begin + most;
  const Books::Unlocked unlocked(books);
  uint32_t fits = 1;
  for (uint32_t too_many = most + 1; fits + 1 < too_many;) {
    const uint32_t middle = fits + (too_many - fits) / 2;
    const bool in_time =
        saving_ns(books, sequence, {range.begin, range.begin + middle}) <= books.step_ns;
    (in_time ? fits : too_many) = middle;
  }
  return range.begin + fits;
}

bool dear_to_save(Books& books, uint32_t sequence, Range range) {
  if (books.traits.range_tokens == 0 || range.begin >= range.end) return false;
  const Books::Unlocked unlocked(books);
  if (books.engine->pieces(SequenceId{sequence}, range) == 1) return false;
  const uint64_t ns = saving_ns(books, sequence, range);
  return ns > kMomentNs && ns > books.meter.costs().compute(range);
}

bool begins_dear(Books& books, uint32_t sequence, Range range) {
  if (books.traits.range_tokens == 0 || range.begin >= range.end) return false;
  // It is worth reading a hole or two before a long run, so a whole step is judged.
  const uint32_t end = std::max(books.segment_end(range), step_end(books, sequence, range));
  return dear_to_save(books, sequence, {range.begin, end});
}

bool waits_dear(Books& books, uint32_t sequence) {
  const SequenceRecord& record = books.at(sequence);
  if (record.dear) return true;
  // Captures begin with a whole segment.
  const uint32_t saved = record.capture - record.unsaved();
  return begins_dear(books, sequence,
                     {saved - saved % books.options.segment_tokens, record.capture});
}

// On a device, computing is cheap, and with full attention a saved part is useful by itself.
// Elsewhere the request that needs the place waits until all of it is saved.
bool part_will_do(const Books& books) noexcept {
  return books.traits.range_tokens != 0 && books.segments != nullptr && books.any();
}

bool keeps_anchors(const Books& books, const TurnRecord& turn) noexcept {
  return !books.any() && turn.keep && !turn.approximate && !turn.forgotten &&
         allows(turn.reuse, Reuse::saved) && (books.use_checkpoints || books.use_states);
}

uint64_t anchor_bytes(const Books& books, uint32_t depth) noexcept {
  if (books.use_checkpoints) return books.traits.checkpoint_bytes;
  return books.traits.fixed_bytes + books.traits.checkpoint_bytes +
         depth * books.traits.bytes_per_token;
}

}  // namespace stemma::sequence
