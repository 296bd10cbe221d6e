// LlamaSequences: the sequences of a llama.cpp context as a SequenceEngine.
//
// A unified context is saved in segments: positions [a, b) go through a scratch sequence, which is
// empty between calls. Window layers and recurrent layers cannot be put together from segments.
// Their part of a segment is cut off (it is the tail of a blob, equal to what PARTIAL_ONLY alone
// would write; create() verifies this), and a checkpoint, loaded last, brings it back. Purely
// recurrent models, and contexts that are split by sequence, save whole states.
//
//   full attention   any rewind     segments
//   sliding window   window         segments + checkpoints
//   hybrid           exact          segments + checkpoints
//   recurrent        exact          states
//   split context    of the model   states
//
// What llama.cpp returns is not trusted: held() counts the cells by the size of the sequence's
// state, the only thing that shows gaps and doubled positions.
//
// Threading:  one thread at a time; the one that decodes.
// Ownership:  the caller owns the context, which outlives this.
// Cost:       every call but traits() looks at all cells of the context, about 1 ns each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/llama/cell_map.h"
#include "engine/llama/segment_layout.h"
#include "stemma/sequence_engine.h"

struct llama_context;
struct llama_memory_i;

namespace stemma::engine {

// What the layers of a model keep.
enum class MemoryKind : uint8_t { full, window, recurrent, hybrid };
const char* to_string(MemoryKind kind) noexcept;

class LlamaSequences final : public SequenceEngine {
 public:
  // How the context was made; the context itself does not tell.
  struct Options {
    uint32_t sequences = 1;  // 0 and up; the context has one more (unified) or as many (split).
    bool unified = true;
    // Shifting positions of a quantised K crashes llama.cpp v0.5.0 without a GPU.
    bool quantised_k = false;
    // false: sequences are neither copied nor saved; each reuses only what it holds itself.
    bool shares = true;
    // EngineTraits::range_tokens, if segments turn out to have the known layout. A device is fast
    // with long ranges.
    uint32_t range_tokens = 0;
  };
  // Computes a few tokens to measure sizes, and leaves the context empty. Returns null and the
  // reason in `why` on failure.
  static std::unique_ptr<LlamaSequences> create(llama_context* context, const Options& options,
                                                std::string& why);

  MemoryKind kind() const noexcept { return kind_; }
  // Reports a forward pass that computed these tokens.
  void decoded(std::span<const BatchItem> batch) noexcept;

  EngineTraits traits() const override { return traits_; }
  Held held(SequenceId sequence) override;
  void settle() override;
  Result<void> clear(SequenceId sequence) override;
  Result<void> trim(SequenceId sequence, uint32_t n) override;
  Result<void> copy(SequenceId from, SequenceId to, Range range) override;
  Result<uint64_t> size(SequenceId sequence, Part part, Range range) override;
  Result<uint64_t> save(SequenceId sequence, Part part, Range range,
                        std::span<uint8_t> out) override;
  Result<void> load(SequenceId sequence, Part part, Range saved, Range wanted,
                    std::span<const uint8_t> bytes) override;
  Result<void> shift(SequenceId sequence, uint32_t keep, uint32_t discard) override;
  uint32_t pieces(SequenceId sequence, Range range) override;
  Result<void> cut(Range whole, std::span<const uint8_t> bytes, Range part, std::span<uint8_t> out,
                   ByteSum& sum) const override;
  Result<void> join(Range saved, std::span<const uint8_t> bytes, Range part, Range whole,
                    std::span<uint8_t> out, ByteSum& sum) const override;

 private:
  explicit LlamaSequences(llama_context* context) noexcept;
  // Learns what the context is like (llama_probe.cc). Returns "" or why it cannot be used, as do
  // the next three, which are its steps.
  std::string probe(const Options& options);
  std::string choose_traits(const Options& options, uint32_t window);
  std::string measure_empty();
  // Two lengths of a sequence show how large things are.
  struct Sizes {
    uint32_t step = 0;  // Tokens computed each time.
    uint64_t state[2] = {};
    uint64_t partial[2] = {};
  };
  std::string measure(Sizes& sizes);
  void use(const Sizes& sizes, uint32_t window);
  Result<void> load_state(SequenceId sequence, Range saved, std::span<const uint8_t> bytes);
  Result<void> load_checkpoint(SequenceId sequence, uint32_t end, std::span<const uint8_t> bytes);
  Result<void> load_segment(SequenceId sequence, Range saved, Range wanted,
                            std::span<const uint8_t> bytes);
  // The common part of cut() and join().
  Result<void> move_rows(Range saved, std::span<const uint8_t> bytes, Range part, Range whole,
                         std::span<uint8_t> out, SegmentLayout::Summed summed, ByteSum& sum) const;
  // Whether segments can be cut and joined: tries it on the `tokens` positions that sequence 0
  // holds.
  bool learn_layout(uint32_t tokens);
  int32_t id(SequenceId sequence) const noexcept { return static_cast<int32_t>(sequence); }
  bool known(SequenceId sequence) const noexcept { return to_index(sequence) < traits_.sequences; }
  bool has_tail() const noexcept { return kind_ != MemoryKind::full; }
  uint64_t state_bytes(int32_t sequence) const;
  uint64_t partial_bytes(int32_t sequence) const;
  // Cells of full attention; kUneven if the size makes no sense.
  uint64_t base_cells(int32_t sequence) const;
  Held held_by(int32_t sequence) const;
  Result<void> check_part(SequenceId sequence, Part part, Range range);
  uint64_t segment_bytes(Range range) const noexcept {
    return traits_.fixed_bytes + uint64_t{range.end - range.begin} * cell_bytes_;
  }
  Result<uint64_t> read_partial(int32_t sequence, std::span<uint8_t> out);
  Result<uint64_t> save_segment(int32_t sequence, Range range, std::span<uint8_t> out);
  // Returns a sequence whose end has the window at `n`: this one, or, if it has gone on since, the
  // scratch with a copy.
  int32_t window_at(int32_t sequence, uint32_t n);
  void empty_scratch();

  static constexpr uint32_t kNowhere = 0xFFFF'FFFFU;  // Of moved_at_: nothing was shifted.
  static constexpr uint64_t kHeaderBytes = 8;  // Of every blob: a magic number and a sequence id.

  llama_context* context_;
  llama_memory_i* memory_;
  EngineTraits traits_;
  MemoryKind kind_ = MemoryKind::full;
  int32_t scratch_ = -1;
  uint64_t empty_state_bytes_ = 0;
  uint64_t empty_base_bytes_ = 0;
  uint64_t cell_bytes_ = 0;
  CellMap cells_;
  std::optional<SegmentLayout> layout_;  // If segments can be cut.
  std::vector<uint8_t> empty_tail_;      // What PARTIAL_ONLY writes of nothing, without the header.
  std::vector<uint8_t> buffer_;
  // By sequence: its window was put together from two others and may have holes.
  std::vector<uint8_t> torn_;
  // By sequence: positions from here on were shifted, and no forward pass has applied that yet.
  std::vector<uint32_t> moved_at_;
};

}  // namespace stemma::engine
