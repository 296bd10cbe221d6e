// Media: compared item by item at their positions, reused whole or not at all.
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

class Media : public PagedFixture {
 protected:
  // 59 positions: images at 11 (10 long) and 30 (18 long), a third item at 48 (7 long), some text.
  static Text picture_book(uint8_t second, uint8_t third, uint32_t end_seed = 2) {
    return (tokens(55) + tokens(4, end_seed))
        .with(image(1, 11, 10))
        .with(image(second, 30, 18))
        .with(image(third, 48, 7));
  }
  std::vector<uint32_t> to_process(const Lease& lease) {
    const auto items = lease.media_to_process();
    return {items.begin(), items.end()};
  }
};

TEST_F(Media, SameMediaHitsAndChangedMediaEndsAtItsStart) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  fill(cache, picture_book(2, 3));
  EXPECT_EQ(hit(cache, picture_book(2, 4)), 48U) << "three blocks up to the third item";
  EXPECT_EQ(hit(cache, picture_book(5, 3)), 30U) << "one block, and the text before the second";
  EXPECT_EQ(hit(cache, picture_book(2, 3, 9)), 55U) << "all three items";
  EXPECT_EQ(hit(cache, picture_book(2, 3)), 58U);
  LookupOptions in_place;
  in_place.allow_copy = false;
  EXPECT_EQ(hit(cache, picture_book(2, 4), in_place), 48U);
  EXPECT_EQ(hit(cache, picture_book(5, 3), in_place), 0U) << "16 lies inside the first item";
}

TEST_F(Media, ReuseNeverEndsInsideAnItem) {
  // An item at [6, 16), blocks of 4.
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  const Text text = tokens(20).with(image(1, 6, 10));
  fill(cache, text);
  LookupOptions options;
  for (uint32_t n = 0; n < 20; ++n) {
    options.at_most = n;
    EXPECT_EQ(hit(cache, text, options), n > 6 && n < 16 ? 6 : n);
  }
  options.allow_copy = false;
  for (uint32_t n = 0; n < 20; ++n) {
    options.at_most = n;
    EXPECT_EQ(hit(cache, text, options), n >= 16 ? 16U : n >= 4 ? 4U : 0U);
  }
}

TEST_F(Media, ItemAtTheEndIsOneUnitToEvaluate) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(40).with(image(1, 25, 15));
  fill(cache, text);
  const Report report = look(cache, text);
  EXPECT_EQ(report.reused_tokens, 25U);
  EXPECT_EQ(report.to_compute_tokens, 15U);
  EXPECT_EQ(report.outcome, Outcome::full_hit);
  LookupOptions two;
  two.evaluate_at_least = 2;
  EXPECT_EQ(hit(cache, text, two), 24U) << "a unit is a token or an item";
}

TEST_F(Media, PlaceholdersProveNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const Text text = tokens(40);
  const Text with_image = text.with(image(1, 20, 10));
  fill(cache, with_image);
  EXPECT_EQ(hit(cache, text), 20U) << "equal tokens, no image";
  EXPECT_EQ(hit(cache, text.with(image(2, 20, 10))), 20U) << "another image";
  PagedCache& plain = cache_of({.block_tokens = 16, .capacity = 20});
  fill(plain, text);
  EXPECT_EQ(hit(plain, with_image), 20U) << "the other way round";
  EXPECT_EQ(hit(plain, text.with(image(1, 0, 10))), 0U) << "an image at the very front";
}

TEST_F(Media, PlaceholderTokensAreNotCompared) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  Text text = tokens(40).with(image(1, 20, 10));
  fill(cache, text);
  for (uint32_t i = 20; i < 30; ++i) text.tokens[i] = 0xFFFF'FF00U;
  EXPECT_EQ(hit(cache, text), 39U);
}

TEST_F(Media, EveryPartOfAnItemsIdentityCounts) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 40});
  const Text text = tokens(40);
  const MediaItem item = image(1, 10, 8);
  fill(cache, text.with(item));
  EXPECT_EQ(hit(cache, text.with(item)), 39U);
  std::vector<MediaItem> others(6, item);
  others[0].kind = MediaKind::video;
  others[1].digest[15] ^= 1;
  others[2].length = 7;
  others[3].length = 9;
  others[4].causal = true;
  others[5].digest[0] ^= 128;
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_EQ(hit(cache, text.with(others[i])), 10U) << "difference " << i;
  }
  MediaItem later = item;
  later.offset = 11;
  EXPECT_EQ(hit(cache, text.with(later)), 10U) << "one position later";
}

TEST_F(Media, LaterItemDoesNotChangeEarlierBlocks) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  const Text text = tokens(40).with(image(1, 2, 6));
  fill(cache, text);
  EXPECT_EQ(hit(cache, text.with(image(2, 30, 4))), 30U);
}

TEST_F(Media, VideoIsComparedLikeAnyOtherItem) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  const Text text = tokens(40).with(video(1, 8, 16));
  fill(cache, text);
  EXPECT_EQ(hit(cache, text), 39U);
  EXPECT_EQ(hit(cache, tokens(40).with(video(2, 8, 16))), 8U);
  EXPECT_EQ(hit(cache, tokens(40)), 8U);
}

