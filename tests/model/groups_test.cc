// Random operations over caches with several layer groups: full, window and recurrent attention,
// block sizes from 1 to 32 mixed, with and without a full group.
//
// The library may choose which window blocks and checkpoints survive pressure, so decisions are not
// predicted here but judged:
//   exact   contents: every position a lease reuses or has committed holds its own prompt's stamp;
//           no reuse ends inside a unit, beyond the limit or beyond what was ever committed;
//           a recurrent state is loaded only at its exact depth; the books of every group add up;
//           a refusal changes nothing and comes only when some group really lacks free blocks.
//   bounds  reused <= what coverage allows if everything ever committed were still there;
//           reused >= what coverage allows with only what a live lease pins, or a lease has just
//           left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/world.h"
#include "stemma/cache.h"
#include "support/fake_engine.h"

namespace stemma::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr Token kUnheardOf = 1'000'000;  // No text holds it.

// ---- Coverage, by definition ------------------------------------------------------------------

struct Present {
  std::function<uint32_t(GroupIndex, uint32_t block)> tokens;  // Leading positions there.
  std::function<bool(GroupIndex, uint32_t depth)> checkpoint;
};

bool servable(std::span<const GroupOptions> groups, uint32_t n, bool allow_copy,
              const Present& present) {
  for (GroupIndex g = 0; g < groups.size(); ++g) {
    const GroupOptions& group = groups[g];
    if (group.attention == Attention::recurrent) {
      if (!present.checkpoint(g, n)) return false;
      continue;
    }
    const uint32_t size = group.block_tokens;
    if (n % size != 0 && !allow_copy) return false;
    const bool full = group.attention == Attention::full;
    const uint32_t reach = full ? 0 : n - std::min(n, group.window_tokens);
    for (uint32_t p = 0; p < n; ++p) {
      const bool read = p >= reach || p < group.sink_tokens;
      const uint32_t block = p / size;
      if (read && present.tokens(g, block) < std::min(size, n - block * size)) return false;
    }
  }
  return true;
}

uint32_t largest_servable(std::span<const GroupOptions> groups, const Story& story, uint32_t limit,
                          bool allow_copy, const Present& present) {
  for (uint32_t n = story.floor(limit); n > 0; n = story.floor(n - 1)) {
    if (servable(groups, n, allow_copy, present)) return n;
  }
  return 0;
}

uint32_t common_prefix(const Story& a, const Story& b) {
  uint32_t low = 0;
  uint32_t high = std::min(a.size(), b.size());
  while (low < high) {  // Prefix hashes agree up to the common prefix and never after it.
    const uint32_t middle = (low + high + 1) / 2;
    (a.hash(middle) == b.hash(middle) ? low : high) =
        a.hash(middle) == b.hash(middle) ? middle : middle - 1;
  }
  return low;
}

// ---- Configurations ---------------------------------------------------------------------------

GroupOptions random_group(Random& random, Attention attention, uint32_t positions) {
  GroupOptions group{
      .attention = attention, .block_tokens = 1U << random.below(6), .block_bytes = 64};
  switch (attention) {
    case Attention::full: group.capacity_blocks = positions / group.block_tokens + 4; break;
    case Attention::window:
      group.window_tokens = random.between(1, 3 * group.block_tokens + 8);
      if (random.chance(40)) group.sink_tokens = random.between(1, 2 * group.block_tokens);
      // Sometimes too few for all windows, so that holes appear.
      group.capacity_blocks = positions / group.block_tokens / random.between(1, 3) + 4;
      break;
    case Attention::recurrent: group.capacity_blocks = random.between(1, 12); break;
  }
  return group;
}

std::vector<GroupOptions> random_groups(Random& random, uint32_t positions) {
  using enum Attention;
  static const std::vector<std::vector<Attention>> kShapes = {
      {full, window},      {full, window, window},    {window},
      {window, window},    {full, recurrent},         {recurrent},
      {window, recurrent}, {full, window, recurrent}, {full, full},
      {window, full},      {recurrent, full, window}, {full, window, window, recurrent}};
  std::vector<GroupOptions> groups;
  for (const Attention attention : kShapes[random.below(static_cast<uint32_t>(kShapes.size()))]) {
    groups.push_back(random_group(random, attention, positions));
  }
  // Often the layout engines have: the first group's blocks number the cells.
  if (random.chance(50)) {
    for (GroupOptions& group : groups) {
      if (group.attention == Attention::recurrent) continue;
      groups[0].block_tokens = std::min(groups[0].block_tokens, group.block_tokens);
    }
    if (groups[0].attention != Attention::recurrent) {
      groups[0].capacity_blocks = positions / groups[0].block_tokens + 4;
    }
  }
  return groups;
}

