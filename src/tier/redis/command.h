// What is asked of a node: one command, for one item of a batch or for the tier itself.
#pragma once

#include <cstdint>
#include <memory>

#include "base/relaxed.h"
#include "stemma/tier.h"

namespace stemma::tier::redis {

// One thread counts, others look.
inline void count(uint64_t& word, uint64_t by = 1) noexcept {
  base::store_relaxed(word, word + by);
}

// A batch that the tier's thread has taken up. It lives until its last item has ended; each of its items
// has exactly one Command until then, in one queue or in flight.
struct Job {
  std::shared_ptr<TierBatch> batch;
  uint64_t number = 0;  // In the order of submit().
  size_t left = 0;      // Items that have not ended.
};

enum class Verb : uint8_t {
  // Of an item.
  probe,     // GETRANGE of the header, before a put.
  renew,     // EXPIRE, of what was there, where entries have a time to live.
  set,       // SET
  get,       // GET
  contains,  // STRLEN
  remove,    // UNLINK
  touch,     // TOUCH; renew where entries have a time to live.
  // Of the tier.
  sweep,   // UNLINK, of what was not believed.
  asking,  // ASKING, just before a command that ASK sent here.
  slots,   // CLUSTER SLOTS
  auth,    // AUTH
  select,  // SELECT
  ping,    // PING
  scan,  // SCAN from `cursor` on; where key.group is not 0, of names with the same owner as `key`.
  memory,  // INFO memory: whether the server has a limit, and what it does when it is full.
};

constexpr bool is_bulk(Verb verb) noexcept { return verb == Verb::get || verb == Verb::set; }

struct Command {
  Verb verb = Verb::ping;
  uint8_t tries = 0;    // Lost connections and answers that meant "later".
  uint8_t hops = 0;     // Redirections that were followed.
  bool asking = false;  // It was sent here by ASK.
  bool old = false;     // remove, scan: of names of the version before.
  uint32_t item = 0;
  Job* job = nullptr;  // nullptr: of the tier, or its item has ended.
  EntryKey key;
  uint64_t cursor = 0;  // Of a scan.

  TierItem& of_item() const noexcept { return job->batch->items()[item]; }
};

}  // namespace stemma::tier::redis
