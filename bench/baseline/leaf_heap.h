// Baseline: eviction in a prefix tree that keeps no order of its leaves. Every call walks the tree,
// collects the leaves into a heap by time of last use, and pops; a parent that became a leaf joins
// the heap.
// Threading: one thread at a time. Nodes are taken at construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace stemma::bench {

class LeafHeap {
 public:
  explicit LeafHeap(uint32_t nodes) : nodes_(nodes + 1) {
    heap_.reserve(nodes + 1);
    pending_.reserve(nodes + 1);
    for (uint32_t i = nodes; i > 0; --i) free_.push_back(i);
  }

  static constexpr uint32_t kRoot = 0;

  // Adds a child used just now; returns its number.
  uint32_t add(uint32_t parent) {
    const uint32_t node = free_.back();
    free_.pop_back();
    nodes_[node] = {parent, kNone, nodes_[parent].first_child, kNone, ++time_};
    if (nodes_[parent].first_child != kNone) nodes_[nodes_[parent].first_child].previous = node;
    nodes_[parent].first_child = node;
    return node;
  }

  // Evicts the `count` leaves used longest ago and returns how many went.
  uint32_t evict(uint32_t count) {
    collect_leaves();
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    uint32_t gone = 0;
    while (gone < count && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint32_t leaf = heap_.back().second;
      heap_.pop_back();
      const uint32_t parent = nodes_[leaf].parent;
      remove(leaf);
      ++gone;
      if (parent != kRoot && nodes_[parent].first_child == kNone) {
        heap_.emplace_back(nodes_[parent].used, parent);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      }
    }
    return gone;
  }

 private:
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  struct Node {
    uint32_t parent = kNone;
    uint32_t first_child = kNone;
    uint32_t next = kNone, previous = kNone;
    uint64_t used = 0;
  };

  void collect_leaves() {
    heap_.clear();
    pending_.assign(1, kRoot);
    while (!pending_.empty()) {
      const uint32_t node = pending_.back();
      pending_.pop_back();
      if (nodes_[node].first_child == kNone && node != kRoot) {
        heap_.emplace_back(nodes_[node].used, node);
      }
      for (uint32_t child = nodes_[node].first_child; child != kNone; child = nodes_[child].next) {
        pending_.push_back(child);
      }
    }
  }

  void remove(uint32_t leaf) {
    const Node& node = nodes_[leaf];
    if (node.previous != kNone) {
      nodes_[node.previous].next = node.next;
    } else {
      nodes_[node.parent].first_child = node.next;
    }
    if (node.next != kNone) nodes_[node.next].previous = node.previous;
    free_.push_back(leaf);
  }

  std::vector<Node> nodes_;
  std::vector<uint32_t> free_, pending_;
  std::vector<std::pair<uint64_t, uint32_t>> heap_;
  uint64_t time_ = 0;
};

}  // namespace stemma::bench
