// Costs: what computing, saving and loading take. CostMeter: learns them from what was measured.
//
// Computing a token takes a fixed time, and a time for each cell of the context that attention looks at. A
// unified context has cells of other sequences too, and idle ones cost as much as those in use. An answer is
// computed one token a pass, which reads the same memory for far less work: its cells have a price of their own.
// Saving and loading each take a time a call and a time a byte.
//
// How it learns: each of these four is a straight line, such as "ns a call = call_ns + bytes a call * byte_ps".
// Measurements are sorted into classes by the power of four of their size, and the last seven of each class are
// kept. The middle one stands for its class, and a class counts from its second measurement on. The slope of the
// line is the weighted median of the slopes between every two classes, and where it begins is the weighted median
// of what the slope leaves over. So a few bad measurements change nothing, sizes that are rarely seen are not
// forgotten, and the same measurements give the same line.
//
// Measurements of one size cannot tell the two figures apart. If they are faster than believed, both figures are
// scaled down by the same factor. If they are slower, the start alone is raised: a small piece that took long says
// nothing about large ones, and what is believed to be slow is never tried again. Saving and loading use the same
// link, so one believes what the other has measured.
//
// Invariant:  no cost is negative, and none is more than kMostNs. Sums of up to eight costs do not overflow.
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
  uint64_t token_ns = 0;        // Computing a token of a prompt,
  uint64_t cell_ps = 0;         // and for each cell that it looks at.
  uint64_t answer_cell_ps = 0;  // For each cell that a token of an answer looks at.
  MoveCost save = {};
  MoveCost load = {};
  uint64_t copy_token_ps =
      0;  // A position that one sequence gets from another, where both share it.

  // Computing positions [begin, end) of a prompt beside so many cells of other sequences.
  uint64_t compute(Range range, uint64_t beside_cells = 0) const noexcept;
  // What so many idle cells add to computing `prompt` tokens and then `answer` tokens.
  uint64_t idle(uint64_t cells, uint64_t prompt, uint64_t answer) const noexcept;
};

// Cells that the tokens of [begin, end) look at, summed: each looks at `beside_cells`, and at those before it.
uint64_t cells_of(Range range, uint64_t beside_cells) noexcept;

// Calls of save() or load() that move this range: one for each segment that it touches, or large ranges where
// the engine moves those better. A state is always one call.
uint64_t calls_for(const EngineTraits& traits, uint32_t segment_tokens, Range range) noexcept;

// Moving a range of a sequence in segments. With `anchored` also the state or checkpoint that a memory needs
// which does not go back; without segments that is all there is.
uint64_t cost_of_moving(const MoveCost& cost, const EngineTraits& traits, uint32_t segment_tokens,
                        Range range, bool anchored) noexcept;

// Less than anybody notices: nothing is changed to gain less, and measurements of it are not relied on.
inline constexpr uint64_t kMomentNs = 1'000'000;

// Whether [begin, end) could ever be restored faster than computed, or in a moment. If not, saving it is a waste.
bool restores_faster(const Costs& costs, const EngineTraits& traits, uint32_t segment_tokens,
                     Range range) noexcept;
// Whether saving it is worth making somebody wait for it, or takes but a moment. As good a guess as any: every
// second thing that is saved is used again.
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
  // What a slope means that the measurements do not show.
  enum class Flat : uint8_t {
    is_zero,  // x does not matter.
    unknown,  // The sizes measured so far do not tell; keep what was believed.
  };

  CostLine(Line believed, Flat flat) noexcept : believed_(believed), line_(believed), flat_(flat) {}

  // x >= 0 and y > 0; anything else is ignored.
  void add(double x, double y) noexcept;
  // Whether the line is more than what was believed.
  bool measured() const noexcept { return measured_; }
  const Line& line() const noexcept { return line_; }
  // Whether the measurements are of different sizes and show what size matters.
  bool tells_sizes() const noexcept { return tells_sizes_; }
  // Another belief, which matters until tells_sizes().
  void believe(Line believed) noexcept;
  // Starts again from another belief.
  void forget(Line believed) noexcept { *this = CostLine(believed, flat_); }

 private:
  struct Point {
    double x = 0;
    double y = 0;
  };
  static constexpr uint32_t kKept = 7;
  static constexpr uint32_t kEnough = 2;    // So many of a class count.
  static constexpr uint32_t kClasses = 23;  // Up to 4^22.
  struct Class {
    std::array<Point, kKept> points{};
    uint32_t count = 0;
    uint32_t next = 0;
    void push(Point point) noexcept;
  };

  Point middle_of(const Class& measurements) const noexcept;
  void fit() noexcept;
  // Fits measurements of one size to what was believed.
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
  // What is believed before anything was measured. A cell_ps of 0 is unknown.
  explicit CostMeter(const Costs& start) noexcept;

  // What was measured. Times that cannot be, such as differences of two clocks, are ignored.
  void computed(Range range, uint64_t beside_cells, uint64_t spent_ns) noexcept;
  void saved(uint64_t calls, uint64_t bytes, uint64_t spent_ns) noexcept;
  void loaded(uint64_t calls, uint64_t bytes, uint64_t spent_ns) noexcept;
  void copied(uint64_t tokens, uint64_t spent_ns) noexcept;
  // A turn ended. What was not measured for many turns is no longer believed: a speed that was once measured
  // too slow would never be tried again.
  void turn_ended() noexcept;

  const Costs& costs() const noexcept { return costs_; }
  // Whether anything was saved or loaded yet, so that their costs are more than what was believed.
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
