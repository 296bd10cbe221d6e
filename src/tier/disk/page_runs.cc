#include "tier/disk/page_runs.h"

#include <bit>
#include <new>

#include "base/check.h"

namespace stemma::tier::disk {

uint32_t PageRuns::bin_of(uint32_t count) noexcept {
  if (count < 8) return count;
  const auto power = static_cast<uint32_t>(std::bit_width(count)) - 1;
  return (power - 2) * 8 + ((count >> (power - 3)) & 7U);
}

// ---- Nodes
// ----------------------------------------------------------------------------------------

RunId PageRuns::new_run() {
  if (spare_ == kNoRun) {
    runs_.emplace_back();
    return static_cast<RunId>(runs_.size() - 1);
  }
  const RunId id = spare_;
  spare_ = runs_[id].next;
  runs_[id] = Run();
  return id;
}

bool PageRuns::reserve() noexcept {
  if (spare_ != kNoRun) return true;
  try {
    spare_ = new_run();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void PageRuns::unlink(RunId id) noexcept {
  Run& run = runs_[id];
  if (run.before != kNoRun) runs_[run.before].after = run.after;
  if (run.after != kNoRun) runs_[run.after].before = run.before;
  if (last_ == id) last_ = run.before;
  run = Run();
  run.next = spare_;
  spare_ = id;
}

RunId PageRuns::split(RunId id, uint32_t count) noexcept {
  const RunId rest = new_run();  // A spare one.
  Run& run = runs_[id];
  Run& behind = runs_[rest];
  behind.first = run.first + count;
  behind.count = run.count - count;
  behind.owner = run.owner;
  behind.before = id;
  behind.after = run.after;
  if (run.after != kNoRun) runs_[run.after].before = rest;
  run.after = rest;
  run.count = count;
  if (last_ == id) last_ = rest;
  return rest;
}

// ---- Bins
// -----------------------------------------------------------------------------------------

void PageRuns::enter(RunId id) noexcept {
  Run& run = runs_[id];
  run.owner = kFree;
  free_pages_ += run.count;
  const uint32_t bin = bin_of(run.count);
  run.previous = kNoRun;
  run.next = bins_[bin];
  if (run.next != kNoRun) runs_[run.next].previous = id;
  bins_[bin] = id;
  filled_[bin / 64] |= uint64_t{1} << bin % 64;
}

void PageRuns::leave(RunId id) noexcept {
  Run& run = runs_[id];
  free_pages_ -= run.count;
  const uint32_t bin = bin_of(run.count);
  if (run.previous != kNoRun) {
    runs_[run.previous].next = run.next;
  } else {
    bins_[bin] = run.next;
    if (run.next == kNoRun) filled_[bin / 64] &= ~(uint64_t{1} << bin % 64);
  }
  if (run.next != kNoRun) runs_[run.next].previous = run.previous;
  run.next = run.previous = kNoRun;
}

RunId PageRuns::first_from(uint32_t bin) const noexcept {
  for (uint32_t word = bin / 64; word < filled_.size(); ++word) {
    uint64_t bits = filled_[word];
    if (word == bin / 64) bits &= ~uint64_t{0} << bin % 64;
    if (bits != 0) return bins_[word * 64 + static_cast<uint32_t>(std::countr_zero(bits))];
  }
  return kNoRun;
}

RunId PageRuns::largest() const noexcept {
  for (size_t word = filled_.size(); word-- > 0;) {
    if (filled_[word] == 0) continue;
    return bins_[word * 64 + 63 - static_cast<uint32_t>(std::countl_zero(filled_[word]))];
  }
  return kNoRun;
}

RunId PageRuns::fit(uint64_t count) const noexcept {
  if (count > free_pages_) return kNoRun;
  const uint32_t bin = bin_of(static_cast<uint32_t>(count));
  // Some runs in its own bin are too small: take the tightest of a few.
  RunId best = kNoRun;
  uint32_t looked_at = 0;
  for (RunId id = bins_[bin]; id != kNoRun && looked_at < 32; id = runs_[id].next, ++looked_at) {
    if (runs_[id].count < count) continue;
    if (best == kNoRun || runs_[id].count < runs_[best].count) best = id;
    if (runs_[id].count == count) break;
  }
  return best != kNoRun ? best : first_from(bin + 1);
}

// ---- Pages
// ----------------------------------------------------------------------------------------

RunId PageRuns::append(uint32_t count, uint32_t owner) {
  const auto first = static_cast<uint32_t>(pages_);
  if (owner == kFree && last_ != kNoRun && runs_[last_].owner == kFree) {
    leave(last_);
    runs_[last_].count += count;
    enter(last_);
    pages_ += count;
    return last_;
  }
  const RunId id = new_run();
  Run& run = runs_[id];
  run.first = first;
  run.count = count;
  run.owner = owner;
  run.before = last_;
  if (last_ != kNoRun) runs_[last_].after = id;
  last_ = id;
  pages_ += count;
  if (owner == kFree) enter(id);
  return id;
}

RunId PageRuns::take(uint64_t count, uint32_t owner) noexcept {
  if (count > free_pages_) return kNoRun;
  std::array<RunId, kMostExtents> chosen;
  uint32_t chosen_count = 0;
  uint64_t left = count;
  while (left != 0) {
    RunId id = fit(left);
    if (id == kNoRun && chosen_count + 1 < kMostExtents) id = largest();
    if (id == kNoRun) {
      while (chosen_count != 0) enter(chosen[--chosen_count]);
      return kNoRun;
    }
    leave(id);
    chosen[chosen_count++] = id;
    left -= std::min<uint64_t>(left, runs_[id].count);
  }
  uint64_t taken = 0;
  for (uint32_t i = 0; i < chosen_count; ++i) {
    const RunId id = chosen[i];
    if (taken + runs_[id].count > count) enter(split(id, static_cast<uint32_t>(count - taken)));
    taken += runs_[id].count;
    runs_[id].owner = owner;
    runs_[id].next = i + 1 < chosen_count ? chosen[i + 1] : kNoRun;
  }
  return chosen[0];
}

RunId PageRuns::release(RunId id) noexcept {
  const RunId after = runs_[id].after;
  if (after != kNoRun && runs_[after].owner == kFree) {
    leave(after);
    runs_[id].count += runs_[after].count;
    unlink(after);
  }
  const RunId before = runs_[id].before;
  if (before != kNoRun && runs_[before].owner == kFree) {
    leave(before);
    runs_[before].count += runs_[id].count;
    unlink(id);
    id = before;
  }
  enter(id);
  return id;
}

void PageRuns::give(RunId id, uint32_t owner) noexcept {
  for (; id != kNoRun; id = runs_[id].next) runs_[id].owner = owner;
}

void PageRuns::release_chain(RunId id) noexcept {
  while (id != kNoRun) {
    const RunId next = runs_[id].next;
    release(id);
    id = next;
  }
}

Extent PageRuns::set_aside(RunId id, uint32_t count) noexcept {
  leave(id);
  const uint32_t kept = runs_[id].count - count;
  const RunId rest = kept == 0 ? id : split(id, kept);
  if (kept != 0) enter(id);
  runs_[rest].owner = kSetAside;
  return {.first = runs_[rest].first, .pages = count};
}

void PageRuns::drop(uint32_t count) noexcept {
  STEMMA_CHECK(last_ != kNoRun && runs_[last_].owner == kFree && count <= runs_[last_].count);
  set_aside(last_, count);
  pages_ -= count;
  unlink(last_);
}

void PageRuns::check_invariants() const {
  uint64_t pages = 0;
  uint64_t free = 0;
  uint64_t free_runs = 0;
  for (RunId id = last_; id != kNoRun; id = runs_[id].before) {
    const Run& run = runs_[id];
    STEMMA_CHECK(run.count != 0 && (run.after == kNoRun) == (id == last_));
    pages += run.count;
    STEMMA_CHECK(run.first == pages_ - pages);
    if (run.before != kNoRun) STEMMA_CHECK(runs_[run.before].after == id);
    if (run.owner != kFree) continue;
    STEMMA_CHECK(run.before == kNoRun || runs_[run.before].owner != kFree);
    free += run.count;
    ++free_runs;
  }
  STEMMA_CHECK(pages == pages_ && free == free_pages_);
  for (uint32_t bin = 0; bin < kBins; ++bin) {
    STEMMA_CHECK((bins_[bin] != kNoRun) == ((filled_[bin / 64] >> bin % 64 & 1U) != 0));
    RunId before = kNoRun;
    for (RunId id = bins_[bin]; id != kNoRun; before = id, id = runs_[id].next) {
      STEMMA_CHECK(runs_[id].owner == kFree && bin_of(runs_[id].count) == bin);
      STEMMA_CHECK(runs_[id].previous == before);
      --free_runs;
    }
  }
  STEMMA_CHECK(free_runs == 0);
}

}  // namespace stemma::tier::disk
