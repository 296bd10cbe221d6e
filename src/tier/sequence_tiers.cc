#include "stemma/tier/sequence_tiers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "stemma/log.h"
#include "tier/arrivals.h"
#include "tier/prompt_fetch.h"
#include "tier/wait_until.h"

namespace stemma::tier {

SequenceTiers::Work::Work(TierStack& stack, const Options& options)
    : stack_(stack),
      options_(options),
      usable_(SequenceTiers::check(options).has_value()),
      layout_(SequenceTiers::layout(options)) {
  if (!usable_) {
    log(LogLevel::error, "sequence tiers: segment_tokens " +
                             std::to_string(options.segment_tokens) +
                             " is no power of two from 1 to 1024; nothing is stored");
    return;
  }
  for (size_t l = 0; l < stack.levels(); ++l) {
    const WritePolicy policy = stack.write_policy(l);
    if (policy == WritePolicy::write_back) write_back_ |= LevelMask{1} << l;
    if (policy == WritePolicy::on_second_use) second_use_ |= LevelMask{1} << l;
    if (policy == WritePolicy::write_through) write_through_ |= LevelMask{1} << l;
  }
  for (uint32_t i = 0; i < std::max(1U, options.threads); ++i)
    threads_.emplace_back([this] { work(); });
}

SequenceTiers::Work::~Work() {
  {
    const base::Lock lock(mutex_);
    closing_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  for (const std::shared_ptr<PromptFetch>& fetch : queue_) end(*fetch);
}

SequenceTiersStats SequenceTiers::Work::stats() const {
  const base::Lock lock(mutex_);
  SequenceTiersStats stats = stats_;
  stats.waiting = static_cast<uint32_t>(queue_.size());
  return stats;
}

// ---- Out ----------------------------------------------------------------------------------------

// An entry with a copy of the bytes. Its payload is null if there is no memory for it.
StoreItem SequenceTiers::Work::copy_of(const SavedPart& part, const ContentKey& chain,
                                       Priority priority, std::span<const uint32_t> words) const {
  StoreItem item;
  item.key = entry_key(chain, part.kind, 0, layout_);
  item.info = {.begin = part.range.begin,
               .end = part.range.end,
               .layout = layout_,
               .bytes = part.bytes.size(),
               .words = static_cast<uint32_t>(words.size()),
               .parent = part.parent};
  item.priority = priority;
  item.words.assign(words.begin(), words.end());
  if (const std::shared_ptr<Payload> copy = Payload::make(part.bytes.size())) {
    std::memcpy(copy->data.get(), part.bytes.data(), part.bytes.size());
    item.payload = copy;
  }
  return item;
}

void SequenceTiers::Work::saved(const Prompt& prompt, const SavedPart& part,
                                const ContentKey& chain, const Retain& retain) noexcept try {
  if (part.kind == EntryKind::logits || !usable_) return;
  bool dropped = false;
  if (const LevelMask levels =
          stack_.wanting(entry_key(chain, part.kind, 0, layout_), Sighting::computed)) {
    std::span<const uint32_t> words;
    if (options_.keep_words && prompt.media.empty())
      words = prompt.tokens.subspan(part.range.begin, part.range.end - part.range.begin);
    const StoreItem item = copy_of(part, chain, retain.priority, words);
    dropped = item.payload == nullptr;
    if (!dropped) stack_.store(item, levels);
  }
  const base::Lock lock(mutex_);
  ++stats_.heard;
  stats_.heard_bytes += part.bytes.size();
  if (dropped) ++stats_.dropped;
} catch (const std::bad_alloc&) {
  const base::Lock lock(mutex_);
  ++stats_.heard;
  ++stats_.dropped;
}

LevelMask SequenceTiers::Work::wanting_leavers() const noexcept {
  return write_back_ | (offers_lost_.load(std::memory_order_relaxed) ? write_through_ : 0);
}

uint64_t SequenceTiers::Work::hand_on_bytes() const noexcept {
  uint64_t most = 0;
  for (size_t l = 0; l < stack_.levels(); ++l) {
    if ((wanting_leavers() & LevelMask{1} << l) == 0) continue;
    const uint64_t capacity = stack_.tier(l).traits().capacity_bytes;
    // Headers and unused gaps take room, too.
    const uint64_t room =
        capacity != 0 ? capacity - capacity / 8 : stack_.tier(l).stats().room_bytes;
    if (room == 0) return kNever;
    most = std::max(most, room);
  }
  return most;
}

// The levels that want it, and kLeaving if it leaves memory.
LevelMask SequenceTiers::Work::wants(EntryKind kind, const ContentKey& chain,
                                     SeenAgain seen) noexcept {
  const bool leaving = seen == SeenAgain::leaving;
  const LevelMask able = leaving ? wanting_leavers() : ~LevelMask{0};
  if (able == 0 || !usable_) return 0;
  const Sighting sighting = leaving ? Sighting::evicted : Sighting::used_again;
  const EntryKey key = entry_key(chain, kind, 0, layout_);
  if (leaving) note_left(key);
  const LevelMask levels = stack_.wanting(key, sighting) & able;
  return levels == 0 || !leaving ? levels : levels | kLeaving;
}

void SequenceTiers::Work::note_left(const EntryKey& key) noexcept try {
  const base::Lock lock(mutex_);
  if (left_.size() >= kMostLeft) left_.pop_front();
  left_.push_back(key);
} catch (const std::bad_alloc&) {
  // Then nothing checks whether the entry stays stored.
}

uint64_t SequenceTiers::Work::check_handed_on() {
  std::vector<Wanted> wanted;
  {
    const base::Lock lock(mutex_);
    const std::unordered_set<EntryKey> once(left_.begin(), left_.end());
    for (const EntryKey& key : once) wanted.push_back({.key = key, .info = {.layout = layout_}});
    left_.clear();
  }
  // Levels that report a lost entry want it again from now on.
  const std::vector<LevelMask> there = stack_.where(wanted);
  const LevelMask able = wanting_leavers();
  return static_cast<uint64_t>(
      std::ranges::count_if(there, [&](LevelMask levels) { return (able & ~levels) != 0; }));
}

bool SequenceTiers::Work::take(const KeptPart& part, LevelMask wanted) noexcept try {
  const bool leaving = (wanted & kLeaving) != 0;
  StoreItem item = copy_of({part.kind, part.range, part.bytes, part.parent}, part.chain,
                           part.priority, part.words);
  item.sighting = leaving ? Sighting::evicted : Sighting::used_again;
  const bool copied = item.payload != nullptr;
  const bool stored = copied && stack_.store(item, wanted & ~kLeaving) != 0;
  const base::Lock lock(mutex_);
  if (!copied) ++stats_.dropped;
  if (!stored) return false;  // Each level has counted why it does not get it.
  if (leaving) {
    ++stats_.written_back;
    stats_.written_back_bytes += part.bytes.size();
  } else {
    ++stats_.used_again;
  }
  return true;
} catch (const std::bad_alloc&) {
  const base::Lock lock(mutex_);
  ++stats_.dropped;
  return false;
}

// ---- In -----------------------------------------------------------------------------------------

std::shared_ptr<Fetch> SequenceTiers::Work::fetch(const Scope& scope, const Prompt& prompt,
                                                  const FetchOptions& options) {
  auto fetch = std::make_shared<PromptFetch>();
  fetch->scope_ = scope;
  fetch->tokens_.assign(prompt.tokens.begin(), prompt.tokens.end());
  fetch->media_.assign(prompt.media.begin(), prompt.media.end());
  fetch->have_ = options.have;
  fetch->saved_here_ = options.saved_here;
  fetch->on_over_ = options.on_over;
  fetch->on_part_ = options.on_part;
  fetch->begun_ns_ = monotonic_ns();
  const auto length = static_cast<uint32_t>(prompt.tokens.size());
  for (const uint32_t depth : options.message_ends) {
    if (depth != 0 && depth <= length) fetch->depths_.push_back(depth);
  }
  for (const uint32_t depth : options.checkpoints_here) {
    if (depth == 0 || depth > length) continue;
    fetch->depths_.push_back(depth);
    fetch->checkpoints_here_.push_back(depth);
  }
  // An earlier request with this prompt was saved before its last token and at its end.
  for (const uint32_t depth : {length - std::min(length, 1U), length}) {
    if (depth != 0) fetch->depths_.push_back(depth);
  }
  std::ranges::sort(fetch->depths_);
  const auto doubles = std::ranges::unique(fetch->depths_);
  fetch->depths_.erase(doubles.begin(), doubles.end());
  std::vector<key::MediaSpan> spans;
  const bool sane = usable_ && key::find_media_spans(prompt, spans).has_value() &&
                    !key::first_bad_token(prompt.tokens, spans);
  bool taken = false;
  {
    const base::Lock lock(mutex_);
    ++stats_.fetches;
    if (fetches_.size() == fetches_.capacity()) {
      std::erase_if(fetches_, [](const auto& one) { return one.expired(); });
      fetches_.reserve(std::max<size_t>(64, 2 * fetches_.size()));
    }
    fetches_.push_back(fetch);
    for (const Purge& what : forgetting_) {
      if (fetch->is_of(what)) fetch->forgotten_.store(true, std::memory_order_release);
    }
    // A fetch can only win tokens beyond what is already in memory.
    taken = sane && !closing_ && queue_.size() < options_.queue && fetch->have_ + 1 < length;
    if (taken) queue_.push_back(fetch);
    wake_.notify_one();
  }
  if (!taken) end(*fetch);
  return fetch;
}

void SequenceTiers::Work::end(PromptFetch& fetch) noexcept {
  fetch.spent_ns_ = monotonic_ns() - fetch.begun_ns_;
  {
    const base::Lock lock(fetch.mutex_);
    fetch.over_.store(true, std::memory_order_release);
    fetch.ended_.notify_all();
  }
  if (fetch.on_over_) fetch.on_over_();
}

void SequenceTiers::Work::work() {
  base::Lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return closing_ || !queue_.empty(); });
    if (closing_) return;
    const std::shared_ptr<PromptFetch> fetch = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      run(*fetch);
    } catch (const std::bad_alloc&) {
      // Out of memory: only parts that were already taken can be used.
      fetch->drop_parts();
    }
    lock.lock();
    // Counted before the caller hears that the fetch is over.
    if (fetch->stored_ > fetch->have_) {
      ++stats_.found;
      ++(fetch->loaded_ > fetch->have_ ? stats_.loaded
         : fetch->slower_              ? stats_.not_worth_it
                                       : stats_.not_to_be_had);
    }
    stats_.loaded_tokens += fetch->loaded_;
    stats_.loaded_bytes += fetch->bytes_;
    lock.unlock();
    end(*fetch);
    lock.lock();
  }
}

