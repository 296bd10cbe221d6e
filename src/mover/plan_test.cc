#include "mover/plan.h"

#include <gtest/gtest.h>

#include <array>

namespace stemma::mover {
namespace {

constexpr uint32_t kMost = 64;

// Two layers of two planes, 96 bytes each, in pages of their own.
Layout two_layers() {
  std::array<Plane, 4> planes;
  for (uint32_t i = 0; i < 4; ++i) {
    planes[i].base = 1'000'000 * (i + 1);
    planes[i].page_stride = planes[i].run_bytes = 96;
    planes[i].layer = i / 2;
  }
  return Layout::make(planes, 10, 0).value();
}

uint8_t* at(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

TEST(Plan, EveryByteIsInOnePieceAndLayersComeInOrder) {
  const Layout layout = two_layers();
  const HostPiece host[] = {{at(0x10000), 112}, {at(0x20000), 384 - 112}};
  const Item items[] = {{3, host, 0}, {7, {host + 1, 1}, 0}};
  const Plan plan = plan_blocks(layout, {items, 1}, 1, 100, kMost);
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(plan.steps[0].end_layer, 1U);
  EXPECT_EQ(plan.steps[1].end_piece, plan.pieces.size());
  EXPECT_EQ(plan.bytes, 384U);
  uint64_t next = 0;  // In the block.
  for (const Piece& piece : plan.pieces) {
    EXPECT_EQ(piece.word * 8, next);
    const uint64_t plane = next / 96;
    EXPECT_EQ(piece.first, next % 96);
    EXPECT_EQ(piece.shape, 100 + plane);
    EXPECT_EQ(piece.page, 1'000'000 * (plane + 1) + 3 * 96);
    EXPECT_EQ(piece.packed, next < 112 ? 0x10000 + next : 0x20000 + next - 112);
    EXPECT_LE(piece.bytes, kMost);
    next += piece.bytes;
  }
  EXPECT_EQ(next, 384U);
  // The second plane is cut where the host piece ends, and where pieces are long enough.
  EXPECT_EQ(plan.pieces.size(), 2U + 3U + 2U + 2U);
}

TEST(Plan, LayersThatArriveTogetherAreOneStep) {
  const Layout layout = two_layers();
  const HostPiece host{at(0x10000), 384};
  const Item item{0, {&host, 1}, 0};
  EXPECT_EQ(plan_blocks(layout, {&item, 1}, 0, 0, kMost).steps.size(), 1U);
  EXPECT_EQ(plan_blocks(layout, {&item, 1}, 2, 0, kMost).steps.size(), 1U);
  EXPECT_EQ(plan_blocks(layout, {&item, 1}, 99, 0, kMost).steps.size(), 1U);
  const Plan none = plan_blocks(layout, {}, 1, 0, kMost);
  EXPECT_EQ(none.steps.size(), 2U);
  EXPECT_TRUE(none.pieces.empty());
}

TEST(Plan, PackedBlocksLieBackToBack) {
  const Layout layout = two_layers();
  const uint32_t pages[] = {9, 2};
  const Plan plan = plan_packed(layout, pages, 4096, 0, 96);
  ASSERT_EQ(plan.pieces.size(), 8U);
  EXPECT_EQ(plan.pieces[5].packed, 4096U + 384 + 96);
  EXPECT_EQ(plan.pieces[5].page, 2'000'000U + 2 * 96);
  EXPECT_EQ(plan.pieces[5].item, 1U);
}

TEST(Plan, ItemsAreCheckedOneByOne) {
  const Layout layout = two_layers();
  const HostPiece whole{at(16), 384};
  const auto code = [&](std::vector<HostPiece> pieces, uint32_t page) {
    const Item items[] = {{0, {&whole, 1}, 0}, {page, pieces, 0}};
    const Result<void> checked = check_items(layout, items);
    if (!checked) {
      EXPECT_EQ(checked.error().value(), 1U);
    }
    return checked ? 0 : static_cast<int>(checked.error().code());
  };
  const int invalid = static_cast<int>(Errc::invalid_argument);
  EXPECT_EQ(code({whole}, 1), 0);
  EXPECT_EQ(code({whole}, 10), static_cast<int>(Errc::out_of_range));
  EXPECT_EQ(code({whole}, 0), invalid);
  EXPECT_EQ(code({}, 1), invalid);
  EXPECT_EQ(code({{at(16), 383}}, 1), invalid);
  EXPECT_EQ(code({{at(16), 385}}, 1), invalid);
  EXPECT_EQ(code({{at(16), 8}, {at(64), 376}}, 1), invalid);
  EXPECT_EQ(code({{at(16), 0}, {at(64), 384}}, 1), invalid);
  EXPECT_EQ(code({{nullptr, 384}}, 1), invalid);
  EXPECT_EQ(code({{at(16), UINT64_MAX - 15}, {at(64), 400}}, 1), invalid);
}

}  // namespace
}  // namespace stemma::mover
