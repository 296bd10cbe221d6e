// The books as open() fills them, and their invariants.
#include <algorithm>
#include <new>

#include "base/check.h"
#include "tier/disk/books.h"

namespace stemma::tier::disk {

// ---- For open()
// -----------------------------------------------------------------------------------

bool Books::begin_adopting(RecordId count, std::vector<bool> bad_table_pages) {
  bad_table_pages_ = std::move(bad_table_pages);
  records_.reserve(count);
  while (records() < count) {
    if (!add_record()) return false;
  }
  return true;
}

void Books::adopt(const Adopted& entry) noexcept {
  describe(entry.record, entry.key, entry.info);
  Record& record = records_[entry.record];
  record.sum = entry.sum;
  record.stamp = entry.stamp;
  record.priority = entry.priority;
  record.state = Record::State::present;
  stamp_ = std::max(stamp_, entry.stamp);
  ++present_;
  hash_in(entry.record);
}

void Books::adopt_stale(RecordId id, const EntryKey& key) noexcept {
  describe(id, key, {});
  records_[id].state = Record::State::stale;
  hash_in(id);
  free_.push_back(kStale, id);
}

void Books::adopt_retired(RecordId id) noexcept {
  records_[id].state = Record::State::retired;
  records_[id].bad_runs = 1;
}

void Books::place(std::vector<Placed>& all, uint64_t pages) {
  std::sort(all.begin(), all.end(),
            [](const Placed& a, const Placed& b) { return a.extent.first < b.extent.first; });
  const auto fill_up_to = [this](uint64_t page) {
    if (page > runs_.pages()) {
      runs_.append(static_cast<uint32_t>(page - runs_.pages()), PageRuns::kFree);
    }
  };
  for (Placed& one : all) {
    fill_up_to(one.extent.first);
    one.run = runs_.append(one.extent.pages, one.record);
    const bool retired = records_[one.record].state == Record::State::retired;
    (retired ? retired_pages_ : used_pages_) += one.extent.pages;
  }
  fill_up_to(pages);
  // The last extent of each record first, so that its first extent becomes the head.
  std::sort(all.begin(), all.end(),
            [](const Placed& a, const Placed& b) { return a.index > b.index; });
  for (const Placed& one : all) {
    runs_.link(one.run, records_[one.record].run);
    records_[one.record].run = one.run;
  }
}

void Books::end_adopting(std::span<const RecordId> order) noexcept {
  for (const RecordId id : order) policy_->touch(id, as_touch(0, records_[id].priority));
  for (RecordId id = 0; id < records(); ++id) {
    if (records_[id].state == Record::State::gone && usable(id)) free_.push_back(kClean, id);
  }
}

void Books::fit_into_capacity(std::vector<Extent>& holes) {
  while (used_pages_ + retired_pages_ > max_pages_) {
    const RecordId id = victim(0);
    if (id == kNoRecord) break;  // All pages in use are retired.
    evict(id);
  }
  const auto excess = [this] {
    return runs_.pages() > max_pages_ ? runs_.pages() - max_pages_ : uint64_t{0};
  };
  const auto make_sure = [this] {
    if (!runs_.reserve()) throw std::bad_alloc();
  };
  while (excess() != 0 && runs_[runs_.last()].owner == PageRuns::kFree) {
    make_sure();
    runs_.drop(static_cast<uint32_t>(std::min<uint64_t>(excess(), runs_[runs_.last()].count)));
  }
  uint64_t left = excess();
  for (RunId run = runs_.last(); run != kNoRun && left != 0; run = runs_[run].before) {
    if (runs_[run].owner != PageRuns::kFree) continue;
    make_sure();
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(left, runs_[run].count));
    holes.push_back(runs_.set_aside(run, count));
    left -= count;
  }
}

// ---- Checks
// ---------------------------------------------------------------------------------------

uint64_t Books::bytes() const noexcept {
  return records_.capacity() * sizeof(Record) + buckets_.capacity() * sizeof(RecordId) +
         free_.bytes() + policy_->bytes() + runs_.bytes();
}

void Books::check_invariants() const {
  policy_->check_invariants();
  runs_.check_invariants();
  uint64_t present = 0;
  uint64_t used = 0;
  uint64_t retired = 0;
  uint64_t listed = 0;
  for (RecordId id = 0; id < records(); ++id) {
    const Record& record = records_[id];
    const bool is_free =
        record.state == Record::State::gone || record.state == Record::State::stale;
    if (free_.linked(id)) {
      ++listed;
      STEMMA_CHECK(is_free && usable(id));
    }
    STEMMA_CHECK(!is_free || record.run == kNoRun);
    uint64_t pages = 0;
    for (RunId run = record.run; run != kNoRun; run = runs_[run].next) {
      STEMMA_CHECK(runs_[run].owner == id);
      pages += runs_[run].count;
    }
    const bool only_bad = record.bad_runs != 0 && record.pins == 0;
    (only_bad ? retired : used) += pages;
    if (record.state != Record::State::present) continue;
    ++present;
    STEMMA_CHECK(pages == pages_of(record.info()) && find(record.key()) == id);
    STEMMA_CHECK(record.pins != 0 || policy_->holds(id));
  }
  STEMMA_CHECK(present == present_ && used == used_pages_ && retired == retired_pages_);
  STEMMA_CHECK(used + retired <= max_pages_ || present == 0);
  STEMMA_CHECK(free_.check_invariants() == listed);
}

}  // namespace stemma::tier::disk