uint64_t SequenceTiers::Work::most_bytes(EntryKind kind, uint32_t begin,
                                         uint32_t end) const noexcept {
  const EngineTraits& traits = options_.traits;
  const uint64_t tokens = traits.fixed_bytes + uint64_t{end - begin} * traits.bytes_per_token;
  switch (kind) {
    case EntryKind::segment: return tokens;
    case EntryKind::checkpoint: return traits.checkpoint_bytes;
    default: return tokens + traits.checkpoint_bytes;
  }
}

// Adds the entries that may be stored for this depth.
void SequenceTiers::Work::add_depth(const PromptFetch& fetch, std::span<const key::MediaSpan> spans,
                                    const ContentKey& key, uint32_t depth, Candidates& all) const {
  const auto add = [&](EntryKind kind, uint32_t begin) {
    Wanted wanted{
        entry_key(key, kind, 0, layout_), {.begin = begin, .end = depth, .layout = layout_}, 0};
    wanted.at_most = most_bytes(kind, begin, depth);
    all.wanted.push_back(wanted);
    return static_cast<uint32_t>(all.wanted.size() - 1);
  };
  const uint32_t begin = (depth - 1) / options_.segment_tokens * options_.segment_tokens;
  const bool on_grid = depth == begin + options_.segment_tokens;
  if (on_grid && !by_states()) {
    // Segments that are already in memory are not requested; they count as present.
    const bool here = depth <= fetch.saved_here_;
    all.segments.push_back(here ? Candidates::kNone : add(EntryKind::segment, begin));
  }
  // A depth below what is in memory is useless, except for its segments.
  if (depth <= fetch.have_) return;
  if (!on_grid && !by_states()) all.tails.push_back({depth, add(EntryKind::segment, begin)});
  // The last token is computed in any case, so an engine that cannot rewind must end before it.
  const bool last = depth == fetch.tokens_.size();
  if (key::floor_to_unit(spans, depth) != depth || (needs_anchor() && last)) return;
  const bool alone = !needs_anchor() && !by_states();
  const bool here = !by_states() && std::ranges::find(fetch.checkpoints_here_, depth) !=
                                        fetch.checkpoints_here_.end();
  const EntryKind anchor = by_states() ? EntryKind::state : EntryKind::checkpoint;
  all.anchors.push_back({depth, alone || here ? Candidates::kNone : add(anchor, 0)});
}

