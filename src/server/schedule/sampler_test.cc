// Tests Sampler: it follows the distribution of the settings, and a seed gives the same tokens.
// Tests chances(), too.
#include "server/schedule/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

namespace stemma::server {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Sampling with_seed(uint64_t seed) {
  Sampling sampling;
  sampling.seed = seed;
  return sampling;
}

std::vector<float> log_of(const std::vector<double>& chances) {
  std::vector<float> logits;
  for (const double chance : chances) logits.push_back(static_cast<float>(std::log(chance)));
  return logits;
}

// Draws without accept(), so that all draws have the same distribution.
std::vector<uint32_t> draw(const Sampling& sampling, const std::vector<float>& logits,
                           uint32_t times) {
  Sampler sampler(sampling, 0, static_cast<uint32_t>(logits.size()));
  Workspace workspace;
  std::vector<uint32_t> counts(logits.size());
  for (uint32_t i = 0; i < times; ++i) ++counts[sampler.sample(logits, workspace).value()];
  return counts;
}

// Pearson's statistic; impossible tokens must not be drawn.
double chi_square(const std::vector<uint32_t>& counts, std::vector<double> chances) {
  const double total = std::accumulate(chances.begin(), chances.end(), 0.0);
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0.0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * chances[i] / total;
    if (expected == 0.0) {
      EXPECT_EQ(counts[i], 0U) << "token " << i;
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

const std::vector<double> kChances = {0.4, 0.3, 0.15, 0.1, 0.05};
// For 4 degrees of freedom; 1 in 1000 exceeds it. The seeds are fixed, so the result never varies.
constexpr double kBound4 = 18.5;

TEST(Sampler, DrawsByTheModelsProbabilities) {
  EXPECT_LT(chi_square(draw(with_seed(1), log_of(kChances), 100'000), kChances), kBound4);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  for (const double temperature : {0.5, 2.0}) {
    Sampling sampling = with_seed(2);
    sampling.temperature = static_cast<float>(temperature);
    std::vector<double> want;
    for (const double chance : kChances) want.push_back(std::pow(chance, 1.0 / temperature));
    EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 100'000), want), kBound4);
  }
}

TEST(Sampler, TemperatureZeroTakesTheLikeliestAndOfEqualsTheLowest) {
  Sampling sampling;
  sampling.temperature = 0.0F;
  Sampler sampler(sampling, 0, 5);
  Workspace workspace;
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 3, 1, 3, 2}, workspace).value(), 1U);
  EXPECT_EQ(sampler.sample(std::vector<float>{7, 7, 7, 7, 7}, workspace).value(), 0U);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInf, -kInf, -kInf, -5, -kInf}, workspace).value(),
            3U);
}

TEST(Sampler, TopKKeepsTheFirstAndOfEqualsTheLower) {
  Sampling sampling = with_seed(3);
  sampling.top_k = 2;
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000), {0.4, 0.3, 0, 0, 0}), kBound4);
  EXPECT_LT(chi_square(draw(sampling, {1, 2, 2, 2, 0}, 50'000), {0, 1, 1, 0, 0}), kBound4);
  sampling.top_k = 1;
  EXPECT_EQ(draw(sampling, {1, 2, 2, 2, 0}, 50)[1], 50U);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  Sampling sampling = with_seed(4);
  sampling.top_p = 0.75F;  // 0.4 + 0.3 < 0.75 <= 0.4 + 0.3 + 0.15
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000), {0.4, 0.3, 0.15, 0, 0}), kBound4);
  sampling.top_p = 0.65F;
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000), {0.4, 0.3, 0, 0, 0}), kBound4);
  sampling.top_p = 0.0F;
  EXPECT_EQ(draw(sampling, log_of(kChances), 50)[0], 50U);
}

TEST(Sampler, TopPLooksAtWhatTopKLeft) {
  Sampling sampling = with_seed(5);
  sampling.top_k = 3;     // They share 0.47, 0.35, 0.18.
  sampling.top_p = 0.8F;  // Over all tokens this would keep three.
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000), {0.4, 0.3, 0, 0, 0}), kBound4);
}

