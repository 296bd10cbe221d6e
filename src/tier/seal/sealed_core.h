// SealedCore: the queue and the threads of a sealed tier.
//
// A batch is cut into parts. Each part goes this way, and ends its own items:
//
//   put    queued --(staging memory is free)--> sealed by a thread --> inner tier --> ended there
//   get    queued --(staging memory is free)--> inner tier --> opened by a thread, ended
//   other  queued --> inner tier --> ended there
//
// If keys and staging memory are at hand, nothing but a large put queues: submit() hands it to the
// inner tier. It seals small puts itself, because waking a thread takes longer.
//
// Invariant:  a part is in one queue, or with one thread, or with the inner tier. Threads never
//             wait for memory: a part leaves its queue when there is some.
// Threading:  thread-safe. Makes no outside call while holding the lock.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "stemma/tier/sealed_tier.h"
#include "tier/counters.h"
#include "tier/seal/cipher.h"
#include "tier/seal/staging.h"

namespace stemma::tier::seal {

class SealedCore final : public Tier {
 public:
  SealedCore(std::unique_ptr<Tier> inner, const SealedTierOptions& options);
  ~SealedCore() override;
  SealedCore(const SealedCore&) = delete;
  SealedCore& operator=(const SealedCore&) = delete;

  // Error: out_of_memory, unsupported. Requires: called once, before anything else.
  Result<void> start();

  const TierTraits& traits() const noexcept override { return traits_; }
  void submit(std::shared_ptr<TierBatch> batch) override;
  TierStats stats() const override;
  bool flush(uint64_t until_ns) override;
  Purged purge(const Purge& what, uint64_t until_ns) override;

 private:
  // A batch from a caller.
  struct Work {
    std::shared_ptr<TierBatch> outer;
    uint64_t number = 0;
    size_t parts = 1;
    // The items' names in the inner tier, if the batch was cut and the order must be reported. Each
    // part fills in its own; items that never reached the inner tier have none.
    std::vector<EntryKey> names;
    std::atomic<size_t> settled{0};  // Parts whose outcomes are known.
    std::atomic<size_t> ended{0};    // Parts whose items have ended.
  };
  // One item's part in sealing or asking.
  struct Slot {
    size_t item = 0;  // In the caller's batch.
    KeyRing::Key key;
    TierOutcome outcome = TierOutcome::pending;  // If not pending, it did not reach the inner tier.
    size_t inner = 0;                            // Its item in the inner batch.
    uint64_t offset = 0;                         // Of its bytes in staging memory.
  };
  struct Part {
    std::shared_ptr<Work> work;
    std::vector<Slot> slots;
    uint64_t staged_bytes = 0;
    Staging::Piece memory;
    std::shared_ptr<TierBatch> inner;  // Set while the inner tier has it.
    std::list<Part*>::iterator in_flight;
  };
  using PartPtr = std::shared_ptr<Part>;
  enum class Queue : uint8_t { puts, gets, others };

  // submit()
  std::vector<PartPtr> cut(const std::shared_ptr<Work>& work) const;
  uint64_t staged_bytes(const TierItem& item, TierOp op) const noexcept;
  bool try_at_once(const PartPtr& part);
  bool take_memory_at_once(Part& part, TierOp op);
  std::unique_ptr<Cipher> take_spare(const Part& part);
  void give_back(std::unique_ptr<Cipher> spare);
  bool admit(const std::shared_ptr<TierBatch>& batch, Work& work, TierOutcome& refusal);

  // Waits until all earlier work has ended. False: not yet.
  bool wait_for_earlier(uint64_t until_ns);

  // Threads.
  void work(Cipher& cipher);
  PartPtr next(bool& opens) STEMMA_REQUIRES(mutex_);
  PartPtr take(Queue queue) STEMMA_REQUIRES(mutex_);
  void sweep() STEMMA_REQUIRES(mutex_);  // Gives up the lock now and then.

  // The way of a part: sealed_parts.cc.
  void begin(const PartPtr& part, Cipher& cipher);
  bool find_keys(Part& part, bool only_held);
  void seal_slots(Part& part, Cipher& cipher);
  bool fill_inner(Part& part);
  void hand_over(const PartPtr& part);
  void answered(const PartPtr& part);
  void open(const PartPtr& part, Cipher& cipher);
  void settle(const PartPtr& part);
  void give_up(const PartPtr& part, TierOutcome outcome);
  void end_items(const PartPtr& part);
  void keep_order(const Work& work);
  void remove_corrupt(const Part& part);
  void finish(Work& work);
  bool enter();
  void leave();

  const SealedTierOptions options_;
  TierTraits traits_;
  std::unique_ptr<Tier> inner_;
  Counters counters_;
  std::array<Staging, 2> staging_;  // Of puts, of gets.

  mutable base::WaitMutex mutex_;
  base::Condition wake_;     // Threads: there is something to do.
  base::Condition changed_;  // flush() and the destructor.
  std::array<std::deque<PartPtr>, 3> queues_ STEMMA_GUARDED_BY(mutex_);
  std::deque<PartPtr> to_open_ STEMMA_GUARDED_BY(mutex_);
  std::list<Part*> in_flight_ STEMMA_GUARDED_BY(mutex_);     // With the inner tier.
  std::set<uint64_t> unfinished_ STEMMA_GUARDED_BY(mutex_);  // Numbers of batches.
  BusyTime reading_ STEMMA_GUARDED_BY(mutex_), writing_ STEMMA_GUARDED_BY(mutex_);
  uint64_t next_number_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t items_ STEMMA_GUARDED_BY(mutex_) = 0;     // Not ended yet.
  uint64_t inside_ STEMMA_GUARDED_BY(mutex_) = 0;    // Threads that may call the inner tier.
  uint32_t watching_ STEMMA_GUARDED_BY(mutex_) = 0;  // Threads that wake up soon, to sweep().
  bool gets_first_ STEMMA_GUARDED_BY(mutex_) = true;
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false, stopping_ STEMMA_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Cipher> spare_ STEMMA_GUARDED_BY(mutex_);  // For submit(); null while in use.
  std::vector<std::unique_ptr<Cipher>> ciphers_;
  std::vector<std::thread> threads_;
};

}  // namespace stemma::tier::seal
