// Costs: how long computing, saving and loading take. CostMeter: learns this from measurements.
//
// Computing a token takes a fixed time, plus a time for each cell of the context that attention
// looks at. A unified context has cells of other sequences too, and idle ones cost as much as those
// in use. An answer is computed one token a pass, which reads the same memory for far less work, so
// its cells have a price of their own. Saving and loading each take a time per call and a time per
// byte.
//
// How it learns: each of these four is a straight line, such as "ns of a call = call_ns + bytes *
// byte_ps". Measurements are sorted into classes by the power of four of their size, and the last
// 31 of each class are kept. (With seven, passes whose times vary by a fifth made a cell look free,
// or twice as expensive as it was.) The median stands for its class, and a class counts from its
// second measurement on. The slope of the line is the weighted median of the slopes between every
// two classes, and its start is the weighted median of what the slope leaves over. So a few bad
// measurements change nothing, sizes that are rarely seen are not forgotten, and the same
// measurements give the same line.
//
// Measurements of one size cannot tell start and slope apart. If they are faster than assumed, both
// figures are scaled down by the same factor. If they are slower, only the start is raised: a small
// piece that took long says nothing about large ones, and something assumed to be slow would never
// be tried again. Saving and loading use the same link, so each starts from what the other has
// measured.
//
// Invariant:  no cost is negative, and none is more than kMostNs. Sums of up to eight costs do not
// overflow.
// Threading:  one thread at a time.
// Cost:       a measurement takes a few microseconds; it allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "stemma/sequence_engine.h"

namespace stemma::sequence {

// More than anything takes: 36 years.
inline constexpr uint64_t kMostNs = uint64_t{1} << 60U;

// Saving, or loading.
struct MoveCost {
  uint64_t call_ns = 0;
  uint64_t byte_ps = 0;

  uint64_t of(uint64_t calls, uint64_t bytes) const noexcept;
  bool operator==(const MoveCost&) const = default;
};

struct Costs {
  uint64_t token_ns = 0;        // Of computing a token of a prompt, without its cells.
  uint64_t cell_ps = 0;         // Of each cell that a token of a prompt looks at.
  uint64_t answer_cell_ps = 0;  // Of each cell that a token of an answer looks at.
  MoveCost save = {};
  MoveCost load = {};
  uint64_t copy_token_ps =
      0;  // A position that one sequence gets from another, where both share it.

  // The cost of computing positions [begin, end) of a prompt beside so many cells of other
  // sequences.
  uint64_t compute(Range range, uint64_t beside_cells = 0) const noexcept;
  // What this many idle cells add to computing `prompt` tokens and then `answer` tokens.
  uint64_t idle(uint64_t cells, uint64_t prompt, uint64_t answer) const noexcept;
};

// Cells that the tokens of [begin, end) look at, summed: each looks at `beside_cells`, and at those
// before it.
uint64_t cells_of(Range range, uint64_t beside_cells) noexcept;

// Calls of save() or load() that move this range: one for each segment that it touches, or large
// ranges where the engine moves those better. A state is always one call.
uint64_t calls_for(const EngineTraits& traits, uint32_t segment_tokens, Range range) noexcept;

// The cost of moving a range of a sequence in segments. With `anchored` it includes the state or
// checkpoint that is needed by a memory that cannot go back; without segments that is everything.
uint64_t cost_of_moving(const MoveCost& cost, const EngineTraits& traits, uint32_t segment_tokens,
                        Range range, bool anchored) noexcept;

// A time too short to notice: nothing is changed to gain less, and measurements below it are not
// relied on.
inline constexpr uint64_t kMomentNs = 1'000'000;

// Whether [begin, end) could ever be restored faster than computed, or in a moment. If not, saving
// it is a waste.
bool restores_faster(const Costs& costs, const EngineTraits& traits, uint32_t segment_tokens,
                     Range range) noexcept;
// Whether saving it is worth making a request wait, or takes only a moment. Guesses that half of
// what is saved is used again.
bool worth_saving(const Costs& costs, const EngineTraits& traits, uint32_t segment_tokens,
                  Range range) noexcept;

// A straight line through measurements: y = start + slope * x.
class CostLine {
 public:
  struct Line {
    double start = 0;
    double slope = 0;
    double at(double x) const noexcept { return start + slope * x; }
  };
  // What it means if the measurements show no slope.
  enum class Flat : uint8_t {
    is_zero,  // x does not matter.
    unknown,  // The sizes measured so far do not tell; keep the assumed slope.
  };

  CostLine(Line believed, Flat flat) noexcept : believed_(believed), line_(believed), flat_(flat) {}

  // x >= 0 and y > 0; anything else is ignored.
  void add(double x, double y) noexcept;
  // Whether the line comes from measurements, not only from the assumption.
  bool measured() const noexcept { return measured_; }
  const Line& line() const noexcept { return line_; }
  // Whether the measurements have different sizes and show how much size matters.
  bool tells_sizes() const noexcept { return tells_sizes_; }
  // Replaces the assumed line, which matters until tells_sizes().
  void believe(Line believed) noexcept;
  // Starts again from another assumed line.
  void forget(Line believed) noexcept { *this = CostLine(believed, flat_); }

 private:
  struct Point {
    double x = 0;
    double y = 0;
  };
  static constexpr uint32_t kKept = 31;
  static constexpr uint32_t kEnough = 2;    // A class with this many counts.
  static constexpr uint32_t kClasses = 23;  // Up to 4^22.
  struct Class {
    std::array<Point, kKept> points{};
    uint32_t count = 0;
    uint32_t next = 0;
    void push(Point point) noexcept;
  };

  Point middle_of(const Class& measurements) const noexcept;
  void fit() noexcept;
  // Fits the assumed line to measurements of one size.
  void adapt(std::span<const Point> points, Line believed) noexcept;

  Line believed_;
  Line line_;
  Flat flat_;
  bool measured_ = false;
  bool tells_sizes_ = false;
  std::array<Class, kClasses> classes_{};
};

class CostMeter {
 public:
  // `start` is assumed until something is measured. A cell_ps of 0 is unknown.
  explicit CostMeter(const Costs& start) noexcept;

  // Measurements. Impossible times, such as differences of two clocks, are ignored.
  void computed(Range range, uint64_t beside_cells, uint64_t spent_ns) noexcept;
  void saved(uint64_t calls, uint64_t bytes, uint64_t spent_ns) noexcept;
  void loaded(uint64_t calls, uint64_t bytes, uint64_t spent_ns) noexcept;
  void copied(uint64_t tokens, uint64_t spent_ns) noexcept;
  // A turn ended. What was not measured for many turns is forgotten: a speed that was once measured
  // too slow would never be tried again.
  void turn_ended() noexcept;

  const Costs& costs() const noexcept { return costs_; }
  // Whether anything was saved or loaded yet, so that these costs are not mere assumptions.
  bool moves_measured() const noexcept { return saves_.line.measured() || loads_.line.measured(); }

 private:
  struct Moves {
    CostLine line;
    uint32_t turns = 0;  // Since it was measured.
  };
  bool says_something_of_tokens(uint64_t tokens, double spent_ns, double cells) const noexcept;
  void settle() noexcept;

  Costs start_;
  Costs costs_;
  CostLine prompts_;
  CostLine answers_;
  Moves saves_;
  Moves loads_;
};

}  // namespace stemma::sequence