TEST_F(Media, OverlappingItemsAreOneUnit) {
  // Image [1, 3), sound [5, 7), image [6, 9); only 8 positions were computed.
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  const Text text = tokens(12).with(image(1, 1, 2)).with(audio(2, 5, 2)).with(image(3, 6, 3));
  Lease lease = take(cache, text);
  ok(lease.commit(8));
  ok(lease.release());
  Lease next = take(cache, text);
  EXPECT_EQ(next.reused(), 5U);
  EXPECT_EQ(to_process(next), (std::vector<uint32_t>{1, 2})) << "one sound and one image remain";
  EXPECT_EQ(next.report().reason, MissReason::media);
  compute(next);
  ok(next.release());
  LookupOptions options;
  for (uint32_t n = 0; n < 12; ++n) {
    options.at_most = n;
    EXPECT_EQ(hit(cache, text, options), n == 2 ? 1 : n > 5 && n < 9 ? 5 : n);
  }
  const Report all_but_one = look(cache, text.first(9));
  EXPECT_EQ(all_but_one.reused_tokens, 5U);
  EXPECT_EQ(all_but_one.outcome, Outcome::full_hit) << "only its last unit is left to evaluate";
}

TEST_F(Media, ChangedSecondImageEndsReuseAtItsStart) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  fill(cache, tokens(12).with(image(1, 1, 2)).with(image(2, 6, 3)));
  Lease lease = take(cache, tokens(12).with(image(1, 1, 2)).with(image(9, 6, 3)));
  EXPECT_EQ(lease.reused(), 6U);
  EXPECT_EQ(to_process(lease), (std::vector<uint32_t>{1}));
}

TEST_F(Media, ItemCountsAsCachedOnlyWhenItsWholeSpanIs) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  const Text text = tokens(30).with(image(1, 2, 4)).with(image(2, 10, 8)).with(audio(3, 20, 5));
  fill(cache, text);
  const std::pair<uint32_t, std::vector<uint32_t>> expected[] = {
      {0, {0, 1, 2}}, {5, {0, 1, 2}}, {6, {1, 2}}, {17, {1, 2}},
      {18, {2}},      {24, {2}},      {25, {}},    {29, {}}};
  for (const auto& [n, items] : expected) {
    LeaseOptions options;
    options.lookup.at_most = n;
    Lease lease = take(cache, text, options);
    EXPECT_EQ(to_process(lease), items) << "at most " << n;
  }
}

TEST_F(Media, GivingBackReuseGivesBackItsMedia) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  const Text text = tokens(30).with(image(1, 2, 6)).with(image(2, 10, 6));
  fill(cache, text);
  Lease lease = take(cache, text);
  EXPECT_TRUE(to_process(lease).empty());
  ok(lease.shrink_to(12));
  EXPECT_EQ(lease.reused(), 10U) << "12 is inside the second item";
  EXPECT_EQ(to_process(lease), (std::vector<uint32_t>{1}));
}

TEST_F(Media, PromptCutInsideAnItemPublishesUpToItsStart) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const Text text = tokens(40).with(image(1, 20, 15));
  Lease lease = take(cache, text);
  ok(lease.commit(25));
  ok(lease.release());
  EXPECT_EQ(hit(cache, text), 20U);
}

TEST_F(Media, EqualItemsInDifferentScopesStayApart) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  const Text text = tokens(20).with(image(1, 4, 8));
  const Scope other = scope_of({.model = "another model"});
  fill(cache, text);
  EXPECT_EQ(hit(cache, other, text), 0U);
  fill(cache, other, text);
  cache.drop_scope(scope);
  EXPECT_EQ(hit(cache, other, text), 19U);
  fill(cache, tokens(20).with(image(2, 4, 8)));  // May get the number the first image had.
  EXPECT_EQ(hit(cache, text), 4U);
  EXPECT_EQ(hit(cache, other, text), 19U);
}

TEST_F(Media, ForgottenItemsNumberIsNotMistakenForANewItem) {
  // Items come and go in a small pool; no answer may ever confuse two of them.
  const Options options = grouped({full(6, 4)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  for (uint32_t i = 0; i < 300; ++i) {
    const auto content = static_cast<uint8_t>(i * 37 % 11);
    const Text text = tokens(14).with(image(content, 1 + i % 3, 5)).with(audio(content / 2, 8, 3));
    const Story story = story_of(text);
    Lease lease = take(cache, text);
    engine.run(lease, story, 14);
    ok(lease.release());
    if (HasFailure()) return;
  }
}

TEST_F(Media, ForkInsideAnItemBeginsBeforeIt) {
  Options options = grouped({full(40, 4)});
  options.content_keys = true;
  PagedCache& cache = cache_with(options);
  const Text text = tokens(24).with(image(1, 6, 10)).with(image(2, 18, 3));
  Lease lease = take(cache, text);
  ok(lease.commit(9));  // A chunk may end anywhere.
  Lease fork = ok(lease.fork());
  EXPECT_EQ(fork.committed(), 6U);
  EXPECT_EQ(fork.length(), 6U);
  EXPECT_TRUE(to_process(fork).empty()) << "the items are not in it";
  ok(fork.copies_done());
  ok(fork.extend(tokens(20, 7).tokens));
  ok(fork.commit(26));
  ok(fork.rewind(5));
  ok(fork.copies_done());
  ok(fork.release());
  ok(lease.commit(24));
  ok(lease.rewind(17));
  EXPECT_TRUE(to_process(lease).size() == 1 && to_process(lease)[0] == 0) << "the second is gone";
  if (!lease.copies().empty()) ok(lease.copies_done());
  ok(lease.release());
  EXPECT_EQ(kept(cache, text.first(16)), 16U);
}

}  // namespace
}  // namespace stemma::test
