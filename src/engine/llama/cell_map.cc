#include "engine/llama/cell_map.h"

#include <algorithm>
#include <new>

namespace stemma::engine {

CellMap::CellMap(uint32_t sequences, uint32_t cells, uint32_t pass_tokens)
    : cells_(sequences), owners_(cells), pass_tokens_(std::max(pass_tokens, 1U)) {}

bool CellMap::take(uint32_t count, Cells& out) {
  const auto size = static_cast<uint32_t>(owners_.size());
  if (size - used_ < count) return false;
  uint32_t at = head_;
  // If there is plenty of room before the head, start from the beginning.
  if (at > used_ + 2 * count) at = 0;
  for (uint32_t taken = 0; taken < count; ++at) {
    if (at >= size) at = 0;
    if (owners_[at] != 0) continue;
    owners_[at] = 1;
    out.push_back(at);
    ++taken;
  }
  used_ += count;
  head_ = at;
  return true;
}

void CellMap::let_go(uint32_t cell, uint32_t& lowest) noexcept {
  if (cell == kUnknown || owners_[cell] == 0 || --owners_[cell] != 0) return;
  --used_;
  lowest = std::min(lowest, cell);
}

void CellMap::place(SequenceId sequence, uint32_t position, uint32_t cell) {
  Cells& all = cells_[to_index(sequence)];
  if (position >= all.size()) all.resize(position + 1, kUnknown);
  uint32_t lowest = kUnknown;
  let_go(all[position], lowest);
  all[position] = cell;
}

void CellMap::start_over() noexcept {
  for (Cells& all : cells_) all.clear();
  std::ranges::fill(owners_, uint16_t{0});
  used_ = head_ = 0;
}

void CellMap::computed(std::span<const BatchItem> batch) noexcept try {
  while (!batch.empty()) {
    const auto pass = batch.first(std::min<size_t>(batch.size(), pass_tokens_));
    batch = batch.subspan(pass.size());
    found_.clear();
    if (!take(static_cast<uint32_t>(pass.size()), found_)) return start_over();
    for (size_t i = 0; i < pass.size(); ++i) place(pass[i].sequence, pass[i].position, found_[i]);
  }
} catch (const std::bad_alloc&) {
  start_over();
}

void CellMap::cut(SequenceId sequence, uint32_t n) noexcept {
  Cells& all = cells_[to_index(sequence)];
  if (n >= all.size()) return;
  uint32_t lowest = kUnknown;
  for (size_t i = n; i < all.size(); ++i) let_go(all[i], lowest);
  all.resize(n);
  if (lowest != kUnknown) head_ = std::min(head_, lowest);
}

void CellMap::copied(SequenceId from, SequenceId to, Range range) noexcept try {
  for (uint32_t p = range.begin; p < range.end; ++p) {
    const Cells& source = cells_[to_index(from)];
    const uint32_t cell = p < source.size() ? source[p] : kUnknown;
    if (cell != kUnknown) ++owners_[cell];
    place(to, p, cell);
  }
} catch (const std::bad_alloc&) {
  start_over();
}

void CellMap::loaded(SequenceId sequence, Range saved, Range wanted) noexcept try {
  found_.clear();
  if (!take(saved.end - saved.begin, found_)) return start_over();
  uint32_t lowest = kUnknown;
  for (uint32_t p = saved.begin; p < saved.end; ++p) {
    const uint32_t cell = found_[p - saved.begin];
    if (p >= wanted.begin && p < wanted.end) {
      place(sequence, p, cell);
    } else {
      let_go(cell, lowest);
    }
  }
  if (lowest != kUnknown) head_ = std::min(head_, lowest);
} catch (const std::bad_alloc&) {
  start_over();
}

uint32_t CellMap::pieces(SequenceId sequence, Range range) const noexcept try {
  const Cells& all = cells_[to_index(sequence)];
  const uint32_t end = std::min(range.end, static_cast<uint32_t>(all.size()));
  if (range.begin >= end) return 1;
  sorted_.assign(all.begin() + range.begin, all.begin() + end);
  // llama.cpp reads in the order of cells.
  if (!std::ranges::is_sorted(sorted_)) std::ranges::sort(sorted_);
  uint32_t count = 1;
  for (size_t i = 1; i < sorted_.size(); ++i) {
    const bool follows =
        sorted_[i] == kUnknown ? sorted_[i - 1] == kUnknown : sorted_[i] == sorted_[i - 1] + 1;
    count += follows ? 0 : 1;
  }
  return count;
} catch (const std::bad_alloc&) {
  return 1;
}

}  // namespace stemma::engine
