#include "stemma/tier/redis_tier.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <new>
#include <system_error>

#include "tier/redis/loop.h"
#include "tier/redis/purger.h"
#include "tier/wait_until.h"

namespace stemma::tier::redis {

namespace {

class LoopedTier final : public RedisTier {
 public:
  LoopedTier(const RedisOptions& options, std::shared_ptr<TlsContext> tls,
             std::shared_ptr<Wakeup> wakeup, int epoll_fd)
      : traits_{.name = "redis",
                .capacity_bytes = 0,
                .max_entry_bytes = options.max_entry_bytes,
                .outlives_process = true,
                .shared = true},
        options_(options),
        tls_(std::move(tls)),
        loop_(options, traits_, tls_, std::move(wakeup), epoll_fd) {
    loop_.start();
  }

  const TierTraits& traits() const noexcept override { return traits_; }
  void submit(std::shared_ptr<TierBatch> batch) override { loop_.submit(batch); }
  TierStats stats() const override { return loop_.stats(); }
  bool flush(uint64_t until_ns) override { return loop_.flush(until_ns); }
  Purged purge(const Purge& what, uint64_t until_ns) override {
    if (!loop_.flush(until_ns)) return {.error = "what was submitted before has not ended"};
    // The entries go in any case, so some of the time is left for removing them.
    const uint64_t now_ns = monotonic_ns();
    const uint64_t half_ns = until_ns > now_ns ? (until_ns - now_ns) / 2 : 0;
    std::string doubt = loop_.settle(what, now_ns + half_ns);
    Purged purged = redis::purge(options_, tls_, what, until_ns);
    if (!doubt.empty() && purged.complete) {
      purged.complete = false;
      purged.error = std::move(doubt);
    }
    return purged;
  }
  bool wait_ready(uint64_t until_ns) override { return loop_.wait_ready(until_ns); }
  std::string problem() const override { return loop_.problem(); }
  RedisCounters counters() const override { return loop_.counters(); }

 private:
  const TierTraits traits_;
  const RedisOptions options_;
  const std::shared_ptr<TlsContext> tls_;
  Loop loop_;
};

// Servers take values of this size without trouble; larger entries are not allowed.
constexpr uint64_t kMostEntryBytes = uint64_t{32} << 20;

}  // namespace

Result<std::unique_ptr<RedisTier>> RedisTier::create(const RedisOptions& options) {
  if (options.place.hosts.empty()) return Error(Errc::invalid_argument, "redis: no host is given");
  if (options.max_entry_bytes == 0 || options.max_entry_bytes > kMostEntryBytes) {
    return Error(Errc::invalid_argument, "redis: max_entry_bytes is from 1 to 32 MiB");
  }
  if (options.stall_ns == 0 || options.flight_commands == 0 || options.bulk_connections > 64) {
    return Error(Errc::invalid_argument,
                 "redis: stall_ns and flight_commands are not 0, bulk_connections at most 64");
  }
  try {
    std::shared_ptr<TlsContext> tls;
    if (options.place.tls) {
      STEMMA_TRY(tls, TlsContext::create(options.place));
    }
    std::shared_ptr<Wakeup> wakeup = Wakeup::make();
    if (!wakeup) return Error(Errc::out_of_memory, "redis: the system gives no event descriptor");
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
      return Error(Errc::out_of_memory, "redis: the system gives no epoll descriptor");
    return std::unique_ptr<RedisTier>(
        std::make_unique<LoopedTier>(options, std::move(tls), std::move(wakeup), epoll_fd));
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "redis: no memory");
  } catch (const std::system_error&) {
    return Error(Errc::out_of_memory, "redis: the system gives no thread");
  }
}

}  // namespace stemma::tier::redis
