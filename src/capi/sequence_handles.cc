#include "capi/sequence_handles.h"

#include <memory>
#include <utility>

namespace stemma::capi {
namespace {

constinit Places<stemma_sequences, SequenceHome> places;
// Leases count their generations from 1, turns from here, so that one is not taken for the other.
constexpr uint32_t kFirstGeneration = 0x8000'0000U;
constinit SlotTable<HeldTurn> turn_table(kFirstGeneration);

}  // namespace

Places<stemma_sequences, SequenceHome>& sequence_caches() noexcept { return places; }
SlotTable<HeldTurn>& turns() noexcept { return turn_table; }

Result<SequenceHome*> SequenceHome::create(const stemma_engine* engine,
                                           const stemma_sequence_options* options) {
  STEMMA_TRY(const CallbackEngine adapted, CallbackEngine::create(engine));
  STEMMA_TRY(const stemma_sequence_options given, read_sized(options));
  STEMMA_TRY(SequenceOptions full, decode(given));
  std::unique_ptr<SequenceHome> home(new SequenceHome(adapted));
  if (given.clock.now_ns != nullptr) full.clock = &home->clock_.emplace(given.clock);
  if (!adapted.saves()) full.saved_bytes = 0;
  STEMMA_TRY(SequenceCache cache, SequenceCache::create(home->engine_, full));
  home->cache_.emplace(std::move(cache));
  home->closed_ = given.closed;
  home->closed_user_ = given.closed_user;
  return home.release();
}

void SequenceHome::close() noexcept {
  const auto closed = closed_;
  void* const user = closed_user_;
  delete this;
  if (closed != nullptr) closed(user);
}

Result<void> hand_out(Result<Turn>& turn, SequenceHome& home, stemma_turn& out) noexcept {
  if (!turn) return turn.error();
  home.hold();
  const uint64_t number = turns().put([&](HeldTurn& held) {
    held.turn = *std::move(turn);
    held.home = &home;
  });
  if (number == 0) {
    *turn = Turn();  // Before its home.
    home.let_go();
    return Error(Errc::out_of_memory, "no memory for another turn");
  }
  out = number;
  return {};
}

Error why_no_turn(Found found, uint64_t number) noexcept {
  const bool ours = number >> 32U > kFirstGeneration;
  if (ours && found == Found::busy) return {Errc::busy, "another call is using this turn"};
  if (ours && found == Found::gone) return {Errc::stale, "this turn has ended"};
  return {Errc::invalid_argument, number == 0 ? "turn is 0" : "no turn ever had this number"};
}

}  // namespace stemma::capi
