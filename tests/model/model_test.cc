// Random operations over random caches with one full-attention group, each compared with what the
// obvious model (model.h) says must happen: how much is reused and why not more, which blocks are
// drafted and which are evicted for them, what is refused, what is left behind. A fake engine
// checks the contents of every block that is reused. world.h says how to replay and how to run for
// longer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/world.h"
#include "stemma/cache.h"
#include "support/fake_engine.h"

namespace stemma::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr uint32_t kScopes = 3;
constexpr uint32_t kSessions = 5;
constexpr uint64_t kBlockBytes = 256;

constexpr std::array<const char*, kOutcomeCount> kOutcomeNames = {"full_hit", "partial_hit", "miss",
                                                                  "bypassed", "refused"};
constexpr std::array<const char*, kMissReasonCount> kReasonNames = {
    "none",       "unknown_scope", "first_use", "too_short", "at_most", "media",
    "group_hole", "no_checkpoint", "no_copy",   "read_off",  "no_room", "gave_up"};

std::string text_of(const Report& r) {
  return "{matched " + std::to_string(r.matched_tokens) + ", reused " +
         std::to_string(r.reused_tokens) + ", copied " + std::to_string(r.copied_tokens) +
         ", to compute " + std::to_string(r.to_compute_tokens) + " of " +
         std::to_string(r.prompt_tokens) + ", " + kOutcomeNames[static_cast<size_t>(r.outcome)] +
         ", " + kReasonNames[static_cast<size_t>(r.reason)] + "}";
}

// Counts of what all runs have seen, by name.
using Seen = std::map<std::string, uint64_t>;

struct Setup {
  uint32_t block_tokens = 4;
  uint32_t capacity_blocks = 16;
  uint32_t letters = 3;
  uint32_t media_percent = 0;
  uint32_t long_percent = 30;
  uint32_t longest_percent = 125;  // Of the pool: no text is longer.
  double pin_share = 0.5;
  bool classes = false;  // Requests differ in priority, session and time to live.
  bool quotas = false;   // Scope s belongs to tenant s; tenants 1 and 2 have a quota.

  static Setup random(Random& random) {
    Setup s;
    s.block_tokens = 1U << random.below(5);
    s.capacity_blocks = random.chance(50) ? random.between(8, 40) : random.between(40, 200);
    s.letters = random.between(2, 6);
    s.media_percent = random.chance(40) ? random.between(2, 20) : 0;
    s.long_percent = random.between(10, 60);
    s.longest_percent = random.chance(20) ? 125 : random.between(20, 70);
    s.pin_share = random.below(11) / 10.0;
    s.classes = random.chance(40);
    s.quotas = random.chance(30);
    return s;
  }

  uint32_t longest_tokens() const {
    return std::max(1U, capacity_blocks * block_tokens * longest_percent / 100);
  }

  std::string text() const {
    return "block_tokens " + std::to_string(block_tokens) + ", blocks " +
           std::to_string(capacity_blocks) + ", letters " + std::to_string(letters) + ", media " +
           std::to_string(media_percent) + " %, pin_share " + std::to_string(pin_share) +
           (classes ? ", classes" : "") + (quotas ? ", quotas" : "");
  }
};

class ModelRun {
 public:
  static constexpr uint32_t kMaxLive = 8, kStepsPerRun = 800;

  ModelRun(uint64_t seed, StepLog& log, Seen& seen)
      : random_(seed),
        setup_(Setup::random(random_)),
        author_({.block_tokens = setup_.block_tokens,
                 .letters = setup_.letters,
                 .longest_tokens = setup_.longest_tokens(),
                 .media_percent = setup_.media_percent,
                 .long_percent = setup_.long_percent},
                random_),
        groups_{{.block_tokens = setup_.block_tokens,
                 .capacity_blocks = setup_.capacity_blocks,
                 .block_bytes = kBlockBytes}},
        engine_(groups_),
        model_(model_config()),
        log_(log),
        seen_(seen),
        cache_(PagedCache::create(options()).value()) {
    for (uint32_t s = 0; s < kScopes; ++s) {
      scopes_.push_back(
          Scope::make({.model = "model", .caller_namespace = std::to_string(s)}).value());
    }
    log_.begin(seed, setup_.text());
  }

