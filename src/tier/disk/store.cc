#include "tier/disk/store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "stemma/log.h"
#include "tier/disk/local_files.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

namespace {

Error refused_by_system(const char* what, int64_t result) {
  if (result == -ELOOP) {
    return Error(Errc::corrupt,
                 "one of its files is a link, a pipe or the like and not a file of ours; nothing "
                 "was touched");
  }
  return Error(Errc::copy_failed, what, static_cast<uint32_t>(-result));
}

bool is_ours(std::string_view name) noexcept {
  return name == kLockName || name == kFormatName || name == kFormatNewName || name == kSlabName ||
         name == kTableName || name == kUsesName;
}

// Leaves files that are not ours, and warns about them.
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
  const std::string fresh = store.file(kFormatNewName);
  const int file = store.files->open(fresh, OpenAs::created);
  if (file < 0) return file;
  std::array<uint8_t, kFormatBytes> bytes;
  write_format(bytes);
  int64_t result = store.files->truncate(file, 0);
  if (result >= 0) result = store.files->write(file, 0, bytes);
  if (result >= 0 && result != kFormatBytes) result = -ENOSPC;
  if (result >= 0) result = store.files->datasync(file);
  store.files->close(file);
  if (result >= 0) result = store.files->rename(fresh, store.file(kFormatName));
  if (result >= 0) result = store.files->sync_directory(store.path);
  return static_cast<int>(result);
}

// Fails with `stale` if there is no such file.
Result<void> load_format(Store& store) {
  const int file = store.files->open(store.file(kFormatName), OpenAs::read_only);
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
  if (options.depth == 0 || options.depth > 2048) {
    return Error(Errc::invalid_argument, "depth must be 1 to 2048", options.depth);
  }
  if (options.max_entry_bytes == 0 || options.max_entry_bytes > kMostPayloadBytes) {
    return Error(Errc::invalid_argument, "max_entry_bytes must be 1 to 2^40");
  }
  return {};
}

// Empties a directory of an earlier version: it is a cache, and its entries can be computed again.
// Entries of version 2 do not say which scope they belong to.
int empty_old(Store& store, uint32_t version) {
  log(LogLevel::warning, "disk tier '" + store.path + "': it was written by version " +
                             std::to_string(version) +
                             " of the format, which is not read any more; it is emptied and begun "
                             "anew");
  for (const std::string_view name : {kSlabName, kTableName, kUsesName}) {
    const int file = store.files->open(store.file(name), OpenAs::created);
    if (file < 0) return file;
    const int result = store.files->truncate(file, 0);
    store.files->close(file);
    if (result < 0) return result;
  }
  return 0;
}

Result<void> open_format(Store& store, const std::vector<std::string>& names, IfMissing missing) {
  const auto found = load_format(store);
  if (found) return {};
  const Error& error = found.error();
  if (missing == IfMissing::refuse) return error;
  int result = 0;
  if (error.code() == Errc::unsupported && error.value() < kDiskVersion) {
    result = empty_old(store, error.value());
  } else if (error.code() == Errc::copy_failed &&
             is_bad_place(-static_cast<int64_t>(error.value()))) {
    // Records carry checksums, so nothing else depends on this file.
    log(LogLevel::warning,
        "disk tier '" + store.path + "': the file 'format' is unreadable; it is written again");
  } else if (error.code() != Errc::stale) {
    return error;
  } else if (std::find(names.begin(), names.end(), kSlabName) != names.end()) {
    return Error(Errc::corrupt, "there is a file 'entries.slab' but no file 'format'");
  }
  if (result >= 0) result = write_new_format(store);
  if (result < 0) return refused_by_system("the file 'format' cannot be written", result);
  return {};
}

// The table and the stamps go through the page cache: they are written in small pieces.
Result<void> open_files(Store& store, IfMissing missing) {
  const bool may_create = missing == IfMissing::create;
  Files& files = *store.files;
  const std::string slab = store.file(kSlabName);
  store.slab = files.open(slab, may_create ? OpenAs::created_direct : OpenAs::existing_direct);
  store.opening.direct = store.slab >= 0;
  const OpenAs as = may_create ? OpenAs::created : OpenAs::existing;
  if (store.slab == -EINVAL) store.slab = files.open(slab, as);
  if (store.slab < 0) {
    return refused_by_system("the file 'entries.slab' cannot be opened", store.slab);
  }
  store.table = files.open(store.file(kTableName), as);
  if (store.table < 0) {
    return refused_by_system("the file 'entries.table' cannot be opened", store.table);
  }
  store.uses = files.open(store.file(kUsesName), as);
  if (store.uses < 0) {
    return refused_by_system("the file 'entries.uses' cannot be opened", store.uses);
  }
  if (!may_create) return {};
  if (const int result = files.sync_directory(store.path); result < 0) {
    return refused_by_system("the directory cannot be synced", result);
  }
  return {};
}

}  // namespace

