#include "stemma/tier/key_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "support/temporary_directory.h"
#include "tier/seal/key_directory.h"
#include "tier/seal/scope_key.h"

namespace stemma::tier {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

constexpr uint64_t kOwner = 0x00C0'FFEE'00C0'FFEEU;
constexpr uint64_t kOther = 2;
constexpr uint64_t kSecond = 1'000'000'000;

class KeyRingTest : public ::testing::Test {
 protected:
  std::shared_ptr<KeyRing> open(const Clock* clock = nullptr) {
    auto keys = KeyRing::open({.path = path, .clock = clock}, why);
    EXPECT_TRUE(keys) << why;
    return keys ? *keys : nullptr;
  }
  std::string file_of(uint64_t owner) const { return path + "/" + seal::hex_of(owner) + ".key"; }
  static std::string contents(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path), {}));
  }
  // Expects that the damaged file is refused, named and left as it is, and that restoring the old
  // bytes makes it good again.
  void expect_refused(const std::string& damaged, Errc code, const std::string& says) {
    const std::string good = contents(file_of(kOwner));
    write(file_of(kOwner), damaged);
    const auto keys = open();
    for (const auto& result : {keys->find(kOwner), keys->make(kOwner)}) {
      ASSERT_FALSE(result) << says;
      EXPECT_EQ(result.error().code(), code);
    }
    EXPECT_NE(keys->problem().find(file_of(kOwner)), std::string::npos) << keys->problem();
    EXPECT_NE(keys->problem().find(says), std::string::npos) << keys->problem();
    EXPECT_EQ(contents(file_of(kOwner)), damaged);
    write(file_of(kOwner), good);
    ASSERT_TRUE(keys->find(kOwner));
    EXPECT_NE(*keys->find(kOwner), nullptr);
  }

  TemporaryDirectory directory;
  std::string path = directory / "keys";
  std::string why;
};

TEST_F(KeyRingTest, AKeyIsMadeOnceAndFoundByAll) {
  const auto keys = open();
  EXPECT_EQ(*keys->find(kOwner), nullptr);
  EXPECT_EQ(keys->held(kOwner), nullptr);
  const KeyRing::Key made = keys->make(kOwner).value();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(keys->make(kOwner).value(), made);
  EXPECT_EQ(keys->held(kOwner), made);
  const auto others = open();
  EXPECT_EQ(others->find(kOwner).value()->id(), made->id());
  EXPECT_EQ(others->make(kOwner).value()->sealing(), made->sealing());
  EXPECT_NE(keys->make(kOther).value()->sealing(), made->sealing());
  EXPECT_EQ(files(), 2U);
  struct stat file = {};
  ASSERT_EQ(stat(file_of(kOwner).c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0700U);
}

TEST_F(KeyRingTest, OfManyWhoMakeAKeyAllGetTheSame) {
  constexpr uint64_t kOwners = 20;
  constexpr size_t kThreads = 6;
  std::vector<std::vector<seal::KeyId>> ids(kThreads);
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<KeyRing>> rings;
  for (size_t i = 0; i < kThreads; ++i) rings.push_back(open());
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t owner = 0; owner < kOwners; ++owner)
        ids[i].push_back(rings[i]->make(owner).value()->id());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_one : ids) EXPECT_EQ(of_one, ids[0]);
  EXPECT_EQ(std::set(ids[0].begin(), ids[0].end()).size(), kOwners);
  EXPECT_EQ(files(), kOwners) << "temporaries are gone";
}

