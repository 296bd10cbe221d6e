// What a purge needs to know of the books.
#include "tier/disk/books.h"

namespace stemma::tier::disk {

Purged Books::condemn(const Purge& what, std::vector<RecordId>& out) {
  using State = Record::State;
  const auto is_taken = [&](const Record& record) {
    return (record.state == State::present || record.state == State::stale) &&
           what.takes(record.key(), record.info());
  };
  size_t count = 0;
  for (const Record& record : records_) count += is_taken(record) ? 1 : 0;
  out.reserve(out.size() + count);
  Purged purged;
  for (RecordId id = 0; id < records(); ++id) {
    if (!is_taken(records_[id])) continue;
    pin(id);
    out.push_back(id);
    if (records_[id].state == State::stale) {
      take_stale(id);
      continue;
    }
    ++purged.entries;
    purged.bytes += records_[id].bytes;
    retire(id);
  }
  return purged;
}

std::vector<Extent> Books::free_extents() const {
  std::vector<Extent> all;
  for (RunId run = runs_.last(); run != kNoRun; run = runs_[run].before) {
    if (runs_[run].owner != PageRuns::kFree) continue;
    all.push_back({.first = runs_[run].first, .pages = runs_[run].count});
  }
  return all;
}

}  // namespace stemma::tier::disk
