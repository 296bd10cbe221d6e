#include "sequence/costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace stemma::sequence {
namespace {

uint64_t sum(uint64_t a, uint64_t b) noexcept {
  return std::min(a, kMostNs - std::min(b, kMostNs)) + std::min(b, kMostNs);
}

uint64_t product(uint64_t a, uint64_t b) noexcept {
  return b != 0 && a > kMostNs / b ? kMostNs : a * b;
}

// In nanoseconds: `count` things at so many picoseconds each.
uint64_t at_ps(uint64_t count, uint64_t ps) noexcept {
  return sum(product(count / 1000, ps), product(count % 1000, ps) / 1000);
}

uint64_t rounded(double value) noexcept {
  return value >= static_cast<double>(kMostNs) ? kMostNs : static_cast<uint64_t>(value + 0.5);
}

struct Weighted {
  double value = 0;
  double weight = 0;
};

// The value below which half of the weight lies. Requires at least one. Changes their order.
double weighted_median(std::span<Weighted> values) noexcept {
  std::sort(values.begin(), values.end(),
            [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  double total = 0;
  for (const Weighted& it : values) total += it.weight;
  double below = 0;
  for (const Weighted& it : values) {
    below += it.weight;
    if (below >= total / 2) return it.value;
  }
  return values.back().value;
}

}  // namespace

// ---- What things cost ---------------------------------------------------------------------------

uint64_t MoveCost::of(uint64_t calls, uint64_t bytes) const noexcept {
  return sum(product(calls, call_ns), at_ps(bytes, byte_ps));
}

uint64_t cells_of(Range range, uint64_t beside_cells) noexcept {
  if (range.begin >= range.end) return 0;
  const uint64_t tokens = range.end - range.begin;
  return sum(product(tokens, beside_cells), (uint64_t{range.begin} + range.end) * tokens / 2);
}

uint64_t Costs::compute(Range range, uint64_t beside_cells) const noexcept {
  if (range.begin >= range.end) return 0;
  return sum(product(range.end - range.begin, token_ns),
             at_ps(cells_of(range, beside_cells), cell_ps));
}

uint64_t Costs::idle(uint64_t cells, uint64_t prompt, uint64_t answer) const noexcept {
  return sum(at_ps(product(cells, prompt), cell_ps), at_ps(product(cells, answer), answer_cell_ps));
}

uint64_t calls_for(const EngineTraits& traits, uint32_t segment_tokens, Range range) noexcept {
  if (range.begin >= range.end) return 0;
  if (!traits.segments) return 1;
  if (traits.range_tokens > segment_tokens) {
    return (uint64_t{range.end} - range.begin + traits.range_tokens - 1) / traits.range_tokens;
  }
  return (range.end - 1) / segment_tokens - range.begin / segment_tokens + 1;
}

uint64_t cost_of_moving(const MoveCost& cost, const EngineTraits& traits, uint32_t segment_tokens,
                        Range range, bool anchored) noexcept {
  if (range.begin >= range.end) return 0;
  // Without segments a state holds everything from the beginning.
  if (!traits.segments) range.begin = 0;
  const uint64_t calls = calls_for(traits, segment_tokens, range);
  uint64_t bytes =
      calls * traits.fixed_bytes + uint64_t{range.end - range.begin} * traits.bytes_per_token;
  if (!anchored) return cost.of(calls, bytes);
  bytes += traits.checkpoint_bytes;
  return cost.of(calls + (traits.segments ? 1 : 0), bytes);
}

bool restores_faster(const Costs& costs, const EngineTraits& traits, uint32_t segment_tokens,
                     Range range) noexcept {
  const bool anchored = traits.rewind != Rewind::any;
  const uint64_t load = cost_of_moving(costs.load, traits, segment_tokens, range, anchored);
  return load < std::max(costs.compute(range), kMomentNs);
}

bool worth_saving(const Costs& costs, const EngineTraits& traits, uint32_t segment_tokens,
                  Range range) noexcept {
  if (range.begin >= range.end) return false;
  const bool anchored = traits.rewind != Rewind::any;
  const uint64_t load = cost_of_moving(costs.load, traits, segment_tokens, range, anchored);
  const uint64_t save = cost_of_moving(costs.save, traits, segment_tokens, range, anchored);
  return load + 2 * save < std::max(costs.compute(range), kMomentNs);
}

// ---- A line -------------------------------------------------------------------------------------

void CostLine::Class::push(Point point) noexcept {
  points[next] = point;
  next = (next + 1) % kKept;
  count = std::min(count + 1, kKept);
}

void CostLine::add(double x, double y) noexcept {
  const bool sensible = x >= 0 && y > 0 && std::isfinite(x) && std::isfinite(y);
  if (!sensible) return;
  const auto size = static_cast<uint64_t>(std::min(x, 1e13));
  classes_[std::min<uint32_t>((std::bit_width(size) + 1) / 2, kClasses - 1)].push({x, y});
  fit();
}

// The median of the measurements, relative to the line. Of two, the faster: waiting for others only
// makes a measurement slower.
CostLine::Point CostLine::middle_of(const Class& measurements) const noexcept {
  const auto known = std::span(measurements.points).first(measurements.count);
  const auto relative = [&](const Point& point) {
    const double expected = line_.at(point.x);
    return expected > 0 ? point.y / expected : point.y;
  };
  std::array<std::pair<double, uint32_t>, kKept> order;
  for (uint32_t i = 0; i < measurements.count; ++i) order[i] = {relative(known[i]), i};
  const auto middle = order.begin() + (measurements.count - 1) / 2;
  std::nth_element(order.begin(), middle, order.begin() + measurements.count);
  return known[middle->second];
}

void CostLine::believe(Line believed) noexcept {
  if (tells_sizes_) return;
  believed_ = believed;
  if (measured_) {
    fit();
  } else {
    line_ = believed;
  }
}

void CostLine::adapt(std::span<const Point> points, Line believed) noexcept {
  std::array<Weighted, kClasses> values{};
  const auto median_of = [&](auto value) {
    for (size_t i = 0; i < points.size(); ++i) values[i] = {value(points[i]), 1};
    return weighted_median(std::span(values).first(points.size()));
  };
  if (believed.at(points[0].x) <= 0) {
    line_ = {median_of([](const Point& it) { return it.y; }), 0};
    return;
  }
  const double ratio = median_of([&](const Point& it) { return it.y / believed.at(it.x); });
  if (ratio <= 1) {
    line_ = {believed.start * ratio, believed.slope * ratio};
  } else {
    line_ = {median_of([&](const Point& it) { return it.y - believed.slope * it.x; }),
             believed.slope};
  }
}

void CostLine::fit() noexcept {
  std::array<Point, kClasses> points{};
  uint32_t count = 0;
  for (const Class& it : classes_) {
    if (it.count >= kEnough) points[count++] = middle_of(it);
  }
  if (count == 0) return;
  measured_ = true;
  const auto known = std::span(points).first(count);
  // Classes are in ascending order of size.
  const double least = known.front().x;
  const double most = known.back().x;
  if (most < 2 * least || most == 0) return adapt(known, believed_);

  std::array<Weighted, kClasses*(kClasses - 1) / 2> slopes{};
  size_t pairs = 0;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      const double apart = known[j].x - known[i].x;
      if (apart <= 0) continue;
      // Errors grow with the measured value and matter less the further apart two points are.
      slopes[pairs++] = {(known[j].y - known[i].y) / apart, apart / (known[i].y + known[j].y)};
    }
  }
  double slope = weighted_median(std::span(slopes).first(pairs));
  std::array<Weighted, kClasses> values{};
  const auto median_of = [&](auto value) {
    for (uint32_t i = 0; i < count; ++i) values[i] = value(known[i]);
    return weighted_median(std::span(values).first(count));
  };
  double start =
      median_of([&](const Point& it) { return Weighted{it.y - slope * it.x, 1 / it.y}; });
  // A slope that explains less than a fiftieth is noise.
  constexpr double kNoise = 0.02;
  // And a token takes at least a quarter of the time measured with the fewest cells.
  constexpr double kLeastStart = 0.25;
  if (slope <= 0 || (flat_ == Flat::is_zero && slope * (most - least) < kNoise * start)) {
    if (flat_ == Flat::unknown) return adapt(known, believed_);
    slope = 0;
    start = median_of([](const Point& it) { return Weighted{it.y, 1}; });
  } else if (const double floor = flat_ == Flat::is_zero ? kLeastStart * known.front().y : 0;
             start < floor) {
    // If the machine grew slower while prompts grew deeper, depth would seem to explain all of it.
    start = floor;
    slope = median_of([&](const Point& it) {
      return Weighted{std::max(0.0, it.y - floor) / std::max(it.x, 1.0), 1};
    });
  }
  // Later measurements that tell less are fitted to this line.
  believed_ = line_ = {start, slope};
  tells_sizes_ = true;
}

