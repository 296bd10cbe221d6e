#include "engine/llama/llama_sequences.h"

#include <llama.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace stemma::engine {

namespace {

constexpr uint64_t kUneven = ~uint64_t{0};
constexpr llama_state_seq_flags kPartial = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

Error no_such_sequence(SequenceId sequence) {
  return {Errc::invalid_argument, "no such sequence", to_index(sequence)};
}

Error refused() { return {Errc::corrupt, "llama.cpp refuses the bytes"}; }

// llama.cpp gives no reason; if the length is right, there was no room.
Error no_room() { return {Errc::out_of_blocks, "no room in llama.cpp's context"}; }

}  // namespace

const char* to_string(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::full: return "full";
    case MemoryKind::window: return "window";
    case MemoryKind::recurrent: return "recurrent";
    case MemoryKind::hybrid: return "hybrid";
  }
  return "?";
}

LlamaSequences::LlamaSequences(llama_context* context) noexcept
    : context_(context), memory_(llama_get_memory(context)) {}

std::unique_ptr<LlamaSequences> LlamaSequences::create(llama_context* context,
                                                       const Options& options, std::string& why) {
  std::unique_ptr<LlamaSequences> made(new LlamaSequences(context));
  why = made->probe(options);
  if (!why.empty()) made.reset();
  return made;
}

void LlamaSequences::decoded(std::span<const BatchItem> batch) noexcept {
  std::ranges::fill(moved_at_, kNowhere);
  cells_.computed(batch);
}

uint32_t LlamaSequences::pieces(SequenceId sequence, Range range) {
  return known(sequence) ? cells_.pieces(sequence, range) : 1;
}

uint64_t LlamaSequences::state_bytes(int32_t sequence) const {
  return llama_state_seq_get_size(context_, sequence);
}
uint64_t LlamaSequences::partial_bytes(int32_t sequence) const {
  return llama_state_seq_get_size_ext(context_, sequence, kPartial);
}

uint64_t LlamaSequences::base_cells(int32_t sequence) const {
  const uint64_t base =
      state_bytes(sequence) - (has_tail() ? partial_bytes(sequence) - kHeaderBytes : 0);
  if (base == empty_base_bytes_) return 0;
  const uint64_t fixed = traits_.fixed_bytes - empty_tail_.size();
  if (cell_bytes_ == 0 || base < fixed || (base - fixed) % cell_bytes_ != 0) return kUneven;
  return (base - fixed) / cell_bytes_;
}

Held LlamaSequences::held_by(int32_t sequence) const {
  const int32_t first = llama_memory_seq_pos_min(memory_, sequence);
  const int32_t last = llama_memory_seq_pos_max(memory_, sequence);
  constexpr Held kBroken{0, 0, false};
  if (kind_ == MemoryKind::recurrent) {
    if (last < 0) return {};
    return {static_cast<uint32_t>(last), static_cast<uint32_t>(last) + 1, true};
  }
  const uint64_t cells = base_cells(sequence);
  if (first < 0 || last < 0) {
    const bool empty = cells == 0 && state_bytes(sequence) == empty_state_bytes_;
    return empty ? Held{} : kBroken;
  }
  const Held held{static_cast<uint32_t>(first), static_cast<uint32_t>(last) + 1, true};
  if (cells != held.end || torn_[static_cast<uint32_t>(sequence)] != 0) return kBroken;
  switch (kind_) {
    case MemoryKind::full: return first == 0 ? held : kBroken;
    // The state stands where the attention ends.
    case MemoryKind::hybrid: return first == last ? held : kBroken;
    default: return held;
  }
}

Held LlamaSequences::held(SequenceId sequence) {
  return known(sequence) ? held_by(id(sequence)) : Held{};
}

void LlamaSequences::settle() { llama_synchronize(context_); }

// ---- Going back, and from one to another --------------------------------------------------------

Result<void> LlamaSequences::clear(SequenceId sequence) {
  if (!known(sequence)) return no_such_sequence(sequence);
  torn_[to_index(sequence)] = 0;
  moved_at_[to_index(sequence)] = kNowhere;
  cells_.cut(sequence, 0);
  if (!llama_memory_seq_rm(memory_, id(sequence), -1, -1)) {
    return Error(Errc::wrong_state, "llama.cpp did not clear the sequence", to_index(sequence));
  }
  return {};
}

