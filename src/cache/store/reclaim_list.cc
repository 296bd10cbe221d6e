#include "cache/store/reclaim_list.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "base/vectors.h"
#include "key/content_key.h"

namespace stemma::cache {

size_t ReclaimList::add_path(CellIndex cell, uint32_t level) {
  const tree::PrefixTree& tree = books_.tree;
  const uint32_t tokens = books_.cell_tokens();
  std::vector<uint32_t> words(size_t{level - 1} * tokens + tree.word_count(cell));
  CellIndex at = cell;
  for (uint32_t i = level; i-- > 0; at = tree.parent(at)) {
    std::copy_n(tree.words(at), tree.word_count(at), &words[size_t{i} * tokens]);
  }
  Path path{.scope = books_.scopes.find(at)->scope,
            .words = std::move(words),
            .media = {},
            .next = cell,
            .level = level};
  for (size_t i = 0; i < path.words.size();) {
    if (!key::is_media_word(path.words[i])) {
      ++i;
      continue;
    }
    key::MediaSpan span;
    span.identity = books_.media.identity(key::media_number(path.words[i]));
    span.begin = static_cast<uint32_t>(i);
    span.end = span.begin + span.identity.length;
    path.media.push_back(span);
    i = span.end;
  }
  paths_.push_back(std::move(path));
  return paths_.size() - 1;
}

void ReclaimList::begin(CellIndex cell) {
  if (!paths_.empty()) below_.try_emplace(paths_[current_].next, current_);
  const auto known = below_.find(cell);
  if (known != below_.end()) {
    current_ = known->second;
    below_.erase(known);
  } else {
    uint32_t level = 0;
    for (CellIndex at = cell; !books_.tree.is_root(at); at = books_.tree.parent(at)) ++level;
    current_ = add_path(cell, level);
  }
  base::make_room(blocks_, size_t{paths_[current_].level} * books_.group_count());
}

void ReclaimList::take_loose(GroupIndex g, std::span<const uint32_t> pages) {
  const tree::PrefixTree& tree = books_.tree;
  struct Known {
    uint32_t level;
    size_t path;
  };
  constexpr size_t kNoPath = ~size_t{0};
  std::unordered_map<CellIndex, Known> known;  // Each cell up to the root, visited once.
  std::vector<CellIndex> homes;
  std::vector<CellIndex> way;
  for (uint32_t page : pages) {
    CellIndex cell = books_.group(g).home(page);
    // Forgotten blocks are not saved.
    if (tree.is_short(cell) || tree.is_inner(cell) || tree.is_orphan(cell)) continue;
    homes.push_back(cell);
    for (way.clear(); !tree.is_root(cell) && known.count(cell) == 0; cell = tree.parent(cell)) {
      way.push_back(cell);
    }
    uint32_t level = tree.is_root(cell) ? 0 : known.at(cell).level;
    while (!way.empty()) {
      known[way.back()] = {++level, kNoPath};
      way.pop_back();
    }
  }
  // The deepest first: its path includes those of the cells above it.
  std::sort(homes.begin(), homes.end(),
            [&](CellIndex a, CellIndex b) { return known.at(a).level > known.at(b).level; });
  base::make_room(blocks_, homes.size());
  for (CellIndex home : homes) {
    if (known.at(home).path != kNoPath) continue;
    const size_t path = add_path(home, known.at(home).level);
    paths_[path].next = kNoCell;  // Keeps its place; may be evicted later.
    for (CellIndex at = home; !tree.is_root(at) && known.at(at).path == kNoPath;
         at = tree.parent(at)) {
      known.at(at).path = path;
    }
  }
  for (CellIndex home : homes) {
    hold(g, home, known.at(home).level * books_.cell_tokens(), known.at(home).path);
  }
}

void ReclaimList::hold(GroupIndex g, CellIndex cell, uint32_t end, size_t path) noexcept {
  const uint32_t page = hold_block(g, cell, end);
  if (page == kNoPage) return;
  const Group& group = books_.group(g);
  const uint32_t tokens = group.recurrent() ? 0 : group.options().block_tokens;
  blocks_.push_back({.group = g,
                     .block = BlockId{page},
                     .begin = end - tokens,
                     .end = end,
                     .key = {},
                     .path = static_cast<uint32_t>(path)});
}

void ReclaimList::take(CellIndex cell) noexcept {
  Path& path = paths_[current_];
  const tree::PrefixTree& tree = books_.tree;
  const uint32_t end = path.level * books_.cell_tokens();
  --path.level;
  path.next = tree.parent(cell);
  if (tree.is_short(cell)) return;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) hold(g, cell, end, current_);
}

uint32_t ReclaimList::hold_block(GroupIndex g, CellIndex cell, uint32_t end) noexcept {
  Group& group = books_.group(g);
  if (group.numbers_cells()) {
    books_.first.pin(cell);
    ++books_.reclaimed[g];
    return cell;
  }
  const uint32_t page = group.at(cell);
  if (page == kNoPage || group.home(page) != cell) return kNoPage;
  const uint32_t step = group.paged() ? group.options().block_tokens : books_.unit_tokens();
  if (end % step != 0) return kNoPage;
  group.pool().pin(page);
  ++books_.reclaimed[g];
  return page;
}

void ReclaimList::add_keys(std::span<Reclaimed::Block> blocks) const {
  std::vector<Reclaimed::Block*> order;
  order.reserve(blocks.size());
  for (Reclaimed::Block& block : blocks) order.push_back(&block);
  const auto of = [](const Reclaimed::Block* block) {
    return std::tuple(block->path, block->group);
  };
  std::sort(order.begin(), order.end(), [&](const Reclaimed::Block* a, const Reclaimed::Block* b) {
    return std::tuple(of(a), b->end) < std::tuple(of(b), a->end);  // The deepest first.
  });
  std::vector<ContentKey> keys;
  for (size_t i = 0; i < order.size();) {
    const Reclaimed::Block& deepest = *order[i];
    const Path& path = paths_[deepest.path];
    const Group& group = books_.group(deepest.group);
    const uint32_t step = group.recurrent() ? books_.unit_tokens() : group.options().block_tokens;
    keys.resize(deepest.end / step);
    key::chain_keys(key::root_key(path.scope), path.words, path.media, 0, step, keys);
    for (const auto run = of(&deepest); i < order.size() && of(order[i]) == run; ++i) {
      order[i]->key = keys[order[i]->end / step - 1];
    }
  }
}

std::vector<std::vector<uint32_t>> ReclaimList::take_words() {
  std::vector<std::vector<uint32_t>> words;
  for (Path& path : paths_) {
    if (!path.media.empty()) path.words.clear();
    words.push_back(std::move(path.words));
  }
  return words;
}

}  // namespace stemma::cache
