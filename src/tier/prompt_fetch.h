// PromptFetch: a prompt that SequenceTiers looks for, and the result; and the inside of
// SequenceTiers, which works on them.
//
// Threading:  thread-safe as Fetch says. The marked fields are written by the one worker thread and
//             read by others when the fetch is over.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/lock.h"
#include "key/key_chain.h"
#include "stemma/tier/sequence_tiers.h"
#include "tier/wait_until.h"

namespace stemma::tier {

class PromptFetch final : public Fetch {
 public:
  bool over() const noexcept override { return over_.load(std::memory_order_acquire); }
  void cancel() noexcept override { cancelled_.store(true, std::memory_order_release); }
  bool wait(uint64_t until_ns) override {
    base::Lock lock(mutex_);
    return wait_until(ended_, lock, until_ns, [this] { return over(); });
  }
  LoadedParts take() override {
    const base::Lock lock(mutex_);
    if (is_forgotten()) return {};
    return std::exchange(loaded_parts_, {});
  }
  std::span<const SavedPart> parts() const noexcept override {
    if (is_forgotten()) return {};
    return loaded_parts_.parts;
  }
  uint32_t stored_tokens() const noexcept override { return stored_; }
  uint32_t loaded_tokens() const noexcept override { return loaded_; }
  uint64_t bytes() const noexcept override { return bytes_; }
  uint64_t spent_ns() const noexcept override { return spent_ns_; }
  uint32_t level() const noexcept override { return level_; }

  // Whether the purge could take something of it.
  bool is_of(const Purge& what) const noexcept {
    return !what.owner || *what.owner == owner_of(scope_);
  }

  // Whether its result must no longer be used.
  bool is_forgotten() const noexcept { return forgotten_.load(std::memory_order_acquire); }
  // Only for the worker thread.
  void drop_parts() noexcept {
    const base::Lock lock(mutex_);
    loaded_parts_ = {};
    loaded_ = 0;
  }

  // ---- For the worker thread; read by others when it is over ----
  Scope scope_ = Scope::from_digest({});
  std::vector<Token> tokens_;
  std::vector<MediaItem> media_;
  std::vector<uint32_t> depths_;  // Where entries may end off the grid; ascending.
  std::vector<uint32_t> checkpoints_here_;
  uint32_t have_ = 0;
  uint32_t saved_here_ = 0;
  uint64_t begun_ns_ = 0;
  std::function<void()> on_over_, on_part_;

  LoadedParts loaded_parts_;  // Not taken yet. Under mutex_ until it is over.
  uint32_t stored_ = 0;
  uint32_t loaded_ = 0;
  uint64_t bytes_ = 0;
  uint64_t spent_ns_ = 0;
  uint32_t level_ = 0;
  bool slower_ = false;  // Than computing.
  std::atomic<bool> over_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> forgotten_{false};  // Its result must no longer be used.
  base::WaitMutex mutex_;
  base::Condition ended_;
};

// The inside of SequenceTiers: which entries a prompt could need, and the threads that fetch them.
// Threading: thread-safe.
class SequenceTiers::Work {
 public:
  Work(TierStack& stack, const Options& options);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void saved(const Prompt& prompt, const SavedPart& part, const ContentKey& chain,
             const Retain& retain) noexcept;
  LevelMask wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept;
  bool take(const KeptPart& part, LevelMask wanted) noexcept;
  bool keeps_words() const noexcept { return options_.keep_words; }
  bool writes_back() const noexcept { return write_back_ != 0; }
  bool hears_later() const noexcept { return (write_back_ | second_use_) != 0; }
  uint64_t hand_on_bytes() const noexcept;
  uint64_t check_handed_on();
  void offer_lost(bool on) noexcept { offers_lost_.store(on, std::memory_order_relaxed); }
  std::shared_ptr<Fetch> fetch(const Scope& scope, const Prompt& prompt,
                               const FetchOptions& options);
  std::vector<LevelPurged> forget(const Purge& what, uint64_t until_ns,
                                  const std::function<void()>& drop_here);
  Purge what_follows(const Scope& scope, const Prompt& prefix) const;
  uint64_t layout() const noexcept { return layout_; }
  TierStack& stack() noexcept { return stack_; }
  SequenceTiersStats stats() const;

 private:
  static constexpr LevelMask kLeaving = LevelMask{1} << kMostLevels;
  static constexpr size_t kMostLeft = 4096;
  // The entries of a prompt that may be stored.
  struct Candidates {
    std::vector<Wanted> wanted;
    std::vector<uint32_t> segments;  // By their ends, on the grid: indices into `wanted`.
    struct At {
      uint32_t depth = 0;
      uint32_t index = kNone;
    };
    std::vector<At> tails;  // Segments that end off the grid; ascending.
    std::vector<At>
        anchors;  // Depths that could be resumed, with the checkpoint or state it takes; ascending.
    static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  };

  StoreItem copy_of(const SavedPart& part, const ContentKey& chain, Priority priority,
                    std::span<const uint32_t> words) const;
  void work();
  void run(PromptFetch& fetch);
  void end(PromptFetch& fetch) noexcept;
  Candidates candidates(const PromptFetch& fetch) const;
  void add_depth(const PromptFetch& fetch, std::span<const key::MediaSpan> spans,
                 const ContentKey& key, uint32_t depth, Candidates& all) const;
  // Asks about every depth beyond what was found: a capture ends where an answer ended, and another
  // prompt cannot know that depth.
  void look_closer(const PromptFetch& fetch, Candidates& all, std::vector<LevelMask>& where) const;
  // The indices of the entries that the deepest usable depth needs, and that depth.
  std::vector<uint32_t> usable(const Candidates& all, std::span<const LevelMask> where,
                               uint32_t& depth) const;
  // Adds the segments of [0, depth). Returns false if one is missing.
  bool add_base(const Candidates& all, std::span<const LevelMask> where, uint32_t depth,
                std::vector<uint32_t>& needed) const;
  uint64_t most_bytes(EntryKind kind, uint32_t begin, uint32_t end) const noexcept;
  LevelMask wanting_leavers() const noexcept;  // Levels that are offered evicted entries now.
  void note_left(const EntryKey& key) noexcept;
  bool by_states() const noexcept { return !options_.traits.segments; }
  bool needs_anchor() const noexcept { return options_.traits.rewind != Rewind::any; }

  TierStack& stack_;
  const Options options_;
  const bool usable_;  // The options are valid.
  const uint64_t layout_;
  // Levels by policy. Only write-back levels want entries that leave memory: the others got them
  // when they were saved.
  LevelMask write_back_ = 0, second_use_ = 0, write_through_ = 0;
  std::atomic<bool> offers_lost_ = false;

  mutable base::WaitMutex mutex_;
  base::Condition wake_;
  std::deque<std::shared_ptr<PromptFetch>> queue_ STEMMA_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<PromptFetch>> fetches_
      STEMMA_GUARDED_BY(mutex_);  // All fetches that a caller still holds.
  std::vector<Purge> forgetting_ STEMMA_GUARDED_BY(mutex_);
  std::deque<EntryKey> left_ STEMMA_GUARDED_BY(
      mutex_);  // Entries last offered because they leave; the most valuable last.
  SequenceTiersStats stats_ STEMMA_GUARDED_BY(mutex_);
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace stemma::tier
