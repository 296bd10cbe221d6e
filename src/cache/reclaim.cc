// Blocks that went and are held until their bytes are saved. Held is what the pool calls dying: released
// with a hold on it.
#include "cache/reclaim.h"

#include <algorithm>

#include "base/vectors.h"
#include "cache/shared.h"
#include "key/content_key.h"

namespace stemma::cache {

// ---- The list ----------------------------------------------------------------------------------

void ReclaimList::begin(Store& store, CellIndex cell) {
  const tree::PrefixTree& tree = store.tree();
  const auto known = std::find_if(paths_.begin(), paths_.end(),
                                  [cell](const Path& path) { return path.next == cell; });
  current_ = static_cast<size_t>(known - paths_.begin());
  if (known == paths_.end()) {
    CellIndex root = cell;
    uint32_t cells = 0;
    for (; !tree.is_root(root); root = tree.parent(root)) ++cells;
    Path path{.scope = store.scopes().find(root)->scope,
              .words = {},
              .media = {},
              .next = cell,
              .level = cells};
    const uint32_t tokens = store.cell_tokens();
    path.words.resize(size_t{path.level - 1} * tokens + tree.word_count(cell));
    for (CellIndex at = cell; cells-- > 0; at = tree.parent(at)) {
      std::copy_n(tree.words(at), tree.word_count(at), &path.words[size_t{cells} * tokens]);
    }
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
  }
  base::make_room(blocks_, size_t{paths_[current_].level} * store.group_count());
}

void ReclaimList::take_loose(Store& store, GroupIndex g, uint32_t page) {
  const CellIndex cell = store.group(g).home(page);
  const tree::PrefixTree& tree = store.tree();
  // What was forgotten is not saved.
  if (tree.is_short(cell) || tree.is_inner(cell) || tree.is_orphan(cell)) return;
  begin(store, cell);
  Path& path = paths_[current_];
  path.next = kNoCell;  // It stays, and may go later.
  hold(store, g, cell, path.level * store.cell_tokens());
}

void ReclaimList::hold(Store& store, GroupIndex g, CellIndex cell, uint32_t end) noexcept {
  const uint32_t page = store.hold_for_reclaim(g, cell, end);
  if (page == kNoPage) return;
  const Group& group = store.group(g);
  const uint32_t tokens = group.recurrent() ? 0 : group.options().block_tokens;
  blocks_.push_back({.group = g,
                     .block = BlockId{page},
                     .begin = end - tokens,
                     .end = end,
                     .key = {},
                     .path = static_cast<uint32_t>(current_)});
}

void ReclaimList::take(Store& store, CellIndex cell) noexcept {
  Path& path = paths_[current_];
  const tree::PrefixTree& tree = store.tree();
  const uint32_t end = path.level * store.cell_tokens();
  --path.level;
  path.next = tree.parent(cell);
  if (tree.is_short(cell)) return;
  for (GroupIndex g = 0; g < store.group_count(); ++g) hold(store, g, cell, end);
}

namespace {

// Without the lock: of the store only its shape is looked at. Throws std::bad_alloc.
void add_keys(const Store& store, std::span<const ReclaimList::Path> paths,
              std::span<Reclaimed::Block> blocks) {
  std::vector<ContentKey> keys;
  for (uint32_t p = 0; p < paths.size(); ++p) {
    const ReclaimList::Path& path = paths[p];
    for (GroupIndex g = 0; g < store.group_count(); ++g) {
      const Group& group = store.group(g);
      const auto ours = [&](const Reclaimed::Block& block) {
        return block.path == p && block.group == g;
      };
      const auto deepest = std::find_if(blocks.begin(), blocks.end(), ours);
      if (deepest == blocks.end()) continue;
      const uint32_t step = group.recurrent() ? store.unit_tokens() : group.options().block_tokens;
      keys.resize(deepest->end / step);
      key::chain_keys(key::root_key(path.scope), path.words, path.media, 0, step, keys);
      for (auto block = deepest; block != blocks.end(); ++block) {
        if (ours(*block)) block->key = keys[block->end / step - 1];
      }
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
    const uint64_t count = std::min<uint64_t>(needed - there, most - done);
    for (const uint32_t page : group.next_to_go(now_, count)) {
      out.take_loose(*this, g, page);
      detach_page(g, page, tenant_of(group.home(page)));
      ++done;
    }
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
