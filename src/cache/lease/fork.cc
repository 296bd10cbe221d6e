#include "cache/lease/fork.h"

#include <algorithm>

#include "cache/lease/copies.h"
#include "cache/lease/placement.h"

namespace stemma::cache {
namespace {

// Whether the lease has released blocks that a window group needs to serve n.
bool passed_window(const Group& group, const LeaseRecord& lease, GroupIndex g, uint32_t n) {
  if (!group.window()) return false;
  const uint32_t end = std::min(lease.window_low[g], group.blocks_for(n));
  for (uint32_t j = group.window_low(n); j < end; ++j) {
    if (!lease.pages[g][j].has_block()) return true;
  }
  return false;
}

// What the child knows from the start; its blocks come later. All its memory.
void copy_prompt(const LeaseRecord& lease, uint32_t n, LeaseRecord& child) {
  child.root = lease.root;
  child.tenant = lease.tenant;
  child.tenant_index = lease.tenant_index;
  child.write = lease.write;
  child.length = child.committed = child.reused = n;
  child.words_begin = lease.words_begin;
  child.words.assign(lease.words.begin(), lease.words.begin() + (n - lease.words_begin));
  child.spans = lease.spans;
  child.media_begin_end = lease.media_begin_end;
  child.media_to_process.reserve(lease.media_begin_end.size() / 2);
  child.media_numbers = lease.media_numbers;
  child.forget_media_after(n);
  child.find_media_to_process();
  child.set_retain(lease.retain);
  child.report.prompt_tokens = child.report.matched_tokens = child.report.reused_tokens = n;
  child.report.outcome = Outcome::full_hit;
  child.counted = true;  // A fork does not count as a lookup.
}

// The cell that carries the states of all recurrent groups at n, or kNoCell.
CellIndex states_at(const Books& books, LeaseRecord& lease, uint32_t n) {
  const CellIndex cell = anchor_cell(books, own_path(books, lease), n);
  for (GroupIndex g = 0; cell != kNoCell && g < books.group_count(); ++g) {
    if (books.group(g).recurrent() && books.group(g).at(cell) == kNoPage) return kNoCell;
  }
  return cell;
}

// Whether the lease's own blocks allow going back to n < committed. Blocks that a fork still copies
// from must not be overwritten.
Result<void> check_cut(const Books& books, const LeaseRecord& lease, uint32_t n) {
  const Error busy(Errc::busy, "a fork still copies from the block at this position", n);
  for (uint32_t i = n / books.cell_tokens(); i < lease.cell_count; ++i) {
    if (books.numbered() && books.holds(lease.cell_entry(i).block()) != 0) return busy;
  }
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    const Group& group = books.group(g);
    if (!group.listed()) continue;
    for (size_t j = n / group.options().block_tokens; j < lease.pages[g].size(); ++j) {
      const BlockEntry entry = lease.pages[g][j];
      if (entry.is_own() && group.pool().pins(entry.block()) != 0) return busy;
    }
  }
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    if (!passed_window(books.group(g), lease, g, n)) continue;
    return Error(Errc::out_of_range, "a window group can no longer serve this position", n);
  }
  return {};
}

// Goes back inside the lease's own blocks: those that become empty are given back.
void cut(Store& store, LeaseRecord& lease, uint32_t n) {
  const Books& books = store.books;
  const uint32_t cells = Group::blocks_of(n, books.cell_tokens());
  while (lease.cell_count > cells) {
    store.blocks.discard_cell(lease.cell_entry(--lease.cell_count).block(), lease.tenant_index);
  }
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    const Group& group = books.group(g);
    if (!group.listed()) continue;
    while (lease.pages[g].size() > group.blocks_for(n)) {
      give_up_block(store, lease, g, static_cast<uint32_t>(lease.pages[g].size() - 1));
      lease.pages[g].pop_back();
    }
    // Positions that are written again pass their blocks again.
    lease.window_low[g] = std::min(lease.window_low[g], group.window_low(n));
  }
  lease.words.resize(n - lease.words_begin);
  lease.length = n;
}

