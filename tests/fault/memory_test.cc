// Memory runs out at every single point at which a public call asks for it. Each time the call must
// answer out_of_memory with nothing changed, or do without; and called again it must succeed. Calls
// that end or forget something must not need memory at all.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/slab.h"
#include "fault/failing_new.h"
#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr TenantId kTenant{7};

struct SwitchFence : Fence {
  bool set = false;
  bool signalled() noexcept override { return set; }
};

struct FailingIo : BlockIo {
  void copy(std::span<const BlockCopy>, Done done, void* user) override {
    done(user, Error(Errc::copy_failed, "no"));
  }
  void read(GroupIndex, std::span<const BlockId>, std::span<uint8_t>, Done, void*) override {}
  void write(GroupIndex, std::span<const BlockId>, std::span<const uint8_t>, Done, void*) override {
  }
};

struct Config {
  const char* name;
  Options options;
  bool media = false;
  bool retain = false;  // Priorities, times to live and sessions.
};

void PrintTo(const Config& config, std::ostream* out) { *out << config.name; }

std::vector<Config> configs() {
  std::vector<Config> all;
  all.push_back({"one_group", grouped({full(40)})});
  all.push_back({"two_full", grouped({full(40), full(20, 32)})});
  all.push_back({"large_first", grouped({full(20, 32), full(40)})});
  all.push_back({"window", grouped({full(40), window(48, 45, 16, 16)})});
  all.push_back({"window_only", grouped({window(64, 30, 32)})});
  all.push_back({"recurrent", grouped({full(40), recurrent(6)})});
  all.push_back({"media", grouped({full(40), full(20, 32)}), true});
  all.push_back({"events", grouped({full(40), recurrent(6)}), true});
  all.back().options.event_capacity = 16;
  all.push_back({"quotas", grouped({full(40), window(48, 45)})});
  all.back().options.quotas = {{kTenant, 80 << 10U}, {TenantId{8}, 80 << 10U}};
  all.push_back({"classes", grouped({full(40)}), false, true});
  all.push_back({"logits", grouped({full(40), recurrent(6)}), true, true});
  all.back().options.logits_bytes = 2000;
  return all;
}

// A cache with something of everything in it, and a lease to try things on.
struct World {
  explicit World(const Config& what) : config(what) {
    Options options = config.options;
    options.clock = &clock;
    options.block_io = &io;
    cache.emplace(ok(PagedCache::create(options)));
    fill(cold, 5);
    fill(first, 5);
    fill(second, 90);
    other.emplace(take(first));
  }
  LeaseOptions how(Priority priority) {
    LeaseOptions options;
    if (!config.options.quotas.empty()) options.tenant = kTenant;
    if (!config.retain) return options;
    options.retain.priority = priority;
    options.retain.session = SessionId{priority};
    options.retain.phase = SessionPhase::active;
    options.retain.session_ttl_ns = kSecond;
    options.retain.ranges = ranges;
    return options;
  }
  void fill(const Text& text, Priority priority) {
    Lease l = ok(cache->lease(scope, text, how(priority)));
    if (!l.copies().empty()) ok(l.copies_done());
    ok(l.commit(l.length()));
    mark(l);
    ok(l.release());
  }
  // Anchors wherever they are possible: at a border, and inside a block.
  void mark(Lease& l) {
    for (GroupIndex g = 0; g < config.options.groups.size(); ++g) {
      if (config.options.groups[g].attention != Attention::recurrent) continue;
      for (const uint32_t depth : {64U, l.committed()}) {
        ok(l.draft_checkpoint(g));
        ok(l.commit_checkpoint(g, depth));
      }
    }
    if (config.options.logits_bytes != 0) ok(l.attach_logits(l.committed(), logits));
  }
  Lease take(const Text& text) { return ok(cache->lease(scope, text, how(50))); }
  // A lease on a new text, half computed.
  void begin_new() {
    lease = take(fresh);
    ok(lease.commit(70));
  }
  Errc keep(Result<Lease> result) {
    if (result) extra = *std::move(result);
    return code(result);
  }
  std::string seen() const {
    std::string text = books(*cache) + "\n" + position(lease) + "\n" + position(*other) + "\n" +
                       position(extra) + "\n" + std::to_string(cache->tenant_bytes(kTenant));
    for (const Text* prompt : {&cold, &first, &second, &fresh, &longer}) {
      text += " " + std::to_string(ok(cache->lookup(scope, *prompt)).reused_tokens);
    }
    return text;
  }
  // Ends everything; nothing may be lost.
  void finish() {
    fence.set = true;
    other.reset();
    lease = Lease();
    extra = Lease();
    cache->poll();
    cache->check_invariants();
    const Stats stats = cache->stats();
    EXPECT_EQ(stats.leases, 0U);
    for (uint32_t g = 0; g < stats.group_count; ++g) {
      const GroupStats& group = stats.groups[g];
      EXPECT_EQ(group.free_blocks + group.cached_blocks, group.capacity_blocks) << "group " << g;
    }
    ok(cache->reset());
    cache->check_invariants();
    for (uint32_t g = 0; g < stats.group_count; ++g) {
      EXPECT_EQ(free_blocks(*cache, g), stats.groups[g].capacity_blocks) << "group " << g;
    }
    EXPECT_EQ(cache->tenant_bytes(kTenant), 0U);
  }
  Text item(const Text& text, uint8_t digest) const {
    if (!config.media) return text;
    MediaItem media;
    media.offset = 20;
    media.length = 6;
    media.digest.fill(digest);
    return text.with(media);
  }

