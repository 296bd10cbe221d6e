// Transfers by a CUDA device: see cuda_flights.h for how one goes.
//
// Threading:  thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "mover/copier.h"

namespace stemma::mover {

namespace cuda {
struct Driver;
}  // namespace cuda

// Whether this library has the kernel; it says nothing of devices.
bool has_cuda() noexcept;
// 0 without a driver or without the kernel.
uint32_t cuda_device_count() noexcept;

// Errors: unsupported, invalid_argument (no such device; planes that are not in its memory, with
// the plane's number), out_of_memory, copy_failed.
Result<std::unique_ptr<Copier>> make_cuda_copier(const CopierOptions& options);
// The same with another driver and kernel, for tests.
Result<std::unique_ptr<Copier>> make_cuda_copier(const CopierOptions& options,
                                                 const cuda::Driver& driver, const void* image);

}  // namespace stemma::mover
