// stemma_sequence_tiers_* and stemma_fetch_*: SequenceTiers, with a cache that is known only
// through the C ABI.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <new>
#include <utility>

#include "base/invalid.h"
#include "capi/tiers/handles.h"

using namespace stemma;
using namespace stemma::capi;

namespace stemma::capi {

STEMMA_SIZED(stemma_sequence_tiers_options, STEMMA_SEQUENCE_TIERS_OPTIONS_INIT);
STEMMA_SIZED_GROWN(stemma_fetch_stats, used_again, {});

namespace {

constinit Places<stemma_sequence_tiers, SequenceTiersHome> tier_places;
// Neither leases nor turns count their generations from here.
constexpr uint32_t kFirstFetchGeneration = 0xC000'0000U;
constinit SlotTable<HeldFetch> fetch_table(kFirstFetchGeneration);

using base::invalid;

Result<tier::SequenceTiers::Options> decode_options(const stemma_sequence_tiers_options* given) {
  if (given == nullptr) return invalid("options is null");
  STEMMA_TRY(const stemma_sequence_tiers_options c, read_sized(given));
  if (c.reserved != 0) return invalid("options.reserved is not 0", c.reserved);
  if (c.keep_words > 1) return invalid("options.keep_words is neither 0 nor 1", c.keep_words);
  if (c.segment_tokens == 0 || c.segment_tokens > 1024 ||
      (c.segment_tokens & (c.segment_tokens - 1)) != 0) {
    return invalid("options.segment_tokens is no power of two from 1 to 1024", c.segment_tokens);
  }
  if (c.threads == 0 || c.threads > 64) {
    return invalid("options.threads is not from 1 to 64", c.threads);
  }
  if (c.traits == nullptr) return invalid("options.traits is null");
  tier::SequenceTiers::Options options;
  STEMMA_TRY(options.traits, decode_traits(c.traits));
  options.segment_tokens = c.segment_tokens;
  options.keep_words = c.keep_words != 0;
  options.threads = c.threads;
  options.queue = c.queue;
  return options;
}

ContentKey chain_of(const stemma_content_key* key) noexcept {
  ContentKey chain;
  std::copy_n(key->bytes, chain.bytes.size(), chain.bytes.begin());
  return chain;
}

Priority priority_of(uint32_t priority) noexcept {
  return static_cast<Priority>(std::min<uint32_t>(priority, kMaxPriority));
}

// Receives what a cache saved, from libstemma.so. If these tiers are destroyed already, the part is
// kept only in the cache.
void on_saved(void* user, const stemma_scope* scope, const stemma_prompt* prompt,
              const stemma_saved_part* part, const stemma_content_key* key, uint32_t priority) {
  const Result<SequenceTiersHome*> home =
      sequence_tiers().find(static_cast<stemma_sequence_tiers*>(user));
  if (!home) return;
  static_cast<void>(caught([&]() -> Result<void> {
    MediaRoom room;
    STEMMA_TRY(const Scope in, decode(scope));
    STEMMA_TRY(const Prompt words, decode(prompt, room));
    Retain retain;
    retain.priority = priority_of(priority);
    (*home)->tiers.saved(in, words,
                         {static_cast<EntryKind>(part->kind),
                          {part->range.begin, part->range.end},
                          {part->bytes, part->size}},
                         chain_of(key), retain);
    return {};
  }));
}

// If these tiers are destroyed, no level wants anything.
uint32_t on_wants(void* user, uint32_t kind, const stemma_content_key* key, uint32_t seen) {
  const Result<SequenceTiersHome*> home =
      sequence_tiers().find(static_cast<stemma_sequence_tiers*>(user));
  return home ? (*home)->tiers.wants(static_cast<EntryKind>(kind), chain_of(key),
                                     static_cast<SeenAgain>(seen))
              : 0;
}

void on_take(void* user, const stemma_saved_part* part, const stemma_content_key* key,
             uint32_t priority, const uint32_t* words, size_t word_count, uint32_t wanted) {
  const Result<SequenceTiersHome*> home =
      sequence_tiers().find(static_cast<stemma_sequence_tiers*>(user));
  if (!home) return;
  (*home)->tiers.take({static_cast<EntryKind>(part->kind),
                       {part->range.begin, part->range.end},
                       {part->bytes, part->size},
                       chain_of(key),
                       priority_of(priority),
                       {words, word_count}},
                      wanted);
}

Error why_no_fetch(Found found, uint64_t number) noexcept {
  const bool ours = number >> 32U > kFirstFetchGeneration;
  if (ours && found == Found::busy) return {Errc::busy, "another call is using this fetch"};
  if (ours && found == Found::gone) return {Errc::stale, "this fetch has ended"};
  return {Errc::invalid_argument, number == 0 ? "fetch is 0" : "no fetch ever had this number"};
}

template <class Body>
stemma_status with_fetch(const char* call, stemma_fetch number, Body&& body) noexcept {
  SlotTable<HeldFetch>::Use use(fetches(), number);
  if (use.found() != Found::yes) return fail(call, why_no_fetch(use.found(), number));
  return end(call, caught([&] { return body(use); }));
}

}  // namespace

Places<stemma_sequence_tiers, SequenceTiersHome>& sequence_tiers() noexcept { return tier_places; }
SlotTable<HeldFetch>& fetches() noexcept { return fetch_table; }

}  // namespace stemma::capi

