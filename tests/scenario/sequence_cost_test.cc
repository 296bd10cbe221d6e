// The cost of beginning a request does not depend on how much is remembered.
#include <algorithm>
#include <chrono>
#include <string>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

// A whole request without a rig's checks, which would cost more than everything else.
void chat(SequenceCache& cache, FakeSequences& engine, const Scope& scope, const Text& text,
          const std::string& session) {
  Turn turn = ok(cache.begin(scope, text, {.session = session}));
  uint32_t n = ok(turn.execute());
  while (n < text.size()) {
    const uint32_t stop = turn.next_stop();
    ok(engine.compute(turn.sequence(), std::span(text.tokens).subspan(n, stop - n)));
    ok(turn.computed(stop));
    n = stop;
  }
  ok(turn.finish());
  cache.drain();
}

TEST(SequenceCost, BeginDoesNotGrowWithSessionsNorWithWhatIsSaved) {
  for (const EngineOptions& kind : {full_engine(), full_state_engine(), hybrid_engine()}) {
    const auto best_ns = [&](uint32_t entries) {
      FakeSequences engine(kind);
      SequenceOptions options;
      options.saved_bytes = 64U << 20U;
      SequenceCache cache = ok(SequenceCache::create(engine, options));
      const Scope scope = scope_of({.model = "a model"});
      const Text query = tokens(512, 1);
      chat(cache, engine, scope, query, "query");
      for (uint32_t i = 0; i < entries; ++i) {
        Text other = tokens(34, 2);
        other.tokens[0] = i * 2;
        chat(cache, engine, scope, other, "session " + std::to_string(i));
      }
      EXPECT_EQ(cache.stats().sessions, entries + 1);
      auto best = std::chrono::nanoseconds::max();
      for (int i = 0; i < 1000; ++i) {
        const auto start = std::chrono::steady_clock::now();
        const Turn turn = ok(cache.begin(scope, query, {.session = "query"}));
        best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
        EXPECT_EQ(turn.report().reused_tokens, 511U);
      }
      return best.count();
    };
    const auto few = best_ns(10);
    const auto many = best_ns(5000);
    EXPECT_LT(many, 10 * few) << "five hundred times the entries";
  }
}

}  // namespace
}  // namespace stemma::test
