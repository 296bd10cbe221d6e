// What a lease does while it lives: copies, growing, committing.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/vectors.h"
#include "cache/shared.h"
#include "key/content_key.h"
#include "stemma/log.h"

namespace stemma::cache {

// ---- Copies ------------------------------------------------------------------------------------

void Shared::release_source(LeaseRecord& lease, const CopySource& source) {
  if (source.page != kPageMask) {
    const Group& group = store_.group(source.group);
    const uint32_t at = group.recurrent() ? lease.committed - std::min(lease.committed, 1U)
                                          : source.block * group.options().block_tokens;
    store_.unpin_page(source.group, source.page, lease, at);
  }
  if (source.cell == kNoCell) return;
  if (source.depth_cells != 0) {
    store_.let_go(source.cell, source.depth_cells, lease);
  } else {
    store_.unpin_draft_cell(source.cell, lease);
  }
}

void Shared::release_sources(LeaseRecord& lease) {
  for (const CopySource& source : lease.sources) release_source(lease, source);
  lease.sources.clear();
  lease.copies.clear();
}

Result<void> Shared::copies_done(LeaseRecord& lease) {
  if (lease.copies.empty()) return {};
  const Section lock(*this);
  release_sources(lease);
  return {};
}

Result<void> Shared::copies_failed(LeaseRecord& lease) {
  if (lease.copies.empty()) return Error(Errc::wrong_state, "no copies are pending");
  const Section lock(*this);
  const Path path = own_path(lease);
  const bool state_lost = std::any_of(lease.copies.begin(), lease.copies.end(),
                                      [](const BlockCopy& c) { return c.target == kNoBlock; });
  uint32_t n = 0;
  if (!state_lost) {
    const uint32_t limit = std::min(lease.committed, lease.published * store_.cell_tokens());
    n = tree::largest_servable(store_.reaches(), limit, false, Present(store_, path, lease.spans))
            .n;
    // A recurrent checkpoint further back would have to be loaded, which just failed for others.
    for (const tree::GroupReach& reach : store_.reaches()) {
      if (reach.kind == tree::Reach::recurrent) n = 0;
    }
  }
  if (Result<void> room = step_back(lease, n, lease.length, capacity(lease)); !room) {
    return refuse(room.error());
  }
  lease.committed = n;
  if (n < lease.reused) {
    lease.reused = n;
    lease.logits.reset();
    Report& report = lease.report;
    report.reused_tokens = n;
    report.copied_tokens = 0;
    report.reason = MissReason::gave_up;
    report.to_compute_tokens = report.prompt_tokens - std::min(n, report.prompt_tokens);
    report.outcome = n == 0 ? Outcome::miss : Outcome::partial_hit;
    find_media_to_process(lease);
  }
  return {};
}

Result<void> Shared::run_copies(LeaseRecord& lease) {
  if (options_.block_io == nullptr) {
    return Error(Errc::unsupported, "Options::block_io was not given");
  }
  if (lease.copies.empty()) return {};
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<void>> outcome;
  } wait;
  options_.block_io->copy(
      lease.copies,
      [](void* user, Result<void> outcome) {
        auto* w = static_cast<Wait*>(user);
        const std::lock_guard lock(w->mutex);
        w->outcome.emplace(outcome);
        w->changed.notify_one();
      },
      &wait);
  {
    std::unique_lock lock(wait.mutex);
    wait.changed.wait(lock, [&] { return wait.outcome.has_value(); });
  }
  if (*wait.outcome) return copies_done(lease);
  log_line(LogLevel::warning, [&] {
    return "copying part-blocks failed; the request computes them again: " +
           wait.outcome->error().to_string();
  });
  STEMMA_TRY_VOID(copies_failed(lease));
  return Error(Errc::copy_failed, "the copy failed; the lease stepped back", lease.reused);
}

Result<uint32_t> Shared::shrink_to(LeaseRecord& lease, uint32_t n) {
  if (n > lease.reused) return Error(Errc::out_of_range, "more than was reused", lease.reused);
  if (lease.committed != lease.reused) {
    return Error(Errc::wrong_state, "positions beyond the reused ones are committed already",
                 lease.committed);
  }
  if (n == lease.reused) return n;
  if (lease.filling != 0) return Error(Errc::wrong_state, "fill_to is not committed yet");
  const Section lock(*this);
  n = key::floor_to_unit(lease.spans, n);
  if (!shorten_copies(lease, n)) {
    const Path path = own_path(lease);
    const uint32_t limit = std::min(n, lease.published * store_.cell_tokens());
    n = tree::largest_servable(store_.reaches(), limit, true, Present(store_, path, lease.spans)).n;
    if (Result<void> room = step_back(lease, n, lease.length, capacity(lease)); !room) {
      return refuse(room.error());
    }
  }
  lease.reused = lease.committed = n;
  lease.logits.reset();
  Report& report = lease.report;
  report.reused_tokens = n;
  report.copied_tokens = 0;
  for (const BlockCopy& copy : lease.copies) {
    if (copy.target != kNoBlock) report.copied_tokens = std::max(report.copied_tokens, copy.tokens);
  }
  report.to_compute_tokens = report.prompt_tokens - n;
  report.outcome = n == 0 ? Outcome::miss : Outcome::partial_hit;
  report.reason = MissReason::gave_up;
  find_media_to_process(lease);
  return n;
}