SequenceTiers::Work::Candidates SequenceTiers::Work::candidates(const PromptFetch& fetch) const {
  Candidates all;
  std::vector<key::MediaSpan> spans;
  if (!key::find_media_spans({fetch.tokens_, fetch.media_}, spans)) return all;
  key::KeyChain chain(fetch.scope_, fetch.tokens_, spans, options_.segment_tokens);
  const uint32_t grid = options_.segment_tokens;
  const auto length = static_cast<uint32_t>(fetch.tokens_.size());
  auto off_grid = fetch.depths_.begin();
  for (uint32_t depth = 0; depth < length;) {
    const uint32_t next_grid = (depth / grid + 1) * grid;
    while (off_grid != fetch.depths_.end() && *off_grid <= depth) ++off_grid;
    depth = off_grid == fetch.depths_.end() ? next_grid : std::min(next_grid, *off_grid);
    if (depth <= length) add_depth(fetch, spans, chain.at(depth), depth, all);
  }
  return all;
}

void SequenceTiers::Work::look_closer(const PromptFetch& fetch, Candidates& all,
                                      std::vector<LevelMask>& where) const {
  const uint32_t grid = options_.segment_tokens;
  auto end = static_cast<uint32_t>(fetch.tokens_.size());
  uint32_t depth = 0;
  (void)usable(all, where, depth);
  uint32_t begin = std::max(depth, fetch.have_) + 1;
  if (!by_states()) {
    // Entries that were saved together have segments up to their end.
    uint32_t base = 0;
    for (const uint32_t index : all.segments) {
      if (index != Candidates::kNone && where[index] == 0) break;
      base += grid;
    }
    begin = std::max(begin, base + 1);
    end = std::min(end, base + grid - 1);
  }
  std::vector<key::MediaSpan> spans;
  if (!key::find_media_spans({fetch.tokens_, fetch.media_}, spans)) return;
  // Deepest first, this many at once.
  constexpr uint32_t kAtOnce = 1024;
  while (begin <= end && !fetch.cancelled_.load(std::memory_order_acquire)) {
    const uint32_t from = std::max(begin, end - std::min(end, kAtOnce - 1));
    const size_t asked = all.wanted.size();
    key::KeyChain chain(fetch.scope_, fetch.tokens_, spans, grid);
    for (depth = from; depth <= end; ++depth) {
      if (depth % grid == 0 || std::ranges::binary_search(fetch.depths_, depth)) continue;
      add_depth(fetch, spans, chain.at(depth), depth, all);
    }
    std::ranges::sort(all.tails, {}, &Candidates::At::depth);
    std::ranges::sort(all.anchors, {}, &Candidates::At::depth);
    const std::vector<LevelMask> found = stack_.where(std::span(all.wanted).subspan(asked));
    where.insert(where.end(), found.begin(), found.end());
    if (std::ranges::any_of(found, [](LevelMask levels) { return levels != 0; })) return;
    end = from - 1;
  }
}

