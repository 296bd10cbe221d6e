// What do the calls between requests and an engine with opaque sequences cost: does it matter how
// much is saved and how many conversations are known?
//
// The engine here holds only numbers, and a saved token is one byte or none, so the cache is what
// is measured. No sequence is live when prompts are looked up: they are found among the saved
// entries. Caches of different sizes are measured in turn, in one loop.
#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "bench/allocations.h"
#include "bench/micro/areas.h"
#include "bench/support.h"
#include "stemma/sequence.h"

namespace stemma::bench {
namespace {

enum class Kind : uint8_t { full, hybrid, states };
constexpr std::array<const char*, 3> kKindNames{"full", "hybrid", "states"};

// Knows where every sequence ends, and the depth of its recurrent state, if it has one.
class PlainEngine final : public SequenceEngine {
 public:
  explicit PlainEngine(Kind kind) : recurrent_(kind != Kind::full) {
    traits_.sequences = 8;
    traits_.context_tokens = 1U << 17U;
    traits_.fork = kind == Kind::states ? Fork::restore : Fork::shared;
    traits_.segments = kind != Kind::states;
    traits_.bytes_per_token = kind != Kind::states ? 1 : 0;
    if (recurrent_) {
      traits_.rewind = Rewind::exact;
      traits_.checkpoints = kind == Kind::hybrid;
      traits_.checkpoint_bytes = 8;
    }
    clear_all();
  }
  void clear_all() { sequences_.assign(traits_.sequences, {}); }
  void compute(SequenceId id, uint32_t end) { at(id) = {end, end}; }

  EngineTraits traits() const override { return traits_; }
  Held held(SequenceId id) override {
    const Sequence& it = at(id);
    if (!recurrent_ || it.end == 0) return {0, it.end};
    return it.state == it.end ? Held{it.end - 1, it.end} : Held{0, 0, false};
  }
  Result<void> clear(SequenceId id) override {
    at(id) = {};
    return {};
  }
  Result<void> trim(SequenceId id, uint32_t n) override {
    at(id).end = std::min(at(id).end, n);
    return {};
  }
  Result<void> copy(SequenceId from, SequenceId to, Range range) override {
    at(to) = {range.end, at(from).state};
    return {};
  }
  Result<uint64_t> size(SequenceId, Part part, Range range) override {
    return part == Part::segment ? range.end - range.begin : 8;
  }
  Result<uint64_t> save(SequenceId id, Part part, Range range, std::span<uint8_t>) override {
    return size(id, part, range);
  }
  Result<void> load(SequenceId id, Part part, Range, Range wanted,
                    std::span<const uint8_t>) override {
    at(id) = {wanted.end, part == Part::segment ? 0 : wanted.end};
    return {};
  }
  Result<void> shift(SequenceId, uint32_t, uint32_t) override {
    return Error(Errc::unsupported, "it does not shift");
  }

 private:
  struct Sequence {
    uint32_t end = 0;
    uint32_t state = 0;
  };
  Sequence& at(SequenceId id) { return sequences_[to_index(id)]; }

  EngineTraits traits_;
  bool recurrent_;
  std::vector<Sequence> sequences_;
};

void compute_all(PlainEngine& engine, Turn& turn) {
  while (turn.computed() < turn.length()) {
    const uint32_t end = turn.next_stop();
    engine.compute(turn.sequence(), end);
    must(turn.computed(end), "computed");
  }
}

// A saved prompt of 32k tokens among `entries` entries of short ones. If memory cannot rewind, a
// prompt leaves two: one before its last token, and one behind it.
class SavedCrowd {
 public:
  static constexpr uint32_t kTokens = 1U << 15U;

  SavedCrowd(Kind kind, uint32_t entries) : engine_(kind) {
    const uint32_t others = kind == Kind::full ? entries : entries / 2;
    SequenceOptions options;
    options.segment_tokens = 16;
    options.saved_bytes = 256U << 20U;
    cache_ =
        std::make_unique<SequenceCache>(must(SequenceCache::create(engine_, options), "cache"));
    Rng rng(100);
    prompt_ = random_tokens(kTokens, rng);
    for (uint32_t i = 0; i < others; ++i) {
      if (i == others / 2) insert(prompt_);
      insert(random_tokens(40, rng));
    }
    append_random(prompt_, 1, rng);
    cache_->forget_context();
    engine_.clear_all();
    const SequenceStats stats = cache_->stats();
    require(stats.segment_evictions + stats.state_evictions == 0, "something did not fit");
    require(cache_->contents()->size() >= entries, "fewer entries are saved than the row says");
    lookup();
    begin();
  }

  void lookup() const {
    const Result<SequenceReport> report = cache_->lookup(bench_scope(), {.tokens = prompt_});
    require(report && report->reused_tokens == kTokens, "a saved prompt was not found whole");
  }
  void begin() {
    Result<Turn> turn = cache_->begin(bench_scope(), {.tokens = prompt_});
    require(turn && turn->report().reused_tokens == kTokens, "a saved prompt was not found whole");
    keep(turn->abandon());
  }

 private:
  void insert(const Tokens& tokens) {
    Turn turn = must(cache_->begin(bench_scope(), {.tokens = tokens}), "begin");
    must(turn.execute(), "execute");
    compute_all(engine_, turn);
    must(turn.finish(), "finish");
    cache_->drain();
  }