bool Shared::shorten_copies(LeaseRecord& lease, uint32_t n) {
  // Between the shared cells and what was reused lies only a copied part-block, done or pending:
  // fewer of its positions count. (A recurrent state is right at one depth only.)
  if (n <= lease.published * store_.cell_tokens()) return false;
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    const Group& group = store_.group(g);
    if (group.recurrent()) return false;
    if (!group.window()) continue;
    const GroupOptions& options = group.options();
    const uint32_t reach = n - std::min(n, options.window_tokens);
    for (size_t j = reach / options.block_tokens; j < lease.pages[g].size(); ++j) {
      if (lease.pages[g][j] == kPageMask) return false;
    }
  }
  size_t left = 0;
  for (size_t i = 0; i < lease.copies.size(); ++i) {
    const CopySource source = lease.sources[i];
    const uint32_t block_tokens = store_.group(source.group).options().block_tokens;
    const uint32_t begin = source.block * block_tokens;
    if (n <= begin) {
      release_source(lease, source);
      continue;
    }
    lease.copies[left] = lease.copies[i];
    lease.copies[left].tokens = std::min(lease.copies[i].tokens, n - begin);
    lease.sources[left++] = source;
  }
  lease.copies.resize(left);
  lease.sources.resize(left);
  return true;
}

// ---- Growing -----------------------------------------------------------------------------------

Need Shared::growth(const LeaseRecord& lease, uint32_t capacity) const {
  Need need;
  const uint32_t tokens = view_.cell_tokens();
  const uint32_t cells = (capacity - 1) / tokens + 1;
  if (cells > lease.cell_count) need.cells = cells - lease.cell_count;
  for (GroupIndex g = 0; g < view_.group_count(); ++g) {
    const Group& group = view_.group(g);
    if (group.recurrent()) continue;
    if (group.numbers_cells()) {
      need.blocks[g] = need.cells;
      need.kept[g] = lease.cell_count;
      continue;
    }
    const uint32_t blocks = (capacity - 1) / group.options().block_tokens + 1;
    const auto have = static_cast<uint32_t>(lease.pages[g].size());
    if (blocks > have) need.blocks[g] = blocks - have;
    if (group.full()) need.kept[g] = have;  // A window's blocks go as it advances.
  }
  if (view_.numbered()) need.cells = 0;
  if (!view_.numbered()) need.kept_cells = lease.cell_count;
  return need;
}

void Shared::prepare_growth(LeaseRecord& lease, uint32_t capacity) {
  const uint32_t cells = (capacity - 1) / view_.cell_tokens() + 1;
  if (lease.cells.size() < cells) lease.cells.resize(cells);
  for (GroupIndex g = 0; g < view_.group_count(); ++g) {
    const Group& group = view_.group(g);
    if (group.recurrent() || group.numbers_cells()) continue;
    const size_t blocks = (capacity - 1) / group.options().block_tokens + 1;
    const size_t have = lease.pages[g].size();
    if (blocks > have) base::make_room(lease.pages[g], blocks - have);
  }
}

void Shared::draft_up_to(LeaseRecord& lease, uint32_t capacity) {
  const uint32_t tokens = store_.cell_tokens();
  const uint32_t cells = (capacity - 1) / tokens + 1;
  while (lease.cell_count < cells) {
    lease.cells[lease.cell_count++] = store_.draft_cell(lease.tenant_index) | kOwn;
  }
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    const Group& group = store_.group(g);
    if (group.recurrent() || group.numbers_cells()) continue;
    const uint32_t blocks = (capacity - 1) / group.options().block_tokens + 1;
    while (lease.pages[g].size() < blocks) {
      lease.pages[g].push_back(store_.draft(g, lease.tenant_index) | kOwn);
    }
  }
}

Result<void> Shared::grow(LeaseRecord& lease, uint32_t positions) {
  if (positions <= capacity(lease)) return {};
  const Need need = growth(lease, positions);
  // What can never fit gets its refusal from the pool, and no tables before.
  if (view_.could_fit(need)) prepare_growth(lease, positions);
  for (uint32_t tries = 0;; ++tries) {
    {
      const Section lock(*this);
      const Result<void> room = store_.make_room(need, lease.tenant_index);
      if (room) {
        draft_up_to(lease, positions);
        return {};
      }
      if (give_up(tries)) return refuse(room.error());
    }
    poll();
  }
}