Store::~Store() {
  for (const int file : {uses, table, slab, lock_file}) {
    if (file >= 0) files->close(file);
  }
}

Result<std::unique_ptr<Store>> open_directory(const DiskOptions& options, IfMissing missing) {
  STEMMA_TRY_VOID(check_options(options));
  auto store = std::make_unique<Store>();
  if (options.files == nullptr) store->own_files = make_local_files(options.way);
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
  store->lock_file = files.open(store->file(kLockName), OpenAs::created);
  if (store->lock_file < 0) {
    return refused_by_system("the file 'lock' cannot be opened", store->lock_file);
  }
  if (const int result = files.lock(store->lock_file); result < 0) {
    if (result == -EWOULDBLOCK) {
      return Error(Errc::busy, "another process has this directory open");
    }
    return refused_by_system("the directory cannot be locked", result);
  }
  if (!made) store->opening.foreign = tell_of_foreign(store->path, names);
  STEMMA_TRY_VOID(open_format(*store, names, missing));
  STEMMA_TRY_VOID(open_files(*store, missing));
  return store;
}

Result<std::unique_ptr<Store>> open_store(const DiskOptions& options) {
  const uint64_t begun_ns = monotonic_ns();
  const uint64_t max_pages = options.capacity_bytes / kPage;
  if (max_pages < pages_for(options.max_entry_bytes) || max_pages >= kMostPages) {
    return Error(Errc::invalid_argument,
                 "the capacity is too small for one entry of max_entry_bytes, or 16 TiB and more");
  }
  STEMMA_TRY(auto store, open_directory(options, IfMissing::create));
  STEMMA_TRY(auto found, read_table(*store, options.progress));
  STEMMA_TRY_VOID(rebuild(*store, options, std::move(found)));
  store->opening.ns = monotonic_ns() - begun_ns;
  return store;
}

int Store::grow(uint64_t from, uint64_t pages) {
  const int result = files->allocate(slab, from * kPage, pages * kPage);
  // Without preallocation, a full disk is noticed when entries are written.
  return result == -EOPNOTSUPP ? files->truncate(slab, (from + pages) * kPage) : result;
}

bool Store::in_place() {
  // A file that cannot be checked counts as present.
  return files->is_at(slab, file(kSlabName)) != 0 && files->is_at(table, file(kTableName)) != 0;
}

int Store::write_slot(RecordId id, const TableRecord& record) {
  std::array<uint8_t, kRecordBytes> bytes;
  write_record(record, bytes);
  return write_bytes(id, bytes);
}

int Store::wipe_slot(RecordId id) { return write_bytes(id, {}); }

int Store::erase(const Extent& pages) {
  uint64_t at = uint64_t{pages.first} * kPage;
  uint64_t left = uint64_t{pages.pages} * kPage;
  int result = files->zero(slab, at, left);
  if (result == -EOPNOTSUPP) result = files->punch(slab, at, left);
  if (result != -EOPNOTSUPP) return result;
  constexpr uint64_t kAtOnce = uint64_t{1} << 20U;
  const PageMemory zeros(static_cast<size_t>(std::min(left, kAtOnce)));
  if (!zeros) return -ENOMEM;
  std::memset(zeros.data(), 0, static_cast<size_t>(std::min(left, kAtOnce)));
  while (left != 0) {
    const uint64_t count = std::min(left, kAtOnce);
    const int64_t written = files->write(slab, at, {zeros.data(), static_cast<size_t>(count)});
    if (written < 0) return static_cast<int>(written);
    if (written == 0) return -ENOSPC;
    at += static_cast<uint64_t>(written);
    left -= static_cast<uint64_t>(written);
  }
  return 0;
}

int Store::write_bytes(RecordId id, const std::array<uint8_t, kRecordBytes>& bytes) {
  const int64_t result = files->write(table, uint64_t{id} * kRecordBytes, bytes);
  return result < 0 ? static_cast<int>(result) : result == kRecordBytes ? 0 : -ENOSPC;
}

}  // namespace stemma::tier::disk
