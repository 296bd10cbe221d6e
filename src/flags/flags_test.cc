#include "flags/flags.h"

#include <gtest/gtest.h>

namespace stemma::flags {
namespace {

struct Asked {
  std::string dir = ".";
  uint32_t rounds = 8;
  uint64_t bytes = 0;
  int way = 0;
  bool json = false;
  std::vector<std::string> words;
};

// Parses the words into `asked` and returns the error message.
std::string read(std::vector<std::string_view> words, Asked& asked, bool* help = nullptr) {
  Flags flags;
  flags.text("--dir", asked.dir);
  flags.whole("--rounds", asked.rounds, 1U, 100U);
  flags.whole("--bytes", asked.bytes);
  flags.choice("--io", asked.way, {{"uring", 1}, {"threads", 2}, {"auto", 3}});
  flags.on("--json", asked.json);
  flags.words([&](std::string_view word) {
    asked.words.emplace_back(word);
    return asked.words.size() > 2 ? "'" + std::string(word) + "' is too many" : std::string();
  });
  std::string wrong = flags.read(words);
  if (help != nullptr) *help = flags.help();
  return wrong;
}

TEST(Flags, AValueIsTheNextWordOrStandsBehindAnEqualsSign) {
  Asked asked;
  EXPECT_EQ(read({"--dir", "a=b", "--rounds=3", "--io", "threads", "x", "--json", "-"}, asked), "");
  EXPECT_EQ(asked.dir, "a=b");
  EXPECT_EQ(asked.rounds, 3U);
  EXPECT_EQ(asked.way, 2);
  EXPECT_TRUE(asked.json);
  EXPECT_EQ(asked.words, (std::vector<std::string>{"x", "-"}));
}

TEST(Flags, TheLastOneCounts) {
  Asked asked;
  EXPECT_EQ(read({"--rounds", "3", "--rounds", "4"}, asked), "");
  EXPECT_EQ(asked.rounds, 4U);
}

TEST(Flags, WhatIsWrongIsSaidInWords) {
  const std::pair<std::vector<std::string_view>, const char*> cases[] = {
      {{"--nope"}, "unknown argument '--nope'"},
      {{"--json=yes"}, "unknown argument '--json=yes'"},
      {{"-x"}, "unknown argument '-x'"},
      {{""}, ""},
      {{"--dir"}, "--dir needs a value"},
      {{"--dir="}, "--dir needs a value"},
      {{"--rounds", "101"}, "--rounds needs a whole number from 1 to 100"},
      {{"--rounds", "3x"}, "--rounds needs a whole number from 1 to 100"},
      {{"--rounds", "-3"}, "--rounds needs a whole number from 1 to 100"},
      {{"--bytes", "0"}, "--bytes needs a whole number, at least 1"},
      {{"--bytes", "18446744073709551616"}, "--bytes needs a whole number, at least 1"},
      {{"--io", "fast"}, "--io is uring, threads or auto"},
      {{"a", "b", "c"}, "'c' is too many"},
  };
  for (const auto& [words, wrong] : cases) {
    Asked asked;
    EXPECT_EQ(read(words, asked), wrong) << words[0];
    EXPECT_EQ(asked.rounds, 8U);
  }
}

TEST(Flags, WordsAreUnknownWhereNobodyTakesThem) {
  Flags flags;
  const std::vector<std::string_view> words{"x"};
  EXPECT_EQ(flags.read(words), "unknown argument 'x'");
}

TEST(Flags, HelpEndsReading) {
  for (const char* word : {"--help", "-h"}) {
    Asked asked;
    bool help = false;
    EXPECT_EQ(read({"--json", word, "--nope"}, asked, &help), "");
    EXPECT_TRUE(help);
    EXPECT_TRUE(asked.json);
  }
}

}  // namespace
}  // namespace stemma::flags
