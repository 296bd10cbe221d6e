// Which depths of a prompt are worth a checkpoint.
#include "sequence/stops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace stemma::sequence {
namespace {

using Depths = std::vector<uint32_t>;

Text words(uint32_t count) {
  Text text;
  text.tokens.resize(count);
  return text;
}

// A cold prompt of `count` tokens.
StopInput cold(uint32_t count, std::span<const uint32_t> ends = {}) {
  StopInput input;
  input.terminal = count - 1;
  input.message_ends = ends;
  input.least_tokens = 32;
  input.marks = 8;
  return input;
}

bool contains(const Depths& stops, uint32_t depth) { return std::ranges::count(stops, depth) != 0; }

TEST(Stops, PromptWithoutBoundariesStopsBeforeItsLastToken) {
  EXPECT_EQ(choose_stops(words(200), cold(200)), (Depths{199}));
}

TEST(Stops, EndIsNotKeptRightBehindAnotherStop) {
  for (const uint32_t end : {195U, 196U, 198U}) {
    const Depths ends{100, end};
    const bool both = end == 195;
    EXPECT_EQ(choose_stops(words(200), cold(200, ends)),
              (both ? Depths{100, end, 199} : Depths{100, end}))
        << end;
  }
}

TEST(Stops, EndIsKeptWhereTheMessageBeforeItIsNot) {
  // The last message ends too close behind the first to be kept.
  const Depths ends{150, 197};
  EXPECT_EQ(choose_stops(words(200), cold(200, ends)), (Depths{150, 199}));
}

TEST(Stops, OfBoundariesCloseTogetherTheMoreUsefulOneIsKept) {
  const Depths ends{30, 100, 140, 160, 300, 330, 400};
  // 100 is what others share and 400 is the last; 330 is close to neither.
  EXPECT_EQ(choose_stops(words(500), cold(500, ends)), (Depths{100, 330, 400, 499}));
  StopInput parts = cold(500, ends);
  parts.parting = 145;
  EXPECT_EQ(choose_stops(words(500), parts), (Depths{140, 330, 400, 499}))
      << "the five tokens behind the message are common by chance";
  parts.parting = 230;
  EXPECT_EQ(choose_stops(words(500), parts), (Depths{100, 230, 330, 400, 499}));
}

TEST(Stops, NoChunkIsShortBecauseOfAStop) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    const uint32_t count = 2 + below(3000);
    Depths ends(below(40));
    for (uint32_t& end : ends) end = below(count + 1);
    std::ranges::sort(ends);
    StopInput input = cold(count, ends);
    input.available = below(2) * below(count);
    input.parting = below(count + 1);
    input.interval_tokens = below(3) * 256;
    input.marks = 1 + below(12);
    const Depths stops = choose_stops(words(count), input);
    EXPECT_LE(stops.size(), input.marks);
    uint32_t begin = input.available;
    for (const uint32_t stop : stops) {
      ASSERT_GT(stop, begin);
      ASSERT_LT(stop, count);
      EXPECT_TRUE(stop == input.terminal || stop - begin >= kLeastChunk) << "of " << count;
      begin = stop;
    }
    const bool near = begin + 4 > input.terminal;
    EXPECT_TRUE(near || input.terminal <= input.available) << "its end is kept";
  }
}

TEST(Stops, WhatCanBeKeptLaterMayLieCloser) {
  const Depths ends{40, 60, 70, 130};
  StopInput input = cold(200, ends);
  input.gap_tokens = kLeastLateGap;
  EXPECT_EQ(choose_stops(words(200), input), (Depths{40, 70, 130, 199}));
}

TEST(Stops, WhatIsAvailableIsNotKeptAgain) {
  const Depths ends{100, 200, 310, 400};
  StopInput input = cold(500, ends);
  input.available = 200;
  EXPECT_EQ(choose_stops(words(500), input), (Depths{310, 400, 499}));
  input.available = 499;
  EXPECT_EQ(choose_stops(words(500), input), Depths{});
}

