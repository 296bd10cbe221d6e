// What open() reads: the first page of every chunk and of every slot, many at a time.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "stemma/log.h"
#include "tier/disk/store.h"

namespace stemma::tier::disk {

namespace {

// Reads one page at each of many places and shows it, in any order.
class PageReader {
 public:
  static Result<std::unique_ptr<PageReader>> make(Store& store, uint32_t depth) {
    auto reader = std::make_unique<PageReader>();
    reader->store_ = &store;
    reader->memory_ = PageMemory(size_t{depth} * kPage);
    reader->queue_ = store.files->queue(depth);
    if (!reader->memory_ || !reader->queue_) {
      return Error(Errc::out_of_memory, "no memory to read a disk tier's directory");
    }
    reader->reads_.resize(depth);
    reader->free_.reserve(depth);
    for (uint32_t i = 0; i < depth; ++i) {
      Read& read = reader->reads_[i];
      read.kind = Io::Kind::read;
      read.file = store.slab;
      read.parts[0] = {reader->memory_.data() + size_t{i} * kPage, kPage};
      read.part_count = 1;
      reader->free_.push_back(i);
    }
    return reader;
  }

  // `next(offset, tag)` says what to read, false at the end; `see(tag, page)` gets an empty page when
  // the file ends before it.
  template <class Next, class See>
  Result<void> run(Next&& next, See&& see) {
    bool more = true;
    std::vector<Io*> ended(reads_.size());
    while (more || free_.size() < reads_.size()) {
      while (more && !free_.empty()) {
        Read& read = reads_[free_.back()];
        more = next(read.offset, read.tag);
        if (!more) break;
        free_.pop_back();
        queue_->start(read);
      }
      if (free_.size() == reads_.size()) break;
      const size_t count = queue_->wait(ended, 1'000'000'000);
      for (size_t i = 0; i < count; ++i) {
        Read& read = *static_cast<Read*>(ended[i]);
        free_.push_back(static_cast<uint32_t>(&read - reads_.data()));
        if (read.result < 0) {
          failed_ = static_cast<int>(read.result);
          more = false;
          continue;
        }
        const bool whole = read.result == kPage;
        see(read.tag, std::span(static_cast<const uint8_t*>(read.parts[0].iov_base),
                                whole ? size_t{kPage} : 0));
      }
    }
    if (failed_ == 0) return {};
    return Error(Errc::copy_failed, "the file 'entries.slab' cannot be read",
                 static_cast<uint32_t>(-failed_));
  }

  std::string_view way() const noexcept { return queue_->name(); }

 private:
  struct Read : Io {
    uint64_t tag = 0;
  };
  Store* store_ = nullptr;
  PageMemory memory_;
  std::vector<Read> reads_;
  std::vector<uint32_t> free_;
  std::unique_ptr<IoQueue> queue_;  // Ends before the memory that it reads into.
  int failed_ = 0;
};

Result<Scan> scan_all(Store& store, uint32_t depth,
                      const std::function<void(uint64_t, uint64_t)>& progress) {
  const uint64_t chunk_bytes = store.format.chunk_bytes;
  const int64_t size = store.files->size(store.slab);
  if (size < 0) {
    return Error(Errc::copy_failed, "the file 'entries.slab' cannot be read",
                 static_cast<uint32_t>(-size));
  }
  Scan scan;
  scan.chunks.resize((static_cast<uint64_t>(size) + chunk_bytes - 1) / chunk_bytes);
  STEMMA_TRY(auto reader, PageReader::make(store, depth));
  store.opening.io = reader->way();

  uint64_t chunk = 0;
  STEMMA_TRY_VOID(reader->run(
      [&](uint64_t& offset, uint64_t& tag) {
        if (chunk == scan.chunks.size()) return false;
        tag = chunk++;
        offset = tag * chunk_bytes;
        return true;
      },
      [&](uint64_t tag, std::span<const uint8_t> page) {
        if (page.empty()) return;
        const auto header = read_chunk(page.first<kPage>());
        if (header && header->chunk == tag && slots_in(chunk_bytes, header->slot_pages) != 0) {
          scan.chunks[tag] = *header;
        } else if (header || header.error().code() == Errc::corrupt) {
          ++scan.damaged;
        }
      }));

  uint64_t total = 0;
  for (const ChunkHeader& header : scan.chunks) {
    if (header.slot_pages != 0) total += slots_in(chunk_bytes, header.slot_pages);
  }
  if (progress) progress(0, total);
  uint32_t at_chunk = 0;
  uint32_t at_slot = 0;
  STEMMA_TRY_VOID(reader->run(
      [&](uint64_t& offset, uint64_t& tag) {
        while (at_chunk < scan.chunks.size()) {
          const uint32_t pages = scan.chunks[at_chunk].slot_pages;
          if (pages != 0 && at_slot < slots_in(chunk_bytes, pages)) {
            offset = slot_offset(chunk_bytes, at_chunk, at_slot, pages);
            tag = uint64_t{at_chunk} << 32U | at_slot++;
            return true;
          }
          ++at_chunk;
          at_slot = 0;
        }
        return false;
      },
      [&](uint64_t tag, std::span<const uint8_t> page) {
        if (++scan.slots_read % 16384 == 0 && progress) progress(scan.slots_read, total);
        // A slot that was never used, or was freed, begins with zeros.
        if (page.empty() || std::all_of(page.begin(), page.begin() + kHeaderBytes,
                                        [](uint8_t byte) { return byte == 0; })) {
          return;
        }
        FoundSlot found;
        found.chunk = static_cast<uint32_t>(tag >> 32U);
        found.slot = static_cast<uint32_t>(tag);
        const auto header = read_header(page.first<kHeaderBytes>());
        if (!header ||
            slot_pages_for(shape_of(header->info).pages) != scan.chunks[found.chunk].slot_pages) {
          ++scan.damaged;
          return;
        }
        found.header = *header;
        scan.slots.push_back(found);
      }));
  if (progress) progress(total, total);
  return scan;
}

}  // namespace

Result<Scan> scan(Store& store, uint32_t depth,
                  const std::function<void(uint64_t, uint64_t)>& progress) {
  try {
    return scan_all(store, depth, progress);
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to read a disk tier's directory");
  }
}

Payload check_payload(Store& store, const FoundSlot& found, PageMemory& buffer) {
  const EntryShape shape = shape_of(found.header.info);
  const uint64_t bytes = shape.pages * kPage;
  if (buffer.size() < bytes) buffer = PageMemory(bytes);
  if (!buffer) return Payload::unreadable;
  const uint64_t at =
      slot_offset(store.format.chunk_bytes, found.chunk, found.slot, slot_pages_for(shape.pages));
  for (uint64_t done = 0; done < bytes;) {
    const int64_t count =
        store.files->read(store.slab, at + done, {buffer.data() + done, bytes - done});
    if (count < 0) return Payload::unreadable;
    if (count == 0) return Payload::damaged;
    done += static_cast<uint64_t>(count);
  }
  const EntryInfo& info = found.header.info;
  const std::span<const uint32_t> words(
      reinterpret_cast<const uint32_t*>(buffer.data() + kHeaderBytes), info.words);
  return sum(words, {buffer.data() + shape.payload_at, info.bytes}) == found.header.sum
             ? Payload::whole
             : Payload::damaged;
}

}  // namespace stemma::tier::disk
