// Keeping, forgetting and watching: the calls of PagedCache that are not about one lease.
#include <algorithm>
#include <array>

#include "cache/shared.h"
#include "key/content_key.h"
#include "tree/words.h"

namespace stemma::cache {

// ---- Keeping -----------------------------------------------------------------------------------

Result<void> Shared::find_path(const Scope& scope, const Prompt& prompt, LeaseRecord& record,
                               Query& query) {
  STEMMA_TRY_VOID(read_prompt(prompt, record, query));
  if (!prompt.media.empty()) {
    const Section lock(*this);
    const ScopeTable::Root* root = store_.scopes().find(scope);
    (void)number_media(root == nullptr ? kNoCell : root->cell, record);
  }
  return walk(scope, prompt, true, record, query);
}

Result<PinResult> Shared::pin(const Scope& scope, const Prompt& prompt, uint64_t ttl_ns) {
  if (ttl_ns == 0) return Error(Errc::invalid_argument, "a pin needs a time to live");
  Borrowed record(*this);
  Query query;
  STEMMA_TRY_VOID(find_path(scope, prompt, *record, query));
  const Section lock(*this);
  const uint64_t now = store_.now_ns();
  PinResult result;
  const ScopeTable::Root* root = store_.scopes().find(scope);
  if (root == nullptr) return result;
  const Path path = judge_again(root->cell, *record, query);
  const uint32_t tokens = store_.cell_tokens();
  const uint32_t whole = key::floor_to_unit(record->spans, path.whole * tokens) / tokens;
  if (whole == 0) return result;
  const uint64_t deadline = deadline_after(now, ttl_ns);
  // Blocks of window and recurrent groups go by themselves: those that serve n are held too.
  uint32_t n = whole * tokens;
  std::vector<Store::LooseBlock> blocks;
  if (store_.has_loose_groups()) {
    const Present present(store_, path, record->spans);
    n = tree::largest_servable(store_.reaches(), n, true, present).n;
    if (n == 0) return result;
    loose_blocks(store_, path, n, present, blocks);
  }
  const uint32_t cells = (n + tokens - 1) / tokens;
  STEMMA_TRY(result.id, store_.add_pin(path.cells[cells - 1], cells, std::move(blocks), deadline));
  result.pinned_tokens = n;
  return result;
}

Result<void> Shared::unpin(PinId id) {
  const Section lock(*this);
  if (!store_.end_pin(id)) return Error(Errc::stale, "no such pin: it has expired or was ended");
  return {};
}

void Shared::end_session(SessionId session) {
  const Section lock(*this);
  store_.end_session(session);
}

Result<void> Shared::set_quota(TenantId tenant, uint64_t bytes) {
  const Section lock(*this);
  Tenant* found = store_.find_tenant(tenant);
  if (found == nullptr) {
    return Error(Errc::invalid_argument, "this tenant was not given a quota at creation",
                 static_cast<uint32_t>(tenant));
  }
  found->quota_bytes = bytes;
  return {};
}

uint64_t Shared::tenant_bytes(TenantId tenant) {
  const Section lock(*this);
  const Tenant* found = store_.find_tenant(tenant);
  return found == nullptr ? 0 : found->used_bytes;
}

std::optional<TenantId> Shared::tenant_of(const Scope& scope) {
  const Section lock(*this);
  const ScopeTable::Root* root = store_.scopes().find(scope);
  if (root == nullptr) return std::nullopt;
  return root->tenant;
}

// ---- Forgetting --------------------------------------------------------------------------------

Result<uint32_t> Shared::truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
  Borrowed record(*this);
  Query query;
  STEMMA_TRY_VOID(find_path(scope, prompt, *record, query));
  const Section lock(*this);
  const ScopeTable::Root* root = store_.scopes().find(scope);
  if (root == nullptr) return uint32_t{0};
  const CellIndex root_cell = root->cell;
  const uint32_t tenant_index = root->tenant_index;
  const Path path = judge_again(root_cell, *record, query);
  const uint32_t tokens = store_.cell_tokens();
  const uint32_t boundary = keep / tokens;
  if (boundary > path.whole || uint64_t{boundary} * tokens > query.words.size()) {
    return uint32_t{0};
  }
  tree::PrefixTree& tree = store_.tree();
  const CellIndex end = path.ending(boundary);
  std::span<const uint32_t> rest = query.words.subspan(uint64_t{boundary} * tokens);
  rest = rest.first(std::min<size_t>(rest.size(), tokens));
  // Everything below `end` that goes on like the prompt, for as long as both have words: everything,
  // where the prompt ends.
  std::vector<CellIndex> children;
  if (rest.size() < tokens) {
    tree.children(end, children);
  } else {
    children.reserve(tokens);
    tree.short_prefixes(end, rest, children);
    const CellIndex whole = tree.find_child(end, rest);
    if (whole != kNoCell) children.push_back(whole);
  }
  uint32_t gone = 0;
  store_.hold(end, boundary, tenant_index);
  for (CellIndex child : children) {
    const auto shared = std::min(tree.word_count(child), static_cast<uint32_t>(rest.size()));
    if (tree::common_words(tree.words(child), rest.data(), shared) == shared) {
      gone += store_.cut(child, tenant_index);
    }
  }
  store_.drop_inner_anchors(end, rest, tenant_index);
  LeaseRecord nobody;
  nobody.tenant_index = tenant_index;
  if (gone == 0) {
    store_.undo_hold(end, boundary, tenant_index);
  } else {
    store_.let_go(end, boundary, nobody);
  }
  return gone;
}

uint32_t Shared::drop_scope(const Scope& scope) {
  const Section lock(*this);
  const ScopeTable::Root* root = store_.scopes().find(scope);
  return root == nullptr ? 0 : store_.drop_root(root->cell);
}

