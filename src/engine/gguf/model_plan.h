// What a made model consists of: its keys, and its tensors with the rule for their numbers.
// Threading: immutable.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/gguf/make_model.h"

namespace stemma::gguf {

struct PlannedTensor {
  TensorInfo info;
  // Fills one row of info.dims[0] numbers.
  std::function<void(uint64_t row, std::span<float> out)> fill;
};

struct ModelPlan {
  GgufHeader header;  // Without the tensors.
  std::vector<PlannedTensor> tensors;
};

// Requires a shape that check_shape() takes.
ModelPlan plan_model(const ModelShape& shape);

}  // namespace stemma::gguf
