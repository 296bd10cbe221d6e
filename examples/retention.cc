// Controlling what is evicted when room is short: priorities, pins with deadlines, quotas.
#include <array>
#include <cstdio>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

namespace {

constexpr TenantId kGuest{2};

std::vector<Token> text(Token seed, uint32_t count) { return std::vector<Token>(count, seed); }

}  // namespace

int main() {
  ManualClock clock;  // A real engine leaves Options::clock alone.
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 32, .block_bytes = 4096}};
  options.quotas = {{.tenant = kGuest, .bytes = 8 * 4096}};
  options.clock = &clock;
  PagedCache cache = *PagedCache::create(options);
  const Scope ours = *Scope::make({.model = "digest of the weights"});
  const Scope guests =
      *Scope::make({.model = "digest of the weights", .tenant_salt = "16 random bytes."});

  const auto run = [&](Token seed, uint32_t count, const Retain& retain) {
    LeaseOptions ask;
    ask.retain = retain;
    Lease lease = *cache.lease(ours, {.tokens = text(seed, count)}, ask);
    lease.copies_done().value();
    lease.commit(count).value();
  };
  const auto cached = [&](Token seed) {
    return cache.lookup(ours, {.tokens = text(seed, 128)})->matched_tokens;
  };
  // The system prompt, positions [0, 64), is worth more than what follows it.
  const std::array ranges = {PriorityRange{.begin = 0, .end = 64, .priority = 80}};
  run(1, 128, {.ranges = ranges});
  run(2, 128, {});
  run(3, 128, {.priority = 10});  // A batch job: goes first.
  const PinResult pin = *cache.pin(ours, {.tokens = text(2, 128)}, 60'000'000'000);
  std::printf("pinned %u tokens\n", pin.pinned_tokens);
  run(4, 320, {});
  std::printf("1: %u, pinned 2: %u, batch 3: %u tokens left\n", cached(1), cached(2), cached(3));
  clock.advance_ns(61'000'000'000);  // The pin's deadline passes.
  run(5, 448, {});
  std::printf("1: %u, once pinned 2: %u tokens left\n", cached(1), cached(2));

  LeaseOptions guest;
  guest.tenant = kGuest;
  const Result<Lease> refused = cache.lease(guests, {.tokens = text(6, 144)}, guest);
  std::printf("the guest asks for 9 blocks: %s\n", refused.error().to_string().c_str());
}
