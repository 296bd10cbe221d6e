// What a request needs before it can draft: plain numbers, made by the parts of lease/.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cache/books/books.h"

namespace stemma::cache {

struct CopySource;

// The blocks a request asks for, per group, and `cells` if cells have their own supply.
struct Need {
  std::array<uint32_t, kMaxGroups> blocks{};
  uint32_t cells = 0;
  // Loose blocks that wait in their lists now and will be pinned before room is made.
  std::array<uint32_t, kMaxGroups> reserved{};
  // Blocks the request already has and keeps until it ends. They tell what can never fit.
  std::array<uint32_t, kMaxGroups> kept{};
  uint32_t kept_cells = 0;
  // Cells that the request holds, beyond those that live leases hold.
  std::array<CellIndex, 2> held{kNoCell, kNoCell};
  const std::vector<CopySource>* sources = nullptr;  // Pages the request will pin.
  // The request takes over a cached block as its own draft: it needs room even if `blocks` are 0.
  bool takes_over = false;
};

// Whether `need` would fit an empty cache. Any thread: capacities never change.
bool could_fit(const Books& books, const Need& need) noexcept;

}  // namespace stemma::cache
