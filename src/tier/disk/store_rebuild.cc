// Turns the table that was read into usable books, within the capacity.
#include <algorithm>
#include <new>
#include <tuple>

#include "stemma/log.h"
#include "tier/disk/store.h"

namespace stemma::tier::disk {

namespace {

// A loss of power may have cut off the newest puts: their payloads are checked before they are
// listed. A damaged entry that this misses is found by its checksum when it is read.
constexpr uint64_t kRecentEntries = 1024;
constexpr uint64_t kRecentBytes = uint64_t{256} << 20U;

// One bit for each page of the slab.
class PageSet {
 public:
  explicit PageSet(uint64_t pages) : bits_(pages) {}
  bool has_any(std::span<const Extent> places) const {
    for (const Extent& one : places) {
      const auto first = bits_.begin() + one.first;
      if (std::find(first, first + one.pages, true) != first + one.pages) return true;
    }
    return false;
  }
  void add(std::span<const Extent> places) {
    for (const Extent& one : places) {
      std::fill(bits_.begin() + one.first, bits_.begin() + one.first + one.pages, true);
    }
  }

 private:
  std::vector<bool> bits_;
};

class Rebuilding {
 public:
  Rebuilding(Store& store, const DiskOptions& options, Scan& scan)
      : store_(store), options_(options), scan_(scan), taken_(scan.slab_pages) {}

  Result<void> run() {
    DiskOpening& opening = store_.opening;
    opening.records_read = scan_.records;
    opening.damaged = scan_.damaged.size();
    STEMMA_TRY(store_.books, Books::create({.max_pages = options_.capacity_bytes / kPage,
                                            .policy = options_.policy}));
    Books& books = *store_.books;
    if (!books.begin_adopting(scan_.records, scan_.unreadable_pages)) throw std::bad_alloc();
    stamps_ = read_all_uses(store_, scan_.records);
    for (const RecordId id : scan_.damaged) books.adopt_stale(id, {});
    // Newest first: if two records name the same page or key, the older one is a leftover.
    std::sort(scan_.found.begin(), scan_.found.end(),
              [](const Found& a, const Found& b) { return a.header.serial > b.header.serial; });
    for (const Found& one : scan_.found) adopt(one);
    books.place(placed_, scan_.slab_pages);
    // Longest unused first; within one batch, deepest first.
    std::sort(order_.begin(), order_.end(), [&](RecordId a, RecordId b) {
      if (books[a].stamp != books[b].stamp) return books[a].stamp < books[b].stamp;
      return books[a].end > books[b].end;
    });
    books.end_adopting(order_);
    STEMMA_TRY_VOID(fit_into_capacity(books));
    opening.entries = books.entries();
    opening.retired_bytes = books.retired_bytes();
    LayoutCounts layouts;
    books.each_present(
        [&](RecordId, const Record& record) { layouts.add(record.layout, record.bytes); });
    opening.layouts = layouts.sorted();
    return {};
  }

 private:
  void adopt(const Found& one) {
    Books& books = *store_.books;
    const auto places = scan_.places(one);
    const bool retired = one.kind == TableRecord::Kind::retired;
    store_.next_serial = std::max(store_.next_serial, one.header.serial + 1);
    if (taken_.has_any(places) || (!retired && books.find(one.header.key) != kNoRecord)) {
      ++store_.opening.duplicates;
      return books.adopt_stale(one.record, one.header.key);
    }
    if (!retired && !is_believed(one)) return;
    taken_.add(places);
    for (uint32_t i = 0; i < places.size(); ++i) {
      placed_.push_back({.extent = places[i], .record = one.record, .index = i});
    }
    if (retired) return books.adopt_retired(one.record);
    books.adopt({.record = one.record,
                 .key = one.header.key,
                 .info = one.header.info,
                 .sum = one.header.sum,
                 .stamp = std::max(one.used, stamps_[one.record]),
                 .priority = one.priority});
    order_.push_back(one.record);
  }

  // Checks the payload if it is recent. Pages that cannot be read are retired.
  bool is_believed(const Found& one) {
    looked_at_bytes_ += one.header.body_bytes();
    if (++looked_at_ > kRecentEntries || looked_at_bytes_ > kRecentBytes) return true;
    const auto places = scan_.places(one);
    uint32_t bad = 0;
    const Payload payload = check_payload(store_, one.header, places, buffer_, bad);
    if (payload == Payload::whole || (payload == Payload::unreadable && bad == 0)) return true;
    ++store_.opening.damaged;
    if (bad == 0) {
      store_.books->adopt_stale(one.record, one.header.key);
      return false;
    }
    TableRecord record;
    record.kind = TableRecord::Kind::retired;
    record.header.serial = one.header.serial;
    for (uint32_t i = 0; i < places.size(); ++i) {
      if ((bad >> i & 1U) == 0) continue;
      taken_.add(places.subspan(i, 1));
      placed_.push_back({.extent = places[i], .record = one.record, .index = record.extent_count});
      record.extents[record.extent_count++] = places[i];
    }
    (void)store_.write_slot(one.record, record);  // If this fails, the damage is found again.
    store_.books->adopt_retired(one.record);
    log(LogLevel::warning, "disk tier '" + store_.path +
                               "': an entry cannot be read; its place in "
                               "'entries.slab' is not used again");
    return false;
  }

  // Applies a smaller capacity.
  Result<void> fit_into_capacity(Books& books) {
    const uint64_t before = books.entries();
    std::vector<Extent> holes;
    books.fit_into_capacity(holes);
    store_.opening.dropped = before - books.entries();
    int result = 0;
    if (books.pages() < scan_.slab_pages) {
      result = store_.files->truncate(store_.slab, books.pages() * kPage);
    }
    for (size_t i = 0; i < holes.size() && result >= 0; ++i) {
      result = store_.files->punch(store_.slab, uint64_t{holes[i].first} * kPage,
                                   uint64_t{holes[i].pages} * kPage);
    }
    if (result >= 0) return {};
    return Error(Errc::copy_failed, "the file system does not take room back",
                 static_cast<uint32_t>(-result));
  }

  Store& store_;
  const DiskOptions& options_;
  Scan& scan_;
  PageSet taken_;
  PageMemory buffer_;
  std::vector<uint64_t> stamps_;
  std::vector<Books::Placed> placed_;
  std::vector<RecordId> order_;
  uint64_t looked_at_ = 0, looked_at_bytes_ = 0;
};

}  // namespace

void LayoutCounts::add(uint64_t layout, uint64_t bytes) {
  DiskLayout& one = all_[layout];
  one.layout = layout;
  ++one.entries;
  one.bytes += bytes;
}

std::vector<DiskLayout> LayoutCounts::sorted() const {
  std::vector<DiskLayout> layouts;
  for (const auto& [layout, one] : all_) layouts.push_back(one);
  std::sort(layouts.begin(), layouts.end(), [](const DiskLayout& a, const DiskLayout& b) {
    return std::tuple(b.bytes, a.layout) < std::tuple(a.bytes, b.layout);
  });
  return layouts;
}

Result<void> rebuild(Store& store, const DiskOptions& options, Scan scan) {
  try {
    return Rebuilding(store, options, scan).run();
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a disk tier's index");
  }
}

}  // namespace stemma::tier::disk
