// FakeSequences is an engine with opaque sequences, of any mix of traits, that computes nothing but
// carries real contents.
//
// The KV of a position is a 64-bit value made from every word up to and including it, in each kind
// of layer the model has; a recurrent layer has one value, made from the whole prefix. compute()
// continues from what it reads, so a wrong value makes all that follow wrong. right() compares
// everything a decode would read with the text it should belong to. Blobs contain these values at
// their stated length.
//
// It falls into the traps that llama.cpp has, silently, as llama.cpp does:
//   - trim() of a window model succeeds although the window is gone;
//   - a load that fails empties its destination (a checkpoint: its window or recurrent part);
//   - no bytes, or a blob of nothing, load successfully and change nothing;
//   - a state loaded into a sequence that is not empty replaces what was there;
//   - segments loaded twice or with a gap, and a checkpoint without its segments, are accepted;
//   - blobs have no checksum and no model: flipped bits and other models' blobs are accepted;
//   - a segment loaded behind a recurrent checkpoint erases it;
//   - copy() of a recurrent sequence gives the state of its end, whatever range was asked for;
//   - with shares_window, window cells of two sequences are never recycled, and decoding stops.
//
// Threading:  one thread at a time.
// Cost:       every call is O(positions held), with a byte or two of work for each byte of a blob.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "stemma/clock.h"
#include "stemma/ids.h"
#include "stemma/sequence_engine.h"
#include "support/sequence_faults.h"

namespace stemma {

// How gtest shows it.
inline void PrintTo(const Held& held, std::ostream* out) {
  *out << "[" << held.begin << ", " << held.end << ")" << (held.whole ? "" : ", not whole");
}

}  // namespace stemma

namespace stemma::test {

// What a call costs on the virtual clock. The figures are llama.cpp's on a 2-core CPU (12 layers of
// 768, F16, flash attention, a context of 4096): the right order of magnitude, not exact for any
// machine.
struct SequenceCosts {
  uint64_t call_ns = 4'000;       // Any call; held() is free.
  uint64_t save_ns = 26'000;      // On top, per save.
  uint64_t load_ns = 32'000;      // On top, per load.
  uint64_t save_byte_ps = 95;     // Picoseconds.
  uint64_t load_byte_ps = 100;    // Also what Fork::copy costs.
  uint64_t token_ns = 2'600'000;  // Per token computed.
  // On top, for each cell of the context up to the highest one in use: about 50,000 on that CPU.
  // The lowest free cell is given out first.
  uint64_t cell_ps = 0;
  uint64_t pass_ns = 0;   // Per forward pass of a FakeModel, however few tokens it has.
  uint64_t piece_ns = 0;  // Per save, for each piece of memory it reads after the first.
};

// A GPU's: an H200 with a model of 8 billion parameters, 128 KiB a token over a link of 50 GB/s.
// The fake has only a few bytes a token, so each byte takes longer in proportion.
SequenceCosts device_costs();

class FakeSequences final : public SequenceEngine {
 public:
  struct Options {
    uint32_t sequences = 4;
    uint32_t context_tokens = 1024;
    bool unified = true;
    Rewind rewind = Rewind::any;
    uint32_t rewind_tokens = 16;  // Of Rewind::window and Rewind::bounded.
    Fork fork = Fork::shared;
    bool segments = true;
    bool checkpoints = false;
    bool shift = false;
    // false: recurrent layers only, as mamba; with Rewind::exact and Rewind::bounded.
    bool full_attention = true;
    // A live window keeps this many positions more than it must; a blob does not contain them.
    uint32_t window_slack_tokens = 8;
    bool shares_window = false;
    uint32_t row_bytes = 16;    // Of one position in one kind of layer, at least 8.
    uint32_t state_bytes = 64;  // Of a recurrent state, at least 8.
    // Segments are cut from ranges of this many positions and joined to such ranges; 0 = neither.
    uint32_t range_tokens = 0;
    uint64_t model = 1;  // Models compute different values from the same words.
    // compute() checks this many of the last positions. To check all makes long prompts slow.
    uint32_t checked_tokens = 0xFFFF'FFFFU;
    SequenceCosts costs = {};
  };
  struct Counts {
    std::array<uint64_t, kCalls> calls{};
    uint64_t computed_tokens = 0;
    uint64_t copied_tokens = 0;
    uint64_t saved_bytes = 0;
    uint64_t loaded_bytes = 0;
    uint64_t of(Call call) const { return calls[static_cast<uint32_t>(call)]; }
  };

