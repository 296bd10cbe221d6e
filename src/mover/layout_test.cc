#include "mover/layout.h"

#include <gtest/gtest.h>

namespace stemma::mover {
namespace {

// Of a tensor [pages, tokens, heads, head], in elements of one byte.
Plane plane(uint64_t tokens, uint64_t heads, uint64_t head, uint32_t layer = 0) {
  Plane made;
  made.base = 4096;
  made.page_stride = tokens * heads * head;
  made.run_bytes = head;
  made.layer = layer;
  made.dim_count = 2;
  made.size = {tokens, heads};
  made.stride = {heads * head, head};
  made.token_dim = 0;
  return made;
}

TEST(Layout, DimensionsThatLieTogetherBecomeOneRun) {
  const Plane planes[] = {plane(16, 8, 128)};
  const Layout layout = Layout::make(planes, 4, 0).value();
  const LaidPlane& laid = layout.planes()[0];
  EXPECT_EQ(laid.shape.dims, 0U);
  EXPECT_EQ(laid.shape.run_bytes, 16U * 8 * 128);
  EXPECT_EQ(laid.shape.wide, 1U);
  EXPECT_EQ(layout.longest_run(), 16U * 8 * 128);
  // Positions stay countable.
  EXPECT_EQ(laid.token_shape.dims, 1U);
  EXPECT_EQ(laid.token_shape.token_dim, 0U);
  EXPECT_EQ(first_tokens(laid.token_shape, 3).bytes, 3U * 8 * 128);
  EXPECT_EQ(first_tokens(laid.token_shape, 99).bytes, laid.shape.bytes);
}

TEST(Layout, HeadsBeforeTokensKeepTheirOrder) {
  Plane heads_first = plane(16, 8, 64);
  heads_first.size = {8, 16};
  heads_first.stride = {16 * 64, 64};
  heads_first.token_dim = 1;
  const Layout layout = Layout::make({&heads_first, 1}, 2, 0).value();
  EXPECT_EQ(layout.planes()[0].shape.dims, 0U);
  const Shape part = first_tokens(layout.planes()[0].token_shape, 2);
  EXPECT_EQ(part.dims, 2U);
  EXPECT_EQ(part.bytes, 8U * 2 * 64);
  EXPECT_EQ(distance_in_page(part, 2 * 64), 16U * 64);  // The second head's first token.
  EXPECT_EQ(distance_in_page(part, 2 * 64 + 64 + 5), 16U * 64 + 64 + 5);
}

TEST(Layout, PlanesFollowEachOtherWithPadding) {
  Plane planes[] = {plane(1, 1, 20, 0), plane(1, 1, 32, 0), plane(1, 1, 7, 1)};
  const Layout layout = Layout::make(planes, 1, 0).value();
  EXPECT_EQ(layout.layers(), 2U);
  EXPECT_EQ(layout.planes()[1].begin, 32U);
  EXPECT_EQ(layout.planes()[2].begin, 64U);
  EXPECT_EQ(layout.block_bytes(), 80U);
  EXPECT_EQ(layout.planes()[0].shape.wide, 0U);
  EXPECT_EQ(layout.planes_of(0, 1).size(), 2U);
  EXPECT_EQ(layout.planes_of(1, 2).size(), 1U);
  EXPECT_EQ(layout.planes_of(0, 2).size(), 3U);
}

TEST(Layout, ADistanceIsTheSumOfSteps) {
  Plane odd = plane(5, 3, 6);
  odd.page_stride = 1000;
  odd.stride = {100, 20};
  const Layout layout = Layout::make({&odd, 1}, 2, 0).value();
  const Shape& shape = layout.planes()[0].shape;
  for (uint32_t t = 0; t < 5; ++t) {
    for (uint32_t h = 0; h < 3; ++h) {
      for (uint32_t b = 0; b < 6; ++b) {
        ASSERT_EQ(distance_in_page(shape, (t * 3 + h) * 6 + b), t * 100 + h * 20 + b);
      }
    }
  }
  // Runs of [4, 27): two bytes, three whole runs, three bytes.
  std::vector<uint32_t> lengths;
  uint32_t next = 0;
  for_each_run(shape, 4, 23, [&](uint64_t distance, uint32_t at, uint32_t length) {
    EXPECT_EQ(at, next);
    EXPECT_EQ(distance, distance_in_page(shape, 4 + at));
    next += length;
    lengths.push_back(length);
  });
  EXPECT_EQ(lengths, (std::vector<uint32_t>{2, 6, 6, 6, 3}));
}

TEST(Layout, TheFingerprintIsOfDimensionsAndNotOfPlaces) {
  const auto of = [](std::vector<Plane> planes) {
    return Layout::make(planes, 2, 0).value().fingerprint();
  };
  const Plane one = plane(16, 8, 64);
  Plane moved = one;
  moved.base = 1 << 20;
  moved.page_stride *= 3;
  EXPECT_EQ(of({one}), of({moved}));
  Plane other_order = one;
  other_order.size = {8, 16};
  other_order.stride = {16 * 64, 64};
  other_order.token_dim = 1;
  EXPECT_NE(of({one}), of({other_order}));
  EXPECT_NE(of({one}), of({plane(16, 4, 128)}));
  EXPECT_NE(of({one, plane(16, 8, 64, 0)}), of({one, plane(16, 8, 64, 1)}));
}

struct Bad {
  const char* what;
  void (*change)(Plane& plane);
};

TEST(Layout, BadPlanesAreRefusedByNumber) {
  const Bad all[] = {
      {"null", [](Plane& p) { p.base = 0; }},
      {"no run", [](Plane& p) { p.run_bytes = 0; }},
      {"too many dimensions", [](Plane& p) { p.dim_count = 5; }},
      {"empty", [](Plane& p) { p.size[1] = 0; }},
      {"no such dimension", [](Plane& p) { p.token_dim = 2; }},
      {"tokens overlap", [](Plane& p) { p.stride[0] = 64; }},
      {"heads on heads", [](Plane& p) { p.stride[1] = 0; }},
      {"pages overlap", [](Plane& p) { p.page_stride -= 16; }},
      {"wraps", [](Plane& p) { p.page_stride = UINT64_MAX / 2; }},
      {"huge", [](Plane& p) { p.size[0] = p.stride[1] = uint64_t{1} << 40U; }},
      {"too many layers", [](Plane& p) { p.layer = 1024; }},
      {"no layer 0", [](Plane& p) { p.layer = 1; }},
  };
  for (const Bad& bad : all) {
    Plane wrong = plane(16, 8, 64);
    bad.change(wrong);
    const auto made = Layout::make({&wrong, 1}, 4, 10);
    ASSERT_FALSE(made) << bad.what;
    EXPECT_EQ(made.error().code(), Errc::invalid_argument) << bad.what;
    EXPECT_EQ(made.error().value(), 10U) << bad.what;
  }
  EXPECT_FALSE(Layout::make({}, 4, 0));
  const Plane good = plane(16, 8, 64);
  EXPECT_FALSE(Layout::make({&good, 1}, 0, 0));
  const Plane gap[] = {plane(16, 8, 64, 0), plane(16, 8, 64, 2)};
  EXPECT_EQ(Layout::make(gap, 4, 0).error().value(), 1U);
  // Pages may lie inside a token's stride: tokens before pages.
  Plane inside = plane(16, 1, 64);
  inside.page_stride = 64;
  inside.stride[0] = 4 * 64;
  EXPECT_TRUE(Layout::make({&inside, 1}, 4, 0));
}

}  // namespace
}  // namespace stemma::mover
