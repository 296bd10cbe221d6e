#include "stemma/sequence_tiers.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "key/key_chain.h"
#include "tier/prompt_fetch.h"
#include "tier/wait_until.h"

namespace stemma::tier {

class SequenceTiers::Work {
 public:
  Work(TierStack& stack, const Options& options);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void saved(const Prompt& prompt, const SavedPart& part, const ContentKey& chain,
             const Retain& retain) noexcept;
  LevelMask wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept;
  void take(const KeptPart& part, LevelMask wanted) noexcept;
  bool keeps_words() const noexcept { return options_.keep_words; }
  bool writes_back() const noexcept { return write_back_ != 0; }
  bool hears_later() const noexcept { return (write_back_ | second_use_) != 0; }
  uint64_t hand_on_bytes() const noexcept;
  void offer_lost(bool on) noexcept { offers_lost_.store(on, std::memory_order_relaxed); }
  std::shared_ptr<Fetch> fetch(const Scope& scope, const Prompt& prompt,
                               const FetchOptions& options);
  std::vector<LevelPurged> forget(const Purge& what, uint64_t until_ns,
                                  const std::function<void()>& drop_here);
  Purge what_follows(const Scope& scope, const Prompt& prefix) const;
  uint64_t layout() const noexcept { return layout_; }
  TierStack& stack() noexcept { return stack_; }
  SequenceTiersStats stats() const;

 private:
  static constexpr LevelMask kLeaving = LevelMask{1} << kMostLevels;
  // What might be stored of a prompt.
  struct Candidates {
    std::vector<Wanted> wanted;
    std::vector<uint32_t> segments;  // By their ends, of the grid: indices into `wanted`.
    struct At {
      uint32_t depth = 0;
      uint32_t index = kNone;
    };
    std::vector<At> tails;  // Segments that end off the grid; ascending.
    std::vector<At>
        anchors;  // Depths that could be resumed, with the checkpoint or state it takes; ascending.
    static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  };

  StoreItem copy_of(const SavedPart& part, const ContentKey& chain, Priority priority,
                    std::span<const uint32_t> words) const;
  void work();
  void run(PromptFetch& fetch);
  void end(PromptFetch& fetch) noexcept;
  Candidates candidates(const PromptFetch& fetch) const;
  void add_depth(const PromptFetch& fetch, std::span<const key::MediaSpan> spans,
                 const ContentKey& key, uint32_t depth, Candidates& all) const;
  // Asks for what ends anywhere behind what was found: a capture ends where an answer ended, and nobody
  // who has another prompt knows where that was.
  void look_closer(const PromptFetch& fetch, Candidates& all, std::vector<LevelMask>& where) const;
  // The indices of what is needed for the deepest usable depth, and that depth.
  std::vector<uint32_t> usable(const Candidates& all, std::span<const LevelMask> where,
                               uint32_t& depth) const;
  // The segments that have [0, depth), if they are all there.
  bool add_base(const Candidates& all, std::span<const LevelMask> where, uint32_t depth,
                std::vector<uint32_t>& needed) const;
  uint64_t most_bytes(EntryKind kind, uint32_t begin, uint32_t end) const noexcept;
  LevelMask wanting_leavers() const noexcept;  // Levels that are offered what leaves, now.
  bool by_states() const noexcept { return !options_.traits.segments; }
  bool needs_anchor() const noexcept { return options_.traits.rewind != Rewind::any; }

  TierStack& stack_;
  const Options options_;
  const uint64_t layout_;
  // Levels by policy. Only write-back levels want what leaves memory: the others got it when it was saved.
  LevelMask write_back_ = 0, second_use_ = 0, write_through_ = 0;
  std::atomic<bool> offers_lost_ = false;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<PromptFetch>> queue_;
  std::vector<std::weak_ptr<PromptFetch>> fetches_;  // All that somebody has.
  std::vector<Purge> forgetting_;
  SequenceTiersStats stats_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

SequenceTiers::Work::Work(TierStack& stack, const Options& options)
    : stack_(stack), options_(options), layout_(SequenceTiers::layout(options)) {
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
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  for (const std::shared_ptr<PromptFetch>& fetch : queue_) end(*fetch);
}

SequenceTiersStats SequenceTiers::Work::stats() const {
  const std::lock_guard lock(mutex_);
  SequenceTiersStats stats = stats_;
  stats.waiting = static_cast<uint32_t>(queue_.size());
  return stats;
}

// ---- Out -------------------------------------------------------------------------------------------------

// An entry with a copy of the bytes. No payload: there is no memory for it.
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
  if (part.kind == EntryKind::logits) return;
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
  const std::lock_guard lock(mutex_);
  ++stats_.heard;
  stats_.heard_bytes += part.bytes.size();
  if (dropped) ++stats_.dropped;
} catch (const std::bad_alloc&) {
  const std::lock_guard lock(mutex_);
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
    if (capacity == 0) return kNever;
    most =
        std::max(most, capacity - capacity / 8);  // Headers and what is left over take room, too.
  }
  return most;
}

