// Scheduler: loads what tiers have of a prompt while its request waits, and fills the tiers at the
// end.
#include <algorithm>
#include <iterator>

#include "server/schedule/scheduler.h"
#include "server/schedule/scheduler_stream.h"

namespace stemma::server {

namespace {

uint64_t lost_by(const tier::StackStats& stats) {
  uint64_t lost = 0;
  for (const tier::LevelStats& level : stats.levels) lost += level.lost + level.dropped;
  return lost;
}

}  // namespace

std::shared_ptr<tier::Fetch> Scheduler::look_in_tiers(const Request& request) {
  if (options_.tiers == nullptr || !request.asked.reuse || !options_.reuse) return nullptr;
  const Prompt prompt{.tokens = request.asked.prompt};
  TurnOptions options;
  options.message_ends = request.asked.message_ends;
  tier::FetchOptions how;
  how.message_ends = request.asked.message_ends;
  if (const Result<SequenceReport> here = cache_->lookup(request.scope, prompt, options)) {
    how.have = here->reused_tokens;
  }
  how.saved_here = cache_->saved_tokens(request.scope, prompt);
  uint32_t checkpoints[16];  // The deepest ones: others save less.
  how.checkpoints_here =
      std::span(checkpoints).first(cache_->saved_checkpoints(request.scope, prompt, checkpoints));
  how.on_over = [bell = bell_] { bell->ring(); };
  how.on_part = [bell = bell_, more = request.more_parts] {
    more->store(true, std::memory_order_release);
    bell->ring();
  };
  return options_.tiers->fetch(request.scope, prompt, how);
}

bool Scheduler::has_parts(const std::shared_ptr<Request>& request) {
  return request->more_parts->load(std::memory_order_acquire);
}

// Runs while the rest is on its way.
void Scheduler::take_in_parts() {
  std::vector<std::shared_ptr<Request>> fetching;
  {
    const base::Lock lock(mutex_);
    std::ranges::copy_if(arrived_, std::back_inserter(fetching), has_parts);
  }
  for (const std::shared_ptr<Request>& request : fetching) {
    request->more_parts->store(false, std::memory_order_relaxed);
    if (request->fetch == nullptr || request->over) continue;
    TurnOptions options;
    options.retain = retain_of(*request);
    const tier::LoadedParts more = request->fetch->take();
    take_in(*request, more.parts, options);
  }
}

void Scheduler::take_in_rest(Request& request, const TurnOptions& options) {
  const std::shared_ptr<tier::Fetch> fetch = std::move(request.fetch);
  request.fetch = nullptr;
  take_in(request, fetch->parts(), options);
  if (request.taken_in.taken == 0) return;
  request.summary.tier_tokens = fetch->loaded_tokens();
  request.summary.tier_bytes = request.taken_in.bytes;
  request.summary.tier_ns = fetch->spent_ns();
  request.summary.tier = options_.tiers->stack().tier(fetch->level()).traits().name;
}

void Scheduler::take_in(Request& request, std::span<const SavedPart> parts,
                        const TurnOptions& options) {
  if (parts.empty()) return;
  const Result<Admitted> taken =
      cache_->admit(request.scope, {.tokens = request.asked.prompt}, parts, options);
  if (!taken) return;
  request.taken_in.taken += taken->taken;
  request.taken_in.bytes += taken->bytes;
}

Scheduler::Kept Scheduler::keep_everything(uint64_t until_ns) {
  // Less than a tier's queue holds, so that nothing is dropped.
  constexpr uint64_t kPartBytes = 32U << 20U;
  Kept kept;
  tier::SequenceTiers* const tiers = options_.tiers;
  const uint64_t lost_before = tiers == nullptr ? 0 : lost_by(tiers->stack().stats());
  kept.ran = run([&](SequenceCache& cache) { kept.drained = cache.drain({.evict = true}); });
  if (!kept.ran || tiers == nullptr) return kept;
  // Entries evicted by drain() are on their way already. A tier that loses entries does not keep
  // them from the others.
  bool in_time = tiers->stack().flush(until_ns);
  bool makes_good = false;
  {
    const base::Lock lock(mutex_);
    makes_good = made_good_ != lost_before || flush_failed_;
  }
  bool over = !tiers->writes_back() && !makes_good;
  // A level may lose the best entries again while it receives the rest.
  constexpr uint32_t kMostRounds = 3;
  for (uint32_t round = 1; !over && in_time;) {
    HandedOn& all = kept.written_back;
    const bool ran = run([&](SequenceCache& cache) {
      tiers->offer_lost(makes_good);
      // Entries that do not fit into a tier beside the most used ones are not written.
      if (all.next == 0) all.next = cache.hand_on_from(tiers->hand_on_bytes());
      const HandedOn part = cache.hand_on(all.next, kPartBytes);
      tiers->offer_lost(false);
      all = {all.parts + part.parts, all.bytes + part.bytes, part.next, part.over};
    });
    over = !ran || all.over;
    in_time = ran && tiers->stack().flush(until_ns);
    if (!ran || !all.over || !in_time || round == kMostRounds) continue;
    ++round;
    over = tiers->check_handed_on() == 0;
    all.next = 0;
  }
  kept.in_tiers = in_time && lost_by(tiers->stack().stats()) == lost_before;
  for (const tier::LevelStats& level : tiers->stack().stats().levels) {
    const uint64_t asked = level.stored + level.promoted;
    kept.tiers.push_back({.name = level.name,
                          .stored = asked - std::min(asked, level.waiting + level.lost),
                          .waiting = level.waiting,
                          .lost = level.lost + level.dropped,
                          .too_large = level.too_large});
  }
  const base::Lock lock(mutex_);
  if (kept.in_tiers) made_good_ = lost_before;
  flush_failed_ = !in_time;
  return kept;
}

}  // namespace stemma::server
