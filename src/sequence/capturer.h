// Capturer: saves what sequences hold.
//
// A capture is a CaptureRun: it first saves the state or checkpoint at its end, then reads segment
// by segment, and ends when all of it is in the store. It is carried out in one go (capture()), or
// in steps between the passes of the engine (begin(), go_on(), end()). Only one capture at a time
// runs in steps; capture() may run beside it. If a request waits for a capture, only the reading is
// done at once: threads cut what was read, and collect_left() commits it later.
//
// Decide, do, settle: room in the stores is reserved under the lock, the engine reads without it,
// and what was read is committed under the lock.
//
// Invariant:  the sequence held everything that is saved, complete, under the words it is saved
//             for. When the sequence loses positions (will_lose), the capture in steps ends there.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine and the listener are called.
// Ownership:  owns the captures that have begun. The books and the notifier outlive it.
// Cost:       one call of the engine for each range that is not saved yet, and one for an anchor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sequence/books.h"
#include "sequence/notifier.h"
#include "sequence/segment_writer.h"

namespace stemma::sequence {

// With this deadline go_on() continues until it has to wait for threads.
inline constexpr uint64_t kNoDeadline = ~uint64_t{0};

// A capture that has begun: it saves what the sequence held at that time. It has its own copy of
// the words, so it can outlive what the sequence holds.
struct CaptureRun {
  CaptureRun(SegmentStore* store, const Scope& of) : scope(of), writer(store) {}
  uint32_t sequence = kNoSequence;
  uint32_t depth = 0;
  uint32_t segments_to = 0;  // [0, segments_to) goes into segments.
  uint64_t generation = 0;   // The sequence's generation when the capture began.
  Scope scope;
  Text text;
  OwnRetain retain;
  UseMoments use;  // For its segments.
  SegmentWriter writer;
  bool set_aside = false;  // Ended early; the rest waits in the queue again.
  bool has_anchor = false;
  Captured anchor;  // The state or checkpoint at its end.
};

class Capturer {
 public:
  Capturer(Books& books, Notifier& notifier) noexcept : books_(books), notifier_(notifier) {}

  // ---- At once ----------------------------------------------------------------------------------

  // Saves all that waits in a sequence, now. Requires that something waits there.
  Captured capture(uint32_t sequence);
  // The same for a request that needs the place. If part_will_do(), it reads at most one step, and
  // returns what it has read.
  Captured capture_in_a_step(uint32_t sequence);
  // Saves what will be lost when the sequence is cut to `kept`, if that is worth the wait.
  // Does nothing if nothing waits there. Returns the bytes.
  uint64_t save_before_cut(uint32_t sequence, uint32_t kept);
  // Saves the sequence's checkpoint, or state, at this depth.
  Captured capture_anchor(uint32_t sequence, uint32_t depth, const Touch& touch);
  // Commits captures that have been read, as far as threads have cut them, until this time. Returns
  // false if something is left to commit.
  bool collect_left(uint64_t until_ns);
  // How many captures have been read and are not over.
  uint32_t left() const noexcept { return static_cast<uint32_t>(left_.size()); }
  // Waits for the threads that cut these captures. Requires left() != 0.
  void wait_for_left() { wait_for(*left_.front()); }
  // Counts what became of a capture.
  void count(const Captured& captured) noexcept;

  // ---- In steps ---------------------------------------------------------------------------------

  // The capture that runs in steps, or null.
  const CaptureRun* run() const noexcept { return run_.get(); }
  // Whether it still has to read from this sequence.
  bool is_reading(uint32_t sequence) const noexcept {
    return run_ != nullptr && run_->sequence == sequence && run_->writer.reads();
  }
  // Begins to save what waits in a sequence. If there was nothing to save, run() is null afterwards
  // and this is counted. Requires run() == nullptr.
  void begin(uint32_t sequence);
  // Reads one more range, and commits what has arrived, until this time. Returns false if it has to
  // wait for threads or for a buffer. Requires run() != nullptr.
  bool go_on(uint64_t until_ns);
  // Waits for these threads, or for the buffer, without the lock. Requires run() != nullptr.
  void wait();
  // Settles and counts it. Requires that its writer is over().
  Captured end();
  // Whether the next segment takes longer to save than to compute. Requires run() != nullptr.
  bool next_is_dear();
  // Ends the capture with what was read; the rest waits in the queue again. Requires run() !=
  // nullptr.
  void set_aside() noexcept;
  // The same, and waits until what was read is saved.
  void pause();
  // If the capture reads from this sequence, which is about to be emptied: reads one more step, or
  // all that is left.
  void read_on(uint32_t sequence);
  // The sequence will hold nothing from n on: a capture of it ends there.
  void will_lose(uint32_t sequence, uint32_t n) noexcept;
  // Drops the capture in steps without calling the engine, which may be gone afterwards.
  void stop() noexcept;

 private:
  std::unique_ptr<CaptureRun> start(uint32_t sequence);
  // Reads what waits in a sequence, and leaves the rest of the work to the threads.
  Captured read_now(uint32_t sequence);
  // Null if there is no memory.
  std::unique_ptr<CaptureRun> make_run(uint32_t sequence, uint32_t depth);
  bool go_on(CaptureRun& run, uint64_t until_ns);
  void wait_for(CaptureRun& run);
  Captured end(CaptureRun& run);
  Captured save_anchor(uint32_t sequence, Part part, StateStore& store, uint32_t depth,
                       const Touch& touch);

  Books& books_;
  Notifier& notifier_;
  std::unique_ptr<CaptureRun> run_;
  std::vector<std::unique_ptr<CaptureRun>> left_;  // Read, and being cut. In the order of reading.
};

}  // namespace stemma::sequence