std::string describe(std::span<const GroupOptions> groups) {
  std::string text;
  for (const GroupOptions& group : groups) {
    static constexpr const char* kNames[] = {"full", "window", "recurrent"};
    text += std::string(kNames[static_cast<int>(group.attention)]) + "(block_tokens " +
            std::to_string(group.block_tokens) + ", blocks " +
            std::to_string(group.capacity_blocks) + ", window " +
            std::to_string(group.window_tokens) + ", sinks " + std::to_string(group.sink_tokens) +
            ") ";
  }
  return text;
}

// ---- One run ----------------------------------------------------------------------------------

// Counts of what all runs have seen.
struct GroupsSeen {
  uint64_t operations = 0;
  uint64_t runs = 0;
  std::array<uint64_t, kMissReasonCount> reasons{};
  uint64_t copies = 0;
  uint64_t states_loaded = 0;
  uint64_t lower_bounds = 0;       // Lookups that had to serve something and did.
  uint64_t window_only_reach = 0;  // Reuses that a full group could not have served alone.
  uint64_t refusals = 0;
  uint64_t orphans = 0;
  uint64_t copies_given_up = 0;
};

class GroupsRun {
 public:
  static constexpr uint32_t kMaxLive = 8, kStepsPerRun = 600;

  GroupsRun(uint64_t seed, StepLog& log, GroupsSeen& seen)
      : random_(seed),
        positions_(random_.between(60, 900)),
        groups_(random_groups(random_, positions_)),
        cell_tokens_(cell_tokens(groups_)),
        author_({.block_tokens = cell_tokens_,
                 .letters = random_.between(2, 5),
                 .longest_tokens = positions_ * 2 / 3,
                 .media_percent = random_.chance(40) ? 5U : 0U,
                 .long_percent = 30},
                random_),
        engine_(groups_),
        log_(log),
        seen_(seen),
        cache_(PagedCache::create(options()).value()) {
    for (const char* name : {"a", "b"}) {
      scopes_.push_back(Scope::make({.model = "groups", .caller_namespace = name}).value());
    }
    log_.begin(seed, describe(groups_));
  }

  // "" or what went wrong.
  std::string run() {
    for (uint32_t step = 1; step <= kStepsPerRun && wrong_.empty(); ++step) {
      log_.step(step, "");
      operate();
      check_books();
      ++seen_.operations;
    }
    if (wrong_.empty()) finish();
    if (wrong_.empty()) count();
    ++seen_.runs;
    return wrong_;
  }

 private:
  struct Live {
    Lease lease = {};
    uint32_t scope = 0;
    Text text = {};    // Of the prompt: a lookup of it finds what the lease found and committed.
    Story story = {};  // All words, sampled ones included.
    LookupOptions lookup = {};
    uint32_t id = 0;
    bool dropped = false;      // Its root is no longer its scope's.
    uint32_t cut_at = kUncut;  // Where truncate cut it off.
    bool duplicate = false;    // Somewhere another lease's blocks are the canonical ones.

    static constexpr uint32_t kUncut = ~0U;
    bool orphan() const { return dropped || cut_at != kUncut; }
    // A lease that shares nothing from the cut on can be found again from there on.
    void stepped_back(uint32_t cell_tokens) {
      if (lease.committed() / cell_tokens * cell_tokens <= cut_at) cut_at = kUncut;
    }
  };

  struct Checkpoint {
    GroupIndex group;
    uint32_t depth;
    uint64_t hash;
    friend auto operator<=>(const Checkpoint&, const Checkpoint&) = default;
  };

  static uint32_t cell_tokens(std::span<const GroupOptions> groups) {
    uint32_t smallest = 0;
    for (const GroupOptions& group : groups) {
      if (group.attention == Attention::recurrent) continue;
      smallest = smallest == 0 ? group.block_tokens : std::min(smallest, group.block_tokens);
    }
    return smallest == 0 ? 16 : smallest;
  }

