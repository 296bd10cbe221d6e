#include "cache/dump/listing.h"

#include <array>
#include <utility>

namespace stemma::cache {
namespace {

struct CellAt {
  CellIndex cell;
  uint32_t depth;  // In cells, including itself.
};

// One scope's blocks as events: one for each run of only children, one for each tail.
void list_index(const Books& books, CellIndex root, std::span<const CellAt> cells,
                std::vector<Event>& out) {
  const tree::PrefixTree& tree = books.tree;
  for (const auto& [cell, depth] : cells) {
    const CellIndex parent = tree.parent(cell);
    const bool follows = parent != root && !tree.branches(parent) && !tree.is_short(cell);
    if (follows) continue;
    Event event;
    event.tail = tree.is_short(cell);
    event.group = books.index_group();
    event.parent = tree.key(parent);
    event.block_tokens = books.cell_tokens();
    for (CellIndex next = cell;;) {
      event.keys.push_back(tree.key(next));
      event.words.insert(event.words.end(), tree.words(next),
                         tree.words(next) + tree.word_count(next));
      if (tree.branches(next) || !tree.has_child(next)) break;
      next = tree.first_child(next);
      if (tree.is_short(next)) break;  // It gets an event of its own.
    }
    out.push_back(std::move(event));
  }
}

// Reports what a group beside the index has at these cells: an event of blocks, one of part-blocks.
void list_group(const Books& books, GroupIndex g, std::span<const CellAt> cells,
                std::vector<Event>& out) {
  const Group& group = books.group(g);
  std::array<Event, 2> events;
  for (const auto& [cell, depth] : cells) {
    const uint32_t page = group.at(cell);
    if (page == kNoPage || group.home(page) != cell) continue;
    const bool tail = group.paged() && (depth % group.ratio() != 0 || books.tree.is_short(cell));
    events[tail ? 1 : 0].keys.push_back(books.tree.key(cell));
  }
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].keys.empty()) continue;
    events[i].tail = i == 1;
    events[i].group = g;
    events[i].block_tokens = group.paged() ? group.options().block_tokens : 0;
    out.push_back(std::move(events[i]));
  }
}

}  // namespace

std::vector<CachedPath> cached_paths(const Books& books) {
  std::vector<CachedPath> paths;
  for (const ScopeTable::Root& root : books.scopes.roots()) {
    if (root.cell == kNoCell || root.hidden) continue;
    books.tree.visit_below(root.cell, [&](CellIndex cell, uint32_t depth) {
      if (books.tree.has_child(cell)) return;
      const uint32_t tokens = (depth - 1) * books.cell_tokens() + books.tree.word_count(cell);
      paths.push_back({root.scope, tokens, books.holds(cell) != 0});
    });
  }
  return paths;
}

EventDump event_dump(const Books& books) {
  EventDump dump;
  dump.next_sequence = books.events.next_sequence();
  if (!books.keyed()) return dump;
  std::vector<CellAt> cells;
  for (const ScopeTable::Root& root : books.scopes.roots()) {
    if (root.cell == kNoCell || root.hidden) continue;
    cells.clear();
    books.tree.visit_below(root.cell,
                           [&](CellIndex cell, uint32_t depth) { cells.push_back({cell, depth}); });
    list_index(books, root.cell, cells, dump.events);
    for (GroupIndex g = 0; g < books.group_count(); ++g) {
      if (!books.group(g).numbers_cells()) list_group(books, g, cells, dump.events);
    }
  }
  return dump;
}

}  // namespace stemma::cache
