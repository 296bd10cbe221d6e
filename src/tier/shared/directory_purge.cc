#include "tier/shared/directory_purge.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "tier/shared/directory_parts.h"

namespace stemma::tier::shared {

using Found = Directory::Found;

void DirectoryPurge::note(int result) {
  if (result >= 0) return;
  const base::Lock lock(mutex_);
  // An entry of a newer version is the least of the problems: any other one replaces it.
  if (problem_ == 0 || problem_ == -EPROTONOSUPPORT) problem_ = result;
}

void DirectoryPurge::changed(const std::string& folder) {
  const base::Lock lock(mutex_);
  to_sync_.insert(folder);
}

std::vector<uint64_t> DirectoryPurge::owners_in(uint32_t folder) {
  if (what_.owner) return {*what_.owner};
  std::vector<uint64_t> owners;
  uint64_t foreign = 0;
  note(directory_.list_scopes(folder, owners, foreign));
  return owners;
}

void DirectoryPurge::look(uint32_t folder) {
  for (const uint64_t owner : owners_in(folder)) {
    std::vector<std::string> names;
    const int listed = directory_.files().list(directory_.scope_path(folder, owner), names);
    if (!is_gone(listed) && listed != -ENOTDIR) note(listed);
    for (const std::string& name : names) {
      const auto key = parse_name(name);
      if (!key || folder_of(*key) != folder || owner_of(*key) != owner) continue;
      if (!go_on_()) return;
      EntryHeader header;
      const Found found = directory_.look(*key, header);
      if (found == Found::failed) note(-EIO);
      if (found != Found::whole) continue;
      const base::Lock lock(mutex_);
      choice_.look(*key, header.info);
    }
  }
}

void DirectoryPurge::remove(uint32_t folder, std::vector<EntryKey>& gone) {
  for (const uint64_t owner : owners_in(folder)) {
    const std::string path = directory_.scope_path(folder, owner);
    Names seen;
    remove_listed(folder, owner, seen, gone);
    remove_listed(folder, owner, seen, gone);
    const int removed = what_.is_by_key() ? directory_.files().remove_directory(path) : 0;
    if (what_.is_by_key() && removed == 0) {
      changed(directory_.folder_path(folder));
    } else if (!seen.empty()) {
      changed(path);
    }
  }
}

// Removes the entries that are not in `seen` yet.
void DirectoryPurge::remove_listed(uint32_t folder, uint64_t owner, Names& seen,
                                   std::vector<EntryKey>& gone) {
  const std::string path = directory_.scope_path(folder, owner);
  std::vector<std::string> names;
  const int listed = directory_.files().list(path, names);
  if (!is_gone(listed) && listed != -ENOTDIR) note(listed);
  std::vector<std::pair<std::string, EntryKey>> entries;
  // Temporaries first: each may become an entry at any moment.
  for (std::string& name : names) {
    if (!seen.insert(name).second) continue;
    const std::string file = path + "/" + name;
    if (is_temporary(name)) {
      if (!go_on_()) return;
      remove_temporary(file);
      continue;
    }
    const auto key = parse_name(name);
    if (!key || folder_of(*key) != folder || owner_of(*key) != owner) continue;
    entries.emplace_back(file, *key);
  }
  for (const auto& [file, key] : entries) {
    if (!go_on_()) return;
    const bool went = what_.is_by_key() ? remove_unread(file, key) : remove_if_taken(file, key);
    if (went) gone.push_back(key);
  }
}

bool DirectoryPurge::unlink(const std::string& path) {
  const int result = directory_.files().unlink(path);
  if (!is_gone(result)) note(result);
  return result == 0;
}

// Also removes a file without a header: nobody can tell what it will become.
bool DirectoryPurge::remove_temporary(const std::string& path) {
  Files& files = directory_.files();
  FileStat stat;
  const int result = files.stat(path, stat);
  if (!is_gone(result)) note(result);
  if (result < 0 || !stat.regular) return false;
  if (what_.is_by_key()) return unlink(path);
  std::array<uint8_t, kHeaderBytes> bytes = {};
  const int file = files.open(path, OpenAs::read_only);
  if (is_gone(file)) return false;
  const int64_t count = file < 0 ? file : files.read(file, 0, bytes);
  if (file >= 0) files.close(file);
  if (count == kHeaderBytes) {
    const auto header = read_header(bytes);
    if (header && !what_.takes(header->key, header->info)) return false;
    if (!header && header.error().code() == Errc::unsupported) {
      note(-EPROTONOSUPPORT);
      return false;
    }
  }
  return unlink(path);
}

// The name tells the owner. Reading a million headers that are not in memory takes minutes.
bool DirectoryPurge::remove_unread(const std::string& path, const EntryKey& key) {
  FileStat stat;
  const int result = directory_.files().stat(path, stat);
  if (!is_gone(result)) note(result);
  if (result < 0 || !stat.regular || !unlink(path)) return false;
  const uint64_t bytes = stat.bytes - std::min<uint64_t>(stat.bytes, kHeaderBytes);
  const base::Lock lock(mutex_);
  choice_.takes(key, {.begin = 0, .end = 1, .layout = 0, .bytes = bytes, .words = 0});
  return true;
}

// An unreadable entry is removed: it may be one of those. An entry of another version is left.
bool DirectoryPurge::remove_if_taken(const std::string& path, const EntryKey& key) {
  EntryHeader header;
  const Found found = directory_.look(key, header);
  if (found == Found::failed) note(-EIO);
  if (found == Found::newer) note(-EPROTONOSUPPORT);
  if (found != Found::whole && found != Found::damaged) return false;
  if (found == Found::whole) {
    const base::Lock lock(mutex_);
    if (!choice_.takes(key, header.info)) return false;
  }
  if (!unlink(path)) return false;
  if (found == Found::damaged) {
    const base::Lock lock(mutex_);
    ++choice_.purged.entries;
  }
  return true;
}

void DirectoryPurge::remove_old() {
  uint64_t removed = 0;
  note(directory_.remove_old(removed));
  const base::Lock lock(mutex_);
  choice_.purged.entries += removed;
}

int DirectoryPurge::finish() {
  std::set<std::string> folders;
  {
    const base::Lock lock(mutex_);
    folders.swap(to_sync_);
  }
  // After all removals: the first sync does most of the work for the others.
  for (const std::string& folder : folders) {
    const int result = directory_.files().sync_directory(folder);
    if (!is_gone(result)) note(result);
  }
  const base::Lock lock(mutex_);
  return -problem_;
}

}  // namespace stemma::tier::shared
