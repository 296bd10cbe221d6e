// stemma_stack_*: opens levels one by one, and calls them together.
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/invalid.h"
#include "capi/tiers/handles.h"
#include "stemma/log.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/key_ring.h"
#ifdef STEMMA_HAS_TIER_DISK
#include "stemma/tier/disk_tier.h"
#endif
#ifdef STEMMA_HAS_TIER_REDIS
#include "stemma/tier/redis_tier.h"
#endif
#ifdef STEMMA_HAS_TIER_SHARED
#include "stemma/tier/shared_tier.h"
#endif
#ifdef STEMMA_HAS_TIER_SEAL
#include "stemma/tier/sealed_tier.h"
#endif

using namespace stemma;
using namespace stemma::capi;

namespace stemma::capi {

STEMMA_SIZED_OF(stemma_level,
                STEMMA_SIZES(offsetof(stemma_level, seal_keys),
                             offsetof(stemma_level, scrub_bytes_per_second), sizeof(stemma_level)),
                STEMMA_LEVEL_INIT);
STEMMA_SIZED(stemma_stack_options, STEMMA_STACK_OPTIONS_INIT);
STEMMA_SIZED_GROWN(stemma_level_stats, written_back, {});

namespace {

constinit Places<stemma_stack, StackHome> stack_places;

using base::invalid;

struct Usual {
  uint64_t latency_ns, bytes_per_second;
};
constexpr Usual kHost{10'000, 5'000'000'000}, kDisk{200'000, 1'000'000'000},
    kRedis{1'000'000, 500'000'000}, kShared{1'000'000, 500'000'000};

Result<std::unique_ptr<Tier>> open_host(const stemma_level& level) {
  if (level.where != nullptr) return invalid("where of a host level is not null");
  return make_host_tier({.capacity_bytes = level.capacity_bytes});
}

Result<std::unique_ptr<Tier>> open_disk(const stemma_level& level) {
#ifdef STEMMA_HAS_TIER_DISK
  if (level.where == nullptr) return invalid("where of a disk level is null: no directory");
  tier::disk::DiskOptions options;
  options.path = level.where;
  options.capacity_bytes = level.capacity_bytes;
  if (level.max_entry_bytes != 0) options.max_entry_bytes = level.max_entry_bytes;
  options.scrub_bytes_per_second = level.scrub_bytes_per_second;
  STEMMA_TRY(auto tier, tier::disk::DiskTier::open(options));
  return std::unique_ptr<Tier>(std::move(tier));
#else
  (void)level;
  return Error(Errc::unsupported, "this library was built without the disk tier");
#endif
}

Result<std::unique_ptr<Tier>> open_redis(const stemma_level& level) {
#ifdef STEMMA_HAS_TIER_REDIS
  if (level.where == nullptr) return invalid("where of a Redis level is null: no URL");
  if (level.capacity_bytes != 0) {
    return invalid("capacity_bytes of a Redis level is not 0: its server decides");
  }
  tier::redis::RedisOptions options;
  STEMMA_TRY(options.place, tier::redis::parse_url(level.where));
  if (level.max_entry_bytes != 0) options.max_entry_bytes = level.max_entry_bytes;
  STEMMA_TRY(auto tier, tier::redis::RedisTier::create(options));
  return std::unique_ptr<Tier>(std::move(tier));
#else
  (void)level;
  return Error(Errc::unsupported, "this library was built without the Redis tier");
#endif
}

Result<std::unique_ptr<Tier>> open_shared(const stemma_level& level) {
#ifdef STEMMA_HAS_TIER_SHARED
  if (level.where == nullptr) return invalid("where of a shared level is null: no directory");
  tier::shared::SharedOptions options;
  options.path = level.where;
  options.capacity_bytes = level.capacity_bytes;
  if (level.max_entry_bytes != 0) options.max_entry_bytes = level.max_entry_bytes;
  STEMMA_TRY(auto tier, tier::shared::SharedTier::open(options));
  return std::unique_ptr<Tier>(std::move(tier));
#else
  (void)level;
  return Error(Errc::unsupported, "this library was built without the shared tier");
#endif
}

// The rings of one stack, by directory: levels that share a ring drop its keys together.
using Rings = std::map<std::string, std::shared_ptr<tier::KeyRing>>;

Result<std::unique_ptr<Tier>> seal(std::unique_ptr<Tier> inner, const char* directory,
                                   Rings& rings) {
#ifdef STEMMA_HAS_TIER_SEAL
  std::shared_ptr<tier::KeyRing>& ring = rings[directory];
  if (ring == nullptr) {
    std::string why;
    auto opened = tier::KeyRing::open({.path = directory}, why);
    if (!opened) {
      log(LogLevel::error, "key ring: " + why);
      return opened.error();
    }
    ring = *std::move(opened);
  }
  tier::SealedTierOptions options;
  options.keys = ring;
  return tier::make_sealed_tier(std::move(inner), options);
#else
  (void)inner, (void)directory, (void)rings;
  return Error(Errc::unsupported, "this library was built without sealing");
#endif
}

Result<tier::StackLevel> open(const stemma_level& c, uint32_t number, Rings& rings) {
  if (c.kind > STEMMA_LEVEL_SHARED) {
    return invalid("kind of this level is no stemma_level_kind", number);
  }
  if (c.write > STEMMA_WRITE_SECOND_USE) {
    return invalid("write of this level is no stemma_write", number);
  }
  if (c.promote > 1) return invalid("promote of this level is neither 0 nor 1", number);
  if (c.scrub_bytes_per_second != 0 && c.kind != STEMMA_LEVEL_DISK) {
    return invalid("scrub_bytes_per_second of this level is not 0: only disks are scrubbed",
                   number);
  }
  tier::StackLevel level;
  level.write = static_cast<tier::WritePolicy>(c.write);
  level.promote = c.promote != 0;
  Usual usual = kHost;
  switch (c.kind) {
    case STEMMA_LEVEL_DISK: {
      usual = kDisk;
      STEMMA_TRY(level.tier, open_disk(c));
      break;
    }
    case STEMMA_LEVEL_REDIS: {
      usual = kRedis;
      STEMMA_TRY(level.tier, open_redis(c));
      break;
    }
    case STEMMA_LEVEL_SHARED: {
      usual = kShared;
      STEMMA_TRY(level.tier, open_shared(c));
      break;
    }
    default: STEMMA_TRY(level.tier, open_host(c));
  }
  if (c.seal_keys != nullptr) {
    STEMMA_TRY(level.tier, seal(std::move(level.tier), c.seal_keys, rings));
  }
  level.latency_ns = c.latency_ns != 0 ? c.latency_ns : usual.latency_ns;
  level.bytes_per_second = c.bytes_per_second != 0 ? c.bytes_per_second : usual.bytes_per_second;
  return level;
}

Result<std::unique_ptr<StackHome>> make_stack(const stemma_stack_options* given) {
  if (given == nullptr) return invalid("options is null");
  STEMMA_TRY(const stemma_stack_options c, read_sized(given));
  if (c.levels == nullptr || c.level_count == 0) return invalid("options.levels has no level");
  if (c.level_count > tier::kMostLevels) return invalid("options.level_count is more than 8");
  tier::StackOptions options;
  options.prefetch_entries = c.prefetch_entries;
  options.query_ns = c.query_ns;
  options.load_ns = c.load_ns;
  options.store_ns = c.store_ns;
  options.queue_bytes = c.queue_bytes;
  options.transfer_bytes = c.transfer_bytes;
  if (c.transfer_bytes != 0) options.hook = cuda_memory_hook();
  Rings rings;
  const uint32_t stride = size_of(c.levels[0]);
  const auto* at = reinterpret_cast<const uint8_t*>(c.levels);
  for (uint32_t i = 0; i < c.level_count; ++i, at += stride) {
    const auto* one = reinterpret_cast<const stemma_level*>(at);
    if (size_of(*one) != stride) {
      return invalid("struct_size of this level differs from that of the first", i);
    }
    STEMMA_TRY(const stemma_level level, read_sized(one));
    STEMMA_TRY(tier::StackLevel opened, open(level, i, rings));
    options.levels.push_back(std::move(opened));
  }
  auto home = std::make_unique<StackHome>();
  STEMMA_TRY(home->stack, tier::TierStack::create(std::move(options)));
  return home;
}

// Like with(), but only in the process that created the stack: in a child its threads do not exist,
// and its locks may be held for ever.
template <class Body>
stemma_status with_stack(const char* call, stemma_stack* stack, Body&& body) noexcept {
  return with(call, stacks(), stack, [&](StackHome& home) -> Result<void> {
    if (home.process != getpid()) return other_process();
    return body(home);
  });
}

}  // namespace

Error other_process() noexcept {
  return {Errc::wrong_state, "it belongs to the process that created it, not to this child of it"};
}

Places<stemma_stack, StackHome>& stacks() noexcept { return stack_places; }

uint64_t in(uint64_t wait_ns) noexcept {
  const uint64_t now = Clock::monotonic().now_ns();
  return deadline_after(now, wait_ns);
}

}  // namespace stemma::capi