Result<void> LlamaSequences::trim(SequenceId sequence, uint32_t n) {
  if (n == 0 || !known(sequence)) return clear(sequence);
  const Held before = held_by(id(sequence));
  if (before.whole && n >= before.end) return {};
  if (!llama_memory_seq_rm(memory_, id(sequence), static_cast<int32_t>(n), -1)) {
    return Error(Errc::wrong_state, "this memory cannot go back", n);
  }
  if (n <= moved_at_[to_index(sequence)]) moved_at_[to_index(sequence)] = kNowhere;
  cells_.cut(sequence, n);
  return {};
}

void LlamaSequences::empty_scratch() {
  // Everything: in a hybrid memory, removing a range that includes the tail frees nothing.
  llama_memory_seq_rm(memory_, scratch_, -1, -1);
  torn_[static_cast<uint32_t>(scratch_)] = 0;
}

int32_t LlamaSequences::window_at(int32_t sequence, uint32_t n) {
  if (static_cast<uint32_t>(llama_memory_seq_pos_max(memory_, sequence)) + 1 == n) return sequence;
  const uint32_t from = n > traits_.rewind_tokens ? n - traits_.rewind_tokens : 0;
  llama_memory_seq_cp(memory_, sequence, scratch_, static_cast<int32_t>(from),
                      static_cast<int32_t>(n));
  return scratch_;
}

Result<void> LlamaSequences::copy(SequenceId from, SequenceId to, Range range) {
  if (!known(from)) return no_such_sequence(from);
  if (!known(to)) return no_such_sequence(to);
  if (from == to || range.begin >= range.end) {
    return Error(Errc::invalid_argument, "nothing to copy");
  }
  if (traits_.fork != Fork::shared && traits_.fork != Fork::copy) {
    return Error(Errc::unsupported, "sequences of a split context cannot be copied");
  }
  if (traits_.fork == Fork::copy && range.begin != 0) {
    return Error(Errc::unsupported, "a recurrent state is copied whole", range.begin);
  }
  const Held source = held_by(id(from));
  if (range.end > source.end) return Error(Errc::out_of_range, "not held", range.end);
  if (held_by(id(to)).end != range.begin) {
    return Error(Errc::out_of_range, "must be copied behind what is held", range.begin);
  }
  llama_memory_seq_cp(memory_, id(from), id(to), static_cast<int32_t>(range.begin),
                      static_cast<int32_t>(range.end));
  cells_.copied(from, to, range);
  if (moved_at_[to_index(from)] < range.end) {
    moved_at_[to_index(to)] = std::max(moved_at_[to_index(from)], range.begin);
  }
  if (kind_ != MemoryKind::window) return {};
  // Window cells of two sequences are never recycled, and the two windows together may have holes.
  // So the copy gets a window of its own.
  torn_[to_index(to)] = 1;
  if (!can_resume(traits_, source, range.end)) return {};
  const int32_t window = window_at(id(from), range.end);
  const Result<uint64_t> bytes = [&]() -> Result<uint64_t> {
    try {
      buffer_.resize(partial_bytes(window));
    } catch (const std::bad_alloc&) {
      return Error(Errc::out_of_memory, "no memory for a window");
    }
    return read_partial(window, buffer_);
  }();
  if (window == scratch_) empty_scratch();
  if (!bytes) return bytes.error();
  if (llama_state_seq_set_data_ext(context_, buffer_.data(), *bytes, id(to), kPartial) != *bytes) {
    return Error(Errc::out_of_blocks, "no room for the copy's window");
  }
  torn_[to_index(to)] = 0;
  return {};
}

// ---- Saving -------------------------------------------------------------------------------------

Result<void> LlamaSequences::check_part(SequenceId sequence, Part part, Range range) {
  if (!known(sequence)) return no_such_sequence(sequence);
  if (range.begin >= range.end) return Error(Errc::invalid_argument, "an empty range", range.end);
  if (traits_.fork == Fork::none) {
    return Error(Errc::unsupported, "nothing is saved of these sequences");
  }
  if (part == Part::segment && !traits_.segments) {
    return Error(Errc::unsupported, "this context has no segments");
  }
  if (part == Part::checkpoint && !traits_.checkpoints) {
    return Error(Errc::unsupported, "this context has no checkpoints");
  }
  if (part != Part::segment && range.begin != 0) {
    return Error(Errc::invalid_argument, "begins at 0", range.begin);
  }
  // llama.cpp would write positions that it has not moved yet.
  if (moved_at_[to_index(sequence)] < range.end) {
    return Error(Errc::busy, "shifted, and not decoded since", moved_at_[to_index(sequence)]);
  }
  // save_segment() counts cells, and so checks that each position is there exactly once.
  if (part == Part::segment) {
    if (static_cast<int64_t>(range.end) >
        int64_t{llama_memory_seq_pos_max(memory_, id(sequence))} + 1) {
      return Error(Errc::out_of_range, "not held", range.end);
    }
    return {};
  }
  const Held now = held_by(id(sequence));
  if (range.end > now.end) return Error(Errc::out_of_range, "not held", range.end);
  if (part == Part::state && range.end != now.end) {
    return Error(Errc::out_of_range, "a state is saved of all that is held", range.end);
  }
  if (part == Part::checkpoint && range.end != now.end &&
      (kind_ != MemoryKind::window || !can_resume(traits_, now, range.end))) {
    return Error(Errc::wrong_state, "the sequence cannot go back there", range.end);
  }
  return {};
}

