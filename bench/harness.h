// The harness behind `stemma bench`: the list of benchmarks, the meaning of their rows, and when a
// row passes.
//
// A benchmark is a function that builds a cache, checks the cache's answers against a reference,
// then measures and adds rows. Measured calls and the calls they are compared with are interleaved
// in one loop, because machines change speed during a run; figures are medians.
//
// The rule for times: a time passes within its limit, or within its multiple of the memcmp of 128
// KiB measured beside it, whichever is larger. So a slow machine gets proportionally more time.
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::bench {

enum class Sense : uint8_t {
  report,    // No limit: for information only.
  at_most,   // Passes when value <= limit.
  at_least,  // Passes when value >= limit.
};

// Another implementation of the same thing, measured in the same run.
struct Baseline {
  std::string name;
  double value = 0;   // In the row's unit.
  double factor = 0;  // How many times better the row is.
};

struct Row {
  std::string name;
  double value = 0;
  std::string unit;
  Sense sense = Sense::report;
  double limit = 0;            // As stated.
  double memcmp_multiple = 0;  // Times only: the other limit, as a multiple of memcmp; 0 = none.
  double memcmp_us = 0;  // Times only: memcmp of 128 KiB measured beside it; 0 = not measured.
  std::vector<Baseline> baselines;
  std::string note;
  bool wrong = false;  // The answer was wrong, so nothing was measured; see the note.

  // The limit that counts: the stated one, or the multiple of memcmp when that is larger.
  double effective_limit() const noexcept;
  bool passes() const noexcept;

  // For times: adds the figure of a slower way. `baseline_value` is in this row's unit.
  Row& against(std::string_view baseline, double baseline_value);
  Row& with_note(std::string text);
};

// How much to measure.
struct Settings {
  bool quick = false;
  uint32_t threads = 0;  // Most threads of lookups_per_second_N; 0 = one per core.

  uint32_t rounds(uint32_t full) const noexcept { return quick ? (full + 4) / 5 : full; }
};

// Where a benchmark puts its rows.
class Sheet {
 public:
  explicit Sheet(const Settings& settings) : settings_(settings) {}
  const Settings& settings() const noexcept { return settings_; }

  Row& info(std::string name, double value, std::string unit);
  Row& at_most(std::string name, double value, std::string unit, double limit);
  Row& at_least(std::string name, double value, std::string unit, double limit);
  // A time without a limit, with memcmp beside it.
  Row& info_us(std::string name, double value_us, double memcmp_us);
  // `memcmp_multiple` 0: only the limit counts.
  Row& at_most_us(std::string name, double value_us, double limit_us, double memcmp_multiple,
                  double memcmp_us);

  std::span<Row> rows() noexcept { return rows_; }

 private:
  Settings settings_;
  std::vector<Row> rows_;
};

// A benchmark throws this if an answer is wrong; its rows then fail and the program reports it.
class WrongAnswer : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws WrongAnswer unless `holds`.
void require(bool holds, const char* what);

struct Benchmark {
  std::vector<std::string> rows;  // The names of the rows it adds, in order.
  std::string question;           // One line.
  std::function<void(Sheet&)> run;
};

// All benchmarks, in the order they run.
std::vector<Benchmark> all_benchmarks(const Settings& settings);

// ---- Measuring --------------------------------------------------------------------------------

uint64_t now_ns() noexcept;

template <class Call>
double time_ns(Call&& call) {
  const uint64_t begin = now_ns();
  call();
  return static_cast<double>(now_ns() - begin);
}

// How long this thread has been ready to run without getting a core. Waiting for a lock does not
// count. 0 if the kernel does not report it.
double waited_seconds();

// Measurements of one thing.
class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  bool empty() const noexcept { return values_.empty(); }
  double median() const { return quantile(0.5); }
  double quantile(double q) const;  // 0 when empty.

 private:
  std::vector<double> values_;
};

// How many phases a comparison has, unless it says otherwise.
inline constexpr uint32_t kPhases = 10;

// Two things measured side by side in phases. The ratio is taken within a phase, then the median
// over phases: speed changes between phases do not affect it.
class PairedSamples {
 public:
  void add_ours(double value) { phase_ours_.add(value), ours_.add(value); }
  void add_other(double value) { phase_other_.add(value), other_.add(value); }
  void end_phase();
  double ours() const { return ours_.median(); }
  double other() const { return other_.median(); }
  double ratio() const { return ratios_.median(); }

 private:
  Samples ours_, other_, phase_ours_, phase_other_, ratios_;
};

// Keeps the optimiser from dropping a computation whose result is not read.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// The yardstick: memcmp of two equal buffers of 128 KiB, the size of 32,768 tokens.
class Memcmp {
 public:
  static constexpr size_t kBytes = 128 * 1024;
  Memcmp();
  // Nanoseconds of one comparison with both buffers in cache as far as they fit.
  double warm_ns();

 private:
  std::vector<uint32_t> left_, right_;
};

// memcmp that the compiler cannot see through. Requires equal contents.
void compare_equal(const void* left, const void* right, size_t bytes);

// Slope of the least-squares line through (log x, log y).
double log_log_slope(std::span<const double> x, std::span<const double> y);

// ---- Printing ---------------------------------------------------------------------------------

// Describes what the numbers were measured on, in lines for people.
std::string describe_machine();

void print_table(std::span<const Row> rows);
// An array of {"name","value","unit","limit","pass", ...}; "limit" is the one that counted, or
// null.
void print_json(std::span<const Row> rows);

// `stemma bench ARGUMENTS...`; returns the exit code.
int run_bench(std::span<const std::string_view> arguments);

}  // namespace stemma::bench