bool SequenceTiers::Work::add_base(const Candidates& all, std::span<const LevelMask> where,
                                   uint32_t depth, std::vector<uint32_t>& needed) const {
  const auto there = [&](uint32_t index) {
    return index == Candidates::kNone || where[index] != 0;
  };
  const uint32_t grid = options_.segment_tokens;
  const size_t whole = depth / grid;
  for (size_t i = 0; i < whole; ++i) {
    if (!there(all.segments[i])) return false;
    if (all.segments[i] != Candidates::kNone) needed.push_back(all.segments[i]);
  }
  if (depth % grid == 0) return true;
  // Any part of a segment can be used: one that ends here or further on will do.
  for (const Candidates::At& tail : all.tails) {
    if (tail.depth < depth || tail.depth / grid != whole || where[tail.index] == 0) continue;
    needed.push_back(tail.index);
    return true;
  }
  if (whole >= all.segments.size() || !there(all.segments[whole])) return false;
  if (all.segments[whole] != Candidates::kNone) needed.push_back(all.segments[whole]);
  return true;
}

std::vector<uint32_t> SequenceTiers::Work::usable(const Candidates& all,
                                                  std::span<const LevelMask> where,
                                                  uint32_t& depth) const {
  std::vector<uint32_t> needed;
  for (auto one = all.anchors.rbegin(); one != all.anchors.rend(); ++one) {
    if (one->index != Candidates::kNone && where[one->index] == 0) continue;
    needed.clear();
    if (!by_states() && !add_base(all, where, one->depth, needed)) continue;
    if (one->index != Candidates::kNone) needed.push_back(one->index);
    depth = one->depth;
    return needed;
  }
  depth = 0;
  return {};
}