Result<uint64_t> LlamaSequences::size(SequenceId sequence, Part part, Range range) {
  STEMMA_TRY_VOID(check_part(sequence, part, range));
  switch (part) {
    case Part::state: return state_bytes(id(sequence));
    case Part::segment: return segment_bytes(range);
    case Part::checkpoint: break;
  }
  if (kind_ != MemoryKind::window) return partial_bytes(id(sequence));
  const int32_t window = window_at(id(sequence), range.end);
  const uint64_t bytes = partial_bytes(window);
  if (window == scratch_) empty_scratch();
  return bytes;
}

Result<uint64_t> LlamaSequences::read_partial(int32_t sequence, std::span<uint8_t> out) {
  const uint64_t bytes = partial_bytes(sequence);
  if (out.size() < bytes) return Error(Errc::out_of_range, "the buffer is too small");
  if (llama_state_seq_get_data_ext(context_, out.data(), bytes, sequence, kPartial) != bytes) {
    return Error(Errc::corrupt, "llama.cpp did not save the checkpoint");
  }
  return bytes;
}

Result<uint64_t> LlamaSequences::save_segment(int32_t sequence, Range range,
                                              std::span<uint8_t> out) {
  llama_memory_seq_cp(memory_, sequence, scratch_, static_cast<int32_t>(range.begin),
                      static_cast<int32_t>(range.end));
  const uint64_t wanted = segment_bytes(range);
  if (out.size() < wanted) return Error(Errc::out_of_range, "the buffer is too small");
  const Error other(Errc::corrupt, "llama.cpp holds other positions than it says", range.begin);
  // The written size tells how many cells there are. Other layers write their part behind it; it is
  // cut off.
  if (!has_tail()) {
    return llama_state_seq_get_data(context_, out.data(), out.size(), scratch_) == wanted
               ? Result<uint64_t>(wanted)
               : Result<uint64_t>(other);
  }
  const uint64_t whole = state_bytes(scratch_);
  const uint64_t tail = partial_bytes(scratch_) - kHeaderBytes;
  if (whole - tail + empty_tail_.size() != wanted) return other;
  std::span<uint8_t> target = out;
  if (out.size() < whole) {
    try {
      buffer_.resize(whole);
    } catch (const std::bad_alloc&) {
      return Error(Errc::out_of_memory, "no memory for a segment");
    }
    target = buffer_;
  }
  if (llama_state_seq_get_data(context_, target.data(), whole, scratch_) != whole) {
    return Error(Errc::corrupt, "llama.cpp did not save the segment", range.begin);
  }
  if (target.data() != out.data()) std::memcpy(out.data(), target.data(), whole - tail);
  std::memcpy(out.data() + (whole - tail), empty_tail_.data(), empty_tail_.size());
  return wanted;
}

Result<uint64_t> LlamaSequences::save(SequenceId sequence, Part part, Range range,
                                      std::span<uint8_t> out) {
  STEMMA_TRY_VOID(check_part(sequence, part, range));
  switch (part) {
    case Part::state: {
      const uint64_t bytes = state_bytes(id(sequence));
      if (out.size() < bytes) return Error(Errc::out_of_range, "the buffer is too small");
      if (llama_state_seq_get_data(context_, out.data(), bytes, id(sequence)) != bytes) {
        return Error(Errc::corrupt, "llama.cpp did not save the state");
      }
      return bytes;
    }
    case Part::segment: {
      const Result<uint64_t> written = save_segment(id(sequence), range, out);
      empty_scratch();
      return written;
    }
    case Part::checkpoint: break;
  }
  const int32_t at =
      kind_ == MemoryKind::window ? window_at(id(sequence), range.end) : id(sequence);
  const Result<uint64_t> written = read_partial(at, out);
  if (at == scratch_) empty_scratch();
  return written;
}