Result<void> Shared::reserve(LeaseRecord& lease, uint32_t positions) {
  if (positions > key::kMaxPromptPositions) {
    return Error(Errc::out_of_range, "more than 2^31 - 1 positions", positions);
  }
  return grow(lease, positions);
}

Result<void> Shared::extend(LeaseRecord& lease, std::span<const Token> tokens) {
  if (tokens.size() > key::kMaxPromptPositions - lease.length) {
    return Error(Errc::out_of_range, "the lease would be longer than 2^31 - 1 positions");
  }
  if (const auto bad = key::first_bad_token(tokens)) {
    return Error(Errc::invalid_argument, "not a token (2^31 or more) at this position", *bad);
  }
  const uint32_t length = lease.length + static_cast<uint32_t>(tokens.size());
  base::make_room(lease.words, tokens.size());
  STEMMA_TRY_VOID(grow(lease, length));
  lease.words.insert(lease.words.end(), tokens.begin(), tokens.end());
  lease.length = length;
  return {};
}

// ---- Committing --------------------------------------------------------------------------------

void Shared::count(LeaseRecord& lease) {
  if (lease.counted) return;
  lease.counted = true;
  store_.counters().count(lease.report, store_.now_ns());
}

void Shared::chain_keys(LeaseRecord& lease, uint32_t first_cell, uint32_t cells) {
  const uint32_t tokens = view_.cell_tokens();
  lease.keys.resize(cells);
  const std::span<const uint32_t> words =
      lease.words_of(first_cell * tokens, (first_cell + cells) * tokens);
  // The tip is held, so its key does not change under us.
  const ContentKey parent = view_.tree().key(lease.tip);
  if (lease.spans.empty()) {
    key::chain_keys(parent, words, tokens, lease.keys);
    return;
  }
  std::vector<key::MediaRun> room(tokens);
  const ContentKey* last = &parent;
  for (uint32_t i = 0; i < cells; ++i) {
    const auto runs = key::media_runs(lease.spans, (first_cell + i) * tokens, tokens, room);
    lease.keys[i] = key::block_key(*last, words.subspan(uint64_t{i} * tokens, tokens), runs);
    last = &lease.keys[i];
  }
}

Result<Commit> Shared::commit(LeaseRecord& lease, uint32_t n) {
  if (!lease.copies.empty()) return Error(Errc::wrong_state, "copies are pending");
  if (n > lease.length) return Error(Errc::out_of_range, "beyond the lease's words", n);
  if (n > capacity(lease)) return Error(Errc::out_of_range, "beyond the drafted room", n);
  if (n < lease.committed) {
    return Error(Errc::out_of_range, "below what is committed; rewind() first", n);
  }
  if (n < lease.filling && n % view_.unit_tokens() != 0) {
    return Error(Errc::out_of_range, "a lease that fills commits multiples of every block_tokens",
                 n);
  }
  const uint32_t tokens = view_.cell_tokens();
  Commit result;
  result.committed = n;
  const uint32_t whole =
      lease.write ? key::floor_to_unit(lease.spans, n) / tokens : lease.published;
  const uint32_t first = lease.published;
  const uint32_t fresh = whole > first ? whole - first : 0;
  if (fresh != 0 && view_.keyed()) chain_keys(lease, first, fresh);

  const Section lock(*this);
  tree::PrefixTree& tree = store_.tree();
  const uint32_t filled = lease.filling;
  if (n >= filled) lease.filling = 0;
  if (filled != 0 && lease.write) fill_holes(lease, whole);
  CellIndex tip = lease.tip;
  // The cells up to kHintDistance levels above the next one, by level.
  std::array<CellIndex, tree::kHintDistance> above;
  above.fill(tree.sentinel());
  CellIndex cell_above = tip;
  for (uint32_t i = 0; i < tree::kHintDistance && i < first && fresh != 0; ++i) {
    above[(first - 1 - i) % tree::kHintDistance] = cell_above;
    cell_above = tree.parent(cell_above);
  }
  constexpr uint32_t kAhead = 8;  // Drafts are scattered; load their lines before they are written.
  for (uint32_t i = first; i < first + fresh; ++i) {
    if (i + kAhead < first + fresh) store_.prefetch_draft(lease.cells[i + kAhead] & kPageMask);
    const std::span<const uint32_t> words = lease.words_of(i * tokens, (i + 1) * tokens);
    const bool only_child = !tree.has_child(tip);
    CellIndex cell = only_child ? kNoCell : tree.find_child(tip, words);
    if (cell == kNoCell) {
      cell = lease.cells[i] & kPageMask;
      lease.cells[i] = cell;
      store_.publish_cell(cell, tip, above[i % tree::kHintDistance], words,
                          view_.keyed() ? &lease.keys[i - first] : nullptr, lease.tenant_index);
      if (!only_child) store_.absorb_tails(cell, lease.tenant_index);
      result.published += tree.is_orphan(cell) ? 0 : 1;
    } else {
      ++result.duplicates;
      ++store_.tally.duplicates;
      if (!store_.numbered()) {
        // Only the cell is given up; the lease's blocks of the groups stay its own.
        store_.discard_cell(lease.cells[i] & kPageMask, lease.tenant_index);
        lease.cells[i] = cell;
      }
    }
    above[i % tree::kHintDistance] = cell;
    tip = cell;
    for (GroupIndex g = 0; g < store_.group_count(); ++g) {
      const Group& group = store_.group(g);
      if (group.numbers_cells() || group.recurrent() || (i + 1) % group.ratio() != 0) continue;
      enter_own(lease, g, cell, i);
    }
  }
  if (tip != lease.tip) store_.move_tip(lease, tip, first + fresh);
  const uint64_t now = store_.now_ns();
  if (fresh != 0) store_.counters().sample_birth(tree.births(), now);
  store_.events().seal();
  const uint32_t computed = n - std::min(n, std::max({lease.committed, lease.reused, filled}));
  if (computed != 0) store_.counters().add_computed(computed, now);
  lease.committed = n;
  advance_windows(lease);
  if (n > lease.reused) count(lease);
  return result;
}