  // Whether such an engine can exist. Sharing needs a unified context, segments need full
  // attention, full attention alone has no checkpoints, and Fork::none saves nothing.
  static bool possible(const Options& options);
  // Stops the process unless possible().
  explicit FakeSequences(const Options& options);

  // ---- What an engine does ----------------------------------------------------------------------

  // A forward pass: appends words behind what is held, all or none.
  // Error: out_of_blocks (no room in the context), invalid_argument.
  Result<void> compute(SequenceId sequence, std::span<const Token> words);

  // ---- What tests want to know ------------------------------------------------------------------

  // Returns "" if decoding behind `words` would read exactly the values of these words, in every
  // kind of layer; else the first mistake.
  std::string right(SequenceId sequence, std::span<const Token> words) const;
  // Changes with everything that is in the sequence.
  uint64_t fingerprint(SequenceId sequence) const;
  // The value computed last, from everything a decode reads. The same words give the same value,
  // however they got into the sequence. 0 for an empty sequence.
  uint64_t last_value(SequenceId sequence) const;
  // Positions of all sequences that take up room in the context, shared ones counted once.
  uint32_t used_tokens() const;
  const Counts& counts() const { return counts_; }
  // Time spent in calls, by the costs.
  uint64_t elapsed_ns() const {
    return std::atomic_ref(elapsed_ps_).load(std::memory_order_relaxed) / 1000;
  }
  void spend_pass() { spend_ns(options_.costs.pass_ns); }

  // Forgets the window cells that their own sequence no longer reads, as llama.cpp does when other
  // sequences need room.
  void recycle_windows();

  // What goes wrong. For held(), lie_nothing reports empty and lie_half one position too many.
  FaultSchedule faults;
  // Called inside clear(), as another thread that acts while the engine works.
  std::function<void()> while_clearing;

  // ---- SequenceEngine ---------------------------------------------------------------------------

  EngineTraits traits() const override;
  Held held(SequenceId sequence) override;
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
  enum class Extent : uint8_t { nothing, half, whole };
  enum class Layer : uint8_t { full, window, recurrent };

  // One position in one kind of layer. `owners` is how many sequences have it.
  struct Cell {
    uint32_t position = 0;
    Token word = 0;
    uint64_t value = 0;
    uint32_t owners = 0;
  };
  using Cells = std::vector<uint32_t>;  // Numbers of cells, by position; gaps and doubles happen.
  struct Memory {
    std::vector<Cell> cells;
    std::vector<uint32_t> free;  // A heap: the lowest comes first.
    uint32_t capacity = 0;       // Of all sequences, or of each.
    uint32_t highest = 0;        // Behind the last cell that is in use.
    uint32_t used() const { return static_cast<uint32_t>(cells.size() - free.size()); }
    uint32_t take();
    void let_go(uint32_t cell);
  };
  // A recurrent layer after `depth` words.
  struct State {
    uint32_t depth = 0;
    uint64_t value = 0;
  };
  struct Sequence {
    Cells full;
    Cells window;
    std::optional<State> state;
    std::vector<State> earlier;  // Rewind::bounded: the last few, oldest first.
  };
  struct Blob {
    Part part = Part::state;
    std::vector<Cell> full;
    std::vector<Cell> window;
    std::vector<State> states;
  };

