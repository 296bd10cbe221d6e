// Shared is what a PagedCache and its leases have in common: the Store, its one lock, and the pool
// of lease records. Every public call ends here; this is where locks live.
//
// Decide, do, settle: walks, hashing, copies, fences and callbacks run without the lock; each
// section under it is short. The lock of the record pool is taken last (docs/concurrency.md).
//
// Prepare, then change: memory is taken before the first change of a section, so std::bad_alloc may
// leave any call of the first two lists below that returns a Result, and nothing has changed then.
// PagedCache and Lease turn it into out_of_memory. What ends a use (release, poll, unpin, drop_scope,
// reset, evict, ...) needs no memory.
//
// Threading:  thread-safe; a LeaseRecord is used by one thread at a time.
// Ownership:  lives as long as its PagedCache, any Lease or any Reclaimed: whichever goes last, known
//             under the lock, deletes it. (A reference count of its own would be one more line that all
//             threads write.)
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cache/lease_record.h"
#include "cache/matcher.h"
#include "cache/store.h"
#include "stemma/cache.h"
#include "stemma/log.h"

namespace stemma::cache {

class Shared {
 public:
  explicit Shared(const Options& options);
  [[nodiscard]] bool create();
  // The PagedCache is gone: nothing but leases will call from now on. Deletes this, now or with the
  // last lease.
  void disown();

  const Options& options() const noexcept { return options_; }

  // ---- PagedCache (shared.cc, forget.cc, dump.cc) ----
  Result<Report> lookup(const Scope& scope, const Prompt& prompt, const LookupOptions& options);
  Result<LeaseRecord*> lease(const Scope& scope, const Prompt& prompt, const LeaseOptions& options);
  Result<PinResult> pin(const Scope& scope, const Prompt& prompt, uint64_t ttl_ns);
  Result<void> unpin(PinId id);
  void end_session(SessionId session);
  Result<void> set_quota(TenantId tenant, uint64_t bytes);
  uint64_t tenant_bytes(TenantId tenant);
  std::optional<TenantId> tenant_of(const Scope& scope);
  Result<uint32_t> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep);
  uint32_t drop_scope(const Scope& scope);
  Result<void> reset(OnBusy on_busy);
  uint32_t evict(uint32_t blocks);
  Reclaimed reclaim(uint32_t positions, uint32_t most);
  void end_reclaim(std::span<const Reclaimed::Block> blocks) noexcept;  // Of one Reclaimed.
  void note_evicted(std::vector<BlockId>* into);
  bool holds(BlockId block);
  Stats stats();
  Result<std::vector<uint32_t>> branch_points(const Scope& scope, const Prompt& prompt);
  Result<std::vector<CachedPath>> contents();
  uint64_t events(uint64_t from, uint32_t limit, std::vector<Event>& out);
  EventDump event_dump();
  uint32_t poll();
  std::vector<uint8_t> dump();
  Result<void> load(std::span<const uint8_t> bytes);
  void check_invariants();

  // ---- Lease (lease_ops.cc) ----
  Result<void> copies_done(LeaseRecord& lease);
  Result<void> copies_failed(LeaseRecord& lease);
  Result<void> run_copies(LeaseRecord& lease);
  Result<uint32_t> shrink_to(LeaseRecord& lease, uint32_t n);
  Result<void> extend(LeaseRecord& lease, std::span<const Token> tokens);
  Result<void> reserve(LeaseRecord& lease, uint32_t positions);
  Result<Commit> commit(LeaseRecord& lease, uint32_t n);
  uint32_t adopt_canonical(LeaseRecord& lease);
  Result<LeaseRecord*> fork(LeaseRecord& lease);
  Result<void> rewind(LeaseRecord& lease, uint32_t n);
  Result<BlockId> draft_checkpoint(LeaseRecord& lease, GroupIndex group);
  Result<void> commit_checkpoint(LeaseRecord& lease, GroupIndex group, uint32_t depth);
  Result<Checkpoint> hold_checkpoint(LeaseRecord& lease, GroupIndex group, uint32_t at_most);
  Result<void> attach_logits(LeaseRecord& lease, uint32_t depth, std::span<const float> logits);
  Result<void> release(LeaseRecord* lease, const ReleaseOptions& options, bool publish_tail);

