#include "engine/llama/llama_sequences.h"

#include <llama.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace stemma::engine {

namespace {

constexpr uint64_t kHeaderBytes = 8;  // Of every blob: a magic number and a sequence id.
constexpr uint64_t kUneven = ~uint64_t{0};
constexpr uint32_t kNowhere = 0xFFFF'FFFFU;
constexpr llama_state_seq_flags kPartial = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

Error no_such_sequence(SequenceId sequence) {
  return {Errc::invalid_argument, "no such sequence", to_index(sequence)};
}

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

// ---- What the model is like --------------------------------------------------------------------------

std::string LlamaSequences::probe(const Options& options) {
  const auto [sequences, unified, quantised_k, shares, range_tokens] = options;
  if (memory_ == nullptr) return "the model keeps no memory of what it has read";
  const llama_model* model = llama_get_model(context_);
  const uint32_t window = static_cast<uint32_t>(std::max(0, llama_model_n_swa(model)));
  kind_ = llama_model_is_recurrent(model) ? MemoryKind::recurrent
          : llama_model_is_hybrid(model)  ? MemoryKind::hybrid
          : window > 0                    ? MemoryKind::window
                                          : MemoryKind::full;
  // A purely recurrent state is one cell, whatever the context is like.
  const bool segments = unified && kind_ != MemoryKind::recurrent;
  const uint32_t ids = sequences + (segments ? 1 : 0);
  if (sequences == 0 || ids > llama_n_seq_max(context_)) {
    return "the context has " + std::to_string(llama_n_seq_max(context_)) + " sequences, not " +
           std::to_string(ids);
  }
  if (segments) scratch_ = static_cast<int32_t>(sequences);
  traits_.sequences = sequences;
  traits_.unified = unified && kind_ != MemoryKind::recurrent;
  traits_.context_tokens = traits_.unified ? llama_n_ctx(context_) : llama_n_ctx_seq(context_);
  traits_.segments = segments;
  traits_.checkpoints = segments && kind_ != MemoryKind::full;
  traits_.fork = unified || kind_ == MemoryKind::recurrent ? Fork::shared : Fork::restore;
  // Of a purely recurrent sequence the whole state is copied, when one of the two goes on.
  if (kind_ == MemoryKind::recurrent) traits_.fork = unified ? Fork::copy : Fork::restore;
  switch (kind_) {
    case MemoryKind::full: traits_.rewind = Rewind::any; break;
    case MemoryKind::window:
      traits_.rewind = Rewind::window;
      // A word sees itself and the window - 1 before it.
      traits_.rewind_tokens = std::max(1U, window - 1);
      break;
    case MemoryKind::recurrent:
    case MemoryKind::hybrid: traits_.rewind = Rewind::exact; break;
  }
  traits_.shift =
      kind_ == MemoryKind::full && segments && !quantised_k && llama_memory_can_shift(memory_);
  cells_ = CellMap(ids, traits_.unified ? llama_n_ctx(context_) : 0, llama_n_ubatch(context_));
  torn_.assign(ids, 0);
  moved_at_.assign(ids, kNowhere);

  // How large things are, from two lengths.
  const int32_t seq = 0;
  llama_memory_clear(memory_, true);
  empty_state_bytes_ = state_bytes(seq);
  const uint64_t empty_partial = has_tail() ? partial_bytes(seq) : kHeaderBytes;
  if (empty_state_bytes_ < kHeaderBytes || empty_partial < kHeaderBytes) {
    return "llama.cpp cannot tell how large a state is";
  }
  empty_base_bytes_ = empty_state_bytes_ - (empty_partial - kHeaderBytes);
  if (has_tail()) {
    std::vector<uint8_t> blob(empty_partial);
    if (llama_state_seq_get_data_ext(context_, blob.data(), blob.size(), seq, kPartial) !=
        blob.size()) {
      return "llama.cpp cannot save an empty state";
    }
    empty_tail_.assign(blob.begin() + kHeaderBytes, blob.end());
  }
  const uint32_t step = std::min(4U, llama_n_batch(context_));
  uint64_t state[2];
  uint64_t partial[2];
  llama_batch batch = llama_batch_init(static_cast<int32_t>(step), 0, 1);
  for (uint32_t round = 0; round < 2; ++round) {
    batch.n_tokens = static_cast<int32_t>(step);
    for (uint32_t i = 0; i < step; ++i) {
      batch.token[i] = 0;
      batch.pos[i] = static_cast<int32_t>(round * step + i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = seq;
      batch.logits[i] = 0;
    }
    batch.logits[step - 1] = 1;
    if (llama_decode(context_, batch) != 0) {
      llama_batch_free(batch);
      return "llama.cpp cannot decode with this context";
    }
    state[round] = state_bytes(seq);
    partial[round] = has_tail() ? partial_bytes(seq) : kHeaderBytes;
  }
  llama_batch_free(batch);
  const uint64_t base[2] = {state[0] - (partial[0] - kHeaderBytes),
                            state[1] - (partial[1] - kHeaderBytes)};
  cell_bytes_ = (base[1] - base[0]) / step;
  traits_.bytes_per_token = cell_bytes_;
  traits_.fixed_bytes = base[1] - cell_bytes_ * 2 * step + empty_tail_.size();
  switch (kind_) {
    case MemoryKind::full: break;
    case MemoryKind::window: {
      const uint64_t row = (partial[1] - partial[0]) / step;
      traits_.checkpoint_bytes = partial[1] - 2 * step * row + window * row;
      break;
    }
    case MemoryKind::recurrent: traits_.fixed_bytes = state[1]; break;
    case MemoryKind::hybrid: traits_.checkpoint_bytes = partial[1]; break;
  }
  // Segments are cut from whole blobs: only if those are made as we think.
  if (traits_.segments && has_tail()) {
    std::vector<uint8_t> whole(state[1]);
    std::vector<uint8_t> tail(partial[1]);
    if (llama_state_seq_get_data(context_, whole.data(), whole.size(), seq) != whole.size() ||
        llama_state_seq_get_data_ext(context_, tail.data(), tail.size(), seq, kPartial) !=
            tail.size() ||
        !std::equal(tail.begin() + kHeaderBytes, tail.end(),
                    whole.end() - static_cast<int64_t>(tail.size() - kHeaderBytes))) {
      traits_.segments = traits_.checkpoints = false;
    }
  }
  if (base_cells(seq) != 2 * step && kind_ != MemoryKind::recurrent) {
    return "the size of a llama.cpp state does not grow evenly with its tokens";
  }
  if (range_tokens != 0 && traits_.segments && learn_layout(2 * step)) {
    traits_.range_tokens = range_tokens;
  }
  if (!shares) {
    traits_.range_tokens = 0;
    traits_.fork = Fork::none;
    traits_.segments = traits_.checkpoints = traits_.shift = false;
  }
  llama_memory_clear(memory_, true);
  return "";
}

bool LlamaSequences::learn_layout(uint32_t tokens) {
  const SequenceId first{0};
  const uint32_t half = tokens / 2;
  const Range whole{0, tokens};
  const Range parts[2] = {{0, half}, {half, tokens}};
  if (half == 0) return false;
  std::vector<uint8_t> bytes(segment_bytes(whole));
  if (!save(first, Part::segment, whole, bytes)) return false;
  layout_ = SegmentLayout::read(bytes, tokens, empty_tail_.size());
  bool good = layout_ && layout_->size(tokens) == bytes.size() &&
              layout_->size(half) == segment_bytes(parts[0]);
  std::vector<uint8_t> joined(bytes.size());
  ByteSum of_cut;
  ByteSum of_saved;
  for (const Range part : parts) {
    if (!good) break;
    std::vector<uint8_t> saved(segment_bytes(part));
    std::vector<uint8_t> cut_out(saved.size());
    good = save(first, Part::segment, part, saved).has_value() &&
           cut(whole, bytes, part, cut_out, of_cut).has_value() && cut_out == saved &&
           join(part, saved, part, whole, joined, of_saved).has_value();
  }
  good = good && joined == bytes && of_cut.value() == of_saved.value();
  if (!good) layout_.reset();
  return good;
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

// ---- Going back, and from one to another -----------------------------------------------------------

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
  // Whole: of a hybrid a range that has the tail frees nothing.
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
  // Window cells of two sequences are never recycled, and what the two windows have together may have
  // holes. So the copy gets one of its own.
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

// ---- Saving ------------------------------------------------------------------------------------------

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
  // Whether its positions are there, once each, save_segment() sees by counting cells.
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
  // How much it writes tells how many cells there are. Other layers write their part behind it, which is cut off.
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

// ---- Loading -----------------------------------------------------------------------------------------

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
  // To llama.cpp no bytes at all are a success.
  if (bytes.size() <= kHeaderBytes) return Error(Errc::corrupt, "too few bytes");
  const int32_t seq = id(sequence);
  const Error refused(Errc::corrupt, "llama.cpp refuses the bytes");
  // It does not say why; what is as long as it should be lacks room.
  const Error no_room(Errc::out_of_blocks, "no room in llama.cpp's context");
  switch (part) {
    case Part::state: {
      if (held_by(seq) != Held{}) {
        return Error(Errc::out_of_range, "a state is loaded into an empty sequence");
      }
      if (llama_state_seq_set_data(context_, bytes.data(), bytes.size(), seq) != bytes.size() ||
          held_by(seq).end != wanted.end) {
        // A split context would go on claiming the positions.
        llama_memory_seq_rm(memory_, seq, -1, -1);
        const uint64_t least = traits_.fixed_bytes + uint64_t{saved.end} * cell_bytes_;
        return bytes.size() >= least && bytes.size() <= least + traits_.checkpoint_bytes ? no_room
                                                                                         : refused;
      }
      cells_.loaded(sequence, saved, wanted);
      return {};
    }
    case Part::checkpoint: {
      const uint64_t cells = base_cells(seq);
      if (cells == kUneven || cells < wanted.end) {
        return Error(Errc::out_of_range, "the rest of the positions is not held", wanted.end);
      }
      if (llama_state_seq_set_data_ext(context_, bytes.data(), bytes.size(), seq, kPartial) !=
          bytes.size()) {
        return refused;
      }
      torn_[to_index(sequence)] = 0;
      // What the other layers hold beyond it would be read.
      if (cells > wanted.end &&
          !llama_memory_seq_rm(memory_, seq, static_cast<int32_t>(wanted.end), -1)) {
        return Error(Errc::wrong_state, "llama.cpp did not cut behind the checkpoint", wanted.end);
      }
      cells_.cut(sequence, wanted.end);
      return held_by(seq).end == wanted.end ? Result<void>{} : Result<void>(refused);
    }
    case Part::segment: break;
  }
  if (bytes.size() != segment_bytes(saved))
    return Error(Errc::corrupt, "not as long as such a segment is");
  // With full attention alone the last position is enough to see where it ends: whether it has gaps is seen by
  // whoever asks what is held, and counting cells takes as long as loading a few hundred of them.
  const auto cells_of = [&](int32_t which) {
    return has_tail() ? base_cells(which)
                      : static_cast<uint64_t>(llama_memory_seq_pos_max(memory_, which) + 1);
  };
  if (cells_of(seq) != wanted.begin) {
    return Error(Errc::out_of_range, "must be loaded behind what is held", wanted.begin);
  }
  // Into an empty sequence it goes straight, where there are no other layers to be disturbed by it.
  const bool straight = !has_tail() && wanted.begin == 0 && saved == wanted;
  const int32_t target = straight ? seq : scratch_;
  const bool taken =
      llama_state_seq_set_data(context_, bytes.data(), bytes.size(), target) == bytes.size();
  const bool loaded =
      taken && cells_of(target) == (has_tail() ? saved.end - saved.begin : saved.end);
  if (straight) {
    if (!loaded) llama_memory_seq_rm(memory_, seq, -1, -1);
    if (loaded) cells_.loaded(sequence, saved, wanted);
    return loaded ? Result<void>{} : Result<void>(taken ? refused : no_room);
  }
  if (loaded) {
    llama_memory_seq_cp(memory_, scratch_, seq, static_cast<int32_t>(wanted.begin),
                        static_cast<int32_t>(wanted.end));
    cells_.loaded(sequence, saved, wanted);
  }
  empty_scratch();
  if (!loaded) return taken ? refused : no_room;
  if (cells_of(seq) != wanted.end) return refused;
  return {};
}

// ---- Ranges ------------------------------------------------------------------------------------------

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
  // Others put their positions there at the same time: the one with the first position writes what belongs to all.
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
    // Cells that others share would move for them too: the rest gets cells of its own.
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
