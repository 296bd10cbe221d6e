// The Store is all state of a PagedCache except its lock: the books, and the parts that change
// them. This is where the parts meet; each has its own header. From the bottom:
//
//   books      what is known, and answers about it
//   blocks     drafts, pins and the end of blocks        anchors    checkpoints and logits
//   cells      cells come and go                         holds      who holds which path
//   census     what could be evicted                     evictor    frees what the policy chooses
//   room       makes room for a request                  pins       what callers pinned
//   forgetter  forgetting on request                     reclaimer  evicts ahead of need
//
// Threading:  one thread at a time (the lock of Core). Any thread may use what Books says.
#pragma once

#include <cstdint>

#include "cache/books/books.h"
#include "cache/store/anchors.h"
#include "cache/store/blocks.h"
#include "cache/store/cells.h"
#include "cache/store/census.h"
#include "cache/store/evictor.h"
#include "cache/store/forgetter.h"
#include "cache/store/holds.h"
#include "cache/store/reclaimer.h"
#include "cache/store/room.h"
#include "cache/store/timed_pins.h"

namespace stemma::cache {

struct Store {
  explicit Store(const Options& options) : books(options) {}
  // Requires checked options. Returns false if out of memory.
  [[nodiscard]] bool create() {
    if (!books.create()) return false;
    cells.create();
    return true;
  }
  // Begins a section under the lock: sets its time and ends pins whose deadline has passed, so that
  // nothing a section has found disappears in the middle.
  void begin_section(uint64_t now_ns) {
    books.now_ns = std::max(books.now_ns, now_ns);
    if (books.pins.is_due(books.now_ns)) pins.expire();
  }
  // True if nothing is cached, leased or pinned.
  bool empty() const noexcept { return books.empty() && holds.live().empty(); }
  uint64_t bytes() const noexcept {
    return sizeof(*this) + books.bytes() + holds.bytes() + census.bytes();
  }
  void fill_stats(Stats& stats);
  void check_invariants() const;  // In store_check.cc.

  Books books;
  Blocks blocks{books};
  Anchors anchors{books, blocks};
  Cells cells{books, blocks, anchors};
  Holds holds{books, cells};
  Census census{books, blocks, holds};
  Evictor evictor{books, anchors, cells};
  Room room{books, blocks, anchors, cells, census, evictor};
  TimedPins pins{books, blocks, holds, census};
  Forgetter forgetter{books, cells, pins};
  Reclaimer reclaimer{books, anchors, evictor};
};

}  // namespace stemma::cache
