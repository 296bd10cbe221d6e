#include "stemma/result.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "stemma/log.h"

namespace stemma {
namespace {

static_assert(sizeof(Error) == 16 && std::is_trivially_copyable_v<Error>);
static_assert(std::is_nothrow_move_constructible_v<Result<std::unique_ptr<int>>>);
static_assert(!std::is_copy_constructible_v<Result<std::unique_ptr<int>>>);
static_assert(std::is_copy_constructible_v<Result<std::string>>);
static_assert(!std::is_convertible_v<Result<int>, bool>, "looking is done on purpose");
static_assert(std::is_same_v<Result<int>::value_type, int>);
static_assert(std::is_same_v<Result<int>::error_type, Error>);
// By value from a temporary, so that nothing refers into it; no copy from an lvalue.
using Strings = std::vector<std::string>;
static_assert(std::is_same_v<decltype(*std::declval<Result<Strings>>()), Strings>);
static_assert(std::is_same_v<decltype(std::declval<Result<Strings>>().value()), Strings>);
static_assert(std::is_same_v<decltype(std::declval<Result<Strings>>().error()), Error>);
static_assert(std::is_same_v<decltype(std::declval<Result<void>>().error()), Error>);
static_assert(std::is_same_v<decltype(*std::declval<Result<Strings>&>()), Strings&>);
static_assert(std::is_same_v<decltype(*std::declval<const Result<Strings>&>()), const Strings&>);
static_assert(std::is_same_v<decltype(std::declval<Result<int>&>().error()), const Error&>);
static_assert(noexcept(*std::declval<Result<Strings>>()));

constexpr Error kFull(Errc::out_of_blocks, "too few free blocks", 17);

TEST(Error, SaysWhatWhyAndWhich) {
  EXPECT_EQ(kFull.code(), Errc::out_of_blocks);
  EXPECT_STREQ(kFull.message(), "too few free blocks");
  EXPECT_EQ(kFull.value(), 17U);
  EXPECT_EQ(kFull.to_string(), "out_of_blocks: too few free blocks (17)");
  EXPECT_EQ(Error(Errc::busy, "a lease is alive").to_string(), "busy: a lease is alive");
  EXPECT_EQ(Error(Errc::busy, "").value(), Error::kNoValue);
}

TEST(Error, OutOfBlocksSaysHowManyWhereAndWhetherItCanEverFit) {
  constexpr Error later = Error::missing_blocks("too few blocks", 2, 17, false);
  static_assert(later.code() == Errc::out_of_blocks && later.value() == 17 && later.group() == 2);
  static_assert(!later.never_fits());
  EXPECT_EQ(later.to_string(), "out_of_blocks: too few blocks (17 missing in group 2)");
  constexpr Error never = Error::missing_blocks("more than there are", 0, 3, true);
  static_assert(never.never_fits());
  EXPECT_EQ(never.to_string(), "out_of_blocks: more than there are (3 too many for group 0)");
  EXPECT_EQ(
      Error::missing_blocks("too few cells", kMaxGroups, uint64_t{1} << 40U, false).to_string(),
      "out_of_blocks: too few cells (4294967294 missing)");
  EXPECT_EQ(kFull.group(), kMaxGroups);
  EXPECT_FALSE(kFull.never_fits());
}

TEST(Error, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (auto code = static_cast<uint32_t>(Errc::out_of_blocks);
       code <= static_cast<uint32_t>(Errc::corrupt); ++code) {
    const std::string_view name = to_string(Errc{code});
    EXPECT_FALSE(name.empty());
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_FALSE(to_string(Errc{12345}).empty()) << "unknown codes can be printed too";
}

TEST(Result, HoldsAValueOrAnError) {
  Result<int> good = 5;
  EXPECT_TRUE(good);
  EXPECT_TRUE(good.has_value());
  EXPECT_EQ(*good, 5);
  EXPECT_EQ(good.value(), 5);
  *good = 6;
  EXPECT_EQ(std::as_const(good).value(), 6);
  const Result<int> bad = kFull;
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error().value(), 17U);
  EXPECT_EQ(Result<int>(kFull).value_or(9), 9);
  EXPECT_EQ(Result<int>(4).value_or(9), 4);
  const Result<std::string> text = std::string("abc");
  EXPECT_EQ(text->size(), 3U);
}

TEST(Result, OfNothingIsOkOrAnError) {
  const Result<void> good;
  EXPECT_TRUE(good);
  good.value();
  const Result<void> bad = kFull;
  EXPECT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code(), Errc::out_of_blocks);
}

TEST(Result, MovesWhatItHolds) {
  Result<std::unique_ptr<int>> first = std::make_unique<int>(3);
  Result<std::unique_ptr<int>> second = std::move(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(**second, 3);
  const std::unique_ptr<int> out = *std::move(second);
  EXPECT_EQ(*out, 3);
  second = Result<std::unique_ptr<int>>(kFull);
  EXPECT_EQ(second.error().value(), 17U);
  second = std::make_unique<int>(4);
  EXPECT_EQ(**second, 4);
}

TEST(Result, EverythingItHoldsIsDestroyedOnce) {
  const auto counted = std::make_shared<int>(1);
  {
    Result<std::shared_ptr<int>> a = counted;
    Result<std::shared_ptr<int>> b = a;
    EXPECT_EQ(counted.use_count(), 3);
    a = Result<std::shared_ptr<int>>(kFull);
    EXPECT_EQ(counted.use_count(), 2);
    b = std::move(a);
    EXPECT_EQ(counted.use_count(), 1);
    EXPECT_FALSE(b);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

// Counts the objects of its kind that hold the list at this moment.
class Watched {
 public:
  explicit Watched(Strings list) : list_(std::move(list)) { ++alive; }
  Watched(Watched&& other) noexcept : list_(std::move(other.list_)) { ++alive; }
  Watched(const Watched&) = delete;
  Watched& operator=(Watched&&) = delete;
  ~Watched() { --alive; }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  static inline int alive = 0;

 private:
  Strings list_;
};

Result<Watched> two_words() {
  return Watched(Strings{"longer than a string holds in itself", "and another one of that kind"});
}

TEST(Result, ALoopOverATemporaryKeepsWhatItLoopsOver) {
  size_t letters = 0;
  for (const std::string& word : *two_words()) {
    EXPECT_EQ(Watched::alive, 1) << "what the loop reads is gone";
    letters += word.size();
  }
  for (const std::string& word : two_words().value()) letters += word.size();
  EXPECT_EQ(letters, 2 * (36U + 28U));
  const Watched& kept = *two_words();
  EXPECT_EQ(Watched::alive, 1);
  EXPECT_EQ(kept.begin()->size(), 36U);
  const Error& why = Result<int>(kFull).error();
  EXPECT_EQ(why.value(), 17U);
}

Result<int> half(int n) {
  if (n % 2 != 0) return Error(Errc::invalid_argument, "odd", static_cast<uint32_t>(n));
  return n / 2;
}

Result<std::string> quarter_text(int n) {
  STEMMA_TRY(const int first, half(n));
  STEMMA_TRY(const int second, half(first));
  return std::to_string(second);
}

Result<void> check_quarter(int n, int& reached) {
  STEMMA_TRY_VOID(half(n));
  ++reached;
  if (n > 100) STEMMA_TRY_VOID(Result<void>(kFull));
  ++reached;
  return {};
}

TEST(Result, TryPassesTheValueOrTheErrorOn) {
  EXPECT_EQ(*quarter_text(12), "3");
  EXPECT_EQ(quarter_text(7).error().value(), 7U);
  EXPECT_EQ(quarter_text(6).error().value(), 3U);
  int reached = 0;
  EXPECT_TRUE(check_quarter(4, reached));
  EXPECT_EQ(reached, 2);
  EXPECT_EQ(check_quarter(102, reached).error().code(), Errc::out_of_blocks);
  EXPECT_EQ(reached, 3);
  EXPECT_FALSE(check_quarter(3, reached));
  EXPECT_EQ(reached, 3);
}

TEST(Result, TryMovesWhatCannotBeCopied) {
  const auto take = [](Result<std::unique_ptr<int>> from) -> Result<int> {
    STEMMA_TRY(const std::unique_ptr<int> mine, std::move(from));
    return *mine;
  };
  EXPECT_EQ(*take(std::make_unique<int>(8)), 8);
  EXPECT_FALSE(take(kFull));
}

TEST(ResultDeathTest, OpeningAnErrorStopsTheProcessWithItsText) {
  Result<int> bad = kFull;
  EXPECT_DEATH((void)bad.value(), "too few free blocks \\(17\\)");
  EXPECT_DEATH((void)*bad, "out_of_blocks");
  Result<std::string> text = kFull;
  EXPECT_DEATH((void)text->size(), "out_of_blocks");
  const Result<void> nothing = kFull;
  EXPECT_DEATH(nothing.value(), "out_of_blocks");
}

TEST(CheckDeathTest, BrokenBooksStopTheProcessWithADescription) {
  const int books = 3;
  STEMMA_CHECK(books == 3);
  EXPECT_DEATH(STEMMA_CHECK(books == 4), "result_test.*books == 4");
}

TEST(CheckDeathTest, TheEmbedderHearsOfItFirst) {
  const auto die = [] {
    set_fatal_handler(
        [](std::string_view what, void* user) {
          std::fprintf(stderr, "%s%.*s\n", static_cast<const char*>(user),
                       static_cast<int>(what.size()), what.data());
        },
        const_cast<char*>("the embedder hears: "));
    STEMMA_CHECK(1 + 1 == 3);
  };
  EXPECT_DEATH(die(), "the embedder hears: .*1 \\+ 1 == 3");
}

}  // namespace
}  // namespace stemma
