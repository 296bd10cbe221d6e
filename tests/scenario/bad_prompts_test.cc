// Prompts at the edges and beyond them.
#include <string>
#include <vector>

#include "support/cache_fixture.h"
#include "support/numbers.h"

namespace stemma::test {
namespace {

class Prompts : public PagedFixture {
 protected:
  // Refused by everything that takes a prompt, with nothing changed.
  void expect_refused(PagedCache& cache, const Prompt& text, uint32_t value,
                      const std::string& what) {
    const std::string before = books(cache);
    const Result<Report> looked = cache.lookup(scope, text);
    ASSERT_FALSE(looked) << what;
    EXPECT_EQ(looked.error().code(), Errc::invalid_argument) << what;
    EXPECT_EQ(looked.error().value(), value) << what << ": " << looked.error().to_string();
    EXPECT_EQ(code(cache.lease(scope, text)), Errc::invalid_argument) << what;
    EXPECT_EQ(code(cache.pin(scope, text, 1000)), Errc::invalid_argument) << what;
    EXPECT_EQ(code(cache.truncate(scope, text, 0)), Errc::invalid_argument) << what;
    EXPECT_EQ(code(cache.branch_points(scope, text)), Errc::invalid_argument) << what;
    EXPECT_EQ(books(cache), before) << what;
  }
};

// ---- Short and long ----------------------------------------------------------------------------

TEST_F(Prompts, EmptyPromptLeasesNothing) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 8});
  fill(cache, tokens(12));
  Lease lease = take(cache, Text{});
  EXPECT_TRUE(lease.active());
  EXPECT_EQ(lease.reused(), 0U);
  EXPECT_EQ(lease.block_count(0), 0U);
  EXPECT_EQ(lease.report().to_compute_tokens, 0U);
  EXPECT_EQ(lease.report().outcome, Outcome::miss);
  EXPECT_EQ(lease.report().reason, MissReason::too_short);
  ok(lease.commit(0));
  ok(lease.extend(tokens(6, 2).tokens));  // An empty prompt can still be extended.
  ok(lease.commit(6));
  ok(lease.release());
  EXPECT_EQ(kept(cache, tokens(6, 2)), 6U);
}

TEST_F(Prompts, OneTokenPromptIsAlwaysEvaluated) {
  for (uint32_t block_tokens : {1U, 16U}) {
    PagedCache& cache = cache_of({.block_tokens = block_tokens, .capacity = 8});
    fill(cache, of({42}));
    const Report report = look(cache, of({42}));
    EXPECT_EQ(report.reused_tokens, 0U);
    EXPECT_EQ(report.matched_tokens, 1U);
    EXPECT_EQ(report.to_compute_tokens, 1U);
    EXPECT_EQ(report.outcome, Outcome::miss);
    EXPECT_EQ(report.reason, MissReason::too_short);
    EXPECT_EQ(hit(cache, of({42, 43})), 1U);
  }
}