  uint32_t capacity(const LeaseRecord& lease) const noexcept;
  uint32_t block_count(const LeaseRecord& lease, GroupIndex group) const noexcept;
  Result<uint32_t> block_table(const LeaseRecord& lease, GroupIndex group, std::span<BlockId> out,
                               BlockId pad) const;
  Result<uint32_t> draft_table(const LeaseRecord& lease, GroupIndex group, std::span<BlockId> out,
                               BlockId pad) const;
  Result<void> slot_mapping(const LeaseRecord& lease, GroupIndex group, uint32_t begin,
                            std::span<int64_t> out, int64_t pad) const;

 private:
  // The lock, with the time read before it was taken: one reading serves the whole section, and
  // pins end at its start, so that nothing that a section has found goes away in its middle.
  class STEMMA_SCOPED_CAPABILITY Section {
   public:
    explicit Section(Shared& shared) noexcept STEMMA_ACQUIRE(shared.mutex_) : shared_(shared) {
      const uint64_t now_ns = shared.clock_->now_ns();
      shared_.mutex_.lock();
      shared_.store_.begin_section(now_ns);
    }
    ~Section() STEMMA_RELEASE() { shared_.mutex_.unlock(); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    Shared& shared_;
  };

  // A prompt made ready to be looked for.
  struct Query {
    std::span<const uint32_t> words;
    uint32_t births = 0;
    CellIndex root_guess = kNoCell;
    tree::WalkResult walk;
  };

  // A record lent for one call.
  class Borrowed {
   public:
    explicit Borrowed(Shared& shared) : shared_(shared), record_(shared.acquire()) {}
    ~Borrowed() {
      if (record_ != nullptr) shared_.recycle(record_);
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    LeaseRecord& operator*() const noexcept { return *record_; }
    LeaseRecord* operator->() const noexcept { return record_; }
    // It stays with the caller.
    LeaseRecord* keep() noexcept { return std::exchange(record_, nullptr); }

   private:
    Shared& shared_;
    LeaseRecord* record_;
  };

  // Validates the prompt and finds its units; words are the caller's tokens unless it has media.
  // Takes all memory that following the prompt needs.
  Result<void> read_prompt(const Prompt& prompt, LeaseRecord& record, Query& query);
  // Follows the words without the lock, into record.cells, and sees to it that they are tokens.
  Result<void> walk(const Scope& scope, const Prompt& prompt, bool read, LeaseRecord& record,
                    Query& query);
  // All of the above, for prompts that only look.
  Result<void> find_path(const Scope& scope, const Prompt& prompt, LeaseRecord& record,
                         Query& query) STEMMA_EXCLUDES(mutex_);
  // The truth about a walk: drops what was not really there, goes on where it stopped.
  Path judge(CellIndex root, LeaseRecord& record, const Query& query) STEMMA_REQUIRES(mutex_);
  // Words of the prompt's media by number; unknown ones get a word nothing has.
  // True when that changed them.
  bool number_media(CellIndex root, LeaseRecord& record) STEMMA_REQUIRES(mutex_);
  // judge(), for those who only look and so hold no reference to their media.
  Path judge_again(CellIndex root, LeaseRecord& record, Query& query) STEMMA_REQUIRES(mutex_);
  Result<void> intern_media(CellIndex root, LeaseRecord& record) STEMMA_REQUIRES(mutex_);

  // Finds or makes the scope's root for a record that has none; holds it, when the lock is to be left
  // before the record has a tip; and undoes that when no lease came of it.
  Result<void> open(const Scope& scope, const LeaseOptions& options, LeaseRecord& record)
      STEMMA_REQUIRES(mutex_);
  // Opens and holds the root, and gives the prompt's media items their numbers.
  Result<void> open_with_media(const Scope& scope, const LeaseOptions& options, LeaseRecord& record)
      STEMMA_EXCLUDES(mutex_);
  // No lease comes of this record: leaves its root and counts the refusal.
  Error refuse_lease(LeaseRecord& record, const LeaseOptions& options, const Error& error)
      STEMMA_REQUIRES(mutex_);
  Result<void> check_fill(const LeaseRecord& record, uint32_t fill_to) const;
  void hold_root(LeaseRecord& record) STEMMA_REQUIRES(mutex_);
  void leave(LeaseRecord& record) STEMMA_REQUIRES(mutex_);
  // Makes a record that has a root a lease. Error: out_of_blocks, over_quota, out_of_memory.
  // On the last try it gives up a part-block copy for which there is no room.
  Result<void> begin(LeaseRecord& record, const Query& query, const LeaseOptions& options,
                     bool read, bool last_try) STEMMA_REQUIRES(mutex_);

