// The parts of a purge that work on the books.
#include "tier/disk/books.h"
#include "tier/purge_choice.h"

namespace stemma::tier::disk {

Purged Books::condemn(const Purge& what, std::vector<RecordId>& out) {
  using State = Record::State;
  PurgeChoice choice(what);
  if (choice.looks_first()) {
    each_present([&](RecordId, const Record& one) { choice.look(one.key(), one.info()); });
  }
  std::vector<RecordId> taken;
  for (RecordId id = 0; id < records(); ++id) {
    const Record& record = records_[id];
    const bool present = record.state == State::present;
    if (!present && record.state != State::stale) continue;
    // An evicted entry is gone already; its record goes too if the purge may mean it.
    const bool goes = present ? choice.takes(record.key(), record.info())
                              : what.takes(record.key(), record.info());
    if (goes) taken.push_back(id);
  }
  for (const RecordId id : taken) {
    pin(id);
    records_[id].state == State::stale ? (void)take_stale(id) : retire(id);
  }
  out = std::move(taken);
  return choice.purged;
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
