// stemma_transfer_*: what callers ask of a transfer by its number.
#include <thread>

#include "capi/decode.h"
#include "capi/mover/handles.h"

using namespace stemma;
using namespace stemma::capi;

namespace stemma::capi {
namespace {

constinit SlotTable<HeldTransfer> transfer_table;
thread_local uint32_t done_calls = 0;

Error unknown(Found found) noexcept {
  if (found == Found::gone) return {Errc::stale, "this transfer was ended, or its mover destroyed"};
  return {Errc::invalid_argument, "transfer is 0 or a number that no transfer had"};
}

// Uses of a slot are short, but two threads may ask about one transfer at the same time.
template <class Body>
Result<void> with_slot(stemma_transfer number, Body&& body) noexcept {
  for (;;) {
    SlotTable<HeldTransfer>::Use use(transfer_table, number);
    if (use.found() == Found::yes) {
      body(use);
      return {};
    }
    if (use.found() != Found::busy) return unknown(use.found());
    std::this_thread::yield();
  }
}

int32_t signalled(void* user) {
  auto* const fence = static_cast<MoverFence*>(user);
  if (!fence->transfer->over()) return 0;
  {
    const base::Lock lock(fence->home->mutex);
    fence->home->fences.erase(fence);
  }
  delete fence;
  return 1;
}

}  // namespace

SlotTable<HeldTransfer>& mover_transfers() noexcept { return transfer_table; }

Result<HeldTransfer> find_transfer(stemma_transfer number) noexcept {
  HeldTransfer held;
  STEMMA_TRY_VOID(with_slot(number, [&](auto& use) { held = *use; }));
  return held;
}

Result<void> hand_out(MoverHome& home, const std::shared_ptr<mover::Transfer>& transfer,
                      stemma_transfer& out) {
  const base::Lock lock(home.mutex);
  const uint64_t number = transfer_table.put([&](HeldTransfer& held) {
    held.transfer = transfer;
    held.home = &home;
  });
  if (number == 0) return Error(Errc::out_of_memory, "the system gave no memory for a transfer");
  try {
    home.transfers.insert(number);
  } catch (...) {
    (void)with_slot(number, [](auto& use) { use.drop(); });
    throw;
  }
  out = number;
  return {};
}

void DoneCall::call(void* self, std::optional<Errc> outcome) noexcept {
  const std::unique_ptr<DoneCall> call(static_cast<DoneCall*>(self));
  ++done_calls;
  call->done(call->user, status_of(outcome));
  --done_calls;
}

bool in_done_call() noexcept { return done_calls != 0; }

MoverHome::~MoverHome() {
  mover.reset();  // Waits for what runs.
  for (const uint64_t number : transfers) {
    (void)with_slot(number, [](auto& use) { use.drop(); });
  }
  for (MoverFence* fence : fences) delete fence;
}

}  // namespace stemma::capi

extern "C" {

stemma_status stemma_transfer_gate(stemma_transfer transfer, uint32_t layer, uint64_t stream) {
  return with_transfer(__func__, transfer, [&](mover::Transfer& t, MoverHome& home) {
    return home.mover->gate(t, layer, stream);
  });
}

stemma_status stemma_transfer_event(stemma_transfer transfer, uint32_t layer, uint64_t* event) {
  return with_transfer(__func__, transfer,
                       [&](mover::Transfer& t, MoverHome& home) -> Result<void> {
                         if (event == nullptr) {
                           return Error(Errc::invalid_argument, "event is null");
                         }
                         STEMMA_TRY(*event, home.mover->event(t, layer));
                         return {};
                       });
}

stemma_status stemma_transfer_wait(stemma_transfer transfer, uint64_t wait_ns) {
  return with_transfer(__func__, transfer,
                       [&](mover::Transfer& t, MoverHome&) { return t.wait(wait_ns); });
}

stemma_status stemma_transfer_results(stemma_transfer transfer, stemma_mover_result* out,
                                      size_t capacity, size_t* count) {
  return with_transfer(__func__, transfer, [&](mover::Transfer& t, MoverHome&) -> Result<void> {
    if (!t.over()) return Error(Errc::busy, "the transfer is not over");
    std::vector<stemma_mover_result> all;
    all.reserve(t.items());
    for (size_t i = 0; i < t.items(); ++i) {
      const mover::Transfer::Outcome outcome = t.outcome_of(i);
      all.push_back({outcome.sum, status_of(outcome.error), 0});
    }
    return fill(std::span<const stemma_mover_result>(all), out, capacity, count);
  });
}

stemma_status stemma_transfer_fence(stemma_transfer transfer, stemma_fence* out) {
  return end(__func__, caught([&]() -> Result<void> {
               if (out == nullptr) return Error(Errc::invalid_argument, "out is null");
               STEMMA_TRY(const HeldTransfer held, find_transfer(transfer));
               auto fence = std::make_unique<MoverFence>(MoverFence{held.home, held.transfer});
               {
                 const base::Lock lock(held.home->mutex);
                 held.home->fences.insert(fence.get());
               }
               *out = {signalled, fence.release()};
               return {};
             }));
}

stemma_status stemma_transfer_end(stemma_transfer transfer) {
  MoverHome* home = nullptr;
  const Result<void> dropped = with_slot(transfer, [&](auto& use) {
    home = use->home;
    // Forgotten first, so that the mover's end never meets a number that is gone.
    const base::Lock lock(home->mutex);
    home->transfers.erase(transfer);
    use.drop();
  });
  return end(__func__, dropped);
}

}  // extern "C"
