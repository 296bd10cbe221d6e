#include "mover/layout.h"

#include <algorithm>
#include <utility>

#include "base/invalid.h"

namespace stemma::mover {
namespace {

using base::invalid;

// Multiplies, and says so if 64 bits are too few.
bool times(uint64_t a, uint64_t b, uint64_t& out) noexcept {
  return !__builtin_mul_overflow(a, b, &out);
}

// Whether the pages and dimensions of a plane keep apart: sorted by stride, each step is at least
// as long as everything inside it.
bool keeps_apart(const Plane& plane, uint32_t pages) {
  std::vector<std::pair<uint64_t, uint64_t>> steps;  // Stride and count.
  for (uint32_t d = 0; d < plane.dim_count; ++d) {
    if (plane.size[d] > 1) steps.emplace_back(plane.stride[d], plane.size[d]);
  }
  if (pages > 1) steps.emplace_back(plane.page_stride, pages);
  std::sort(steps.begin(), steps.end());
  uint64_t inside = plane.run_bytes;
  for (const auto& [stride, count] : steps) {
    uint64_t reach = 0;
    if (stride < inside || !times(stride, count - 1, reach) ||
        __builtin_add_overflow(reach, inside, &inside)) {
      return false;
    }
  }
  uint64_t end = 0;
  return !__builtin_add_overflow(plane.base, inside, &end);
}

Result<void> check(const Plane& plane, uint32_t pages, uint32_t number) {
  if (plane.base == 0) return invalid("base of a plane is null", number);
  if (plane.run_bytes == 0) return invalid("run_bytes of a plane is 0", number);
  if (plane.dim_count > kMaxDims) return invalid("dim_count of a plane is more than 4", number);
  if (plane.token_dim != kNoTokens && plane.token_dim >= plane.dim_count) {
    return invalid("token_dim of a plane is none of its dimensions", number);
  }
  uint64_t bytes = plane.run_bytes;
  for (uint32_t d = 0; d < plane.dim_count; ++d) {
    if (plane.size[d] == 0) return invalid("a dimension of a plane has size 0", number);
    if (!times(bytes, plane.size[d], bytes)) bytes = UINT64_MAX;
    if (bytes > UINT32_MAX - kAlignment) break;
  }
  if (bytes > UINT32_MAX - kAlignment) {
    return invalid("a page has 4 GiB or more in one plane", number);
  }
  if (!keeps_apart(plane, pages)) {
    return invalid("the pages of a plane overlap each other, or a page overlaps itself", number);
  }
  return {};
}

// Merges dimensions that continue each other, except the one of tokens.
Shape merged(const Plane& plane, uint32_t token_dim) noexcept {
  Shape shape{};
  shape.token_dim = kNoTokens;
  uint64_t run = plane.run_bytes;
  // From the innermost dimension outwards; the result is in reverse order at first.
  bool inner_is_tokens = false;
  for (uint32_t d = plane.dim_count; d-- > 0;) {
    const bool tokens = d == token_dim;
    if (plane.size[d] == 1 && !tokens) continue;
    if (!tokens && !inner_is_tokens) {
      if (shape.dims == 0 && plane.stride[d] == run) {
        run *= plane.size[d];
        continue;
      }
      if (shape.dims != 0 &&
          plane.stride[d] == shape.stride[shape.dims - 1] * shape.size[shape.dims - 1]) {
        shape.size[shape.dims - 1] *= static_cast<uint32_t>(plane.size[d]);
        continue;
      }
    }
    if (tokens) shape.token_dim = shape.dims;
    inner_is_tokens = tokens;
    shape.stride[shape.dims] = plane.stride[d];
    shape.size[shape.dims++] = static_cast<uint32_t>(plane.size[d]);
  }
  std::reverse(shape.stride, shape.stride + shape.dims);
  std::reverse(shape.size, shape.size + shape.dims);
  if (shape.token_dim != kNoTokens) shape.token_dim = shape.dims - 1 - shape.token_dim;
  shape.run_bytes = static_cast<uint32_t>(run);
  uint64_t all = plane.base | plane.page_stride | run;
  shape.bytes = shape.run_bytes;
  for (uint32_t d = 0; d < shape.dims; ++d) {
    all |= shape.stride[d];
    shape.bytes *= shape.size[d];
  }
  shape.wide = all % kAlignment == 0 ? 1 : 0;
  return shape;
}

uint64_t mix(uint64_t hash, uint64_t value) noexcept {
  return base::word_term(value, base::word_key(hash)) + hash * 31;
}

uint64_t describe(const Plane& plane, uint64_t hash) noexcept {
  hash = mix(mix(hash, plane.layer), plane.run_bytes);
  for (uint32_t d = 0; d < plane.dim_count; ++d) {
    if (plane.size[d] == 1 && d != plane.token_dim) continue;
    hash = mix(mix(hash, plane.size[d]), d == plane.token_dim ? 2 : 1);
  }
  return mix(hash, 0);
}

}  // namespace

Result<Layout> Layout::make(std::span<const Plane> planes, uint32_t pages, uint32_t first_plane) {
  if (planes.empty()) return invalid("a group has no planes", first_plane);
  if (pages == 0) return invalid("a group has no pages", first_plane);
  Layout layout;
  layout.pages_ = pages;
  layout.planes_.reserve(planes.size());
  uint32_t next_layer = 0;
  for (size_t i = 0; i < planes.size(); ++i) {
    const Plane& plane = planes[i];
    const auto number = static_cast<uint32_t>(first_plane + i);
    STEMMA_TRY_VOID(check(plane, pages, number));
    if (plane.layer >= kMaxLayers) return invalid("a layer's number is 1,024 or more", number);
    if (plane.layer != next_layer && plane.layer + 1 != next_layer) {
      return invalid("a layer has no plane, or planes are not in order of layers", number);
    }
    next_layer = plane.layer + 1;
    layout.planes_.push_back({plane.base, plane.page_stride, layout.block_bytes_, plane.layer,
                              merged(plane, kNoTokens), merged(plane, plane.token_dim)});
    layout.block_bytes_ += layout.planes_.back().padded_bytes();
    layout.fingerprint_ = describe(plane, layout.fingerprint_);
    // Words of a block have 32-bit numbers.
    if (layout.block_bytes_ / 8 > UINT32_MAX) return invalid("a block has 32 GiB or more", number);
  }
  return layout;
}

std::span<const LaidPlane> Layout::planes_of(uint32_t begin, uint32_t end) const noexcept {
  const auto by_layer = [](const LaidPlane& plane, uint32_t layer) { return plane.layer < layer; };
  const auto first = std::lower_bound(planes_.begin(), planes_.end(), begin, by_layer);
  const auto last = std::lower_bound(first, planes_.end(), end, by_layer);
  return {first, last};
}

uint32_t Layout::longest_run() const noexcept {
  uint32_t longest = 0;
  for (const LaidPlane& plane : planes_) longest = std::max(longest, plane.shape.run_bytes);
  return longest;
}

}  // namespace stemma::mover