void SequenceTiers::Work::run(PromptFetch& fetch) {
  if (fetch.cancelled_.load(std::memory_order_acquire)) return;
  Candidates all = candidates(fetch);
  std::vector<LevelMask> where = stack_.where(all.wanted);
  look_closer(fetch, all, where);
  uint32_t depth = 0;
  const std::vector<uint32_t> needed = usable(all, where, depth);
  if (needed.empty() || depth <= fetch.have_) return;
  fetch.stored_ = depth;
  std::vector<Wanted> wanted;
  std::vector<LevelMask> levels;
  for (const uint32_t index : needed) {
    wanted.push_back(all.wanted[index]);
    levels.push_back(where[index]);
    const EntryInfo& info = wanted.back().info;
    // If entries are useful only all together, the last one is credited with all the tokens.
    const bool alone = !needs_anchor() && !by_states();
    const uint32_t end = std::min(info.end, depth);
    wanted.back().tokens = alone ? end - std::min(end, std::max(info.begin, fetch.have_)) : 0;
  }
  if (needs_anchor() || by_states()) wanted.back().tokens = depth - fetch.have_;
  const LoadChoice choice = stack_.choose(wanted, levels);
  fetch.slower_ = choice.count == 0;
  if (choice.count == 0 || fetch.cancelled_.load(std::memory_order_acquire)) return;
  const auto patience = static_cast<uint64_t>(std::max(2 * choice.saved_ns, 1e9));
  const bool alone = !needs_anchor() && !by_states();
  Arrivals arrivals(fetch, std::span(wanted).first(choice.count), depth, alone);
  (void)stack_.load(std::span(wanted).first(choice.count), std::span(levels).first(choice.count),
                    choice.saved_ns == 0 ? kNever : patience,
                    [&](size_t index, const Loaded& loaded) { arrivals.add(index, loaded); });
  arrivals.end(needed.size());
}

// ---- Forgetting --------------------------------------------------------------------------------

Purge SequenceTiers::Work::what_follows(const Scope& scope, const Prompt& prefix) const {
  Purge what{.owner = owner_of(scope)};
  what.keep = static_cast<uint32_t>(prefix.tokens.size());
  const uint32_t segment = usable_ ? options_.segment_tokens : 1;
  const uint32_t grid = what.keep / segment * segment;
  std::vector<key::MediaSpan> spans;
  // For words that cannot exist, no entry is known: then everything deeper goes.
  const bool known = grid != 0 && (prefix.media.empty() || key::find_media_spans(prefix, spans)) &&
                     !key::first_bad_token(prefix.tokens, spans);
  if (!known) return what;
  key::KeyChain chain(scope, prefix.tokens, spans, segment);
  what.follows = link_of(chain.at(grid));
  return what;
}

