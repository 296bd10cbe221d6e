#include "tier/transfer_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "stemma/tier/tier_stack.h"
#include "support/environment.h"

namespace stemma::tier {
namespace {

constexpr uint64_t kPage = TransferArena::kPageBytes;

// A device that only remembers its calls.
class Hook final : public HostMemoryHook {
 public:
  explicit Hook(bool works = true) : works_(works) {}
  bool pin(void* memory, uint64_t bytes) noexcept override {
    if (!works_) return false;
    at = static_cast<uint8_t*>(memory);
    size = bytes;
    return true;
  }
  void unpin(void* memory, uint64_t bytes) noexcept override {
    EXPECT_EQ(memory, at);
    EXPECT_EQ(bytes, size);
    at = nullptr;
  }
  bool has(std::span<const uint8_t> bytes) const {
    return at != nullptr && bytes.data() >= at && bytes.data() + bytes.size() <= at + size;
  }

  uint8_t* at = nullptr;
  uint64_t size = 0;

 private:
  const bool works_;
};

TEST(TransferArena, AllOfItCanBeTakenAndTakenAgain) {
  const auto arena = TransferArena::create(10 * kPage + 5, nullptr);
  EXPECT_EQ(arena->bytes(), 10 * kPage);
  for (int round = 0; round < 3; ++round) {
    std::vector<uint8_t*> pages;
    for (int i = 0; i < 10; ++i) pages.push_back(arena->take(i == 0 ? 0 : i == 1 ? 1 : kPage));
    EXPECT_EQ(arena->take(1), nullptr);
    EXPECT_EQ(arena->taken_bytes(), 10 * kPage);
    for (uint8_t* page : pages) {
      ASSERT_NE(page, nullptr);
      arena->give_back(page);
    }
    arena->check_invariants();
    uint8_t* const all = arena->take(10 * kPage);
    ASSERT_NE(all, nullptr) << "what is free became one range";
    arena->give_back(all);
  }
  EXPECT_EQ(arena->take(10 * kPage + 1), nullptr);
  EXPECT_EQ(arena->take(~uint64_t{0}), nullptr);
}

TEST(TransferArena, RandomRangesNeverOverlapAndNoneIsLost) {
  const uint64_t seed =
      test::from_environment("STEMMA_TIER_SEED", Clock::monotonic().now_ns() % 1'000'003);
  SCOPED_TRACE("STEMMA_TIER_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto arena = TransferArena::create(64 * kPage, nullptr);
  uint8_t* const front = arena->take(64 * kPage);
  arena->give_back(front);
  std::map<uint8_t*, uint64_t> taken;
  uint64_t refused = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (taken.empty() || random() % 5 < 3) {
      const uint64_t pages = 1 + random() % (random() % 8 == 0 ? 40 : 6);
      const uint64_t bytes = pages * kPage - random() % kPage;
      uint8_t* const at = arena->take(bytes);
      if (at == nullptr) {
        ++refused;
        // Every gap between the taken ranges is too short.
        const uint8_t* end = front;
        for (const auto& [begin, size] : taken) {
          ASSERT_LT(static_cast<uint64_t>(begin - end), pages * kPage);
          end = begin + size;
        }
        ASSERT_LT(static_cast<uint64_t>(front + 64 * kPage - end), pages * kPage);
        continue;
      }
      const auto after = taken.lower_bound(at);
      ASSERT_TRUE(after == taken.end() || at + pages * kPage <= after->first);
      ASSERT_TRUE(after == taken.begin() ||
                  std::prev(after)->first + std::prev(after)->second <= at);
      taken[at] = pages * kPage;
    } else {
      const auto which = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      arena->give_back(which->first);
      taken.erase(which);
    }
    uint64_t sum = 0;
    for (const auto& [at, bytes] : taken) sum += bytes;
    ASSERT_EQ(arena->taken_bytes(), sum);
    arena->check_invariants();
  }
  EXPECT_GT(refused, 100U);
  for (const auto& [at, bytes] : taken) arena->give_back(at);
  EXPECT_NE(arena->take(64 * kPage), nullptr);
}

TEST(TransferArena, IsPinnedAsLongAsAnyPayloadLives) {
  Hook hook;
  auto arena = TransferArena::create(4 * kPage, &hook);
  EXPECT_EQ(hook.size, 4 * kPage);
  auto inside = Payload::make(3 * kPage, arena);
  auto crowded = Payload::make(2 * kPage, arena);
  EXPECT_TRUE(hook.has(inside->span()));
  EXPECT_FALSE(hook.has(crowded->span())) << "ordinary memory, where there is no room";
  std::fill(inside->span().begin(), inside->span().end(), uint8_t{1});
  std::fill(crowded->span().begin(), crowded->span().end(), uint8_t{2});
  arena.reset();
  EXPECT_NE(hook.at, nullptr);
  inside.reset();
  EXPECT_EQ(hook.at, nullptr);
}

TEST(TransferArena, WhatCannotBePinnedServesUnpinned) {
  Hook hook(false);
  const auto arena = TransferArena::create(4 * kPage, &hook);
  ASSERT_NE(arena, nullptr);
  EXPECT_NE(arena->take(kPage), nullptr);
}

}  // namespace
}  // namespace stemma::tier