  // Where a lease is to stand: positions [0, n) from `path`, room for `capacity` positions. Where `fill` is
  // not 0: whatever `path` has of [0, fill), and room for the rest of what fill needs.
  struct Stand {
    Path path;
    uint32_t n = 0;
    uint32_t capacity = 0;
    uint32_t fill = 0;
    // The block that a part is to be copied from becomes the lease's own instead.
    bool take_over = false;
  };
  // Whether what was to be copied, lease.next_sources, could as well be evicted.
  bool can_take_over(const LeaseRecord& lease, const Stand& stand) const STEMMA_REQUIRES(mutex_);
  // Evicts the cell, drafts its blocks again, for lease.next_pages, and takes them out of the sources.
  void take_over(LeaseRecord& lease, CellIndex cell) STEMMA_REQUIRES(mutex_);
  // Moves a lease to a stand; all or nothing. Its words must be set by the caller afterwards. Throws
  // std::bad_alloc before it changes anything. The path may be in lease.cells if that has room for a
  // cell more than the words fill.
  Result<void> take_stand(LeaseRecord& lease, const Stand& stand) STEMMA_REQUIRES(mutex_);
  // The tree's own cells of a lease's published path, into lease.path.
  Path own_path(LeaseRecord& lease) STEMMA_REQUIRES(mutex_);
  // Moves a lease back to n <= published positions, with `length` words and room for `capacity`.
  Result<void> step_back(LeaseRecord& lease, uint32_t n, uint32_t length, uint32_t capacity)
      STEMMA_REQUIRES(mutex_);
  // After so many refusals: is there nothing left that a fence could give back? Another thread may
  // be asking the fences at this moment, so it is worth more than one try.
  bool give_up(uint32_t tries) const noexcept {
    return tries == 3 || fenced_count_.load(std::memory_order_relaxed) == 0;
  }
  bool shorten_copies(LeaseRecord& lease, uint32_t n) STEMMA_REQUIRES(mutex_);
  Result<void> grow(LeaseRecord& lease, uint32_t capacity) STEMMA_EXCLUDES(mutex_);
  Need growth(const LeaseRecord& lease, uint32_t capacity) const;
  // What a lease that finds nothing cached needs.
  Need first_need(const LeaseRecord& record, const LeaseOptions& options) const;
  void prepare_growth(LeaseRecord& lease, uint32_t capacity);
  void draft_up_to(LeaseRecord& lease, uint32_t capacity) STEMMA_REQUIRES(mutex_);
  void release_source(LeaseRecord& lease, const CopySource& source) STEMMA_REQUIRES(mutex_);
  void release_sources(LeaseRecord& lease) STEMMA_REQUIRES(mutex_);
  // Counts a refusal on its way to the caller.
  Error refuse(const Error& error) STEMMA_REQUIRES(mutex_) {
    if (error.code() == Errc::over_quota) ++store_.tally.quota_refusals;
    return error;
  }
  // Whether the lease let go of blocks that a window group needs to serve n.
  bool passed_window(const LeaseRecord& lease, GroupIndex g, uint32_t n) const;
  void advance_windows(LeaseRecord& lease) STEMMA_REQUIRES(mutex_);
  // Enters the lease's own blocks at those of the first `cells` cells that could be found already.
  void fill_holes(LeaseRecord& lease, uint32_t cells) STEMMA_REQUIRES(mutex_);
  // The same for one group at one cell, where a block of it ends and `index` cells come before.
  void enter_own(LeaseRecord& lease, GroupIndex group, CellIndex cell, uint32_t index)
      STEMMA_REQUIRES(mutex_);
  // Which block a group's entry names, wherever it stands. Error: invalid_argument, out_of_range.
  Result<std::span<const uint32_t>> entries(const LeaseRecord& lease, GroupIndex group,
                                            size_t room) const;
  // How many words a tail would have now; 0: none is to be published.
  uint32_t tail_words(const LeaseRecord& lease) const;
  void publish_tail(LeaseRecord& lease, uint32_t words) STEMMA_REQUIRES(mutex_);
  // Enters the lease's own blocks that end in the middle, as copy sources, at `home`.
  void attach_part_blocks(LeaseRecord& lease, CellIndex home, uint32_t depth_cells)
      STEMMA_REQUIRES(mutex_);
  void settle(LeaseRecord& lease) STEMMA_REQUIRES(mutex_);
  void count(LeaseRecord& lease) STEMMA_REQUIRES(mutex_);
  void find_media_to_process(LeaseRecord& lease);
  // Items that do not end within n positions are no longer the lease's.
  void forget_media_after(LeaseRecord& lease, uint32_t n);
  Result<CellIndex> anchor_at(LeaseRecord& lease, uint32_t depth) STEMMA_REQUIRES(mutex_);
  void chain_keys(LeaseRecord& lease, uint32_t first_cell, uint32_t cells);
  uint32_t page_at(const LeaseRecord& lease, GroupIndex group, uint32_t block) const noexcept;