  Options options() {
    Options options;
    options.groups = groups_;
    options.block_io = &engine_;
    options.clock = &clock_;
    return options;
  }

  bool expect(bool truth, const std::string& what) {
    if (!truth && wrong_.empty()) wrong_ = what;
    return truth;
  }
  void expect_nothing_wrong(const std::string& wrong) { expect(wrong.empty(), wrong); }

  void operate() {
    clock_.advance_ns(1000);
    const uint32_t dice = random_.below(100);
    if (live_.empty() || (dice < 22 && live_.size() < kMaxLive)) return begin();
    Live& l = live_[random_.below(static_cast<uint32_t>(live_.size()))];
    if (dice < 30) return look();
    if (!l.lease.copies().empty() && dice < 80) return load(l);
    if (dice < 52) return commit(l);
    if (dice < 58) return extend(l);
    if (dice < 66) return checkpoint(l);
    if (dice < 70) return fork(l);
    if (dice < 74) return rewind(l);
    if (dice < 77) return shrink(l);
    if (dice < 79) return forget();
    if (dice < 82) {
      const uint32_t blocks = random_.between(1, 6);
      log_.note("evict " + std::to_string(blocks));
      cache_.evict(blocks);
      return;
    }
    end(l);
  }

  // ---- What is known ----------------------------------------------------------------------------

  // As much of the story as could be cached if nothing had ever been evicted.
  uint32_t most_matched(uint32_t scope, const Story& story) const {
    uint32_t most = 0;
    for (const auto& [in, committed] : ever_) {
      if (in == scope) most = std::max(most, common_prefix(story, committed));
    }
    return story.floor(most);
  }

  void check_report(const Report& report, uint32_t scope, const Story& story,
                    const LookupOptions& options) {
    const uint32_t matched = options.read ? most_matched(scope, story) : 0;
    uint32_t limit = story.size();
    for (uint32_t i = 0; i < std::max(1U, options.evaluate_at_least) && limit > 0; ++i) {
      limit = story.floor(limit - 1);
    }
    limit = story.floor(std::min(limit, options.at_most));
    const Present everything{.tokens = [&](GroupIndex, uint32_t) { return ~0U; },
                             .checkpoint =
                                 [&](GroupIndex g, uint32_t n) {
                                   return checkpoints_ever_.contains({g, n, story.hash(n)});
                                 }};
    const uint32_t most =
        largest_servable(groups_, story, std::min(limit, matched), options.allow_copy, everything);
    expect(report.matched_tokens <= matched, "matched " + std::to_string(report.matched_tokens) +
                                                 " of at most " + std::to_string(matched));
    expect(report.reused_tokens <= most, "reused " + std::to_string(report.reused_tokens) +
                                             " of at most " + std::to_string(most));
    expect(story.is_border(report.reused_tokens), "a reuse ends inside a unit");
    expect(report.reused_tokens + report.to_compute_tokens == story.size(), "tokens do not add up");
    expect(report.copied_tokens <= report.reused_tokens, "more copied than reused");
    if (report.outcome == Outcome::miss || report.outcome == Outcome::bypassed) {
      expect(report.reused_tokens == 0, "a miss that reuses");
    } else {
      expect(report.reused_tokens > 0, "a hit that reuses nothing");
    }
    expect((report.outcome == Outcome::full_hit) == (report.reason == MissReason::none),
           "outcome and reason disagree");
  }

