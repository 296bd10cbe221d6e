// Converts what C callers of movers pass, and checks what the C++ types could not hold.
#include <cstddef>
#include <utility>

#include "base/invalid.h"
#include "capi/mover/handles.h"
#include "capi/sized.h"

namespace stemma::capi {

STEMMA_SIZED(stemma_mover_options, STEMMA_MOVER_OPTIONS_INIT);
STEMMA_SIZED(stemma_mover_request, STEMMA_MOVER_REQUEST_INIT);

namespace {

constexpr size_t kMaxItems = size_t{1} << 24U;
constexpr size_t kMaxPlanes = 65'536;

using base::invalid;

Result<mover::Plane> decode_plane(const stemma_mover_plane& c, uint32_t number) {
  if (c.reserved != 0) return invalid("reserved of a plane is not 0", number);
  if (c.dim_count > STEMMA_MOVER_MAX_DIMS) {
    return invalid("dim_count of a plane is more than 4", number);
  }
  mover::Plane plane;
  plane.base = c.base;
  plane.page_stride = c.page_stride;
  plane.run_bytes = c.run_bytes;
  plane.layer = c.layer;
  plane.dim_count = c.dim_count;
  for (uint32_t d = 0; d < c.dim_count; ++d) {
    plane.size[d] = c.dim_size[d];
    plane.stride[d] = c.dim_stride[d];
  }
  plane.token_dim = c.token_dim;
  return plane;
}

}  // namespace

Result<mover::MoverOptions> decode(const stemma_mover_options* given) {
  if (given == nullptr) return invalid("options is null");
  STEMMA_TRY(const stemma_mover_options c, read_sized(given));
  if (c.groups == nullptr || c.group_count == 0) return invalid("options.groups has no group");
  if (c.group_count > STEMMA_MAX_GROUPS) return invalid("options.group_count is more than 8");
  mover::MoverOptions options;
  options.device = c.device;
  options.threads = c.threads;
  options.thread_blocks = c.thread_blocks;
  options.arena_bytes = c.arena_bytes;
  options.batch_from_bytes = c.batch_from_bytes;
  options.ring_bytes = c.ring_bytes;
  uint32_t number = 0;
  for (size_t g = 0; g < c.group_count; ++g) {
    const stemma_mover_group& group = c.groups[g];
    if (group.reserved != 0) return invalid("reserved of a group is not 0", number);
    if (group.planes == nullptr || group.plane_count == 0) {
      return invalid("a group has no planes", number);
    }
    if (group.plane_count > kMaxPlanes) return invalid("a group has too many planes", number);
    mover::GroupPlanes out;
    out.pages = group.pages;
    for (size_t p = 0; p < group.plane_count; ++p) {
      STEMMA_TRY(mover::Plane plane, decode_plane(group.planes[p], number++));
      out.planes.push_back(plane);
    }
    options.groups.push_back(std::move(out));
  }
  return options;
}

Result<void> decode(const stemma_mover_request* given, DecodedRequest& out) {
  if (given == nullptr) return invalid("request is null");
  STEMMA_TRY(const stemma_mover_request c, read_sized(given));
  if (c.items == nullptr && c.count != 0) return invalid("request.items is null");
  if (c.count > kMaxItems) return invalid("request.count is more than 2^24");
  if (c.check > 1) return invalid("request.check is neither 0 nor 1", c.check);
  size_t pieces = 0;
  for (size_t i = 0; i < c.count; ++i) {
    const stemma_mover_item& item = c.items[i];
    if (item.pieces == nullptr && item.piece_count != 0) {
      return invalid("pieces of an item is null", i);
    }
    pieces += item.piece_count;
    if (pieces > kMaxItems) return invalid("the items have more than 2^24 pieces", i);
  }
  out.pieces.reserve(pieces);
  out.items.reserve(c.count);
  for (size_t i = 0; i < c.count; ++i) {
    const stemma_mover_item& item = c.items[i];
    const size_t begin = out.pieces.size();
    for (uint32_t p = 0; p < item.piece_count; ++p) {
      const stemma_host_piece& piece = item.pieces[p];
      if (reinterpret_cast<uintptr_t>(piece.data) % mover::kAlignment != 0) {
        return invalid("a piece does not begin at a multiple of 16 bytes", i);
      }
      out.pieces.push_back({static_cast<uint8_t*>(piece.data), piece.bytes});
    }
    out.items.push_back({item.page, {out.pieces.data() + begin, item.piece_count}, item.sum});
  }
  out.request.group = c.group;
  out.request.items = out.items;
  out.request.stream = c.stream;
  out.request.after_stream = c.after_stream;
  out.request.check = c.check != 0;
  out.request.layers_at_once = c.layers_at_once;
  if (c.done != nullptr) {
    out.done = std::make_unique<DoneCall>(DoneCall{c.done, c.user});
    out.request.done = DoneCall::call;
    out.request.user = out.done.get();
  }
  return {};
}

Result<std::vector<mover::BlockOfGroup>> decode(const stemma_block_copy* copies, size_t count) {
  if (copies == nullptr && count != 0) return invalid("copies is null");
  if (count > kMaxItems) return invalid("there are more than 2^24 copies");
  std::vector<mover::BlockOfGroup> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    out.push_back({copies[i].group, copies[i].source, copies[i].target, copies[i].tokens});
  }
  return out;
}

}  // namespace stemma::capi
