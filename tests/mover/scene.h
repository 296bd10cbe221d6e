// Pages on a machine with a copy of their bytes beside them, and what a block of them must be, by
// loops that are too simple to be wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mover/machine.h"
#include "mover/mover.h"

namespace stemma::test {

using Bytes = std::vector<uint8_t>;

// Memory of planes: one allocation.
struct Region {
  uint64_t base = 0;
  Bytes shadow;  // What the machine's memory should have.
};

class Scene {
 public:
  explicit Scene(Machine& machine) : machine_(machine) {}
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // Random groups: keys and values apart, in one array, pages after layers, heads before tokens,
  // with gaps, of any element size. `odd`: sizes and addresses need not be multiples of 16.
  void make_groups(uint64_t seed, uint32_t groups, bool odd);
  // One group of `layers` layers, each with keys and values of `plane_bytes` in one run.
  void make_plain(uint32_t layers, uint64_t plane_bytes, uint32_t pages);

  mover::MoverOptions options;
  // Puts other bytes into all pages.
  void fill(uint64_t seed);

  // What the shadow says.
  Bytes block(uint32_t group, uint32_t page) const;
  // What the shadow must be after a block went to a page.
  void put(uint32_t group, uint32_t page, const Bytes& block);
  void copy(const mover::BlockOfGroup& copy);
  uint64_t block_bytes(uint32_t group) const;
  // The machine's memory is as the shadow says, gaps too. Empty, or what differs.
  std::string difference();

 private:
  using Visit = void (*)(void*, uint8_t* in_page, uint64_t in_block);
  // Calls visit for each byte of a page's first `tokens` positions.
  template <class Body>
  void each_byte(uint32_t group, uint32_t page, uint32_t tokens, Body&& body) const;
  uint64_t add_region(uint64_t bytes);
  mover::GroupPlanes random_group(uint64_t& random, bool odd);

  Machine& machine_;
  std::vector<std::unique_ptr<Region>> regions_;
};

}  // namespace stemma::test