TEST(Stops, IntervalsLieAtMultiplesOrWhereAMessageEndsNearby) {
  StopInput input = cold(1200);
  input.interval_tokens = 256;
  EXPECT_EQ(choose_stops(words(1200), input), (Depths{256, 512, 768, 1024, 1199}));
  const Depths ends{100, 480, 1190};
  input.message_ends = ends;
  EXPECT_EQ(choose_stops(words(1200), input), (Depths{100, 256, 480, 768, 1024, 1190, 1199}));
  input.exact_intervals = true;
  EXPECT_EQ(choose_stops(words(1200), input), (Depths{100, 256, 512, 768, 1024, 1190, 1199}));
}

TEST(Stops, IntervalsThatAreNotAllKeptLieEvenly) {
  StopInput input = cold(2100);
  input.interval_tokens = 256;
  input.marks = 4;
  EXPECT_EQ(choose_stops(words(2100), input), (Depths{512, 1024, 2048, 2099}));
  input.marks = 2;
  EXPECT_EQ(choose_stops(words(2100), input), (Depths{2048, 2099}));
  input.marks = 1;
  EXPECT_EQ(choose_stops(words(2100), input), (Depths{2099}));
  input.marks = 0;
  EXPECT_EQ(choose_stops(words(2100), input), Depths{});
}

TEST(Stops, NoneLiesInsideAMediaItem) {
  Text text = words(600);
  text.spans.push_back({.begin = 240, .end = 420, .identity = {}});
  const Depths ends{300};
  StopInput input = cold(600, ends);
  input.interval_tokens = 256;
  const Depths stops = choose_stops(text, input);
  EXPECT_TRUE(contains(stops, 240));
  EXPECT_EQ(stops, (Depths{240, 512, 599}));
}

TEST(Stops, IntervalIsAnEighthOfThePromptAndCheapBesideComputing) {
  constexpr uint64_t kMs = 1'000'000;
  EXPECT_EQ(natural_interval(100, 50'000, kMs), 256U);
  EXPECT_EQ(natural_interval(2048, 50'000, kMs), 256U);
  EXPECT_EQ(natural_interval(4096, 50'000, kMs), 512U);
  EXPECT_EQ(natural_interval(30'000, 50'000, kMs), 4096U);
  EXPECT_EQ(natural_interval(100, 10 * kMs, kMs), 1024U) << "a 64th of computing them is 16 ms";
}

TEST(WindowSlack, IsWhatTheEngineLeftBehindTheWindow) {
  const EngineTraits traits{.rewind = Rewind::window, .rewind_tokens = 100};
  WindowSlack slack;
  EXPECT_EQ(slack.tokens(), 0U) << "nothing is known";
  slack.learn(traits, {0, 300, true}, {250, 360, true}, 300);
  EXPECT_EQ(slack.tokens(), 0U) << "a few tokens say little";
  slack.learn(traits, {0, 0, true}, {0, 90, true}, 0);
  EXPECT_EQ(slack.tokens(), 0U) << "all of it is within the window";
  slack.learn(traits, {0, 300, true}, {0, 500, true}, 300);
  EXPECT_EQ(slack.tokens(), 400U) << "nothing was pushed out: it may be more";
  slack.learn(traits, {0, 300, true}, {200, 900, true}, 300);
  EXPECT_EQ(slack.tokens(), 500U) << "more by and by";
  slack.learn(traits, {0, 300, true}, {200, 800, true}, 300);
  EXPECT_EQ(slack.tokens(), 500U) << "position 300 could still be resumed";
  slack.learn(traits, {200, 800, true}, {700, 1000, true}, 800);
  EXPECT_EQ(slack.tokens(), 200U) << "less is believed at once";
  slack.learn(traits, {700, 1000, true}, {800, 1300, true}, 1000);
  EXPECT_EQ(slack.tokens(), 300U);
  slack.learn(traits, {800, 1300, true}, {1295, 1400, true}, 1300);
  EXPECT_EQ(slack.tokens(), 0U) << "too little for a chunk";
}

}  // namespace
}  // namespace stemma::sequence