// Which levels, and whether it leaves.
LevelMask SequenceTiers::Work::wants(EntryKind kind, const ContentKey& chain,
                                     SeenAgain seen) noexcept {
  const bool leaving = seen == SeenAgain::leaving;
  const LevelMask able = leaving ? wanting_leavers() : ~LevelMask{0};
  if (able == 0) return 0;
  const Sighting sighting = leaving ? Sighting::evicted : Sighting::used_again;
  const LevelMask levels = stack_.wanting(entry_key(chain, kind, 0, layout_), sighting) & able;
  return levels == 0 || !leaving ? levels : levels | kLeaving;
}

void SequenceTiers::Work::take(const KeptPart& part, LevelMask wanted) noexcept try {
  const bool leaving = (wanted & kLeaving) != 0;
  StoreItem item = copy_of({part.kind, part.range, part.bytes, part.parent}, part.chain,
                           part.priority, part.words);
  item.sighting = leaving ? Sighting::evicted : Sighting::used_again;
  const bool dropped = item.payload == nullptr;
  if (!dropped) stack_.store(item, wanted & ~kLeaving);
  const std::lock_guard lock(mutex_);
  if (dropped) {
    ++stats_.dropped;
  } else if (leaving) {
    ++stats_.written_back;
    stats_.written_back_bytes += part.bytes.size();
  } else {
    ++stats_.used_again;
  }
} catch (const std::bad_alloc&) {
  const std::lock_guard lock(mutex_);
  ++stats_.dropped;
}

// ---- In --------------------------------------------------------------------------------------------------

std::shared_ptr<Fetch> SequenceTiers::Work::fetch(const Scope& scope, const Prompt& prompt,
                                                  const FetchOptions& options) {
  auto fetch = std::make_shared<PromptFetch>();
  fetch->scope_ = scope;
  fetch->tokens_.assign(prompt.tokens.begin(), prompt.tokens.end());
  fetch->media_.assign(prompt.media.begin(), prompt.media.end());
  fetch->have_ = options.have;
  fetch->saved_here_ = options.saved_here;
  fetch->on_over_ = options.on_over;
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
  // Where a prompt that was asked before was saved: before its last token, and at its end.
  for (const uint32_t depth : {length - std::min(length, 1U), length}) {
    if (depth != 0) fetch->depths_.push_back(depth);
  }
  std::ranges::sort(fetch->depths_);
  const auto doubles = std::ranges::unique(fetch->depths_);
  fetch->depths_.erase(doubles.begin(), doubles.end());
  bool taken = false;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.fetches;
    if (fetches_.size() == fetches_.capacity()) {
      std::erase_if(fetches_, [](const auto& one) { return one.expired(); });
      fetches_.reserve(std::max<size_t>(64, 2 * fetches_.size()));
    }
    fetches_.push_back(fetch);
    for (const Purge& what : forgetting_) {
      if (fetch->is_of(what)) fetch->forgotten_.store(true, std::memory_order_release);
    }
    // What is left to win lies behind what is there.
    taken = !closing_ && queue_.size() < options_.queue && fetch->have_ + 1 < length;
    if (taken) queue_.push_back(fetch);
    wake_.notify_one();
  }
  if (!taken) end(*fetch);
  return fetch;
}

void SequenceTiers::Work::end(PromptFetch& fetch) noexcept {
  fetch.spent_ns_ = monotonic_ns() - fetch.begun_ns_;
  {
    const std::lock_guard lock(fetch.mutex_);
    fetch.over_.store(true, std::memory_order_release);
    fetch.ended_.notify_all();
  }
  if (fetch.on_over_) fetch.on_over_();
}

void SequenceTiers::Work::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    const std::shared_ptr<PromptFetch> fetch = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      run(*fetch);
    } catch (const std::bad_alloc&) {
      // Then there is nothing to be had.
      fetch->parts_.clear();
      fetch->loaded_ = 0;
    }
    lock.lock();
    // Counted before anybody hears that it is over.
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

