// Doubly linked lists over numbered items, all in one array: an item is in at most one list.
//
// Items are [0, items); the heads of the lists follow them. Memory arrives zeroed, and zero means
// "in no list", so items cost nothing before their first use and lists nothing before they are
// opened.
// Threading:  one thread at a time.
// Cost:       8 bytes an item; every call O(1).
#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/slab.h"

namespace stemma::base {

class IndexLists {
 public:
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;

  [[nodiscard]] bool create(uint32_t items, uint32_t lists) { return create(items, lists, lists); }
  // Only the first `open_lists` may be used until open() opens more.
  [[nodiscard]] bool create(uint32_t items, uint32_t lists, uint32_t open_lists) {
    items_ = items;
    lists_ = lists;
    growth_ = Growth(0, items);
    const size_t end = static_cast<size_t>(items) + lists;
    if (!links_.reserve(end) || !links_.commit(items, end)) return false;
    open(open_lists);
    return true;
  }
  // The lists [0, lists) may be used from now on. Needs no memory beyond what create() took.
  void open(uint32_t lists) noexcept {
    for (; opened_ < lists; ++opened_)
      links_[head(opened_)] = {head(opened_) + 1, head(opened_) + 1};
  }
  uint32_t opened() const noexcept { return opened_; }
  // ensure() allocates an item that is about to be linked. Returns false if out of memory.
  bool ensured(uint32_t item) const noexcept { return growth_.covers(item); }
  [[nodiscard]] bool ensure(uint32_t item) {
    if (growth_.covers(item)) return true;
    const size_t end = growth_.next(item);
    if (!links_.commit(growth_.committed(), end)) return false;
    growth_.advance(end);
    return true;
  }
  uint32_t ensured() const noexcept { return static_cast<uint32_t>(growth_.committed()); }

  bool linked(uint32_t item) const noexcept {
    return growth_.covers(item) && links_[item].next_plus_1 != 0;
  }
  bool empty(uint32_t list) const noexcept { return next(head(list)) == head(list); }
  // The first item, or kNone.
  uint32_t front(uint32_t list) const noexcept {
    const uint32_t item = next(head(list));
    return item < items_ ? item : kNone;
  }
  // The item after `item` in its list, or kNone.
  uint32_t after(uint32_t item) const noexcept {
    const uint32_t following = next(item);
    return following < items_ ? following : kNone;
  }
  template <class Visit>
  void for_each(uint32_t list, Visit&& visit) const {
    for (uint32_t i = front(list); i != kNone; i = after(i)) visit(i);
  }
  void push_back(uint32_t list, uint32_t item) noexcept { link_before(item, head(list)); }
  // Requires `position` linked, `item` not.
  void insert_before(uint32_t position, uint32_t item) noexcept { link_before(item, position); }
  void unlink(uint32_t item) noexcept {
    links_[prev(item)].next_plus_1 = links_[item].next_plus_1;
    links_[next(item)].prev_plus_1 = links_[item].prev_plus_1;
    links_[item] = {0, 0};
  }
  // Puts `item` in the place of `other`. Requires `other` linked, `item` not.
  void take_place(uint32_t other, uint32_t item) noexcept {
    const Links links = links_[other];
    links_[item] = links;
    links_[links.prev_plus_1 - 1].next_plus_1 = item + 1;
    links_[links.next_plus_1 - 1].prev_plus_1 = item + 1;
    links_[other] = {0, 0};
  }
  void prefetch(uint32_t item) const noexcept { __builtin_prefetch(&links_[item], 1); }
  // Heads of unopened lists do not count: their pages were never touched.
  uint64_t bytes() const noexcept {
    return links_.bytes() - uint64_t{lists_ - opened_} * sizeof(Links);
  }

  // Returns the number of linked items in all lists. Stops the process if links are inconsistent.
  uint64_t check_invariants() const {
    uint64_t listed = 0;
    for (uint32_t list = 0; list < opened_; ++list) {
      uint32_t before = head(list);
      for (uint32_t i = next(before); i != head(list); i = next(i)) {
        STEMMA_CHECK(i < items_ && prev(i) == before && ++listed <= items_);
        before = i;
      }
      STEMMA_CHECK(prev(head(list)) == before);
    }
    uint64_t linked_items = 0;
    for (uint32_t i = 0; i < ensured(); ++i) linked_items += linked(i) ? 1U : 0U;
    STEMMA_CHECK(linked_items == listed);
    return listed;
  }

 private:
  struct Links {
    uint32_t prev_plus_1, next_plus_1;
  };
  uint32_t head(uint32_t list) const noexcept { return items_ + list; }
  uint32_t next(uint32_t i) const noexcept { return links_[i].next_plus_1 - 1; }
  uint32_t prev(uint32_t i) const noexcept { return links_[i].prev_plus_1 - 1; }
  void link_before(uint32_t item, uint32_t position) noexcept {
    const uint32_t before = prev(position);
    links_[item] = {before + 1, position + 1};
    links_[before].next_plus_1 = item + 1;
    links_[position].prev_plus_1 = item + 1;
  }

  Slab<Links> links_;
  Growth growth_;
  uint32_t items_ = 0;
  uint32_t lists_ = 0;
  uint32_t opened_ = 0;
};

}  // namespace stemma::base
