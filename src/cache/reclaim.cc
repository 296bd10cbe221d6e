// Blocks that went and are held until their bytes are saved. Held is what the pool calls dying: released
// with a hold on it.
#include "cache/reclaim.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "base/vectors.h"
#include "cache/shared.h"
#include "key/content_key.h"

namespace stemma::cache {

// ---- The list ----------------------------------------------------------------------------------

size_t ReclaimList::add_path(Store& store, CellIndex cell, uint32_t level) {
  const tree::PrefixTree& tree = store.tree();
  const uint32_t tokens = store.cell_tokens();
  std::vector<uint32_t> words(size_t{level - 1} * tokens + tree.word_count(cell));
  CellIndex at = cell;
  for (uint32_t i = level; i-- > 0; at = tree.parent(at)) {
    std::copy_n(tree.words(at), tree.word_count(at), &words[size_t{i} * tokens]);
  }
  Path path{.scope = store.scopes().find(at)->scope,
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
    span.identity = store.media().identity(key::media_number(path.words[i]));
    span.begin = static_cast<uint32_t>(i);
    span.end = span.begin + span.identity.length;
    path.media.push_back(span);
    i = span.end;
  }
  paths_.push_back(std::move(path));
  return paths_.size() - 1;
}

void ReclaimList::begin(Store& store, CellIndex cell) {
  if (!paths_.empty()) below_.try_emplace(paths_[current_].next, current_);
  const auto known = below_.find(cell);
  if (known != below_.end()) {
    current_ = known->second;
    below_.erase(known);
  } else {
    uint32_t level = 0;
    for (CellIndex at = cell; !store.tree().is_root(at); at = store.tree().parent(at)) ++level;
    current_ = add_path(store, cell, level);
  }
  base::make_room(blocks_, size_t{paths_[current_].level} * store.group_count());
}

void ReclaimList::take_loose(Store& store, GroupIndex g, std::span<const uint32_t> pages) {
  const tree::PrefixTree& tree = store.tree();
  struct Known {
    uint32_t level;
    size_t path;
  };
  constexpr size_t kNoPath = ~size_t{0};
  std::unordered_map<CellIndex, Known> known;  // Every cell on the way to the root, looked at once.
  std::vector<CellIndex> homes;
  std::vector<CellIndex> way;
  for (uint32_t page : pages) {
    CellIndex cell = store.group(g).home(page);
    // What was forgotten is not saved.
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
  // The deepest first: its path is also that of what lies above it.
  std::sort(homes.begin(), homes.end(),
            [&](CellIndex a, CellIndex b) { return known.at(a).level > known.at(b).level; });
  base::make_room(blocks_, homes.size());
  for (CellIndex home : homes) {
    if (known.at(home).path != kNoPath) continue;
    const size_t path = add_path(store, home, known.at(home).level);
    paths_[path].next = kNoCell;  // It stays, and may go later.
    for (CellIndex at = home; !tree.is_root(at) && known.at(at).path == kNoPath;
         at = tree.parent(at)) {
      known.at(at).path = path;
    }
  }
  for (CellIndex home : homes) {
    hold(store, g, home, known.at(home).level * store.cell_tokens(), known.at(home).path);
  }
}

void ReclaimList::hold(Store& store, GroupIndex g, CellIndex cell, uint32_t end,
                       size_t path) noexcept {
  const uint32_t page = store.hold_for_reclaim(g, cell, end);
  if (page == kNoPage) return;
  const Group& group = store.group(g);
  const uint32_t tokens = group.recurrent() ? 0 : group.options().block_tokens;
  blocks_.push_back({.group = g,
                     .block = BlockId{page},
                     .begin = end - tokens,
                     .end = end,
                     .key = {},
                     .path = static_cast<uint32_t>(path)});
}

void ReclaimList::take(Store& store, CellIndex cell) noexcept {
  Path& path = paths_[current_];
  const tree::PrefixTree& tree = store.tree();
  const uint32_t end = path.level * store.cell_tokens();
  --path.level;
  path.next = tree.parent(cell);
  if (tree.is_short(cell)) return;
  for (GroupIndex g = 0; g < store.group_count(); ++g) hold(store, g, cell, end, current_);
}

namespace {

// Without the lock: of the store only its shape is looked at. Throws std::bad_alloc.
void add_keys(const Store& store, std::span<const ReclaimList::Path> paths,
              std::span<Reclaimed::Block> blocks) {
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
    const ReclaimList::Path& path = paths[deepest.path];
    const Group& group = store.group(deepest.group);
    const uint32_t step = group.recurrent() ? store.unit_tokens() : group.options().block_tokens;
    keys.resize(deepest.end / step);
    key::chain_keys(key::root_key(path.scope), path.words, path.media, 0, step, keys);
    for (const auto run = of(&deepest); i < order.size() && of(order[i]) == run; ++i) {
      order[i]->key = keys[order[i]->end / step - 1];
    }
  }
}

}  // namespace

// ---- The store's part --------------------------------------------------------------------------

uint32_t Store::hold_for_reclaim(GroupIndex g, CellIndex cell, uint32_t end) noexcept {
  Group& group = *groups_[g];
  if (group.numbers_cells()) {
    cells_.pin(cell);
    ++reclaimed_[g];
    return cell;
  }
  const uint32_t page = group.at(cell);
  if (page == kNoPage || group.home(page) != cell) return kNoPage;
  if (end % (group.paged() ? group.options().block_tokens : unit_tokens()) != 0) return kNoPage;
  group.pool().pin(page);
  ++reclaimed_[g];
  return page;
}

uint32_t Store::unit_tokens() const noexcept {
  uint32_t tokens = cell_tokens_;
  for (const auto& group : groups_) {
    if (group->paged()) tokens = std::max(tokens, group->options().block_tokens);
  }
  return tokens;
}

uint32_t Store::cells_short_of(uint32_t positions) const noexcept {
  const auto missing = [positions](uint64_t free, uint32_t tokens) {
    const uint64_t blocks = (uint64_t{positions} + tokens - 1) / tokens;
    return blocks > free ? blocks - free : 0;
  };
  uint64_t cells = numbered_ ? 0 : missing(extra_.free_blocks(), cell_tokens_);
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    if (!group.full()) continue;
    const pool::BlockPool& pool = group.numbers_cells() ? cells_ : group.pool();
    // What is being saved is as good as free.
    const uint64_t free = uint64_t{pool.free_blocks()} + reclaimed_[g];
    cells = std::max(cells, missing(free, group.options().block_tokens) * group.ratio());
  }
  return static_cast<uint32_t>(std::min<uint64_t>(cells, kNoCell));
}

