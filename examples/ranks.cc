// Tensor parallelism: every rank has its own cache, and all must reuse the same prefix.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

namespace {

// Stands for an all-reduce between processes.
uint32_t smallest_reuse(const std::vector<Lease>& leases) {
  uint32_t n = 0xFFFF'FFFFU;
  for (const Lease& lease : leases) n = std::min(n, lease.reused());
  return n;
}

}  // namespace

int main() {
  std::vector<PagedCache> ranks;
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 64}};
  for (int i = 0; i < 2; ++i) ranks.push_back(*PagedCache::create(options));
  const Scope scope = *Scope::make({.model = "digest of the weights"});
  std::vector<Token> prompt(200);
  for (uint32_t i = 0; i < 200; ++i) prompt[i] = i;
  for (PagedCache& rank : ranks) rank.lease(scope, {.tokens = prompt})->commit(200).value();
  ranks[1].evict(3);  // Equal calls give equal answers, so make this rank differ.

  // First way: ask every rank, then lease no more than the smallest answer.
  LeaseOptions least;
  for (const PagedCache& rank : ranks) {
    const uint32_t n = rank.lookup(scope, {.tokens = prompt})->reused_tokens;
    least.lookup.at_most = std::min(least.lookup.at_most, n);
    std::printf("a rank could reuse %u\n", n);
  }
  for (PagedCache& rank : ranks) {
    const Lease lease = *rank.lease(scope, {.tokens = prompt}, least);
    std::printf("with at_most %u: %u\n", least.lookup.at_most, lease.reused());
  }

  // Second way: lease, then give back. Leased blocks cannot be evicted while others answer.
  std::vector<Lease> leases;
  for (PagedCache& rank : ranks) leases.push_back(*rank.lease(scope, {.tokens = prompt}));
  for (uint32_t n = smallest_reuse(leases);; n = smallest_reuse(leases)) {
    for (Lease& lease : leases) lease.shrink_to(n).value();
    if (smallest_reuse(leases) == n) break;  // A rank may have had to step back further.
  }
  for (const Lease& lease : leases) {
    std::printf("after shrink_to: %u reused, %u to compute\n", lease.reused(),
                lease.report().to_compute_tokens);
  }
}