  // What a lease has committed is there while the lease lives, and just after its end: whole blocks
  // that [committed) reads. Asks for one word more than that.
  void check_what_is_left(const Live& l, uint32_t committed, uint32_t length, bool ended,
                          bool with_tail) {
    if (l.orphan() || !l.lookup.write) return;
    const uint32_t n = l.story.floor(committed);
    if (n > l.text.size() || n > length) return;
    Text query = l.text;
    query.cut(n);
    query.tokens.push_back(kUnheardOf);
    const Story story(l.scope, query.prompt());
    if (story.hash(n) != l.story.hash(n)) return;
    const Result<Report> report = cache_.lookup(scopes_[l.scope], query.prompt());
    if (!expect(report.has_value(), "lookup failed")) return;
    const uint32_t words = ended && with_tail ? n : story.floor(n / cell_tokens_ * cell_tokens_);
    expect(report->matched_tokens >= words, "matched only " +
                                                std::to_string(report->matched_tokens) + " of " +
                                                std::to_string(words) + " just committed");
    if (l.duplicate) return;
    const Present left{.tokens =
                           [&](GroupIndex g, uint32_t block) {
                             const GroupOptions& group = groups_[g];
                             const uint32_t begin = block * group.block_tokens;
                             const uint32_t end = begin + group.block_tokens;
                             const bool full = group.attention == Attention::full;
                             const bool reached =
                                 end > committed - std::min(committed, group.window_tokens);
                             const bool sink = begin < group.sink_tokens;
                             return end <= n && (full || reached || sink) ? group.block_tokens : 0;
                           },
                       .checkpoint =
                           [&](GroupIndex g, uint32_t depth) {
                             return checkpoint_by_ == l.id &&
                                    newest_checkpoint_ == Checkpoint{g, depth, story.hash(depth)};
                           }};
    const uint32_t least = largest_servable(groups_, story, words, /*allow_copy=*/true, left);
    expect(report->reused_tokens >= least, "reused only " + std::to_string(report->reused_tokens) +
                                               " of " + std::to_string(least) +
                                               " known to be there");
    if (least > 0) ++seen_.lower_bounds;
  }

  // ---- Operations -------------------------------------------------------------------------------

  LookupOptions random_lookup(uint32_t size) {
    LookupOptions lookup;
    if (random_.chance(10)) lookup.at_most = random_.below(size + 1);
    if (random_.chance(10)) lookup.evaluate_at_least = random_.between(1, 4);
    if (random_.chance(4)) lookup.read = false;
    if (random_.chance(4)) lookup.write = false;
    if (random_.chance(15)) lookup.allow_copy = false;
    return lookup;
  }

  void look() {
    const uint32_t scope = random_.below(2);
    const Text text = author_.write();
    const LookupOptions options = random_lookup(text.size());
    log_.note("lookup of " + std::to_string(text.size()));
    const Result<Report> report = cache_.lookup(scopes_[scope], text.prompt(), options);
    if (expect(report.has_value(), "lookup failed")) {
      check_report(*report, scope, Story(scope, text.prompt()), options);
    }
  }

  void begin() {
    Live l{.lease = {}, .scope = random_.chance(85) ? 0U : 1U, .text = author_.write()};
    l.id = next_id_++;
    l.story = Story(l.scope, l.text.prompt());
    l.lookup = random_lookup(l.text.size());
    const Stats before = cache_.stats();
    const Report expected = cache_.lookup(scopes_[l.scope], l.text.prompt(), l.lookup).value();
    LeaseOptions options{.lookup = l.lookup};
    if (random_.chance(50)) {
      options.retain.priority = static_cast<Priority>(random_.below(kMaxPriority + 1));
      options.retain.phase = SessionPhase{static_cast<uint8_t>(random_.below(3))};
      if (random_.chance(30)) options.retain.ttl_ns = random_.between(1, 100'000);
      options.retain.will_return = random_.chance(10);
    }
    Result<Lease> lease = cache_.lease(scopes_[l.scope], l.text.prompt(), options);
    log_.note("lease of " + std::to_string(l.text.size()) + " in " + std::to_string(l.scope));
    if (!lease) {
      ++seen_.refusals;
      log_.note(": " + lease.error().to_string());
      check_refusal(lease.error().code(), before, expected.reused_tokens, l.text.size());
      return;
    }
    l.lease = *std::move(lease);
    const Report report = l.lease.report();
    log_.note(": reused " + std::to_string(report.reused_tokens) + " of " +
              std::to_string(report.matched_tokens));
    // Short of blocks, a lease may do without a copy that a lookup would have promised.
    if (report.reason == MissReason::gave_up && expected.reason != MissReason::gave_up) {
      expect(report.reused_tokens < expected.reused_tokens, "gave up nothing");
      ++seen_.copies_given_up;
    } else {
      expect(report.reused_tokens == expected.reused_tokens, "lookup and lease disagree");
    }
    expect(l.lease.reused() == report.reused_tokens, "reused() and report() disagree");
    check_report(report, l.scope, l.story, l.lookup);
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      if (groups_[g].attention == Attention::window && report.reused_tokens > 0) {
        std::vector<BlockId> table(l.lease.block_count(g));
        l.lease.block_table(g, table, kNoBlock).value();
        if (table[0] == kNoBlock) ++seen_.window_only_reach;
      }
    }
    engine_.poison(l.lease, l.lease.reused());
    seen_.copies += l.lease.copies().size();
    live_.push_back(std::move(l));
  }

