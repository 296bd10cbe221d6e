#include "engine/gguf/make_model.h"

#include <limits>
#include <new>
#include <vector>

#include "engine/gguf/model_plan.h"

namespace stemma::gguf {
namespace {

constexpr uint32_t kMaxLayers = 512;  // llama.cpp takes no more.
constexpr uint32_t kMinDim = 32;
constexpr uint32_t kMaxDim = 16384;
constexpr uint32_t kMaxFf = 1 << 17;
constexpr uint32_t kMaxContext = 1 << 24;
constexpr uint64_t kReportBytes = 1 << 22;

bool has_attention(const ModelShape& shape) {
  return shape.architecture != Architecture::recurrent;
}

ModelSize count(const ModelShape& shape, const ModelPlan& plan) {
  ModelSize size;
  GgufHeader header = plan.header;
  for (const PlannedTensor& tensor : plan.tensors) {
    size.parameters += tensor.info.elements();
    header.add_tensor(tensor.info);
  }
  size.file_bytes = header.file_bytes();
  const uint64_t every_other = shape.layers / 2;  // The odd ones.
  const uint64_t kv = uint64_t{2} * 2 * (shape.dim / shape.heads) * shape.kv_heads;
  const uint64_t inner = uint64_t{2} * shape.dim;
  const uint64_t state = (inner * 3 + inner * 16) * 4;  // Convolution and state.
  switch (shape.architecture) {
    case Architecture::llama: size.kv_bytes_per_token = kv * shape.layers; break;
    case Architecture::window:
      size.kv_bytes_per_token = kv * every_other;
      size.window_bytes_per_token = kv * (shape.layers - every_other);
      break;
    case Architecture::recurrent: size.state_bytes = state * shape.layers; break;
    case Architecture::hybrid:
      size.kv_bytes_per_token = kv * every_other;
      size.state_bytes = state * (shape.layers - every_other);
      break;
  }
  return size;
}

}  // namespace

const char* to_string(Architecture architecture) noexcept {
  switch (architecture) {
    case Architecture::llama: return "llama";
    case Architecture::window: return "window";
    case Architecture::recurrent: return "recurrent";
    case Architecture::hybrid: return "hybrid";
  }
  return "?";
}

Result<void> check_shape(const ModelShape& shape) {
  const auto wrong = [](const char* message, uint32_t value) {
    return Error(Errc::invalid_argument, message, value);
  };
  if (shape.architecture > Architecture::hybrid) {
    return wrong("there is no such architecture", static_cast<uint32_t>(shape.architecture));
  }
  if (shape.type != TensorType::f32 && shape.type != TensorType::f16) {
    return wrong("weights are f32 or f16", static_cast<uint32_t>(shape.type));
  }
  if (shape.layers < 1 || shape.layers > kMaxLayers) {
    return wrong("layers must be from 1 to 512", shape.layers);
  }
  const bool two_kinds =
      shape.architecture == Architecture::window || shape.architecture == Architecture::hybrid;
  if (two_kinds && shape.layers < 2) {
    return wrong("two kinds of layers take turns, so there must be two of them", shape.layers);
  }
  if (shape.dim < kMinDim || shape.dim > kMaxDim) {
    return wrong("dim must be from 32 to 16384", shape.dim);
  }
  if (shape.dim % 16 != 0) return wrong("dim must be a multiple of 16", shape.dim);
  if (has_attention(shape)) {
    if (shape.heads < 1) return wrong("heads must be at least 1", shape.heads);
    if (shape.dim % shape.heads != 0) return wrong("dim must be a multiple of heads", shape.dim);
    const uint32_t head = shape.dim / shape.heads;
    if (head % 2 != 0) return wrong("the width of a head, dim / heads, must be even", head);
    if (shape.kv_heads < 1) return wrong("kv-heads must be at least 1", shape.kv_heads);
    if (shape.heads % shape.kv_heads != 0) {
      return wrong("heads must be a multiple of kv-heads", shape.kv_heads);
    }
  }
  if (shape.ff > kMaxFf) return wrong("ff must be at most 131072", shape.ff);
  if (shape.context < 1 || shape.context > kMaxContext) {
    return wrong("context must be from 1 to 16777216", shape.context);
  }
  if (shape.architecture == Architecture::window && shape.window < 1) {
    return wrong("window must be at least 1", shape.window);
  }
  if (shape.architecture == Architecture::window && shape.window > shape.context) {
    return wrong("window must not be longer than context", shape.window);
  }
  return {};
}

Result<ModelSize> size_of(const ModelShape& shape) {
  STEMMA_TRY_VOID(check_shape(shape));
  return count(shape, plan_model(shape));
}

Result<ModelSize> write_model(const ModelShape& shape, const std::string& path,
                              OnExisting on_existing, const Progress& progress) {
  STEMMA_TRY_VOID(check_shape(shape));
  try {
    const ModelPlan plan = plan_model(shape);
    const ModelSize size = count(shape, plan);
    GgufHeader header = plan.header;
    for (const PlannedTensor& tensor : plan.tensors) header.add_tensor(tensor.info);
    STEMMA_TRY(GgufWriter writer, GgufWriter::create(path, header, on_existing));
    uint64_t reported = 0;
    std::vector<float> row;
    for (const PlannedTensor& tensor : plan.tensors) {
      row.resize(tensor.info.dims.front());
      const uint64_t rows = tensor.info.elements() / row.size();
      for (uint64_t i = 0; i < rows; ++i) {
        tensor.fill(i, row);
        STEMMA_TRY_VOID(writer.write(row));
        if (progress && writer.written_bytes() - reported >= kReportBytes) {
          reported = writer.written_bytes();
          progress(reported, size.file_bytes);
        }
      }
    }
    STEMMA_TRY_VOID(writer.finish());
    if (progress) progress(size.file_bytes, size.file_bytes);
    return size;
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to make a model");
  }
}

}  // namespace stemma::gguf