TEST_F(KeyRingTest, ADroppedKeyIsOverwrittenAndGone) {
  const auto keys = open();
  const seal::KeyId before = keys->make(kOwner).value()->id();
  keys->make(kOther).value();
  // A process that had the file open sees the overwritten bytes.
  const int file = ::open(file_of(kOwner).c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  EXPECT_EQ(keys->drop(kOwner).value(), true);
  std::array<char, seal::kKeyFileBytes> bytes;
  ASSERT_EQ(pread(file, bytes.data(), bytes.size(), 0), long(bytes.size()));
  close(file);
  EXPECT_EQ(std::string(bytes.data(), bytes.size()), std::string(bytes.size(), '\0'));
  EXPECT_EQ(keys->held(kOwner), nullptr);
  EXPECT_EQ(keys->find(kOwner).value(), nullptr);
  EXPECT_NE(keys->find(kOther).value(), nullptr);
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(keys->drop(kOwner).value(), false);
  EXPECT_NE(keys->make(kOwner).value()->id(), before);
}

TEST_F(KeyRingTest, ADropThatWasCutOffIsFinished) {
  const auto keys = open();
  keys->make(kOwner).value();
  const std::string left = path + "/" + seal::hex_of(kOwner) + ".0000000000000001.dropped";
  fs::copy_file(file_of(kOwner), left);
  fs::copy_file(file_of(kOwner), path + "/" + seal::hex_of(kOther) + ".000000000000000f.dropped");
  EXPECT_EQ(keys->drop(kOwner).value(), true);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(files(), 1U);
  open();
  EXPECT_EQ(files(), 0U);
}

// An operator may make keys read-only. Root can write read-only files, so this test runs as another
// user.
TEST_F(KeyRingTest, AKeyThatMayOnlyBeReadIsDroppedAndTheNextStartIsNotInTheWay) {
  fs::permissions(fs::path(path).parent_path(), fs::perms::all);
  const auto as_nobody = [&] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) return 1;
    if (open()->make(kOwner).value() == nullptr) return 2;
    if (chmod(file_of(kOwner).c_str(), 0400) != 0) return 3;
    const std::string second = path + "/0000000000000001.0000000000000001.dropped";
    fs::copy_file(file_of(kOwner), second);
    if (!open()) return 4;  // Finishes the drop that another process began.
    if (fs::exists(second)) return 5;
    const int seen = ::open(file_of(kOwner).c_str(), O_RDONLY);
    const auto dropped = open()->drop(kOwner);
    if (!dropped || !*dropped) return 6;
    char first = 'x';
    if (read(seen, &first, 1) != 1 || first != 0) return 7;  // It was overwritten.
    return files() == 0 && open() != nullptr ? 0 : 8;
  };
  EXPECT_EXIT(_exit(as_nobody()), ::testing::ExitedWithCode(0), "");
}

TEST_F(KeyRingTest, ADroppedKeyThatCannotBeErasedDoesNotKeepAServerFromStarting) {
  open();
  const std::string stuck = path + "/0000000000000001.0000000000000001.dropped";
  fs::create_directories(stuck + "/full");
  EXPECT_NE(open(), nullptr);
  EXPECT_TRUE(fs::exists(stuck));
}

TEST_F(KeyRingTest, FilesThatAreNotItsOwnAreLeftAlone) {
  open();
  for (const char* name : {"notes.dropped", "notes.tmp", "0123456789abcdef.dropped"}) {
    std::ofstream(path + "/" + name) << "somebody's";
    fs::last_write_time(path + "/" + name,
                        fs::file_time_type::clock::now() - std::chrono::hours(5));
  }
  open();
  for (const char* name : {"notes.dropped", "notes.tmp", "0123456789abcdef.dropped"}) {
    std::ifstream file(path + "/" + name);
    std::string text;
    std::getline(file, text);
    EXPECT_EQ(text, "somebody's") << name;
  }
}

TEST_F(KeyRingTest, AKeyThatAnotherProcessDroppedIsNoticedWithinASecond) {
  ManualClock clock;
  const auto keys = open(&clock);
  const auto others = open();
  const KeyRing::Key made = keys->make(kOwner).value();
  EXPECT_EQ(others->drop(kOwner).value(), true);
  clock.advance_ns(kSecond - 1);
  EXPECT_EQ(keys->held(kOwner), made);
  clock.advance_ns(1);
  EXPECT_EQ(keys->held(kOwner), nullptr);
  EXPECT_EQ(keys->find(kOwner).value(), nullptr);
  // And a new key, too.
  const seal::KeyId next = others->make(kOwner).value()->id();
  EXPECT_EQ(keys->find(kOwner).value()->id(), next);
  others->drop(kOwner).value();
  const seal::KeyId last = others->make(kOwner).value()->id();
  EXPECT_EQ(keys->find(kOwner).value()->id(), next);
  clock.advance_ns(kSecond);
  EXPECT_EQ(keys->find(kOwner).value()->id(), last);
}

