// What C callers of a store hold: a stemma_store, by pointer.
//
// Unlike other handles, a store may be destroyed while calls use it: a call first takes a share in
// the store, and destroying waits only for calls that are just taking theirs, a few instructions.
// In a child after fork() the threads of a store do not exist and its locks may be held for ever,
// so there only this handle is touched.
//
// Threading:  thread-safe.
// Ownership:  the places belong to the process and stay until its end.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "capi/store/store.h"
#include "capi/tiers/handles.h"
#include "stemma/stemma_store.h"

namespace stemma::capi {

struct StoreHome {
  std::shared_ptr<store::Store> store;
};

}  // namespace stemma::capi

struct stemma_store {
  static constexpr const char* kNull = "store is null";
  static constexpr const char* kForeign = "store points to no stemma_store of this library";
  static constexpr const char* kDestroyed = "this store was destroyed, or never created";
  std::atomic<stemma::capi::StoreHome*> home{nullptr};
  std::atomic<uint32_t> visitors{0};  // Calls that look at `home` now.
  std::atomic<pid_t> process{0};      // Whose store it is.
};

namespace stemma::capi {

Places<stemma_store, StoreHome>& stores() noexcept;

// The store, kept while the caller uses it. Error: invalid_argument, stale, wrong_state (after
// fork()).
Result<std::shared_ptr<store::Store>> visit(stemma_store* store) noexcept;

template <class Body>
stemma_status with_store(const char* call, stemma_store* handle, Body&& body) noexcept {
  const Result<std::shared_ptr<store::Store>> store = visit(handle);
  if (!store) return fail(call, store.error());
  return end(call, caught([&] { return body(**store); }));
}

}  // namespace stemma::capi
