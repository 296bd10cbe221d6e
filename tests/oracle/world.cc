#include "oracle/world.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <thread>

#include "engine/paged/kernels.h"

namespace stemma::oracle {
namespace {

using paged::Random;

constexpr uint32_t kLongestPrompt = 80;
constexpr uint32_t kLongestAnswer = 10;

double world_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Guesses what was sampled after the same text before, and now and then something else.
class Memory final : public paged::DraftModel {
 public:
  explicit Memory(uint64_t seed) : random_(seed) {}
  void learn(const paged::Request& request) {
    const Token token =
        paged::sample(request.logits, request.spec.sample_seed, request.text.size());
    known_[key(request, request.text)] = token;
  }
  Token guess(const paged::Request& request, const paged::Text& text) override {
    const auto found = known_.find(key(request, text));
    return found == known_.end() || random_.chance(25) ? random_.below(250) : found->second;
  }

 private:
  static PrefixHash key(const paged::Request& request, const paged::Text& text) {
    PrefixHash hash = prefix_hashes(request.spec.adapter, text).back();
    hash.first ^= request.spec.sample_seed;
    return hash;
  }
  Random random_;
  std::map<PrefixHash, Token> known_;
};

// One thread's part of a world: an engine, its users, and the notes of what it sampled from.
class Desk final : public paged::Listener {
 public:
  Desk(const WorldConfig& config, uint32_t number, const Models& models, const Author::Options& by)
      : random_(paged::mix(config.seed, 1000 + number)),
        config_(config),
        models_(models),
        author_(by),
        memory_(config.seed + number),
        judge(models.pointers()) {
    options_.max_running = random_.between(2, 6);
    options_.chunk_tokens = one_of(random_, {1U, 3U, 3U, 5U, 8U, 16U, 24U});
    options_.batch_tokens = one_of(random_, {4U, 16U, 64U, 128U});
    options_.checkpoint_tokens = one_of(random_, {4U, 8U, 12U, 32U});
    options_.patience_steps = random_.between(1, 6);
    options_.give_up_steps = 300;
    options_.adopt_canonical = random_.chance(70);
    if (random_.chance(50)) options_.branch_copy_steps = random_.between(1, 12);
    options_.overlap = config.force_overlap || random_.chance(50);
    options_.listener = this;
    options_.draft = &memory_;
  }

  void on_logits(const paged::Request& request) override {
    judge.claim(request.spec.adapter, request.text, request.logits);
    memory_.learn(request);
  }
  void on_finished(const paged::Request& request) override {
    if (!request.error) return author_.remember(request.text);
    const Errc code = request.error->code();
    const bool no_room = code == Errc::out_of_blocks || code == Errc::over_quota;
    if (!no_room) wrong = request.error->to_string();
  }

  void open(PagedCache& cache, paged::KvArena& arena, const EngineFactory& factory) {
    cache_ = &cache;
    engine_ = factory(cache, arena, models_.adapters, options_);
  }
  void close() { engine_.reset(); }

  void work() {
    uint32_t left = config_.threads > 1 ? 24 : random_.between(28, 44);
    requests = left;
    for (uint32_t step = 0; step < 20'000 && wrong.empty(); ++step) {
      for (; left > 0 && random_.chance(60); --left) submit();
      if (config_.allow_interruptions && random_.chance(6)) interrupt();
      if (!engine_->step() && left == 0) break;
      if (config_.threads > 1) std::this_thread::yield();
    }
    if (engine_->running() + engine_->waiting() != 0 && wrong.empty()) wrong = "it does not end";
    counts = engine_->counts();
  }