  const Config& config;
  ManualClock clock;
  FailingIo io;
  SwitchFence fence;
  Scope scope = scope_of({.model = "a model"});
  Scope another = scope_of({.model = "another model"});
  Text cold = tokens(90, 1);
  Text first = item(tokens(100, 2), 3);
  Text second = first.first(70) + tokens(35, 3);
  Text fresh = item(tokens(105, 4), 4);
  Text longer = tokens(420, 5);
  Text more = tokens(150, 6);
  std::array<PriorityRange, 2> ranges{{{0, 32, 80, kNever}, {32, 64, 10, kSecond}}};
  std::vector<float> logits = std::vector<float>(100, 0.5F);
  std::optional<PagedCache> cache;
  std::optional<Lease> other;
  Lease lease;
  Lease extra;
  PinId pin{};
  std::vector<uint8_t> dump;
  std::vector<Event> events;
};

struct CacheCall {
  const char* name;
  bool needs_memory;  // false: it must not.
  std::function<void(World&)> prepare;
  std::function<Errc(World&)> run;
  bool settles = false;  // Fences that have signalled, whatever becomes of the call.
};

void nothing(World&) {}

std::vector<CacheCall> calls() {
  std::vector<CacheCall> all;
  const auto add = [&](const char* name, auto prepare, auto run) {
    all.push_back({name, true, prepare, run});
  };
  const auto add_ending = [&](const char* name, auto prepare, auto run) {
    all.push_back({name, false, prepare, run});
  };
  const auto begin_new = [](World& w) { w.begin_new(); };
  const auto hit = [](World& w) { w.lease = w.take(w.second + tokens(3, 9)); };

  add("create", nothing, [](World& w) { return code(PagedCache::create(w.config.options)); });
  add("lookup", nothing, [](World& w) { return code(w.cache->lookup(w.scope, w.second)); });
  add("lookup, longer than any before", nothing,
      [](World& w) { return code(w.cache->lookup(w.scope, w.longer)); });
  add("lease of a new scope", nothing,
      [](World& w) { return w.keep(w.cache->lease(w.another, w.fresh, w.how(40))); });
  add("lease that hits", nothing,
      [](World& w) { return w.keep(w.cache->lease(w.scope, w.second, w.how(40))); });
  add("lease that misses", nothing,
      [](World& w) { return w.keep(w.cache->lease(w.scope, w.fresh, w.how(40))); });
  add("lease that evicts", nothing,
      [](World& w) { return w.keep(w.cache->lease(w.scope, w.longer, w.how(40))); });
  add("lease that wants logits", nothing, [](World& w) {
    LeaseOptions options = w.how(40);
    options.lookup.want_logits = true;
    return w.keep(w.cache->lease(w.scope, w.second, options));
  });
  add(
      "lease while one waits for its fence",
      [&](World& w) {
        w.begin_new();
        ok(w.lease.release({.fence = &w.fence}));
        w.fence.set = true;
      },
      [](World& w) { return w.keep(w.cache->lease(w.scope, w.longer, w.how(40))); });
  all.back().settles = true;
  add("copies_failed", hit, [](World& w) { return code(w.lease.copies_failed()); });
  add("run_copies", hit, [](World& w) {
    const Errc end = code(w.lease.run_copies());
    return end == Errc::copy_failed ? kOk : end;
  });
  add("shrink_to", hit, [](World& w) { return code(w.lease.shrink_to(50)); });
  add("extend", begin_new, [](World& w) { return code(w.lease.extend(w.more.tokens)); });
  add("reserve", begin_new, [](World& w) { return code(w.lease.reserve(300)); });
  add("commit", begin_new, [](World& w) { return code(w.lease.commit(w.lease.length())); });
  add(
      "commit of what others computed",
      [](World& w) {
        w.begin_new();
        w.fill(w.fresh, 50);
      },
      [](World& w) { return code(w.lease.commit(w.lease.length())); });
  add("fork", begin_new, [](World& w) { return w.keep(w.lease.fork()); });
  add("rewind of own blocks", begin_new, [](World& w) { return code(w.lease.rewind(75)); });
  add(
      "rewind of what is published",
      [](World& w) {
        w.begin_new();
        ok(w.lease.commit(100));
        w.mark(w.lease);
      },
      [](World& w) { return code(w.lease.rewind(64)); });
  // Over a prompt whose first blocks are cached, and over a new one.
  for (const bool cached : {true, false}) {
    const auto filling = [cached](World& w) {
      LeaseOptions options = w.how(50);
      options.fill_to = 64;
      return w.cache->lease(w.scope, cached ? w.first : w.fresh, options);
    };
    add("a lease that fills", nothing, [filling](World& w) { return w.keep(filling(w)); });
    add(
        "commit of what was filled", [filling](World& w) { w.lease = ok(filling(w)); },
        [](World& w) { return code(w.lease.commit(64)); });
  }
  add(
      "hold_checkpoint",
      [](World& w) {
        w.begin_new();
        (void)w.lease.draft_checkpoint(1);
        (void)w.lease.commit_checkpoint(1, 69);
      },
      [](World& w) { return code(w.lease.hold_checkpoint(1, 70)); });
  add("draft_checkpoint", begin_new, [](World& w) { return code(w.lease.draft_checkpoint(1)); });
  for (const uint32_t depth : {64U, 69U}) {
    add(
        "commit_checkpoint",
        [](World& w) {
          w.begin_new();
          (void)w.lease.draft_checkpoint(1);
        },
        [depth](World& w) { return code(w.lease.commit_checkpoint(1, depth)); });
    add("attach_logits", begin_new,
        [depth](World& w) { return code(w.lease.attach_logits(depth, w.logits)); });
  }
  add(
      "attach_logits in place of others",
      [](World& w) {
        w.begin_new();
        (void)w.lease.attach_logits(70, w.logits);
      },
      [](World& w) {
        return code(w.lease.attach_logits(70, std::span<const float>(w.logits).first(50)));
      });
  add("pin", nothing, [](World& w) { return code(w.cache->pin(w.scope, w.second, kSecond)); });
  add("truncate", nothing, [](World& w) { return code(w.cache->truncate(w.scope, w.first, 20)); });
  add("branch_points", nothing,
      [](World& w) { return code(w.cache->branch_points(w.scope, w.second)); });
  add("event_dump", nothing, [](World& w) { return (void)w.cache->event_dump(), kOk; });
  add("dump", nothing, [](World& w) { return (void)w.cache->dump(), kOk; });
  add("check_invariants", nothing, [](World& w) { return w.cache->check_invariants(), kOk; });
  add(
      "load",
      [](World& w) {
        w.other.reset();
        w.dump = w.cache->dump();
        Options options = w.config.options;
        options.clock = &w.clock;
        w.cache.emplace(ok(PagedCache::create(options)));
        w.other.emplace();
      },
      [](World& w) { return code(w.cache->load(w.dump)); });

  add_ending("copies_done", hit,
             [](World& w) { return w.lease.copies().empty() ? kOk : code(w.lease.copies_done()); });
  add_ending(
      "adopt_canonical",
      [](World& w) {
        w.begin_new();
        w.fill(w.fresh, 50);
        ok(w.lease.commit(w.lease.length()));
      },
      [](World& w) { return w.lease.adopt_canonical(), kOk; });
  const auto whole = [](World& w) {
    w.begin_new();
    ok(w.lease.commit(w.lease.length()));
  };
  add_ending("release", whole, [](World& w) { return code(w.lease.release()); });
  add_ending("release with other words", whole, [](World& w) {
    const LeaseOptions options = w.how(77);
    return code(w.lease.release({.retain = &options.retain}));
  });
  add_ending("release with a fence", whole,
             [](World& w) { return code(w.lease.release({.fence = &w.fence})); });
  add_ending("release with copies pending", hit, [](World& w) { return code(w.lease.release()); });
  add_ending("abandon", whole, [](World& w) { return code(w.lease.abandon()); });
  add_ending("end of a lease", whole,
             [](World& w) { return (void)Lease(std::move(w.lease)), kOk; });
  add_ending("move over a lease", whole, [](World& w) { return w.lease = Lease(), kOk; });
  add_ending(
      "poll",
      [whole](World& w) {
        whole(w);
        ok(w.lease.release({.fence = &w.fence}));
        w.fence.set = true;
      },
      [](World& w) { return w.cache->poll() == 1 ? kOk : Errc::busy; });
  const auto pin = [](World& w) { w.pin = ok(w.cache->pin(w.scope, w.first, kSecond)).id; };
  add_ending("unpin", pin, [](World& w) {
    const Errc end = code(w.cache->unpin(w.pin));
    return end == Errc::stale ? kOk : end;  // Where nothing could be pinned.
  });
  add_ending(
      "a pin's end",
      [pin](World& w) {
        pin(w);
        w.clock.advance_ns(2 * kSecond);
      },
      [](World& w) { return w.cache->stats().pinned_blocks == 0 ? kOk : Errc::busy; });
  add_ending("end_session", nothing,
             [](World& w) { return w.cache->end_session(SessionId{5}), kOk; });
  add_ending("set_quota", nothing, [](World& w) {
    return w.config.options.quotas.empty() ? kOk : code(w.cache->set_quota(kTenant, 1000));
  });
  add_ending("drop_scope", begin_new,
             [](World& w) { return w.cache->drop_scope(w.scope) != 0 ? kOk : Errc::busy; });
  add_ending(
      "drop_scope that nobody uses", [](World& w) { w.other.emplace(); },
      [](World& w) { return w.cache->drop_scope(w.scope) != 0 ? kOk : Errc::busy; });
  add_ending("reset", begin_new, [](World& w) { return code(w.cache->reset(OnBusy::defer)); });
  add_ending("evict", nothing, [](World& w) { return w.cache->evict(4) == 4 ? kOk : Errc::busy; });
  add_ending("stats", nothing, [](World& w) { return (void)w.cache->stats(), kOk; });
  add_ending("events", nothing,
             [](World& w) { return (void)w.cache->events(0, 100, w.events), kOk; });
  return all;
}

