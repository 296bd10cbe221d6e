// PromptFetch: a prompt that SequenceTiers looks for, and what came of it.
//
// Threading:  thread-safe as Fetch says. What is marked is written by the one thread that works on
//             it and read by others when it is over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "stemma/sequence_tiers.h"
#include "tier/wait_until.h"

namespace stemma::tier {

class PromptFetch final : public Fetch {
 public:
  bool over() const noexcept override { return over_.load(std::memory_order_acquire); }
  void cancel() noexcept override { cancelled_.store(true, std::memory_order_release); }
  bool wait(uint64_t until_ns) override {
    std::unique_lock lock(mutex_);
    return wait_until(ended_, lock, until_ns, [this] { return over(); });
  }
  std::span<const SavedPart> parts() const noexcept override {
    if (forgotten_.load(std::memory_order_acquire)) return {};
    return parts_;
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

  // ---- For whoever works on it; read by others when it is over ----
  Scope scope_ = Scope::from_digest({});
  std::vector<Token> tokens_;
  std::vector<MediaItem> media_;
  std::vector<uint32_t> depths_;  // Where entries may end off the grid; ascending.
  std::vector<uint32_t> checkpoints_here_;
  uint32_t have_ = 0;
  uint32_t saved_here_ = 0;
  uint64_t begun_ns_ = 0;
  std::function<void()> on_over_;

  std::vector<std::shared_ptr<const Payload>> payloads_;
  std::vector<SavedPart> parts_;
  uint32_t stored_ = 0;
  uint32_t loaded_ = 0;
  uint64_t bytes_ = 0;
  uint64_t spent_ns_ = 0;
  uint32_t level_ = 0;
  bool slower_ = false;  // Than computing.
  std::atomic<bool> over_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> forgotten_{false};  // What it has is not to be used any more.
  std::mutex mutex_;
  std::condition_variable ended_;
};

}  // namespace stemma::tier