void Shared::enter_own(LeaseRecord& lease, GroupIndex g, CellIndex cell, uint32_t index) {
  const Group& group = store_.group(g);
  uint32_t& entry = lease.pages[g][index / group.ratio()];
  // A hole in somebody else's cell is filled by ours; where there is a block, ours stays ours.
  if ((entry & kOwn) == 0 || group.at(cell) != kNoPage) return;
  const uint32_t page = entry & kPageMask;
  store_.attach_page(g, cell, page, group.ratio(), lease.tenant_index);
  entry = page;
  if (group.loose()) {
    store_.pin_page(g, page);
    entry |= kPinned;
  }
}

void Shared::fill_holes(LeaseRecord& lease, uint32_t cells) {
  CellIndex cell = lease.tip;
  for (uint32_t i = lease.published; i-- > 0; cell = store_.tree().parent(cell)) {
    if (i >= cells) continue;
    for (GroupIndex g = 0; g < store_.group_count(); ++g) {
      const Group& group = store_.group(g);
      if (group.window() && (i + 1) % group.ratio() == 0) enter_own(lease, g, cell, i);
    }
  }
}

void Shared::advance_windows(LeaseRecord& lease) {
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    const Group& group = store_.group(g);
    if (!group.window()) continue;
    const GroupOptions& options = group.options();
    if (lease.committed <= options.window_tokens) continue;
    const uint32_t low = (lease.committed - options.window_tokens) / options.block_tokens;
    const uint32_t sinks = (options.sink_tokens + options.block_tokens - 1) / options.block_tokens;
    for (uint32_t j = lease.window_low[g]; j < low; ++j) {
      uint32_t& entry = lease.pages[g][j];
      if (j < sinks || entry == kPageMask) continue;
      if ((entry & kOwn) != 0) {
        store_.discard(g, entry & kPageMask, lease.tenant_index);
      } else {
        store_.unpin_page(g, entry & kPageMask, lease, j * options.block_tokens,
                          Store::Leaving::passed);
      }
      entry = kPageMask;
    }
    lease.window_low[g] = std::max(lease.window_low[g], low);
  }
}

uint32_t Shared::adopt_canonical(LeaseRecord& lease) {
  const Section lock(*this);
  uint32_t given_up = 0;
  CellIndex cell = lease.tip;
  for (uint32_t i = lease.published; i-- > 0; cell = store_.tree().parent(cell)) {
    if (store_.numbered() && (lease.cells[i] & kOwn) != 0) {
      store_.discard_cell(lease.cells[i] & kPageMask, lease.tenant_index);
      lease.cells[i] = cell;
      ++given_up;
    }
    for (GroupIndex g = 0; g < store_.group_count(); ++g) {
      const Group& group = store_.group(g);
      if (group.numbers_cells() || group.recurrent() || (i + 1) % group.ratio() != 0) continue;
      uint32_t& entry = lease.pages[g][i / group.ratio()];
      if (entry == kPageMask || (entry & kOwn) == 0) continue;
      const uint32_t page = group.at(cell);
      if (page == kNoPage) continue;
      store_.discard(g, entry & kPageMask, lease.tenant_index);
      entry = page;
      if (group.loose()) {
        store_.pin_page(g, page);
        entry |= kPinned;
      }
      if (!store_.numbered() || g == 0) ++given_up;
    }
  }
  return given_up;
}

}  // namespace stemma::cache
