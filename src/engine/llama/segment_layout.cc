#include "engine/llama/segment_layout.h"

#include <algorithm>
#include <cstring>

namespace stemma::engine {
namespace {

constexpr uint64_t kCountAt =
    12;  // After a magic number, a sequence number and the number of streams.
constexpr uint32_t kMostLayers = 4096;
constexpr uint64_t kMostRow = uint64_t{1} << 32U;

class Reader {
 public:
  Reader(std::span<const uint8_t> bytes, uint64_t at) : bytes_(bytes), at_(at) {}
  template <class T>
  T number() noexcept {
    T value{};
    if (at_ + sizeof value > bytes_.size()) {
      bad_ = true;
      return value;
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  void skip(uint64_t bytes) noexcept {
    if (bytes > bytes_.size() - std::min<uint64_t>(at_, bytes_.size())) bad_ = true;
    if (!bad_) at_ += bytes;
  }
  bool bad() const noexcept { return bad_; }
  uint64_t at() const noexcept { return at_; }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t at_;
  bool bad_ = false;
};

}  // namespace

std::optional<SegmentLayout> SegmentLayout::read(std::span<const uint8_t> segment,
                                                 uint32_t positions, uint64_t tail_bytes) {
  if (positions == 0 || segment.size() < tail_bytes) return std::nullopt;
  const std::span<const uint8_t> body = segment.first(segment.size() - tail_bytes);
  Reader head(body, 8);
  const auto streams = head.number<uint32_t>();
  const auto count = head.number<uint32_t>();
  if (head.bad() || streams != 1 || count != positions) return std::nullopt;
  // A position's own row has a position, a count of one and a sequence. In between is whatever else
  // the model's positions have; its size shows in what follows.
  for (uint64_t own = 12; own <= 64; own += 4) {
    SegmentLayout layout;
    layout.areas_.push_back({kCountAt + 4, own});
    Reader in(body, kCountAt + 4);
    in.skip(own * positions);
    uint64_t fixed_from = in.at();
    const auto add = [&](uint64_t row, uint64_t times) {
      if (in.bad() || row == 0 || row > kMostRow || times == 0 || times > kMostRow / row)
        return false;
      for (uint64_t i = 0; i < times && !in.bad(); ++i) {
        layout.areas_.push_back({in.at() - fixed_from, row});
        in.skip(row * positions);
        fixed_from = in.at();
      }
      return !in.bad();
    };
    const auto transposed = in.number<uint32_t>();
    const auto layers = in.number<uint32_t>();
    if (in.bad() || transposed > 1 || layers == 0 || layers > kMostLayers) continue;
    bool good = true;
    for (uint32_t i = 0; i < layers && good; ++i) {
      in.number<int32_t>();  // Its type.
      good = add(in.number<uint64_t>(), 1);
    }
    for (uint32_t i = 0; i < layers && good && in.at() != body.size(); ++i) {
      in.number<int32_t>();
      if (transposed == 0) {
        good = add(in.number<uint64_t>(), 1);
      } else {
        const auto element = in.number<uint32_t>();
        good = add(element, in.number<uint32_t>());
      }
    }
    if (!good || in.bad() || in.at() != body.size()) continue;
    layout.tail_ = tail_bytes + (body.size() - fixed_from);
    for (const Area& area : layout.areas_) {
      layout.fixed_bytes_ += area.fixed;
      layout.row_bytes_ += area.row;
    }
    layout.fixed_bytes_ += layout.tail_;
    return layout;
  }
  return std::nullopt;
}

std::vector<SegmentLayout::Run> SegmentLayout::runs_of(const Move& move, Summed summed) const {
  // The place of each position, and the position in each row.
  std::vector<uint32_t> rows(move.part_count, kNowhere);
  std::vector<uint32_t> targets(move.positions, kNowhere);
  const uint32_t shift = move.part_begin - move.out_begin;
  const uint8_t* own = move.segment.data() + areas_.front().fixed;
  for (uint32_t row = 0; row < move.positions; ++row, own += areas_.front().row) {
    int32_t position = 0;
    std::memcpy(&position, own, sizeof position);
    const uint32_t at = static_cast<uint32_t>(position) - move.part_begin;
    if (position < 0 || at >= move.part_count) continue;
    if (rows[at] != kNowhere) return {};
    rows[at] = row;
    targets[row] = at + shift;
  }
  if (std::ranges::find(rows, kNowhere) != rows.end()) return {};
  std::vector<Run> runs;
  const auto add = [&](uint32_t row, uint32_t to) {
    if (!runs.empty()) {
      Run& last = runs.back();
      const bool both_nowhere = to == kNowhere && last.to == kNowhere;
      const bool follows = to != kNowhere && last.to != kNowhere && to == last.to + last.count;
      if (row == last.row + last.count && (both_nowhere || follows)) {
        ++last.count;
        return;
      }
    }
    runs.push_back({row, to, 1});
  };
  if (summed == Summed::source) {
    for (uint32_t row = 0; row < move.positions; ++row) add(row, targets[row]);
  } else {
    for (uint32_t i = 0; i < move.part_count; ++i) add(rows[i], i + shift);
  }
  return runs;
}

bool SegmentLayout::move(const Move& move, Summed summed, ByteSum& sum) const {
  const std::vector<Run> runs = runs_of(move, summed);
  if (runs.empty()) return false;
  const bool frame = move.part_begin == move.out_begin;
  const uint8_t* source = move.segment.data();
  uint8_t* target = move.out.data();
  const auto fixed = [&](uint64_t bytes) {
    if (summed == Summed::source) sum.add({source, bytes});
    if (frame && bytes != 0) std::memcpy(target, source, bytes);
    if (frame && target == move.out.data()) {
      std::memcpy(target + kCountAt, &move.out_positions, sizeof move.out_positions);
    }
    if (summed == Summed::result) sum.add({target, bytes});
    source += bytes;
    target += bytes;
  };
  for (const Area& area : areas_) {
    fixed(area.fixed);
    for (const Run& run : runs) {
      const uint8_t* from = source + run.row * area.row;
      if (run.to == kNowhere) {
        sum.add({from, run.count * area.row});
      } else {
        sum.copy({from, run.count * area.row}, target + run.to * area.row);
      }
    }
    source += move.positions * area.row;
    target += move.out_positions * area.row;
  }
  fixed(tail_);
  ByteSum::end_of_copies();
  return true;
}

}  // namespace stemma::engine