 private:
  void submit() {
    paged::RequestSpec spec;
    spec.prompt = author_.write();
    spec.adapter = random_.below(static_cast<uint32_t>(models_.adapters.size()));
    spec.max_new_tokens = random_.below(kLongestAnswer + 1);
    spec.sample_seed = random_.chance(60) ? 0 : random_.between(1, 2);
    if (random_.chance(20)) spec.best_of = random_.between(2, 3);
    if (random_.chance(60)) spec.branch_after = random_.below(spec.max_new_tokens + 1);
    if (random_.chance(50)) spec.guess_tokens = random_.between(1, 4);
    // The way back crosses what slow branches still copy.
    const uint32_t again = spec.best_of > 1 ? 50 : 15;
    if (config_.allow_retries && random_.chance(again)) spec.retries = random_.between(1, 2);
    spec.want_logits = random_.chance(80);
    spec.lease.tenant = TenantId{spec.adapter + 1};
    LookupOptions& lookup = spec.lease.lookup;
    lookup.allow_copy = !random_.chance(10);
    lookup.write = !random_.chance(4);
    lookup.read = !random_.chance(3);
    if (random_.chance(10)) lookup.evaluate_at_least = random_.between(2, 4);
    if (random_.chance(5)) lookup.at_most = random_.below(40);
    Retain& retain = spec.lease.retain;
    if (random_.chance(30)) retain.priority = static_cast<Priority>(random_.below(101));
    if (random_.chance(30)) {
      retain.session = SessionId{random_.between(1, 5)};
      retain.phase = SessionPhase::active;
    }
    ids_.push_back(engine_->submit(spec).value());
  }

  // What may happen to a cache while engines use it.
  void interrupt() {
    const Scope& scope =
        models_.adapters[random_.below(static_cast<uint32_t>(models_.adapters.size()))].scope;
    const uint32_t what = random_.below(120);
    if (what >= 100) {
      engine_->preempt_youngest();
    } else if (what < 35) {
      cache_->evict(random_.between(1, 12));
    } else if (what < 40) {
      (void)cache_->reset(OnBusy::defer);
      ++resets;
    } else if (what < 60) {
      const paged::Text text = author_.beginning();
      (void)cache_->truncate(scope, text.prompt(), random_.below(text.size() + 1));
    } else if (what < 80) {
      const paged::Text text = author_.beginning();
      if (auto pin = cache_->pin(scope, text.prompt(), 2'000'000)) pins_.push_back(pin->id);
      if (pins_.size() > 2) {
        (void)cache_->unpin(pins_.front());
        pins_.erase(pins_.begin());
      }
    } else if (what < 85) {
      cache_->drop_scope(scope);
    } else if (what < 92) {
      cache_->end_session(SessionId{random_.between(1, 5)});
    } else if (!ids_.empty()) {
      engine_->cancel(ids_[random_.below(static_cast<uint32_t>(ids_.size()))]);
    }
  }

  Random random_;
  const WorldConfig& config_;
  const Models& models_;
  Author author_;
  Memory memory_;
  paged::EngineOptions options_;
  std::unique_ptr<paged::Engine> engine_;
  PagedCache* cache_ = nullptr;
  std::vector<uint64_t> ids_;
  std::vector<PinId> pins_;

 public:
  Judge judge;
  paged::EngineCounts counts;
  uint64_t resets = 0;
  uint64_t requests = 0;
  std::string wrong;
};

// Several threads publish and forget words that no engine asks for, in a scope of their own. Blocks
// and tree cells change hands during lookups: a walk is stale if its cells were forgotten before it
// got the lock.
class Churn {
 public:
  Churn(PagedCache& cache, uint64_t seed) : cache_(cache), seed_(seed) {
    Random random(seed);
    for (std::vector<Token>& prompt : prompts_) {
      for (uint32_t i = 0; i < 24; ++i) prompt.push_back(random.below(i < 12 ? 1 : 250));
    }
  }
  void start() {
    for (uint64_t i = 1; i <= 2; ++i) {
      threads_.emplace_back(
          [this, i](const std::stop_token& stop) { work(stop, Random(seed_ + i)); });
    }
  }

