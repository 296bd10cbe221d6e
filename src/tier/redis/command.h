// One command to a node, for one item of a batch or for the tier itself.
#pragma once

#include <cstdint>
#include <memory>

#include "base/relaxed.h"
#include "stemma/tier/tier.h"

namespace stemma::tier::redis {

// One thread counts, others read.
inline void count(uint64_t& word, uint64_t by = 1) noexcept {
  base::store_relaxed(word, word + by);
}

// A batch that the tier's thread has taken. It lives until its last item has ended; until then each
// item has exactly one Command, in one queue or in flight.
struct Job {
  std::shared_ptr<TierBatch> batch;
  uint64_t number = 0;  // In the order of submit().
  size_t left = 0;      // Items not ended.
};

enum class Verb : uint8_t {
  // For an item.
  probe,     // GETRANGE of the header, before a put.
  renew,     // EXPIRE, for an entry already there, if entries have a time to live.
  set,       // SET
  get,       // GET
  contains,  // STRLEN
  remove,    // UNLINK
  touch,     // TOUCH; renew if entries have a time to live.
  // For the tier.
  sweep,   // UNLINK, of a value that failed the checks.
  asking,  // ASKING, just before a command that ASK sent here.
  slots,   // CLUSTER SLOTS
  auth,    // AUTH
  select,  // SELECT
  ping,    // PING
  scan,    // SCAN from `cursor`; if key.group is not 0, of names with the owner of `key`.
  memory,  // INFO memory: the server's limit, if any, and what it does when full.
};

constexpr bool is_bulk(Verb verb) noexcept { return verb == Verb::get || verb == Verb::set; }

struct Command {
  Verb verb = Verb::ping;
  uint8_t tries = 0;    // Lost connections and answers that meant "later".
  uint8_t hops = 0;     // Redirections followed.
  bool asking = false;  // ASK sent it here.
  bool old = false;     // remove, scan: names of the previous version.
  uint32_t item = 0;
  Job* job = nullptr;  // nullptr: for the tier, or its item has ended.
  EntryKey key;
  uint64_t cursor = 0;  // Of a scan.

  TierItem& of_item() const noexcept { return job->batch->items()[item]; }
};

}  // namespace stemma::tier::redis