uint32_t Store::reclaim_loose(uint32_t positions, uint32_t most, ReclaimList& out) {
  uint32_t done = 0;
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    if (!group.loose()) continue;
    const uint32_t tokens = group.options().block_tokens;
    const uint32_t reach = std::min(positions, group.options().window_tokens);
    // A window, and the block that its first position is in the middle of; of states, the next one.
    const uint64_t wanted = group.recurrent() ? 1
                            : positions == 0  ? 0
                                              : (uint64_t{reach} + tokens - 1) / tokens + 1;
    const uint64_t needed = std::min<uint64_t>(wanted, group.pool().capacity());
    const uint64_t there = uint64_t{group.pool().free_blocks()} + reclaimed_[g];
    if (there >= needed || done == most) continue;
    const std::vector<uint32_t> pages =
        group.next_to_go(now_, std::min<uint64_t>(needed - there, most - done));
    out.take_loose(*this, g, pages);
    for (uint32_t page : pages) detach_page(g, page, tenant_of(group.home(page)));
    done += static_cast<uint32_t>(pages.size());
  }
  return done;
}

uint32_t Store::reclaim(uint32_t positions, uint32_t most, ReclaimList& out) {
  uint32_t done = 0;
  try {
    for (uint32_t left = most; left != 0;) {
      const uint32_t wanted = std::min(left, cells_short_of(positions));
      const uint32_t gone = wanted != 0 ? evict_some(wanted, false, kNoTenant, &out) : 0;
      if (gone == 0) break;
      left -= gone;
      done += gone;
    }
    done += reclaim_loose(positions, most - std::min(most, done), out);
  } catch (const std::bad_alloc&) {
    // What went so far is held; without memory no more goes.
  }
  events_.seal();
  return done;
}

void Store::end_reclaim(std::span<const Reclaimed::Block> blocks) noexcept {
  for (const Reclaimed::Block& block : blocks) {
    Group& group = *groups_[block.group];
    (group.numbers_cells() ? cells_ : group.pool()).unpin(to_index(block.block));
    --reclaimed_[block.group];
  }
}

// ---- PagedCache and Reclaimed ------------------------------------------------------------------

Reclaimed Shared::reclaim(uint32_t positions, uint32_t most) {
  Reclaimed reclaimed;
  ReclaimList list;
  {
    const Section lock(*this);
    reclaimed.evicted_ = store_.reclaim(positions, most, list);
    if (list.blocks().empty()) return reclaimed;
    ++reclaims_;
  }
  reclaimed.shared_ = this;
  reclaimed.blocks_ = std::move(list.blocks());
  add_keys(view_, list.paths(), reclaimed.blocks_);
  for (ReclaimList::Path& path : list.paths()) {
    if (!path.media.empty()) path.words.clear();
    reclaimed.paths_.push_back(std::move(path.words));
  }
  return reclaimed;
}

void Shared::end_reclaim(std::span<const Reclaimed::Block> blocks) noexcept {
  bool last;
  {
    const Section lock(*this);
    store_.end_reclaim(blocks);
    --reclaims_;
    last = unused();
  }
  if (last) delete this;
}

}  // namespace stemma::cache

namespace stemma {

Reclaimed::Reclaimed(Reclaimed&& other) noexcept
    : shared_(std::exchange(other.shared_, nullptr)),
      evicted_(other.evicted_),
      blocks_(std::move(other.blocks_)),
      paths_(std::move(other.paths_)) {}

Reclaimed& Reclaimed::operator=(Reclaimed&& other) noexcept {
  if (this != &other) {
    const Reclaimed old(std::move(*this));
    shared_ = std::exchange(other.shared_, nullptr);
    evicted_ = other.evicted_;
    blocks_ = std::move(other.blocks_);
    paths_ = std::move(other.paths_);
  }
  return *this;
}

Reclaimed::~Reclaimed() {
  if (shared_ != nullptr) shared_->end_reclaim(blocks_);
}

std::span<const Token> Reclaimed::words(const Block& block) const noexcept {
  if (block.path >= paths_.size() || paths_[block.path].size() < block.end) return {};
  return std::span<const Token>(paths_[block.path]).subspan(block.begin, block.end - block.begin);
}

}  // namespace stemma
