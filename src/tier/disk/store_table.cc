// What open() reads: the whole table from start to end, and the stamps of last use.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "stemma/log.h"
#include "tier/disk/store.h"

namespace stemma::tier::disk {

namespace {

constexpr uint64_t kStep = uint64_t{1} << 20U;

// Reads up to the end of the file; fills the rest with zeros. Returns 0 or -errno.
int64_t read_all(Store& store, int file, uint64_t offset, std::span<uint8_t> into) {
  size_t done = 0;
  while (done < into.size()) {
    const int64_t count = store.files->read(file, offset + done, into.subspan(done));
    if (count < 0) return count;
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  std::fill(into.begin() + static_cast<std::ptrdiff_t>(done), into.end(), uint8_t{0});
  return 0;
}

// Shows each page of a file in order. If a step cannot be read, its pages are tried one by one, and
// an unreadable page is shown as empty.
template <class See>
void each_page(Store& store, int file, uint64_t pages, See&& see) {
  std::vector<uint8_t> buffer(std::min(kStep, pages * kPage));
  for (uint64_t page = 0; page < pages;) {
    const uint64_t count = std::min(kStep / kPage, pages - page);
    const auto all = std::span(buffer).first(count * kPage);
    const bool good = read_all(store, file, page * kPage, all) >= 0;
    for (uint64_t i = 0; i < count; ++i, ++page) {
      const auto one = all.subspan(i * kPage, kPage);
      const bool readable = good || read_all(store, file, page * kPage, one) >= 0;
      see(page, readable ? std::span<const uint8_t>(one) : std::span<const uint8_t>());
    }
  }
}

void read_one(Scan& scan, RecordId id, std::span<const uint8_t, kRecordBytes> bytes) {
  const auto record = read_record(bytes);
  if (!record && record.error().code() == Errc::stale) return;
  const auto is_behind = [&](const Extent& one) {
    return uint64_t{one.first} + one.pages > scan.slab_pages;
  };
  if (!record || std::ranges::any_of(record->places(), is_behind)) {
    scan.damaged.push_back(id);
    return;
  }
  scan.found.push_back({.header = record->header,
                        .used = record->used,
                        .record = id,
                        .first_extent = static_cast<uint32_t>(scan.extents.size()),
                        .extent_count = record->extent_count,
                        .kind = record->kind,
                        .priority = record->priority});
  scan.extents.insert(scan.extents.end(), record->places().begin(), record->places().end());
}

Result<Scan> read_table_all(Store& store, const std::function<void(uint64_t, uint64_t)>& progress) {
  const int64_t slab_size = store.files->size(store.slab);
  const int64_t size = slab_size < 0 ? slab_size : store.files->size(store.table);
  if (size < 0) {
    return Error(Errc::copy_failed, "the directory's files cannot be read",
                 static_cast<uint32_t>(-size));
  }
  Scan scan;
  scan.slab_pages = static_cast<uint64_t>(slab_size) / kPage;
  const uint64_t pages = std::min<uint64_t>(pages_for(static_cast<uint64_t>(size)), 1U << 23U);
  scan.records = static_cast<RecordId>(pages * kRecordsInPage);
  scan.unreadable_pages.resize(pages);
  uint64_t unreadable = 0;
  if (progress) progress(0, scan.records);
  each_page(store, store.table, pages, [&](uint64_t page, std::span<const uint8_t> bytes) {
    const auto first = static_cast<RecordId>(page * kRecordsInPage);
    if (bytes.empty()) {
      scan.unreadable_pages[page] = true;
      if (unreadable++ == 0) {
        log(LogLevel::warning, "disk tier '" + store.path + "': page " + std::to_string(page) +
                                   " of 'entries.table' cannot be read; its entries are lost, and "
                                   "it is not used again");
      }
      return;
    }
    for (uint32_t i = 0; i < kRecordsInPage; ++i) {
      read_one(scan, first + i, bytes.subspan(size_t{i} * kRecordBytes).first<kRecordBytes>());
    }
    if (progress && page % 1024 == 1023) progress(first + kRecordsInPage, scan.records);
  });
  store.opening.unreadable_pages = unreadable;
  if (progress) progress(scan.records, scan.records);
  return scan;
}

}  // namespace

Result<Scan> read_table(Store& store, const std::function<void(uint64_t, uint64_t)>& progress) {
  try {
    return read_table_all(store, progress);
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to read a disk tier's directory");
  }
}

std::vector<uint64_t> read_all_uses(Store& store, RecordId records) {
  std::vector<uint64_t> stamps(records);
  const int64_t size = store.files->size(store.uses);
  const uint64_t pages = std::min((uint64_t{records} + kUsesInPage - 1) / kUsesInPage,
                                  pages_for(static_cast<uint64_t>(std::max<int64_t>(size, 0))));
  each_page(store, store.uses, pages, [&](uint64_t page, std::span<const uint8_t> bytes) {
    Uses uses;
    if (bytes.empty() || !read_uses(bytes.first<kPage>(), uses)) return;
    const uint64_t first = page * kUsesInPage;
    std::copy_n(uses.begin(), std::min<uint64_t>(kUsesInPage, records - first),
                stamps.begin() + static_cast<std::ptrdiff_t>(first));
  });
  return stamps;
}

Payload check_payload(Store& store, const EntryHeader& header, std::span<const Extent> places,
                      PageMemory& buffer, uint32_t& bad) {
  bad = 0;
  const EntryInfo& info = header.info;
  const uint64_t bytes = pages_of(info) * kPage;
  if (buffer.size() < bytes) buffer = PageMemory(bytes);
  if (!buffer) return Payload::unreadable;
  uint8_t* to = buffer.data();
  for (size_t i = 0; i < places.size(); ++i) {
    const uint64_t count = uint64_t{places[i].pages} * kPage;
    if (read_all(store, store.slab, uint64_t{places[i].first} * kPage, {to, count}) < 0) {
      bad |= 1U << i;
    }
    to += count;
  }
  if (bad != 0) return Payload::unreadable;
  const std::span<const uint32_t> words(
      reinterpret_cast<const uint32_t*>(buffer.data() + words_at(info)), info.words);
  return sum(words, {buffer.data(), info.bytes}) == header.sum ? Payload::whole : Payload::damaged;
}

}  // namespace stemma::tier::disk