  void check_refusal(Errc code, const Stats& before, uint32_t reused, uint32_t length) {
    if (!expect(code == Errc::out_of_blocks, "refused, but not for lack of blocks")) return;
    bool short_of_something = false;
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      if (groups_[g].attention == Attention::recurrent) continue;
      const uint32_t size = groups_[g].block_tokens;
      const uint32_t need = (length + size - 1) / size - reused / size;
      short_of_something |= before.groups[g].free_blocks < need;
    }
    expect(short_of_something, "refused although every group has enough free blocks");
    const Stats after = cache_.stats();
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      expect(after.groups[g].free_blocks == before.groups[g].free_blocks &&
                 after.groups[g].cached_blocks == before.groups[g].cached_blocks,
             "a refusal changed group " + std::to_string(g));
    }
    expect(after.evicted_blocks == before.evicted_blocks, "a refusal evicted");
  }

  void load(Live& l) {
    const std::vector<BlockCopy> copies(l.lease.copies().begin(), l.lease.copies().end());
    if (random_.chance(12)) {
      log_.note("copies_failed");
      const uint32_t before = l.lease.reused();
      const FakeEngine::Tables tables = engine_.tables(l.lease);
      const Result<void> failed = l.lease.copies_failed();
      if (!failed) {
        log_.note(": " + failed.error().to_string());
        expect(failed.error().code() == Errc::out_of_blocks, failed.error().to_string());
        expect(l.lease.reused() == before, "a failed copies_failed changed the lease");
        return;
      }
      log_.note(": back to " + std::to_string(l.lease.reused()));
      expect(l.lease.copies().empty(), "copies are still pending");
      expect(l.story.is_border(l.lease.reused()), "stepped back into a unit");
      engine_.poison_new(l.lease, tables);
      l.stepped_back(cell_tokens_);
      check_held(l);
      return;
    }
    log_.note("load " + std::to_string(copies.size()));
    for (const BlockCopy& copy : copies) seen_.states_loaded += copy.target == kNoBlock;
    expect_nothing_wrong(engine_.load(copies, l.story, l.lease.committed()));
    expect(l.lease.copies_done().has_value(), "copies_done failed");
    check_held(l);
  }

  void check_held(const Live& l) {
    if (!l.lease.copies().empty()) return;
    expect_nothing_wrong(engine_.verify(l.lease, l.story, l.lease.committed()));
  }

  void commit(Live& l) {
    if (!l.lease.copies().empty()) {
      log_.note("commit before the copies");
      expect(!l.lease.commit(l.lease.committed()).has_value(), "committed before the copies");
      return;
    }
    const uint32_t from = l.lease.committed();
    const uint32_t left = l.lease.length() - from;
    const uint32_t n = from + (random_.chance(40) ? left : random_.below(left + 1));
    log_.note("commit " + std::to_string(from) + " to " + std::to_string(n));
    engine_.compute(l.lease, from, n, l.story);
    const Result<Commit> done = l.lease.commit(n);
    if (!expect(done.has_value(), "commit failed")) return;
    expect(done->committed == n && l.lease.committed() == n, "committed something else");
    l.duplicate |= done->duplicates != 0;
    check_held(l);
    remember(l, l.story.floor(n / cell_tokens_ * cell_tokens_));
    check_what_is_left(l, n, l.lease.length(), /*ended=*/false, /*with_tail=*/false);
  }

  // From now on [0, n) of the story may be found.
  void remember(const Live& l, uint32_t n) {
    if (l.orphan() || !l.lookup.write || n == 0) return;
    Story story = l.story;
    story.cut(n);
    ever_.emplace_back(l.scope, std::move(story));
  }

  void extend(Live& l) {
    const std::vector<Token> tokens = author_.some_tokens(random_.between(1, 2 * cell_tokens_));
    log_.note("extend by " + std::to_string(tokens.size()));
    const FakeEngine::Tables before = engine_.tables(l.lease);
    const Result<void> extended = l.lease.extend(tokens);
    if (!extended) {
      log_.note(": " + extended.error().to_string());
      expect(extended.error().code() == Errc::out_of_blocks, extended.error().to_string());
      return;
    }
    l.story.append(tokens);
    if (l.text.size() + tokens.size() == l.story.size()) {
      l.text.tokens.insert(l.text.tokens.end(), tokens.begin(), tokens.end());
    }
    engine_.poison_new(l.lease, before);
    expect(l.lease.length() == l.story.size(), "extended to something else");
  }

  void checkpoint(Live& l) {
    std::vector<GroupIndex> recurrent;
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      if (groups_[g].attention == Attention::recurrent) recurrent.push_back(g);
    }
    if (recurrent.empty() || l.lease.committed() == 0 || !l.lease.copies().empty()) return;
    if (!l.lookup.write) return;
    // All recurrent groups at one depth, or coverage never gets both.
    const uint32_t depth = l.story.floor(
        random_.chance(70) ? l.lease.committed() : random_.between(1, l.lease.committed()));
    if (depth == 0) return;
    log_.note("checkpoint at " + std::to_string(depth));
    for (const GroupIndex g : recurrent) {
      const Result<BlockId> slot = l.lease.draft_checkpoint(g);
      newest_checkpoint_.reset();
      if (!slot) {
        expect(slot.error().code() == Errc::out_of_blocks, slot.error().to_string());
        return;
      }
      engine_.poison_block(g, *slot);
      engine_.save_state(g, *slot, l.story, depth);
      const Result<void> kept = l.lease.commit_checkpoint(g, depth);
      if (!kept) {
        expect(false, kept.error().to_string());
        return;
      }
      // Inside a cell it hangs below the cell before it, and can be found with that.
      if (l.dropped || depth / cell_tokens_ * cell_tokens_ > l.cut_at) continue;
      const Checkpoint made{g, depth, l.story.hash(depth)};
      checkpoints_ever_.insert(made);
      if (recurrent.size() == 1) newest_checkpoint_ = made;
      checkpoint_by_ = l.id;
      // A checkpoint names its path: a lookup must be able to walk there.
      remember(l, depth);
    }
    check_what_is_left(l, l.lease.committed(), l.lease.length(), false, false);
  }

  void fork(Live& l) {
    if (live_.size() >= kMaxLive) return;
    Result<Lease> lease = l.lease.fork();
    log_.note("fork at " + std::to_string(l.lease.committed()));
    if (!lease) {
      log_.note(": " + lease.error().to_string());
      const Errc code = lease.error().code();
      expect(code == Errc::out_of_blocks || code == Errc::wrong_state ||
                 (code == Errc::out_of_range && !l.story.is_border(l.lease.committed())),
             lease.error().to_string());
      return;
    }
    Live twin{.lease = *std::move(lease),
              .scope = l.scope,
              .text = l.text,
              .story = l.story,
              .lookup = l.lookup,
              .id = next_id_++,
              .dropped = l.dropped,
              .cut_at = l.cut_at,
              .duplicate = l.duplicate};
    twin.story.cut(twin.lease.length());
    if (twin.text.size() > twin.story.size()) twin.text.cut(twin.story.size());
    for (const BlockCopy& copy : twin.lease.copies()) {
      if (copy.target != kNoBlock) engine_.poison_block(copy.group, copy.target);
    }
    expect(twin.lease.committed() == l.story.floor(l.lease.committed()),
           "a fork is not at the same place");
    live_.push_back(std::move(twin));
  }

  void rewind(Live& l) {
    if (!l.lease.copies().empty()) return;
    const uint32_t n = l.story.floor(random_.below(l.lease.length() + 1));
    log_.note("rewind to " + std::to_string(n) + " of " + std::to_string(l.lease.committed()));
    const FakeEngine::Tables before = engine_.tables(l.lease);
    const uint32_t length = l.lease.length();
    const Result<void> rewound = l.lease.rewind(n);
    if (!rewound) {
      log_.note(": " + rewound.error().to_string());
      const Errc code = rewound.error().code();
      expect(code == Errc::out_of_blocks || code == Errc::out_of_range || code == Errc::busy,
             rewound.error().to_string());
      expect(l.lease.length() == length, "a failed rewind changed the lease");
      return;
    }
    l.story.cut(n);
    if (l.text.size() > n) l.text.cut(n);
    engine_.poison_new(l.lease, before);
    l.stepped_back(cell_tokens_);
    // What it no longer holds may be evicted, and its checkpoint with it.
    if (checkpoint_by_ == l.id && newest_checkpoint_ &&
        newest_checkpoint_->depth > l.lease.committed()) {
      newest_checkpoint_.reset();
    }
    check_held(l);
  }

  void shrink(Live& l) {
    if (l.lease.committed() != l.lease.reused() || l.lease.reused() == 0) return;
    const uint32_t n = l.story.floor(random_.below(l.lease.reused() + 1));
    log_.note("shrink " + std::to_string(l.lease.reused()) + " to " + std::to_string(n));
    const FakeEngine::Tables before = engine_.tables(l.lease);
    const auto shrunk = l.lease.shrink_to(n);
    if (!shrunk) {
      log_.note(": " + shrunk.error().to_string());
      return;
    }
    expect(l.lease.reused() <= n, "shrunk to more");
    engine_.poison_new(l.lease, before);
    l.stepped_back(cell_tokens_);
    // What it no longer holds may be evicted, and its checkpoint with it.
    if (checkpoint_by_ == l.id && newest_checkpoint_ &&
        newest_checkpoint_->depth > l.lease.committed()) {
      newest_checkpoint_.reset();
    }
    check_held(l);
  }

  // Truncate, drop, reset: what they remove must never be found again.
  void forget() {
    const uint32_t scope = random_.below(2);
    const uint32_t dice = random_.below(100);
    newest_checkpoint_.reset();
    if (dice < 70) {
      const Text text = author_.write();
      const Story story(scope, text.prompt());
      const uint32_t cell = random_.below(text.size()) / cell_tokens_;
      const uint32_t end = (cell + 1) * cell_tokens_;
      log_.note("truncate " + std::to_string(text.size()) + " from cell " + std::to_string(cell));
      expect(cache_.truncate(scopes_[scope], text.prompt(), cell * cell_tokens_).has_value(),
             "truncate failed");
      // This removes what continues like the prompt in that cell, as far as both have words.
      const uint32_t begin = cell * cell_tokens_;
      for (auto& [in, committed] : ever_) {
        const uint32_t agree = std::min({end, text.size(), committed.size()});
        if (in == scope && agree > begin && common_prefix(story, committed) >= agree) {
          committed.cut(begin);
        }
      }
      for (Live& l : live_) {
        const uint32_t depth = l.lookup.write ? l.lease.committed() : l.lease.reused();
        const uint32_t agree = std::min(end, text.size());
        const bool below = l.scope == scope && common_prefix(story, l.story) >= agree;
        if (below && depth >= end) l.cut_at = std::min(l.cut_at, begin);
      }
      return;
    }
    if (dice < 90) {
      log_.note("drop_scope " + std::to_string(scope));
      cache_.drop_scope(scopes_[scope]);
      std::erase_if(ever_, [&](const auto& entry) { return entry.first == scope; });
      for (Live& l : live_) l.dropped |= l.scope == scope;
      return;
    }
    log_.note("reset");
    expect(cache_.reset(OnBusy::refuse).has_value() == live_.empty(), "reset with leases alive");
    expect(cache_.reset(OnBusy::defer).has_value(), "deferred reset failed");
    ever_.clear();
    for (Live& l : live_) l.dropped = true;
  }

  void end(Live& l) {
    const size_t index = static_cast<size_t>(&l - live_.data());
    check_held(l);
    const bool pending = !l.lease.copies().empty();
    const uint32_t committed = l.lease.committed();
    const uint32_t length = l.lease.length();
    const bool with_tail = random_.chance(80);
    log_.note((with_tail ? "release at " : "abandon at ") + std::to_string(committed));
    expect((with_tail ? l.lease.release() : l.lease.abandon()).has_value(), "the end failed");
    if (!pending) {
      remember(l, l.story.floor(with_tail ? committed : committed / cell_tokens_ * cell_tokens_));
      check_what_is_left(l, committed, length, /*ended=*/true, with_tail);
    }
    live_.erase(live_.begin() + static_cast<ptrdiff_t>(index));
  }

  // ---- Always -----------------------------------------------------------------------------------

  void check_books() {
    if (!wrong_.empty()) return;
    cache_.check_invariants();
    const Stats stats = cache_.stats();
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      const GroupStats& group = stats.groups[g];
      expect(group.free_blocks + group.cached_blocks + group.draft_blocks == group.capacity_blocks,
             "the blocks of group " + std::to_string(g) + " do not add up");
    }
    expect(stats.leases == live_.size(), "leases lost or found");
    for (const Live& l : live_) check_held(l);
  }

  void finish() {
    log_.step(kStepsPerRun + 1, "the end");
    while (!live_.empty() && wrong_.empty()) end(live_.back());
    check_books();
    const Stats stats = cache_.stats();
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      expect(stats.groups[g].draft_blocks == 0,
             "drafts without leases in group " + std::to_string(g));
    }
    expect(cache_.reset().has_value(), "reset of an idle cache failed");
    const Stats empty = cache_.stats();
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      expect(empty.groups[g].free_blocks == empty.groups[g].capacity_blocks,
             "blocks lost in group " + std::to_string(g));
    }
    cache_.check_invariants();
  }

  void count() {
    const Stats stats = cache_.stats();
    for (uint32_t i = 0; i < kMissReasonCount; ++i) seen_.reasons[i] += stats.total.reasons[i];
    seen_.orphans += stats.orphaned_blocks;
  }

  Random random_;
  uint32_t positions_;
  std::vector<GroupOptions> groups_;
  uint32_t cell_tokens_;
  Author author_;
  FakeEngine engine_;
  ManualClock clock_;
  StepLog& log_;
  GroupsSeen& seen_;
  PagedCache cache_;
  std::vector<Scope> scopes_;
  std::vector<Live> live_;
  std::vector<std::pair<uint32_t, Story>> ever_;  // Everything ever committed and not forgotten.
  std::set<Checkpoint> checkpoints_ever_;
  std::optional<Checkpoint> newest_checkpoint_;  // Committed last, and no slot drafted since.
  uint32_t checkpoint_by_ = 0;                   // By which lease.
  uint32_t next_id_ = 1;
  std::string wrong_;
};

