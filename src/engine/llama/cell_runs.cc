#include "engine/llama/cell_runs.h"

#include <algorithm>

namespace stemma::engine {

void CellRuns::begin_run(SequenceId sequence, uint32_t position) {
  cut(sequence, position);
  begins(sequence).push_back(position);
}

void CellRuns::computed(std::span<const BatchItem> batch) {
  for (const BatchItem& item : batch) {
    const bool follows =
        known_ && item.sequence == last_sequence_ && item.position == next_position_;
    if (!follows) begin_run(item.sequence, item.position);
    last_sequence_ = item.sequence;
    next_position_ = item.position + 1;
    known_ = true;
  }
}

void CellRuns::cut(SequenceId sequence, uint32_t n) noexcept {
  std::vector<uint32_t>& all = begins(sequence);
  all.erase(std::ranges::lower_bound(all, n), all.end());
  // Its cells are free again, and the next token need not get the one behind.
  if (known_ && sequence == last_sequence_ && n < next_position_) known_ = false;
}

void CellRuns::copied(SequenceId from, SequenceId to, Range range) {
  begin_run(to, range.begin);
  const std::vector<uint32_t>& source = begins(from);
  const auto first = std::ranges::upper_bound(source, range.begin);
  const auto last = std::ranges::lower_bound(source, range.end);
  if (first < last) begins(to).insert(begins(to).end(), first, last);
}

void CellRuns::loaded(SequenceId sequence, Range range) {
  begin_run(sequence, range.begin);
  known_ = false;
}

uint32_t CellRuns::count(SequenceId sequence, Range range) const noexcept {
  const std::vector<uint32_t>& all = begins_[to_index(sequence)];
  const auto first = std::ranges::upper_bound(all, range.begin);
  const auto last = std::ranges::lower_bound(all, range.end);
  return 1 + static_cast<uint32_t>(std::max<ptrdiff_t>(last - first, 0));
}

}  // namespace stemma::engine
