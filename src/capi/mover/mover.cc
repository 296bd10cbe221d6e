// stemma_mover_*: movers, their memory and what they begin.
#include "base/invalid.h"
#include "stemma/stemma_mover.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/word_sum.h"
#include "capi/decode.h"
#include "capi/mover/handles.h"
#include "capi/sized.h"
#include "mover/cuda/cuda_copier.h"
#include "tier/transfer_arena.h"

using namespace stemma;
using namespace stemma::capi;

namespace stemma::capi {

STEMMA_SIZED(stemma_mover_stats, {});

namespace {

constinit Places<stemma_mover, MoverHome> mover_places;

using base::invalid;

Result<const mover::Layout*> layout_of(MoverHome& home, uint32_t group) {
  if (group >= home.mover->groups()) {
    return Error(Errc::out_of_range, "the mover has no such group", group);
  }
  return &home.mover->layout(group);
}

Result<void> begun(MoverHome& home, Result<std::shared_ptr<mover::Transfer>> transfer,
                   stemma_transfer* out) {
  if (!transfer) return transfer.error();
  return hand_out(home, *transfer, *out);
}

using Begin =
    Result<std::shared_ptr<mover::Transfer>> (mover::Mover::*)(const mover::MoveRequest& request);

stemma_status move(const char* call, stemma_mover* mover, const stemma_mover_request* request,
                   stemma_transfer* out, Begin begin, bool always_sum) noexcept {
  return with_mover(call, mover, [&](MoverHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    DecodedRequest decoded;
    STEMMA_TRY_VOID(decode(request, decoded));
    if (always_sum) decoded.request.check = true;
    auto transfer = (home.mover.get()->*begin)(decoded.request);
    // It is deleted by its call, which has perhaps been made already.
    if (transfer) (void)decoded.done.release();
    return begun(home, std::move(transfer), out);
  });
}

stemma_status pack(const char* call, stemma_mover* mover, uint32_t group, const uint32_t* pages,
                   size_t count, uint64_t packed, uint64_t stream, stemma_transfer* out,
                   mover::Way way) noexcept {
  return with_mover(call, mover, [&](MoverHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    if (pages == nullptr && count != 0) return invalid("pages is null");
    if (count > size_t{1} << 24U) return invalid("there are more than 2^24 pages");
    return begun(home, home.mover->pack(way, group, {pages, count}, packed, stream), out);
  });
}

}  // namespace

Places<stemma_mover, MoverHome>& movers() noexcept { return mover_places; }

}  // namespace stemma::capi

extern "C" {

int32_t stemma_mover_has_cuda(void) { return mover::has_cuda() ? 1 : 0; }

uint32_t stemma_mover_device_count(void) { return mover::cuda_device_count(); }

stemma_status stemma_mover_create(const stemma_mover_options* options, stemma_mover** out) {
  return end(__func__, caught([&]() -> Result<void> {
               if (out == nullptr) return invalid("out is null");
               STEMMA_TRY(const mover::MoverOptions decoded, decode(options));
               auto home = std::make_unique<MoverHome>();
               STEMMA_TRY(home->mover, mover::Mover::create(decoded));
               stemma_mover* const made = movers().make(home.get());
               if (made == nullptr) {
                 return Error(Errc::out_of_memory, "4,096 movers are alive; destroy one");
               }
               (void)home.release();
               *out = made;
               return {};
             }));
}

stemma_status stemma_mover_destroy(stemma_mover* mover) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (in_done_call()) {
      return Error(Errc::busy, "a callback of a mover may not destroy movers");
    }
    if (home.io_running.load(std::memory_order_acquire) != 0) {
      return Error(Errc::busy, "transfers of a cache or of tiers are running");
    }
    if (!movers().forget(mover, &home)) return movers().stale();
    delete &home;
    return {};
  });
}

stemma_status stemma_mover_block_bytes(stemma_mover* mover, uint32_t group, uint64_t* bytes) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (bytes == nullptr) return invalid("bytes is null");
    STEMMA_TRY(const mover::Layout* layout, layout_of(home, group));
    *bytes = layout->block_bytes();
    return {};
  });
}

stemma_status stemma_mover_layer_count(stemma_mover* mover, uint32_t group, uint32_t* layers) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (layers == nullptr) return invalid("layers is null");
    STEMMA_TRY(const mover::Layout* layout, layout_of(home, group));
    *layers = layout->layers();
    return {};
  });
}

