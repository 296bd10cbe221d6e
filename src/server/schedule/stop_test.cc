// Tests TextStream: whole characters, stop texts that never appear, tokens released with their
// text.
#include "server/schedule/stop.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/environment.h"

namespace stemma::server {
namespace {

struct Outcome {
  std::string text;
  std::optional<uint32_t> stop;
  uint32_t tokens = 0;
};

Outcome run(const std::vector<std::string>& tokens, std::vector<std::string> stops) {
  TextStream stream(std::move(stops));
  Outcome outcome;
  for (const std::string& token : tokens) {
    const TextStream::Released released = stream.add(token, outcome.text);
    outcome.tokens += released.tokens;
    if (released.stop) outcome.stop = released.stop;
    if (stream.stopped()) break;
  }
  const TextStream::Released released = stream.finish(outcome.text);
  outcome.tokens += released.tokens;
  if (released.stop) outcome.stop = released.stop;
  return outcome;
}

TEST(TextStream, TextWithoutStopsPassesAtOnce) {
  TextStream stream;
  std::string out;
  EXPECT_EQ(stream.add("Hello", out).tokens, 1U);
  EXPECT_EQ(out, "Hello");
  EXPECT_EQ(stream.add(" world", out).tokens, 1U);
  EXPECT_EQ(out, "Hello world");
  EXPECT_EQ(stream.released_bytes(), 11U);
}

TEST(TextStream, ACharacterOfSeveralTokensComesWhole) {
  TextStream stream;
  std::string out;
  EXPECT_EQ(stream.add("a\xF0\x9F", out).tokens, 0U);  // The token ends inside the character.
  EXPECT_EQ(out, "a");
  EXPECT_EQ(stream.add("\x98", out).tokens, 0U);
  EXPECT_EQ(stream.add("\x80 b", out).tokens, 3U);
  EXPECT_EQ(out, "a\xF0\x9F\x98\x80 b");
}

TEST(TextStream, WhatIsNoCharacterIsReplaced) {
  EXPECT_EQ(run({"a\xFFz"}, {}).text, "a\xEF\xBF\xBDz");
  EXPECT_EQ(run({"\xE2\x82", "x"}, {}).text, "\xEF\xBF\xBDx");
  EXPECT_EQ(run({"end\xE2\x82"}, {}).text, "end\xEF\xBF\xBD");
  EXPECT_EQ(run({"\xC0\xAF"}, {}).text, "\xEF\xBF\xBD\xEF\xBF\xBD");  // Overlong form.
  EXPECT_EQ(run({"\xED\xA0\x80"}, {}).text,                           // A surrogate.
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(run({"\xF4\x90\x80\x80"}, {}).text,  // Beyond U+10FFFF.
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(run({"\xF0\x9F\x98"}, {}).tokens, 1U);
}

TEST(TextStream, AStopTextIsNeverSeenNotEvenItsBeginning) {
  TextStream stream({"\nUser:"});
  std::string out;
  EXPECT_EQ(stream.add("Hi", out).tokens, 1U);
  EXPECT_EQ(stream.add("\nUs", out).tokens, 0U);
  EXPECT_EQ(out, "Hi");
  EXPECT_EQ(stream.held_bytes(), 3U);
  const TextStream::Released released = stream.add("er: next", out);
  EXPECT_EQ(released.stop, 0U);
  EXPECT_EQ(released.tokens, 0U);
  EXPECT_EQ(out, "Hi");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.add("more", out).tokens, 0U);
  EXPECT_EQ(out, "Hi");
}

TEST(TextStream, WhatTurnsOutToBeNoStopTextIsReleasedWithItsTokens) {
  TextStream stream({"END"});
  std::string out;
  EXPECT_EQ(stream.add("E", out).tokens, 0U);
  EXPECT_EQ(stream.add("N", out).tokens, 0U);
  EXPECT_EQ(stream.add("E", out).tokens, 2U);  // "EN" can go; "E" may begin again.
  EXPECT_EQ(out, "EN");
  EXPECT_EQ(stream.finish(out).tokens, 1U);
  EXPECT_EQ(out, "ENE");
}

TEST(TextStream, ATokenThatReachesIntoTheStopTextIsReleased) {
  const Outcome outcome = run({"ab", "c ST", "OP"}, {"STOP"});
  EXPECT_EQ(outcome.text, "abc ");
  EXPECT_EQ(outcome.tokens, 2U);
  EXPECT_EQ(outcome.stop, 0U);
}

TEST(TextStream, TheFirstCompleteStopTextWinsAndOfSeveralTheLongest) {
  EXPECT_EQ(run({"abcd"}, {"bcd", "c"}).text, "ab");  // "c" ends before "bcd".
  EXPECT_EQ(run({"abcd"}, {"bcd", "c"}).stop, 1U);
  EXPECT_EQ(run({"abcd"}, {"c", "bc"}).text, "a");  // Both end with the c.
  EXPECT_EQ(run({"abcd"}, {"c", "bc"}).stop, 1U);
}

TEST(TextStream, EmptyAndInvalidStopTextsNeverMatch) {
  const Outcome outcome = run({"a\x80", "b"}, {"", "\x80"});
  EXPECT_EQ(outcome.text,
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_FALSE(outcome.stop);
}

TEST(TextStream, TokensWithoutTextAreReleasedInOrder) {
  TextStream stream({"XY"});
  std::string out;
  EXPECT_EQ(stream.add("", out).tokens, 1U);
  EXPECT_EQ(stream.add("X", out).tokens, 0U);
  EXPECT_EQ(stream.add("", out).tokens, 0U);
  EXPECT_EQ(stream.add("Z", out).tokens, 3U);
}

// The simple way: search the whole text from every end.
Outcome naive_stop(const std::vector<std::string>& tokens, const std::vector<std::string>& stops) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += token;
  const std::string text = to_utf8(bytes);
  Outcome outcome;
  size_t cut = text.size();
  for (size_t end = 1; end <= text.size() && !outcome.stop; ++end) {
    const std::string_view seen = std::string_view(text).substr(0, end);
    for (uint32_t i = 0; i < stops.size(); ++i) {
      if (!seen.ends_with(stops[i])) continue;
      if (outcome.stop && stops[i].size() <= stops[*outcome.stop].size()) continue;
      outcome.stop = i;
      cut = end - stops[i].size();
    }
  }
  outcome.text = text.substr(0, cut);
  return outcome;
}

TEST(TextStream, AgreesWithTheNaiveWayHoweverTheTextIsCut) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", std::random_device{}());
  SCOPED_TRACE("STEMMA_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  const std::vector<std::string> letters = {"a", "b", "\xC3\xA4", "\xE2\x82\xAC",
                                            "\xF0\x9F\x98\x80"};
  for (uint32_t round = 0; round < 20'000; ++round) {
    const uint64_t kinds = 1 + below(letters.size());
    std::vector<std::string> stops(below(5));
    for (std::string& stop : stops) {
      for (uint64_t n = 1 + below(5); n > 0; --n) stop += letters[below(kinds)];
    }
    std::string bytes;
    for (uint64_t n = below(40); n > 0; --n) {
      if (below(12) == 0) {
        bytes += static_cast<char>(below(256));
      } else {
        bytes += letters[below(kinds)];
      }
    }
    std::vector<std::string> tokens;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = below(4);  // Tokens without bytes, too.
      tokens.push_back(bytes.substr(at, n));
      at += n;
    }
    const Outcome want = naive_stop(tokens, stops);
    TextStream stream(stops);
    std::string text;
    std::string source;  // Bytes of the tokens released.
    uint32_t count = 0;
    std::optional<uint32_t> stop;
    const auto check = [&](const TextStream::Released& released) {
      for (uint32_t i = 0; i < released.tokens; ++i) source += tokens.at(count++);
      if (released.stop) stop = released.stop;
      ASSERT_TRUE(is_utf8(text));
      ASSERT_TRUE(want.text.starts_with(text)) << "released too much: " << text;
      // No token before its text: the released tokens' text is there, to the last byte.
      std::string said;
      Utf8Stream characters;
      characters.add(source, said);
      if (!stop) {
        ASSERT_TRUE(text.starts_with(said));
        ASSERT_LT(characters.waiting() == 0 ? said.size() : said.size() + 1, text.size() + 1);
      }
    };
    for (const std::string& token : tokens) {
      check(stream.add(token, text));
      if (HasFatalFailure() || stream.stopped()) break;
    }
    check(stream.finish(text));
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    ASSERT_EQ(text, want.text) << "round " << round;
    ASSERT_EQ(stop.has_value(), want.stop.has_value());
    if (stop) {
      ASSERT_EQ(stops[*stop], stops[*want.stop]);
      // All text comes from released tokens, and the last of them ends in the text.
      ASSERT_TRUE(to_utf8(source).starts_with(text));
      if (count != 0 && !tokens[count - 1].empty()) {
        std::string before;
        for (uint32_t i = 0; i + 1 < count; ++i) before += tokens[i];
        std::string said;
        Utf8Stream().add(before, said);
        ASSERT_LT(said.size(), text.size());
      }
    } else {
      ASSERT_EQ(count, tokens.size());
    }
  }
}

}  // namespace
}  // namespace stemma::server