// ---- Measuring ----------------------------------------------------------------------------------

namespace {

CostLine::Line believed(const MoveCost& cost) noexcept {
  return {static_cast<double>(cost.call_ns), static_cast<double>(cost.byte_ps) / 1000};
}

MoveCost measured(const CostLine::Line& line) noexcept {
  return {rounded(line.start), std::max<uint64_t>(1, rounded(line.slope * 1000))};
}

void add_move(CostLine& line, uint64_t calls, uint64_t bytes, uint64_t spent_ns) noexcept {
  // An hour for a call says more about the caller's clock than about memory.
  constexpr uint64_t kHour = 3'600'000'000'000;
  if (spent_ns == 0 || calls == 0 || spent_ns / calls > kHour) return;
  const auto count = static_cast<double>(calls);
  line.add(static_cast<double>(bytes) / count, static_cast<double>(spent_ns) / count);
}

}  // namespace

CostMeter::CostMeter(const Costs& start) noexcept
    : start_(start),
      costs_(start),
      prompts_({static_cast<double>(start.token_ns), static_cast<double>(start.cell_ps) / 1000},
               CostLine::Flat::is_zero),
      answers_({}, CostLine::Flat::is_zero),
      saves_{CostLine(believed(start.save), CostLine::Flat::unknown)},
      loads_{CostLine(believed(start.load), CostLine::Flat::unknown)} {
  costs_.answer_cell_ps = std::max(costs_.answer_cell_ps, costs_.cell_ps);
}

