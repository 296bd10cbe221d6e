// What C callers of tiers hold: stacks and what puts them under a cache by pointer, fetches by number.
//
// This library stands on libstemma.so as any other caller does: of caches it knows the C ABI alone. What
// it shares with src/capi is the way in which C is checked (decode.h, sized.h, places.h, slot_table.h),
// compiled a second time; a thread's last error and the log are libstemma.so's (errors.cc).
//
// Invariant:  a stack lives as long as anything that uses it: destroying it is refused until then.
// Threading:  thread-safe, but a thing is destroyed by one call while no other uses it.
// Ownership:  the places and tables are the process's and stay until its end.
#pragma once

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
#include "stemma/sequence_tiers.h"
#include "stemma/stemma_tiers.h"
#include "stemma/tier_stack.h"

namespace stemma::capi {

struct StackHome {
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

// A fetch, with the words it is of.
struct HeldFetch {
  std::shared_ptr<tier::Fetch> fetch;
  stemma_scope scope = {};
  std::vector<uint32_t> tokens;
  std::vector<stemma_media_item> media;
};
SlotTable<HeldFetch>& fetches() noexcept;

// The message of an error that libstemma.so has noted already: its words stay the thread's last error.
extern const char kNoted[];

// Time on Clock::monotonic() that is so long from now.
uint64_t in(uint64_t wait_ns) noexcept;

// What is to be forgotten, as C says it. No scope: everything.
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

// Our log lines, and what we say before we stop the process, go where libstemma.so's go. Once.
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
