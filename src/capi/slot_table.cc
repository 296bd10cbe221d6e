#include "capi/slot_table.h"

namespace stemma::capi {
namespace {

// Four bytes, so there is always room for them where access is cheapest.
[[gnu::tls_model("initial-exec")]] constinit thread_local uint32_t my_shard = 0;

}  // namespace

uint32_t favourite_shard() noexcept {
  static constinit std::atomic<uint32_t> threads{0};
  if (my_shard == 0) my_shard = 1 + threads.fetch_add(1, std::memory_order_relaxed);
  return my_shard;
}

}  // namespace stemma::capi
