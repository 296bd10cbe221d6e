// Leaving the line: a lease's fork, and its way back.
#include <algorithm>

#include "base/check.h"
#include "base/vectors.h"
#include "cache/shared.h"

namespace stemma::cache {

bool Shared::passed_window(const LeaseRecord& lease, GroupIndex g, uint32_t n) const {
  const GroupOptions& options = view_.group(g).options();
  const uint32_t size = options.block_tokens;
  const uint32_t low = n > options.window_tokens ? (n - options.window_tokens) / size : 0;
  const uint32_t end = std::min(lease.window_low[g], (n + size - 1) / size);
  for (uint32_t j = low; j < end; ++j) {
    if (lease.pages[g][j] == kPageMask) return true;
  }
  return false;
}

Result<LeaseRecord*> Shared::fork(LeaseRecord& lease) {
  if (!lease.copies.empty()) return Error(Errc::wrong_state, "copies are pending");
  if (lease.filling != 0) return Error(Errc::wrong_state, "fill_to is not committed yet");
  const uint32_t n = key::floor_to_unit(lease.spans, lease.committed);
  for (GroupIndex g = 0; n < lease.committed && g < view_.group_count(); ++g) {
    if (view_.group(g).recurrent() || (view_.group(g).window() && passed_window(lease, g, n))) {
      return Error(Errc::out_of_range, "inside a media item to whose start a group cannot go back",
                   lease.committed);
    }
  }
  Borrowed child(*this);
  const uint32_t tokens = view_.cell_tokens();
  const uint32_t cells = (n + tokens - 1) / tokens;
  struct Source {
    GroupIndex group;
    uint32_t block;
  };
  std::vector<Source> copies;
  // All memory first.
  size_t most_copies = cells - lease.published;
  for (GroupIndex g = 0; g < view_.group_count(); ++g) {
    const Group& group = view_.group(g);
    if (group.numbers_cells() || group.recurrent()) continue;
    const uint32_t block_tokens = group.options().block_tokens;
    child->pages[g].reserve((n + block_tokens - 1) / block_tokens);
    most_copies +=
        static_cast<size_t>(std::count_if(lease.pages[g].begin(), lease.pages[g].end(),
                                          [](uint32_t entry) { return (entry & kOwn) != 0; }));
  }
  copies.reserve(most_copies);
  child->copies.reserve(most_copies);
  child->sources.reserve(most_copies);
  if (child->cells.size() < cells) child->cells.resize(cells);
  child->words.reserve(n - lease.words_begin);
  child->spans.reserve(lease.spans.size());
  child->media_numbers.reserve(lease.media_numbers.size());
  child->media_begin_end.reserve(lease.media_begin_end.size());
  child->media_to_process.reserve(lease.media_begin_end.size() / 2);
  for (uint32_t tries = 0;; ++tries) {
    {
      const Section lock(*this);
      store_.prepare_live();
      const Path path = own_path(lease);
      // What is not findable is copied from the parent's own blocks.
      Need need;
      if (!store_.numbered()) need.cells = cells - lease.published;
      copies.clear();
      for (GroupIndex g = 0; g < store_.group_count(); ++g) {
        const Group& group = store_.group(g);
        if (group.recurrent()) continue;
        if (group.numbers_cells()) {
          for (uint32_t i = lease.published; i < cells; ++i) copies.push_back({g, i});
          need.blocks[g] = cells - lease.published;
          continue;
        }
        const uint32_t block_tokens = group.options().block_tokens;
        for (uint32_t j = 0; j < (n + block_tokens - 1) / block_tokens; ++j) {
          const uint32_t entry = lease.pages[g][j];
          if (entry == kPageMask || (entry & kOwn) == 0) continue;
          const bool whole = (j + 1) * group.ratio() <= lease.published;
          if (whole && group.at(path.cells[(j + 1) * group.ratio() - 1]) != kNoPage) continue;
          copies.push_back({g, j});
          ++need.blocks[g];
        }
      }
      // The canonical blocks that the child will share must not be taken by making room.
      store_.hold(lease.tip, lease.published, lease.tenant_index);
      for (GroupIndex g = 0; g < store_.group_count(); ++g) {
        const Group& group = store_.group(g);
        if (group.numbers_cells() || group.recurrent()) continue;
        child->pages[g].clear();
        for (uint32_t j = 0;
             j < (n + group.options().block_tokens - 1) / group.options().block_tokens; ++j) {
          const uint32_t entry = lease.pages[g][j];
          uint32_t shared = kPageMask;
          if (entry != kPageMask) {
            const bool whole = (j + 1) * group.ratio() <= lease.published;
            const uint32_t canonical =
                whole ? group.at(path.cells[(j + 1) * group.ratio() - 1]) : kNoPage;
            if ((entry & kOwn) == 0) {
              shared = entry & kPageMask;
            } else if (canonical != kNoPage) {
              shared = canonical;
            }
          }
          if (shared != kPageMask && group.loose()) {
            if (group.waiting(shared)) ++need.reserved[g];
            shared |= kPinned;
          }
          child->pages[g].push_back(shared);
        }
      }
      const Result<void> room = store_.check_room(need, lease.tenant_index);
      if (room) {
        for (GroupIndex g = 0; g < store_.group_count(); ++g) {
          for (uint32_t entry : child->pages[g]) {
            if (entry != kPageMask && (entry & kPinned) != 0) store_.pin_page(g, entry & kPageMask);
          }
        }
        store_.evict_for(need, lease.tenant_index);
        child->root = lease.root;
        child->tip = lease.tip;
        child->published = lease.published;
        child->tenant = lease.tenant;
        child->tenant_index = lease.tenant_index;
        child->write = lease.write;
        child->length = child->committed = n;
        child->reused = std::min(lease.reused, n);
        child->words_begin = lease.words_begin;
        child->words.assign(lease.words.begin(), lease.words.begin() + (n - lease.words_begin));
        child->spans = lease.spans;
        child->media_numbers = lease.media_numbers;
        for (uint32_t number : child->media_numbers) store_.media().add_reference(number);
        child->media_begin_end = lease.media_begin_end;
        forget_media_after(*child, n);
        child->window_low = lease.window_low;
        child->checkpoint.fill(kPageMask);
        set_retain(*child, lease.retain);
        child->ranges = lease.ranges;
        child->report.prompt_tokens = child->report.matched_tokens = n;
        child->report.reused_tokens = n;
        child->report.outcome = Outcome::full_hit;
        child->counted = true;  // A fork is no lookup.
        child->reused = n;
        std::copy(path.cells, path.cells + lease.published, child->cells.begin());
        for (uint32_t i = lease.published; i < cells; ++i) {
          child->cells[i] = store_.draft_cell(lease.tenant_index) | kOwn;
        }
        child->cell_count = cells;
        child->own_from = lease.published;
        for (const Source& copy : copies) {
          const Group& group = store_.group(copy.group);
          const uint32_t block_tokens = group.options().block_tokens;
          BlockCopy block;
          block.group = copy.group;
          block.tokens = std::min(block_tokens, n - copy.block * block_tokens);
          CopySource source;
          source.group = copy.group;
          source.block = copy.block;
          if (group.numbers_cells()) {
            source.cell = lease.cells[copy.block] & kPageMask;
            store_.pin_draft_cell(source.cell);
            block.source = BlockId{source.cell};
            block.target = BlockId{child->cells[copy.block] & kPageMask};
          } else {
            source.page = lease.pages[copy.group][copy.block] & kPageMask;
            store_.pin_page(copy.group, source.page);
            block.source = BlockId{source.page};
            child->pages[copy.group][copy.block] =
                store_.draft(copy.group, lease.tenant_index) | kOwn;
            block.target = BlockId{child->pages[copy.group][copy.block] & kPageMask};
          }
          child->sources.push_back(source);
          child->copies.push_back(block);
          child->report.copied_tokens = std::max(child->report.copied_tokens, block.tokens);
        }
        ++store_.tally.forks;
        store_.add_live(&*child);
        find_media_to_process(*child);
        return child.keep();
      }
      store_.undo_hold(lease.tip, lease.published, lease.tenant_index);
      if (give_up(tries)) return refuse(room.error());
    }
    poll();
  }
}

void Shared::forget_media_after(LeaseRecord& lease, uint32_t n) {
  while (!lease.spans.empty() && lease.spans.back().end > n) lease.spans.pop_back();
  for (size_t i = 0; i + 1 < lease.media_begin_end.size(); i += 2) {
    // Others keep their places: callers know items by their index.
    if (lease.media_begin_end[i + 1] > n) {
      lease.media_begin_end[i] = lease.media_begin_end[i + 1] = 0;
    }
  }
}

Result<void> Shared::rewind(LeaseRecord& lease, uint32_t n) {
  if (n > lease.length) return Error(Errc::out_of_range, "beyond the lease's words", n);
  if (!lease.copies.empty()) return Error(Errc::wrong_state, "copies are pending");
  if (lease.filling != 0) return Error(Errc::wrong_state, "fill_to is not committed yet");
  if (key::floor_to_unit(lease.spans, n) != n) {
    return Error(Errc::out_of_range, "inside a media item", n);
  }
  const uint32_t tokens = view_.cell_tokens();
  const Section lock(*this);
  bool recurrent = false;
  for (const tree::GroupReach& reach : store_.reaches()) {
    recurrent = recurrent || reach.kind == tree::Reach::recurrent;
  }
  // A running state cannot go back: it is loaded from where it was saved.
  const bool load_states = recurrent && n < lease.committed;
  CellIndex states = kNoCell;
  if (load_states && n > lease.published * tokens) {
    states = anchor_cell(store_, own_path(lease), n);
    for (GroupIndex g = 0; g < store_.group_count(); ++g) {
      if (!store_.group(g).recurrent()) continue;
      if (states == kNoCell || store_.group(g).at(states) == kNoPage) {
        return Error(Errc::out_of_range, "no checkpoint at this position", n);
      }
    }
  }
  if (n < lease.published * tokens || (load_states && n == lease.published * tokens)) {
    if (Result<void> room = step_back(lease, n, n, n); !room) return refuse(room.error());
  } else {
    // Inside the lease's own blocks: those emptied by it go back. What a fork still copies from
    // must not be written over.
    for (uint32_t i = n / tokens; n < lease.committed && i < lease.cell_count; ++i) {
      if (store_.numbered() && store_.holds(lease.cells[i] & kPageMask) != 0) {
        return Error(Errc::busy, "a fork still copies from the block at this position", n);
      }
    }
    for (GroupIndex g = 0; n < lease.committed && g < store_.group_count(); ++g) {
      const Group& group = store_.group(g);
      if (group.numbers_cells() || group.recurrent()) continue;
      for (size_t j = n / group.options().block_tokens; j < lease.pages[g].size(); ++j) {
        const uint32_t entry = lease.pages[g][j];
        if ((entry & kOwn) != 0 && group.pool().pins(entry & kPageMask) != 0) {
          return Error(Errc::busy, "a fork still copies from the block at this position", n);
        }
      }
    }
    for (GroupIndex g = 0; g < store_.group_count(); ++g) {
      const Group& group = store_.group(g);
      if (group.window() && n < lease.committed && passed_window(lease, g, n)) {
        return Error(Errc::out_of_range, "a window group can no longer serve this position", n);
      }
    }
    const uint32_t cells = (n + tokens - 1) / tokens;
    while (lease.cell_count > cells) {
      store_.discard_cell(lease.cells[--lease.cell_count] & kPageMask, lease.tenant_index);
    }
    for (GroupIndex g = 0; g < store_.group_count(); ++g) {
      const Group& group = store_.group(g);
      if (group.numbers_cells() || group.recurrent()) continue;
      const uint32_t block_tokens = group.options().block_tokens;
      while (lease.pages[g].size() > (n + block_tokens - 1) / block_tokens) {
        const uint32_t entry = lease.pages[g].back();
        if ((entry & kOwn) != 0 && entry != kPageMask) {
          store_.discard(g, entry & kPageMask, lease.tenant_index);
        } else if (entry != kPageMask && (entry & kPinned) != 0) {
          const auto block = static_cast<uint32_t>(lease.pages[g].size() - 1);
          store_.unpin_page(g, entry & kPageMask, lease, block * block_tokens);
        }
        lease.pages[g].pop_back();
      }
      if (!group.window()) continue;
      // Positions written again pass their blocks again.
      const GroupOptions& options = group.options();
      const uint32_t low =
          n > options.window_tokens ? (n - options.window_tokens) / options.block_tokens : 0;
      lease.window_low[g] = std::min(lease.window_low[g], low);
    }
    lease.words.resize(n - lease.words_begin);
    lease.length = n;
    for (GroupIndex g = 0; states != kNoCell && g < store_.group_count(); ++g) {
      if (!store_.group(g).recurrent()) continue;
      const uint32_t slot = store_.group(g).at(states);
      store_.pin_page(g, slot);
      lease.sources.push_back({g, slot, kNoCell, 0, 0});
      lease.copies.push_back(
          {.group = g, .source = BlockId{slot}, .target = kNoBlock, .tokens = n});
    }
  }
  if (lease.logits != nullptr) lease.past_logits = std::move(lease.logits);
  lease.committed = std::min(lease.committed, n);
  lease.reused = std::min(lease.reused, n);
  forget_media_after(lease, n);
  find_media_to_process(lease);
  ++store_.tally.rewinds;
  return {};
}

}  // namespace stemma::cache