TEST(Sampler, MinPKeepsWhatIsLikelyEnoughBesideTheLikeliest) {
  Sampling sampling = with_seed(6);
  sampling.min_p = 0.3F;  // At least 0.12 of all.
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000), {0.4, 0.3, 0.15, 0, 0}), kBound4);
  sampling.top_k = 2;
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000), {0.4, 0.3, 0, 0, 0}), kBound4);
  sampling.top_k = 0;
  sampling.top_p = 0.9F;
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000), {0.4, 0.3, 0.15, 0, 0}), kBound4);
}

TEST(Sampler, FiltersComeBeforeTemperature) {
  Sampling sampling = with_seed(7);
  sampling.top_p = 0.65F;
  sampling.temperature =
      2.0F;  // With the temperature first, two tokens would have 0.51: three would stay.
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000),
                       {std::sqrt(0.4), std::sqrt(0.3), 0, 0, 0}),
            kBound4);
}

TEST(Sampler, BiasIsAddedAndMinus100Forbids) {
  Sampling sampling = with_seed(8);
  sampling.bias = {{4, static_cast<float>(std::log(2.0))}, {0, -100.0F}, {99, 5.0F}};
  EXPECT_LT(chi_square(draw(sampling, log_of(kChances), 50'000), {0, 0.3, 0.15, 0.1, 0.1}),
            kBound4);
  Sampler sampler(sampling, 0, 5);
  sampler.ban(1);
  Workspace workspace;
  for (int i = 0; i < 200; ++i) {
    EXPECT_GE(sampler.sample(log_of(kChances), workspace).value(), 2U);
  }
}

TEST(Sampler, FrequencyAndPresenceCountWhatWasGenerated) {
  Sampling sampling;
  sampling.temperature = 0.0F;
  sampling.frequency_penalty = 1.0F;
  Workspace workspace;
  const std::vector<float> logits = {2.5F, 1.0F, 0.0F};
  Sampler frequency(sampling, 0, 3);
  frequency.prime(std::vector<Token>{0, 0, 0, 0});  // The prompt does not count.
  std::vector<Token> answer;
  for (int i = 0; i < 4; ++i) {
    answer.push_back(frequency.sample(logits, workspace).value());
    frequency.accept(answer.back());
  }
  EXPECT_EQ(answer, (std::vector<Token>{0, 0, 1, 0}));

  sampling.frequency_penalty = 0.0F;
  sampling.presence_penalty = 2.0F;
  Sampler presence(sampling, 0, 3);
  answer.clear();
  for (int i = 0; i < 4; ++i) {
    answer.push_back(presence.sample(logits, workspace).value());
    presence.accept(answer.back());
  }
  EXPECT_EQ(answer, (std::vector<Token>{0, 1, 0, 0}));  // 0.5, -1, 0 from the third on.
}

TEST(Sampler, RepeatPenaltySeesTheLastTokensOfPromptAndAnswer) {
  Sampling sampling;
  sampling.temperature = 0.0F;
  sampling.repeat_penalty = 2.0F;
  sampling.repeat_last = 2;
  Workspace workspace;
  Sampler sampler(sampling, 0, 3);
  sampler.prime(std::vector<Token>{1, 0, 2});  // The window has 0 and 2.
  EXPECT_EQ(sampler.sample(std::vector<float>{3.0F, 2.0F, 3.5F}, workspace).value(), 1U);
  EXPECT_EQ(sampler.sample(std::vector<float>{-1.0F, -1.5F, -1.0F}, workspace).value(), 1U);
  sampler.accept(1);  // Now it has 2 and 1.
  EXPECT_EQ(sampler.sample(std::vector<float>{2.0F, 3.0F, 3.5F}, workspace).value(), 0U);
  sampling.repeat_last = 0;
  Sampler blind(sampling, 0, 3);
  blind.prime(std::vector<Token>{0});
  EXPECT_EQ(blind.sample(std::vector<float>{3.0F, 2.0F, 1.0F}, workspace).value(), 0U);
}

TEST(Sampler, ManyTokensArePenalisedAlike) {
  Sampling sampling;
  sampling.temperature = 0.0F;
  sampling.presence_penalty = 2.0F;
  sampling.repeat_penalty = 1.1F;
  sampling.repeat_last = 100;
  Sampler sampler(sampling, 0, 5000);
  Workspace workspace;
  const std::vector<float> logits(5000, 1.0F);
  for (Token i = 0; i < 5000; ++i) {
    ASSERT_EQ(sampler.sample(logits, workspace).value(), i);  // The first token not generated yet.
    sampler.accept(i);
  }
}

TEST(Sampler, EqualSeedsGiveEqualTokensAndOthersDoNot) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const auto tokens = [&](uint64_t seed, uint32_t choice) {
    Sampler sampler(with_seed(seed), choice, 1000);
    Workspace workspace;
    std::vector<Token> out;
    for (int i = 0; i < 20; ++i) out.push_back(sampler.sample(logits, workspace).value());
    return out;
  };
  EXPECT_EQ(tokens(7, 0), tokens(7, 0));
  EXPECT_NE(tokens(7, 0), tokens(8, 0));
  EXPECT_EQ(tokens(7, 1), tokens(8, 0));  // A choice draws from seed + choice.
  Sampling unseeded;
  EXPECT_NE(Sampler(unseeded, 0, 1000).seed(), Sampler(unseeded, 0, 1000).seed());
}

TEST(Sampler, ASeedMeansTheSameOnEveryMachine) {
  Random random(42);
  EXPECT_EQ(random.next(), 0x15780B2E0C2EC716U);
  Sampler sampler(with_seed(42), 0, 64);
  Workspace workspace;
  std::vector<float> logits(64);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 37) % 64) / 16.0F;
  std::vector<Token> tokens;
  for (int i = 0; i < 8; ++i) tokens.push_back(sampler.sample(logits, workspace).value());
  EXPECT_EQ(tokens, (std::vector<Token>{5, 24, 43, 58, 62, 50, 46, 55}));
}

