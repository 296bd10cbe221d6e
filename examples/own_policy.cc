// A retention policy of your own: of cells of one class, the most recently used goes first. That
// suits traffic which reads the same long list again and again, in turn.
#include <compare>
#include <cstdio>
#include <memory>
#include <vector>

#include "stemma/cache.h"
#include "stemma/retention.h"

using namespace stemma;

namespace {

class MostRecentFirst final : public RetentionPolicy {
 public:
  explicit MostRecentFirst(uint32_t cells) : uses_(cells) {}

  std::string_view name() const noexcept override { return "most_recent"; }
  bool prepare(CellIndex) override { return true; }  // All memory was taken at the start.
  void touch(CellIndex cell, const Touch& touch) override {
    uses_[cell] = {.held = true, .touch = touch, .number = ++number_};
  }
  void replace(CellIndex child, CellIndex parent) override {
    const Use use = uses_[child];
    uses_[child] = {};
    const uint64_t now = use.touch.now_ns;
    if (!uses_[parent].held || class_of(use, now) > class_of(uses_[parent], now)) {
      uses_[parent] = use;
    }
  }
  void remove(CellIndex cell) override { uses_[cell] = {}; }
  bool holds(CellIndex cell) const noexcept override { return uses_[cell].held; }
  void clear() override { uses_.assign(uses_.size(), {}); }

  // Looks at all cells. A policy for large caches keeps them in order instead.
  Victim victim(uint64_t now_ns, bool only_tenant, TenantId tenant) override {
    Victim best;
    for (CellIndex cell = 0; cell < uses_.size(); ++cell) {
      const Use& use = uses_[cell];
      if (!use.held || (only_tenant && use.touch.tenant != tenant)) continue;
      if (best.cell == kNoCell || goes_before(cell, best.cell, now_ns)) best.cell = cell;
    }
    if (best.cell != kNoCell) best.tenant = uses_[best.cell].touch.tenant;
    return best;
  }
  void order(uint64_t now_ns, std::vector<CellIndex>& out) const override {
    MostRecentFirst rest(*this);
    for (Victim next; (next = rest.victim(now_ns, false, {})).cell != kNoCell;) {
      out.push_back(next.cell);
      rest.remove(next.cell);
    }
  }
  uint64_t bytes() const noexcept override { return uses_.size() * sizeof(Use); }
  void check_invariants() const override {}

  struct Use {
    bool held = false;
    Touch touch;
    uint64_t number = 0;  // Counts uses; the last one has the largest.
  };

 private:
  // What every policy owes its users: these decide before its own choice does.
  struct Class {
    bool will_return;
    Priority priority;
    SessionPhase phase;
    auto operator<=>(const Class&) const = default;
  };
  static Class class_of(const Use& use, uint64_t now_ns) {
    const Touch& t = use.touch;
    const bool expired = now_ns >= t.deadline_ns;
    return {t.will_return, expired ? t.expired_priority : t.priority,
            expired ? t.expired_phase : t.phase};
  }
  bool goes_before(CellIndex a, CellIndex b, uint64_t now_ns) const {
    const Class left = class_of(uses_[a], now_ns), right = class_of(uses_[b], now_ns);
    return left != right ? left < right : uses_[a].number > uses_[b].number;
  }

  std::vector<Use> uses_;
  uint64_t number_ = 0;
};

}  // namespace

int main() {
  register_policy({.name = "most_recent",
                   .make = [](uint32_t cells) -> std::unique_ptr<RetentionPolicy> {
                     return std::make_unique<MostRecentFirst>(cells);
                   },
                   .bytes_per_cell = sizeof(MostRecentFirst::Use)})
      .value();
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 12}};
  options.policy = "most_recent";
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});

  const auto run = [&](Token seed, Priority priority) {
    const std::vector<Token> prompt(64, seed);
    LeaseOptions ask;
    ask.retain = {.priority = priority};
    Lease lease = *cache.lease(scope, {.tokens = prompt}, ask);
    lease.copies_done().value();
    lease.commit(64).value();
  };
  run(1, 35);
  run(2, 35);
  run(3, 80);
  run(4, 35);  // There is room for three prompts.
  for (Token seed = 1; seed <= 4; ++seed) {
    const std::vector<Token> prompt(64, seed);
    std::printf("prompt %d: %u of 64 tokens cached\n", seed,
                cache.lookup(scope, {.tokens = prompt})->matched_tokens);
  }
}
