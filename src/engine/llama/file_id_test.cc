#include "engine/llama/file_id.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace stemma::engine {
namespace {

namespace fs = std::filesystem;

class FileIdentity : public ::testing::Test {
 protected:
  FileIdentity() {
    std::string name = fs::temp_directory_path() / "stemma-file-id-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    folder = name;
    memory = folder / "ids";
  }
  ~FileIdentity() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  std::string write(const std::string& name, const std::string& content) const {
    const std::string path = folder / name;
    std::ofstream(path, std::ios::trunc) << content;
    return path;
  }
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return std::move(text).str();
  }
  // Makes the time of writing useless for telling files apart.
  static void set_time(const std::string& path, int64_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  fs::path folder;
  std::string memory;
};

// "abc", by FIPS 180-4.
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST_F(FileIdentity, IsTheContentAndNotThePath) {
  const FileId one = file_id(write("one", "abc"), "");
  EXPECT_EQ(one.sha256, kAbc);
  EXPECT_EQ(one.why, "");
  EXPECT_FALSE(one.remembered);
  EXPECT_EQ(file_id(write("two", "abc"), "").sha256, kAbc);
  EXPECT_NE(file_id(write("three", "abd"), "").sha256, kAbc);
  EXPECT_EQ(file_id(write("none", ""), "").sha256,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_F(FileIdentity, IsRememberedAndNotReadAgain) {
  const std::string path = write("model", "abc");
  EXPECT_FALSE(file_id(path, memory).remembered);
  uint32_t heard = 0;
  const FileId again = file_id(path, memory, [&](uint64_t, uint64_t) { return ++heard != 0; });
  EXPECT_TRUE(again.remembered);
  EXPECT_EQ(again.sha256, kAbc);
  EXPECT_EQ(heard, 0U);
  // A link that leads to it names the same file.
  fs::create_symlink(path, folder / "link");
  EXPECT_TRUE(file_id(folder / "link", memory).remembered);
}

TEST_F(FileIdentity, ChangedContentIsSeenBySizeTimeOrInode) {
  const std::string path = write("model", "abc");
  set_time(path, 1'000'000);
  EXPECT_EQ(file_id(path, memory).sha256, kAbc);
  EXPECT_TRUE(file_id(path, memory).remembered);
  write("model", "abcd");  // Another size.
  set_time(path, 1'000'000);
  EXPECT_FALSE(file_id(path, memory).remembered);
  write("model", "xyz");  // Another time.
  set_time(path, 1'000'001);
  const FileId later = file_id(path, memory);
  EXPECT_FALSE(later.remembered);
  EXPECT_NE(later.sha256, kAbc);
  write("other", "uvw");  // Another inode.
  set_time(folder / "other", 1'000'001);
  fs::rename(folder / "other", path);
  const FileId replaced = file_id(path, memory);
  EXPECT_FALSE(replaced.remembered);
  EXPECT_NE(replaced.sha256, later.sha256);
}

// As `cp -p` does: the size, the time of the last change and the inode stay.
TEST_F(FileIdentity, FileReplacedInPlaceIsReadAgain) {
  const std::string path = write("model", "abc");
  set_time(path, 1);
  EXPECT_EQ(file_id(path, memory).sha256, kAbc);
  write("model", "xyz");
  set_time(path, 1);
  const FileId replaced = file_id(path, memory);
  EXPECT_FALSE(replaced.remembered);
  EXPECT_EQ(replaced.sha256, file_id(path, "").sha256);
}

// If all facts from stat() are equal (container images, clocks that stand still), a sample of the
// content tells two files apart. The memory is forged here, because no call sets the time of an
// inode's change.
TEST_F(FileIdentity, SampleTellsFilesApartThatStatDoesNot) {
  const std::string first(8U << 20U, 'a');
  constexpr size_t kStretch = 256U << 10U;  // Weights that a fine-tune changed.
  const auto newest_line = [&] { return read(memory).substr(0, read(memory).find('\n')); };
  for (const size_t begin : {size_t{0}, first.size() / 2 + 12'345, first.size() - kStretch}) {
    const std::string path = write("model", first);
    const FileId before = file_id(path, memory);
    const std::string old_line = newest_line();
    std::string second = first;
    second.replace(begin, kStretch, kStretch, 'b');
    write("model", second);
    EXPECT_FALSE(file_id(path, memory).remembered);
    const std::string new_line = newest_line();
    // The old digest and the old sample under the new facts.
    const size_t sample = new_line.rfind(' ');
    write("ids", before.sha256 + new_line.substr(64, sample - 64) +
                     old_line.substr(old_line.rfind(' ')) + '\n');
    EXPECT_FALSE(file_id(path, memory).remembered) << begin;
    write("ids", new_line + '\n');
    EXPECT_TRUE(file_id(path, memory).remembered) << "only the sample made the difference";
  }
}

TEST_F(FileIdentity, ManyFilesAreRememberedAndTheOldestForgotten) {
  std::vector<std::string> paths;
  for (uint32_t i = 0; i < 300; ++i) {
    paths.push_back(write("f" + std::to_string(i), std::to_string(i)));
    EXPECT_NE(file_id(paths.back(), memory).sha256, "");
  }
  EXPECT_TRUE(file_id(paths.back(), memory).remembered);
  EXPECT_TRUE(file_id(paths[60], memory).remembered);
  EXPECT_FALSE(file_id(paths[3], memory).remembered);
  for (const auto& each : fs::directory_iterator(folder)) {
    EXPECT_FALSE(each.path().filename().string().starts_with("ids.")) << "a draft was left";
  }
}

TEST_F(FileIdentity, MemoryThatCannotBeUsedIsDoneWithout) {
  const std::string path = write("model", "abc");
  // A folder instead of a file; a folder that cannot be made.
  fs::create_directory(folder / "a folder");
  for (const std::string& bad :
       {std::string(folder / "a folder"), path + "/ids", std::string("/proc/none/ids")}) {
    const FileId found = file_id(path, bad);
    EXPECT_EQ(found.sha256, kAbc) << bad;
    EXPECT_FALSE(found.remembered);
  }
  // Its folder is made when it is not there.
  EXPECT_FALSE(file_id(path, folder / "new" / "deep" / "ids").remembered);
  EXPECT_TRUE(file_id(path, folder / "new" / "deep" / "ids").remembered);
}

TEST_F(FileIdentity, RubbishInTheMemoryIsNoIdentity) {
  const std::string path = write("model", "abc");
  EXPECT_FALSE(file_id(path, memory).remembered);
  const std::string good = read(memory);
  const std::string tag = good.substr(64);
  for (const std::string& bad :
       {std::string(), std::string("\n\n"), std::string(5000, 'x'), good.substr(0, 40),
        good.substr(0, good.size() - 3), std::string(64, 'z') + tag,
        std::string(kAbc).substr(0, 63) + " " + tag, std::string(200, '\0') + tag}) {
    write("ids", bad);
    const FileId found = file_id(path, memory);
    EXPECT_EQ(found.sha256, kAbc) << bad;
    EXPECT_FALSE(found.remembered) << bad;
  }
  EXPECT_TRUE(file_id(path, memory).remembered);
}

TEST_F(FileIdentity, ProgressIsToldAndMayStopIt) {
  const std::string path = write("model", std::string(9U << 20U, 'x'));
  std::vector<uint64_t> told;
  const FileId whole = file_id(path, "", [&](uint64_t done, uint64_t all) {
    EXPECT_EQ(all, 9U << 20U);
    told.push_back(done);
    return true;
  });
  EXPECT_EQ(whole.why, "");
  ASSERT_GE(told.size(), 3U);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), 9U << 20U);
  const FileId stopped = file_id(path, memory, [](uint64_t, uint64_t) { return false; });
  EXPECT_EQ(stopped.sha256, "");
  EXPECT_EQ(stopped.why, "stopped while reading " + path);
  EXPECT_FALSE(file_id(path, memory).remembered) << "what was not read is not remembered";
}

TEST_F(FileIdentity, WhatIsNoFileIsSaid) {
  const std::string missing = folder / "missing";
  EXPECT_EQ(file_id(missing, "").why, "cannot open " + missing + ": No such file or directory");
  EXPECT_EQ(file_id(folder, "").why, folder.string() + " is not a file");
  EXPECT_EQ(file_id("/dev/null", "").why, "/dev/null is not a file");
  EXPECT_NE(file_id("", "").why, "");
  EXPECT_EQ(file_id(missing, "").sha256, "");
}

// Opening a pipe without a writer would wait for ever.
TEST_F(FileIdentity, PipeIsNotWaitedFor) {
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(file_id(path, "").why, path + " is not a file");
}

TEST(UsualFileMemory, IsInTheUsersCacheFolder) {
  const auto with = [](const char* cache, const char* home) {
    cache == nullptr ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", cache, 1);
    home == nullptr ? unsetenv("HOME") : setenv("HOME", home, 1);
    return usual_file_memory();
  };
  const char* const home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  EXPECT_EQ(with("/c", "/h"), "/c/stemma/file-ids");
  EXPECT_EQ(with(nullptr, "/h"), "/h/.cache/stemma/file-ids");
  EXPECT_EQ(with("not/whole", "/h"), "/h/.cache/stemma/file-ids");
  EXPECT_EQ(with(nullptr, nullptr), "");
  setenv("HOME", before.c_str(), 1);
}

TEST(ModelParts, AreAllThatTheFirstOneNames) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(
      model_parts("a/m-00001-of-00003.gguf"),
      (Paths{"a/m-00001-of-00003.gguf", "a/m-00002-of-00003.gguf", "a/m-00003-of-00003.gguf"}));
  const Paths ten = model_parts("m-00001-of-00012.gguf");
  ASSERT_EQ(ten.size(), 12U);
  EXPECT_EQ(ten.back(), "m-00012-of-00012.gguf");
  for (const char* alone :
       {"m.gguf", "m-00001-of-00001.gguf", "m-00002-of-00003.gguf", "m-00001-of-0000x.gguf",
        "m-00001-of-00003.bin", "m_00001-of-00003.gguf", "-00001-of-00003.gguf", ""}) {
    EXPECT_EQ(model_parts(alone), Paths{alone});
  }
}

}  // namespace
}  // namespace stemma::engine
