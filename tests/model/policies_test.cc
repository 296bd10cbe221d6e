// Random lives of caches under every retention policy. It must always hold that every call returns
// and none ends the process, refusals are those named in the headers, quotas hold, and the books
// balance.
//
// Two worlds: tenants with quotas whose requests have any times to live, under clocks that stand
// still, jump, and reach the end of time; and indexes with their own supply of cells (window-only,
// recurrent-only, hybrid), where scopes come and go while leases run. Seeds and lengths: world.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/world.h"
#include "retain/policies.h"
#include "stemma/cache.h"

namespace stemma::test::policies {
namespace {

constexpr uint32_t kSteps = 400;
constexpr uint32_t kMaxLive = 6;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr double kShortRun_s = 0.4;  // Unless STEMMA_MODEL_SECONDS says more.

struct World {
  Options options;
  std::vector<TenantId> tenants = {kNoTenant};
  uint32_t scopes = 4;
  uint32_t crowd =
      0;  // How many short prompts come at once now and then, each its own time to live.
};

std::string any_policy(Random& random, uint32_t default_percent) {
  if (random.chance(default_percent)) return "default";
  const std::vector<std::string_view> names = retain::policy_names();
  return std::string(names[random.below(static_cast<uint32_t>(names.size()))]);
}

World quota_world(Random& random) {
  World world;
  const uint32_t blocks = random.chance(50) ? random.between(20, 100) : random.between(300, 600);
  world.options.groups = {{.block_tokens = 4, .capacity_blocks = blocks, .block_bytes = 100}};
  world.options.policy = any_policy(random, 25);
  if (random.chance(30)) world.options.policy = "lru";
  const uint32_t tenants = random.chance(30) ? 64 : random.between(1, 8);
  for (uint32_t i = 1; i <= tenants; ++i) {
    world.tenants.push_back(TenantId{i});
    world.options.quotas.push_back(
        {.tenant = TenantId{i}, .bytes = uint64_t{random.between(2, blocks)} * 100});
  }
  world.scopes = tenants + 4;
  world.crowd = blocks / 8;
  return world;
}

World own_cells_world(Random& random) {
  using enum Attention;
  static const std::vector<std::vector<Attention>> kShapes = {
      {window},    {window, window},    {recurrent},
      {recurrent}, {window, recurrent}, {recurrent, full},
      {window},    {window, full},      {recurrent, full, window}};
  World world;
  const uint32_t blocks = random.between(16, 100);
  for (const Attention kind : kShapes[random.below(static_cast<uint32_t>(kShapes.size()))]) {
    GroupOptions group{.attention = kind, .capacity_blocks = blocks, .block_bytes = 64};
    group.block_tokens = kind == recurrent ? 0 : 1U << random.between(2, 3);
    if (kind == window) group.window_tokens = random.between(1, 40);
    if (kind == recurrent) group.capacity_blocks = random.between(1, 12);
    world.options.groups.push_back(group);
  }
  world.options.policy = any_policy(random, 75);
  if (random.chance(70)) world.options.index_cells = random.between(20, 300);
  world.scopes = random.between(2, 12);
  return world;
}

class Life {
 public:
  Life(uint64_t seed, World world, StepLog& log)
      : random_(seed ^ 0x5DEE'CE66'D000'0000U),
        world_(std::move(world)),
        author_({.block_tokens = 4, .letters = 3, .longest_tokens = 120}, random_),
        log_(log),
        cache_(make()) {
    log_.begin(seed, "policy " + world_.options.policy + ", groups " +
                         std::to_string(world_.options.groups.size()) + ", tenants " +
                         std::to_string(world_.tenants.size()));
    for (uint32_t i = 0; i < world_.scopes; ++i) {
      scopes_.push_back(
          Scope::make({.model = "m", .tenant_salt = "salt " + std::to_string(i)}).value());
    }
  }

  // The first mistake; empty if none.
  std::string run() {
    for (uint32_t i = 1; i <= kSteps && wrong_.empty(); ++i) {
      step(i);
      if (i % 16 == 0) check();
    }
    while (!live_.empty()) end_lease(0);
    check();
    if (!cache_.reset() || cache_.stats().scopes != 0) wrong_ = "an idle cache could not be reset";
    cache_.check_invariants();
    return wrong_;
  }

 private:
  PagedCache make() {
    world_.options.clock = &clock_;
    clock_.set_ns(random_.chance(20) ? random_.next() : 1 + random_.below(1'000));
    return PagedCache::create(world_.options).value();
  }

  void step(uint32_t number) {
    if (random_.chance(5)) return log_.step(number, "crowd"), crowd();
    const uint32_t what = random_.below(100);
    if (what < 30) return log_.step(number, "lease"), begin_lease();
    if (what < 55) return log_.step(number, "work"), work();
    if (what < 75) return log_.step(number, "end"), end_lease(random_.below(kMaxLive));
    if (what < 80) return log_.step(number, "time"), pass_time();
    if (what < 87) return log_.step(number, "drop a scope"), (void)cache_.drop_scope(any_scope());
    if (what < 91) return log_.step(number, "truncate"), truncate();
    if (what < 94) return log_.step(number, "evict"), (void)cache_.evict(random_.below(40));
    if (what < 96) return log_.step(number, "end a session"), cache_.end_session(any_session());
    if (what < 98) return log_.step(number, "pin"), pin();
    log_.step(number, "quota");
    if (world_.tenants.size() > 1) {
      quota_moved_ = true;
      allow(cache_.set_quota(world_.tenants[1], random_.below(3'000)), {});
    }
  }

  // ---- Chance ----
  const Scope& any_scope() { return scopes_[random_.below(world_.scopes)]; }
  SessionId any_session() { return SessionId{random_.below(10)}; }
  uint64_t any_ttl() {
    switch (random_.below(6)) {
      case 0: return kNever;
      case 1: return 0;
      case 2: return kNever - random_.below(3);
      case 3: return random_.next();
      default: return random_.next() % (100 * kSecond);  // Never the same twice.
    }
  }
  Retain any_retain() {
    Retain retain;
    if (random_.chance(30)) return retain;
    retain.priority = static_cast<Priority>(random_.chance(50) ? 50 : random_.below(101));
    retain.ttl_ns = any_ttl();
    retain.session = any_session();
    retain.phase = SessionPhase{static_cast<uint8_t>(random_.below(3))};
    retain.session_ttl_ns = any_ttl();
    retain.will_return = random_.chance(5);
    retain.finish = FinishReason{static_cast<uint8_t>(random_.below(5))};
    retain.output_tokens = random_.chance(50) ? 0 : static_cast<uint32_t>(random_.next());
    if (random_.chance(20)) {
      const uint32_t middle = random_.between(1, 60);
      ranges_ = {{.begin = 0, .end = middle, .priority = 90, .ttl_ns = any_ttl()},
                 {.begin = middle, .priority = 20, .ttl_ns = any_ttl()}};
      retain.ranges = ranges_;
    }
    return retain;
  }

  // ---- Steps ----
  // Fails unless it is fine, or one of the refusals that the headers name.
  template <class T>
  bool allow(const Result<T>& result, std::initializer_list<Errc> refusals) {
    if (result.has_value()) return true;
    for (const Errc code : refusals) {
      if (result.error().code() == code) return false;
    }
    wrong_ = "refused: " + result.error().to_string();
    return false;
  }

  void begin_lease() {
    if (live_.size() >= kMaxLive) return;
    const uint32_t scope = random_.below(world_.scopes);
    LeaseOptions options;
    options.tenant = world_.tenants[scope % world_.tenants.size()];
    options.retain = any_retain();
    if (random_.chance(20)) options.draft_tokens = random_.below(20);
    Result<Lease> lease = cache_.lease(scopes_[scope], author_.write().prompt(), options);
    if (!allow(lease, {Errc::out_of_blocks, Errc::over_quota, Errc::out_of_memory})) return;
    live_.push_back(*std::move(lease));
    Lease& mine = live_.back();
    if (!mine.copies().empty()) allow(mine.copies_done(), {});
  }

  void crowd() {
    for (uint32_t i = 0; i < world_.crowd && wrong_.empty(); ++i) {
      serve(0);
      if (!random_.chance(30)) continue;
      const uint32_t visitor = random_.below(world_.scopes);
      serve(visitor);
      cache_.drop_scope(scopes_[visitor]);
    }
  }

  // A whole request, of one block.
  void serve(uint32_t scope) {
    LeaseOptions options;
    options.tenant = world_.tenants[scope % world_.tenants.size()];
    if (scope == 0) options.retain.priority = 50;
    if (scope == 0) options.retain.ttl_ns = 1 + random_.next() % (1'000'000 * kSecond);
    const std::vector<Token> tokens(4, 1'000 + random_.below(1'000'000));
    Result<Lease> lease = cache_.lease(scopes_[scope], {.tokens = tokens}, options);
    if (!allow(lease, {Errc::out_of_blocks, Errc::over_quota})) return;
    if (!lease->copies().empty()) allow(lease->copies_done(), {});
    allow(lease->commit(4), {});
    allow(lease->release(), {});
  }

  void work() {
    if (live_.empty()) return;
    Lease& lease = live_[random_.below(static_cast<uint32_t>(live_.size()))];
    static constexpr std::initializer_list<Errc> kRoom = {Errc::out_of_blocks, Errc::over_quota,
                                                          Errc::out_of_memory};
    switch (random_.below(5)) {
      case 0:
        if (lease.length() < 150)
          allow(lease.extend(author_.some_tokens(random_.between(1, 12))), kRoom);
        break;
      case 1:
        if (lease.capacity() < 200) allow(lease.reserve(lease.length()), kRoom);
        break;
      case 2: checkpoint(lease); break;
      default: commit(lease);
    }
  }

  void commit(Lease& lease) {
    const uint32_t most = std::min(lease.length(), lease.capacity());
    if (most <= lease.committed()) return;
    allow(lease.commit(random_.chance(50) ? most : random_.between(lease.committed() + 1, most)),
          {Errc::out_of_memory, Errc::out_of_blocks});
  }

  void checkpoint(Lease& lease) {
    for (GroupIndex g = 0; g < world_.options.groups.size(); ++g) {
      if (world_.options.groups[g].attention != Attention::recurrent) continue;
      if (lease.committed() == 0) return;
      if (!lease.draft_checkpoint(g)) continue;
      (void)lease.commit_checkpoint(g, lease.committed());
    }
  }

  void end_lease(uint32_t which) {
    if (which >= live_.size()) return;
    if (random_.chance(70)) commit(live_[which]);
    const Retain retain = any_retain();
    ReleaseOptions options;
    if (random_.chance(40)) options.retain = &retain;
    if (random_.chance(85)) {
      allow(live_[which].release(options), {});
    } else {
      allow(live_[which].abandon(), {});
    }
    live_.erase(live_.begin() + which);
  }

  void pass_time() {
    switch (random_.below(8)) {
      case 0: return clock_.set_ns(random_.next());  // Also backwards.
      case 1: return clock_.set_ns(random_.chance(10) ? kNever : clock_.now_ns() / 2);
      case 2: return clock_.advance_ns(random_.next() % (1'000 * kSecond));
      default: return clock_.advance_ns(random_.next() % (20 * kSecond));
    }
  }

  void truncate() {
    const Text text = author_.write();
    allow(cache_.truncate(any_scope(), text.prompt(), random_.below(text.size() + 1)), {});
  }

  void pin() {
    allow(cache_.pin(any_scope(), author_.write().prompt(), std::max<uint64_t>(any_ttl(), 1)),
          {Errc::over_pin_share});
  }

  // ---- What must be true ----
  void check() {
    cache_.check_invariants();
    const Stats stats = cache_.stats();
    if (stats.leases != live_.size()) wrong_ = "leases lost or found";
    for (const TenantQuota& quota : world_.options.quotas) {
      if (quota_moved_ && quota.tenant == world_.tenants[1]) continue;
      if (cache_.tenant_bytes(quota.tenant) > quota.bytes) wrong_ = "a tenant is over its quota";
    }
  }

  Random random_;
  World world_;
  Author author_;
  StepLog& log_;
  ManualClock clock_;
  PagedCache cache_;
  std::vector<Scope> scopes_;
  std::vector<Lease> live_;
  std::vector<PriorityRange> ranges_;
  bool quota_moved_ = false;
  std::string wrong_;
};

void live(World (*make)(Random&)) {
  RunLength length = RunLength::from_environment();
  if (std::getenv("STEMMA_MODEL_SECONDS") == nullptr) length.seconds = kShortRun_s;
  using Watch = std::chrono::steady_clock;
  const Watch::time_point begin = Watch::now();
  StepLog log;
  uint64_t seed = length.first_seed;
  for (;; ++seed) {
    Random random(seed);
    const std::string wrong = Life(seed, make(random), log).run();
    log.end();
    ASSERT_EQ(wrong, "") << log.text();
    if (length.only_one ||
        std::chrono::duration<double>(Watch::now() - begin).count() >= length.seconds) {
      break;
    }
  }
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(length.first_seed),
              static_cast<unsigned long long>(seed));
}

TEST(Model, QuotasHoldAmongAnyTimesToLiveUnderAnyClock) { live(quota_world); }

TEST(Model, PoliciesFollowIndexesWithTheirOwnCells) { live(own_cells_world); }

}  // namespace
}  // namespace stemma::test::policies
