#include "mover/plan.h"

#include <algorithm>
#include <unordered_set>

#include "base/invalid.h"

namespace stemma::mover {
namespace {

using base::invalid;

// Cuts [first, first + bytes) of a plane into pieces; `packed` is where its first byte is.
void add_pieces(Plan& plan, Piece piece, uint64_t bytes, uint32_t most) {
  while (bytes != 0) {
    piece.bytes = static_cast<uint32_t>(std::min<uint64_t>(bytes, most));
    plan.pieces.push_back(piece);
    piece.first += piece.bytes;
    piece.packed += piece.bytes;
    piece.word += piece.bytes / 8;
    bytes -= piece.bytes;
  }
}

}  // namespace

Result<void> check_items(const Layout& layout, std::span<const Item> items) {
  std::unordered_set<uint32_t> pages;
  pages.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.page >= layout.pages()) {
      return Error(Errc::out_of_range, "the group has no such page", static_cast<uint32_t>(i));
    }
    if (!pages.insert(item.page).second) return invalid("a page appears twice", i);
    uint64_t bytes = 0;
    for (size_t p = 0; p < item.host.size(); ++p) {
      const HostPiece& piece = item.host[p];
      if (piece.data == nullptr || piece.bytes == 0) return invalid("a piece is null or empty", i);
      if (p + 1 != item.host.size() && piece.bytes % kAlignment != 0) {
        return invalid("a piece before the last has no multiple of 16 bytes", i);
      }
      if (__builtin_add_overflow(bytes, piece.bytes, &bytes)) bytes = UINT64_MAX;
    }
    if (bytes != layout.block_bytes()) {
      return invalid("the pieces of an item have more or less than block_bytes", i);
    }
  }
  return {};
}

BlockPlanner::BlockPlanner(const Layout& layout, std::span<const Item> items,
                           uint32_t layers_at_once, uint32_t shapes, uint32_t most)
    : layout_(&layout),
      together_(layers_at_once == 0 ? layout.layers() : layers_at_once),
      shapes_(shapes),
      most_(most) {
  places_.reserve(items.size());
  for (const Item& item : items) places_.push_back({item.page, item.host, 0});
}

void BlockPlanner::Place::skip(uint64_t bytes) noexcept {
  offset += bytes;
  while (!rest.empty() && offset >= rest.front().bytes) {
    offset -= rest.front().bytes;
    rest = rest.subspan(1);
  }
}

Plan BlockPlanner::outline() const {
  Plan plan;
  const uint32_t layers = layout_->layers();
  for (uint32_t begin = 0; begin < layers;) {
    begin = layers - begin <= together_ ? layers : begin + together_;
    plan.steps.push_back({begin, 0});
  }
  plan.bytes = places_.size() * layout_->block_bytes();
  plan.pieces.reserve(places_.size() * layout_->planes().size());
  return plan;
}

bool BlockPlanner::next(Plan& plan) {
  if (layout_ == nullptr || next_layer_ == layout_->layers()) return false;
  Step& step = plan.steps[next_layer_ / together_];
  const auto planes = layout_->planes_of(next_layer_, step.end_layer);
  for (size_t i = 0; i < places_.size(); ++i) {
    for (const LaidPlane& plane : planes) {
      const auto number = static_cast<uint32_t>(&plane - layout_->planes().data());
      add_plane(plan, plane, static_cast<uint32_t>(i), shapes_ + number);
    }
  }
  step.end_piece = plan.pieces.size();
  next_layer_ = step.end_layer;
  return true;
}

void BlockPlanner::add_plane(Plan& plan, const LaidPlane& plane, uint32_t item, uint32_t shape) {
  Place& place = places_[item];
  Piece piece{};
  piece.page = plane.page(place.page);
  piece.shape = shape;
  piece.item = item;
  piece.tokens = kAllTokens;
  for (uint64_t done = 0; done < plane.padded_bytes();) {
    const HostPiece& host = place.rest.front();
    const uint64_t bytes = std::min(plane.padded_bytes() - done, host.bytes - place.offset);
    piece.packed = reinterpret_cast<uint64_t>(host.data) + place.offset;
    piece.first = static_cast<uint32_t>(done);
    piece.word = static_cast<uint32_t>((plane.begin + done) / 8);
    add_pieces(plan, piece, bytes, most_);
    place.skip(bytes);
    done += bytes;
  }
}

Plan plan_blocks(const Layout& layout, std::span<const Item> items, uint32_t layers_at_once,
                 uint32_t shapes, uint32_t most) {
  BlockPlanner planner(layout, items, layers_at_once, shapes, most);
  Plan plan = planner.outline();
  while (planner.next(plan)) {
  }
  return plan;
}

Plan plan_packed(const Layout& layout, std::span<const uint32_t> pages, uint64_t packed,
                 uint32_t shapes, uint32_t most) {
  Plan plan;
  for (size_t i = 0; i < pages.size(); ++i) {
    for (size_t p = 0; p < layout.planes().size(); ++p) {
      const LaidPlane& plane = layout.planes()[p];
      Piece piece{};
      piece.page = plane.page(pages[i]);
      piece.packed = packed + i * layout.block_bytes() + plane.begin;
      piece.word = static_cast<uint32_t>(plane.begin / 8);
      piece.shape = static_cast<uint32_t>(shapes + p);
      piece.item = static_cast<uint32_t>(i);
      piece.tokens = kAllTokens;
      add_pieces(plan, piece, plane.shape.bytes, most);
      plan.bytes += plane.shape.bytes;
    }
  }
  plan.steps.push_back({layout.layers(), plan.pieces.size()});
  return plan;
}

Plan plan_copies(std::span<const Layout> layouts, std::span<const BlockOfGroup> copies,
                 std::span<const uint32_t> token_shapes, uint32_t most) {
  Plan plan;
  for (size_t i = 0; i < copies.size(); ++i) {
    const Layout& layout = layouts[copies[i].group];
    for (size_t p = 0; p < layout.planes().size(); ++p) {
      const LaidPlane& plane = layout.planes()[p];
      Piece piece{};
      piece.page = plane.page(copies[i].source);
      piece.shape = static_cast<uint32_t>(token_shapes[copies[i].group] + p);
      piece.item = static_cast<uint32_t>(i);
      piece.tokens = copies[i].tokens;
      // Every piece names the whole target page: offsets count from its beginning.
      const uint32_t bytes = first_tokens(plane.token_shape, copies[i].tokens).bytes;
      plan.bytes += bytes;
      for (uint32_t done = 0; done < bytes; done += piece.bytes) {
        piece.packed = plane.page(copies[i].target);
        piece.first = done;
        piece.bytes = std::min(bytes - done, most);
        plan.pieces.push_back(piece);
      }
    }
  }
  plan.steps.push_back({kMaxLayers, plan.pieces.size()});
  return plan;
}

}  // namespace stemma::mover