stemma_status stemma_sequence_tiers_create(stemma_stack* stack,
                                           const stemma_sequence_tiers_options* options,
                                           stemma_sequence_tiers** out) {
  return with(__func__, stacks(), stack, [&](StackHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY(const auto full, decode_options(options));
    STEMMA_TRY(*out, place(sequence_tiers(), std::make_unique<SequenceTiersHome>(home, full)));
    return {};
  });
}

stemma_status stemma_sequence_tiers_destroy(stemma_sequence_tiers* tiers) {
  return with(__func__, sequence_tiers(), tiers, [&](SequenceTiersHome& home) -> Result<void> {
    if (!sequence_tiers().forget(tiers, &home)) return sequence_tiers().stale();
    delete &home;
    return {};
  });
}

stemma_status stemma_sequence_tiers_listen(stemma_sequence_tiers* tiers,
                                           stemma_sequence_options* options) {
  return with(__func__, sequence_tiers(), tiers, [&](SequenceTiersHome& home) -> Result<void> {
    if (options == nullptr) return invalid("options is null");
    STEMMA_TRY(const stemma_sequence_options full, read_sized(options));
    const bool hears_later = size_of(*options) >= sizeof full;
    if (size_of(*options) < offsetof(stemma_sequence_options, listener.wants)) {
      return invalid("options is of a version that has no listener", size_of(*options));
    }
    if (!hears_later && home.tiers.hears_later()) {
      return Error(Errc::unsupported,
                   "options is of a version without what write-back and second use need",
                   size_of(*options));
    }
    if (full.segment_tokens != home.segment_tokens) {
      return invalid("options.segment_tokens is not that of these tiers", full.segment_tokens);
    }
    options->listener.saved = on_saved;
    options->listener.user = tiers;
    if (!hears_later) return {};
    options->listener.wants = on_wants;
    options->listener.take = on_take;
    options->listener.keep_words = home.tiers.keeps_words() ? 1 : 0;
    return {};
  });
}

stemma_status stemma_sequence_tiers_fetch(stemma_sequence_tiers* tiers, stemma_sequences* cache,
                                          const stemma_scope* scope, const stemma_prompt* prompt,
                                          const stemma_turn_options* options,
                                          stemma_fetch_over_fn over, void* user,
                                          stemma_fetch* out) {
  const Result<SequenceTiersHome*> home = sequence_tiers().find(tiers);
  if (!home) return fail(__func__, home.error());
  if (out == nullptr) return fail(__func__, invalid("out is null"));
  // Reports what is in memory, and checks the prompt and its options.
  stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
  uint32_t saved_here = 0;
  stemma_status status = stemma_sequences_lookup(cache, scope, prompt, options, &report);
  if (status == STEMMA_OK) {
    status = stemma_sequences_saved_tokens(cache, scope, prompt, &saved_here);
  }
  uint32_t checkpoints[16];  // The deepest ones: others win less.
  uint32_t checkpoint_count = 0;
  if (status == STEMMA_OK) {
    status = stemma_sequences_saved_checkpoints(cache, scope, prompt, checkpoints,
                                                std::size(checkpoints), &checkpoint_count);
  }
  if (status != STEMMA_OK) return status;
  return end(__func__, caught([&]() -> Result<void> {
               MediaRoom room;
               TurnOptions turn;
               STEMMA_TRY(const Scope in, decode(scope));
               STEMMA_TRY(const Prompt words, decode(prompt, room));
               STEMMA_TRY_VOID(decode(options, turn));
               HeldFetch made;
               made.scope = *scope;
               made.tokens.assign(words.tokens.begin(), words.tokens.end());
               made.media.assign(prompt->media, prompt->media + prompt->media_count);
               tier::FetchOptions how;
               how.message_ends = turn.message_ends;
               how.have = report.reused_tokens;
               how.saved_here = saved_here;
               how.checkpoints_here = std::span(checkpoints).first(checkpoint_count);
               if (over != nullptr) how.on_over = [over, user] { over(user); };
               made.fetch = (*home)->tiers.fetch(in, words, how);
               const std::shared_ptr<tier::Fetch> begun = made.fetch;
               const uint64_t number =
                   fetches().put([&](HeldFetch& held) { held = std::move(made); });
               if (number == 0) {
                 begun->cancel();
                 return Error(Errc::out_of_memory, "no memory for another fetch");
               }
               *out = number;
               return {};
             }));
}

