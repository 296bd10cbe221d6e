// Room is short: a request is preempted while its kernel still runs, and it comes back later.
#include <atomic>
#include <cstdio>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

namespace {

// Really: an event recorded on the stream that last touched the lease's blocks.
struct KernelDone final : Fence {
  std::atomic<bool> done{false};
  bool signalled() noexcept override { return done.load(std::memory_order_acquire); }
};

}  // namespace

int main() {
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 8}};
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});
  const std::vector<Token> first(64, 1);
  const std::vector<Token> second(64, 2);
  KernelDone kernel;

  Lease a = *cache.lease(scope, {.tokens = first});
  a.commit(63).value();
  Lease b = *cache.lease(scope, {.tokens = second});
  b.commit(64).value();

  const std::vector<Token> more(16, 3);
  Result<void> grown = b.extend(more);
  std::printf("b wants a block: %s\n", grown.error().to_string().c_str());

  // a gives way. Its blocks go after everybody else's, and not before its kernel is done.
  Retain back_soon;
  back_soon.will_return = true;
  a.release({.retain = &back_soon, .fence = &kernel}).value();
  grown = b.extend(more);
  std::printf("while a's kernel runs: %s\n", grown ? "ok" : grown.error().to_string().c_str());
  kernel.done.store(true, std::memory_order_release);
  grown = b.extend(more);  // extend() checks fences when room is short; poll() does too.
  std::printf("after it: %s\n", grown ? "ok" : grown.error().to_string().c_str());
  b.commit(80).value();
  b.release().value();

  a = *cache.lease(scope, {.tokens = first});
  std::printf("a is back: %u of its 64 tokens were kept\n", a.reused());
}
