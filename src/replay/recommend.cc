#include "replay/recommend.h"

#include <algorithm>
#include <cstdio>

namespace stemma::replay {
namespace {

constexpr double kNothing = 0.005;  // Half a point: not worth any memory.
constexpr double kGood = 0.9;

std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * ratio);
  return text;
}

}  // namespace

Recommendation recommend(const std::vector<const ReplayResult*>& curve, double unlimited_ratio) {
  double best = unlimited_ratio;
  for (const ReplayResult* point : curve) best = std::max(best, point->hit_ratio());
  const auto first_with = [&](double ratio) -> const ReplayResult* {
    for (const ReplayResult* point : curve) {
      if (point->hit_ratio() >= ratio) return point;
    }
    return nullptr;
  };
  Recommendation out;
  out.unlimited_ratio = best;
  out.most_blocks = curve.back()->capacity_blocks;
  out.most_ratio = curve.back()->hit_ratio();
  const ReplayResult* const enough = first_with(best - kNothing);
  if (enough != nullptr) {
    out.enough_blocks = enough->capacity_blocks;
    out.enough_ratio = enough->hit_ratio();
  }
  const double top = enough != nullptr ? enough->hit_ratio() : curve.back()->hit_ratio();
  const ReplayResult* const good = first_with(kGood * top);
  if (good != nullptr) {
    out.good_blocks = good->capacity_blocks;
    out.good_ratio = good->hit_ratio();
  }
  return out;
}

std::string to_sentence(const Recommendation& recommendation,
                        const std::function<std::string(uint64_t blocks)>& size) {
  const Recommendation& r = recommendation;
  if (r.unlimited_ratio < kNothing) return "Nothing is worth keeping: no prompt repeats another.";
  const std::string good =
      "With " + size(r.good_blocks) + " you get " + percent(r.good_ratio) + "; ";
  if (r.enough_blocks == 0) {
    const bool most_helps = percent(r.most_ratio) != percent(r.good_ratio);
    return good +
           (most_helps ? size(r.most_blocks) + " gives " + percent(r.most_ratio) + "; " : "") +
           "more would help: without a limit it would be " + percent(r.unlimited_ratio) + ".";
  }
  if (r.enough_blocks == r.good_blocks) return good + "more buys nothing.";
  return good + size(r.enough_blocks) + " gives " + percent(r.enough_ratio) +
         "; more buys nothing.";
}

}  // namespace stemma::replay