  // "" or what went wrong.
  std::string run() {
    for (uint32_t step = 1; step <= kStepsPerRun && wrong_.empty(); ++step) {
      clock_.advance_ns(1'000 + random_.below(1'000));
      model_.set_now(clock_.now_ns());
      log_.step(step, "");
      operate();
      if (wrong_.empty()) compare();
      ++seen_["operations"];
    }
    if (wrong_.empty()) finish();
    if (wrong_.empty()) add_up();
    return wrong_;
  }

  // Everything the library decided, for comparing two runs of one seed.
  uint64_t digest() const { return digest_; }

 private:
  struct Live {
    uint32_t id = 0;
    uint32_t scope = 0;
    Lease lease;
    Text text;
    Story story;
  };

  struct Waiting {  // Ended behind a fence.
    uint32_t id;
    bool with_tail;
    std::unique_ptr<ManualFence> fence;
  };

  // ---- Set-up -----------------------------------------------------------------------------------

  TenantId tenant_of(uint32_t scope) const { return setup_.quotas ? TenantId{scope} : kNoTenant; }

  Model::Config model_config() {
    Model::Config config{.block_tokens = setup_.block_tokens,
                         .capacity_blocks = setup_.capacity_blocks,
                         .block_bytes = kBlockBytes,
                         .pin_share = setup_.pin_share};
    for (uint32_t tenant = 1; tenant < kScopes && setup_.quotas; ++tenant) {
      config.quotas[TenantId{tenant}] = random_quota();
    }
    quotas_ = config.quotas;
    return config;
  }

  uint64_t random_quota() {
    return random_.between(2, setup_.capacity_blocks) * kBlockBytes + random_.below(kBlockBytes);
  }

  Options options() {
    Options options;
    options.groups = groups_;
    options.pin_share = setup_.pin_share;
    for (const auto& [tenant, bytes] : quotas_) options.quotas.push_back({tenant, bytes});
    options.block_io = &engine_;
    options.clock = &clock_;
    return options;
  }

  // ---- Judging ----------------------------------------------------------------------------------

  bool expect(bool truth, const std::string& what) {
    if (!truth && wrong_.empty()) wrong_ = what;
    return truth;
  }
  void expect_nothing_wrong(const std::string& wrong) { expect(wrong.empty(), wrong); }
  template <class T>
  void expect_equal(const T& found, const T& expected, const std::string& what) {
    remember(static_cast<uint64_t>(found));
    if (found == expected) return;
    expect(false,
           what + " is " + std::to_string(found) + " and should be " + std::to_string(expected));
  }
  void expect_equal(const Report& found, const Report& expected, const std::string& what) {
    remember(found.reused_tokens);
    remember(static_cast<uint64_t>(found.reason));
    const bool equal = found.prompt_tokens == expected.prompt_tokens &&
                       found.matched_tokens == expected.matched_tokens &&
                       found.reused_tokens == expected.reused_tokens &&
                       found.copied_tokens == expected.copied_tokens &&
                       found.to_compute_tokens == expected.to_compute_tokens &&
                       found.outcome == expected.outcome && found.reason == expected.reason;
    if (!equal)
      expect(false, what + " is " + text_of(found) + " and should be " + text_of(expected));
  }
  void remember(uint64_t decision) { digest_ = (digest_ ^ decision) * 0x100'0000'01B3U; }

  // The whole visible state, after every step.
  void compare() {
    cache_.check_invariants();
    expect_nothing_wrong(model_.doubt);
    const Stats stats = cache_.stats();
    const GroupStats& group = stats.groups[0];
    expect_equal(group.free_blocks, model_.free_blocks(), "free blocks");
    expect_equal(group.cached_blocks, model_.cached_blocks(), "cached blocks");
    expect_equal(group.evictable_blocks, model_.evictable_blocks(), "evictable blocks");
    expect_equal(group.draft_blocks,
                 setup_.capacity_blocks - model_.free_blocks() - model_.cached_blocks(), "drafts");
    expect_equal(stats.evicted_blocks, model_.evicted, "evicted blocks");
    expect_equal(stats.duplicate_blocks, model_.duplicates, "duplicates");
    expect_equal(stats.tails_published, model_.tails, "tails");
    expect_equal(stats.forks, model_.forks, "forks");
    expect_equal(stats.rewinds, model_.rewinds, "rewinds");
    expect_equal(stats.pin_expiries, model_.pin_expiries, "pin expiries");
    expect_equal(stats.quota_refusals, model_.quota_refusals, "quota refusals");
    expect_equal(stats.orphaned_blocks, model_.orphaned, "orphans");
    expect_equal(stats.leases, uint64_t{model_.leases().size()}, "leases");
    expect_equal(stats.total.lookups, model_.counts.lookups, "lookups");
    expect_equal(stats.total.queried_tokens, model_.counts.queried_tokens, "queried tokens");
    expect_equal(stats.total.reused_tokens, model_.counts.reused_tokens, "reused tokens");
    expect_equal(stats.total.copied_tokens, model_.counts.copied_tokens, "copied tokens");
    expect_equal(stats.total.computed_tokens, model_.counts.computed_tokens, "computed tokens");
    for (uint32_t i = 0; i < kOutcomeCount; ++i) {
      expect_equal(stats.total.outcomes[i], model_.counts.outcomes[i], kOutcomeNames[i]);
    }
    for (uint32_t i = 0; i < kMissReasonCount; ++i) {
      expect_equal(stats.total.reasons[i], model_.counts.reasons[i], kReasonNames[i]);
    }
    for (const auto& [tenant, bytes] : quotas_) {
      expect_equal(cache_.tenant_bytes(tenant), model_.tenant_bytes(tenant), "tenant bytes");
    }
    if (wrong_.empty()) compare_cells();
    for (const Live& l : live_) check_held(l);
  }

  // Checks what every cached path still serves.
  void compare_cells() {
    std::set<uint32_t> leads;
    for (const Model::Cell& cell : model_.cells()) {
      if (cell.live) leads.insert(cell.text);
    }
    for (const uint32_t text : leads) compare_lookup(texts_[text].scope, texts_[text].text, {});
  }

  void compare_lookup(uint32_t scope, const Text& text, const LookupOptions& options) {
    const Result<Report> report = cache_.lookup(scopes_[scope], text.prompt(), options);
    if (!expect(report.has_value(), "lookup failed")) return;
    expect_equal(*report, model_.lookup(scope, Story(scope, text.prompt()), options), "lookup");
  }

  // Checks that a lease's reused and written contents match its prompt.
  void check_held(const Live& l) {
    const uint32_t size = setup_.block_tokens;
    uint32_t n = l.lease.committed();
    for (const BlockCopy& copy : l.lease.copies()) {  // From there on nothing is loaded yet.
      const auto& table = model_.leases().at(l.id).table;
      const auto at = std::ranges::find(table, to_index(copy.target)) - table.begin();
      n = std::min(n, static_cast<uint32_t>(at) * size);
    }
    expect_nothing_wrong(engine_.verify(l.lease, l.story, n));
  }

  // ---- Operations -------------------------------------------------------------------------------

  void operate() {
    if (random_.chance(3)) clock_.advance_ns(random_.between(1, 60'000));
    model_.set_now(clock_.now_ns());
    model_.expire_pins();  // Whatever the call, pins end first.
    const uint32_t dice = random_.below(1000);
    // Leases that wait for their fences may hold all there is.
    if (live_.empty() && !waiting_.empty() && dice >= 500) return signal_or_poll();
    if (live_.empty() || (dice < 220 && live_.size() < kMaxLive)) return begin();
    if (dice < 250) return look();
    if (dice < 275) return pin();
    if (dice < 285) return unpin();
    if (dice < 300) return end_session();
    if (dice < 312) return set_quota();
    if (dice < 345) return forget();
    if (dice < 375) return evict();
    if (dice < 400) return signal_or_poll();
    Live& l = live_[random_.below(static_cast<uint32_t>(live_.size()))];
    if (!l.lease.copies().empty() && dice < 700) return load(l);
    if (dice < 600) return commit(l);
    if (dice < 660) return extend(l);
    if (dice < 690) return reserve(l);
    if (dice < 720) return fork(l);
    if (dice < 760) return rewind(l);
    if (dice < 790) return shrink(l);
    if (dice < 810) return adopt(l);
    if (dice < 825) return misuse(l);
    end(l);
  }

  uint32_t random_scope() { return random_.chance(75) ? 0 : random_.below(kScopes); }

  uint32_t keep_text(uint32_t scope, const Text& text) {
    texts_.push_back({scope, text});
    return static_cast<uint32_t>(texts_.size() - 1);
  }

  LookupOptions random_lookup(uint32_t size) {
    LookupOptions lookup;
    if (random_.chance(12)) lookup.at_most = random_.below(size + 2);
    if (random_.chance(12)) lookup.evaluate_at_least = random_.between(1, 5);
    if (random_.chance(5)) lookup.read = false;
    if (random_.chance(5)) lookup.write = false;
    if (random_.chance(12)) lookup.allow_copy = false;
    return lookup;
  }

  Retain random_retain() {
    Retain retain;
    if (!setup_.classes || random_.chance(40)) return retain;
    static constexpr Priority kPriorities[] = {0, 20, kDefaultPriority, 36, 80, kMaxPriority};
    const auto priority = [&] { return kPriorities[random_.below(6)]; };
    if (random_.chance(50)) retain.priority = priority();
    if (random_.chance(60)) {
      retain.session = SessionId{random_.between(1, kSessions)};
      retain.phase = SessionPhase{static_cast<uint8_t>(random_.below(3))};
    }
    // Few different times, so that many cells have the same.
    const auto time = [&] { return random_.between(1, 5) * 20'000; };
    if (random_.chance(20)) retain.ttl_ns = time();
    if (random_.chance(20)) retain.session_ttl_ns = time();
    if (random_.chance(25)) {
      ranges_.clear();
      const uint32_t step = 4 * setup_.block_tokens;
      for (uint32_t at = random_.below(step); ranges_.size() < 3;) {
        PriorityRange range{.begin = at, .priority = priority()};
        if (random_.chance(20)) range.ttl_ns = time();
        at += random_.between(1, step);
        range.end = ranges_.size() == 2 && random_.chance(50) ? PriorityRange::kOpenEnd : at;
        ranges_.push_back(range);
        at += random_.below(step);
      }
      retain.ranges = ranges_;
    }
    if (random_.chance(5)) retain.will_return = true;
    return retain;
  }

  Model::Done done(const Lease& lease, std::optional<Errc> error = std::nullopt) {
    Model::Done done{.error = error, .table = {}, .copies = {}, .reused = lease.reused()};
    if (error) {
      remember(static_cast<uint64_t>(*error));
      log_.note(": " + std::string(to_string(*error)));
      return done;
    }
    const std::vector<BlockId> table = engine_.tables(lease)[0];
    for (const BlockId block : table) {
      done.table.push_back(to_index(block));
      remember(to_index(block));
    }
    done.copies.assign(lease.copies().begin(), lease.copies().end());
    return done;
  }

  template <class T>
  static std::optional<Errc> error_of(const Result<T>& result) {
    return result ? std::nullopt : std::optional(result.error().code());
  }

  // A lease's own numbers against the model's.
  void compare_lease(const Live& l) {
    const auto it = model_.leases().find(l.id);
    if (!expect(it != model_.leases().end(), "the model has no such lease")) return;
    const Model::Lease& m = it->second;
    expect_equal(l.lease.reused(), m.reused, "reused()");
    expect_equal(l.lease.committed(), m.committed, "committed()");
    expect_equal(l.lease.length(), m.story.size(), "length()");
    expect_equal(l.lease.capacity(), static_cast<uint32_t>(m.table.size()) * setup_.block_tokens,
                 "capacity()");
    expect_equal(l.lease.report(), m.report, "report()");
  }

  void begin() {
    Live l;
    l.id = next_id_++;
    l.scope = random_scope();
    l.text = author_.write();
    l.story = Story(l.scope, l.text.prompt());
    LeaseOptions options{.lookup = random_lookup(l.text.size()),
                         .tenant = tenant_of(l.scope),
                         .retain = random_retain()};
    if (random_.chance(10)) options.draft_tokens = random_.below(l.text.size() + 10);
    log_.note("lease " + std::to_string(l.id) + ": " + std::to_string(l.text.size()) +
              " tokens in scope " + std::to_string(l.scope) +
              (options.lookup.write ? "" : ", write off") +
              (options.draft_tokens == LeaseOptions::kWholePrompt
                   ? ""
                   : ", draft " + std::to_string(options.draft_tokens)));
    Result<Lease> lease = cache_.lease(scopes_[l.scope], l.text.prompt(), options);
    const std::optional<Errc> error = error_of(lease);
    if (lease) l.lease = *std::move(lease);
    notice_settled(error, true, !error && l.lease.report().reason == MissReason::gave_up);
    const Model::Request request{.scope = l.scope,
                                 .tenant = options.tenant,
                                 .story = l.story,
                                 .text = keep_text(l.scope, l.text),
                                 .lookup = options.lookup,
                                 .retain = options.retain,
                                 .draft_tokens = options.draft_tokens};
    expect_nothing_wrong(model_.lease(l.id, request, done(l.lease, error)));
    if (error || !wrong_.empty()) return;
    log_.note(": " + text_of(l.lease.report()));
    compare_lease(l);
    engine_.poison(l.lease, l.lease.reused());
    live_.push_back(std::move(l));
  }

  void look() {
    const uint32_t scope = random_scope();
    const Text text = author_.write();
    log_.note("lookup of " + std::to_string(text.size()) + " in scope " + std::to_string(scope));
    compare_lookup(scope, text, random_lookup(text.size()));
  }

  void load(Live& l) {
    log_.note("copies of " + std::to_string(l.id));
    if (random_.chance(12)) return copies_failed(l);
    if (random_.chance(15)) {
      engine_.set_mode(random_.chance(30) ? FakeEngine::Mode::deferred : FakeEngine::Mode::at_once);
      expect(l.lease.run_copies().has_value(), "run_copies failed");
    } else {
      expect_nothing_wrong(engine_.load(l.lease.copies(), l.story, l.lease.committed()));
      expect(l.lease.copies_done().has_value(), "copies_done failed");
    }
    expect(l.lease.copies().empty(), "copies are still pending");
    expect(l.lease.copies_done().has_value(), "copies_done twice");
    model_.copies_done(l.id);
    compare_lease(l);
    ++seen_["partial copy"];
  }

  void copies_failed(Live& l) {
    const FakeEngine::Tables before = engine_.tables(l.lease);
    std::optional<Errc> error;
    if (random_.chance(30)) {
      log_.note(" run and fail");
      engine_.set_mode(FakeEngine::Mode::failing);
      const Result<void> ran = l.lease.run_copies();
      expect(!ran.has_value(), "run_copies did not fail");
      if (ran.error().code() != Errc::copy_failed) error = ran.error().code();
    } else {
      log_.note(" fail");
      error = error_of(l.lease.copies_failed());
    }
    expect_nothing_wrong(model_.copies_failed(l.id, done(l.lease, error)));
    if (!wrong_.empty()) return;
    if (!error) engine_.poison_new(l.lease, before);
    compare_lease(l);
    ++seen_["copies failed"];
  }

  void commit(Live& l) {
    const uint32_t from = l.lease.committed();
    const uint32_t room = std::min(l.lease.length(), l.lease.capacity());
    if (!l.lease.copies().empty()) {
      expect(error_of(l.lease.commit(from)) == Errc::wrong_state, "committed before the copies");
      return;
    }
    if (room < from) return;
    const uint32_t n = random_.chance(40) ? room : from + random_.below(room - from + 1);
    log_.note("commit " + std::to_string(l.id) + " from " + std::to_string(from) + " to " +
              std::to_string(n));
    engine_.compute(l.lease, from, n, l.story);
    const Result<Commit> result = l.lease.commit(n);
    if (!expect(result.has_value(), "commit failed")) return;
    const Commit expected = model_.commit(l.id, n);
    expect_equal(result->committed, expected.committed, "committed");
    expect_equal(result->published, expected.published, "published");
    expect_equal(result->duplicates, expected.duplicates, "duplicates");
    compare_lease(l);
  }

  void extend(Live& l) {
    const std::vector<Token> tokens =
        author_.some_tokens(random_.below(3 * setup_.block_tokens + 1));
    log_.note("extend " + std::to_string(l.id) + " by " + std::to_string(tokens.size()));
    const FakeEngine::Tables before = engine_.tables(l.lease);
    const std::optional<Errc> error = error_of(l.lease.extend(tokens));
    notice_settled(error, false);
    Text text = l.text;
    text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
    expect_nothing_wrong(
        model_.extend(l.id, tokens, keep_text(l.scope, text), done(l.lease, error)));
    if (!wrong_.empty()) return;
    if (!error) {
      l.text = std::move(text);
      l.story.append(tokens);
      engine_.poison_new(l.lease, before);
    }
    compare_lease(l);
  }

  void reserve(Live& l) {
    const uint32_t positions = random_.below(l.lease.length() + 4 * setup_.block_tokens);
    log_.note("reserve " + std::to_string(l.id) + " to " + std::to_string(positions));
    const FakeEngine::Tables before = engine_.tables(l.lease);
    const std::optional<Errc> error = error_of(l.lease.reserve(positions));
    notice_settled(error, false);
    expect_nothing_wrong(model_.reserve(l.id, positions, done(l.lease, error)));
    if (wrong_.empty() && !error) engine_.poison_new(l.lease, before);
    compare_lease(l);
  }

  void fork(Live& from) {
    if (live_.size() >= kMaxLive) return;
    Live l;
    l.id = next_id_++;
    l.scope = from.scope;
    log_.note("fork " + std::to_string(from.id) + " as " + std::to_string(l.id));
    Result<Lease> lease = from.lease.fork();
    const std::optional<Errc> error = error_of(lease);
    if (!from.lease.copies().empty()) {
      expect(error == Errc::wrong_state, "forked before the copies");
      return;
    }
    if (lease) l.lease = *std::move(lease);
    notice_settled(error, true);
    expect_nothing_wrong(model_.fork(from.id, l.id, done(l.lease, error)));
    if (error || !wrong_.empty()) return;
    l.text = from.text;
    l.text.cut(l.lease.length());
    l.story = from.story;
    l.story.cut(l.lease.length());
    for (const BlockCopy& copy : l.lease.copies()) engine_.poison_block(0, copy.target);
    compare_lease(l);
    live_.push_back(std::move(l));
  }

  void rewind(Live& l) {
    const uint32_t n = random_.chance(60) ? l.story.floor(random_.below(l.lease.length() + 1))
                                          : random_.below(l.lease.length() + 2);
    log_.note("rewind " + std::to_string(l.id) + " to " + std::to_string(n));
    const FakeEngine::Tables before = engine_.tables(l.lease);
    const std::optional<Errc> error = error_of(l.lease.rewind(n));
    Text text = l.text;
    if (n <= text.size()) text.cut(n);
    expect_nothing_wrong(model_.rewind(l.id, n, keep_text(l.scope, text), done(l.lease, error)));
    if (!wrong_.empty()) return;
    if (!error) {
      l.text = std::move(text);
      l.story.cut(n);
      engine_.poison_new(l.lease, before);
    }
    compare_lease(l);
  }

  void shrink(Live& l) {
    const uint32_t n = random_.chance(60) ? l.story.floor(random_.below(l.lease.reused() + 1))
                                          : random_.below(l.lease.reused() + 2);
    log_.note("shrink " + std::to_string(l.id) + " from " + std::to_string(l.lease.reused()) +
              " to " + std::to_string(n));
    const FakeEngine::Tables before = engine_.tables(l.lease);
    const std::optional<Errc> error = error_of(l.lease.shrink_to(n));
    expect_nothing_wrong(model_.shrink(l.id, n, done(l.lease, error)));
    if (!wrong_.empty()) return;
    if (!error) engine_.poison_new(l.lease, before);
    compare_lease(l);
  }

  void adopt(Live& l) {
    log_.note("adopt " + std::to_string(l.id));
    expect_equal(l.lease.adopt_canonical(), model_.adopt_canonical(l.id), "adopted");
    const std::vector<BlockId> table = engine_.tables(l.lease)[0];
    const std::vector<Model::Id>& expected = model_.leases().at(l.id).table;
    for (size_t i = 0; i < table.size() && i < expected.size(); ++i) {
      expect_equal(to_index(table[i]), expected[i], "block " + std::to_string(i));
    }
  }

  void misuse(Live& l) {
    log_.note("misuse " + std::to_string(l.id));
    if (l.lease.copies().empty()) {
      expect(error_of(l.lease.commit(l.lease.length() + 1)) == Errc::out_of_range,
             "commit too far");
      if (l.lease.committed() > 0) {
        expect(error_of(l.lease.commit(l.lease.committed() - 1)) == Errc::out_of_range,
               "commit backwards");
      }
      expect(l.lease.copies_done().has_value(), "copies_done without copies");
      expect(error_of(l.lease.copies_failed()) == Errc::wrong_state,
             "copies_failed without copies");
    }
    expect(error_of(l.lease.shrink_to(l.lease.reused() + 1)).has_value(), "shrunk to more");
    expect(error_of(l.lease.rewind(l.lease.length() + 1)).has_value(), "rewound forward");
    const std::array<Token, 2> bad = {1, kTokenLimit};
    expect(error_of(l.lease.extend(bad)) == Errc::invalid_argument, "took a bad token");
    expect(error_of(cache_.lookup(scopes_[0], {bad, {}})) == Errc::invalid_argument,
           "looked it up");
    expect(error_of(cache_.unpin(PinId{~uint64_t{0}})) == Errc::stale, "unpinned nothing");
    compare_lease(l);
  }

  void end(Live& l) {
    const size_t index = static_cast<size_t>(&l - live_.data());
    const uint32_t dice = random_.below(100);
    const bool with_tail = dice < 80;
    Retain retain;
    ReleaseOptions options;
    if (dice < 30) {
      retain = random_retain();
      options.retain = &retain;
      model_.set_keep(l.id, retain);
    }
    std::unique_ptr<ManualFence> fence;
    if (random_.chance(20)) {
      fence = std::make_unique<ManualFence>();
      options.fence = fence.get();
    }
    log_.note((with_tail ? "release " : "abandon ") + std::to_string(l.id) + " at " +
              std::to_string(l.lease.committed()) + (fence ? " behind a fence" : ""));
    if (dice >= 60 && dice < 80 && !fence) {
      l.lease = Lease();
    } else {
      expect((with_tail ? l.lease.release(options) : l.lease.abandon(options.fence)).has_value(),
             "the end failed");
      expect(error_of(l.lease.release()) == Errc::wrong_state, "released twice");
    }
    if (fence) {
      waiting_.push_back({l.id, with_tail, std::move(fence)});
    } else {
      model_.end(l.id, with_tail);
    }
    live_.erase(live_.begin() + static_cast<ptrdiff_t>(index));
  }

  // At most one fence is signalled and not yet seen: in which order several are settled is the
  // library's choice.
  void signal_or_poll() {
    if (waiting_.empty()) return look();
    Waiting& w = waiting_[random_.below(static_cast<uint32_t>(waiting_.size()))];
    if (find_signalled() == waiting_.end()) w.fence->signal();
    log_.note("signal " + std::to_string(w.id));
    if (random_.chance(60)) poll();
  }

  std::vector<Waiting>::iterator find_signalled() {
    return std::ranges::find_if(waiting_, [](Waiting& w) { return w.fence->signalled(); });
  }

  // The library has seen a fence: the lease behind it has really ended now.
  void settle(std::vector<Waiting>::iterator w) {
    log_.note(" (settled " + std::to_string(w->id) + ")");
    model_.end(w->id, w->with_tail);
    settled_.push_back(std::move(w->fence));
    waiting_.erase(w);
  }

  void poll() {
    const auto signalled = find_signalled();
    log_.note(" poll");
    expect_equal(cache_.poll(), signalled == waiting_.end() ? 0U : 1U, "settled");
    if (signalled != waiting_.end()) settle(signalled);
  }

  // A call that was short of blocks looks at the fences before it refuses.
  void notice_settled(std::optional<Errc> error, bool made_one, bool gave_up = false) {
    const auto signalled = find_signalled();
    if (signalled == waiting_.end()) return;
    const uint64_t without = model_.leases().size() - 1 + (made_one && !error ? 1 : 0);
    if (cache_.stats().leases == without) {
      settle(signalled);
      ++seen_["settled when short"];
    } else if (error == Errc::out_of_blocks || error == Errc::over_quota || gave_up) {
      expect(false, "refused or gave up without looking at a fence that has signalled");
    }
  }

  void pin() {
    const uint32_t scope = random_scope();
    const Text text = author_.write();
    uint64_t ttl = random_.chance(20) ? kNever : random_.between(1, 200'000);
    // No two deadlines at one instant: their order would be the library's choice.
    while (ttl != kNever && !deadlines_.insert(clock_.now_ns() + ttl).second) ++ttl;
    log_.note("pin " + std::to_string(text.size()) + " in scope " + std::to_string(scope) +
              " for " + std::to_string(ttl));
    const Result<PinResult> pinned = cache_.pin(scopes_[scope], text.prompt(), ttl);
    const uint64_t id = pinned ? static_cast<uint64_t>(pinned->id) : 0;
    const std::optional<uint32_t> expected =
        model_.pin(scope, Story(scope, text.prompt()), ttl, id);
    if (!pinned) {
      log_.note(": " + pinned.error().to_string());
      expect(!expected && pinned.error().code() == Errc::over_pin_share, "not pinned");
      ++seen_["pin refused"];
      return;
    }
    if (!expect(expected.has_value(), "pinned beyond the share")) return;
    log_.note(": pinned " + std::to_string(pinned->pinned_tokens));
    expect_equal(pinned->pinned_tokens, *expected, "pinned tokens");
    if (*expected > 0) pins_.push_back(id);
  }

  void unpin() {
    if (pins_.empty()) return look();
    const size_t i = random_.below(static_cast<uint32_t>(pins_.size()));
    log_.note("unpin");
    const std::optional<Errc> error = error_of(cache_.unpin(PinId{pins_[i]}));
    expect(model_.unpin(pins_[i]) == !error, "unpin");
    pins_.erase(pins_.begin() + static_cast<ptrdiff_t>(i));
  }

  void end_session() {
    if (!setup_.classes) return look();
    const SessionId session{random_.between(1, kSessions)};
    log_.note("end session " + std::to_string(static_cast<uint64_t>(session)));
    cache_.end_session(session);
    model_.end_session(session);
  }

  void set_quota() {
    if (!setup_.quotas) return look();
    const TenantId tenant{random_.between(1, kScopes - 1)};
    const uint64_t bytes = random_quota();
    log_.note("quota of tenant " + std::to_string(static_cast<uint32_t>(tenant)) + " is " +
              std::to_string(bytes));
    expect(cache_.set_quota(tenant, bytes).has_value(), "set_quota failed");
    model_.set_quota(tenant, bytes);
  }

  void forget() {
    const uint32_t scope = random_scope();
    const uint32_t dice = random_.below(100);
    if (dice < 85) {
      const Text text = author_.write();
      const uint32_t keep = random_.below(text.size() + 2);
      log_.note("truncate " + std::to_string(text.size()) + " in scope " + std::to_string(scope) +
                " to " + std::to_string(keep));
      const Result<uint32_t> gone = cache_.truncate(scopes_[scope], text.prompt(), keep);
      if (!expect(gone.has_value(), "truncate failed")) return;
      log_.note(": " + std::to_string(*gone));
      expect_equal(*gone, model_.truncate(scope, Story(scope, text.prompt()), keep), "truncated");
    } else if (dice < 96) {
      log_.note("drop scope " + std::to_string(scope));
      expect_equal(cache_.drop_scope(scopes_[scope]), model_.drop_scope(scope), "dropped");
    } else {
      log_.note("reset");
      const auto signalled = find_signalled();
      if (signalled != waiting_.end()) settle(signalled);
      const bool busy = !model_.leases().empty();
      expect(error_of(cache_.reset()) == (busy ? std::optional(Errc::busy) : std::nullopt),
             "reset is not refused as it should be");
      expect(cache_.reset(OnBusy::defer).has_value(), "deferred reset failed");
      model_.reset(kScopes);
    }
  }

  void evict() {
    const uint32_t blocks = random_.between(1, 8);
    const bool reclaims = random_.between(0, 1) == 1;
    log_.note((reclaims ? "reclaim " : "evict ") + std::to_string(blocks));
    if (!reclaims) {
      expect_equal(cache_.evict(blocks), model_.evict(blocks), "evicted");
      return;
    }
    const uint64_t before = cache_.stats().evicted_blocks;
    expect(cache_.reclaim(0xFFFF'FFFFU, blocks).has_value(), "reclaiming failed");
    expect_equal(static_cast<uint32_t>(cache_.stats().evicted_blocks - before),
                 model_.evict(blocks), "reclaimed");
  }

  // ---- The end ----------------------------------------------------------------------------------

  void finish() {
    log_.step(kStepsPerRun + 1, "the end");
    while (!live_.empty() && wrong_.empty()) end(live_.back());
    while (!waiting_.empty() && wrong_.empty()) {
      if (find_signalled() == waiting_.end()) waiting_.back().fence->signal();
      poll();
    }
    if (wrong_.empty()) compare();
    expect(cache_.reset().has_value(), "reset of an idle cache failed");
    const Stats stats = cache_.stats();
    expect_equal(stats.groups[0].free_blocks, setup_.capacity_blocks, "free blocks at the end");
    cache_.check_invariants();
  }

  void add_up() {
    const Stats stats = cache_.stats();
    for (uint32_t i = 0; i < kOutcomeCount; ++i) {
      seen_[std::string("outcome ") + kOutcomeNames[i]] += stats.total.outcomes[i];
    }
    for (uint32_t i = 0; i < kMissReasonCount; ++i) {
      seen_[std::string("reason ") + kReasonNames[i]] += stats.total.reasons[i];
    }
    ++seen_["runs"];
    seen_["evicted"] += stats.evicted_blocks;
    seen_["duplicate"] += stats.duplicate_blocks;
    seen_["tail published"] += stats.tails_published;
    seen_["tail absorbed"] += model_.absorbed;
    seen_["taken over"] += model_.taken_over;
    seen_["fork"] += stats.forks;
    seen_["rewind"] += stats.rewinds;
    seen_["pin expiry"] += stats.pin_expiries;
    seen_["quota refusal"] += stats.quota_refusals;
    seen_["orphan"] += stats.orphaned_blocks;
    seen_["hint repair"] += stats.hint_repairs;
    seen_["marker dropped"] += stats.markers_dropped;
    seen_["exact count"] += stats.exact_counts;
  }

  struct ScopedText {
    uint32_t scope;
    Text text;
  };

  Random random_;
  Setup setup_;
  Author author_;
  std::vector<GroupOptions> groups_;
  FakeEngine engine_;
  ManualClock clock_;
  std::map<TenantId, uint64_t> quotas_;
  Model model_;
  StepLog& log_;
  Seen& seen_;
  std::vector<std::unique_ptr<ManualFence>> settled_;
  std::vector<Waiting> waiting_;
  PagedCache cache_;
  std::vector<Scope> scopes_;
  std::vector<Live> live_;
  std::vector<ScopedText> texts_;  // All that led to a cell, by number.
  std::vector<uint64_t> pins_;
  std::set<uint64_t> deadlines_;
  std::vector<PriorityRange> ranges_;
  uint32_t next_id_ = 1;
  uint64_t digest_ = 0;
  std::string wrong_;
};

// What a long enough run must have met; otherwise it has tested less than it claims.
constexpr std::array kMustHappen = {
    "outcome full_hit", "outcome partial_hit",  "outcome miss",     "outcome bypassed",
    "outcome refused",  "reason unknown_scope", "reason first_use", "reason too_short",
    "reason at_most",   "reason media",         "reason no_copy",   "reason read_off",
    "reason no_room",   "reason gave_up",       "partial copy",     "copies failed",
    "duplicate",        "tail published",       "tail absorbed",    "fork",
    "rewind",           "pin expiry",           "pin refused",      "quota refusal",
    "orphan",           "hint repair",          "marker dropped",   "evicted"};

TEST(Model, RandomOperationsAgreeWithTheObviousModel) {
  const RunLength length = RunLength::from_environment();
  const double seconds = length.seconds * 0.7;
  std::printf("first seed %llu, %.0f s\n", static_cast<unsigned long long>(length.first_seed),
              seconds);
  StepLog log;
  Seen seen;
  const SteadyClock::time_point begin = SteadyClock::now();
  for (uint64_t seed = length.first_seed;; ++seed) {
    ModelRun run(seed, log, seen);
    const std::string wrong = run.run();
    log.end();
    ASSERT_EQ(wrong, "") << log.text();
    const double passed = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    if (length.only_one ||
        (passed >= seconds && seen["operations"] >= length.operations * 7 / 10)) {
      break;
    }
  }
  for (const auto& [name, count] : seen) {
    std::printf("  %-22s %10llu\n", name.c_str(), static_cast<unsigned long long>(count));
  }
  if (length.only_one) return;
  const uint64_t wanted = RunLength::times_wanted(seen["operations"], 400'000);
  for (const char* name : kMustHappen) EXPECT_GE(seen[name], wanted) << name;
}

TEST(Model, EqualOperationsGiveEqualDecisions) {
  StepLog log;
  Seen seen;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    ModelRun first(seed, log, seen);
    ASSERT_EQ(first.run(), "") << log.text();
    ModelRun second(seed, log, seen);
    ASSERT_EQ(second.run(), "") << log.text();
    log.end();
    EXPECT_EQ(first.digest(), second.digest()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace stemma::test