std::vector<LevelPurged> SequenceTiers::Work::forget(const Purge& what, uint64_t until_ns,
                                                     const std::function<void()>& drop_here) {
  {
    const base::Lock lock(mutex_);
    forgetting_.push_back(what);
    for (const std::weak_ptr<PromptFetch>& one : fetches_) {
      const std::shared_ptr<PromptFetch> fetch = one.lock();
      if (fetch == nullptr || !fetch->is_of(what)) continue;
      fetch->forgotten_.store(true, std::memory_order_release);
      fetch->cancel();
    }
  }
  if (drop_here) drop_here();
  std::vector<LevelPurged> purged = stack_.purge(what, until_ns);
  const base::Lock lock(mutex_);
  forgetting_.erase(std::ranges::find(forgetting_, what));
  return purged;
}

// ---- The front door -----------------------------------------------------------------------------

// The layout says how entries are cut; the scope does not.
uint64_t SequenceTiers::layout(const Options& options) noexcept {
  constexpr uint32_t kSequences = 0x5345'5153;  // No paged engine has this value.
  return uint64_t{kSequences ^ options.model} << 32U | options.segment_tokens;
}

Result<void> SequenceTiers::check(const Options& options) {
  const uint32_t tokens = options.segment_tokens;
  if (tokens > key::kMaxBlockWords || !std::has_single_bit(tokens)) {
    return Error(Errc::invalid_argument, "segment_tokens is no power of two from 1 to 1024",
                 tokens);
  }
  return {};
}

Result<std::unique_ptr<SequenceTiers>> SequenceTiers::create(TierStack& stack,
                                                             const Options& options) try {
  STEMMA_TRY_VOID(check(options));
  return std::make_unique<SequenceTiers>(stack, options);
} catch (const std::exception&) {
  return Error(Errc::out_of_memory, "no memory or no threads for the tiers of sequences");
}

SequenceTiers::SequenceTiers(TierStack& stack, const Options& options)
    : work_(std::make_unique<Work>(stack, options)) {}
SequenceTiers::~SequenceTiers() = default;

void SequenceTiers::saved(const Scope& /*scope*/, const Prompt& prompt, const SavedPart& part,
                          const ContentKey& chain, const Retain& retain) noexcept {
  work_->saved(prompt, part, chain, retain);
}

uint32_t SequenceTiers::wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept {
  return work_->wants(kind, chain, seen);
}
bool SequenceTiers::take(const KeptPart& part, uint32_t wanted) noexcept {
  return work_->take(part, wanted);
}
bool SequenceTiers::keeps_words() const noexcept { return work_->keeps_words(); }

std::shared_ptr<Fetch> SequenceTiers::fetch(const Scope& scope, const Prompt& prompt,
                                            const FetchOptions& options) {
  return work_->fetch(scope, prompt, options);
}

std::vector<LevelPurged> SequenceTiers::forget(const Scope& scope, const Prompt& prefix,
                                               uint64_t until_ns,
                                               const std::function<void()>& drop_here) {
  return work_->forget(work_->what_follows(scope, prefix), until_ns, drop_here);
}
std::vector<LevelPurged> SequenceTiers::forget_everything(uint64_t until_ns,
                                                          const std::function<void()>& drop_here) {
  return work_->forget({.layout = work_->layout()}, until_ns, drop_here);
}

void SequenceTiers::offer_lost(bool on) noexcept { work_->offer_lost(on); }
bool SequenceTiers::writes_back() const noexcept { return work_->writes_back(); }
bool SequenceTiers::hears_later() const noexcept { return work_->hears_later(); }
uint64_t SequenceTiers::hand_on_bytes() const noexcept { return work_->hand_on_bytes(); }
uint64_t SequenceTiers::check_handed_on() { return work_->check_handed_on(); }
TierStack& SequenceTiers::stack() noexcept { return work_->stack(); }
uint64_t SequenceTiers::layout() const noexcept { return work_->layout(); }
SequenceTiersStats SequenceTiers::stats() const { return work_->stats(); }

}  // namespace stemma::tier