stemma_status stemma_stack_create(const stemma_stack_options* options, stemma_stack** out) {
  join_log();
  return end(__func__, caught([&]() -> Result<void> {
               if (out == nullptr) return Error(Errc::invalid_argument, "out is null");
               STEMMA_TRY(auto home, make_stack(options));
               STEMMA_TRY(*out, place(stacks(), std::move(home)));
               return {};
             }));
}

stemma_status stemma_stack_destroy(stemma_stack* stack) {
  return with_stack(__func__, stack, [&](StackHome& home) -> Result<void> {
    if (const uint32_t users = home.users.load(std::memory_order_acquire); users != 0) {
      return Error(Errc::busy, "tiers under caches use this stack, this many", users);
    }
    if (!stacks().forget(stack, &home)) return stacks().stale();
    delete &home;
    return {};
  });
}

stemma_status stemma_stack_flush(stemma_stack* stack, uint64_t wait_ns, uint32_t* done) {
  return with_stack(__func__, stack, [&](StackHome& home) -> Result<void> {
    const bool all = home.stack->flush(in(wait_ns));
    if (done != nullptr) *done = all ? 1 : 0;
    return {};
  });
}

stemma_status stemma_stack_prefilled(stemma_stack* stack, uint32_t tokens, uint64_t ns) {
  return with_stack(__func__, stack, [&](StackHome& home) -> Result<void> {
    home.stack->prefilled(tokens, ns);
    return {};
  });
}

