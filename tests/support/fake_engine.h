// A FakeEngine is the memory of an engine that owns pages, with one 64-bit stamp per position in
// place of keys and values.
//
// The stamp of a position depends on everything its KV depends on: the scope, every word up to and
// including that position, the position and the layer group. So a block that was handed out for the
// wrong prompt, rewritten while in use, or served before it was written is visibly wrong: verify()
// reports where.
//
//   lease --poison()--> garbage in what was drafted --load()--> part-blocks copied --compute()-->
//
// Threading:  thread-safe if the cache keeps its promises: stamps are relaxed atomics, so that a
//             broken promise shows as a wrong stamp and not as a data race of the checker.
// Ownership:  must outlive the leases whose copies it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "stemma/block_io.h"
#include "stemma/lease.h"
#include "stemma/options.h"
#include "stemma/prompt.h"

namespace stemma::test {

// The words of one request in one scope, as the engine sees them: a number per position, where
// units begin, and the hash of every prefix. The number of a media position depends on the whole
// item.
class Story {
 public:
  Story() : Story(0) {}
  explicit Story(uint64_t scope) : hashes_{scope * 0x9E37'79B9'7F4A'7C15U + 1} {}
  Story(uint64_t scope, const Prompt& prompt);

  void append(std::span<const Token> tokens);
  // Cutting through a unit dissolves it: each of its positions becomes a unit.
  void cut(uint32_t n);

  uint32_t size() const { return static_cast<uint32_t>(words_.size()); }
  const std::vector<uint64_t>& words() const { return words_; }
  // Whether a reuse may end at n, and the largest depth at or below n where it may.
  bool is_border(uint32_t n) const { return n >= size() || begins_unit_[n] != 0; }
  uint32_t floor(uint32_t n) const;
  // Whether a media item begins at n.
  bool media_begins(uint32_t n) const;
  // Changes with every word of [0, n) and with the scope.
  uint64_t hash(uint32_t n) const { return hashes_[n]; }

 private:
  void push(uint64_t word, bool begins_unit);

  std::vector<uint64_t> words_;
  std::vector<uint8_t> begins_unit_;
  std::vector<uint64_t> hashes_;  // One more than words.
};

class FakeEngine final : public BlockIo {
 public:
  // How copies through BlockIo end: before the call returns, later on another thread, or with an
  // error that leaves garbage in the targets.
  enum class Mode : uint8_t { at_once, deferred, failing };

  explicit FakeEngine(std::span<const GroupOptions> groups);
  ~FakeEngine() override;

  void set_mode(Mode mode) { mode_.store(mode); }

  // ---- What an engine does with a lease ---------------------------------------------------------

  // Fills blocks that a lease has just drafted with garbage, from the block that holds position
  // `begin` up to the lease's capacity. So no test passes because of an earlier owner's contents.
  void poison(const Lease& lease, uint32_t begin);
  void poison_block(GroupIndex group, BlockId block);
  // The same for blocks that a lease has drafted since `before` was taken (by extend, rewind,
  // shrink): blocks from `committed` on that it did not have then.
  using Tables = std::vector<std::vector<BlockId>>;
  Tables tables(const Lease& lease) const;
  void poison_new(const Lease& lease, const Tables& before);
  // Writes the stamps of positions [begin, end) of a group, or of all paged groups, where the lease
  // says they belong.
  void write(const Lease& lease, GroupIndex group, uint32_t begin, uint32_t end,
             const Story& story);
  void compute(const Lease& lease, uint32_t begin, uint32_t end, const Story& story);
  // Does one part-block copy. Loading a recurrent state has no target; load() checks it.
  void copy(const BlockCopy& copy);
  // Does all pending copies. Returns "", or the mistake: a recurrent state other than that after
  // exactly `depth` positions of the story.
  std::string load(std::span<const BlockCopy> copies, const Story& story, uint32_t depth);
  // Saves the running state after `depth` positions into a checkpoint slot.
  void save_state(GroupIndex group, BlockId slot, const Story& story, uint32_t depth);

  // Continuing at n reads all of [0, n) in a full group; in a window, the positions in reach and
  // the sinks. Returns "" if each of them holds the story's stamp, else the first mistake.
  std::string verify(const Lease& lease, const Story& story, uint32_t n) const;

  // ---- BlockIo ----------------------------------------------------------------------------------

  void copy(std::span<const BlockCopy> copies, Done done, void* user) override;
  // If set, called with the bytes of every read and write.
  std::function<void(std::span<const uint8_t>)> watch;
  void read(GroupIndex group, std::span<const BlockId> blocks, std::span<uint8_t> bytes, Done done,
            void* user) override;
  void write(GroupIndex group, std::span<const BlockId> blocks, std::span<const uint8_t> bytes,
             Done done, void* user) override;

 private:
  struct Group {
    GroupOptions options;
    uint32_t stride = 1;  // Stamps a block: block_tokens, or 1 for a recurrent group.
    std::unique_ptr<std::atomic<uint64_t>[]> stamps;
  };

  static uint64_t stamp(const Story& story, GroupIndex group, uint32_t position);
  static uint64_t state(const Story& story, GroupIndex group, uint32_t depth);
  std::atomic<uint64_t>& at(GroupIndex group, uint64_t slot) const;
  uint64_t garbage();
  std::vector<int64_t> slots(const Lease& lease, GroupIndex group, uint32_t begin,
                             uint32_t end) const;
  void finish(bool ok, Done done, void* user);

  std::vector<Group> groups_;
  std::atomic<Mode> mode_{Mode::at_once};
  std::atomic<uint64_t> garbage_{0};
  std::mutex mutex_;
  std::vector<std::jthread> deferred_;  // Guarded by mutex_.
};

// A fence that a test signals.
class ManualFence final : public Fence {
 public:
  bool signalled() noexcept override { return signalled_.load(std::memory_order_acquire); }
  void signal() noexcept { signalled_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> signalled_{false};
};

}  // namespace stemma::test