// ---- Loading ------------------------------------------------------------------------------------

Result<void> LlamaSequences::load(SequenceId sequence, Part part, Range saved, Range wanted,
                                  std::span<const uint8_t> bytes) {
  if (!known(sequence)) return no_such_sequence(sequence);
  if (saved.begin >= saved.end || wanted.begin >= wanted.end) {
    return Error(Errc::invalid_argument, "an empty range", wanted.end);
  }
  if (part != Part::segment && (saved.begin != 0 || saved != wanted)) {
    return Error(Errc::invalid_argument, "wanted whole", wanted.end);
  }
  if (wanted.begin < saved.begin || wanted.end > saved.end) {
    return Error(Errc::out_of_range, "not saved", wanted.end);
  }
  if (traits_.fork == Fork::none ||
      (part == Part::segment ? !traits_.segments
                             : part == Part::checkpoint && !traits_.checkpoints)) {
    return Error(Errc::unsupported, "this context has no such parts");
  }
  // llama.cpp accepts zero bytes as a success.
  if (bytes.size() <= kHeaderBytes) return Error(Errc::corrupt, "too few bytes");
  switch (part) {
    case Part::state: return load_state(sequence, saved, bytes);
    case Part::checkpoint: return load_checkpoint(sequence, wanted.end, bytes);
    case Part::segment: break;
  }
  return load_segment(sequence, saved, wanted, bytes);
}

Result<void> LlamaSequences::load_state(SequenceId sequence, Range saved,
                                        std::span<const uint8_t> bytes) {
  const int32_t seq = id(sequence);
  if (held_by(seq) != Held{}) {
    return Error(Errc::out_of_range, "a state is loaded into an empty sequence");
  }
  if (llama_state_seq_set_data(context_, bytes.data(), bytes.size(), seq) != bytes.size() ||
      held_by(seq).end != saved.end) {
    // A split context would keep claiming the positions.
    llama_memory_seq_rm(memory_, seq, -1, -1);
    const uint64_t least = traits_.fixed_bytes + uint64_t{saved.end} * cell_bytes_;
    const bool has_right_size =
        bytes.size() >= least && bytes.size() <= least + traits_.checkpoint_bytes;
    return has_right_size ? no_room() : refused();
  }
  cells_.loaded(sequence, saved, saved);
  return {};
}

Result<void> LlamaSequences::load_checkpoint(SequenceId sequence, uint32_t end,
                                             std::span<const uint8_t> bytes) {
  const int32_t seq = id(sequence);
  const uint64_t cells = base_cells(seq);
  if (cells == kUneven || cells < end) {
    return Error(Errc::out_of_range, "the rest of the positions is not held", end);
  }
  if (llama_state_seq_set_data_ext(context_, bytes.data(), bytes.size(), seq, kPartial) !=
      bytes.size()) {
    return refused();
  }
  torn_[to_index(sequence)] = 0;
  // Otherwise the other layers' positions beyond it would be read.
  if (cells > end && !llama_memory_seq_rm(memory_, seq, static_cast<int32_t>(end), -1)) {
    return Error(Errc::wrong_state, "llama.cpp did not cut behind the checkpoint", end);
  }
  cells_.cut(sequence, end);
  return held_by(seq).end == end ? Result<void>{} : Result<void>(refused());
}

Result<void> LlamaSequences::load_segment(SequenceId sequence, Range saved, Range wanted,
                                          std::span<const uint8_t> bytes) {
  const int32_t seq = id(sequence);
  if (bytes.size() != segment_bytes(saved))
    return Error(Errc::corrupt, "not as long as such a segment is");
  // With full attention alone, the last position shows where it ends. Gaps are seen when the caller
  // asks what is held; counting cells here takes as long as loading a few hundred of them.
  const auto cells_of = [&](int32_t which) {
    return has_tail() ? base_cells(which)
                      : static_cast<uint64_t>(llama_memory_seq_pos_max(memory_, which) + 1);
  };
  if (cells_of(seq) != wanted.begin) {
    return Error(Errc::out_of_range, "must be loaded behind what is held", wanted.begin);
  }
  // Without other layers to disturb, it is loaded directly into an empty sequence.
  const bool straight = !has_tail() && wanted.begin == 0 && saved == wanted;
  const int32_t target = straight ? seq : scratch_;
  const bool taken =
      llama_state_seq_set_data(context_, bytes.data(), bytes.size(), target) == bytes.size();
  const bool loaded =
      taken && cells_of(target) == (has_tail() ? saved.end - saved.begin : saved.end);
  if (straight) {
    if (!loaded) llama_memory_seq_rm(memory_, seq, -1, -1);
    if (loaded) cells_.loaded(sequence, saved, wanted);
    return loaded ? Result<void>{} : Result<void>(taken ? refused() : no_room());
  }
  if (loaded) {
    llama_memory_seq_cp(memory_, scratch_, seq, static_cast<int32_t>(wanted.begin),
                        static_cast<int32_t>(wanted.end));
    cells_.loaded(sequence, saved, wanted);
  }
  empty_scratch();
  if (!loaded) return taken ? refused() : no_room();
  if (cells_of(seq) != wanted.end) return refused();
  return {};
}

