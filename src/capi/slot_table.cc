#include "capi/slot_table.h"

namespace stemma::capi {
namespace {

// Not of the model "initial-exec", which is faster by a nanosecond or two: it would move all of the
// library's thread-local memory into the small area that programs reserve for libraries loaded at
// run time, and Python could not load us.
constinit thread_local uint32_t my_shard = 0;

}  // namespace

uint32_t favourite_shard() noexcept {
  static constinit std::atomic<uint32_t> threads{0};
  if (my_shard == 0) my_shard = 1 + threads.fetch_add(1, std::memory_order_relaxed);
  return my_shard;
}

}  // namespace stemma::capi
