#include "cache/store/holds.h"

#include "base/vectors.h"
#include "retain/touch.h"

namespace stemma::cache {

void Holds::hold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index) {
  books_.pool_of(cell).pin(books_.place_of(cell));
  depth_sum_ += depth_cells;
  books_.quotas.hold(tenant_index, depth_cells);
  books_.lose_evictable(depth_cells);
}

void Holds::unhold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index) {
  books_.pool_of(cell).unpin(books_.place_of(cell));
  depth_sum_ -= depth_cells;
  books_.quotas.unhold(tenant_index, depth_cells);
}

void Holds::undo(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index) {
  unhold(cell, depth_cells, tenant_index);
  if (books_.tree.is_orphan(cell) && !books_.tree.is_root(cell)) {
    cells_.free_orphans(cell, tenant_index);
  }
}

void Holds::let_go(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who) {
  unhold(cell, depth_cells, who.tenant_index);
  end_use(cell, depth_cells, who);
}

void Holds::end_use(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who) {
  const tree::PrefixTree& tree = books_.tree;
  if (tree.is_root(cell)) {
    cells_.close_root(cell);
    return;
  }
  if (tree.is_orphan(cell)) {
    CellIndex above = cell;
    uint32_t depth = depth_cells;
    while (tree.is_orphan(above) && !tree.is_root(above)) {
      above = tree.parent(above);
      --depth;
    }
    cells_.free_orphans(cell, who.tenant_index);
    if (depth == 0 || !tree.is_live(above)) return;
    cell = above;
    depth_cells = depth;
  }
  touch(cell, depth_cells, who);
}

void Holds::pin_draft(CellIndex cell) {
  books_.pool_of(cell).pin(books_.place_of(cell));
  ++forked_drafts_;
}

void Holds::unpin_draft(CellIndex cell, const LeaseRecord& who) {
  // Read before unpinning: a draft that was given back in the meantime becomes free by it.
  pool::BlockPool& pool = books_.pool_of(cell);
  const bool cached = pool.is_cached(books_.place_of(cell));
  pool.unpin(books_.place_of(cell));
  --forked_drafts_;
  if (!cached) return;
  // It became a cell while it was being copied from.
  uint32_t depth = 0;
  for (CellIndex c = cell; !books_.tree.is_root(c); c = books_.tree.parent(c)) ++depth;
  end_use(cell, depth, who);
}

void Holds::move_tip(LeaseRecord& record, CellIndex tip, uint32_t depth_cells) {
  // Other leases' cells on the path may have been evictable until now.
  const uint32_t deeper = depth_cells - record.published;
  books_.lose_evictable(deeper);
  books_.pool_of(tip).pin(books_.place_of(tip));
  books_.pool_of(record.tip).unpin(books_.place_of(record.tip));
  depth_sum_ += deeper;
  books_.quotas.hold(record.tenant_index, deeper);
  record.tip = tip;
  record.published = depth_cells;
}

void Holds::touch_in_class(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who,
                           Priority priority, uint64_t ttl_ns) {
  Touch touch = retain::touch_of(who.retain, priority, ttl_ns, books_.now_ns);
  touch.tenant = books_.quotas.id_of(who.tenant_index);
  touch.reused_tokens = who.report.reused_tokens;
  touch.depth_tokens = depth_cells * books_.cell_tokens();
  books_.policy->touch(cell, touch);
}

void Holds::touch(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who) {
  const auto class_at = [&](uint32_t index, Priority& priority, uint64_t& ttl) {
    priority = who.retain.priority;
    ttl = who.retain.ttl_ns;
    const uint32_t position = index * books_.cell_tokens();
    for (const PriorityRange& range : who.ranges) {
      if (position >= range.begin && position < range.end) {
        priority = range.priority;
        ttl = range.ttl_ns;
      }
    }
  };
  Priority priority;
  uint64_t ttl;
  class_at(depth_cells - 1, priority, ttl);
  touch_in_class(cell, depth_cells, who, priority, ttl);
  books_.last_uses.used(who.retain.session, cell);
  if (who.ranges.empty()) return;
  // A prefix is worth at least as much as its continuation, so classes only rise towards the root.
  // One more entry at each rise keeps every cell in its class.
  CellIndex above = books_.tree.parent(cell);
  for (uint32_t i = depth_cells - 1; i > 0; --i, above = books_.tree.parent(above)) {
    Priority p;
    uint64_t t;
    class_at(i - 1, p, t);
    if (p <= priority) continue;
    priority = p;
    touch_in_class(above, i, who, p, t);
  }
}

void Holds::touch_loaded(CellIndex cell) {
  Touch touch;
  touch.now_ns = books_.now_ns;
  touch.tenant = books_.quotas.id_of(books_.tenant_of(cell));
  books_.policy->touch(cell, touch);
}

void Holds::end_session(SessionId session) {
  const CellIndex cell = books_.last_uses.end(session);
  if (cell == kNoCell || !books_.policy->holds(cell)) return;
  Touch touch;
  touch.now_ns = books_.now_ns;
  touch.tenant = books_.quotas.id_of(books_.tenant_of(cell));
  touch.session = session;
  touch.phase = SessionPhase::ended;
  touch.expired_phase = SessionPhase::ended;
  books_.policy->touch(cell, touch);
}

// ---- Live leases -------------------------------------------------------------------------------

void Holds::prepare_live() { base::make_room(live_, 1); }

void Holds::add_live(LeaseRecord* record) noexcept {
  record->live_index = static_cast<uint32_t>(live_.size());
  live_.push_back(record);
}

void Holds::remove_live(LeaseRecord* record) noexcept {
  live_.back()->live_index = record->live_index;
  live_[record->live_index] = live_.back();
  live_.pop_back();
}

}  // namespace stemma::cache
