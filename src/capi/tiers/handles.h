// What C callers of tiers hold: by pointer stacks and the tiers under a cache, by number fetches.
//
// This library uses libstemma.so as any other caller does: it knows caches only by the C ABI. It
// shares with src/capi the code that checks C arguments (decode.h, sized.h, places.h,
// slot_table.h), compiled a second time; a thread's last error and the log belong to libstemma.so
// (errors.cc).
//
// Invariant:  a stack lives as long as anything that uses it: destroying it is refused until then.
// Threading:  thread-safe, but no other call may use a thing while one call destroys it.
// Ownership:  the places and tables belong to the process and stay until its end.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "capi/callback_engine.h"
#include "capi/last_error.h"
#include "capi/places.h"
#include "capi/sequence_decode.h"
#include "capi/slot_table.h"
#include "stemma/stemma_tiers.h"
#include "stemma/tier/sequence_tiers.h"
#include "stemma/tier/tier_stack.h"

namespace stemma::capi {

struct StackHome {
  const pid_t process = getpid();  // Other processes do not have its threads.
  std::unique_ptr<tier::TierStack> stack;
  std::atomic<uint32_t> users{0};
};

// Holds a stack while it lives.
class StackUse {
 public:
  explicit StackUse(StackHome& home) noexcept : home_(home) {
    home_.users.fetch_add(1, std::memory_order_relaxed);
  }
  StackUse(const StackUse&) = delete;
  StackUse& operator=(const StackUse&) = delete;
  ~StackUse() { home_.users.fetch_sub(1, std::memory_order_release); }
  tier::TierStack& stack() const noexcept { return *home_.stack; }

 private:
  StackHome& home_;
};

struct SequenceTiersHome {
  SequenceTiersHome(StackHome& stack, const tier::SequenceTiers::Options& options)
      : use(stack), segment_tokens(options.segment_tokens), tiers(use.stack(), options) {}
  StackUse use;
  uint32_t segment_tokens;
  tier::SequenceTiers tiers;  // Goes first.
};

}  // namespace stemma::capi

// Where things are. Only their addresses leave the library.
struct stemma_stack {
  static constexpr const char* kNull = "stack is null";
  static constexpr const char* kForeign = "stack points to no stemma_stack of this library";
  static constexpr const char* kDestroyed = "this stack was destroyed, or never created";
  std::atomic<stemma::capi::StackHome*> home{nullptr};
};
struct stemma_sequence_tiers {
  static constexpr const char* kNull = "tiers is null";
  static constexpr const char* kForeign =
      "tiers points to no stemma_sequence_tiers of this library";
  static constexpr const char* kDestroyed = "these tiers were destroyed, or never created";
  std::atomic<stemma::capi::SequenceTiersHome*> home{nullptr};
};

namespace stemma::capi {

Places<stemma_stack, StackHome>& stacks() noexcept;
Places<stemma_sequence_tiers, SequenceTiersHome>& sequence_tiers() noexcept;

// A fetch, with the words that it looks for.
struct HeldFetch {
  std::shared_ptr<tier::Fetch> fetch;
  stemma_scope scope = {};
  std::vector<uint32_t> tokens;
  std::vector<stemma_media_item> media;
};
SlotTable<HeldFetch>& fetches() noexcept;

// The message of an error that libstemma.so has already noted: the thread's last error stays as it
// is.
extern const char kNoted[];

// The error that a child after fork() gets for its parent's objects.
Error other_process() noexcept;

// The time on Clock::monotonic() that is wait_ns from now.
uint64_t in(uint64_t wait_ns) noexcept;

// What to forget, as the C caller says it. No scope: everything.
struct Forgetting {
  Result<void> read(const stemma_scope* scope, const stemma_prompt* prefix,
                    const stemma_level_purged* levels, size_t level_count,
                    const uint32_t* complete);
  std::function<void()> drop(stemma_drop_fn call, void* user) const {
    return call == nullptr ? std::function<void()>() : [call, user] { call(user); };
  }
  std::optional<Scope> scope;
  Prompt prefix = {};
  MediaRoom room = {};
};
void tell(const std::vector<tier::LevelPurged>& purged, stemma_level_purged* levels,
          size_t level_count, uint32_t* complete) noexcept;

// Sends our log lines and fatal messages where libstemma.so's go. Happens once.
void join_log() noexcept;

// Gives `made` a place. Error: out_of_memory.
template <class Handle, class Home>
Result<Handle*> place(Places<Handle, Home>& places, std::unique_ptr<Home> made) noexcept {
  Home* const home = made.release();
  Handle* const handle = places.make(home);
  if (handle == nullptr) {
    delete home;
    return Error(Errc::out_of_memory, "4,096 of them are alive; destroy one");
  }
  return handle;
}

// Runs `body` with what is behind the handle.
template <class Handle, class Home, class Body>
stemma_status with(const char* call, Places<Handle, Home>& places, Handle* handle,
                   Body&& body) noexcept {
  const Result<Home*> home = places.find(handle);
  if (!home) [[unlikely]] {
    return fail(call, home.error());
  }
  return end(call, caught([&] { return body(**home); }));
}

}  // namespace stemma::capi
