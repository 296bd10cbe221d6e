// Finds out from which size on the driver's batches are faster than the kernel.
//
// Threading:  the caller has made the device's context current.
// Cost:       some tenths of a second at most, 64 MiB of the device's and of pinned memory; nothing
//             if no plane has runs of 64 KiB.
#pragma once

#include <cstdint>

#include "mover/copier.h"
#include "mover/cuda/driver.h"

namespace stemma::mover::cuda {

// UINT64_MAX: never. Without memory to measure with: never.
Result<uint64_t> measure_batches(Device& device, const CopierOptions& options, Function kernel);

}  // namespace stemma::mover::cuda
