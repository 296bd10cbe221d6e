#include "retain/hazard.h"

#include <algorithm>
#include <cmath>

namespace stemma::retain {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kFirstEnd_s = 0.5;
constexpr double kGrowth = 1.25;

// Learning steps for an interval's own weight and for the weights of traits.
constexpr float kBaseStep = 0.15F;
constexpr float kFineStep = 0.07F;
constexpr float kCoarseStep = 0.05F;
constexpr float kFirstChance = 0.03F;  // Of use in an interval, before any data.
constexpr double kLeastHold = 0.35;    // Of the turnover: shorter hold times are not tried.

// The first row of each trait. A number has 24 places, alone or in pairs.
constexpr uint32_t kPlaces = 24;
constexpr uint32_t kSeconds = 24;
constexpr uint32_t kNumbersAt = 1;
constexpr uint32_t kKindAt = kNumbersAt + Traits::kNumbers * kPlaces;
constexpr uint32_t kFinishAt = kKindAt + HazardModel::kKinds;
constexpr uint32_t kGapFinishAt = kFinishAt + HazardModel::kFinishes;
constexpr uint32_t kUsualFinishAt = kGapFinishAt + HazardModel::kFinishes * kPlaces;
constexpr uint32_t kLengthAddedAt = kUsualFinishAt + HazardModel::kFinishes * kPlaces;
constexpr uint32_t kUsualLengthAt = kLengthAddedAt + kSeconds * kPlaces;
constexpr uint32_t kOutputGapAt = kUsualLengthAt + kSeconds * kPlaces;
constexpr uint32_t kRows = kOutputGapAt + kSeconds / 3 * kPlaces;

float logistic(float sum) noexcept { return 1 / (1 + std::exp(-sum)); }

std::array<double, HazardModel::kAges + 1> make_starts() {
  std::array<double, HazardModel::kAges + 1> starts;
  starts[0] = 0;
  for (uint32_t i = 1; i <= HazardModel::kAges; ++i)
    starts[i] = kFirstEnd_s * std::pow(kGrowth, i - 1);
  return starts;
}
const std::array<double, HazardModel::kAges + 1> kStart_s = make_starts();

std::array<uint64_t, HazardModel::kAges> make_ends() {
  std::array<uint64_t, HazardModel::kAges> ends;
  for (uint32_t i = 0; i < HazardModel::kAges; ++i) {
    ends[i] = static_cast<uint64_t>(kStart_s[i + 1] * kNsPerSecond);
  }
  return ends;
}
// Whole nanoseconds, so that interval() and end_ns() agree to the last of them.
const std::array<uint64_t, HazardModel::kAges> kEnd_ns = make_ends();

}  // namespace

uint8_t Traits::place(double value, double unit) noexcept {
  const double steps = 1 + std::log2(std::max(value / unit, 1.0));
  return static_cast<uint8_t>(std::min(steps * 8, 8.0 * (kPlaces - 1) - 1));
}

bool HazardModel::create() {
  if (!weights_.reserve(kRows) || !weights_.commit(0, kRows)) return false;
  for (uint32_t row = 0; row < kRows; ++row) {
    weights_[row].weight.fill(0);
    weights_[row].seen.fill(1);
  }
  const float first = std::log(kFirstChance / (1 - kFirstChance));
  std::fill_n(weights_[0].weight.begin(), kAges, first);
  return true;
}

uint32_t HazardModel::interval(uint64_t age_ns) noexcept {
  const auto* const end = std::upper_bound(kEnd_ns.begin(), kEnd_ns.end() - 1, age_ns);
  return static_cast<uint32_t>(end - kEnd_ns.begin());
}

uint64_t HazardModel::end_ns(uint32_t interval) noexcept { return kEnd_ns[interval]; }