TEST(Sampler, LogitsThatAreNoNumbersAreAnError) {
  Sampler sampler(Sampling{}, 0, 4);
  Workspace workspace;
  const auto nan = sampler.sample(std::vector<float>{0, 1, std::nanf(""), 2}, workspace);
  ASSERT_FALSE(nan);
  EXPECT_EQ(nan.error().code(), Errc::corrupt);
  EXPECT_EQ(nan.error().value(), 2U);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, kInf, 0, 2}, workspace).error().code(),
            Errc::corrupt);
  EXPECT_EQ(sampler.sample(std::vector<float>(4, -kInf), workspace).error().code(),
            Errc::out_of_range);
  EXPECT_EQ(sampler.sample(std::vector<float>(3, 0.0F), workspace).error().code(),
            Errc::invalid_argument);
  // The same for a token that is forbidden anyway.
  sampler.ban(2);
  EXPECT_FALSE(sampler.sample(std::vector<float>{0, 1, std::nanf(""), 2}, workspace));
}

// The simple way: sort all tokens, then cut.
std::vector<double> naive(const std::vector<float>& logits, const Sampling& sampling) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  const double top = logits[order[0]];
  size_t keep = sampling.top_k == 0 ? order.size() : std::min<size_t>(order.size(), sampling.top_k);
  double total = 0.0;
  for (size_t i = 0; i < keep; ++i) total += std::exp(logits[order[i]] - top);
  if (sampling.top_p < 1.0F) {
    double sum = 0.0;
    size_t n = 0;
    while (n < keep && sum < sampling.top_p * total) sum += std::exp(logits[order[n++]] - top);
    keep = std::max<size_t>(n, 1);
  }
  std::vector<double> chances(logits.size());
  for (size_t i = 0; i < keep; ++i) {
    const double logit = logits[order[i]];
    if (sampling.min_p > 0.0F && logit < top + std::log(sampling.min_p)) continue;
    chances[order[i]] = std::exp((logit - top) / sampling.temperature);
  }
  return chances;
}

