#include "engine/llama/segment_layout.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace stemma::engine {
namespace {

constexpr uint64_t kCountAt =
    12;  // Behind a magic number, a sequence number and the number of streams.
constexpr uint32_t kMostLayers = 4096;
constexpr uint64_t kMostRow = uint64_t{1} << 32U;

void copy_plainly(uint8_t* to, const uint8_t* from, uint64_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

// Memory that a store goes to is read first, unless the store says that nobody will want it soon.
void copy_past_cache(uint8_t* to, const uint8_t* from, uint64_t bytes) noexcept {
#if defined(__SSE2__)
  constexpr uint64_t kLine = 64;
  constexpr uint64_t kShort = 4096;
  if (bytes >= kShort) {
    const uint64_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
      for (uint64_t i = 0; i < kLine; i += sizeof(__m128i)) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
      }
    }
  }
#endif
  std::memcpy(to, from, bytes);
}

// Stores of this kind are seen by others in any order, until here.
void end_of_copies() noexcept {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

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
  // A position's own row has a position, a count of one and a sequence, and between them whatever else the model's
  // positions have; how much that is shows in what follows.
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

bool SegmentLayout::move(std::span<const uint8_t> segment, uint32_t positions, uint32_t part_begin,
                         uint32_t part_count, std::span<uint8_t> out, uint32_t out_positions,
                         uint32_t out_begin, bool frame, bool past_cache) const {
  // Where each position lies.
  constexpr uint32_t kNowhere = 0xFFFF'FFFFU;
  std::vector<uint32_t> rows(part_count, kNowhere);
  const uint8_t* own = segment.data() + areas_.front().fixed;
  for (uint32_t row = 0; row < positions; ++row, own += areas_.front().row) {
    int32_t position = 0;
    std::memcpy(&position, own, sizeof position);
    const uint32_t at = static_cast<uint32_t>(position) - part_begin;
    if (position < 0 || at >= part_count) continue;
    if (rows[at] != kNowhere) return false;
    rows[at] = row;
  }
  if (std::ranges::find(rows, kNowhere) != rows.end()) return false;
  const auto copy = past_cache ? copy_past_cache : copy_plainly;
  const uint32_t to = part_begin - out_begin;
  const uint8_t* source = segment.data();
  uint8_t* target = out.data();
  for (const Area& area : areas_) {
    if (frame) std::memcpy(target, source, area.fixed);
    source += area.fixed;
    target += area.fixed;
    for (uint32_t begin = 0; begin < part_count;) {
      uint32_t end = begin + 1;
      while (end < part_count && rows[end] == rows[end - 1] + 1) ++end;
      copy(target + (to + begin) * area.row, source + rows[begin] * area.row,
           (end - begin) * area.row);
      begin = end;
    }
    source += positions * area.row;
    target += out_positions * area.row;
  }
  if (past_cache) end_of_copies();
  if (!frame) return true;
  std::memcpy(target, source, tail_);
  std::memcpy(out.data() + kCountAt, &out_positions, sizeof out_positions);
  return true;
}

}  // namespace stemma::engine
