#include "capi/sequence_handles.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace stemma::capi {
namespace {

constinit Places<stemma_sequences, SequenceHome> sequence_places;
// Leases count their generations from 1, turns from here, so that the two are never confused.
constexpr uint32_t kFirstTurnGeneration = 0x8000'0000U;
constinit SlotTable<HeldTurn> turn_table(kFirstTurnGeneration);

}  // namespace

Places<stemma_sequences, SequenceHome>& sequence_caches() noexcept { return sequence_places; }
SlotTable<HeldTurn>& turns() noexcept { return turn_table; }

namespace {

stemma_saved_part c_part(EntryKind kind, Range range, std::span<const uint8_t> bytes) noexcept {
  return {static_cast<uint32_t>(kind), 0, {range.begin, range.end}, bytes.data(), bytes.size()};
}

stemma_content_key c_key(const ContentKey& chain) noexcept {
  stemma_content_key key;
  std::memcpy(key.bytes, chain.bytes.data(), sizeof key.bytes);
  return key;
}

}  // namespace

void CallbackListener::saved(const Scope& scope, const Prompt& prompt, const SavedPart& part,
                             const ContentKey& chain, const Retain& retain) noexcept try {
  stemma_scope in;
  std::memcpy(in.digest, scope.digest().data(), sizeof in.digest);
  std::vector<stemma_media_item> media(prompt.media.size());
  for (size_t i = 0; i < media.size(); ++i) {
    const MediaItem& item = prompt.media[i];
    media[i] = {.kind = static_cast<uint32_t>(item.kind),
                .offset = item.offset,
                .length = item.length,
                .causal = item.causal ? 1U : 0U,
                .digest = {}};
    std::copy(item.digest.begin(), item.digest.end(), media[i].digest);
  }
  const stemma_prompt words{prompt.tokens.data(), prompt.tokens.size(),
                            media.empty() ? nullptr : media.data(), media.size()};
  const stemma_saved_part what = c_part(part.kind, part.range, part.bytes);
  const stemma_content_key key = c_key(chain);
  listener_.saved(listener_.user, &in, &words, &what, &key, retain.priority);
} catch (const std::bad_alloc&) {
  // Then it is kept only here.
}

uint32_t CallbackListener::wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept {
  if (listener_.wants == nullptr || listener_.take == nullptr) return 0;
  const stemma_content_key key = c_key(chain);
  return listener_.wants(listener_.user, static_cast<uint32_t>(kind), &key,
                         static_cast<uint32_t>(seen));
}

bool CallbackListener::take(const KeptPart& part, uint32_t wanted) noexcept {
  const stemma_saved_part what = c_part(part.kind, part.range, part.bytes);
  const stemma_content_key key = c_key(part.chain);
  listener_.take(listener_.user, &what, &key, part.priority, part.words.data(), part.words.size(),
                 wanted);
  return true;
}

static_assert(STEMMA_SEEN_USED == static_cast<int>(SeenAgain::used));
static_assert(STEMMA_SEEN_LEAVING == static_cast<int>(SeenAgain::leaving));

Result<SequenceHome*> SequenceHome::create(const stemma_engine* engine,
                                           const stemma_sequence_options* options) {
  STEMMA_TRY(const CallbackEngine adapted, CallbackEngine::create(engine));
  STEMMA_TRY(const stemma_sequence_options given, read_sized(options));
  STEMMA_TRY(SequenceOptions full, decode(given));
  std::unique_ptr<SequenceHome> home(new SequenceHome(adapted));
  if (given.clock.now_ns != nullptr) full.clock = &home->clock_.emplace(given.clock);
  if (given.listener.saved != nullptr) full.listener = &home->listener_.emplace(given.listener);
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
  const bool ours = number >> 32U > kFirstTurnGeneration;
  if (ours && found == Found::busy) return {Errc::busy, "another call is using this turn"};
  if (ours && found == Found::gone) return {Errc::stale, "this turn has ended"};
  return {Errc::invalid_argument, number == 0 ? "turn is 0" : "no turn ever had this number"};
}

}  // namespace stemma::capi
