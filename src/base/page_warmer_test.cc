#include "base/page_warmer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/slab.h"

namespace stemma::base {
namespace {

constexpr uint64_t kBytes = uint64_t{80} << 20U;

uint64_t pages_in_memory(uint8_t* memory, uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there(bytes / page);
  EXPECT_EQ(mincore(memory, bytes, there.data()), 0);
  return static_cast<uint64_t>(
      std::ranges::count_if(there, [](unsigned char of) { return (of & 1U) != 0; }));
}

TEST(PageWarmer, TakesPagesUpToTheLimitAndNoFurther) {
  Slab<uint8_t> memory;
  ASSERT_TRUE(memory.reserve(2 * kBytes) && memory.commit(0, kBytes));
  memory[5] = 7;
  PageWarmer warmer(memory.data());
  warmer.wait();
  EXPECT_EQ(warmer.warm_bytes(), 0U);
  warmer.warm_up_to(kBytes);
  warmer.wait();
  if (warmer.warm_bytes() == 0) GTEST_SKIP() << "this system takes no pages ahead";
  EXPECT_EQ(warmer.warm_bytes(), kBytes);
  EXPECT_EQ(pages_in_memory(memory.data(), kBytes), kBytes / sysconf(_SC_PAGESIZE));
  EXPECT_EQ(pages_in_memory(memory.data() + kBytes, kBytes), 0U);
  EXPECT_EQ(memory[5], 7);

  ASSERT_TRUE(memory.commit(kBytes, 2 * kBytes));
  warmer.warm_up_to(kBytes / 2);
  EXPECT_EQ(warmer.warm_bytes(), kBytes);
  warmer.warm_up_to(2 * kBytes);
  warmer.wait();
  EXPECT_EQ(warmer.warm_bytes(), 2 * kBytes);
}

TEST(PageWarmer, GivesUpWhereTheMemoryCannotBeWritten) {
  Slab<uint8_t> memory;
  ASSERT_TRUE(memory.reserve(kBytes));
  PageWarmer warmer(memory.data());
  warmer.warm_up_to(kBytes);
  warmer.wait();
  EXPECT_EQ(warmer.warm_bytes(), 0U);
  warmer.warm_up_to(2 * kBytes);
  warmer.wait();
}

TEST(PageWarmer, EndsInTheMiddle) {
  Slab<uint8_t> memory;
  ASSERT_TRUE(memory.reserve(kBytes) && memory.commit(0, kBytes));
  for (int i = 0; i < 10; ++i) {
    PageWarmer warmer(memory.data());
    warmer.warm_up_to(kBytes);
  }
}

}  // namespace
}  // namespace stemma::base