Result<void> Shared::reset(OnBusy on_busy) {
  if (on_busy != OnBusy::refuse && on_busy != OnBusy::defer) {
    return Error(Errc::invalid_argument, "OnBusy is refuse or defer");
  }
  poll();
  const Section lock(*this);
  if (!store_.live().empty() && on_busy == OnBusy::refuse) {
    return Error(Errc::busy, "leases are alive", static_cast<uint32_t>(store_.live().size()));
  }
  store_.events().mute(true);  // One event says it all.
  store_.drop_all();
  store_.events().mute(false);
  store_.events().cleared();
  return {};
}

uint32_t Shared::evict(uint32_t blocks) {
  const Section lock(*this);
  return store_.evict_blocks(blocks);
}

void Shared::note_evicted(std::vector<BlockId>* into) {
  const Section lock(*this);
  store_.note_evicted(into);
}

bool Shared::holds(BlockId block) {
  const Section lock(*this);
  return store_.is_found(to_index(block));
}

// ---- Watching ----------------------------------------------------------------------------------

Stats Shared::stats() {
  Stats stats;
  const Section lock(*this);
  store_.fill_stats(stats);
  stats.index_bytes += record_bytes_.load(std::memory_order_relaxed);
  return stats;
}

Result<std::vector<uint32_t>> Shared::branch_points(const Scope& scope, const Prompt& prompt) {
  Borrowed record(*this);
  Query query;
  STEMMA_TRY_VOID(find_path(scope, prompt, *record, query));
  std::vector<uint32_t> depths;
  const Section lock(*this);
  const ScopeTable::Root* root = store_.scopes().find(scope);
  if (root == nullptr) return depths;
  const Path path = judge_again(root->cell, *record, query);
  const uint32_t tokens = store_.cell_tokens();
  for (uint32_t i = 0; i <= path.whole; ++i) {
    std::span<const uint32_t> rest = query.words.subspan(uint64_t{i} * tokens);
    rest = rest.first(std::min<size_t>(rest.size(), tokens));
    store_.tree().branch_words(path.ending(i), rest, i * tokens, depths);
  }
  return depths;
}

Result<std::vector<CachedPath>> Shared::contents() {
  std::vector<CachedPath> paths;
  const Section lock(*this);
  const tree::PrefixTree& tree = store_.tree();
  for (const ScopeTable::Root& root : store_.scopes().roots()) {
    if (root.cell == kNoCell || root.hidden) continue;
    tree.visit_below(root.cell, [&](CellIndex cell, uint32_t depth) {
      if (tree.has_child(cell)) return;
      const uint32_t tokens = (depth - 1) * store_.cell_tokens() + tree.word_count(cell);
      paths.push_back({root.scope, tokens, store_.holds(cell) != 0});
    });
  }
  return paths;
}

uint64_t Shared::events(uint64_t from, uint32_t limit, std::vector<Event>& out) {
  const Section lock(*this);
  return store_.events().copy(from, limit, out);
}

namespace {

struct CellAt {
  CellIndex cell;
  uint32_t depth;  // In cells, itself included.
};

// The blocks of one scope's cells, as events: each run of only children one, each tail one.
void dump_index(const Store& store, CellIndex root, std::span<const CellAt> cells,
                std::vector<Event>& out) {
  const tree::PrefixTree& tree = store.tree();
  for (const auto& [cell, depth] : cells) {
    const CellIndex parent = tree.parent(cell);
    const bool follows = parent != root && !tree.branches(parent) && !tree.is_short(cell);
    if (follows) continue;
    Event event;
    event.tail = tree.is_short(cell);
    event.group = store.index_group();
    event.parent = tree.key(parent);
    event.block_tokens = store.cell_tokens();
    for (CellIndex next = cell;;) {
      event.keys.push_back(tree.key(next));
      event.words.insert(event.words.end(), tree.words(next),
                         tree.words(next) + tree.word_count(next));
      if (tree.branches(next) || !tree.has_child(next)) break;
      next = tree.first_child(next);
      if (tree.is_short(next)) break;  // An event of its own.
    }
    out.push_back(std::move(event));
  }
}

// What a group beside the index has at these cells: one event of blocks, one of part-blocks.
void dump_group(const Store& store, GroupIndex g, std::span<const CellAt> cells,
                std::vector<Event>& out) {
  const Group& group = store.group(g);
  std::array<Event, 2> events;
  for (const auto& [cell, depth] : cells) {
    const uint32_t page = group.at(cell);
    if (page == kNoPage || group.home(page) != cell) continue;
    const bool tail = group.paged() && (depth % group.ratio() != 0 || store.tree().is_short(cell));
    events[tail ? 1 : 0].keys.push_back(store.tree().key(cell));
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

EventDump Shared::event_dump() {
  EventDump dump;
  const Section lock(*this);
  dump.next_sequence = store_.events().next_sequence();
  if (!store_.keyed()) return dump;
  std::vector<CellAt> cells;
  for (const ScopeTable::Root& root : store_.scopes().roots()) {
    if (root.cell == kNoCell || root.hidden) continue;
    cells.clear();
    store_.tree().visit_below(
        root.cell, [&](CellIndex cell, uint32_t depth) { cells.push_back({cell, depth}); });
    dump_index(store_, root.cell, cells, dump.events);
    for (GroupIndex g = 0; g < store_.group_count(); ++g) {
      if (!store_.group(g).numbers_cells()) dump_group(store_, g, cells, dump.events);
    }
  }
  return dump;
}

void Shared::check_invariants() {
  const Section lock(*this);
  store_.check_invariants();
}

}  // namespace stemma::cache
