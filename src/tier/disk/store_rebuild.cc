// From what lies in the slots to books that can be worked with, within the capacity.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <tuple>
#include <unordered_map>

#include "stemma/log.h"
#include "tier/disk/store.h"

namespace stemma::tier::disk {

namespace {

// Puts that a crash may have cut off are among the newest: their payloads are looked at, so that they
// are not listed. What this misses is found by its checksum when it is read.
constexpr uint64_t kRecentSerials = 64;
constexpr uint64_t kRecentBytes = uint64_t{256} << 20U;

bool wipe_slot(Store& store, const FoundSlot& found, uint64_t slot_pages) {
  const PageMemory page(kPage);
  if (!page) return false;
  std::memset(page.data(), 0, kPage);
  const uint64_t at = slot_offset(store.format.chunk_bytes, found.chunk, found.slot, slot_pages);
  return store.files->write(store.slab, at, page.first(kPage)) == kPage;
}

// Takes those whose payload does not hold out of `slots`, which is in ascending order of serials.
void drop_torn(Store& store, std::vector<FoundSlot>& slots) {
  if (slots.empty()) return;
  const uint64_t newest = slots.back().header.serial;
  PageMemory buffer;
  uint64_t looked_at = 0;
  for (size_t i = slots.size(); i-- > 0;) {
    const FoundSlot& found = slots[i];
    looked_at += found.header.body_bytes();
    if (newest - found.header.serial >= kRecentSerials || looked_at > kRecentBytes) break;
    if (check_payload(store, found, buffer) != Payload::damaged) continue;
    ++store.opening.damaged;
    wipe_slot(store, found, slot_pages_for(shape_of(found.header.info).pages));
    slots[i].header.info.bytes = 0;  // Marked.
  }
  std::erase_if(slots, [](const FoundSlot& found) { return found.header.info.bytes == 0; });
}

Result<void> rebuild_all(Store& store, const DiskOptions& options, Scan& scan) {
  const uint64_t chunk_bytes = store.format.chunk_bytes;
  const uint64_t max_chunks = std::min<uint64_t>(options.capacity_bytes / chunk_bytes, 1U << 30U);
  if (max_chunks == 0) {
    return Error(Errc::invalid_argument, "the capacity is smaller than one chunk of this store");
  }
  DiskOpening& opening = store.opening;
  opening.slots_read = scan.slots_read;
  opening.damaged = scan.damaged;
  STEMMA_TRY(store.books, SlotBooks::create({.chunk_bytes = chunk_bytes,
                                             .max_chunks = static_cast<uint32_t>(max_chunks),
                                             .policy = options.policy}));
  SlotBooks& books = *store.books;
  const Error no_memory(Errc::out_of_memory, "no memory for a disk tier's index");
  for (uint32_t chunk = 0; chunk < scan.chunks.size(); ++chunk) {
    if (scan.chunks[chunk].slot_pages == 0) {
      // Never begun, or its first page is damaged: its room goes back.
      if (const int result = store.drop_chunk(chunk); result < 0) {
        return Error(Errc::copy_failed, "the file system does not take room back",
                     static_cast<uint32_t>(-result));
      }
    } else if (!books.assign(chunk, scan.chunks[chunk].slot_pages)) {
      return no_memory;
    }
  }

  // Oldest first; of one batch the deepest, which is to go first.
  std::sort(scan.slots.begin(), scan.slots.end(), [](const FoundSlot& a, const FoundSlot& b) {
    if (a.header.serial != b.header.serial) return a.header.serial < b.header.serial;
    return a.header.info.end > b.header.info.end;
  });
  drop_torn(store, scan.slots);
  std::vector<RecordId> older;
  for (const FoundSlot& found : scan.slots) {
    if (const RecordId twin = books.find(found.header.key); twin != kNoRecord) {
      ++opening.duplicates;
      wipe_slot(store,
                {.header = found.header, .chunk = books[twin].chunk, .slot = books[twin].slot},
                books.slot_pages(twin));
      books.retire(twin);
      older.push_back(twin);
    }
    const RecordId id = books.adopt(found.header.key, found.header.info, found.chunk, found.slot);
    if (id == kNoRecord) return no_memory;
    books.publish(id, 0);
    store.next_serial = found.header.serial + 1;
  }
  books.end_adopting();
  for (const RecordId id : older) books.free(id);

  // A capacity that is smaller now holds from now on.
  while (books.chunks() > max_chunks) {
    const uint64_t before = books.entries();
    const uint32_t chunk = books.empty_oldest_chunk();
    if (const int result = store.drop_chunk(chunk); result < 0) {
      return Error(Errc::copy_failed, "the file system does not take room back",
                   static_cast<uint32_t>(-result));
    }
    books.release(chunk);
    opening.dropped += before - books.entries();
  }
  uint32_t last = books.chunk_places();
  while (last > 0 && !books.in_use(last - 1)) --last;
  if (last < scan.chunks.size()) store.files->truncate(store.slab, last * chunk_bytes);
  opening.entries = books.entries();
  std::erase_if(scan.slots, [&](const FoundSlot& found) {
    const RecordId id = books.find(found.header.key);
    return id == kNoRecord || books[id].chunk != found.chunk || books[id].slot != found.slot;
  });
  opening.layouts = layouts_of(scan.slots);
  return {};
}

}  // namespace

std::vector<DiskLayout> layouts_of(std::span<const FoundSlot> slots) {
  std::unordered_map<uint64_t, DiskLayout> all;
  for (const FoundSlot& found : slots) {
    DiskLayout& one = all[found.header.info.layout];
    one.layout = found.header.info.layout;
    ++one.entries;
    one.bytes += found.header.info.bytes;
  }
  std::vector<DiskLayout> layouts;
  layouts.reserve(all.size());
  for (const auto& [layout, one] : all) layouts.push_back(one);
  std::sort(layouts.begin(), layouts.end(), [](const DiskLayout& a, const DiskLayout& b) {
    return std::tuple(b.bytes, a.layout) < std::tuple(a.bytes, b.layout);
  });
  return layouts;
}

Result<void> rebuild(Store& store, const DiskOptions& options, Scan scan) {
  try {
    return rebuild_all(store, options, scan);
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a disk tier's index");
  }
}

}  // namespace stemma::tier::disk