TEST(Model, SeveralLayerGroupsServeOnlyWhatIsThereAndAllThatIsKnown) {
  const RunLength length = RunLength::from_environment();
  const double seconds = length.seconds * 0.3;
  StepLog log;
  GroupsSeen seen;
  const SteadyClock::time_point begin = SteadyClock::now();
  std::printf("first seed %llu, %.0f s\n", static_cast<unsigned long long>(length.first_seed),
              seconds);
  for (uint64_t seed = length.first_seed;; ++seed) {
    GroupsRun run(seed, log, seen);
    const std::string wrong = run.run();
    log.end();
    ASSERT_EQ(wrong, "") << log.text();
    const double passed = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    if (length.only_one || (passed >= seconds && seen.operations >= length.operations * 3 / 10)) {
      break;
    }
  }
  static constexpr const char* kReasons[] = {
      "none",       "unknown_scope", "first_use", "too_short", "at_most", "media",
      "group_hole", "no_checkpoint", "no_copy",   "read_off",  "no_room", "gave_up"};
  const auto print = [](const char* name, uint64_t value) {
    std::printf("  %-22s %10llu\n", name, static_cast<unsigned long long>(value));
  };
  print("runs", seen.runs);
  print("operations", seen.operations);
  for (uint32_t i = 0; i < kMissReasonCount; ++i) print(kReasons[i], seen.reasons[i]);
  print("copies", seen.copies);
  print("states loaded", seen.states_loaded);
  print("lower bounds held", seen.lower_bounds);
  print("reuse without the head", seen.window_only_reach);
  print("refusals", seen.refusals);
  print("orphans", seen.orphans);
  print("copies given up", seen.copies_given_up);
  if (length.only_one) return;
  const uint64_t wanted = RunLength::times_wanted(seen.operations, 150'000);
  EXPECT_GE(seen.reasons[static_cast<uint32_t>(MissReason::group_hole)], wanted);
  EXPECT_GE(seen.reasons[static_cast<uint32_t>(MissReason::no_checkpoint)], wanted);
  EXPECT_GE(seen.copies, wanted);
  EXPECT_GE(seen.states_loaded, wanted);
  EXPECT_GE(seen.lower_bounds, wanted);
  EXPECT_GE(seen.window_only_reach, wanted);
  EXPECT_GE(seen.refusals, wanted);
  EXPECT_GE(seen.orphans, wanted);
}

}  // namespace
}  // namespace stemma::test