  PlainEngine engine_;
  std::unique_ptr<SequenceCache> cache_;
  Tokens prompt_;
};

void measure_entries(Sheet& sheet, Kind kind) {
  SavedCrowd few(kind, 10);
  SavedCrowd more(kind, 1000);
  SavedCrowd many(kind, 100'000);
  const auto measure = [&](const char* name, auto call) {
    PairedSamples among_more, among_many;
    for (uint32_t round = 0; round < 10; ++round) {
      for (uint32_t i = 0; i < sheet.settings().rounds(50); ++i) {
        const double base = time_ns([&] { call(few); });
        among_more.add_ours(time_ns([&] { call(more); }));
        among_many.add_ours(time_ns([&] { call(many); }));
        among_more.add_other(base);
        among_many.add_other(base);
      }
      among_more.end_phase();
      among_many.end_phase();
    }
    sheet
        .at_most(std::string(name) + kKindNames[static_cast<size_t>(kind)],
                 std::max(among_more.ratio(), among_many.ratio()), "ratio", 1.5)
        .with_note(format("%.1f us among 10, %.1f among 1,000, %.1f among 100,000",
                          among_many.other() * 1e-3, among_more.ours() * 1e-3,
                          among_many.ours() * 1e-3));
  };
  measure("sequence_lookup_growth_", [](SavedCrowd& crowd) { crowd.lookup(); });
  measure("sequence_begin_growth_", [](SavedCrowd& crowd) { crowd.begin(); });
}

// Conversations that come once, of which the last `known` are remembered.
class Town {
 public:
  explicit Town(uint32_t known) : engine_(Kind::full), rng_(known) {
    SequenceOptions options;
    options.segment_tokens = 16;
    options.saved_bytes = 1U << 20U;
    options.sessions = known;
    cache_ =
        std::make_unique<SequenceCache>(must(SequenceCache::create(engine_, options), "cache"));
    for (uint32_t i = 0; i < known + 1000; ++i) visit([](auto step) { step(); });
    require(cache_->stats().sessions == known, "not so many sessions are known");
  }

  // `run` is given three steps in order, each to be called once.
  template <class Run>
  void visit(Run run) {
    std::string name("conversation ");
    name += std::to_string(visits_++);
    Tokens tokens = random_tokens(64, rng_);
    TurnOptions options;
    options.session = name;
    Turn turn;
    run([&] { turn = must(cache_->begin(bench_scope(), {.tokens = tokens}, options), "begin"); });
    run([&] { must(turn.execute(), "execute"); });
    compute_all(engine_, turn);
    run([&] { must(turn.finish(), "finish"); });
  }

 private:
  PlainEngine engine_;
  Rng rng_;
  std::unique_ptr<SequenceCache> cache_;
  uint64_t visits_ = 0;
};

void measure_sessions(Sheet& sheet) {
  Town few(10);
  Town many(10'000);
  const auto time_visit = [](Town& town) {
    double spent = 0;
    town.visit([&](auto step) { spent += time_ns(step); });
    return spent;
  };
  PairedSamples times;
  for (uint32_t round = 0; round < 10; ++round) {
    for (uint32_t i = 0; i < sheet.settings().rounds(1000); ++i) {
      times.add_ours(time_visit(many));
      times.add_other(time_visit(few));
    }
    times.end_phase();
  }
  sheet.at_most("sequence_sessions_growth", times.ratio(), "ratio", 1.5)
      .with_note(format("admission and release: %.2f us with 10,000 sessions known, %.2f with 10",
                        times.ours() * 1e-3, times.other() * 1e-3));
}

void count_allocations(Sheet& sheet) {
  constexpr uint32_t kVisits = 1000;
  constexpr std::array<const char*, 3> kSteps{"begin", "execute", "finish"};
  Town town(100);
  std::array<uint64_t, 3> calls{};
  for (uint32_t i = 0; i < kVisits; ++i) {
    size_t at = 0;
    town.visit([&](auto step) {
      const AllocationWindow window;
      step();
      calls[at++] += window.calls();
    });
  }
  for (size_t i = 0; i < kSteps.size(); ++i) {
    sheet.info(std::string("sequence_allocations_") + kSteps[i],
               static_cast<double>(calls[i]) / kVisits, "calls");
  }
}

}  // namespace

void add_sequence(std::vector<Benchmark>& out) {
  for (const Kind kind : {Kind::full, Kind::hybrid, Kind::states}) {
    const std::string name = kKindNames[static_cast<size_t>(kind)];
    out.push_back({{"sequence_lookup_growth_" + name, "sequence_begin_growth_" + name},
                   "How much slower is a prompt found among 100,000 others saved than among 10? (" +
                       name + ")",
                   [kind](Sheet& sheet) { measure_entries(sheet, kind); }});
  }
  out.push_back(
      {{"sequence_sessions_growth"},
       "How much slower is a turn's begin and end with 10,000 sessions known than with 10?",
       measure_sessions});
  out.push_back({{"sequence_allocations_begin", "sequence_allocations_execute",
                  "sequence_allocations_finish"},
                 "How often does a turn of a new session call operator new, once warm?",
                 count_allocations});
}

}  // namespace stemma::bench