  static constexpr uint64_t kHeaderBytes = 20;  // Magic, part, and three counts, one for each kind.
  static constexpr Error kNoSuchSequence{Errc::invalid_argument, "no such sequence"};
  static constexpr Error kBadRange{Errc::invalid_argument, "a range that is empty or upside down"};
  static constexpr Error kNotHeld{Errc::out_of_range, "positions that are not held"};
  static constexpr Error kNoRoom{Errc::out_of_blocks, "no room in the context"};
  static constexpr Error kTooFarBack{Errc::wrong_state, "a recurrent state does not go back"};
  static constexpr Error kRefused{Errc::corrupt, "bytes that are no blob"};

  static uint64_t salt(Layer layer, uint32_t position);
  bool known(SequenceId sequence) const { return to_index(sequence) < options_.sequences; }
  bool windowed() const { return options_.rewind == Rewind::window; }
  bool recurrent() const {
    return options_.rewind == Rewind::exact || options_.rewind == Rewind::bounded;
  }
  uint32_t window_kept() const { return options_.rewind_tokens + options_.window_slack_tokens; }
  uint64_t cell_bytes() const { return 8 + uint64_t{options_.row_bytes}; }
  Sequence& at(SequenceId sequence) { return sequences_[to_index(sequence)]; }
  const Sequence& at(SequenceId sequence) const { return sequences_[to_index(sequence)]; }

  // Cells.
  uint32_t room(const Memory& memory, const Cells& cells) const;
  static uint32_t end_of(const Memory& memory, const Cells& cells);
  static bool holds(const Memory& memory, const Cells& cells, Range range);
  static bool owns(const Memory& memory, const Cells& cells, uint32_t cell);
  static void put(Memory& memory, Cells& cells, uint32_t cell);
  static void add(Memory& memory, Cells& cells, uint32_t position, Token word, uint64_t value);
  template <class Predicate>
  static void drop_if(Memory& memory, Cells& cells, Predicate goes);
  static void drop_outside(Memory& memory, Cells& cells, uint32_t begin, uint32_t end);
  uint32_t move_down(Memory& memory, Cells& cells, uint32_t keep, uint32_t discard, bool move);

  // Sequences.
  uint32_t end_of(const Sequence& s) const;
  Held truth(const Sequence& s) const;
  bool in_turn(const Sequence& s, uint64_t* hash) const;
  Result<void> append(Sequence& s, std::span<const Token> words);
  void empty(Sequence& s);
  void empty_partial(Sequence& s);
  std::string wrong_cells(Layer layer, const Sequence& s, std::span<const Token> words,
                          std::span<const uint64_t> hashes) const;

  // Calls.
  Extent begin_call(Call call, Fault* fault);
  static Result<void> end_call(Fault fault);
  Result<void> check_save(SequenceId sequence, Part part, Range range) const;
  Result<void> check_part(Part part) const;
  Blob select(const Sequence& s, Part part, Range range) const;
  uint64_t bytes_of(const Blob& blob) const;
  void write(const Blob& blob, Extent extent, uint8_t* out) const;
  std::optional<Blob> read(Part part, std::span<const uint8_t> bytes) const;
  Result<void> load_blob(Sequence& s, Part part, Range wanted, const Blob& blob, Extent extent);
  void spend_ps(uint64_t ps) {
    std::atomic_ref(elapsed_ps_).fetch_add(ps, std::memory_order_relaxed);
  }
  void spend_ns(uint64_t ns) { spend_ps(ns * 1000); }

  Options options_;
  Memory full_;
  Memory window_;
  std::vector<Sequence> sequences_;
  Counts counts_;
  mutable uint64_t elapsed_ps_ = 0;  // Atomic because other threads read the clock.
};

// Advances by the engine's costs and by what the test adds, so learned costs are equal on every
// machine.
class EngineClock final : public Clock {
 public:
  explicit EngineClock(const FakeSequences& engine) : engine_(engine) {}
  uint64_t now_ns() const noexcept override { return more_ns_ + engine_.elapsed_ns(); }
  void advance_ns(uint64_t by_ns) noexcept { more_ns_ += by_ns; }

 private:
  const FakeSequences& engine_;
  uint64_t more_ns_ = 1;
};

}  // namespace stemma::test
