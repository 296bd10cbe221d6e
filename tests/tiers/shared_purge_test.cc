// A purge of a shared directory leaves nothing behind, even if others write there, were killed
// there, or used an earlier version.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "support/now.h"
#include "support/temporary_directory.h"
#include "tiers/shared_rig.h"

namespace stemma::test::shared_purge {
namespace {

using enum TierOutcome;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kMine = 0x0102'0304'0506'0708U, kOther = kMine ^ 1U;

uint64_t soon() { return now_ns() + kPatienceNs; }

std::vector<Entry> owned(uint64_t owner, uint64_t prompt, uint32_t count, uint64_t bytes) {
  std::vector<Entry> made = entries(prompt, count, bytes);
  for (Entry& one : made) std::memcpy(one.key.chain.bytes.data() + 24, &owner, sizeof owner);
  return made;
}

class SharedPurge : public ::testing::Test {
 protected:
  // Each acts like another process: they know of each other only through the directory.
  std::unique_ptr<SharedTier> open(const std::shared_ptr<FaultyFiles>& through) {
    return open_shared({.path = store,
                        .capacity_bytes = kRoomy,
                        .threads = 4,
                        .stall_ns = 60'000 * kMs,
                        .files = through});
  }
  void write(const std::string& path, std::string_view text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  std::set<std::string> files_left() {
    std::set<std::string> left;
    for (const auto& found : std::filesystem::recursive_directory_iterator(store)) {
      if (found.is_regular_file()) left.insert(found.path().filename().string());
    }
    return left;
  }

  TemporaryDirectory directory;
  const std::string store = directory / "store";
  std::shared_ptr<FaultyFiles> files = std::make_shared<FaultyFiles>();
};

// A purge finds entries in two ways: by the names of files, and by their contents.
const std::array kWays{Purge{.owner = kMine}, Purge{.owner = kMine, .keep = 1}};

}  // namespace

TEST_F(SharedPurge, APutThatWasCutOffByItsDeadlineCannotLandAfterwards) {
  for (const char* stuck_in : {"create", "write", "close", "link"}) {
    for (const Purge& what : kWays) {
      SCOPED_TRACE(std::string(stuck_in) + (what.keep != 0 ? ", by headers" : ", by names"));
      std::filesystem::remove_all(store);
      files = std::make_shared<FaultyFiles>();
      const auto gate = std::make_shared<Gate>();
      std::atomic<bool> armed{true};
      std::atomic<uint32_t> removed{0};
      const auto tier = open(files);
      files->on_call = [&, gate](std::string_view call, const std::string&) {
        if (call == stuck_in && armed.exchange(false)) gate->pass();
        return 0;
      };
      // A worker's last call for a put is the removal of its temporary.
      files->after_call = [&](std::string_view call, const std::string& path, int) {
        if (call == "unlink" && path.find(".stemma-tmp-") != std::string::npos) ++removed;
      };
      const auto mine = owned(kMine, 1, 1, 5000);
      {
        gate->set(true);
        Work put(TierOp::put, mine);
        put.batch->deadline_ns = now_ns() + 3'000 * kMs;  // A busy machine begins late, too.
        put.submit_to(*tier);
        ASSERT_TRUE(eventually_holds([&] { return gate->held() == 1; }, 2'900));
        ASSERT_EQ(put.finish().outcomes(), all(1, late));
      }
      const Purged purged = tier->purge(what, soon());
      EXPECT_TRUE(purged.complete) << purged.error;
      const uint32_t before = removed;
      gate->set(false);
      ASSERT_TRUE(eventually_holds([&] { return removed > before; }));
      EXPECT_EQ(Client(*tier).contains(mine), all(1, absent));
      EXPECT_EQ(files_left(), std::set<std::string>{"stemma-shared-tier"});
    }
  }
}

TEST_F(SharedPurge, APutOfAnotherProcessThatHasBegunCannotLandAfterwards) {
  for (const Purge& what : kWays) {
    std::filesystem::remove_all(store);
    const auto slow = std::make_shared<FaultyFiles>();
    const auto purging = open(files), putting = open(slow);
    const auto gate = std::make_shared<Gate>();
    gate->set(true);
    slow->on_call = [gate](std::string_view call, const std::string&) {
      if (call == "link") gate->pass();
      return 0;
    };
    const auto mine = owned(kMine, 1, 1, 5000), other = owned(kOther, 2, 1, 5000);
    Work put(TierOp::put, mine), others(TierOp::put, other);
    put.submit_to(*putting);
    others.submit_to(*putting);
    ASSERT_TRUE(eventually_holds([&] { return gate->held() == 2; }));
    const Purged purged = purging->purge(what, soon());
    EXPECT_TRUE(purged.complete) << purged.error;
    gate->set(false);
    EXPECT_EQ(put.finish().outcomes(), all(1, failed));
    EXPECT_EQ(others.finish().outcomes(), all(1, done)) << "what is put for others stays";
    EXPECT_EQ(Client(*purging).contains(mine), all(1, absent));
    EXPECT_EQ(Client(*purging).contains(other), all(1, done));
    EXPECT_TRUE(putting->stats().reachable);
  }
}

// What is linked while the purge lists its folder may be missing in that list.
TEST_F(SharedPurge, AnEntryThatAppearsWhileItsFolderIsListedGoes) {
  for (const Purge& what : kWays) {
    std::filesystem::remove_all(store);
    files = std::make_shared<FaultyFiles>();
    const auto tier = open(files);
    const auto mine = owned(kMine, 1, 2, 5000);
    ASSERT_EQ(Client(*tier).put(mine), all(2, done));
    const std::string path = path_of(store, mine[1]);
    const std::string aside = directory / "aside";
    std::filesystem::rename(path, aside);
    // As if it had been linked a moment after the names were read.
    std::atomic<bool> armed{true};
    files->after_call = [&](std::string_view call, const std::string& listed, int) {
      const bool its_folder = std::filesystem::path(path).parent_path() == listed;
      if (call == "list" && its_folder && armed.exchange(false)) {
        std::filesystem::rename(aside, path);
      }
    };
    const Purged purged = tier->purge(what, soon());
    EXPECT_FALSE(armed);
    EXPECT_TRUE(purged.complete) << purged.error;
    EXPECT_EQ(purged.entries, 2U);
    EXPECT_EQ(Client(*tier).contains(mine), all(2, absent));
  }
}

TEST_F(SharedPurge, TemporariesOfTheKilledGoWithTheirScope) {
  const auto tier = open(files);
  const auto mine = owned(kMine, 1, 3, 5000), other = owned(kOther, 2, 3, 5000);
  const std::string name = "/.stemma-tmp-host-1-0011223344556677-1";
  for (const Purge& what : kWays) {
    for (const auto* some : {&mine, &other}) {
      ASSERT_EQ(Client(*tier).put(*some), all(3, done));
      // One as long as an entry, and one that was hardly begun.
      const auto folder = std::filesystem::path(path_of(store, (*some)[0])).parent_path().string();
      std::filesystem::copy_file(path_of(store, (*some)[0]), folder + name,
                                 std::filesystem::copy_options::overwrite_existing);
      write(folder + name + "2", "secret");
    }
    EXPECT_TRUE(tier->purge(what, soon()).complete);
    std::set<std::string> left{"stemma-shared-tier", name.substr(1), name.substr(1) + "2"};
    for (const Entry& one : other) left.insert(tier::shared::file_name(one.key));
    EXPECT_EQ(files_left(), left);
  }
  EXPECT_TRUE(tier->purge({}, soon()).complete);
  EXPECT_EQ(files_left(), std::set<std::string>{"stemma-shared-tier"});
}

// Another model's puts continue while one model is reset, as far as their files show the model.
TEST_F(SharedPurge, APurgeOfALayoutLeavesWhatIsBeingWrittenForAnother) {
  const auto slow = std::make_shared<FaultyFiles>();
  const auto purging = open(files), putting = open(slow);
  const auto gate = std::make_shared<Gate>();
  gate->set(true);
  slow->on_call = [gate](std::string_view call, const std::string&) {
    if (call == "link") gate->pass();
    return 0;
  };
  auto mine = owned(kMine, 1, 1, 5000), other = owned(kMine, 2, 1, 5000);
  other[0].info.layout ^= 1U;
  Work put(TierOp::put, mine), others(TierOp::put, other);
  put.submit_to(*putting);
  others.submit_to(*putting);
  ASSERT_TRUE(eventually_holds([&] { return gate->held() == 2; }));
  EXPECT_TRUE(purging->purge({.layout = mine[0].info.layout}, soon()).complete);
  gate->set(false);
  EXPECT_EQ(put.finish().outcomes(), all(1, failed));
  EXPECT_EQ(others.finish().outcomes(), all(1, done));
}

TEST_F(SharedPurge, WhatAnEarlierVersionWroteIsNeitherReadNorKept) {
  const Entry old = owned(kMine, 1, 1, 5000)[0];
  const std::string name = tier::shared::file_name(old.key);
  const std::string folder = store + "/" + name.substr(0, 2) + "/";
  const auto write_old = [&] {
    write(folder + name, "an entry of version 1");
    write(folder + ".stemma-tmp-host-1-0011223344556677-1", "half an entry");
  };
  write_old();
  write(folder + "letter", "not ours");
  write(store + "/stemma-shared-tier", "stemma shared tier, version 1\n");
  const std::set<std::string> ours{"stemma-shared-tier", "letter"};
  const auto tier = open(files);
  EXPECT_EQ(files_left(), ours);
  std::string marker;
  std::getline(std::ifstream(store + "/stemma-shared-tier"), marker);
  EXPECT_EQ(marker, "stemma shared tier, version 2");
  EXPECT_EQ(tier->stats().entries, 0U);
  // A server of the earlier version may still run. Nobody can tell whose its entries are.
  write_old();
  const Purged purged = tier->purge({.owner = kOther}, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  EXPECT_EQ(files_left(), ours);
  write_old();
  ASSERT_TRUE(tier->scan());
  EXPECT_EQ(files_left(), ours);
}

TEST_F(SharedPurge, OneScopeIsPurgedWithoutLookingAtTheOthers) {
  const auto tier = open(files);
  const auto mine = owned(kMine, 1, 40, 500), other = owned(kOther, 2, 40, 500);
  ASSERT_EQ(Client(*tier).put(mine), all(40, done));
  ASSERT_EQ(Client(*tier).put(other), all(40, done));
  std::mutex mutex;
  std::set<std::string> touched;
  files->on_call = [&](std::string_view, const std::string& path) {
    const std::lock_guard lock(mutex);
    if (path.find(tier::shared::scope_name(kOther)) != std::string::npos) touched.insert(path);
    return 0;
  };
  EXPECT_EQ(tier->purge({.owner = kMine}, soon()).entries, 40U);
  {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(touched, std::set<std::string>{});
  }
  files->on_call = {};
  for (const Entry& one : other) EXPECT_EQ(Client(*tier).get(one).bytes, one.bytes);
  // Not even the folders of the scope are left.
  for (const auto& found : std::filesystem::recursive_directory_iterator(store)) {
    EXPECT_NE(found.path().filename(), tier::shared::scope_name(kMine));
  }
}

// One process puts a scope again and again while another purges it. When the putting has ended, one
// more purge leaves nothing, and puts of other scopes never fail.
TEST_F(SharedPurge, NothingIsLeftAfterPurgesBesidePutsOfAnotherProcess) {
  const auto purging = open(files), putting = open(std::make_shared<FaultyFiles>());
  const auto mine = owned(kMine, 1, 20, 3000), other = owned(kOther, 2, 20, 3000);
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      Client client(*putting);
      while (!ends) {
        client.put(mine);
        EXPECT_EQ(client.put(other), all(20, done));
      }
    });
  }
  uint64_t entries = 0;
  for (int round = 0; round < 15; ++round) {
    const Purged purged = purging->purge({.owner = kMine}, soon());
    EXPECT_TRUE(purged.complete) << purged.error;
    entries += purged.entries;
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(entries, 0U);
  EXPECT_TRUE(purging->purge({.owner = kMine}, soon()).complete);
  std::set<std::string> left{"stemma-shared-tier"};
  for (const Entry& one : other) left.insert(tier::shared::file_name(one.key));
  EXPECT_EQ(files_left(), left);
  EXPECT_TRUE(putting->stats().reachable);
}

}  // namespace stemma::test::shared_purge