class Memory : public ::testing::TestWithParam<Config> {};

// The call is tried with the n-th request for memory refused, for every n that it gets to.
TEST_P(Memory, RefusedAnywhereIsARefusalThatChangesNothing) {
  const Config& config = GetParam();
  uint64_t refusals = 0;
  for (const CacheCall& call : calls()) {
    SCOPED_TRACE(call.name);
    World usual(config);
    call.prepare(usual);
    const Errc end = call.run(usual);
    usual.finish();
    if (end == Errc::unsupported || end == Errc::out_of_range) continue;  // Not in this cache.
    ASSERT_EQ(end, kOk);
    for (uint64_t n = 1;; ++n) {
      SCOPED_TRACE("request " + std::to_string(n));
      World world(config);
      call.prepare(world);
      const std::string before = world.seen();
      bool fired = false;
      Errc refused;
      {
        const FailingNew failing(n);
        refused = call.run(world);
        fired = failing.fired();
      }
      world.cache->check_invariants();
      if (refused != kOk) {
        ASSERT_TRUE(fired);
        ASSERT_EQ(refused, Errc::out_of_memory);
        ASSERT_TRUE(call.needs_memory);
        if (!call.settles) {
          ASSERT_EQ(world.seen(), before);
        }
        ASSERT_EQ(call.run(world), kOk) << "the second time";
        world.cache->check_invariants();
        ++refusals;
      }
      world.finish();
      if (HasFatalFailure() || !fired) break;
    }
  }
  EXPECT_GT(refusals, 50U);
}

