// The conclusion of a sweep in one sentence: how much memory is worth having.
//
//   "With 40 GB you get 71 %; 60 GB gives 78 %; more buys nothing."
//
// It is computed from one policy's curve: `enough` is the smallest capacity within half a point of
// the best ratio that the curve or an unlimited cache reaches; `good` is the smallest with nine
// tenths of the ratio of `enough`. If even the largest capacity of the sweep is further from the
// unlimited ratio, the sentence says what the largest gives, and what more would give.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replay/replay.h"

namespace stemma::replay {

struct Recommendation {
  uint64_t good_blocks = 0;
  double good_ratio = 0;
  uint64_t enough_blocks = 0;  // 0: the sweep does not reach it.
  double enough_ratio = 0;
  uint64_t most_blocks = 0;  // The largest of the sweep.
  double most_ratio = 0;
  double unlimited_ratio = 0;
};

// `curve` is one policy's results, ascending by capacity; not empty.
Recommendation recommend(const std::vector<const ReplayResult*>& curve, double unlimited_ratio);

// `size` writes a capacity: "40 GB", "8,544 blocks".
std::string to_sentence(const Recommendation& recommendation,
                        const std::function<std::string(uint64_t blocks)>& size);

}  // namespace stemma::replay