stemma_status stemma_stack_level_count(stemma_stack* stack, uint32_t* out) {
  return with_stack(__func__, stack, [&](StackHome& home) -> Result<void> {
    if (out == nullptr) return Error(Errc::invalid_argument, "out is null");
    *out = static_cast<uint32_t>(home.stack->levels());
    return {};
  });
}

stemma_status stemma_stack_level_stats(stemma_stack* stack, uint32_t level,
                                       stemma_level_stats* out) {
  return with_stack(__func__, stack, [&](StackHome& home) -> Result<void> {
    if (out == nullptr) return Error(Errc::invalid_argument, "out is null");
    STEMMA_TRY_VOID(check_room(*out));
    if (level >= home.stack->levels()) {
      return Error(Errc::out_of_range, "the stack has no such level", level);
    }
    const tier::LevelStats stats = home.stack->stats().levels[level];
    stemma_level_stats c{};
    c.open = stats.tier.reachable ? 1 : 0;
    std::memcpy(c.name, stats.name.data(), std::min(stats.name.size(), sizeof c.name - 1));
    c.entries = stats.tier.entries;
    c.used_bytes = stats.tier.used_bytes;
    c.capacity_bytes = home.stack->tier(level).traits().capacity_bytes;
    c.hits = stats.hits;
    c.hit_bytes = stats.hit_bytes;
    c.misses = stats.misses;
    c.too_slow = stats.too_slow;
    c.stored = stats.stored;
    c.promoted = stats.promoted;
    c.dropped = stats.dropped;
    c.lost = stats.lost + stats.too_large;
    c.puts = stats.tier.puts;
    c.put_bytes = stats.tier.put_bytes;
    c.corrupt = stats.tier.corrupt;
    c.failed = stats.tier.failed;
    c.evictions = stats.tier.evictions;
    c.latency_ns = stats.latency_ns;
    c.bytes_per_second = stats.bytes_per_second;
    c.written_back = stats.written_back;
    write_sized(out, c);
    return {};
  });
}

static_assert(STEMMA_MOST_LEVELS == tier::kMostLevels);
static_assert(STEMMA_WRITE_THROUGH == static_cast<int>(tier::WritePolicy::write_through));
static_assert(STEMMA_WRITE_BACK == static_cast<int>(tier::WritePolicy::write_back));
static_assert(STEMMA_WRITE_SECOND_USE == static_cast<int>(tier::WritePolicy::on_second_use));
