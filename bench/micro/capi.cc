// What does the C ABI cost over the C++ API, for the same cycle on equal caches: look up, lease,
// write the block table, release?
//
// C goes through libstemma.so, as its users do; C++ is linked statically. The two take turns, call
// by call, and who begins alternates. A prompt of 32k tokens is the cycle the limit is about; one
// of 64 tokens shows the cost of a call that has next to nothing to do.
#include <string>

#include "bench/allocations.h"
#include "bench/micro/areas.h"
#include "bench/support.h"
#include "stemma/stemma.h"

namespace stemma::bench {
namespace {

void must_succeed(stemma_status status) {
  if (status != STEMMA_OK) throw WrongAnswer(stemma_last_error_message());
}

// Two equal caches with the same contents, one behind C and one behind C++.
class Twins {
 public:
  explicit Twins(uint32_t blocks)
      : blocks_(blocks), cpp_(make_cache(2 * blocks)), table_(blocks), c_table_(blocks) {
    Rng rng(11);
    tokens_ = random_tokens(size_t{blocks} * kBlockTokens + 1, rng);
    stemma_group_options group = STEMMA_GROUP_OPTIONS_INIT;
    group.capacity_blocks = 2 * blocks;
    stemma_options options = STEMMA_OPTIONS_INIT;
    options.groups = &group;
    options.group_count = 1;
    must_succeed(stemma_cache_create(&options, &c_));
    std::copy_n(bench_scope().digest().begin(), sizeof c_scope_.digest, c_scope_.digest);
    lookup_.allow_copy = hit_options().lookup.allow_copy ? 1 : 0;
    options_.lookup = &lookup_;
    options_.draft_tokens = hit_options().draft_tokens;

    insert(cpp_, std::span(tokens_).first(tokens_.size() - 1));
    const stemma_prompt prompt{tokens_.data(), tokens_.size() - 1, nullptr, 0};
    stemma_lease lease = 0;
    must_succeed(stemma_cache_lease(c_, &c_scope_, &prompt, nullptr, &lease));
    must_succeed(stemma_lease_commit(lease, static_cast<uint32_t>(prompt.token_count), nullptr));
    must_succeed(stemma_lease_release(lease, nullptr));
    cycle_cpp();
    cycle_c();
    require(c_table_ ==
                std::vector<uint32_t>(reinterpret_cast<const uint32_t*>(table_.data()),
                                      reinterpret_cast<const uint32_t*>(table_.data()) + blocks_),
            "C and C++ name different blocks");
  }
  Twins(const Twins&) = delete;
  Twins& operator=(const Twins&) = delete;
  ~Twins() { (void)stemma_cache_destroy(c_, STEMMA_ON_BUSY_DEFER); }

  void cycle_cpp() {
    const Prompt prompt{.tokens = tokens_};
    const Result<Report> report = cpp_.lookup(bench_scope(), prompt, hit_options().lookup);
    Result<Lease> lease = cpp_.lease(bench_scope(), prompt, hit_options());
    require(report && lease && report->reused_tokens + 1 == tokens_.size(), "not found whole");
    keep(lease->block_table(0, table_));
    keep(lease->release());
  }
  void cycle_c() {
    const stemma_prompt prompt{tokens_.data(), tokens_.size(), nullptr, 0};
    stemma_report report = STEMMA_REPORT_INIT;
    stemma_lease lease = 0;
    must_succeed(stemma_cache_lookup(c_, &c_scope_, &prompt, &lookup_, &report));
    must_succeed(stemma_cache_lease(c_, &c_scope_, &prompt, &options_, &lease));
    require(report.reused_tokens + 1 == tokens_.size(), "not found whole");
    must_succeed(stemma_lease_block_table(lease, 0, c_table_.data(), c_table_.size(),
                                          STEMMA_NO_BLOCK, nullptr));
    must_succeed(stemma_lease_release(lease, nullptr));
  }

 private:
  uint32_t blocks_;
  PagedCache cpp_;
  stemma_cache* c_ = nullptr;
  stemma_scope c_scope_{};
  stemma_lookup_options lookup_ = STEMMA_LOOKUP_OPTIONS_INIT;
  stemma_lease_options options_ = STEMMA_LEASE_OPTIONS_INIT;
  Tokens tokens_;
  std::vector<BlockId> table_;
  std::vector<uint32_t> c_table_;
};

// `batch` cycles are timed together, so that reading the clock does not count.
PairedSamples measure(uint32_t blocks, uint32_t batch, const Settings& settings) {
  Twins twins(blocks);
  PairedSamples samples;
  const auto time = [&](bool c) {
    return time_ns([&] {
             for (uint32_t i = 0; i < batch; ++i) c ? twins.cycle_c() : twins.cycle_cpp();
           }) /
           batch;
  };
  for (uint32_t phase = 0; phase < kPhases; ++phase) {
    for (uint32_t i = 0; i < settings.rounds(400); ++i) {
      const bool c_first = i % 2 == 0;
      const double first = time(c_first), second = time(!c_first);
      if (i < 4) continue;
      samples.add_ours(c_first ? first : second);
      samples.add_other(c_first ? second : first);
    }
    samples.end_phase();
  }
  return samples;
}

void add_note(Row& row, const PairedSamples& samples) {
  row.with_note(format("C %.3f us, C++ %.3f us a cycle: %.0f ns more", samples.ours() * 1e-3,
                       samples.other() * 1e-3, samples.ours() - samples.other()));
}

}  // namespace

void add_capi(std::vector<Benchmark>& out) {
  out.push_back({{"capi_over_cpp_full_hit", "capi_over_cpp_short", "capi_allocations_per_full_hit"},
                 "What does a full hit cost through the C ABI, against C++: 32k tokens, 64 tokens?",
                 [](Sheet& sheet) {
                   const PairedSamples whole = measure(2048, 1, sheet.settings());
                   add_note(sheet.at_most("capi_over_cpp_full_hit", whole.ratio(), "x C++", 1.10),
                            whole);
                   const PairedSamples brief = measure(4, 50, sheet.settings());
                   add_note(sheet.info("capi_over_cpp_short", brief.ratio(), "x C++"), brief);
                   constexpr uint32_t kHits = 1000;
                   Twins twins(64);
                   const AllocationWindow window;
                   for (uint32_t i = 0; i < kHits; ++i) twins.cycle_c();
                   sheet.at_most("capi_allocations_per_full_hit",
                                 static_cast<double>(window.calls()) / kHits, "calls", 0);
                 }});
}

}  // namespace stemma::bench