TEST_F(KeyRingTest, AnUnchangedKeyIsNotReadAgain) {
  ManualClock clock;
  const auto keys = open(&clock);
  const KeyRing::Key made = keys->make(kOwner).value();
  clock.advance_ns(10 * kSecond);
  EXPECT_EQ(keys->find(kOwner).value(), made);
}

TEST_F(KeyRingTest, ADamagedKeyFileIsNeitherUsedNorOverwritten) {
  open()->make(kOwner).value();
  const std::string good = contents(file_of(kOwner));
  expect_refused(good.substr(0, 40), Errc::corrupt, "too short");
  expect_refused("", Errc::corrupt, "too short");
  expect_refused(good + "x", Errc::corrupt, "too long");
  expect_refused(std::string(good.size(), 'x'), Errc::corrupt, "not a key file");
  std::string flipped = good;
  flipped[40] = static_cast<char>(flipped[40] ^ 1);
  expect_refused(flipped, Errc::corrupt, "checksum");
  std::string newer = good;
  newer[8] = 9;
  expect_refused(newer, Errc::unsupported, "newer version");
}

TEST_F(KeyRingTest, AKeyOfAnotherScopeIsRefused) {
  const auto keys = open();
  keys->make(kOwner).value();
  fs::copy_file(file_of(kOwner), file_of(kOther));
  EXPECT_EQ(keys->find(kOther).error().code(), Errc::corrupt);
  EXPECT_NE(keys->problem().find("another scope"), std::string::npos);
}

TEST_F(KeyRingTest, WhatOthersCanReadIsRefused) {
  const auto keys = open();
  keys->make(kOwner).value();
  for (const unsigned mode : {0640U, 0604U, 0620U}) {
    ASSERT_EQ(chmod(file_of(kOwner).c_str(), mode), 0);
    const auto fresh = open();
    EXPECT_EQ(fresh->find(kOwner).error().code(), Errc::invalid_argument);
    EXPECT_NE(fresh->problem().find(file_of(kOwner) + ": other users"), std::string::npos);
  }
  ASSERT_EQ(chmod(file_of(kOwner).c_str(), 0600), 0);
  ASSERT_EQ(chmod(path.c_str(), 0750), 0);
  const auto refused = KeyRing::open({.path = path}, why);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::invalid_argument);
  EXPECT_NE(why.find(path + ": other users"), std::string::npos) << why;
  EXPECT_NE(why.find("chmod"), std::string::npos) << why;
}

TEST_F(KeyRingTest, ALinkIsNoKey) {
  const auto keys = open();
  keys->make(kOwner).value();
  fs::rename(file_of(kOwner), directory / "elsewhere");
  fs::create_symlink(directory / "elsewhere", file_of(kOwner));
  EXPECT_FALSE(open()->find(kOwner));
}

TEST_F(KeyRingTest, ADirectoryThatCannotBeMadeIsNamed) {
  const auto refused = KeyRing::open({.path = directory / "no/keys"}, why);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::copy_failed);
  EXPECT_NE(why.find(directory / "no/keys"), std::string::npos) << why;
}

TEST_F(KeyRingTest, OnlySoManyKeysAreInMemory) {
  auto keys = KeyRing::open({.path = path, .keys_in_memory = 2}, why).value();
  for (uint64_t owner = 0; owner < 5; ++owner) keys->make(owner).value();
  size_t held = 0;
  for (uint64_t owner = 0; owner < 5; ++owner) held += keys->held(owner) != nullptr ? 1U : 0U;
  EXPECT_EQ(held, 2U);
  for (uint64_t owner = 0; owner < 5; ++owner) EXPECT_NE(keys->find(owner).value(), nullptr);
}

}  // namespace
}  // namespace stemma::tier
