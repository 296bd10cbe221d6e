// The compiled kernel, as nvcc made it.
#pragma once

namespace stemma::mover::cuda {

inline constexpr char kKernelName[] = "stemma_move";

// Null if this library was built without nvcc.
const void* kernel_image() noexcept;

}  // namespace stemma::mover::cuda