stemma_status stemma_sequence_tiers_forget(stemma_sequence_tiers* tiers, const stemma_scope* scope,
                                           const stemma_prompt* prefix, uint64_t wait_ns,
                                           stemma_drop_fn drop, void* user,
                                           stemma_level_purged* levels, size_t level_count,
                                           uint32_t* complete) {
  return with(__func__, sequence_tiers(), tiers, [&](SequenceTiersHome& home) -> Result<void> {
    Forgetting what;
    STEMMA_TRY_VOID(what.read(scope, prefix, levels, level_count, complete));
    const uint64_t until_ns = in(wait_ns);
    const auto drop_here = what.drop(drop, user);
    tell(what.scope ? home.tiers.forget(*what.scope, what.prefix, until_ns, drop_here)
                    : home.tiers.forget_everything(until_ns, drop_here),
         levels, level_count, complete);
    return {};
  });
}

stemma_status stemma_sequence_tiers_stats(stemma_sequence_tiers* tiers, stemma_fetch_stats* out) {
  return with(__func__, sequence_tiers(), tiers, [&](SequenceTiersHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    const tier::SequenceTiersStats stats = home.tiers.stats();
    write_sized(out, {.struct_size = 0,
                      .waiting = stats.waiting,
                      .heard = stats.heard,
                      .heard_bytes = stats.heard_bytes,
                      .dropped = stats.dropped,
                      .fetches = stats.fetches,
                      .found = stats.found,
                      .loaded = stats.loaded,
                      .not_worth_it = stats.not_worth_it,
                      .loaded_tokens = stats.loaded_tokens,
                      .loaded_bytes = stats.loaded_bytes,
                      .used_again = stats.used_again,
                      .written_back = stats.written_back,
                      .written_back_bytes = stats.written_back_bytes});
    return {};
  });
}

stemma_status stemma_fetch_wait(stemma_fetch fetch, uint64_t wait_ns, stemma_fetched* out) {
  std::shared_ptr<tier::Fetch> waited;
  const stemma_status found = with_fetch(__func__, fetch, [&](auto& use) -> Result<void> {
    waited = use->fetch;
    return {};
  });
  if (found != STEMMA_OK) return found;
  // Other threads may cancel it meanwhile.
  const bool over = wait_ns == 0 ? waited->over() : waited->wait(in(wait_ns));
  if (out != nullptr) {
    *out = {};
    if (over) {
      *out = {1,
              waited->stored_tokens(),
              waited->loaded_tokens(),
              waited->level(),
              waited->bytes(),
              waited->spent_ns()};
    }
  }
  return STEMMA_OK;
}

stemma_status stemma_fetch_cancel(stemma_fetch fetch) {
  return with_fetch(__func__, fetch, [&](auto& use) -> Result<void> {
    use->fetch->cancel();
    return {};
  });
}

stemma_status stemma_fetch_admit(stemma_fetch fetch, stemma_sequences* cache,
                                 const stemma_turn_options* options, stemma_admitted* out) {
  stemma_status admitted = STEMMA_OK;
  const stemma_status found = with_fetch(__func__, fetch, [&](auto& use) -> Result<void> {
    if (!use->fetch->over()) return Error(Errc::wrong_state, "the fetch is not over yet");
    std::vector<stemma_saved_part> parts;
    for (const SavedPart& part : use->fetch->parts()) {
      parts.push_back({static_cast<uint32_t>(part.kind),
                       0,
                       {part.range.begin, part.range.end},
                       part.bytes.data(),
                       part.bytes.size()});
    }
    const stemma_prompt words{use->tokens.data(), use->tokens.size(), use->media.data(),
                              use->media.size()};
    admitted = stemma_sequences_admit(cache, &use->scope, &words, parts.data(), parts.size(),
                                      options, out);
    return {};
  });
  return found != STEMMA_OK ? found : admitted;
}

stemma_status stemma_fetch_end(stemma_fetch fetch) {
  return with_fetch(__func__, fetch, [&](auto& use) -> Result<void> {
    use->fetch->cancel();
    use.drop();
    return {};
  });
}
