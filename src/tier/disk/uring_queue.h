// An IoQueue over io_uring. Null if it was not built in (liburing), or the kernel refuses it.
#pragma once

#include <memory>

#include "tier/files.h"

namespace stemma::tier::disk {

std::unique_ptr<IoQueue> make_uring_queue(uint32_t depth);

}  // namespace stemma::tier::disk
