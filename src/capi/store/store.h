// Store: the object behind a stemma_store: namespaces, batches, and the threads that run batches
// over a stack.
//
//   submit() --> Ledger --> a Lane of pieces --> a thread: Work --> items end --> Ledger
//
// There is a lane for gets, one for puts and removes, and one for questions, so that none waits for
// the others.
//
// Invariant:  only wait(), forget(), flush() and close() wait for a tier, each up to a time limit.
//             After close() no caller's memory is touched.
// Threading:  thread-safe; call nothing else after close().
// Ownership:  borrows the stack, for as long as `keep` lives. Its threads hold `keep`: one that is
//             stuck in a tier when the store ends keeps the stack until it comes back.
// Cost:       load_threads + store_threads + 2 threads. submit() copies the keys, about 110 bytes
//             an item.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "capi/store/lane.h"
#include "capi/store/ledger.h"
#include "capi/store/work.h"
#include "stemma/result.h"
#include "stemma/tier/tier_stack.h"
#include "tier/object/space.h"

namespace stemma::capi::store {

inline constexpr uint32_t kMostSpaces = 4096;

struct Options {
  uint32_t load_threads = 4, store_threads = 2;
  uint32_t most_batches = 4096, most_items = 262'144;
  uint64_t put_bytes = 128U << 20U;
  uint64_t timeout_ns = 10'000'000'000;
};

struct Stats {
  Counts counts;
  uint64_t mismatched = 0, lookups = 0, lookup_found = 0;
  std::vector<std::shared_ptr<const tier::object::Space>> spaces;
};

class Store {
 public:
  // Error: invalid_argument (an option; the value is the offending one), out_of_memory,
  // copy_failed.
  static Result<std::unique_ptr<Store>> create(tier::TierStack& stack,
                                               std::shared_ptr<const void> keep,
                                               const Options& options);
  ~Store();  // close(), without waiting.
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Returns the namespace's number. Error: invalid_argument, out_of_range.
  Result<uint32_t> name_space(std::string_view name, uint64_t layout, uint64_t value_bytes);
  // Error: invalid_argument.
  Result<std::shared_ptr<const tier::object::Space>> space(uint32_t number) const;

  Result<stemma_batch> submit(Request&& request);
  Ledger& ledger() noexcept;
  // levels[i] is for keys[i]. With `leading_only` it stops at the first key that is not there; the
  // rest of `levels` is 0.
  void lookup(const tier::object::Space& space, std::span<const std::span<const uint8_t>> keys,
              bool leading_only, std::span<tier::LevelMask> levels);
  std::vector<tier::LevelPurged> forget(const tier::object::Space& space, bool all_layouts,
                                        uint64_t until_ns);
  bool flush(uint64_t until_ns);
  Stats stats() const;
  tier::StackStats stack_stats() const;
  tier::TierStack& stack() noexcept;

  // Ends all batches, and waits for the threads until until_ns. False: some threads are stuck; they
  // end by themselves.
  bool close(uint64_t until_ns);

 private:
  struct Shared;  // What the threads use.
  Store(std::shared_ptr<Shared> shared, const Options& options);
  Result<void> start(const Options& options);

  const std::shared_ptr<Shared> shared_;
  const Options options_;
  std::vector<std::thread> threads_;
  mutable base::WaitMutex mutex_;
  std::vector<std::shared_ptr<const tier::object::Space>> spaces_ STEMMA_GUARDED_BY(mutex_);
  std::atomic<uint64_t> lookups_{0}, lookup_found_{0};
};

}  // namespace stemma::capi::store
