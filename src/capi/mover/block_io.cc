// stemma_mover_block_io(): a mover as what moves the bytes of a cache and of tiers.
#include <utility>

#include "capi/mover/handles.h"

using namespace stemma;
using namespace stemma::capi;

namespace stemma::capi {
namespace {

// One transfer that a cache or tiers asked for.
struct IoCall {
  MoverHome* home;
  stemma_io io;

  static void end(MoverHome& home, stemma_io io, stemma_status outcome) noexcept {
    // First, because the caller may destroy the mover as soon as it hears of the end; that waits
    // for the mover's threads, which this may be one of.
    home.io_running.fetch_sub(1, std::memory_order_release);
    (void)stemma_io_done(io, outcome);
  }
  static void done(void* self, std::optional<Errc> outcome) noexcept {
    const std::unique_ptr<IoCall> call(static_cast<IoCall*>(self));
    end(*call->home, call->io, status_of(outcome));
  }
};

// `begin` takes a request and begins a transfer.
template <class Begin>
void run(void* user, stemma_io io, Begin&& begin) noexcept {
  const auto& mine = *static_cast<const MoverIo*>(user);
  MoverHome& home = *mine.home;
  home.io_running.fetch_add(1, std::memory_order_relaxed);
  const Result<void> begun = caught([&]() -> Result<void> {
    auto call = std::make_unique<IoCall>(IoCall{&home, io});
    mover::MoveRequest request;
    request.after_stream = mine.after_stream;
    request.check = false;
    request.layers_at_once = 0;
    request.done = IoCall::done;
    request.user = call.get();
    auto transfer = begin(*home.mover, request);
    if (!transfer) return transfer.error();
    (void)call.release();  // done() deletes it, or has.
    return {};
  });
  if (!begun) IoCall::end(home, io, static_cast<stemma_status>(begun.error().code()));
}

void copy(void* user, stemma_io io, const stemma_block_copy* copies, size_t count) {
  run(user, io,
      [&](mover::Mover& mover,
          const mover::MoveRequest& request) -> Result<std::shared_ptr<mover::Transfer>> {
        STEMMA_TRY(const std::vector<mover::BlockOfGroup> decoded, decode(copies, count));
        return mover.copy(decoded, request);
      });
}

// Blocks, back to back in host memory.
Result<std::shared_ptr<mover::Transfer>> move(mover::Mover& mover, mover::MoveRequest request,
                                              uint32_t group, const uint32_t* blocks, size_t count,
                                              uint8_t* bytes, size_t size, bool to_pages) {
  if (group >= mover.groups()) return Error(Errc::out_of_range, "the mover has no such group");
  const uint64_t block = mover.layout(group).block_bytes();
  if (size != count * block) {
    return Error(Errc::invalid_argument, "block_bytes of the cache is not that of the mover");
  }
  std::vector<mover::HostPiece> pieces(count);
  std::vector<mover::Item> items(count);
  for (size_t i = 0; i < count; ++i) {
    pieces[i] = {bytes + i * block, block};
    items[i] = {blocks[i], {&pieces[i], 1}, 0};
  }
  request.group = group;
  request.items = items;
  return to_pages ? mover.load(request) : mover.store(request);
}

void read(void* user, stemma_io io, uint32_t group, const uint32_t* blocks, size_t count,
          uint8_t* bytes, size_t size) {
  run(user, io, [&](mover::Mover& mover, const mover::MoveRequest& request) {
    return move(mover, request, group, blocks, count, bytes, size, false);
  });
}

void write(void* user, stemma_io io, uint32_t group, const uint32_t* blocks, size_t count,
           const uint8_t* bytes, size_t size) {
  run(user, io, [&](mover::Mover& mover, const mover::MoveRequest& request) {
    // A load only reads them.
    return move(mover, request, group, blocks, count, const_cast<uint8_t*>(bytes), size,  // NOLINT
                true);
  });
}

}  // namespace
}  // namespace stemma::capi

extern "C" stemma_status stemma_mover_block_io(stemma_mover* mover, uint64_t after_stream,
                                               stemma_block_io* out) {
  return with_mover(__func__, mover, [&](MoverHome& home) -> Result<void> {
    if (out == nullptr) return Error(Errc::invalid_argument, "out is null");
    const base::Lock lock(home.mutex);
    home.ios.push_back(std::make_unique<MoverIo>(MoverIo{&home, after_stream}));
    stemma_block_io made = STEMMA_BLOCK_IO_INIT;
    made.user = home.ios.back().get();
    made.copy = copy;
    made.read = read;
    made.write = write;
    *out = made;
    return {};
  });
}