TEST(Sampler, FiltersAgreeWithTheNaiveWayForAnyShape) {
  Random random(9);
  Workspace workspace;
  for (uint32_t round = 0; round < 300; ++round) {
    const uint32_t size = 1 + random.next() % 700;
    const double width = std::array{0.0, 0.5, 3.0, 40.0, 200.0}[random.next() % 5];
    std::vector<float> logits(size);
    // Coarse, so that many logits are equal.
    for (float& logit : logits) {
      logit = static_cast<float>(std::floor(width * random.unit() * 4) / 4);
    }
    Sampling sampling = with_seed(round);
    sampling.temperature = 1.5F;
    if (random.next() % 2 == 0) sampling.top_k = 1 + random.next() % size;
    if (random.next() % 2 == 0) sampling.top_p = static_cast<float>(random.unit());
    if (random.next() % 2 == 0) sampling.min_p = static_cast<float>(random.unit() * 0.2);
    const std::vector<double> want = naive(logits, sampling);
    const double total = std::accumulate(want.begin(), want.end(), 0.0);
    Sampler sampler(sampling, 0, size);
    std::vector<uint32_t> counts(size);
    constexpr uint32_t kDraws = 400;
    for (uint32_t i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits, workspace).value()];
    for (uint32_t i = 0; i < size; ++i) {
      const double expected = kDraws * want[i] / total;
      // Within six standard deviations; tokens that were cut never come.
      ASSERT_LE(std::fabs(counts[i] - expected), 6 * std::sqrt(expected) + (want[i] > 0 ? 4 : 0))
          << "round " << round << " token " << i << " top_k " << sampling.top_k << " top_p "
          << sampling.top_p << " min_p " << sampling.min_p;
    }
  }
}

TEST(Chances, AreTheSoftmaxOfTheLogitsAsTheyCame) {
  Workspace workspace;
  std::vector<TokenChance> top;
  const auto chosen = chances(log_of(kChances), 3, 2, workspace, top);
  EXPECT_NEAR(chosen.value().logprob, std::log(0.1), 1e-5);
  ASSERT_EQ(top.size(), 2U);
  EXPECT_EQ(top[0].token, 0U);
  EXPECT_EQ(top[1].token, 1U);
  EXPECT_NEAR(top[1].logprob, std::log(0.3), 1e-5);
  EXPECT_TRUE(chances(log_of(kChances), 0, 0, workspace, top));
  EXPECT_TRUE(top.empty());
  EXPECT_TRUE(chances(log_of(kChances), 0, 20, workspace, top));
  EXPECT_EQ(top.size(), 5U);
}

TEST(Chances, AddUpToOneInLargeVocabularies) {
  std::vector<float> logits(128'000);
  Random random(3);
  for (float& logit : logits) logit = static_cast<float>(20.0 * random.unit() - 300.0);
  Workspace workspace;
  std::vector<TokenChance> top;
  ASSERT_TRUE(chances(logits, 0, 128'000, workspace, top));
  double sum = 0.0;
  for (const TokenChance& chance : top) sum += std::exp(chance.logprob);
  EXPECT_NEAR(sum, 1.0, 1e-4);
  EXPECT_TRUE(std::is_sorted(top.begin(), top.end(),
                             [](const auto& a, const auto& b) { return a.logprob > b.logprob; }));
}

TEST(Chances, RefuseWhatIsNoDistribution) {
  Workspace workspace;
  std::vector<TokenChance> top;
  EXPECT_EQ(chances(std::vector<float>{1, std::nanf("")}, 0, 1, workspace, top).error().value(),
            1U);
  EXPECT_EQ(chances(std::vector<float>(3, -kInf), 0, 1, workspace, top).error().code(),
            Errc::corrupt);
  EXPECT_EQ(chances(std::vector<float>(3, 0.0F), 3, 1, workspace, top).error().code(),
            Errc::invalid_argument);
  EXPECT_EQ(chances({}, 0, 1, workspace, top).error().code(), Errc::invalid_argument);
}

}  // namespace
}  // namespace stemma::server
