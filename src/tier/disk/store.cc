#include "tier/disk/store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "stemma/log.h"

namespace stemma::tier::disk {

namespace {

Error refused_by_system(const char* what, int64_t result) {
  if (result == -ELOOP) {
    return Error(
        Errc::corrupt,
        "'lock', 'format' or 'entries.slab' is a link, a pipe or the like and not a file of ours; "
        "nothing was touched");
  }
  return Error(Errc::copy_failed, what, static_cast<uint32_t>(-result));
}

bool is_ours(std::string_view name) noexcept {
  return name == kLockName || name == kFormatName || name == kFormatNewName || name == kSlabName;
}

// Files that are not ours stay; whoever put them there should hear of it.
uint64_t tell_of_foreign(const std::string& path, const std::vector<std::string>& names) {
  uint64_t count = 0;
  std::string some;
  for (const std::string& name : names) {
    if (is_ours(name)) continue;
    if (++count <= 8) some += (some.empty() ? "'" : ", '") + name + "'";
  }
  if (count != 0) {
    log(LogLevel::warning, "disk tier '" + path + "': " + std::to_string(count) +
                               " files are not ours and are left alone: " + some +
                               (count > 8 ? " ..." : ""));
  }
  return count;
}

int write_new_format(Store& store) {
  const std::string fresh = store.path + "/" + kFormatNewName;
  const int file = store.files->open(fresh, OpenAs::created);
  if (file < 0) return file;
  std::array<uint8_t, kFormatBytes> bytes;
  write_format(store.format, bytes);
  int64_t result = store.files->truncate(file, 0);
  if (result >= 0) result = store.files->write(file, 0, bytes);
  if (result >= 0 && result != kFormatBytes) result = -ENOSPC;
  if (result >= 0) result = store.files->datasync(file);
  store.files->close(file);
  if (result >= 0) result = store.files->rename(fresh, store.path + "/" + kFormatName);
  if (result >= 0) result = store.files->sync_directory(store.path);
  return static_cast<int>(result);
}

// The format as it lies there; `stale` when there is none.
Result<DiskFormat> load_format(Store& store) {
  const int file = store.files->open(store.path + "/" + kFormatName, OpenAs::read_only);
  if (file == -ENOENT) return Error(Errc::stale, "there is no store of a disk tier here");
  if (file < 0) return refused_by_system("the file 'format' cannot be opened", file);
  std::array<uint8_t, kFormatBytes + 1> bytes;
  const int64_t count = store.files->read(file, 0, bytes);
  store.files->close(file);
  if (count < 0) return refused_by_system("the file 'format' cannot be read", count);
  return read_format(std::span(bytes).first(static_cast<size_t>(count)));
}

Result<void> check_options(const DiskOptions& options) {
  if (options.path.empty()) return Error(Errc::invalid_argument, "a disk tier needs a directory");
  if (options.depth == 0 || options.depth > 4096) {
    return Error(Errc::invalid_argument, "depth must be 1 to 4096", options.depth);
  }
  if (options.max_entry_bytes == 0 || options.max_entry_bytes > kMostPayloadBytes) {
    return Error(Errc::invalid_argument, "max_entry_bytes must be 1 to 2^40");
  }
  if (options.chunk_bytes % kPage != 0 ||
      (options.chunk_bytes != 0 &&
       (options.chunk_bytes < kLeastChunkBytes || options.chunk_bytes > kMostChunkBytes))) {
    return Error(Errc::invalid_argument,
                 "chunk_bytes must be a multiple of 4096, from 65536 to 2^41");
  }
  return {};
}

Result<void> open_format(Store& store, const DiskOptions& options,
                         const std::vector<std::string>& names, IfMissing missing) {
  const auto found = load_format(store);
  if (found) {
    store.format = *found;
    return {};
  }
  if (found.error().code() != Errc::stale || missing == IfMissing::refuse) return found.error();
  if (std::find(names.begin(), names.end(), kSlabName) != names.end()) {
    return Error(Errc::corrupt, "there is a file 'entries.slab' but no file 'format'");
  }
  store.format.chunk_bytes = options.chunk_bytes != 0 ? options.chunk_bytes
                                                      : choose_chunk_bytes(options.capacity_bytes,
                                                                           options.max_entry_bytes);
  if (store.format.chunk_bytes == 0 || store.format.chunk_bytes > options.capacity_bytes) {
    return Error(Errc::invalid_argument,
                 "the capacity is too small for one entry of max_entry_bytes");
  }
  if (const int result = write_new_format(store); result < 0) {
    return refused_by_system("the file 'format' cannot be written", result);
  }
  return {};
}

}  // namespace

Store::~Store() {
  if (slab >= 0) files->close(slab);
  if (lock_file >= 0) files->close(lock_file);
}

Result<std::unique_ptr<Store>> open_directory(const DiskOptions& options, IfMissing missing) {
  STEMMA_TRY_VOID(check_options(options));
  auto store = std::make_unique<Store>();
  if (options.files == nullptr) store->own_files = make_system_files(options.way);
  store->files = options.files != nullptr ? options.files : store->own_files.get();
  store->path = options.path;
  Files& files = *store->files;

  bool made = false;
  if (missing == IfMissing::create) {
    const int result = files.make_directory(store->path);
    made = result >= 0;
    if (result < 0 && result != -EEXIST) {
      return refused_by_system("the directory cannot be made", result);
    }
  }
  std::vector<std::string> names;
  if (const int result = files.list(store->path, names); result < 0) {
    if (result == -ENOTDIR) return Error(Errc::invalid_argument, "the path is not a directory");
    if (result == -ENOENT) return Error(Errc::stale, "there is no such directory");
    return refused_by_system("the directory cannot be read", result);
  }
  const bool has_format = std::find(names.begin(), names.end(), kFormatName) != names.end();
  if (missing == IfMissing::refuse && !has_format) {
    return Error(Errc::stale, "there is no store of a disk tier here");
  }
  if (!made) store->opening.foreign = tell_of_foreign(store->path, names);

  store->lock_file = files.open(store->path + "/" + kLockName, OpenAs::created);
  if (store->lock_file < 0) {
    return refused_by_system("the file 'lock' cannot be opened", store->lock_file);
  }
  if (const int result = files.lock(store->lock_file); result < 0) {
    if (result == -EWOULDBLOCK) {
      return Error(Errc::busy, "another process has this directory open");
    }
    return refused_by_system("the directory cannot be locked", result);
  }
  STEMMA_TRY_VOID(open_format(*store, options, names, missing));

  const std::string slab = store->path + "/" + kSlabName;
  const bool may_create = missing == IfMissing::create;
  store->slab = files.open(slab, may_create ? OpenAs::created_direct : OpenAs::existing_direct);
  store->opening.direct = store->slab >= 0;
  if (store->slab == -EINVAL) {
    store->slab = files.open(slab, may_create ? OpenAs::created : OpenAs::existing);
  }
  if (store->slab < 0) {
    return refused_by_system("the file 'entries.slab' cannot be opened", store->slab);
  }
  if (may_create) {
    if (const int result = files.sync_directory(store->path); result < 0) {
      return refused_by_system("the directory cannot be synced", result);
    }
  }
  return store;
}

int Store::drop_chunk(uint32_t chunk) {
  return files->punch(slab, offset(chunk), format.chunk_bytes);
}

int Store::prepare_chunk(uint32_t chunk, uint32_t slot_pages, bool had_entries) {
  const uint64_t at = offset(chunk);
  int result = 0;
  if (had_entries) {
    result = files->zero(slab, at, format.chunk_bytes);
    if (result == -EOPNOTSUPP) result = files->punch(slab, at, format.chunk_bytes);
    if (result < 0) return result;
  }
  result = files->allocate(slab, at, format.chunk_bytes);
  if (result == -EOPNOTSUPP) {
    // Without preallocation a full disk shows when entries are written.
    const int64_t size = files->size(slab);
    if (size < 0) return static_cast<int>(size);
    result = static_cast<uint64_t>(size) < at + format.chunk_bytes
                 ? files->truncate(slab, at + format.chunk_bytes)
                 : 0;
  }
  if (result < 0) return result;
  // The old division must not come back under the new entries.
  if (had_entries) {
    if (result = files->datasync(slab); result < 0) return result;
  }
  const PageMemory page(kPage);
  if (!page) return -ENOMEM;
  write_chunk({.chunk = chunk, .slot_pages = slot_pages},
              std::span<uint8_t, kPage>(page.data(), kPage));
  const int64_t written = files->write(slab, at, page.first(kPage));
  if (written < 0) return static_cast<int>(written);
  return written == kPage ? 0 : -ENOSPC;
}

}  // namespace stemma::tier::disk
