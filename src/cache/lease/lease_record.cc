#include "cache/lease/lease_record.h"

namespace stemma::cache {

void LeaseRecord::find_media_to_process() {
  media_to_process.clear();
  for (size_t i = 0; i + 1 < media_begin_end.size(); i += 2) {
    if (media_begin_end[i + 1] > reused) {
      media_to_process.push_back(static_cast<uint32_t>(i / 2));
    }
  }
}

void LeaseRecord::forget_media_after(uint32_t n) {
  while (!spans.empty() && spans.back().end > n) spans.pop_back();
  for (size_t i = 0; i + 1 < media_begin_end.size(); i += 2) {
    // The other items keep their places: callers know items by their index.
    if (media_begin_end[i + 1] > n) media_begin_end[i] = media_begin_end[i + 1] = 0;
  }
}

void LeaseRecord::reset() {
  root = tip = kNoCell;
  tenant = kNoTenant;
  tenant_index = published = cell_count = own_from = 0;
  words.clear();
  words_begin = length = reused = committed = 0;
  spans.clear();
  media_numbers.clear();
  media_begin_end.clear();
  media_to_process.clear();
  copies.clear();
  sources.clear();
  for (auto& list : pages) list.clear();
  checkpoint.fill(kNoPage);
  held_slot.fill(kNoPage);
  filling = 0;
  write = true;
  counted = false;
  publish_tail = true;
  retain = {};
  ranges.clear();
  fence = nullptr;
  report = {};
}

uint64_t LeaseRecord::bytes(uint32_t group_count) const noexcept {
  uint64_t numbers = cells.capacity() + words.capacity() + query.capacity() + path.capacity() +
                     spare_cells.capacity();
  for (GroupIndex g = 0; g < group_count; ++g) {
    numbers += pages[g].capacity() + next_pages[g].capacity();
  }
  return sizeof(LeaseRecord) + numbers * sizeof(uint32_t) + keys.capacity() * sizeof(ContentKey) +
         ranges.capacity() * sizeof(PriorityRange) + spans.capacity() * sizeof(key::MediaSpan);
}

}  // namespace stemma::cache