TEST_F(Prompts, PromptLongerThanThePoolIsRefusedAndEvictsNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(64));
  const std::string before = books(cache);
  EXPECT_EQ(code(cache.lease(scope, tokens(129, 2))), Errc::out_of_blocks);
  EXPECT_EQ(code(cache.lease(scope, tokens(64) + tokens(65, 2))), Errc::out_of_blocks);
  EXPECT_EQ(code(cache.lease(scope, tokens(60'000, 2))), Errc::out_of_blocks);
  EXPECT_EQ(books(cache), before);
  EXPECT_EQ(kept(cache, tokens(64)), 64U);
  EXPECT_EQ(hit(cache, tokens(64) + tokens(10'000, 2)), 64U) << "asking costs nothing";
  EXPECT_EQ(take(cache, tokens(128, 2)).block_count(0), 8U) << "exactly the pool";
}

TEST_F(Prompts, ShortPromptWithoutAFullBlockIsStillFound) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  EXPECT_EQ(hit(cache, prompt("the cat sat")), 0U);
  fill(cache, prompt("the cat sat"));
  EXPECT_EQ(hit(cache, prompt("the cat sat on the mat")), 3U);
  EXPECT_EQ(hit(cache, prompt("the cat ran")), 2U);
  EXPECT_EQ(hit(cache, prompt("a cat sat")), 0U);
}

// ---- Tokens that are none ----------------------------------------------------------------------

TEST_F(Prompts, ValuesThatAreNoTokensAreRefusedWhereverTheyStand) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const Text text = tokens(100);
  fill(cache, text);
  for (Token bad : {kTokenLimit, kTokenLimit + 1, 0xBFFF'FFFFU, kHuge - 1, kHuge}) {
    for (uint32_t at : {0U, 1U, 15U, 16U, 50U, 63U, 64U, 98U, 99U}) {
      Text changed = text;
      changed.tokens[at] = bad;
      expect_refused(cache, changed, at, std::to_string(bad) + " at " + std::to_string(at));
      expect_refused(cache, changed + tokens(300, 2), at, "and a long tail");
    }
    expect_refused(cache, of({bad}), 0, "alone");
    expect_refused(cache, text + of({bad}), 100, "just after what is cached");
  }
  EXPECT_EQ(hit(cache, text), 99U);
}

TEST_F(Prompts, MediaWordsCannotBeForged) {
  // A caller who guesses how media positions are numbered must not be served an image's KV.
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 20});
  const Text text = tokens(20).with(image(1, 4, 8));
  fill(cache, text);
  for (uint32_t number = 0; number < 20; ++number) {
    Text forged = text.without_media();
    for (uint32_t i = 4; i < 12; ++i) forged.tokens[i] = kTokenLimit + number;
    expect_refused(cache, forged, 4, "number " + std::to_string(number));
  }
}

TEST_F(Prompts, PaddingOfATailCannotBeForged) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  fill(cache, tokens(20));
  for (Token padding : {kHuge, kTokenLimit, Token{0}}) {
    Text longer = tokens(20);
    longer.tokens.resize(32, padding);
    if (padding == 0) {
      EXPECT_EQ(hit(cache, longer), 20U);
    } else {
      expect_refused(cache, longer, 20, "padding " + std::to_string(padding));
    }
  }
}

TEST_F(Prompts, LargestTokenIsAToken) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 20});
  const Text text = of({kTokenLimit - 1, 0, kTokenLimit - 1, 0, kTokenLimit - 1});
  fill(cache, text);
  EXPECT_EQ(hit(cache, text), 4U);
}

// ---- Media that cannot be ----------------------------------------------------------------------

TEST_F(Prompts, ImpossibleMediaIsRefused) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 20});
  const Text text = tokens(20);
  fill(cache, text.with(image(1, 2, 4)));
  expect_refused(cache, text.with(image(1, 2, 0)), 0, "no positions");
  expect_refused(cache, text.with(image(1, 2, 4)).with(image(2, 1, 4)), 1, "out of order");
  expect_refused(cache, text.with(image(1, 2, 4)).with(image(2, 10, 0)), 1, "the second is empty");
  for (uint8_t kind : {0, 5, 254, 255}) {
    expect_refused(cache, text.with(media(MediaKind{kind}, 1, 2, 4)), 0, "no such kind");
  }
  EXPECT_EQ(hit(cache, text.with(image(1, 2, 4))), 19U);
}

TEST_F(Prompts, MediaBeyondThePromptIsRefused) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 20});
  const Text text = tokens(20);
  expect_refused(cache, text.with(image(1, 18, 3)), 0, "ends beyond the prompt");
  expect_refused(cache, text.with(image(1, 20, 1)), 0, "begins beyond the prompt");
  expect_refused(cache, text.with(image(1, 5, kHuge)), 0, "wraps around");
  expect_refused(cache, text.with(image(1, kHuge, 2)), 0, "wraps around");
  expect_refused(cache, Text{}.with(image(1, 0, 1)), 0, "media without a prompt");
}

TEST_F(Prompts, ItemOverTheWholePromptIsOneUnit) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 20});
  const Text text = tokens(20).with(image(1, 0, 20));
  fill(cache, text);
  const Report report = look(cache, text);
  EXPECT_EQ(report.reused_tokens, 0U) << "the only unit must be evaluated";
  EXPECT_EQ(report.to_compute_tokens, 20U);
  EXPECT_EQ(report.reason, MissReason::too_short);
  EXPECT_EQ(hit(cache, text + tokens(1, 2)), 20U);
}

// ---- Options -----------------------------------------------------------------------------------

TEST_F(Prompts, AtLeastOneUnitIsEvaluatedWhateverIsAsked) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 20});
  fill(cache, tokens(20));
  LookupOptions options;
  options.evaluate_at_least = 0;
  const Result<Report> report = cache.lookup(scope, tokens(20), options);
  if (report) {
    EXPECT_EQ(report->reused_tokens, 19U);
  } else {
    EXPECT_EQ(report.error().code(), Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace stemma::test