 private:
  void work(const std::stop_token& stop, Random random) {
    LeaseOptions options;
    options.tenant = TenantId{100};
    while (!stop.stop_requested()) {
      for (uint32_t i = 0; i < 20; ++i) {
        const Prompt prompt{.tokens = prompts_[random.below(kPrompts)]};
        if (random.chance(40)) {
          (void)cache_.truncate(scope_, prompt, random.below(12));
        } else if (auto lease = cache_.lease(scope_, prompt, options)) {
          if (lease->copies().empty()) lease->commit(lease->length()).value();
          lease->abandon().value();
        }
      }
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

  static constexpr uint32_t kPrompts = 3;
  PagedCache& cache_;
  uint64_t seed_;
  const Scope scope_ = Scope::make({.model = "nobody's weights"}).value();
  std::array<std::vector<Token>, kPrompts> prompts_;
  std::vector<std::jthread> threads_;  // They stop and are joined when the Churn goes.
};

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

// ---- Tally --------------------------------------------------------------------------------------

Tally& Tally::operator+=(const Tally& other) {
  engines += other.engines;
  schedules += other.schedules;
  requests += other.requests;
  logits += other.logits;
  evictions += other.evictions;
  queried_tokens += other.queried_tokens;
  reused_tokens += other.reused_tokens;
  resets += other.resets;
  lookups += other.lookups;
  stale_walks += other.stale_walks;
  for (size_t i = 0; i < kinds.size(); ++i) {
    kinds[i].queried_tokens += other.kinds[i].queried_tokens;
    kinds[i].reused_tokens += other.kinds[i].reused_tokens;
    kinds[i].checkpoints_loaded += other.kinds[i].checkpoints_loaded;
  }
  cached_seconds += other.cached_seconds;
  plain_seconds += other.plain_seconds;
  return *this;
}

double Tally::reuse_percent() const { return percent(reused_tokens, queried_tokens); }
double Tally::Kind::reuse_percent() const { return percent(reused_tokens, queried_tokens); }

std::string Tally::text() const {
  std::ostringstream out;
  out.precision(1);
  out << std::fixed << schedules << " schedules, " << requests << " requests, " << logits
      << " logits compared\n"
      << "  reuse " << reuse_percent() << " % of " << queried_tokens << " tokens, " << evictions
      << " evictions, " << engines.forks << " forks, " << engines.rewinds << " rewinds, "
      << engines.preemptions << " preemptions\n"
      << "  " << engines.part_copies << " part-blocks copied, " << engines.copies_failed
      << " copies failed, " << engines.checkpoints_loaded << " checkpoints used, "
      << engines.logits_hits << " logits hits, " << engines.refusals << " refusals, "
      << engines.failed << " gave up\n"
      << "  " << engines.guesses_accepted << " guesses right, " << engines.guesses_rejected
      << " wrong, " << engines.duplicates << " duplicates, " << engines.late_steps
      << " late steps, " << resets << " resets\n"
      << "  " << stale_walks << " stale walks in " << lookups << " lookups\n"
      << "  reuse by kind:";
  for (size_t i = 0; i < kinds.size(); ++i) {
    out << (i == 0 ? " " : ", ") << kKindNames[i] << " " << kinds[i].reuse_percent() << " %";
    if (kinds[i].checkpoints_loaded == 0) continue;
    out << " (" << kinds[i].checkpoints_loaded << " checkpoints)";
  }
  out << "\n  " << cached_seconds << " s with the cache, " << plain_seconds << " s without";
  return out.str();
}

// ---- A world ------------------------------------------------------------------------------------

void FlakyArena::copy(std::span<const BlockCopy> copies, Done done, void* user) {
  const uint64_t call = calls_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t luck = paged::mix(seed_, call);
  // Some take their time: sources must wait for them, whatever other threads do.
  if (slow_ && luck % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
  if (luck / 4 % 100 >= fail_percent_) return KvArena::copy(copies, done, user);
  for (const BlockCopy& copy : copies) {
    if (copy.target == kNoBlock) continue;
    *row({copy.group, 0}, copy.target, 0) = 1e9F;
  }
  done(user, Error(Errc::copy_failed, "as the schedule wants it"));
}

std::unique_ptr<paged::Engine> make_engine(PagedCache& cache, paged::KvArena& arena,
                                           std::span<const paged::Adapter> adapters,
                                           const paged::EngineOptions& options) {
  return std::make_unique<paged::Engine>(cache, arena, adapters, options);
}

Outcome run_world(const WorldConfig& config, const EngineFactory& factory) {
  Random random(config.seed);
  const int kind =
      config.model_kind >= 0 ? config.model_kind : static_cast<int>(random.below(kModelKinds));
  const Models models(random, kind);
  const paged::ModelConfig& shape = models.models.front()->config;
  const paged::KvLayout layout = make_layout(
      shape,
      random_memory(random, shape, (kLongestPrompt + kLongestAnswer) * (config.threads + 1) / 2));
  FlakyArena arena(layout, random.chance(30) ? 10 : 0, config.threads > 1, config.seed);
  Options options;
  options.groups = layout.groups;
  options.block_io = &arena;
  options.logits_bytes = random.chance(80) ? random.between(4, 40) * 1100 : 0;
  options.enabled = !random.chance(3);
  options.content_keys = random.chance(20);
  if (random.chance(25)) {
    // Each adapter's users have a share of the memory, which is more than one of them can need.
    uint64_t bytes = 0;
    for (const GroupOptions& group : options.groups) {
      bytes += group.block_bytes * group.capacity_blocks;
    }
    for (uint32_t i = 0; i < models.adapters.size(); ++i) {
      options.quotas.push_back({TenantId{i + 1}, bytes * random.between(60, 100) / 100});
    }
  }
  PagedCache cache = PagedCache::create(options).value();

  const Author::Options by{.family_seed = random.next(),
                           .longest_tokens = kLongestPrompt,
                           .media = config.force_media || random.chance(50)};
  std::vector<std::unique_ptr<Desk>> desks;
  for (uint32_t i = 0; i < config.threads; ++i) {
    Author::Options own = by;
    own.seed = random.next();
    desks.push_back(std::make_unique<Desk>(config, i, models, own));
    desks.back()->open(cache, arena, factory);
  }
  const double begin = world_seconds();
  std::optional<Churn> churn;
  if (config.churn) churn.emplace(cache, config.seed).start();
  if (config.threads == 1) {
    desks.front()->work();
  } else {
    std::vector<std::jthread> threads;
    for (auto& desk : desks) threads.emplace_back([&desk] { desk->work(); });
  }
  churn.reset();
  Outcome outcome;
  outcome.tally.schedules = 1;
  outcome.tally.cached_seconds = world_seconds() - begin;
  Judge judge(models.pointers());
  for (auto& desk : desks) {
    desk->close();
    judge.take(std::move(desk->judge));
    outcome.tally.engines += desk->counts;
    outcome.tally.resets += desk->resets;
    outcome.tally.requests += desk->requests;
    if (outcome.wrong.empty()) outcome.wrong = desk->wrong;
  }
  const std::string verdict = judge.verdict();
  if (outcome.wrong.empty()) outcome.wrong = verdict;
  cache.poll();
  cache.check_invariants();
  const Stats stats = cache.stats();
  if (stats.leases != 0 && outcome.wrong.empty()) outcome.wrong = "a lease was left behind";
  outcome.tally.logits = judge.claims();
  outcome.tally.plain_seconds = judge.plain_seconds();
  outcome.tally.evictions = stats.evicted_blocks;
  outcome.tally.queried_tokens = outcome.tally.engines.leased_tokens;
  outcome.tally.reused_tokens = outcome.tally.engines.reused_tokens;
  outcome.tally.lookups = stats.total.lookups;
  outcome.tally.stale_walks = stats.stale_walks;
  const paged::EngineCounts& engines = outcome.tally.engines;
  outcome.tally.kinds[static_cast<size_t>(kind)] = {engines.leased_tokens - engines.forked_tokens,
                                                    engines.reused_tokens - engines.forked_tokens,
                                                    engines.checkpoints_loaded};
  return outcome;
}

}  // namespace stemma::oracle