// The engine loads the states at n again.
void load_states(Store& store, LeaseRecord& lease, CellIndex states, uint32_t n) {
  for (GroupIndex g = 0; g < store.books.group_count(); ++g) {
    if (!store.books.group(g).recurrent()) continue;
    const uint32_t slot = store.books.group(g).at(states);
    store.blocks.pin(g, slot);
    lease.sources.push_back({g, slot, kNoCell, 0, 0});
    lease.copies.push_back({.group = g, .source = BlockId{slot}, .target = kNoBlock, .tokens = n});
  }
}

Result<void> go_back(Store& store, LeaseRecord& lease, uint32_t n) {
  const Books& books = store.books;
  const uint32_t published = lease.published * books.cell_tokens();
  // A running state cannot go back: a saved one is loaded.
  const bool loads = n < lease.committed &&
                     std::any_of(
                         books.reaches().begin(), books.reaches().end(),
                         [](const auto& reach) { return reach.kind == tree::Reach::recurrent; });
  if (n < published || (loads && n == published)) return step_back(store, lease, n, n, n);
  const CellIndex states = loads ? states_at(books, lease, n) : kNoCell;
  if (loads && states == kNoCell) {
    return Error(Errc::out_of_range, "no checkpoint at this position", n);
  }
  if (n < lease.committed) STEMMA_TRY_VOID(check_cut(books, lease, n));
  cut(store, lease, n);
  if (loads) load_states(store, lease, states, n);
  return {};
}

}  // namespace

Result<LeaseRecord*> fork(Core& core, LeaseRecord& lease) {
  if (!lease.copies.empty()) return Error(Errc::wrong_state, "copies are pending");
  if (lease.filling != 0) return Error(Errc::wrong_state, "fill_to is not committed yet");
  const Books& view = core.view();
  const uint32_t n = key::floor_to_unit(lease.spans, lease.committed);
  for (GroupIndex g = 0; n < lease.committed && g < view.group_count(); ++g) {
    if (view.group(g).recurrent() || passed_window(view.group(g), lease, g, n)) {
      return Error(Errc::out_of_range, "inside a media item to whose start a group cannot go back",
                   lease.committed);
    }
  }
  // First everything that needs memory.
  RecordPool::Borrowed child(core.records());
  Placement::prepare_fork(view, lease, n, *child);
  copy_prompt(lease, n, *child);
  STEMMA_TRY_VOID(core.until_room([&](Store& store, bool) -> Result<void> {
    store.holds.prepare_live();
    Placement placement(store, *child);
    placement.share_with(lease, own_path(store.books, lease), n);
    STEMMA_TRY_VOID(placement.carry_out());
    child->window_low = lease.window_low;
    for (uint32_t number : child->media_numbers) store.books.media.add_reference(number);
    for (const BlockCopy& copy : child->copies) {
      child->report.copied_tokens = std::max(child->report.copied_tokens, copy.tokens);
    }
    ++store.books.tally.forks;
    store.holds.add_live(&*child);
    return {};
  }));
  return child.keep();
}

Result<void> rewind(Core& core, LeaseRecord& lease, uint32_t n) {
  if (n > lease.length) return Error(Errc::out_of_range, "beyond the lease's words", n);
  if (!lease.copies.empty()) return Error(Errc::wrong_state, "copies are pending");
  if (lease.filling != 0) return Error(Errc::wrong_state, "fill_to is not committed yet");
  if (key::floor_to_unit(lease.spans, n) != n) {
    return Error(Errc::out_of_range, "inside a media item", n);
  }
  return core.locked([&](Store& store) -> Result<void> {
    STEMMA_TRY_VOID(go_back(store, lease, n));
    if (lease.logits != nullptr) lease.past_logits = std::move(lease.logits);
    lease.committed = std::min(lease.committed, n);
    lease.reused = std::min(lease.reused, n);
    lease.forget_media_after(n);
    lease.find_media_to_process();
    ++store.books.tally.rewinds;
    return {};
  });
}

}  // namespace stemma::cache
