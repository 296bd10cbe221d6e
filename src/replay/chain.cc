#include "replay/chain.h"

#include <algorithm>

namespace stemma::replay {

namespace {
constexpr const char* kFull = "there are more than 2^31 different blocks";
}

size_t Chain::slot_of(uint64_t id) const noexcept {
  uint64_t mixed = (id ^ (id >> 32U)) * 0x9E37'79B9'7F4A'7C15U;
  mixed ^= mixed >> 29U;
  size_t slot = mixed & (slots_.size() - 1);
  while (slots_[slot] != 0 && nodes_[slots_[slot] - 1].id != id) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

uint32_t Chain::find(uint64_t id) const noexcept {
  return slots_.empty() ? 0 : slots_[slot_of(id)];
}

void Chain::grow() {
  slots_.assign(std::max<size_t>(1024, slots_.size() * 2), 0);
  for (uint32_t node = 1; node <= nodes_.size(); ++node)
    slots_[slot_of(nodes_[node - 1].id)] = node;
}

void Chain::add(uint64_t id, uint32_t parent, uint64_t line) {
  if (2 * (nodes_.size() + 1) > slots_.size()) grow();
  const size_t slot = slot_of(id);
  nodes_.push_back({id, parent, 0, depth(parent) + 1, static_cast<uint32_t>(line)});
  slots_[slot] = size();
  (parent == 0 ? first_child_ : nodes_[parent - 1].last_child) = size();
}

void Chain::remove_last() noexcept {
  // Nothing was added to the table after it, so no search passes over its slot.
  const Node last = nodes_.back();
  slots_[slot_of(last.id)] = 0;
  uint32_t& guess = last.parent == 0 ? first_child_ : nodes_[last.parent - 1].last_child;
  if (guess == nodes_.size()) guess = 0;
  nodes_.pop_back();
}

std::string Chain::follow(std::span<const uint64_t> ids, uint64_t line, std::vector<Token>& out) {
  const size_t words_before = out.size();
  const size_t nodes_before = nodes_.size();
  const auto undo = [&] {
    while (nodes_.size() > nodes_before) remove_last();
    out.resize(words_before);
  };
  uint32_t at = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t id = ids[i];
    uint32_t next = at == 0 ? first_child_ : nodes_[at - 1].last_child;
    if (next == 0 || nodes_[next - 1].id != id) {
      next = find(id);
      if (next == 0) {
        if (full()) {
          undo();
          return kFull;
        }
        add(id, at, line);
        next = size();
      } else if (nodes_[next - 1].parent != at) {
        const Node& known = nodes_[next - 1];
        const auto behind = [&](uint32_t node) {
          return node == 0 ? std::string("is first")
                           : "follows " + std::to_string(nodes_[node - 1].id);
        };
        std::string problem = "id " + std::to_string(id) + " " + behind(at) + " here and " +
                              behind(known.parent) + " on line " + std::to_string(known.line) +
                              ": an id stands for all before it";
        undo();
        return problem;
      } else {
        (at == 0 ? first_child_ : nodes_[at - 1].last_child) = next;
      }
    }
    out.push_back(next - 1);
    at = next;
  }
  return {};
}

std::string Chain::extend(uint64_t node, uint64_t fresh, uint64_t line, std::vector<Token>& out) {
  if (node > nodes_.size()) {
    return "path names block " + std::to_string(node) + ", and there are " +
           std::to_string(nodes_.size()) + " so far";
  }
  if (fresh >= kTokenLimit - 2 - nodes_.size()) return kFull;
  const size_t begin = out.size();
  out.resize(begin + depth(node));
  auto at = static_cast<uint32_t>(node);
  for (size_t i = out.size(); i > begin; --i, at = nodes_[at - 1].parent) out[i - 1] = at - 1;
  at = static_cast<uint32_t>(node);
  for (uint64_t i = 0; i < fresh; ++i) {
    nodes_.push_back({0, at, 0, depth(at) + 1, static_cast<uint32_t>(line)});
    at = size();
    out.push_back(at - 1);
  }
  return {};
}

}  // namespace stemma::replay
