// PagesToErase: pages of the slab that were free when a purge began and may hold what it forgets.
//
// They are erased a few at a time. Until then a put may take some of them: those are erased before
// the put gets them, because a put that fails leaves pages as they were.
//
// Invariant:  a page is in here at most once; pages that were taken are not.
// Threading:  one thread at a time.
// Cost:       O(log runs) a call, and O(runs) of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "tier/disk/layout.h"

namespace stemma::tier::disk {

class PagesToErase {
 public:
  bool empty() const noexcept { return runs_.empty(); }
  // Requires: none is in here. Throws std::bad_alloc, like the others.
  void add(const Extent& pages) {
    if (pages.pages != 0) runs_.emplace(pages.first, pages.pages);
  }
  // The first pages, `most` at most. Requires: not empty.
  Extent take_some(uint32_t most) {
    const auto [first, count] = *runs_.begin();
    const uint32_t taken = std::min(count, most);
    if (taken < count) runs_.emplace(first + taken, count - taken);
    runs_.erase(first);
    return {.first = first, .pages = taken};
  }
  // The given pages that are in here.
  std::vector<Extent> take(const Extent& pages) {
    std::vector<Extent> taken;
    const uint32_t end = pages.first + pages.pages;
    auto at = runs_.upper_bound(pages.first);
    if (at != runs_.begin()) --at;
    while (at != runs_.end() && at->first < end) {
      const auto [first, count] = *at;
      const uint32_t from = std::max(first, pages.first), to = std::min(first + count, end);
      if (from >= to) {
        ++at;
        continue;
      }
      taken.push_back({.first = from, .pages = to - from});
      if (to < first + count) runs_.emplace(to, first + count - to);
      if (from > first) {
        at->second = from - first;
        ++at;
      } else {
        at = runs_.erase(at);
      }
    }
    return taken;
  }

 private:
  std::map<uint32_t, uint32_t> runs_;  // First page, and how many.
};

}  // namespace stemma::tier::disk
