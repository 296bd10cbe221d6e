// What C callers of movers hold: movers by pointer, transfers by number.
//
// This library uses libstemma.so as any other caller does. It shares with src/capi the code that
// checks C arguments, compiled a second time (as libstemma_tiers.so does).
//
// Threading:  thread-safe, but no other call may use a mover while one call destroys it.
// Ownership:  the places and tables belong to the process and stay until its end. A mover owns its
//             fences and the objects behind its stemma_block_io.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "base/lock.h"
#include "capi/last_error.h"
#include "capi/places.h"
#include "capi/slot_table.h"
#include "mover/mover.h"
#include "stemma/stemma_mover.h"

namespace stemma::capi {

struct MoverHome;

// Behind a stemma_block_io.
struct MoverIo {
  MoverHome* home;
  uint64_t after_stream;
};

// Behind a stemma_fence.
struct MoverFence {
  MoverHome* home;
  std::shared_ptr<mover::Transfer> transfer;
};

struct MoverHome {
  std::unique_ptr<mover::Mover> mover;
  std::atomic<uint32_t> io_running{0};  // Transfers of block_io.
  base::WaitMutex mutex;
  // Numbers that name a transfer of this mover.
  std::unordered_set<uint64_t> transfers STEMMA_GUARDED_BY(mutex);
  std::unordered_set<void*> taken STEMMA_GUARDED_BY(mutex);         // By stemma_mover_take().
  std::unordered_set<MoverFence*> fences STEMMA_GUARDED_BY(mutex);  // Not signalled yet.
  std::vector<std::unique_ptr<MoverIo>> ios STEMMA_GUARDED_BY(mutex);

  ~MoverHome();
};

struct HeldTransfer {
  std::shared_ptr<mover::Transfer> transfer;
  MoverHome* home = nullptr;
};
SlotTable<HeldTransfer>& mover_transfers() noexcept;

// The transfer of this number. Errors: invalid_argument, stale.
Result<HeldTransfer> find_transfer(stemma_transfer number) noexcept;

// Calls `done` in C's terms, once, and counts the callbacks that run on this thread.
struct DoneCall {
  stemma_transfer_done_fn done;
  void* user;
  static void call(void* self, std::optional<Errc> outcome) noexcept;
};
// Whether this thread is in a callback of a mover.
bool in_done_call() noexcept;

inline stemma_status status_of(std::optional<Errc> error) noexcept {
  return error ? static_cast<stemma_status>(*error) : STEMMA_OK;
}

// A request, decoded. The items borrow from `pieces`.
struct DecodedRequest {
  std::vector<mover::HostPiece> pieces;
  std::vector<mover::Item> items;
  mover::MoveRequest request;
  std::unique_ptr<DoneCall> done;
};
Result<void> decode(const stemma_mover_request* given, DecodedRequest& out);
Result<mover::MoverOptions> decode(const stemma_mover_options* given);
Result<std::vector<mover::BlockOfGroup>> decode(const stemma_block_copy* copies, size_t count);

// Gives the transfer its number. Error: out_of_memory; the transfer goes on.
Result<void> hand_out(MoverHome& home, const std::shared_ptr<mover::Transfer>& transfer,
                      stemma_transfer& out);

}  // namespace stemma::capi

// Where a mover is. Only its address leaves the library.
struct stemma_mover {
  static constexpr const char* kNull = "mover is null";
  static constexpr const char* kForeign = "mover points to no stemma_mover of this library";
  static constexpr const char* kDestroyed = "this mover was destroyed, or never created";
  std::atomic<stemma::capi::MoverHome*> home{nullptr};
};

namespace stemma::capi {

Places<stemma_mover, MoverHome>& movers() noexcept;

// Runs `body` with what is behind the handle.
template <class Body>
stemma_status with_mover(const char* call, stemma_mover* handle, Body&& body) noexcept {
  const Result<MoverHome*> home = movers().find(handle);
  if (!home) return fail(call, home.error());
  return end(call, caught([&] { return body(**home); }));
}
template <class Body>
stemma_status with_transfer(const char* call, stemma_transfer number, Body&& body) noexcept {
  const Result<HeldTransfer> held = find_transfer(number);
  if (!held) return fail(call, held.error());
  return end(call, caught([&] { return body(*held->transfer, *held->home); }));
}

}  // namespace stemma::capi
