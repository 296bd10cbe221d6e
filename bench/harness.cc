#include "bench/harness.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

namespace stemma::bench {

double Row::effective_limit() const noexcept {
  return std::max(limit, memcmp_multiple * memcmp_us);
}

bool Row::passes() const noexcept {
  if (wrong) return false;
  switch (sense) {
    case Sense::at_most: return value <= effective_limit();
    case Sense::at_least: return value >= limit;
    case Sense::report: break;
  }
  return true;
}

Row& Row::against(std::string_view baseline, double baseline_value) {
  baselines.push_back({std::string(baseline), baseline_value, baseline_value / value});
  return *this;
}

Row& Row::with_note(std::string text) {
  note = std::move(text);
  return *this;
}

Row& Sheet::info(std::string name, double value, std::string unit) {
  Row row;
  row.name = std::move(name);
  row.value = value;
  row.unit = std::move(unit);
  return rows_.emplace_back(std::move(row));
}

Row& Sheet::at_most(std::string name, double value, std::string unit, double limit) {
  Row& row = info(std::move(name), value, std::move(unit));
  row.sense = Sense::at_most;
  row.limit = limit;
  return row;
}

Row& Sheet::at_least(std::string name, double value, std::string unit, double limit) {
  Row& row = info(std::move(name), value, std::move(unit));
  row.sense = Sense::at_least;
  row.limit = limit;
  return row;
}

Row& Sheet::info_us(std::string name, double value_us, double memcmp_us) {
  Row& row = info(std::move(name), value_us, "us");
  row.memcmp_us = memcmp_us;
  return row;
}

Row& Sheet::at_most_us(std::string name, double value_us, double limit_us, double memcmp_multiple,
                       double memcmp_us) {
  Row& row = at_most(std::move(name), value_us, "us", limit_us);
  row.memcmp_multiple = memcmp_multiple;
  row.memcmp_us = memcmp_us;
  return row;
}

void require(bool holds, const char* what) {
  if (!holds) throw WrongAnswer(what);
}

// ---- Measuring --------------------------------------------------------------------------------

uint64_t now_ns() noexcept {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

double Samples::quantile(double q) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  const auto index = static_cast<size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)));
  const auto place = sorted.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(sorted.begin(), place, sorted.end());
  return *place;
}

void PairedSamples::end_phase() {
  if (!phase_ours_.empty() && !phase_other_.empty()) {
    ratios_.add(phase_ours_.median() / phase_other_.median());
  }
  phase_ours_ = {};
  phase_other_ = {};
}

[[gnu::noinline]] void compare_equal(const void* left, const void* right, size_t bytes) {
  require(std::memcmp(left, right, bytes) == 0, "buffers that should be equal differ");
}

Memcmp::Memcmp() : left_(kBytes / sizeof(uint32_t)), right_(kBytes / sizeof(uint32_t)) {
  for (size_t i = 0; i < left_.size(); ++i) {
    left_[i] = right_[i] = static_cast<uint32_t>(i * 2654435761U) >> 1;
  }
}

double Memcmp::warm_ns() {
  compare_equal(left_.data(), right_.data(), kBytes);
  return time_ns([this] { compare_equal(left_.data(), right_.data(), kBytes); });
}

double log_log_slope(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  double sum_x = 0;
  double sum_y = 0;
  double sum_xx = 0;
  double sum_xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double log_x = std::log(x[i]);
    const double log_y = std::log(y[i]);
    sum_x += log_x;
    sum_y += log_y;
    sum_xx += log_x * log_x;
    sum_xy += log_x * log_y;
  }
  return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
}

}  // namespace stemma::bench
