// Drainer: does the work that can wait for a quiet moment. It saves what is in the queue, oldest
// first, clears sequences that could not be cleared before, drops idle sequences that are saved
// now, and moves prompts to the cells of these.
//
// Invariant:  it begins nothing beyond its limits; what it has begun goes on with the next call.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine is called.
// Ownership:  the books and the other parts outlive it.
// Cost:       as long as the limits allow. Nothing throws.
#pragma once

#include <cstdint>

#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/idle_dropper.h"
#include "sequence/notifier.h"
#include "sequence/relocator.h"

namespace stemma::sequence {

class Drainer {
 public:
  Drainer(Books& books, Notifier& notifier, Capturer& capturer, Clearer& clearer, IdleDropper& idle,
          Relocator& relocator) noexcept
      : books_(books),
        notifier_(notifier),
        capturer_(capturer),
        clearer_(clearer),
        idle_(idle),
        relocator_(relocator) {}

  // As SequenceCache::drain().
  Drained drain(const DrainLimits& limits);

 private:
  void drain(const DrainLimits& limits, Drained& drained);
  // Begins the oldest capture that may begin, after `passed_over` ones that may not. Returns false
  // if none may.
  bool start_next(const DrainLimits& limits, Drained& drained, uint32_t& passed_over);

  Books& books_;
  Notifier& notifier_;
  Capturer& capturer_;
  Clearer& clearer_;
  IdleDropper& idle_;
  Relocator& relocator_;
};

}  // namespace stemma::sequence