void CostMeter::computed(Range range, uint64_t beside_cells, uint64_t spent_ns) noexcept {
  // A minute for a token says more about the caller's clock than about the engine.
  constexpr uint64_t kMinute = 60'000'000'000;
  const uint64_t tokens = range.end - std::min(range.begin, range.end);
  if (spent_ns == 0 || tokens == 0 || spent_ns / tokens > kMinute) return;
  const auto count = static_cast<double>(tokens);
  const auto spent = static_cast<double>(spent_ns);
  const double cells = static_cast<double>(cells_of(range, beside_cells)) / count;
  if (tokens == 1) {
    answers_.add(cells, spent);
  } else if (says_something_of_tokens(tokens, spent, cells)) {
    prompts_.add(cells, spent / count);
  }
  settle();
}

// The time of a small batch is mostly that of a pass, and says little about its tokens. Short
// prompts behind a long conversation would make depth look like the cause.
bool CostMeter::says_something_of_tokens(uint64_t tokens, double spent_ns,
                                         double cells) const noexcept {
  constexpr uint64_t kFew = 8;
  constexpr uint64_t kMany = 512;
  constexpr double kPasses = 4;
  if (tokens < kFew || tokens >= kMany) return tokens >= kMany;
  return !answers_.measured() || spent_ns >= kPasses * answers_.line().at(cells);
}

void CostMeter::saved(uint64_t calls, uint64_t bytes, uint64_t spent_ns) noexcept {
  add_move(saves_.line, calls, bytes, spent_ns);
  saves_.turns = 0;
  settle();
}

void CostMeter::loaded(uint64_t calls, uint64_t bytes, uint64_t spent_ns) noexcept {
  add_move(loads_.line, calls, bytes, spent_ns);
  loads_.turns = 0;
  settle();
}

void CostMeter::copied(uint64_t tokens, uint64_t spent_ns) noexcept {
  // The time of a short copy is mostly that of a call.
  constexpr uint64_t kFew = 256;
  constexpr uint64_t kMostPs = 1'000'000'000;
  if (tokens < kFew || spent_ns > kMostNs / 1000) return;
  const uint64_t now = std::min(spent_ns * 1000 / tokens, kMostPs);
  costs_.copy_token_ps = costs_.copy_token_ps == 0 ? now : (3 * costs_.copy_token_ps + now) / 4;
}

void CostMeter::turn_ended() noexcept {
  constexpr uint32_t kMany = 256;
  for (Moves* moves : {&saves_, &loads_}) {
    if (++moves->turns < kMany) continue;
    moves->turns = 0;
    moves->line.forget(believed(moves == &saves_ ? start_.save : start_.load));
    // The other direction may have been based on the line that was just forgotten.
    if (moves == &saves_) loads_.line.believe(believed(start_.load));
    if (moves == &loads_) saves_.line.believe(believed(start_.save));
  }
  settle();
}

void CostMeter::settle() noexcept {
  if (prompts_.measured()) {
    costs_.token_ns = std::max<uint64_t>(1, rounded(prompts_.line().start));
    costs_.cell_ps = rounded(prompts_.line().slope * 1000);
  }
  costs_.answer_cell_ps =
      answers_.measured() ? rounded(answers_.line().slope * 1000) : costs_.cell_ps;
  if (saves_.line.tells_sizes()) loads_.line.believe(saves_.line.line());
  if (loads_.line.tells_sizes()) saves_.line.believe(loads_.line.line());
  costs_.save = saves_.line.measured() ? measured(saves_.line.line()) : start_.save;
  costs_.load = loads_.line.measured() ? measured(loads_.line.line()) : start_.load;
  // Until something was loaded, use the measurements of saving.
  if (!loads_.line.measured() && saves_.line.measured()) costs_.load = costs_.save;
}

}  // namespace stemma::sequence
