#include "capi/handles.h"

#include <algorithm>

#include "capi/last_error.h"

namespace stemma::capi {
namespace {

constinit Places<stemma_cache, Home> cache_places;
constinit SlotTable<HeldLease> lease_table;
constinit SlotTable<Transfer> transfer_table;

static_assert(sizeof(BlockId) == sizeof(uint32_t));
const uint32_t* raw(std::span<const BlockId> blocks) {
  return reinterpret_cast<const uint32_t*>(blocks.data());
}

static_assert(sizeof(stemma_block_copy) == sizeof(BlockCopy));
static_assert(offsetof(stemma_block_copy, group) == offsetof(BlockCopy, group));
static_assert(offsetof(stemma_block_copy, source) == offsetof(BlockCopy, source));
static_assert(offsetof(stemma_block_copy, target) == offsetof(BlockCopy, target));
static_assert(offsetof(stemma_block_copy, tokens) == offsetof(BlockCopy, tokens));

// The transfer's number, or 0 after telling `done` that there is no memory.
stemma_io begin_transfer(BlockIo::Done done, void* user) {
  const stemma_io io = transfers().put([&](Transfer& to) { to = {.done = done, .user = user}; });
  if (io == 0) done(user, Error(Errc::out_of_memory, "no memory for another transfer"));
  return io;
}

}  // namespace

Places<stemma_cache, Home>& caches() noexcept { return cache_places; }
SlotTable<HeldLease>& leases() noexcept { return lease_table; }
SlotTable<Transfer>& transfers() noexcept { return transfer_table; }

// ---- Callbacks ----------------------------------------------------------------------------------

void CallbackIo::copy(std::span<const BlockCopy> copies, Done done, void* user) {
  const stemma_io io = begin_transfer(done, user);
  if (io == 0) return;
  io_.copy(io_.user, io, reinterpret_cast<const stemma_block_copy*>(copies.data()), copies.size());
}

void CallbackIo::read(GroupIndex group, std::span<const BlockId> blocks, std::span<uint8_t> bytes,
                      Done done, void* user) {
  if (io_.read == nullptr) {
    return done(user, Error(Errc::unsupported, "stemma_block_io.read was not given"));
  }
  const stemma_io io = begin_transfer(done, user);
  if (io == 0) return;
  io_.read(io_.user, io, group, raw(blocks), blocks.size(), bytes.data(), bytes.size());
}

void CallbackIo::write(GroupIndex group, std::span<const BlockId> blocks,
                       std::span<const uint8_t> bytes, Done done, void* user) {
  if (io_.write == nullptr) {
    return done(user, Error(Errc::unsupported, "stemma_block_io.write was not given"));
  }
  const stemma_io io = begin_transfer(done, user);
  if (io == 0) return;
  io_.write(io_.user, io, group, raw(blocks), blocks.size(), bytes.data(), bytes.size());
}

Fence* FencePool::make(const stemma_fence& fence) {
  const base::Lock lock(mutex_);
  if (free_ == nullptr) {
    free_ = all_.emplace_back(std::make_unique<CallbackFence>(*this)).get();
  }
  CallbackFence* made = free_;
  free_ = made->next_;
  made->fence_ = fence;
  return made;
}

void FencePool::give_back(Fence* fence) noexcept {
  auto* mine = static_cast<CallbackFence*>(fence);
  const base::Lock lock(mutex_);
  mine->next_ = free_;
  free_ = mine;
}

// ---- Homes --------------------------------------------------------------------------------------

Result<Home*> Home::create(const Options& options, const stemma_options& given) {
  std::unique_ptr<Home> home(new Home);
  Options full = options;
  if (given.clock.now_ns != nullptr) full.clock = &home->clock_.emplace(given.clock);
  if (given.block_io != nullptr) {
    STEMMA_TRY(const stemma_block_io io, read_sized(given.block_io));
    if (io.reserved != 0) {
      return Error(Errc::invalid_argument, "block_io.reserved is not 0", io.reserved);
    }
    if (io.copy == nullptr) return Error(Errc::invalid_argument, "block_io.copy is null");
    full.block_io = &home->io_.emplace(io);
  }
  STEMMA_TRY(PagedCache cache, PagedCache::create(full));
  home->cache_.emplace(std::move(cache));
  home->closed_ = given.closed;
  home->closed_user_ = given.closed_user;
  return home.release();
}

void Home::close() noexcept {
  const auto closed = closed_;
  void* const user = closed_user_;
  delete this;
  if (closed != nullptr) closed(user);
}

// ---- Leases -------------------------------------------------------------------------------------

Result<void> hand_out(Result<Lease>& lease, Home& home, stemma_lease& out) noexcept {
  if (!lease) return lease.error();
  home.hold();
  const uint64_t number = leases().put([&](HeldLease& held) {
    held.lease = *std::move(lease);
    held.home = &home;
  });
  if (number == 0) {
    *lease = Lease();  // Before its home.
    home.let_go();
    return Error(Errc::out_of_memory, "no memory for another lease");
  }
  out = number;
  return {};
}

Error why_no_lease(Found found, uint64_t number) noexcept {
  switch (found) {
    case Found::busy: return {Errc::busy, "another call is using this lease"};
    case Found::gone: return {Errc::stale, "this lease was released"};
    default: break;
  }
  return {Errc::invalid_argument, number == 0 ? "lease is 0" : "no lease ever had this number"};
}

}  // namespace stemma::capi

using namespace stemma;
using namespace stemma::capi;

stemma_io stemma_io_begin(stemma_io_done_fn done, void* user) {
  if (done == nullptr) return 0;
  return transfers().put([&](Transfer& transfer) {
    transfer.told = done;
    transfer.user = user;
  });
}

stemma_status stemma_io_done(stemma_io io, stemma_status outcome) {
  if (outcome < STEMMA_OK || outcome > STEMMA_CORRUPT) {
    return fail(__func__, {Errc::invalid_argument, "outcome is no stemma_status"});
  }
  Transfer transfer;
  {
    SlotTable<Transfer>::Use use(transfers(), io);
    switch (use.found()) {
      case Found::yes:
        transfer = *use;
        use.drop();
        break;
      case Found::busy:
      case Found::gone: return fail(__func__, {Errc::stale, "this transfer has ended"});
      case Found::never:
        return fail(__func__, {Errc::invalid_argument, io == 0 ? "io is 0" : "no such transfer"});
    }
  }
  if (transfer.told != nullptr) return transfer.told(transfer.user, outcome), STEMMA_OK;
  transfer.done(transfer.user, outcome == STEMMA_OK ? Result<void>()
                                                    : Error(static_cast<Errc>(outcome),
                                                            "the caller's transfer failed"));
  return STEMMA_OK;
}
