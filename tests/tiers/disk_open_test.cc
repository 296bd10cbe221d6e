// What opening finds in a directory, and what it tells the operator.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "stemma/log.h"
#include "stemma/tier/disk_tier.h"
#include "support/sim_files.h"
#include "support/temporary_directory.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

namespace fs = std::filesystem;
using enum TierOutcome;
using tier::kPage;
using tier::disk::DiskOptions;
using tier::disk::DiskTier;

class DiskOpen : public ::testing::Test {
 protected:
  DiskOptions options(uint64_t pages = 512) const {
    return {.path = path,
            .capacity_bytes = pages * kPage,
            .max_entry_bytes = 60'000,
            .retry_ns = 20'000'000};
  }
  std::unique_ptr<DiskTier> open(uint64_t pages = 512) {
    return DiskTier::open(options(pages)).value();
  }
  Errc error() {
    const auto opened = DiskTier::open(options());
    if (opened) return Errc{0};
    EXPECT_GT(std::string(opened.error().message()).size(), 15U);
    return opened.error().code();
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path + "/" + name, std::ios::binary) << text;
  }
  std::string read(const std::string& name) {
    std::ifstream in(path + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TemporaryDirectory directory;
  std::string path = directory / "store";
};

std::string logged;  // NOLINT: what a log handler can reach.

}  // namespace

