#include "tier/followers.h"

#include <algorithm>
#include <vector>

namespace stemma::tier {

void Followers::show(const EntryKey& key, const EntryInfo& info) {
  if (!what_.names(key)) return;
  Node& node = nodes_[link_of(key.chain)];
  if (info.parent != 0) node.parent = info.parent;
  node.end = info.end;
  // An entry about a part of the prompt begins where its parent ends.
  if (key.kind == EntryKind::block || key.kind == EntryKind::segment) {
    node.parent_end = std::min(node.parent_end, info.begin);
  }
}

// What an entry's own fields say; `unknown` if it depends on its parent.
Followers::State Followers::look_at(uint64_t link, const Node& node) const noexcept {
  if (link == *what_.follows || (node.parent != 0 && node.parent == *what_.follows)) {
    return State::follows;
  }
  if (node.end <= what_.keep) return State::stays;
  if (node.parent == 0) return State::unsure;
  // A parent that ends at or before `keep` could only be the followed prefix, which it is not.
  return node.parent_end <= what_.keep ? State::stays : State::unknown;
}

Followers::State Followers::find(uint64_t link) {
  std::vector<Node*> way;
  State state = State::unsure;  // For a chain of parents that breaks off or leads back to itself.
  for (;;) {
    const auto found = nodes_.find(link);
    if (found == nodes_.end() || found->second.state == State::looking) break;
    Node& node = found->second;
    state = node.state != State::unknown ? node.state : look_at(link, node);
    way.push_back(&node);
    if (state != State::unknown) break;
    node.state = State::looking;
    link = node.parent;
    state = State::unsure;
  }
  for (Node* const node : way) node->state = state;
  return state;
}

Followers::Goes Followers::ask(const EntryKey& key, const EntryInfo& info) {
  if (!what_.takes(key, info)) return Goes::no;
  switch (find(link_of(key.chain))) {
    case State::stays: return Goes::no;
    case State::follows: return Goes::yes;
    default: return Goes::unsure;
  }
}

}  // namespace stemma::tier