HazardModel::Terms HazardModel::terms_of(const Traits& traits) noexcept {
  Terms terms;
  terms.add(0, 1);
  terms.add(kKindAt + traits.kind, 1);
  if (traits.kind == Traits::kRest) return terms;
  // A number between two places counts for both, by how near it is to each.
  const auto between = [&](uint32_t first_row, uint8_t number) {
    const uint32_t low = number / 8U;
    const float above = static_cast<float>(number % 8U) / 8;
    if (above < 1) terms.add(first_row + low, 1 - above);
    if (above > 0) terms.add(first_row + low + 1, above);
  };
  const auto& n = traits.numbers;
  const auto number = [&](Traits::Number which) {
    between(kNumbersAt + which * kPlaces, n[which]);
  };
  const auto second = [](uint8_t place) { return std::min(place / 8U, kSeconds - 1); };
  const auto pair = [&](uint32_t first_row, Traits::Number fine, uint32_t other) {
    between(first_row + other * kPlaces, n[fine]);
  };
  number(Traits::gap);
  number(Traits::gap_before);
  number(Traits::usual_gap);
  number(Traits::turn);
  number(Traits::length);
  number(Traits::added);
  if (n[Traits::output] != 0) {
    number(Traits::output);
    pair(kOutputGapAt, Traits::output, second(n[Traits::gap]) / 3);  // Coarser: few requests say.
  }
  pair(kLengthAddedAt, Traits::length, second(n[Traits::added]));
  pair(kUsualLengthAt, Traits::usual_gap, second(n[Traits::length]));
  if (traits.finish != 0) {
    terms.add(kFinishAt + traits.finish, 1);
    pair(kGapFinishAt, Traits::gap, traits.finish);
    pair(kUsualFinishAt, Traits::gap_after_finish, traits.finish);
  }
  return terms;
}

float HazardModel::chance(const Terms& terms, uint32_t interval) const noexcept {
  float sum = 0;
  for (uint32_t i = 0; i < terms.count; ++i) {
    const auto& weight = weights_[terms.terms[i].row].weight;
    sum += terms.terms[i].share *
           (weight[interval] + weight[kAges + interval / kGroup] + weight[kColumns - 1]);
  }
  return logistic(sum);
}

void HazardModel::learn(const Traits& traits, uint32_t interval, bool used, float weight) noexcept {
  const Terms terms = terms_of(traits);
  const float wrong = (chance(terms, interval) - (used ? 1.0F : 0.0F)) * weight;
  for (uint32_t i = 0; i < terms.count; ++i) {
    Row& row = weights_[terms.terms[i].row];
    const float gradient = wrong * terms.terms[i].share;
    const auto step = [&](uint32_t column, float size) {
      row.seen[column] += gradient * gradient;
      row.weight[column] -= size * gradient / std::sqrt(row.seen[column]);
    };
    if (terms.terms[i].row == 0) {
      step(interval, kBaseStep);
      continue;
    }
    step(interval, kFineStep);
    step(kAges + interval / kGroup, kCoarseStep);
    step(kColumns - 1, kCoarseStep);
  }
}

float HazardModel::index(const Traits& traits, uint32_t interval,
                         double turnover_s) const noexcept {
  // All intervals at once, row by row, in the order of the weights in memory.
  const Terms terms = terms_of(traits);
  std::array<float, kColumns> sums = {};
  for (uint32_t i = 0; i < terms.count; ++i) {
    const auto& weight = weights_[terms.terms[i].row].weight;
    const float share = terms.terms[i].share;
    for (uint32_t column = interval; column < kColumns; ++column) {
      sums[column] += share * weight[column];
    }
  }
  const double least_s = kLeastHold * turnover_s;
  double unused = 1;
  double held_s = 0;
  double used = 0;
  double best = 0;
  for (uint32_t i = interval; i < kAges; ++i) {
    const double now = logistic(sums[i] + sums[kAges + i / kGroup] + sums[kColumns - 1]);
    // An entry used within an interval is held for half of it.
    held_s += unused * (kStart_s[i + 1] - kStart_s[i]) * (1 - now / 2);
    used += unused * now;
    unused *= 1 - now;
    const double rate = used / held_s;
    if (rate > best || kStart_s[i] - kStart_s[interval] < least_s) best = rate;
    if (unused < 1e-4) break;
  }
  return static_cast<float>(best);
}

}  // namespace stemma::retain
