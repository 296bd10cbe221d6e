#include "tier/shared/directory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "stemma/log.h"
#include "tier/shared/directory_parts.h"

namespace stemma::tier::shared {

namespace {

constexpr const char* kNotOurs = "its file 'stemma-shared-tier' is not one of ours, or damaged";

Error system_error(const char* what, int result) {
  return {Errc::copy_failed, what, static_cast<uint32_t>(-result)};
}

std::string make_prefix() {
  std::array<char, 256> host = {};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::random_device device;
  return temporary_prefix(host.data(), static_cast<uint64_t>(getpid()),
                          uint64_t{device()} << 32U | device());
}

std::string parent_of(const std::string& path) {
  std::filesystem::path parent = std::filesystem::path(path + "/.").parent_path().parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

Directory::Directory(std::string path, std::shared_ptr<Files> files)
    : path_(std::move(path)), files_(std::move(files)), prefix_(make_prefix()) {}

std::string Directory::path_of(const EntryKey& key) const {
  return scope_path(folder_of(key), owner_of(key)) + "/" + file_name(key);
}

// ---- The directory itself ----

Result<uint32_t> Directory::version() {
  const int file = files_->open(path_ + "/" + std::string(kMarkerName), OpenAs::read_only);
  if (file == -ENOENT) return Error(Errc::stale, "there is no shared tier here");
  if (file == -ELOOP) return Error(Errc::corrupt, kNotOurs);
  if (file < 0) return system_error("its marker cannot be opened", file);
  std::array<uint8_t, 64> bytes = {};
  const int64_t count = files_->read(file, 0, bytes);
  files_->close(file);
  if (count < 0) return system_error("its marker cannot be read", static_cast<int>(count));
  const auto number =
      parse_marker({reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count)});
  if (!number) return Error(Errc::corrupt, kNotOurs);
  if (*number > kSharedVersion) {
    return Error(Errc::unsupported, "it was made by a newer version; its format is", *number);
  }
  return *number;
}

// If two processes do this at once, the second finds the first one's marker, with the same text.
int Directory::write_marker(Marker how) {
  const std::string temporary = path_ + "/" + prefix_ + std::to_string(++temporaries_);
  const int file = files_->open(temporary, OpenAs::made_new);
  if (file < 0) return file;
  const std::string text = marker_text(kSharedVersion);
  const auto bytes = std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  int64_t result = files_->write(file, 0, bytes);
  if (result >= 0) {
    result = static_cast<uint64_t>(result) == text.size() ? files_->datasync(file) : -ENOSPC;
  }
  const int closed = files_->close(file);
  if (result >= 0) result = closed;
  const std::string marker = path_ + "/" + std::string(kMarkerName);
  const bool replaces = how == Marker::replaced;
  if (result >= 0 && !replaces) result = files_->link(temporary, marker);
  if ((result >= 0 && replaces) || cannot_link(static_cast<int>(result))) {
    result = files_->rename(temporary, marker);
  }
  files_->unlink(temporary);
  if (result == -EEXIST) result = 0;
  return result < 0 ? static_cast<int>(result) : files_->sync_directory(path_);
}

Result<void> Directory::open() {
  FileStat stat;
  const int made = files_->make_directory(path_);
  if (made < 0 && made != -EEXIST) return system_error("it cannot be made", made);
  // Also through a symbolic link: listing follows it.
  std::vector<std::string> names;
  if (const int result = files_->list(path_, names); result < 0) {
    if (result == -ENOTDIR) return Error(Errc::invalid_argument, "it is not a directory");
    return system_error("it cannot be read", result);
  }
  auto found = version();
  if (!found && found.error().code() == Errc::stale) {
    if (!std::all_of(names.begin(), names.end(), is_ours_at_top)) {
      return Error(Errc::corrupt,
                   "it holds other files and is not a shared tier's; name an empty directory");
    }
    if (const int result = write_marker(Marker::if_absent); result < 0) {
      return system_error("its marker cannot be written", result);
    }
    found = version();
  }
  if (!found) return found.error();
  if (*found < kSharedVersion) {
    uint64_t removed = 0;
    if (const int result = remove_old(removed); result < 0) {
      return system_error("what an earlier version left there cannot be removed", result);
    }
    if (const int result = write_marker(Marker::replaced); result < 0) {
      return system_error("its marker cannot be written", result);
    }
  }
  if (files_->stat(path_ + "/.", stat) == 0) device_ = stat.device;
  if (files_->stat(parent_of(path_) + "/.", stat) == 0) parent_device_ = stat.device;
  return {};
}

int Directory::check() {
  FileStat stat;
  return files_->stat(path_ + "/" + std::string(kMarkerName), stat);
}

bool Directory::is_back() {
  const auto found = version();
  if (found) return *found == kSharedVersion || write_marker(Marker::replaced) == 0;
  if (found.error().code() != Errc::stale) return false;
  FileStat stat;
  int result = files_->stat(path_ + "/.", stat);
  if (result == -ENOENT) {
    result = files_->stat(parent_of(path_) + "/.", stat);
    if (result < 0 || stat.device != parent_device_) return false;
    if (files_->make_directory(path_) < 0) return false;
    result = files_->stat(path_ + "/.", stat);
  }
  std::vector<std::string> names;
  return result == 0 && stat.device == device_ && files_->list(path_, names) == 0 &&
         std::all_of(names.begin(), names.end(), is_ours_at_top) &&
         write_marker(Marker::if_absent) == 0;
}

int Directory::list_scopes(uint32_t folder, std::vector<uint64_t>& owners, uint64_t& foreign) {
  std::vector<std::string> names;
  const int result = files_->list(folder_path(folder), names);
  if (result == -ENOENT) return 0;
  if (result < 0) return result;
  for (const std::string& name : names) {
    const auto owner = parse_scope(name);
    owner ? owners.push_back(*owner) : (void)++foreign;
  }
  return 0;
}

int Directory::list(uint32_t folder, uint64_t leftover_ns, Folder& out) {
  std::vector<uint64_t> owners;
  int result = list_scopes(folder, owners, out.foreign);
  for (const uint64_t owner : owners) {
    if (result < 0) break;
    result = list_scope(folder, owner, leftover_ns, out);
  }
  return result;
}

int Directory::list_scope(uint32_t folder, uint64_t owner, uint64_t leftover_ns, Folder& out) {
  const std::string path = scope_path(folder, owner);
  std::vector<std::string> names;
  FileStat stat;
  const int result = files_->list(path, names);
  if (result == -ENOTDIR) ++out.foreign;
  if (is_gone(result) || result == -ENOTDIR) return 0;
  if (result < 0) return result;
  // The next put there makes it again.
  if (names.empty() && files_->stat(path, stat) == 0 && stat.modified_ns < leftover_ns) {
    files_->remove_directory(path);
  }
  for (const std::string& name : names) {
    const std::string file = path + "/" + name;
    const auto key = parse_name(name);
    const bool temporary = is_temporary(name);
    const bool placed = key && folder_of(*key) == folder && owner_of(*key) == owner;
    if (!placed && !temporary) {
      ++out.foreign;
      continue;
    }
    if (temporary && name.starts_with(prefix_)) continue;
    const int told = files_->stat(file, stat);
    if (is_gone(told)) continue;
    if (told < 0) return told;
    if (!stat.regular) {
      ++out.foreign;
    } else if (key) {
      out.seen.push_back({*key, stat.bytes, stat.modified_ns});
    } else if (stat.modified_ns < leftover_ns && files_->unlink(file) == 0) {
      ++out.leftovers;
    } else {
      out.temporary_bytes += room_of(stat.bytes);
    }
  }
  return 0;
}

int Directory::remove_old(uint64_t& removed) {
  std::vector<std::string> folders;
  int problem = files_->list(path_, folders);
  for (const std::string& folder : folders) {
    if (!is_old_folder(folder)) continue;
    const std::string path = path_ + "/" + folder;
    std::vector<std::string> names;
    const int listed = files_->list(path, names);
    if (listed == -ENOTDIR || is_gone(listed)) continue;
    if (problem == 0) problem = listed;
    for (const std::string& name : names) {
      const std::string file = path + "/" + name;
      FileStat stat;
      if (!parse_name(name) && !is_temporary(name)) continue;
      int result = files_->stat(file, stat);
      if (result == 0 && !stat.regular) continue;
      if (result == 0) result = files_->unlink(file);
      if (result == 0) ++removed;
      if (problem == 0 && !is_gone(result)) problem = result;
    }
    if (files_->remove_directory(path) == 0) continue;
    const int synced = files_->sync_directory(path);
    if (problem == 0) problem = synced;
  }
  if (problem == 0 && removed != 0) problem = files_->sync_directory(path_);
  return problem;
}

// ---- Reading ----

Directory::Opened Directory::open_entry(const EntryKey& key) {
  Opened opened(*files_, files_->open(path_of(key), OpenAs::read_only));
  const auto ends = [&](Found found, int64_t problem) {
    opened.found = found;
    opened.problem = static_cast<int>(-problem);
    return std::move(opened);
  };
  if (opened.file == -ENOENT) return ends(Found::absent, 0);
  if (opened.file == -ELOOP) return ends(Found::foreign, 0);
  if (opened.file < 0) return ends(Found::failed, opened.file);
  // Over NFS, a file that another machine removed may be stale right after open.
  if (const int result = files_->stat(opened.file, opened.stat); result < 0) {
    return result == -ESTALE ? ends(Found::absent, 0) : ends(Found::failed, result);
  }
  std::array<uint8_t, kHeaderBytes> bytes;
  const int64_t count = files_->read(opened.file, 0, bytes);
  if (count == -ESTALE) return ends(Found::absent, 0);
  if (count < 0) return ends(Found::failed, count);
  if (count != kHeaderBytes) return ends(Found::damaged, 0);
  const auto header = read_header(bytes);
  if (!header) {
    return ends(header.error().code() == Errc::unsupported ? Found::newer : Found::damaged, 0);
  }
  opened.header = *header;
  const bool holds = header->key == key && opened.stat.bytes == kHeaderBytes + header->body_bytes();
  return ends(holds ? Found::whole : Found::damaged, 0);
}

// Removes the file only if it is still the one that was read: another may have been put since.
Answer Directory::not_believed(const Opened& opened, const EntryKey& key) {
  const std::string path = path_of(key);
  FileStat now;
  if (files_->stat(path, now) == 0 && now == opened.stat) {
    files_->unlink(path);
    log(LogLevel::warning, "shared tier '" + path_ + "': a damaged entry was removed: " + path);
  }
  return {.outcome = TierOutcome::corrupt, .gone = true};
}

Answer Directory::contains(const EntryKey& key) {
  FileStat stat;
  const int result = files_->stat(path_of(key), stat);
  if (result == -ENOENT) return no_file();
  if (result < 0) return failed(result);
  return ended(stat.regular && stat.bytes > kHeaderBytes ? TierOutcome::done : TierOutcome::absent);
}

Answer Directory::read_body(Opened& opened, std::vector<uint32_t>& words, const Take& take) {
  std::vector<uint8_t>& memory = piece_memory();
  const uint64_t word_bytes = uint64_t{opened.header.info.words} * 4;
  const uint64_t end = opened.stat.bytes;
  words.resize(opened.header.info.words);
  memory.resize(std::min<uint64_t>(kPieceBytes, end));
  for (uint64_t at = kHeaderBytes; at < end;) {
    const bool in_words = at < kHeaderBytes + word_bytes;
    const uint64_t left = (in_words ? kHeaderBytes + word_bytes : end) - at;
    const auto piece = std::span(memory).first(std::min<uint64_t>(left, memory.size()));
    const int64_t count = files_->read(opened.file, at, piece);
    if (count == -ESTALE) return no_file();
    if (count < 0) return failed(static_cast<int>(count));
    if (count == 0) return ended(TierOutcome::corrupt);
    const auto got = piece.first(static_cast<size_t>(count));
    if (in_words) {
      const uint64_t offset = at - kHeaderBytes;
      for (uint64_t i = 0; i < got.size(); ++i) {
        words[(offset + i) / 4] |= uint32_t{got[i]} << ((offset + i) % 4 * 8);
      }
    } else if (!take(at - kHeaderBytes - word_bytes, got)) {
      return ended(TierOutcome::cancelled);
    }
    at += got.size();
  }
  return ended(TierOutcome::done);
}

Answer Directory::get(const TierItem& item, Loan& loan) {
  Opened opened = open_entry(item.key);
  switch (opened.found) {
    case Found::failed: return failed(-opened.problem);
    case Found::damaged: return not_believed(opened, item.key);
    case Found::absent: return no_file();
    case Found::newer:
    case Found::foreign: return ended(TierOutcome::absent);
    case Found::whole: break;
  }
  // An entry of another layout is not damaged: others may want it.
  const TierOutcome believed = believe(opened.header, item);
  if (believed == TierOutcome::corrupt) return ended(TierOutcome::absent);
  if (believed != TierOutcome::done) return ended(believed);
  std::vector<uint32_t> words;
  Answer answer = read_body(opened, words, [&](uint64_t offset, std::span<const uint8_t> piece) {
    if (!loan.take()) return false;
    std::memcpy(item.into.data() + offset, piece.data(), piece.size());
    loan.give();
    return true;
  });
  if (answer.outcome == TierOutcome::corrupt) return not_believed(opened, item.key);
  if (answer.outcome != TierOutcome::done) return answer;
  if (!loan.take()) return ended(TierOutcome::cancelled);
  if (sum(words, item.into.first(opened.header.info.bytes)) != opened.header.sum) {
    loan.give();
    return not_believed(opened, item.key);
  }
  answer.info = opened.header.info;
  return answer;
}

Directory::Found Directory::look(const EntryKey& key, EntryHeader& header) {
  const Opened opened = open_entry(key);
  header = opened.header;
  return opened.found;
}

Answer Directory::read_whole(Opened& opened, std::vector<uint8_t>& payload) {
  std::vector<uint32_t> words;
  payload.resize(opened.header.info.bytes);
  Answer answer = read_body(opened, words, [&](uint64_t offset, std::span<const uint8_t> piece) {
    std::memcpy(payload.data() + offset, piece.data(), piece.size());
    return true;
  });
  const bool holds =
      answer.outcome != TierOutcome::done || sum(words, payload) == opened.header.sum;
  return holds ? answer : ended(TierOutcome::corrupt);
}

Directory::Found Directory::verify(const EntryKey& key, EntryHeader& header,
                                   std::vector<uint8_t>* kept) {
  Opened opened = open_entry(key);
  header = opened.header;
  if (opened.found != Found::whole) return opened.found;
  std::vector<uint8_t> payload;
  switch (read_whole(opened, payload).outcome) {
    case TierOutcome::failed: return Found::failed;
    case TierOutcome::absent: return Found::absent;
    case TierOutcome::done: break;
    default: return Found::damaged;
  }
  if (kept != nullptr) *kept = std::move(payload);
  return Found::whole;
}

Answer Directory::scrub(const EntryKey& key) {
  Opened opened = open_entry(key);
  switch (opened.found) {
    case Found::failed: return failed(-opened.problem);
    case Found::damaged: return not_believed(opened, key);
    case Found::absent: return no_file();
    case Found::newer:
    case Found::foreign: return ended(TierOutcome::absent);
    case Found::whole: break;
  }
  std::vector<uint8_t> payload;
  const Answer answer = read_whole(opened, payload);
  return answer.outcome == TierOutcome::corrupt ? not_believed(opened, key) : answer;
}

}  // namespace stemma::tier::shared
