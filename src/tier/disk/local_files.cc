#include "tier/disk/local_files.h"

#include "tier/disk/thread_queue.h"
#include "tier/disk/uring_queue.h"

namespace stemma::tier::disk {

std::unique_ptr<Files> make_local_files(IoWay way) {
  return make_system_files([way](uint32_t depth) -> std::unique_ptr<IoQueue> {
    if (way != IoWay::threads) {
      if (auto ring = make_uring_queue(depth)) return ring;
      if (way == IoWay::uring) return nullptr;
    }
    constexpr uint32_t kThreads = 8;  // Enough to keep a local disk busy with 64 KiB reads.
    return std::make_unique<ThreadQueue>(
        depth, kThreads, [](void*, const Io& io) { return perform_io(io); }, nullptr);
  });
}

}  // namespace stemma::tier::disk