stemma_status stemma_mover_layer_range(stemma_mover* mover, uint32_t group, uint32_t layer,
                                       uint64_t* begin, uint64_t* bytes) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (begin == nullptr || bytes == nullptr) return invalid("begin or bytes is null");
    STEMMA_TRY(const mover::Layout* layout, layout_of(home, group));
    if (layer >= layout->layers()) {
      return Error(Errc::out_of_range, "the group has no such layer", layer);
    }
    const auto planes = layout->planes_of(layer, layer + 1);
    *begin = planes.front().begin;
    *bytes = planes.back().begin + planes.back().padded_bytes() - *begin;
    return {};
  });
}

stemma_status stemma_mover_layout(stemma_mover* mover, uint64_t* fingerprint) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (fingerprint == nullptr) return invalid("fingerprint is null");
    *fingerprint = home.mover->fingerprint();
    return {};
  });
}

stemma_status stemma_mover_stats_get(stemma_mover* mover, stemma_mover_stats* out) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    const mover::Counters& counters = home.mover->counters();
    mover::Copier& copier = home.mover->copier();
    stemma_mover_stats stats = {};
    stats.running = counters.running.load();
    stats.loads = counters.loads.load();
    stats.stores = counters.stores.load();
    stats.copies = counters.copies.load();
    stats.load_bytes = counters.load_bytes.load();
    stats.store_bytes = counters.store_bytes.load();
    stats.copy_bytes = counters.copy_bytes.load();
    stats.staged_bytes = counters.staged_bytes.load();
    stats.batched_bytes = counters.batched_bytes.load();
    stats.wrong_blocks = counters.wrong_blocks.load();
    stats.ring_waits = counters.ring_waits.load();
    stats.batch_from_bytes = copier.batch_from_bytes();
    if (copier.arena() != nullptr) {
      stats.arena_bytes = copier.arena()->bytes();
      stats.arena_taken_bytes = copier.arena()->taken_bytes();
    }
    const std::string device = copier.device();
    device.copy(stats.device, sizeof stats.device - 1);
    write_sized(out, stats);
    return {};
  });
}

stemma_status stemma_mover_take(stemma_mover* mover, uint64_t bytes, void** out) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (out == nullptr || bytes == 0) return invalid("out is null or bytes is 0");
    tier::TransferArena* const arena = home.mover->copier().arena();
    if (arena == nullptr) return Error(Errc::out_of_memory, "the mover has no arena: arena_bytes");
    const base::Lock lock(home.mutex);
    home.taken.reserve(home.taken.size() + 1);
    uint8_t* const memory = arena->take(bytes);
    if (memory == nullptr) {
      return Error(Errc::out_of_memory, "the arena has no free range that is long enough");
    }
    home.taken.insert(memory);
    *out = memory;
    return {};
  });
}

stemma_status stemma_mover_give_back(stemma_mover* mover, void* memory) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    const base::Lock lock(home.mutex);
    if (home.taken.erase(memory) == 0) {
      return invalid("memory is not from stemma_mover_take(), or was given back");
    }
    home.mover->copier().arena()->give_back(static_cast<const uint8_t*>(memory));
    return {};
  });
}

uint64_t stemma_mover_sum(const void* bytes, uint64_t size) {
  return bytes == nullptr ? 0 : base::word_sum({static_cast<const uint8_t*>(bytes), size});
}

stemma_status stemma_mover_load(stemma_mover* mover, const stemma_mover_request* request,
                                stemma_transfer* out) {
  return move(__func__, mover, request, out, &mover::Mover::load, false);
}

stemma_status stemma_mover_store(stemma_mover* mover, const stemma_mover_request* request,
                                 stemma_transfer* out) {
  return move(__func__, mover, request, out, &mover::Mover::store, true);
}

stemma_status stemma_mover_copy(stemma_mover* mover, const stemma_block_copy* copies, size_t count,
                                uint64_t stream, stemma_transfer* out) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY(const std::vector<mover::BlockOfGroup> decoded, decode(copies, count));
    mover::MoveRequest request;
    request.stream = stream;
    return begun(home, home.mover->copy(decoded, request), out);
  });
}

stemma_status stemma_mover_gather(stemma_mover* mover, uint32_t group, const uint32_t* pages,
                                  size_t count, uint64_t packed, uint64_t stream,
                                  stemma_transfer* out) {
  return pack(__func__, mover, group, pages, count, packed, stream, out, mover::Way::from_pages);
}

stemma_status stemma_mover_scatter(stemma_mover* mover, uint32_t group, const uint32_t* pages,
                                   size_t count, uint64_t packed, uint64_t stream,
                                   stemma_transfer* out) {
  return pack(__func__, mover, group, pages, count, packed, stream, out, mover::Way::to_pages);
}

}  // extern "C"
