#include "engine/llama/free_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace stemma::engine {
namespace free_memory_test {

namespace fs = std::filesystem;

// The files of a system that does not exist.
class FreeMemoryOf : public ::testing::Test {
 protected:
  FreeMemoryOf() {
    std::string name = fs::temp_directory_path() / "stemma-free-memory-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    root = name;
  }
  ~FreeMemoryOf() override {
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void expect(uint64_t bytes, const std::string& limit) const {
    const auto found = free_memory(root);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->bytes, bytes);
    EXPECT_EQ(found->limit, limit);
  }
  std::string root;
};

constexpr const char* kMachine = "MemTotal: 16000 kB\nMemFree: 1 kB\nMemAvailable:   8000 kB\n";

TEST_F(FreeMemoryOf, SystemThatSaysNothingIsUnknown) {
  EXPECT_FALSE(free_memory(root).has_value());
  write("/proc/meminfo", "MemTotal: 5 kB\nMemAvailable: much\n");
  EXPECT_FALSE(free_memory(root).has_value());
}

TEST_F(FreeMemoryOf, MachineWithoutGroupsHasWhatIsAvailable) {
  write("/proc/meminfo", kMachine);
  expect(8000 * 1024, "the machine");
  write("/proc/self/cgroup", "0::/user.slice\nrubbish\n:\n0:\n");
  expect(8000 * 1024, "the machine");
}

TEST_F(FreeMemoryOf, TightestGroupDecides) {
  write("/proc/meminfo", kMachine);
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "1000\n");
  expect(8000 * 1024, "the machine");
  write("/sys/fs/cgroup/a/memory.max", "500000\n");
  write("/sys/fs/cgroup/a/memory.current", "300000\n");
  expect(200000, "the control group /a");
  // Files that nobody read lately make room.
  write("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 250000\n");
  expect(450000, "the control group /a");
  // As a container sees it: its group is the root.
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "7000\n");
  write("/sys/fs/cgroup/memory.current", "9000\n");
  expect(0, "the control group /");
}

TEST_F(FreeMemoryOf, FirstVersionOfControlGroupsIsUnderstood) {
  write("/proc/meminfo", kMachine);
  write("/proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/box\n");
  write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "4000\n");
  write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1500\n");
  write("/sys/fs/cgroup/memory/box/memory.stat", "total_inactive_file 500\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1500\n");
  expect(3000, "the control group /box");
}

TEST(FreeMemory, ThisMachineHasSome) {
  const auto found = free_memory();
  ASSERT_TRUE(found.has_value());
  EXPECT_GT(found->bytes, 1U << 20U);
}

}  // namespace free_memory_test
}  // namespace stemma::engine