TEST_P(Memory, EndingAndForgettingNeedNone) {
  for (const CacheCall& call : calls()) {
    if (call.needs_memory) continue;
    SCOPED_TRACE(call.name);
    World world(GetParam());
    call.prepare(world);
    {
      const NoMemory none;
      EXPECT_EQ(call.run(world), kOk);
    }
    world.cache->check_invariants();
    world.finish();
  }
}

// The same for the memory of slabs, which comes from the system directly: a whole day in the life
// of a growing cache, with the n-th and all later requests refused.
TEST_P(Memory, IndexThatCannotGrowRefusesAndKeepsItsBooks) {
  Config config = GetParam();
  for (GroupOptions& group : config.options.groups) group.capacity_blocks = 3000;
  config.options.quotas.clear();
  for (int64_t n = 0;; ++n) {
    SCOPED_TRACE("request " + std::to_string(n));
    World world(config);
    base::refuse_slab_memory_after(n);
    const auto may_lack = [](Errc end) {
      EXPECT_TRUE(end == kOk || end == Errc::out_of_memory) << to_string(end);
      return end == kOk;
    };
    std::vector<Lease> leases;
    for (uint32_t i = 0; i < 12; ++i) {
      const Scope scope = scope_of({.model = std::to_string(i % 3)});
      const std::string before = world.seen();
      LeaseOptions options;
      options.retain.priority = static_cast<Priority>(i % 4 * 20);
      if (i % 3 == 2) options.retain.ttl_ns = kSecond;
      Result<Lease> lease = world.cache->lease(scope, tokens(1600, 20 + i), options);
      if (!may_lack(code(lease))) {
        EXPECT_EQ(world.seen(), before);
        continue;
      }
      ok(lease->commit(1590));
      for (GroupIndex g = 0; g < config.options.groups.size(); ++g) {
        if (config.options.groups[g].attention != Attention::recurrent) continue;
        if (may_lack(code(lease->draft_checkpoint(g)))) {
          may_lack(code(lease->commit_checkpoint(g, 1500 + i)));
        }
      }
      if (config.options.logits_bytes != 0) may_lack(code(lease->attach_logits(77, world.logits)));
      may_lack(code(lease->reserve(1800)));
      if (i % 2 == 0) leases.push_back(*std::move(lease));
      world.clock.advance_ns(kSecond / 2);
    }
    leases.clear();
    world.cache->evict(20);
    world.cache->check_invariants();
    const bool all_granted = base::refuse_slab_memory_after(base::kUnlimited) > 0;
    ok(world.cache->lease(world.another, tokens(1600, 40)));
    world.finish();
    if (all_granted || HasFailure()) break;
  }
}