  // A clean record, and what is done with a used one. A record is cleaned when it is taken, so
  // that giving it back is short enough to be done under the lock.
  LeaseRecord* acquire();
  void recycle(LeaseRecord* record);
  LeaseRecord* take_record();
  // Whether neither the PagedCache nor a Lease nor a Reclaimed is left. Leases that wait for a fence do not
  // count.
  bool unused() const noexcept STEMMA_REQUIRES(mutex_) {
    return !owned_ && reclaims_ == 0 &&
           store_.live().size() == fenced_count_.load(std::memory_order_relaxed);
  }

  Options options_;
  const Clock* clock_;
  const uint64_t record_allowance_;
  alignas(64) base::Mutex mutex_;
  bool owned_ STEMMA_GUARDED_BY(mutex_) = true;
  uint32_t reclaims_ STEMMA_GUARDED_BY(mutex_) = 0;  // Alive.
  Store store_ STEMMA_GUARDED_BY(mutex_);
  const Store& view_;  // For what may be read without the lock.
  LeaseRecord* fenced_ STEMMA_GUARDED_BY(mutex_) = nullptr;  // Linked by next_fenced, oldest first.
  LeaseRecord** fenced_end_ STEMMA_GUARDED_BY(mutex_) = &fenced_;
  std::atomic<uint32_t> fenced_count_{0};  // Those another thread is just asking included.

  // Records not in use: a few in slots that threads take by exchange, the rest under a lock.
  static constexpr uint32_t kSlots = 16;
  struct alignas(64) Slot {
    std::atomic<LeaseRecord*> record{nullptr};
  };
  std::array<Slot, kSlots> slots_;
  std::atomic<uint64_t> record_bytes_{0};  // As of each record's last return.
  base::Mutex records_mutex_;
  std::vector<LeaseRecord*> free_records_ STEMMA_GUARDED_BY(records_mutex_);
  std::vector<std::unique_ptr<LeaseRecord>> records_ STEMMA_GUARDED_BY(records_mutex_);
};

// What records of ended leases may keep: with a budget, its part of it.
uint64_t record_allowance(const Options& options);

// Turns memory that ran out below a public call into its answer; whoever threw had changed nothing.
template <class Call>
auto guarded(Call&& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "the system gave no memory for this call");
  }
}

// Logs what `line` makes; nothing when there is no memory for it.
template <class Line>
void log_line(LogLevel level, Line&& line) noexcept {
  try {
    log(level, line());
  } catch (const std::bad_alloc&) {
  }
}

// Checks what a caller says about retention. Error: invalid_argument.
Result<void> check_retain(const Retain& retain);
void set_retain(LeaseRecord& lease, const Retain& retain);
// Checks Options and fills in what was left to be chosen. Error: invalid_argument.
Result<Options> check_options(const Options& options);

}  // namespace stemma::cache
