// What C callers of a SequenceCache hold: the cache by pointer, its turns by number.
//
// Behind a stemma_sequences is a SequenceHome: the cache, and the engine and the clock that stand
// for the caller's callbacks. The handle and every turn hold it; the last of them destroys it and
// then calls `closed`. When the handle goes first, the cache goes with it, and turns can only end.
//
// A SequenceCache takes changes on one thread at a time, and its own engine must not change it in
// the middle of a call. This is enforced for C callers: a Change is the right to change, and a call
// that finds it taken returns busy. So no order of calls, on any threads or from any callback,
// breaks anything.
//
// Threading:  thread-safe, but no other call may look at a cache while one call destroys it.
// Ownership:  the tables and places belong to the process and stay until its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "capi/callback_engine.h"
#include "capi/handles.h"
#include "capi/sequence_decode.h"
#include "stemma/sequence.h"

namespace stemma::capi {
class SequenceHome;
}  // namespace stemma::capi

// Where a cache is. Only its address leaves the library.
struct stemma_sequences {
  static constexpr const char* kNull = "cache is null";
  static constexpr const char* kForeign = "cache points to no stemma_sequences of this library";
  static constexpr const char* kDestroyed = "this cache was destroyed, or never created";
  std::atomic<stemma::capi::SequenceHome*> home{nullptr};
};

namespace stemma::capi {

// A listener that was given as a C function.
class CallbackListener final : public SavedListener {
 public:
  explicit CallbackListener(const stemma_saved_listener& listener) noexcept : listener_(listener) {}
  // Does not call the listener if there is no memory for the prompt's media.
  void saved(const Scope& scope, const Prompt& prompt, const SavedPart& part,
             const ContentKey& chain, const Retain& retain) noexcept override;
  uint32_t wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept override;
  bool take(const KeptPart& part, uint32_t wanted) noexcept override;
  bool keeps_words() const noexcept override { return listener_.keep_words != 0; }

 private:
  stemma_saved_listener listener_;
};

class SequenceHome {
 public:
  static Result<SequenceHome*> create(const stemma_engine* engine,
                                      const stemma_sequence_options* options);

  // Requires that the handle is not destroyed.
  SequenceCache& cache() noexcept { return *cache_; }
  uint32_t sequences() const noexcept { return engine_.traits().sequences; }

  void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) close();
  }
  // For a home that was never handed out: its end is not reported.
  void forget_closed() noexcept { closed_ = nullptr; }
  // How many hold it; the handle counts as one.
  uint32_t holders() const noexcept { return holders_.load(std::memory_order_acquire); }
  // The handle is destroyed. Requires the right to change.
  void end_cache() noexcept { cache_.reset(); }

 private:
  friend class Change;
  explicit SequenceHome(const CallbackEngine& engine) noexcept : engine_(engine) {}
  void close() noexcept;

  std::optional<CallbackClock> clock_;
  std::optional<CallbackListener> listener_;
  CallbackEngine engine_;
  std::optional<SequenceCache> cache_;  // Goes first.
  void (*closed_)(void* user) = nullptr;
  void* closed_user_ = nullptr;
  alignas(64) std::atomic<uint32_t> holders_{1};
  std::atomic<bool> changing_{false};
};

// The right to change a cache, for as long as it lives; or not, if somebody else has it.
class Change {
 public:
  explicit Change(SequenceHome& home) noexcept
      : home_(home), mine_(!home.changing_.exchange(true, std::memory_order_acquire)) {}
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  ~Change() {
    if (mine_) home_.changing_.store(false, std::memory_order_release);
  }
  explicit operator bool() const noexcept { return mine_; }

  static constexpr Error kBusy{Errc::busy, "another call is changing this cache"};

 private:
  SequenceHome& home_;
  bool mine_;
};

Places<stemma_sequences, SequenceHome>& sequence_caches() noexcept;

struct HeldTurn {
  Turn turn;
  SequenceHome* home = nullptr;
};
SlotTable<HeldTurn>& turns() noexcept;

// Gives a turn of `home` its number. Error: that of `turn`, or out_of_memory. Requires the right to
// change.
Result<void> hand_out(Result<Turn>& turn, SequenceHome& home, stemma_turn& out) noexcept;

// Why a number could not be used. Requires found != yes.
Error why_no_turn(Found found, uint64_t number) noexcept;

}  // namespace stemma::capi