// ---- Ranges -------------------------------------------------------------------------------------

Result<void> LlamaSequences::cut(Range whole, std::span<const uint8_t> bytes, Range part,
                                 std::span<uint8_t> out, ByteSum& sum) const {
  return move_rows(whole, bytes, part, part, out, SegmentLayout::Summed::result, sum);
}

Result<void> LlamaSequences::join(Range saved, std::span<const uint8_t> bytes, Range part,
                                  Range whole, std::span<uint8_t> out, ByteSum& sum) const {
  return move_rows(saved, bytes, part, whole, out, SegmentLayout::Summed::source, sum);
}

Result<void> LlamaSequences::move_rows(Range saved, std::span<const uint8_t> bytes, Range part,
                                       Range whole, std::span<uint8_t> out,
                                       SegmentLayout::Summed summed, ByteSum& sum) const {
  if (!layout_) return Error(Errc::unsupported, "this context moves no ranges");
  if (part.begin >= part.end || part.begin < saved.begin || part.end > saved.end ||
      part.begin < whole.begin || part.end > whole.end) {
    return Error(Errc::out_of_range, "no part of both", part.begin);
  }
  if (bytes.size() != segment_bytes(saved) || out.size() != segment_bytes(whole)) {
    return Error(Errc::corrupt, "not as long as such a segment is");
  }
  // Other threads write their positions at the same time: the one with the first position writes
  // the common parts.
  try {
    const bool moved = layout_->move({.segment = bytes,
                                      .positions = saved.end - saved.begin,
                                      .part_begin = part.begin,
                                      .part_count = part.end - part.begin,
                                      .out = out,
                                      .out_positions = whole.end - whole.begin,
                                      .out_begin = whole.begin},
                                     summed, sum);
    if (!moved) return Error(Errc::corrupt, "a segment has other positions", part.begin);
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to find positions");
  }
  return {};
}

Result<void> LlamaSequences::shift(SequenceId sequence, uint32_t keep, uint32_t discard) {
  if (!known(sequence)) return no_such_sequence(sequence);
  if (!traits_.shift) return Error(Errc::unsupported, "this memory cannot be shifted");
  const Held now = held_by(id(sequence));
  if (discard == 0) return Error(Errc::invalid_argument, "nothing to discard");
  if (uint64_t{keep} + discard > now.end) {
    return Error(Errc::out_of_range, "not held", keep);
  }
  const int32_t seq = id(sequence);
  const Range rest{keep + discard, now.end};
  std::vector<uint8_t> bytes;
  if (rest.begin < rest.end) {
    // Shared cells would move for the other sequences too, so the rest gets cells of its own.
    try {
      bytes.resize(traits_.fixed_bytes + uint64_t{rest.end - rest.begin} * cell_bytes_);
    } catch (const std::bad_alloc&) {
      return Error(Errc::out_of_memory, "no memory to shift with");
    }
    STEMMA_TRY_VOID(save(sequence, Part::segment, rest, bytes));
  }
  llama_memory_seq_rm(memory_, seq, static_cast<int32_t>(keep), -1);
  cells_.cut(sequence, keep);
  if (rest.begin == rest.end) return {};
  const bool loaded =
      llama_state_seq_set_data(context_, bytes.data(), bytes.size(), scratch_) == bytes.size();
  if (loaded) {
    llama_memory_seq_add(memory_, scratch_, static_cast<int32_t>(rest.begin), -1,
                         -static_cast<int32_t>(discard));
    llama_memory_seq_cp(memory_, scratch_, seq, static_cast<int32_t>(keep), -1);
    moved_at_[to_index(sequence)] = keep;
    cells_.loaded(sequence, {keep, now.end - discard}, {keep, now.end - discard});
  }
  empty_scratch();
  if (!loaded) return Error(Errc::out_of_blocks, "no room to shift");
  return {};
}

}  // namespace stemma::engine
