#include "cache/lease/copies.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "cache/guarded.h"
#include "cache/lease/placement.h"

namespace stemma::cache {
namespace {

void release_source(Store& store, LeaseRecord& lease, const CopySource& source) {
  if (source.has_page()) {
    const Group& group = store.books.group(source.group);
    const uint32_t at = group.recurrent() ? lease.committed - std::min(lease.committed, 1U)
                                          : source.block * group.options().block_tokens;
    store.blocks.unpin(source.group, source.page, lease, at);
  }
  if (source.cell == kNoCell) return;
  if (source.depth_cells != 0) {
    store.holds.let_go(source.cell, source.depth_cells, lease);
  } else {
    store.holds.unpin_draft(source.cell, lease);
  }
}

// The lease reuses only n positions now, because it gave up the others.
void reuse_less(LeaseRecord& lease, uint32_t n) {
  lease.reused = lease.committed = n;
  lease.logits.reset();
  Report& report = lease.report;
  report.reused_tokens = n;
  report.copied_tokens = 0;
  for (const BlockCopy& copy : lease.copies) {
    if (copy.target != kNoBlock) report.copied_tokens = std::max(report.copied_tokens, copy.tokens);
  }
  report.to_compute_tokens = report.prompt_tokens - std::min(n, report.prompt_tokens);
  report.outcome = n == 0 ? Outcome::miss : Outcome::partial_hit;
  report.reason = MissReason::gave_up;
  lease.find_media_to_process();
}

// Only a copied part-block, done or pending, lies between the shared cells and the reused end:
// reuses fewer of its positions. (A recurrent state is right at one depth only.) Returns false if
// that is not so.
bool shorten_copies(Store& store, LeaseRecord& lease, uint32_t n) {
  const Books& books = store.books;
  if (n <= lease.published * books.cell_tokens()) return false;
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    const Group& group = books.group(g);
    if (group.recurrent()) return false;
    if (!group.window()) continue;
    for (size_t j = group.window_low(n); j < lease.pages[g].size(); ++j) {
      if (!lease.pages[g][j].has_block()) return false;
    }
  }
  size_t left = 0;
  for (size_t i = 0; i < lease.copies.size(); ++i) {
    const CopySource source = lease.sources[i];
    const uint32_t begin = source.block * books.group(source.group).options().block_tokens;
    if (n <= begin) {
      release_source(store, lease, source);
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

}  // namespace

void release_sources(Store& store, LeaseRecord& lease) {
  for (const CopySource& source : lease.sources) release_source(store, lease, source);
  lease.sources.clear();
  lease.copies.clear();
}

void copies_done(Core& core, LeaseRecord& lease) {
  if (lease.copies.empty()) return;
  core.locked([&](Store& store) { release_sources(store, lease); });
}

Result<void> copies_failed(Core& core, LeaseRecord& lease) {
  if (lease.copies.empty()) return Error(Errc::wrong_state, "no copies are pending");
  return core.locked([&](Store& store) -> Result<void> {
    const Books& books = store.books;
    // A recurrent checkpoint further back would have to be loaded, and a load just failed.
    bool start_again = std::any_of(lease.copies.begin(), lease.copies.end(),
                                   [](const BlockCopy& c) { return c.target == kNoBlock; });
    for (const tree::GroupReach& reach : books.reaches()) {
      start_again = start_again || reach.kind == tree::Reach::recurrent;
    }
    uint32_t n = 0;
    if (!start_again) {
      const Path path = own_path(books, lease);
      const uint32_t limit = std::min(lease.committed, lease.published * books.cell_tokens());
      n = tree::largest_servable(books.reaches(), limit, false, Present(books, path, lease.spans))
              .n;
    }
    STEMMA_TRY_VOID(step_back(store, lease, n, lease.length, lease.capacity(books.cell_tokens())));
    lease.committed = n;
    if (n < lease.reused) reuse_less(lease, n);
    return {};
  });
}

Result<void> run_copies(Core& core, LeaseRecord& lease) {
  BlockIo* const io = core.options().block_io;
  if (io == nullptr) return Error(Errc::unsupported, "Options::block_io was not given");
  if (lease.copies.empty()) return {};
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<void>> outcome;
  } wait;
  io->copy(
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
  if (*wait.outcome) {
    copies_done(core, lease);
    return {};
  }
  log_line(LogLevel::warning, [&] {
    return "copying part-blocks failed; the request computes them again: " +
           wait.outcome->error().to_string();
  });
  STEMMA_TRY_VOID(copies_failed(core, lease));
  return Error(Errc::copy_failed, "the copy failed; the lease stepped back", lease.reused);
}

Result<uint32_t> shrink_to(Core& core, LeaseRecord& lease, uint32_t n) {
  if (n > lease.reused) return Error(Errc::out_of_range, "more than was reused", lease.reused);
  if (lease.committed != lease.reused) {
    return Error(Errc::wrong_state, "positions beyond the reused ones are committed already",
                 lease.committed);
  }
  if (n == lease.reused) return n;
  if (lease.filling != 0) return Error(Errc::wrong_state, "fill_to is not committed yet");
  return core.locked([&](Store& store) -> Result<uint32_t> {
    const Books& books = store.books;
    n = key::floor_to_unit(lease.spans, n);
    if (!shorten_copies(store, lease, n)) {
      const Path path = own_path(books, lease);
      const uint32_t limit = std::min(n, lease.published * books.cell_tokens());
      n = tree::largest_servable(books.reaches(), limit, true, Present(books, path, lease.spans)).n;
      STEMMA_TRY_VOID(
          step_back(store, lease, n, lease.length, lease.capacity(books.cell_tokens())));
    }
    reuse_less(lease, n);
    return n;
  });
}

}  // namespace stemma::cache
