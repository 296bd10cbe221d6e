// Learns what a llama.cpp context is like: its kind, and how large its states are. It computes a few
// tokens and looks at what llama.cpp then writes.
#include <llama.h>

#include <algorithm>
#include <vector>

#include "engine/llama/llama_sequences.h"

namespace stemma::engine {

namespace {

constexpr int32_t kFirst = 0;  // The sequence that tokens are computed in.

}  // namespace

std::string LlamaSequences::probe(const Options& options) {
  if (memory_ == nullptr) return "the model keeps no memory of what it has read";
  const uint32_t window =
      static_cast<uint32_t>(std::max(0, llama_model_n_swa(llama_get_model(context_))));
  if (std::string why = choose_traits(options, window); !why.empty()) return why;
  if (std::string why = measure_empty(); !why.empty()) return why;
  Sizes sizes;
  if (std::string why = measure(sizes); !why.empty()) return why;
  use(sizes, window);
  if (base_cells(kFirst) != 2 * sizes.step && kind_ != MemoryKind::recurrent) {
    return "the size of a llama.cpp state does not grow evenly with its tokens";
  }
  if (options.range_tokens != 0 && traits_.segments && learn_layout(2 * sizes.step)) {
    traits_.range_tokens = options.range_tokens;
  }
  if (!options.shares) {
    traits_.range_tokens = 0;
    traits_.fork = Fork::none;
    traits_.segments = traits_.checkpoints = traits_.shift = false;
  }
  llama_memory_clear(memory_, true);
  return "";
}

std::string LlamaSequences::choose_traits(const Options& options, uint32_t window) {
  const llama_model* model = llama_get_model(context_);
  kind_ = llama_model_is_recurrent(model) ? MemoryKind::recurrent
          : llama_model_is_hybrid(model)  ? MemoryKind::hybrid
          : window > 0                    ? MemoryKind::window
                                          : MemoryKind::full;
  // A purely recurrent state is one cell in any kind of context.
  const bool segments = options.unified && kind_ != MemoryKind::recurrent;
  const uint32_t ids = options.sequences + (segments ? 1 : 0);
  if (options.sequences == 0 || ids > llama_n_seq_max(context_)) {
    return "the context has " + std::to_string(llama_n_seq_max(context_)) + " sequences, not " +
           std::to_string(ids);
  }
  if (segments) scratch_ = static_cast<int32_t>(options.sequences);
  traits_.sequences = options.sequences;
  traits_.unified = options.unified && kind_ != MemoryKind::recurrent;
  traits_.context_tokens = traits_.unified ? llama_n_ctx(context_) : llama_n_ctx_seq(context_);
  traits_.segments = segments;
  traits_.checkpoints = segments && kind_ != MemoryKind::full;
  traits_.fork = options.unified || kind_ == MemoryKind::recurrent ? Fork::shared : Fork::restore;
  // The whole state of a purely recurrent sequence is copied when one of the two continues.
  if (kind_ == MemoryKind::recurrent) traits_.fork = options.unified ? Fork::copy : Fork::restore;
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
  traits_.shift = kind_ == MemoryKind::full && segments && !options.quantised_k &&
                  llama_memory_can_shift(memory_);
  cells_ = CellMap(ids, traits_.unified ? llama_n_ctx(context_) : 0, llama_n_ubatch(context_));
  torn_.assign(ids, 0);
  moved_at_.assign(ids, kNowhere);
  return "";
}

std::string LlamaSequences::measure_empty() {
  llama_memory_clear(memory_, true);
  empty_state_bytes_ = state_bytes(kFirst);
  const uint64_t empty_partial = has_tail() ? partial_bytes(kFirst) : kHeaderBytes;
  if (empty_state_bytes_ < kHeaderBytes || empty_partial < kHeaderBytes) {
    return "llama.cpp cannot tell how large a state is";
  }
  empty_base_bytes_ = empty_state_bytes_ - (empty_partial - kHeaderBytes);
  if (has_tail()) {
    std::vector<uint8_t> blob(empty_partial);
    if (llama_state_seq_get_data_ext(context_, blob.data(), blob.size(), kFirst,
                                     LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) != blob.size()) {
      return "llama.cpp cannot save an empty state";
    }
    empty_tail_.assign(blob.begin() + kHeaderBytes, blob.end());
  }
  return "";
}

std::string LlamaSequences::measure(Sizes& sizes) {
  const uint32_t step = sizes.step = std::min(4U, llama_n_batch(context_));
  llama_batch batch = llama_batch_init(static_cast<int32_t>(step), 0, 1);
  for (uint32_t round = 0; round < 2; ++round) {
    batch.n_tokens = static_cast<int32_t>(step);
    for (uint32_t i = 0; i < step; ++i) {
      batch.token[i] = 0;
      batch.pos[i] = static_cast<int32_t>(round * step + i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = kFirst;
      batch.logits[i] = 0;
    }
    batch.logits[step - 1] = 1;
    if (llama_decode(context_, batch) != 0) {
      llama_batch_free(batch);
      return "llama.cpp cannot decode with this context";
    }
    sizes.state[round] = state_bytes(kFirst);
    sizes.partial[round] = has_tail() ? partial_bytes(kFirst) : kHeaderBytes;
  }
  llama_batch_free(batch);
  return "";
}

void LlamaSequences::use(const Sizes& sizes, uint32_t window) {
  const auto& [step, state, partial] = sizes;
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
  // Segments are cut from whole blobs, so check that the blobs are laid out as expected.
  if (traits_.segments && has_tail()) {
    std::vector<uint8_t> whole(state[1]);
    std::vector<uint8_t> tail(partial[1]);
    if (llama_state_seq_get_data(context_, whole.data(), whole.size(), kFirst) != whole.size() ||
        llama_state_seq_get_data_ext(context_, tail.data(), tail.size(), kFirst,
                                     LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) != tail.size() ||
        !std::equal(tail.begin() + kHeaderBytes, tail.end(),
                    whole.end() - static_cast<int64_t>(tail.size() - kHeaderBytes))) {
      traits_.segments = traits_.checkpoints = false;
    }
  }
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

}  // namespace stemma::engine
