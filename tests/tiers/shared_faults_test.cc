// What a file system, and other programs that write there, can do to a shared tier.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>

#include "stemma/log.h"
#include "support/now.h"
#include "support/temporary_directory.h"
#include "tier/entry.h"
#include "tiers/shared_rig.h"

namespace stemma::test {
namespace {

using enum TierOutcome;

constexpr uint64_t kMs = 1'000'000;

class SharedFaults : public ::testing::Test {
 protected:
  SharedOptions options(uint64_t capacity_bytes = 16U << 20U) {
    return {
        .path = store,
        .capacity_bytes = capacity_bytes,
        .threads = 4,
        .errors_to_break = 3,
        .retry_ns = 10 * kMs,
        .stall_ns = 20'000 * kMs,  // In tests without stalls a busy disk must not count as stalled.
        .stop_ns = 300 * kMs,
        .files = files};
  }
  void open(uint64_t capacity_bytes = 16U << 20U) {
    client.reset();
    tier.reset();
    tier = open_shared(options(capacity_bytes));
    client = std::make_unique<Client>(*tier);
  }
  std::string error_of_open() {
    const auto opened = SharedTier::open(options());
    return opened ? "" : opened.error().to_string();
  }
  std::vector<uint8_t> contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& path, const std::vector<uint8_t>& bytes) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  TemporaryDirectory directory;
  const std::string store = directory / "store";
  std::shared_ptr<FaultyFiles> files = std::make_shared<FaultyFiles>();
  std::unique_ptr<SharedTier> tier;
  std::unique_ptr<Client> client;
};

}  // namespace

TEST_F(SharedFaults, AnyByteThatIsNotWhatItWasIsAMiss) {
  open();
  const Entry one = with_words(entry(1, 2, 400));
  ASSERT_EQ(client->put(one), done);
  const std::string path = path_of(store, one);
  const std::vector<uint8_t> good = contents(path);
  ASSERT_EQ(good.size(), 128U + 16 * 4 + 400);
  uint64_t corrupt_so_far = 0;
  const auto is_missed = [&](const std::vector<uint8_t>& bytes, const std::string& what) {
    write(path, bytes);
    EXPECT_EQ(client->get(one).outcome, corrupt) << what;
    EXPECT_EQ(tier->stats().corrupt, ++corrupt_so_far);
    EXPECT_FALSE(std::filesystem::exists(path)) << what;
    EXPECT_EQ(client->get(one).outcome, absent) << what;
  };
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<uint8_t> flipped = good;
    flipped[i] ^= static_cast<uint8_t>(1U << (i % 8));
    is_missed(flipped, "byte " + std::to_string(i));
  }
  for (const size_t left : {0U, 1U, 127U, 128U, 129U, 192U, 591U}) {
    is_missed(std::vector<uint8_t>(good.begin(), good.begin() + static_cast<ptrdiff_t>(left)),
              "cut to " + std::to_string(left));
  }
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  is_missed(longer, "one more");
  // Another entry's file under its name.
  const Entry other = with_words(entry(2, 2, 400));
  ASSERT_EQ(client->put(other), done);
  is_missed(contents(path_of(store, other)), "another's");
  ASSERT_EQ(client->put(one), done);
  EXPECT_EQ(client->get(one).bytes, one.bytes);
  EXPECT_TRUE(tier->stats().reachable);
}

TEST_F(SharedFaults, APutReplacesWhatIsDamaged) {
  open();
  const Entry one = entry(1, 2, 400);
  ASSERT_EQ(client->put(one), done);
  std::vector<uint8_t> bytes = contents(path_of(store, one));
  bytes[20] ^= 1U;
  write(path_of(store, one), bytes);
  EXPECT_EQ(client->put(one), done);
  EXPECT_EQ(tier->stats().already_there, 0U);
  EXPECT_EQ(client->get(one).bytes, one.bytes);
}

TEST_F(SharedFaults, AnEntryOfAnotherLayoutIsAMissAndStays) {
  open();
  const Entry one = entry(1, 2, 4000);
  ASSERT_EQ(client->put(one), done);
  Entry other = one;
  other.info.layout ^= 1U;
  EXPECT_EQ(client->get(other).outcome, absent);
  other = one;
  other.info.end += 16;
  EXPECT_EQ(client->get(other).outcome, absent);
  EXPECT_EQ(client->get(one).bytes, one.bytes);
  EXPECT_EQ(tier->stats().corrupt, 0U);
  EXPECT_EQ(tier->stats().entries, 1U);
}

