#include "tier/disk/pages_to_erase.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace stemma::tier::disk {
namespace {

TEST(PagesToErase, GivesEachPageOnceHoweverItIsTaken) {
  constexpr uint32_t kPages = 300;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    PagesToErase pages;
    std::set<uint32_t> left;  // The same set, page by page.
    for (uint32_t first = random() % 5; first < kPages;) {
      const uint32_t count = std::min<uint32_t>(1 + random() % 20, kPages - first);
      pages.add({.first = first, .pages = count});
      for (uint32_t i = 0; i < count; ++i) left.insert(first + i);
      first += count + random() % 9;
    }
    const auto is_taken = [&](const Extent& some) {
      for (uint32_t i = 0; i < some.pages; ++i) EXPECT_EQ(left.erase(some.first + i), 1U);
    };
    while (!pages.empty()) {
      if (random() % 3 == 0) {
        const Extent some = pages.take_some(4);
        EXPECT_LE(some.pages, 4U);
        EXPECT_GE(some.pages, 1U);
        is_taken(some);
        continue;
      }
      const Extent wanted{.first = static_cast<uint32_t>(random() % kPages),
                          .pages = static_cast<uint32_t>(1 + random() % 40)};
      for (const Extent& some : pages.take(wanted)) {
        EXPECT_GE(some.first, wanted.first);
        EXPECT_LE(some.first + some.pages, wanted.first + wanted.pages);
        is_taken(some);
      }
      const auto at = left.lower_bound(wanted.first);
      EXPECT_TRUE(at == left.end() || *at >= wanted.first + wanted.pages) << "all of them";
    }
    EXPECT_TRUE(left.empty());
  }
}

}  // namespace
}  // namespace stemma::tier::disk