// What could be stored that ends at this depth.
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
    // Those that are here are not asked for; they count as there.
    const bool here = depth <= fetch.saved_here_;
    all.segments.push_back(here ? Candidates::kNone : add(EntryKind::segment, begin));
  }
  // Shallower than what is here is of no use, but for the segments under it.
  if (depth <= fetch.have_) return;
  if (!on_grid && !by_states()) all.tails.push_back({depth, add(EntryKind::segment, begin)});
  // One token is computed in any case, so what cannot be rewound must end before it.
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
    // What was saved together has segments up to where it ends.
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
  // The deepest first, so many at once.
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
  // Of a segment any part can be used: one that ends here, or further on.
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
    // Where one thing is of use only with all the others, what they win is the last one's.
    const bool alone = !needs_anchor() && !by_states();
    const uint32_t end = std::min(info.end, depth);
    wanted.back().tokens = alone ? end - std::min(end, std::max(info.begin, fetch.have_)) : 0;
  }
  if (needs_anchor() || by_states()) wanted.back().tokens = depth - fetch.have_;
  const LoadChoice choice = stack_.choose(wanted, levels);
  fetch.slower_ = choice.count == 0;
  if (choice.count == 0 || fetch.cancelled_.load(std::memory_order_acquire)) return;
  const auto patience = static_cast<uint64_t>(std::max(2 * choice.saved_ns, 1e9));
  const std::vector<Loaded> loaded =
      stack_.load(std::span(wanted).first(choice.count), std::span(levels).first(choice.count),
                  choice.saved_ns == 0 ? kNever : patience);
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i].payload == nullptr) break;  // What follows is of no use without it.
    const Wanted& one = wanted[i];
    fetch.payloads_.push_back(loaded[i].payload);
    fetch.parts_.push_back(
        {one.key.kind, {one.info.begin, one.info.end}, loaded[i].payload->span()});
    fetch.bytes_ += loaded[i].payload->size;
    fetch.level_ = std::max(fetch.level_, loaded[i].level);
    fetch.loaded_ = std::max(fetch.loaded_, std::min(one.info.end, depth));
  }
  if ((needs_anchor() || by_states()) && fetch.parts_.size() != needed.size()) fetch.loaded_ = 0;
  // A segment before the checkpoint at its end.
  std::ranges::sort(fetch.parts_, {},
                    [](const SavedPart& part) { return std::pair(part.range.end, part.kind); });
}

// ---- Forgetting --------------------------------------------------------------------------------

Purge SequenceTiers::Work::what_follows(const Scope& scope, const Prompt& prefix) const {
  Purge what{.owner = owner_of(scope)};
  what.keep = static_cast<uint32_t>(prefix.tokens.size());
  const uint32_t grid = what.keep / options_.segment_tokens * options_.segment_tokens;
  std::vector<key::MediaSpan> spans;
  // Of words that there cannot be no entry is known: then all that is deeper goes.
  const bool known = grid != 0 && (prefix.media.empty() || key::find_media_spans(prefix, spans)) &&
                     !key::first_bad_token(prefix.tokens, spans);
  if (!known) return what;
  key::KeyChain chain(scope, prefix.tokens, spans, options_.segment_tokens);
  what.follows = link_of(chain.at(grid));
  return what;
}

std::vector<LevelPurged> SequenceTiers::Work::forget(const Purge& what, uint64_t until_ns,
                                                     const std::function<void()>& drop_here) {
  {
    const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  forgetting_.erase(std::ranges::find(forgetting_, what));
  return purged;
}

// ---- The front door --------------------------------------------------------------------------------------

// Beside what the scope says: how entries are cut.
uint64_t SequenceTiers::layout(const Options& options) noexcept {
  constexpr uint32_t kSequences = 0x5345'5153;  // No paged engine's.
  return uint64_t{kSequences ^ options.model} << 32U | options.segment_tokens;
}

SequenceTiers::SequenceTiers(TierStack& stack, const Options& options)
    : work_(std::make_unique<Work>(stack, options)) {}
SequenceTiers::~SequenceTiers() = default;

void SequenceTiers::saved(const Scope& scope, const Prompt& prompt, const SavedPart& part,
                          const ContentKey& chain, const Retain& retain) noexcept {
  (void)scope;  // It is in the key.
  work_->saved(prompt, part, chain, retain);
}

uint32_t SequenceTiers::wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept {
  return work_->wants(kind, chain, seen);
}
void SequenceTiers::take(const KeptPart& part, uint32_t wanted) noexcept {
  work_->take(part, wanted);
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
TierStack& SequenceTiers::stack() noexcept { return work_->stack(); }
SequenceTiersStats SequenceTiers::stats() const { return work_->stats(); }

}  // namespace stemma::tier
