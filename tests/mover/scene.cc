#include "mover/scene.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/random.h"

namespace stemma::test {

using mover::GroupPlanes;
using mover::Plane;

namespace {

uint64_t below(uint64_t& random, uint64_t limit) { return base::next_random(random) % limit; }

uint64_t plane_bytes(const Plane& plane) {
  uint64_t bytes = plane.run_bytes;
  for (uint32_t d = 0; d < plane.dim_count; ++d) bytes *= plane.size[d];
  return bytes;
}

}  // namespace

Scene::~Scene() {
  for (const auto& region : regions_) machine_.give_back_pages(region->base);
}

uint64_t Scene::add_region(uint64_t bytes) {
  auto region = std::make_unique<Region>();
  region->base = machine_.take_pages(bytes);
  region->shadow.resize(bytes);
  regions_.push_back(std::move(region));
  return regions_.back()->base;
}

// The dimensions of all planes of a group in one array, in a random order from the outside: pages,
// layers, keys and values, heads, tokens.
GroupPlanes Scene::random_group(uint64_t& random, bool odd) {
  enum { kPages, kLayers, kPair, kHeads, kTokens, kSteps };
  const uint64_t head = odd ? 1 + below(random, 40) : 16 * (1 + below(random, 8));
  const std::array<uint64_t, kSteps> sizes = {2 + below(random, 8), 1 + below(random, 4),
                                              1 + below(random, 2), 1 + below(random, 4),
                                              1 + below(random, 16)};
  std::array<int, kSteps> order = {kPages, kLayers, kPair, kHeads, kTokens};
  for (size_t i = kSteps; i > 1; --i) std::swap(order[i - 1], order[below(random, i)]);
  std::array<uint64_t, kSteps> strides{};
  uint64_t inside = head;
  for (size_t i = kSteps; i-- > 0;) {
    // Sometimes a gap.
    if (below(random, 4) == 0) inside += odd ? below(random, 24) : 16 * below(random, 3);
    strides[static_cast<size_t>(order[i])] = inside;
    inside *= sizes[static_cast<size_t>(order[i])];
  }
  const uint64_t offset = odd ? below(random, 17) : 0;
  const uint64_t base = add_region(inside + offset) + offset;
  const bool heads_first = below(random, 2) == 0;
  GroupPlanes group;
  group.pages = static_cast<uint32_t>(sizes[kPages]);
  for (uint64_t layer = 0; layer < sizes[kLayers]; ++layer) {
    for (uint64_t half = 0; half < sizes[kPair]; ++half) {
      Plane plane;
      plane.base = base + layer * strides[kLayers] + half * strides[kPair];
      plane.page_stride = strides[kPages];
      plane.run_bytes = head;
      plane.layer = static_cast<uint32_t>(layer);
      plane.dim_count = 2;
      const size_t tokens = heads_first ? 1 : 0;
      plane.size[tokens] = sizes[kTokens];
      plane.stride[tokens] = strides[kTokens];
      plane.size[1 - tokens] = sizes[kHeads];
      plane.stride[1 - tokens] = strides[kHeads];
      if (below(random, 8) != 0) plane.token_dim = static_cast<uint32_t>(tokens);
      group.planes.push_back(plane);
    }
  }
  return group;
}

void Scene::make_groups(uint64_t seed, uint32_t groups, bool odd) {
  uint64_t random = seed;
  for (uint32_t g = 0; g < groups; ++g) options.groups.push_back(random_group(random, odd));
  options.device = machine_.device();
}

void Scene::make_plain(uint32_t layers, uint64_t plane_bytes, uint32_t pages) {
  GroupPlanes group;
  group.pages = pages;
  for (uint32_t i = 0; i < 2 * layers; ++i) {
    Plane plane;
    plane.base = add_region(plane_bytes * pages);
    plane.page_stride = plane_bytes;
    plane.run_bytes = plane_bytes;
    plane.layer = i / 2;
    group.planes.push_back(plane);
  }
  options.groups.push_back(std::move(group));
  options.device = machine_.device();
}

void Scene::fill(uint64_t seed) {
  uint64_t random = seed;
  for (const auto& region : regions_) {
    for (uint8_t& byte : region->shadow) byte = static_cast<uint8_t>(base::next_random(random));
    machine_.write(region->base, region->shadow.data(), region->shadow.size());
  }
}

template <class Body>
void Scene::each_byte(uint32_t group, uint32_t page, uint32_t tokens, Body&& body) const {
  uint64_t block = 0;
  for (const Plane& plane : options.groups[group].planes) {
    std::array<uint64_t, mover::kMaxDims> size = {1, 1, 1, 1};
    for (uint32_t d = 0; d < plane.dim_count; ++d) size[d] = plane.size[d];
    uint64_t at = block;
    for (uint64_t a = 0; a < size[0]; ++a) {
      for (uint64_t b = 0; b < size[1]; ++b) {
        for (uint64_t c = 0; c < size[2]; ++c) {
          for (uint64_t d = 0; d < size[3]; ++d) {
            const std::array<uint64_t, mover::kMaxDims> step = {a, b, c, d};
            uint64_t address = plane.base + page * plane.page_stride;
            for (uint32_t i = 0; i < plane.dim_count; ++i) address += step[i] * plane.stride[i];
            const bool counts =
                plane.token_dim == mover::kNoTokens || step[plane.token_dim] < tokens;
            for (uint64_t byte = 0; byte < plane.run_bytes; ++byte) {
              if (counts) body(address + byte, at + byte);
            }
            at += plane.run_bytes;
          }
        }
      }
    }
    block += (plane_bytes(plane) + 15) / 16 * 16;
  }
}

namespace {

uint8_t& shadow_at(const std::vector<std::unique_ptr<Region>>& regions, uint64_t address) {
  for (const auto& region : regions) {
    if (address >= region->base && address - region->base < region->shadow.size()) {
      return region->shadow[address - region->base];
    }
  }
  std::abort();
}

}  // namespace

uint64_t Scene::block_bytes(uint32_t group) const {
  uint64_t bytes = 0;
  for (const Plane& plane : options.groups[group].planes) {
    bytes += (plane_bytes(plane) + 15) / 16 * 16;
  }
  return bytes;
}

Bytes Scene::block(uint32_t group, uint32_t page) const {
  Bytes bytes(block_bytes(group));
  each_byte(group, page, mover::kAllTokens,
            [&](uint64_t address, uint64_t at) { bytes[at] = shadow_at(regions_, address); });
  return bytes;
}

void Scene::put(uint32_t group, uint32_t page, const Bytes& block) {
  each_byte(group, page, mover::kAllTokens,
            [&](uint64_t address, uint64_t at) { shadow_at(regions_, address) = block[at]; });
}

void Scene::copy(const mover::BlockOfGroup& copy) {
  const Bytes source = block(copy.group, copy.source);
  each_byte(copy.group, copy.target, copy.tokens,
            [&](uint64_t address, uint64_t at) { shadow_at(regions_, address) = source[at]; });
}

std::string Scene::difference() {
  for (size_t r = 0; r < regions_.size(); ++r) {
    const Region& region = *regions_[r];
    Bytes now(region.shadow.size());
    machine_.read(now.data(), region.base, now.size());
    const auto at = std::mismatch(now.begin(), now.end(), region.shadow.begin()).first;
    if (at != now.end()) {
      return "region " + std::to_string(r) + " differs at byte " +
             std::to_string(at - now.begin()) + " of " + std::to_string(now.size());
    }
  }
  return "";
}

}  // namespace stemma::test
