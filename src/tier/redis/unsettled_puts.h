// UnsettledPuts: puts that a server may still carry out although nobody waits for them any more.
//
//   sent --its time is over--> adrift --the server answers--> settled
//     '------------------------'--the connection breaks--> lost --`settle_ns` later--> settled
//
// A command that was sent whole cannot be taken back. While its connection stands, the answer tells
// when it was carried out. Once the connection is broken nobody tells; but a server that answers
// others reads what it has received within moments, so after a while it has.
//
// Threading:  thread-safe.
// Cost:       nothing while puts are answered in time. It remembers kMostLost puts; of more than that
//             it knows only when they were lost, and then every purge waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "stemma/tier.h"

namespace stemma::tier::redis {

class UnsettledPuts {
 public:
  static constexpr size_t kMostLost = 65'536;

  explicit UnsettledPuts(uint64_t settle_ns) : settle_ns_(settle_ns) {}

  // Its item ends; its answer is still to come.
  void set_adrift(const EntryKey& key) noexcept;
  // One that was adrift has its answer.
  void settle(const EntryKey& key) noexcept;
  // Its connection broke. `adrift`: set_adrift() was called for it.
  void lose(const EntryKey& key, bool adrift, uint64_t now_ns) noexcept;
  // Waits until no put is unsettled that a purge could take, or until this time. Empty: none is.
  // Otherwise why the purge cannot be complete.
  std::string wait(const Purge& what, uint64_t until_ns);

 private:
  bool is_adrift(const Purge& what) const;
  uint64_t settled_at(const Purge& what) const noexcept;  // 0: nothing was lost.

  const uint64_t settle_ns_;
  std::mutex mutex_;  // Guards everything below.
  std::condition_variable changed_;
  std::unordered_map<EntryKey, uint32_t> adrift_;
  uint32_t adrift_unnamed_ = 0;                     // There was no memory for their names.
  std::deque<std::pair<uint64_t, EntryKey>> lost_;  // When, and which; the oldest first.
  uint64_t lost_unnamed_ns_ = 0;
};

}  // namespace stemma::tier::redis
