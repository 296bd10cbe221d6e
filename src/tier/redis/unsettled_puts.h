// UnsettledPuts: puts that a server may still carry out although their items have ended.
//
//   sent --its time is over--> adrift --the server answers--> settled
//     '------------------------'--the connection breaks--> lost --`settle_ns` later--> settled
//
// A command sent whole cannot be taken back. While its connection stands, the answer shows when it
// was carried out. After the connection breaks no answer comes, but a working server reads what it
// has received within moments, so after `settle_ns` the put counts as settled.
//
// Threading:  thread-safe.
// Cost:       nothing while puts are answered in time. It remembers kMostLost puts; for further
//             ones it knows only when they were lost, and then every purge waits.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/lock.h"
#include "stemma/tier/tier.h"

namespace stemma::tier::redis {

class UnsettledPuts {
 public:
  static constexpr size_t kMostLost = 65'536;

  explicit UnsettledPuts(uint64_t settle_ns) : settle_ns_(settle_ns) {}

  // Its item ends; its answer is still to come.
  void set_adrift(const EntryKey& key) noexcept;
  // An adrift put has its answer.
  void settle(const EntryKey& key) noexcept;
  // Its connection broke. `adrift`: set_adrift() was called for it.
  void lose(const EntryKey& key, bool adrift, uint64_t now_ns) noexcept;
  // Waits until no put that the purge could take is unsettled, or until this time. Returns an empty
  // string, or why the purge cannot be complete.
  std::string wait(const Purge& what, uint64_t until_ns);

 private:
  bool is_adrift(const Purge& what) const STEMMA_REQUIRES(mutex_);
  uint64_t settled_at(const Purge& what) const noexcept
      STEMMA_REQUIRES(mutex_);  // 0: nothing was lost.

  const uint64_t settle_ns_;
  base::WaitMutex mutex_;  // Guards everything below.
  base::Condition changed_;
  std::unordered_map<EntryKey, uint32_t> adrift_ STEMMA_GUARDED_BY(mutex_);
  uint32_t adrift_unnamed_ STEMMA_GUARDED_BY(mutex_) = 0;  // Those without memory for a name.
  std::deque<std::pair<uint64_t, EntryKey>> lost_
      STEMMA_GUARDED_BY(mutex_);  // When, and which; the oldest first.
  uint64_t lost_unnamed_ns_ STEMMA_GUARDED_BY(mutex_) = 0;
};

}  // namespace stemma::tier::redis