TEST_F(DiskOpen, OnlyTheOwnerCanReadIt) {
  Client client(*open());
  for (const char* name :
       {"", "/lock", "/format", "/entries.slab", "/entries.table", "/entries.uses"}) {
    struct stat found = {};
    ASSERT_EQ(stat((path + name).c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, *name == '\0' ? 0700U : 0600U) << name;
  }
}

TEST_F(DiskOpen, ASecondOneIsRefused) {
  auto first = open();
  EXPECT_EQ(error(), Errc::busy);
  first.reset();
  EXPECT_EQ(error(), Errc{0});
}

TEST_F(DiskOpen, ANewerFormatIsRefusedAndLeftAlone) {
  {
    Client(*open()).put(entries(1, 4, 9000));
  }
  std::string format = read("format");
  format[8] = 4;
  write("format", format);
  const std::string slab = read("entries.slab");
  EXPECT_EQ(error(), Errc::unsupported);
  EXPECT_EQ(read("format"), format);
  EXPECT_EQ(read("entries.slab"), slab);
}

TEST_F(DiskOpen, WhatIsNotAStoreIsRefusedAndLeftAlone) {
  std::ofstream(directory / "file") << "text";
  path = directory / "file";
  EXPECT_EQ(error(), Errc::invalid_argument);
  path = directory / "missing/deeper";
  EXPECT_EQ(error(), Errc::copy_failed);
  path = directory / "foreign";
  fs::create_directory(path);
  write("entries.slab", "somebody else's");
  EXPECT_EQ(error(), Errc::corrupt);
  EXPECT_EQ(read("entries.slab"), "somebody else's");
  EXPECT_FALSE(fs::exists(path + "/format"));
  write("format", "somebody else's format, which is long enough to be looked at by us");
  EXPECT_EQ(error(), Errc::corrupt);
  EXPECT_EQ(read("entries.slab"), "somebody else's");
}

// The target of a link belongs to somebody else, and a pipe would wait for ever.
TEST_F(DiskOpen, LinksAndPipesInThePlaceOfItsFilesAreRefused) {
  const std::string precious = directory / "precious";
  std::ofstream(precious) << std::string(300'000, 'x');
  for (const char* name : {"entries.slab", "entries.table", "entries.uses", "format", "lock"}) {
    for (const bool pipe : {false, true}) {
      SCOPED_TRACE(std::string(name) + (pipe ? " is a pipe" : " is a link"));
      fs::remove_all(path);
      open();
      const std::string place = path + "/" + name;
      fs::remove(place);
      if (pipe) {
        ASSERT_EQ(mkfifo(place.c_str(), 0600), 0);
      } else {
        fs::create_symlink(precious, place);
      }
      EXPECT_EQ(error(), Errc::corrupt);
      EXPECT_EQ(fs::file_size(precious), 300'000U);
    }
  }
}

TEST_F(DiskOpen, ForeignFilesAreNamedAndLeftAlone) {
  fs::create_directory(path);
  write("notes.txt", "keep me");
  logged.clear();
  set_log_handler([](LogLevel, std::string_view line, void*) { logged += line; }, nullptr);
  {
    const auto tier = open();
    set_log_handler(nullptr, nullptr);
    EXPECT_EQ(tier->opening().foreign, 1U);
    EXPECT_EQ(Client(*tier).put(entry(1, 0, 9000)), done);
  }
  EXPECT_NE(logged.find("'notes.txt'"), std::string::npos) << logged;
  EXPECT_NE(logged.find("left alone"), std::string::npos) << logged;
  EXPECT_EQ(read("notes.txt"), "keep me");
}

TEST_F(DiskOpen, BadOptionsAreNamed) {
  auto bad = options();
  bad.capacity_bytes = 15 * kPage - 1;  // Less than the largest entry.
  EXPECT_EQ(DiskTier::open(bad).error().code(), Errc::invalid_argument);
  bad = options();
  bad.capacity_bytes = uint64_t{1} << 44U;
  EXPECT_EQ(DiskTier::open(bad).error().code(), Errc::invalid_argument);
  bad = options();
  bad.policy = "best";
  EXPECT_EQ(DiskTier::open(bad).error().code(), Errc::invalid_argument);
  bad = options();
  bad.depth = 0;
  EXPECT_EQ(DiskTier::open(bad).error().code(), Errc::invalid_argument);
}

TEST_F(DiskOpen, WhoseEntriesAreThereIsTold) {
  {
    const auto tier = open();
    Client client(*tier);
    for (uint64_t prompt = 0; prompt < 5; ++prompt) {
      Entry one = entry(prompt, 0, 1'000 + prompt);
      one.info.layout = prompt < 3 ? 77 : 78;
      EXPECT_EQ(client.put(one), done);
    }
    Entry again = entry(0, 0, 50'000);  // In place of the first.
    again.info.layout = 78;
    EXPECT_EQ(client.put(again), done);
    EXPECT_TRUE(tier->opening().layouts.empty());
  }
  const auto tier = open();
  const auto& layouts = tier->opening().layouts;
  ASSERT_EQ(layouts.size(), 2U);
  EXPECT_EQ(layouts[0].layout, 78U);
  EXPECT_EQ(layouts[0].entries, 3U);
  EXPECT_EQ(layouts[0].bytes, 50'000U + 1'003 + 1'004);
  EXPECT_EQ(layouts[1].layout, 77U);
  EXPECT_EQ(layouts[1].entries, 2U);
}

TEST_F(DiskOpen, ASmallerCapacityKeepsTheNewestAndGivesRoomBack) {
  // 15 pages each.
  for (uint64_t prompt = 0; prompt < 16; ++prompt) {
    Client(*open()).put(entry(prompt, 0, 60'000));
  }
  const auto tier = open(5 * 15);
  EXPECT_EQ(tier->opening().dropped, 11U);
  EXPECT_EQ(tier->stats().entries, 5U);
  Client client(*tier);
  for (uint64_t prompt = 0; prompt < 16; ++prompt) {
    EXPECT_EQ(client.whole_or_absent(entry(prompt, 0, 60'000)), prompt >= 11) << prompt;
  }
  struct stat found = {};
  ASSERT_EQ(stat((path + "/entries.slab").c_str(), &found), 0);
  EXPECT_LE(static_cast<uint64_t>(found.st_blocks) * 512, 5 * 15 * kPage + 64 * 1024);
  // Space that was given back stays free while others come and go.
  for (uint64_t prompt = 20; prompt < 40; ++prompt) {
    EXPECT_EQ(client.put(entry(prompt, 0, 60'000)), done);
  }
  ASSERT_EQ(stat((path + "/entries.slab").c_str(), &found), 0);
  EXPECT_LE(static_cast<uint64_t>(found.st_blocks) * 512, 5 * 15 * kPage + 64 * 1024);
}

TEST_F(DiskOpen, TheOrderOfUseIsThatOfThePutsAfterwards) {
  // Also when the stamps of use are lost: records say in which batch their entries were put.
  for (const bool has_uses : {true, false}) {
    SCOPED_TRACE(has_uses);
    path = directory / (has_uses ? "with" : "without");
    {
      const auto tier = open(14 * 3);
      Client client(*tier);
      client.put(entries(1, 4, 9000));  // Three pages each.
      client.put(entries(2, 4, 9000));
      client.put(entries(3, 4, 9000));
    }
    if (!has_uses) fs::remove(path + "/entries.uses");
    const auto tier = open(14 * 3);
    Client client(*tier);
    ASSERT_EQ(tier->stats().entries, 12U);
    // Two are free; then the deepest of the oldest goes first.
    client.put(entries(4, 4, 9000));
    const Outcomes oldest = client.contains(entries(1, 4, 9000));
    EXPECT_EQ(oldest, (Outcomes{done, done, absent, absent}));
    EXPECT_EQ(client.contains(entries(2, 4, 9000)), Outcomes(4, done));
  }
}

TEST_F(DiskOpen, WhatWasReadAndWhatMattersStaysLongerAfterARestartToo) {
  Entry dear = entry(4, 0, 9000);
  dear.priority = 80;
  {
    const auto tier = open(5 * 3 + 2);
    Client client(*tier);
    EXPECT_EQ(client.put(dear), done);
    for (uint64_t prompt = 0; prompt < 4; ++prompt) client.put(entry(prompt, 0, 9000));
    EXPECT_EQ(client.get(entry(0, 0, 9000)).outcome, done);
  }
  const auto tier = open(5 * 3 + 2);
  Client client(*tier);
  EXPECT_EQ(client.put(entry(10, 0, 9000)), done);
  EXPECT_EQ(client.put(entry(11, 0, 9000)), done);
  EXPECT_EQ(client.contains(entry(0, 0, 9000)), done);
  EXPECT_EQ(client.contains(entry(1, 0, 9000)), absent);
  EXPECT_EQ(client.contains(entry(2, 0, 9000)), absent);
  EXPECT_EQ(client.contains(entry(3, 0, 9000)), done);
  EXPECT_EQ(client.contains(dear), done);
}

// A directory of version 2 looks like ours, but its keys do not tell whose an entry is.
TEST_F(DiskOpen, NothingOfADirectoryOfVersion2IsKept) {
  const auto some = entries(1, 6, 9000);
  ASSERT_EQ(Client(*open()).put(some, /*durable=*/true), all(6, done));
  ASSERT_EQ(Client(*open()).contains(some), all(6, done));
  std::string format = read("format");
  format[8] = 2;
  write("format", format);
  const auto tier = open();
  EXPECT_EQ(tier->stats().entries, 0U);
  EXPECT_EQ(Client(*tier).contains(some), all(6, absent));
  for (const char* name : {"entries.slab", "entries.table"}) {
    const std::string bytes = read(name);
    EXPECT_EQ(bytes.find_first_not_of('\0'), std::string::npos) << name;
  }
}

TEST_F(DiskOpen, ADirectoryOfVersion1IsEmptiedAndBegunAnew) {
  fs::create_directory(path);
  std::string format = "STEMMADK";
  format += std::string("\1\0\0\0", 4) + std::string(52, 'x');
  write("format", format);
  write("entries.slab", std::string(300'000, 'x'));
  logged.clear();
  set_log_handler([](LogLevel, std::string_view line, void*) { logged += line; }, nullptr);
  {
    const auto tier = open();
    set_log_handler(nullptr, nullptr);
    EXPECT_NE(logged.find("begun anew"), std::string::npos) << logged;
    EXPECT_EQ(tier->stats().entries, 0U);
    EXPECT_EQ(Client(*tier).put(entry(1, 0, 9000)), done);
  }
  EXPECT_EQ(Client(*open()).get(entry(1, 0, 9000)).outcome, done);
}

TEST_F(DiskOpen, ARemovedDirectoryIsNoticedAndMadeAgain) {
  const auto tier = open();
  Client client(*tier);
  const auto some = entries(1, 6, 9000);
  client.put(some);
  fs::remove_all(path);
  // A put that could not survive is not acknowledged.
  EXPECT_EQ(client.put(std::span(some).first(1), /*durable=*/true), Outcomes{failed});
  const auto others = entries(2, 4, 20'000);
  const uint64_t give_up_ns = Clock::monotonic().now_ns() + kPatienceNs;
  while (client.put(others, /*durable=*/true) != Outcomes(4, done) &&
         Clock::monotonic().now_ns() < give_up_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(fs::exists(path + "/entries.table"));
  for (const Entry& one : some) EXPECT_EQ(client.contains(one), absent);
  for (const Entry& one : others) EXPECT_EQ(client.get(one).outcome, done);
  EXPECT_TRUE(tier->stats().reachable);
  EXPECT_TRUE(tier->flush(Clock::monotonic().now_ns() + kPatienceNs));
  tier->check_invariants();
}

TEST_F(DiskOpen, WordsAreOnDiskOnlyWhenAsked) {
  const Entry without = entry(1, 3, 9000);
  const Entry with = with_words(entry(2, 3, 9000));
  const std::string needle(reinterpret_cast<const char*>(with.words.data()), with.words.size() * 4);
  {
    Client(*open()).put(without);
  }
  EXPECT_EQ(read("entries.slab").find(needle), std::string::npos);
  {
    Client(*open()).put(with);
  }
  EXPECT_NE(read("entries.slab").find(needle), std::string::npos);
}

TEST_F(DiskOpen, ProgressIsShownAndEndsAtTheEnd) {
  {
    Client(*open()).put(entries(1, 8, 9000));
  }
  std::vector<std::pair<uint64_t, uint64_t>> steps;
  auto asked = options();
  asked.progress = [&](uint64_t so_far, uint64_t total) { steps.emplace_back(so_far, total); };
  const auto tier = DiskTier::open(asked).value();
  ASSERT_GE(steps.size(), 2U);
  EXPECT_EQ(steps.back().first, steps.back().second);
  EXPECT_EQ(steps.back().second, tier->opening().records_read);
  EXPECT_EQ(tier->opening().entries, 8U);
}

TEST_F(DiskOpen, TheSameDirectoryTakesLargerEntriesLater) {
  {
    EXPECT_EQ(Client(*open()).put(entry(1, 0, 60'001)), refused);
  }
  auto larger = options();
  larger.max_entry_bytes = 300 * kPage;
  const auto tier = DiskTier::open(larger).value();
  EXPECT_EQ(Client(*tier).put(entry(1, 0, 300 * kPage)), done);
}

}  // namespace stemma::test
