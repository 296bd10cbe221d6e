#include "capi/sized.h"

#include <gtest/gtest.h>

namespace stemma::capi {
namespace {

// The second version of a struct; the first version ended after `a`.
struct Grown {
  uint32_t struct_size;
  uint32_t a;
  uint32_t b;
};
// The third version of the same struct.
struct Newer {
  Grown known;
  uint32_t c;
};

}  // namespace

template <>
struct Sized<Grown> {
  static constexpr uint32_t kSizes[] = {8, sizeof(Grown)};
  static constexpr const char* kWrong = "struct_size of grown";
  static Grown initial() noexcept { return {sizeof(Grown), 10, 20}; }
};

namespace {

TEST(Sized, NullMeansDefaults) {
  const Result<Grown> read = read_sized<Grown>(nullptr);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->b, 20U);
}

TEST(Sized, OlderCallerGetsDefaultsForWhatItDoesNotKnow) {
  const Grown given{8, 1, 99};
  const Result<Grown> read = read_sized(&given);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->a, 1U);
  EXPECT_EQ(read->b, 20U);
}

TEST(Sized, NewerCallerIsUnderstoodWhenItAsksForNothingNew) {
  Newer given{{sizeof(Newer), 1, 2}, 0};
  const Result<Grown> read = read_sized(&given.known);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->b, 2U);
  given.c = 1;
  EXPECT_FALSE(read_sized(&given.known));
}

TEST(Sized, SizesThatNeverWereAreRefused) {
  for (const uint32_t size : {0U, 1U, 4U, 7U, 9U, 11U, 13U, 18U, 1'000'000U, 0xFFFF'FFFFU}) {
    struct {
      Grown grown;
      uint8_t beyond[kMaxUnknownBytes] = {};
    } given{{size, 1, 2}};
    const Result<Grown> read = read_sized(&given.grown);
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.error().code(), Errc::invalid_argument);
    EXPECT_EQ(read.error().value(), size);
    EXPECT_FALSE(check_room(given.grown)) << size;
  }
}

TEST(Sized, OnlyWhatTheCallerHasRoomForIsWritten) {
  Grown older{8, 0, 77};
  ASSERT_TRUE(check_room(older));
  write_sized(&older, {0, 1, 2});
  EXPECT_EQ(older.struct_size, 8U);
  EXPECT_EQ(older.a, 1U);
  EXPECT_EQ(older.b, 77U);
  Newer newer{{sizeof(Newer), 0, 0}, 55};
  ASSERT_TRUE(check_room(newer.known));
  write_sized(&newer.known, {0, 1, 2});
  EXPECT_EQ(newer.known.b, 2U);
  EXPECT_EQ(newer.c, 55U);
}

}  // namespace
}  // namespace stemma::capi