TEST_F(SharedFaults, WhatIsNotOursIsLeftAlone) {
  open(256U << 10U);
  const Entry newer = entry(1, 0, 3000);
  ASSERT_EQ(client->put(newer), done);
  // Of a later format, and otherwise in order.
  std::vector<uint8_t> later = contents(path_of(store, newer));
  later[8] = 2;
  const uint64_t header_sum = tier::sum(std::span<const uint8_t>(later).first(120));
  std::memcpy(later.data() + 120, &header_sum, 8);
  write(path_of(store, newer), later);
  const std::string scope = store + "/a/" + tier::shared::scope_name(7);
  std::set<std::string> foreign{store + "/notes.txt", scope + "/other", store + "/zz/thing",
                                store + "/ab/letter",
                                scope + "/" + std::string(64, 'a') + ".block.0"};
  for (const std::string& path : foreign) write(path, {1, 2, 3});
  const Entry is_directory = entry(2, 0, 3000);
  std::filesystem::create_directories(path_of(store, is_directory));

  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(client->get(newer).outcome, absent);
    EXPECT_EQ(client->remove(newer), absent);
    EXPECT_EQ(client->put(newer), refused);
    EXPECT_EQ(client->get(is_directory).outcome, absent);
    EXPECT_EQ(client->remove(is_directory), absent);
    EXPECT_EQ(client->put(is_directory), refused);
    // Everything else goes, to make room.
    for (uint64_t prompt = 10; prompt < 60; ++prompt) client->put(entry(prompt, 0, 30'000));
    ASSERT_TRUE(tier->scan());
    EXPECT_EQ(contents(path_of(store, newer)), later);
    EXPECT_TRUE(std::filesystem::is_directory(path_of(store, is_directory)));
    for (const std::string& path : foreign) EXPECT_EQ(contents(path).size(), 3U) << path;
    EXPECT_GT(tier->stats().evictions, 20U);
    EXPECT_LE(tier->stats().used_bytes, tier->traits().capacity_bytes);
    open(256U << 10U);
    EXPECT_EQ(tier->opening().foreign, 3U);
  }
}

TEST_F(SharedFaults, APurgeThatIsRefusedSaysSoAndCanBeRepeated) {
  const auto mine = entries(1, 6, 400);
  for (const char* refused : {"unlink", "list", "sync_directory", "stat"}) {
    open();
    ASSERT_EQ(client->put(mine), all(6, done)) << refused;
    files->on_call = [&](std::string_view call, const std::string&) {
      return call == refused ? -EIO : 0;
    };
    const Purged purged = tier->purge({}, now_ns() + kPatienceNs);
    EXPECT_FALSE(purged.complete) << refused;
    EXPECT_NE(purged.error, "") << refused;
    files->on_call = {};
    const Purged again = tier->purge({}, now_ns() + kPatienceNs);
    EXPECT_TRUE(again.complete) << refused << ": " << again.error;
    EXPECT_EQ(client->contains(mine), all(6, absent)) << refused;
  }
}

TEST_F(SharedFaults, ADirectoryThatIsNotOursIsRefused) {
  write(store + "/letter.txt", {1});
  EXPECT_NE(error_of_open().find("other files"), std::string::npos) << error_of_open();
  std::filesystem::remove(store + "/letter.txt");
  write(store + "/stemma-shared-tier", {'h', 'e', 'y'});
  EXPECT_NE(error_of_open().find("not one of ours"), std::string::npos) << error_of_open();
  const std::string later = "stemma shared tier, version 3\n";
  write(store + "/stemma-shared-tier", {later.begin(), later.end()});
  EXPECT_NE(error_of_open().find("newer"), std::string::npos) << error_of_open();
  EXPECT_EQ(contents(store + "/stemma-shared-tier").size(), later.size());
  std::filesystem::remove_all(store);
  write(store, {1});
  EXPECT_NE(error_of_open().find("not a directory"), std::string::npos) << error_of_open();
  EXPECT_EQ(contents(store).size(), 1U);
}

TEST_F(SharedFaults, NobodyElseMayLookIn) {
  open();
  ASSERT_EQ(client->put(entries(1, 4, 3000)), Outcomes(4, done));
  size_t seen = 0;
  for (const auto& found : std::filesystem::recursive_directory_iterator(store)) {
    struct stat stat = {};
    ASSERT_EQ(::stat(found.path().c_str(), &stat), 0);
    EXPECT_EQ(stat.st_mode & 0777U, found.is_directory() ? 0700U : 0600U) << found.path();
    ++seen;
  }
  EXPECT_GE(seen, 1 + 4 + 1U);
  struct stat stat = {};
  ASSERT_EQ(::stat(store.c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 0777U, 0700U);
}

TEST_F(SharedFaults, LeftoversOfTheDeadAreRemovedAndOfTheLivingAreNot) {
  open();
  ASSERT_EQ(client->put(entry(1, 0, 3000)), done);
  const std::string old_one = store + "/3/0011223344556677/.stemma-tmp-host-1-0011223344556677-1";
  const std::string new_one = store + "/3/0011223344556677/.stemma-tmp-host-2-0011223344556677-1";
  write(old_one, std::vector<uint8_t>(9000));
  write(new_one, std::vector<uint8_t>(9000));
  std::filesystem::last_write_time(
      old_one, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  open();
  EXPECT_EQ(tier->opening().leftovers, 1U);
  EXPECT_FALSE(std::filesystem::exists(old_one));
  EXPECT_TRUE(std::filesystem::exists(new_one));
  EXPECT_EQ(tier->stats().entries, 1U);
  EXPECT_EQ(tier->stats().used_bytes, 4096U + 3 * 4096U);
}

// Every call once, with each error that file systems return.
TEST_F(SharedFaults, AnyCallMayFail) {
  const auto prompt = entries(1, 3, 5000);
  for (const char* failing : {"open", "create", "close", "read", "write", "datasync", "set_time",
                              "touch", "fstat", "stat", "link", "rename", "unlink",
                              "make_directory", "sync_directory", "sync_all", "list"}) {
    for (const int problem : {EIO, ENOSPC, EACCES, ESTALE}) {
      SCOPED_TRACE(std::string(failing) + " " + std::to_string(problem));
      std::filesystem::remove_all(store);
      files->on_call = {};
      open();
      const Entry there = entry(7, 0, 5000);
      ASSERT_EQ(client->put(there), done);
      std::atomic<uint32_t> hits{0};
      tier.reset();
      files->on_call = [&](std::string_view call, const std::string&) {
        return call == failing && hits.fetch_add(1) % 2 == 1 ? -problem : 0;
      };
      auto opened = SharedTier::open(options());
      if (opened) {
        tier = *std::move(opened);
        Client some(*tier);
        const Outcomes put = some.put(prompt, /*durable=*/true);
        for (size_t i = 0; i < prompt.size(); ++i) {
          const Got got = some.get(prompt[i]);
          EXPECT_NE(got.outcome, corrupt);
          if (got.outcome == done) {
            EXPECT_EQ(got.bytes, prompt[i].bytes);
          }
          EXPECT_FALSE(put[i] == done && got.outcome == absent && std::string(failing) != "open" &&
                       problem != ESTALE);
        }
        some.remove(prompt);
        some.put(prompt);
        for (uint32_t i = 0; i < 2; ++i) tier->flush(now_ns() + kPatienceNs);
        some.remove(prompt);
        tier.reset();
      }
      files->on_call = {};
      open();
      EXPECT_TRUE(client->whole_or_absent(there));
      for (const Entry& one : prompt) client->whole_or_absent(one);
      EXPECT_EQ(client->put(prompt), Outcomes(3, done));
      // A temporary that could not be unlinked stays until it is old.
      if (std::string(failing) != "unlink") {
        EXPECT_EQ(room_in(store), 4 * 8192U) << "something was left behind";
      }
    }
  }
}

TEST_F(SharedFaults, AFullDiskRefusesAndBreaksNothing) {
  open();
  ASSERT_EQ(client->put(entry(1, 0, 5000)), done);
  std::atomic<bool> full{true};
  for (const char* where : {"write", "close", "create", "link"}) {
    full = true;
    files->on_call = [&](std::string_view call, const std::string&) {
      return full && call == where ? -ENOSPC : 0;
    };
    open();
    EXPECT_EQ(client->put(entries(2, 8, 5000)), Outcomes(8, refused)) << where;
    EXPECT_TRUE(tier->stats().reachable);
    EXPECT_EQ(client->get(entry(1, 0, 5000)).outcome, done);
    EXPECT_EQ(tier->stats().used_bytes, 8192U);
    full = false;
    EXPECT_EQ(room_in(store), 8192U);
    EXPECT_EQ(client->put(entries(2, 8, 5000)), Outcomes(8, done)) << where;
    EXPECT_EQ(client->remove(entries(2, 8, 5000)), Outcomes(8, done));
  }
}

TEST_F(SharedFaults, ABrokenDirectoryAnswersFastAndIsToldOnce) {
  static std::atomic<uint32_t> told;
  told = 0;
  std::atomic<bool> broken{false};
  files->on_call = [&](std::string_view call, const std::string&) {
    return broken && call != "close" ? -EIO : 0;
  };
  open();
  ASSERT_EQ(client->put(entry(1, 0, 5000)), done);
  set_log_handler(
      [](LogLevel level, std::string_view, void*) { told += level == LogLevel::warning; }, nullptr);
  broken = true;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(client->get(entry(1, 0, 5000)).outcome, failed);
  EXPECT_FALSE(tier->stats().reachable);
  const uint64_t begin = now_ns();
  EXPECT_EQ(client->put(entries(2, 500, 100)), Outcomes(500, failed));
  EXPECT_LT(now_ns() - begin, 20'000 * kMs);
  broken = false;
  EXPECT_TRUE(eventually_holds([&] { return tier->stats().reachable; }));
  set_log_handler(nullptr, nullptr);
  EXPECT_EQ(told.load(), 1U);
  EXPECT_EQ(client->get(entry(1, 0, 5000)).outcome, done);
}

// A temporary that vanishes while it is written may have been purged, so it is not written again;
// only this put fails.
TEST_F(SharedFaults, APutWhoseTemporaryVanishesFailsAlone) {
  for (const char* way : {"link", "rename"}) {
    SCOPED_TRACE(way);
    const bool links = std::string(way) == "link";
    std::atomic<uint32_t> to_remove{0};
    files->on_call = [&](std::string_view call, const std::string& path) {
      if (!links && call == "link") return -EPERM;
      if (call != way || to_remove.load() == 0) return 0;
      --to_remove;
      for (const auto& found :
           std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
        const std::string name = found.path().filename().string();
        if (tier::shared::is_temporary(name)) std::filesystem::remove(found.path());
      }
      return 0;
    };
    open();
    const Entry one = entry(links ? 1 : 2, 0, 5000), two = entry(links ? 3 : 4, 0, 5000);
    EXPECT_EQ(client->put(one), done);
    to_remove = 1000;
    EXPECT_EQ(client->put(two), failed);
    EXPECT_EQ(to_remove.load(), 999U) << "it is not tried again";
    EXPECT_EQ(client->get(two).outcome, absent);
    EXPECT_TRUE(tier->stats().reachable);
    EXPECT_EQ(client->get(one).bytes, one.bytes);
    to_remove = 0;
    EXPECT_EQ(client->put(two), done);
    EXPECT_EQ(tier->stats().used_bytes, room_in(store)) << "no room is lost with a temporary";
  }
}

// The folder of an entry is removed between the temporary's creation and its link, or before its
// creation.
TEST_F(SharedFaults, AFolderThatVanishesIsMadeAgainByTheNextPut) {
  std::atomic<const char*> when{nullptr};
  files->on_call = [&](std::string_view call, const std::string& path) {
    const char* const now = when.load();
    if (now != nullptr && call == now) {
      when = nullptr;
      std::filesystem::remove_all(std::filesystem::path(path).parent_path().parent_path());
    }
    return 0;
  };
  open();
  when = "link";
  EXPECT_EQ(client->put(entry(1, 0, 5000)), failed);
  EXPECT_TRUE(tier->stats().reachable);
  for (const char* call : {"create", "create"}) {
    when = call;
    EXPECT_EQ(client->put(entry(1, 0, 5000)), done) << call;
    EXPECT_EQ(client->get(entry(1, 0, 5000)).bytes, entry(1, 0, 5000).bytes);
    EXPECT_EQ(client->remove(entry(1, 0, 5000)), done);
  }
}

// Over NFS, a file that another machine has removed is stale for a process still writing it.
TEST_F(SharedFaults, AStaleTemporaryBreaksNothingElse) {
  for (const char* where : {"write", "close", "datasync"}) {
    SCOPED_TRACE(where);
    std::atomic<uint32_t> stale{0};
    files->on_call = [&](std::string_view call, const std::string&) {
      if (call != where || stale.load() == 0) return 0;
      --stale;
      return -ESTALE;
    };
    open();
    const auto some = entries(1, 2, 5000);
    stale = 1000;
    EXPECT_EQ(client->put(std::span(some).last(1), /*durable=*/true), Outcomes{failed});
    EXPECT_TRUE(tier->stats().reachable);
    stale = 0;
    EXPECT_EQ(client->put(some, /*durable=*/true), Outcomes(2, done));
    EXPECT_EQ(client->remove(some), Outcomes(2, done));
  }
}

TEST_F(SharedFaults, ADirectoryThatIsRemovedIsMadeAgain) {
  open();
  ASSERT_EQ(client->put(entries(1, 4, 5000)), Outcomes(4, done));
  std::filesystem::remove_all(store);
  EXPECT_EQ(client->get(entry(1, 0, 5000)).outcome, absent);
  client->put(entry(2, 0, 5000));  // Finds out.
  ASSERT_TRUE(eventually_holds([&] { return client->put(entry(2, 0, 5000)) == done; }));
  EXPECT_TRUE(tier->stats().reachable);
  EXPECT_EQ(tier->stats().entries, 1U);
  EXPECT_EQ(client->get(entry(2, 0, 5000)).bytes, entry(2, 0, 5000).bytes);
  EXPECT_TRUE(std::filesystem::exists(store + "/stemma-shared-tier"));
}

// After an unmount the same path may be a directory on another disk: nothing is written there.
TEST_F(SharedFaults, NothingIsWrittenWhereTheDirectoryWasMounted) {
  std::atomic<bool> other_disk{false};
  files->on_stat = [&](const std::string&, FileStat& found) {
    if (other_disk) ++found.device;
  };
  for (const bool empty : {false, true}) {
    open();
    ASSERT_EQ(client->put(entry(1, 0, 5000)), done);
    std::filesystem::rename(store, directory / "elsewhere");
    std::filesystem::create_directory(store);
    if (!empty) write(store + "/somebody-elses", {1});
    other_disk = empty;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(client->put(entry(2, 0, 5000)), failed);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    EXPECT_FALSE(tier->stats().reachable);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(store), {}), empty ? 0 : 1);
    std::filesystem::remove_all(store);
    if (empty) {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      EXPECT_FALSE(std::filesystem::exists(store)) << "made again only on its own disk";
    } else {
      ASSERT_TRUE(eventually_holds([&] { return tier->stats().reachable; }));
      EXPECT_EQ(client->get(entry(1, 0, 5000)).outcome, absent);
      tier.reset();
      std::filesystem::remove_all(directory / "elsewhere");
      continue;
    }
    std::filesystem::rename(directory / "elsewhere", store);
    ASSERT_TRUE(eventually_holds([&] { return tier->stats().reachable; }));
    EXPECT_EQ(client->get(entry(1, 0, 5000)).bytes, entry(1, 0, 5000).bytes);
  }
}

TEST_F(SharedFaults, AStalledFileSystemHoldsNobodyPastItsDeadline) {
  auto gate = std::make_shared<Gate>();
  files->on_call = [gate](std::string_view call, const std::string&) {
    if (call == "read" || call == "write") gate->pass();
    return 0;
  };
  auto patient = options();
  patient.stall_ns = 8'000 * kMs;
  tier = open_shared(patient);
  client = std::make_unique<Client>(*tier);
  const auto there = entries(1, 3, 50'000);
  ASSERT_EQ(client->put(there), Outcomes(3, done));
  gate->set(true);
  const uint64_t begin = now_ns();
  {
    Work reads(TierOp::get, there), writes(TierOp::put, entries(2, 6, 50'000));
    reads.batch->deadline_ns = writes.batch->deadline_ns = begin + 4'000 * kMs;
    reads.submit_to(*tier);
    writes.submit_to(*tier);
    ASSERT_TRUE(eventually_holds([&] { return gate->held() == 4; }, 3'900));
    EXPECT_EQ(reads.finish().outcomes(), Outcomes(3, late));
    EXPECT_EQ(writes.finish().outcomes(), Outcomes(6, late));
    EXPECT_LT(now_ns() - begin, 30'000 * kMs);
    EXPECT_EQ(gate->held(), 4U) << "threads are still in there, and the memory goes now";
  }
  // Cancelling an item that no thread has begun does not wait either.
  Work waits(TierOp::put, entries(3, 3, 1000));
  waits.submit_to(*tier);
  waits.batch->cancel();
  EXPECT_EQ(waits.finish().outcomes(), Outcomes(3, cancelled));
  ASSERT_TRUE(eventually_holds([&] { return !tier->stats().reachable; })) << "a stall is noticed";
  gate->set(false);
  ASSERT_TRUE(eventually_holds([&] { return tier->stats().reachable; }));
  for (const Entry& one : there) EXPECT_TRUE(client->whole_or_absent(one));
  for (const Entry& one : entries(2, 6, 50'000)) client->whole_or_absent(one);
}

TEST_F(SharedFaults, TheEndOfATierDoesNotWaitForAStalledFileSystem) {
  auto gate = std::make_shared<Gate>();
  files->on_call = [gate](std::string_view call, const std::string&) {
    if (call == "read" || call == "write") gate->pass();
    return 0;
  };
  open();
  ASSERT_EQ(client->put(entry(1, 0, 50'000)), done);
  gate->set(true);
  Work reads(TierOp::get, entries(1, 1, 50'000)), writes(TierOp::put, entries(2, 20, 5000));
  reads.submit_to(*tier);
  writes.submit_to(*tier);
  ASSERT_TRUE(eventually_holds([&] { return gate->held() != 0; }));
  const uint64_t begin = now_ns();
  tier.reset();
  EXPECT_LT(now_ns() - begin, 30'000 * kMs);
  EXPECT_TRUE(reads.batch->finished());
  EXPECT_EQ(reads.outcomes(), Outcomes(1, cancelled));
  EXPECT_EQ(writes.outcomes(), Outcomes(20, cancelled));
  gate->set(false);
  // The threads that were left behind end by themselves, and then release the files.
  const std::weak_ptr<FaultyFiles> left = files;
  files.reset();
  EXPECT_TRUE(eventually_holds([&] { return left.expired(); }));
}

TEST_F(SharedFaults, UseIsWrittenDownForOthersAndForLater) {
  auto slow_touch = options(40U << 10U);
  slow_touch.touch_ns = 0;
  tier = open_shared(slow_touch);
  client = std::make_unique<Client>(*tier);
  const auto prompt = entries(1, 3, 8000);
  ASSERT_EQ(client->put(prompt), Outcomes(3, done));
  ASSERT_EQ(client->get(prompt[2]).outcome, done);
  tier->flush(now_ns() + kPatienceNs);
  open(40U << 10U);
  // Room for two more: the one that was read stays.
  ASSERT_EQ(client->put(entries(2, 2, 8000)), Outcomes(2, done));
  ASSERT_EQ(client->put(entry(3, 0, 8000)), done);
  EXPECT_EQ(client->get(prompt[1]).outcome, absent);
  EXPECT_EQ(client->get(prompt[2]).outcome, done);
}

TEST_F(SharedFaults, WhatAnotherUsedSinceIsNotEvicted) {
  auto unscanned = options(32U << 10U);
  unscanned.slack_bytes = 1U << 20U;
  tier = open_shared(unscanned);
  client = std::make_unique<Client>(*tier);
  const auto prompt = entries(1, 4, 8000);
  for (const Entry& one : prompt) ASSERT_EQ(client->put(one), done);
  // Another process reads the oldest; this one does not know that.
  std::filesystem::last_write_time(path_of(store, prompt[0]),
                                   std::filesystem::file_time_type::clock::now());
  ASSERT_EQ(client->put(entry(2, 0, 8000)), done);
  EXPECT_EQ(client->get(prompt[0]).outcome, done);
  EXPECT_EQ(client->get(prompt[1]).outcome, absent);
}

}  // namespace stemma::test
