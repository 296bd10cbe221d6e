// Shared by the tests of the Redis tier: opening it, and a load that notices wrong bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "stemma/tier/redis_tier.h"
#include "support/now.h"
#include "tiers/redis_server.h"
#include "tiers/tier_suite.h"

namespace stemma::test {

inline constexpr uint64_t kMs = 1'000'000;

// On a slow and busy machine, a bounded call ends within its bound plus this.
inline constexpr uint64_t kSlowMs = 10'000;
inline constexpr uint64_t kImpatientMs = 300;
inline constexpr uint64_t kPatientMs = 20'000;

// A server that is silent for `stall_ms` counts as stalled. Tests without stalls use a long time,
// because on a busy machine a server may sleep for a second; calls that must not wait for it take
// much less.
inline tier::redis::RedisOptions redis_options(const std::string& url, uint64_t stall_ms) {
  return {.place = *tier::redis::parse_url(url),
          .stall_ns = stall_ms * kMs,
          .probe_first_ns = 20 * kMs,
          .probe_longest_ns = 200 * kMs,
          .seed = 7};
}

inline std::unique_ptr<tier::redis::RedisTier> open_redis(
    const tier::redis::RedisOptions& options) {
  return tier::redis::RedisTier::create(options).value();
}
inline std::unique_ptr<tier::redis::RedisTier> open_redis(const std::string& url,
                                                          uint64_t stall_ms = kPatientMs) {
  return open_redis(redis_options(url, stall_ms));
}
inline bool ready(tier::redis::RedisTier& tier) { return tier.wait_ready(now_ns() + 60'000 * kMs); }

inline bool eventually(const std::function<bool()>& holds, uint64_t patience_ms = 60'000) {
  const uint64_t until = now_ns() + patience_ms * kMs;
  while (!holds()) {
    if (now_ns() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Threads that put and get until they are told to stop, and look at every byte. Each request has a
// deadline; the longest duration is kept.
class Load {
 public:
  Load(Tier& tier, uint32_t threads, uint64_t entry_bytes, uint64_t deadline_ms)
      : tier_(tier), bytes_(entry_bytes), deadline_ms_(deadline_ms) {
    for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { run(i); });
  }
  ~Load() { stop(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  void stop() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  std::atomic<uint64_t> rounds{0}, done{0}, not_done{0}, wrong{0}, longest_ns{0};

 private:
  void run(uint32_t self) {
    for (uint64_t round = 0; !stop_; ++round) {
      const std::vector<Entry> some = test::entries(7'000 + self + round % 5 * 100, 6, bytes_);
      for (const TierOp op : {TierOp::put, TierOp::get, TierOp::contains}) {
        Work work(op, some);
        const uint64_t begin = now_ns();
        work.batch->deadline_ns = begin + deadline_ms_ * kMs;
        work.submit_to(tier_);
        if (!work.batch->wait(begin + 60'000 * kMs)) {
          ADD_FAILURE() << "a batch did not end";
          std::abort();  // Its memory is in use.
        }
        const uint64_t took = now_ns() - begin;
        for (uint64_t seen = longest_ns;
             took > seen && !longest_ns.compare_exchange_weak(seen, took);) {
        }
        for (size_t i = 0; i < some.size(); ++i) {
          const bool good = work.batch->items()[i].outcome == TierOutcome::done;
          ++(good ? done : not_done);
          if (good && op == TierOp::get &&
              !std::equal(some[i].bytes.begin(), some[i].bytes.end(), work.rooms[i].begin())) {
            ++wrong;
          }
          if (work.batch->items()[i].outcome == TierOutcome::corrupt) ++wrong;
        }
      }
      ++rounds;
    }
  }

  Tier& tier_;
  uint64_t bytes_, deadline_ms_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace stemma::test
