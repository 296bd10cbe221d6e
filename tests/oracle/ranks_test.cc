// Ranks with caches of their own start at one depth and give the logits of the whole model.
#include "engine/paged/ranks.h"

#include <gtest/gtest.h>

#include "oracle/run_length.h"
#include "oracle/world.h"

namespace stemma::oracle {
namespace {

// Two ranks with different memory and different luck. Returns what was wrong.
std::string run_ranks(uint64_t seed, Tally& tally, uint64_t& given_back) {
  paged::Random random(seed);
  const paged::ModelConfig config = random_model(random, static_cast<int>(seed % kModelKinds));
  const paged::Model model = make_model(config);
  const uint32_t borders[] = {0, random.between(1, config.layer_count() - 1), config.layer_count()};
  paged::RankPipeline pipeline(model, Scope::make({.model = "weights"}).value(),
                               random_memory(random, config, 96), borders);
  Author author({.family_seed = random.next(),
                 .seed = random.next(),
                 .longest_tokens = 72,
                 .media = random.chance(50)});
  Judge judge({&model});
  for (uint32_t i = 0; i < 40; ++i) {
    const paged::Text prompt = author.write();
    const Result<paged::Text> text = pipeline.generate(
        prompt, random.below(8), random.below(2), random.between(1, 24),
        [&](const paged::Text& t, std::span<const float> logits) { judge.claim(0, t, logits); });
    ++tally.requests;
    tally.queried_tokens += prompt.size();
    if (text) author.remember(*text);
    if (!text && text.error().code() != Errc::out_of_blocks) return text.error().to_string();
    // Each rank forgets different things.
    if (random.chance(40)) pipeline.ranks()[random.below(2)].cache.evict(random.between(1, 8));
  }
  const std::string wrong = judge.verdict();
  for (paged::RankPipeline::Rank& rank : pipeline.ranks()) {
    rank.cache.check_invariants();
    tally.evictions += rank.cache.stats().evicted_blocks;
  }
  ++tally.schedules;
  tally.logits += judge.claims();
  tally.reused_tokens += pipeline.reused_tokens();
  given_back += pipeline.given_back_tokens();
  return wrong;
}

TEST(Oracle, RanksThatForgetDifferentlyAgreeAndGiveBitIdenticalLogits) {
  Tally tally;
  uint64_t given_back = 0;
  for (RunLength run(0.1); run.next();) {
    const std::string wrong = run_ranks(run.seed(), tally, given_back);
    ASSERT_EQ(wrong, "") << run.replay();
  }
  ASSERT_GT(tally.schedules, 0U);
  if (RunLength::only_one()) return;
  std::printf(
      "%llu schedules of two ranks, %llu logits compared, reuse %.1f %%, %llu evictions, "
      "%llu tokens given back to agree\n",
      static_cast<unsigned long long>(tally.schedules),
      static_cast<unsigned long long>(tally.logits), tally.reuse_percent(),
      static_cast<unsigned long long>(tally.evictions),
      static_cast<unsigned long long>(given_back));
  EXPECT_GE(tally.reuse_percent(), 30.0);
  EXPECT_GT(tally.evictions, 0U);
  EXPECT_GT(given_back, 0U);
}

}  // namespace
}  // namespace stemma::oracle