using MemoryOfReservations = PagedFixture;

// Found by fuzzing: tables for two thousand million positions were made before the pool was asked.
TEST_F(MemoryOfReservations, WhatCanNeverFitIsRefusedBeforeMemoryIsTaken) {
  PagedCache& cache = cache_with(grouped({full(20)}));
  Lease lease = take(cache, tokens(40));
  const NoMemory none(4096);
  EXPECT_EQ(code(lease.reserve((1U << 31U) - 1)), Errc::out_of_blocks);
}

using MemoryOfReclaims = PagedFixture;

TEST_F(MemoryOfReclaims, WithoutMemoryLessIsHeldAndNothingIsLost) {
  for (uint32_t calls = 1;; ++calls) {
    PagedCache& cache = cache_with(grouped({full(20), window(48, 25), recurrent(4)}));
    fill(cache, tokens(160, 1).with(image(1, 5, 40)));
    fill(cache, tokens(160, 2));
    uint32_t held = 0;
    bool refused;
    {
      const FailingNew failing(calls);
      const auto reclaimed = cache.reclaim(320, 20);
      refused = failing.fired();
      if (reclaimed) held = static_cast<uint32_t>(reclaimed->blocks().size());
      EXPECT_TRUE(refused || reclaimed.has_value());
    }
    cache.check_invariants();
    if (!refused) {
      EXPECT_GT(held, 20U);
      break;
    }
    ok(cache.lease(scope, tokens(320, 3)));
  }
}

using MemoryOfEvents = PagedFixture;

TEST_F(MemoryOfEvents, LostEventLeavesAGapInTheNumbers) {
  Options options = grouped({full(20)});
  options.event_capacity = 16;
  PagedCache& cache = cache_with(options);
  fill(cache, tokens(160, 1));
  {
    const NoMemory none;
    EXPECT_EQ(cache.evict(2), 2U);
  }
  EXPECT_EQ(cache.evict(1), 1U);
  std::vector<Event> events;
  const uint64_t next = cache.events(0, 100, events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].sequence, 0U);
  EXPECT_EQ(events[0].kind, EventKind::stored);
  EXPECT_EQ(events[1].kind, EventKind::removed);
  EXPECT_EQ(events[1].keys.size(), 1U);
  EXPECT_EQ(events[1].sequence + 1, next);
  EXPECT_GT(events[1].sequence, 1U) << "the gap";
}

INSTANTIATE_TEST_SUITE_P(Caches, Memory, ::testing::ValuesIn(configs()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace stemma::test
