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

namespace stemma::tier::shared {

namespace {

constexpr size_t kPieceBytes = size_t{4} << 20U;
// A file with links or names that the file system did not know: another way will do.
bool cannot_link(int result) noexcept {
  return result == -EPERM || result == -ENOSYS || result == -EOPNOTSUPP || result == -EMLINK ||
         result == -EACCES;
}
bool is_full(int result) noexcept {
  return result == -ENOSPC || result == -EDQUOT || result == -EFBIG;
}

Error system_error(const char* what, int result) {
  return {Errc::copy_failed, what, static_cast<uint32_t>(-result)};
}

Answer failed(int result) { return {.outcome = TierOutcome::failed, .problem = -result}; }
Answer ended(TierOutcome outcome) { return {.outcome = outcome}; }
Answer no_file() { return {.outcome = TierOutcome::absent, .gone = true}; }

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

// Memory of this thread's own, for pieces.
std::vector<uint8_t>& piece_memory() {
  thread_local std::vector<uint8_t> memory;
  return memory;
}

}  // namespace

// An entry's file, open, as far as its header tells.
struct Directory::Opened {
  Opened(FileSystem& owner, int opened) noexcept : files(owner), file(opened) {}
  Opened(Opened&& other) noexcept
      : files(other.files),
        file(std::exchange(other.file, -1)),
        found(other.found),
        problem(other.problem),
        stat(other.stat),
        header(other.header) {}
  Opened& operator=(Opened&&) = delete;
  ~Opened() {
    if (file >= 0) files.close(file);
  }
  FileSystem& files;
  int file;
  Found found = Found::failed;
  int problem = 0;
  FileStat stat;
  EntryHeader header;
};

Directory::Directory(std::string path, std::shared_ptr<FileSystem> files)
    : path_(std::move(path)), files_(std::move(files)), prefix_(make_prefix()) {}

std::string Directory::path_of(const EntryKey& key) const {
  return path_ + "/" + folder_name(folder_of(key)) + "/" + file_name(key);
}

// ---- The directory itself ----

Result<uint32_t> Directory::version() {
  const int file = files_->open(path_ + "/" + std::string(kMarkerName));
  if (file == -ENOENT) return Error(Errc::stale, "there is no shared tier here");
  if (file < 0) return system_error("its marker cannot be opened", file);
  std::array<uint8_t, 64> bytes = {};
  const int64_t count = files_->read(file, 0, bytes);
  files_->close(file);
  if (count < 0) return system_error("its marker cannot be read", static_cast<int>(count));
  const auto number =
      parse_marker({reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count)});
  if (!number) {
    return Error(Errc::corrupt, "its file 'stemma-shared-tier' is not one of ours, or damaged");
  }
  if (*number > kSharedVersion) {
    return Error(Errc::unsupported, "it was made by a newer version; its format is", *number);
  }
  return *number;
}

// Whoever is second finds the first one's, which says the same.
int Directory::write_marker() {
  const std::string temporary = path_ + "/" + prefix_ + std::to_string(++temporaries_);
  const int file = files_->create(temporary);
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
  if (result >= 0) result = files_->link(temporary, marker);
  if (cannot_link(static_cast<int>(result))) result = files_->rename(temporary, marker);
  files_->unlink(temporary);
  if (result == -EEXIST) result = 0;
  return result < 0 ? static_cast<int>(result) : files_->sync_directory(path_);
}

Result<void> Directory::open() {
  FileStat stat;
  const int made = files_->make_directory(path_);
  if (made < 0 && made != -EEXIST) return system_error("it cannot be made", made);
  // Through a symbolic link too: listing follows it.
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
    if (const int result = write_marker(); result < 0) {
      return system_error("its marker cannot be written", result);
    }
    found = version();
  }
  if (!found) return found.error();
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
  if (found) return true;
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
         std::all_of(names.begin(), names.end(), is_ours_at_top) && write_marker() == 0;
}

int Directory::list(uint32_t folder, uint64_t leftover_ns, Folder& out) {
  const std::string path = path_ + "/" + folder_name(folder) + "/";
  std::vector<std::string> names;
  const int result = files_->list(path, names);
  if (result == -ENOENT) return 0;
  if (result < 0) return result;
  for (const std::string& name : names) {
    const std::string file = path + name;
    const auto key = parse_name(name);
    const bool temporary = is_temporary(name);
    if ((!key || folder_of(*key) != folder) && !temporary) {
      ++out.foreign;
      continue;
    }
    if (temporary && name.starts_with(prefix_)) continue;
    FileStat stat;
    const int told = files_->stat(file, stat);
    if (told == -ENOENT || told == -ESTALE) continue;
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

// ---- Reading ----

Directory::Opened Directory::open_entry(const EntryKey& key) {
  Opened opened(*files_, files_->open(path_of(key)));
  const auto ends = [&](Found found, int64_t problem) {
    opened.found = found;
    opened.problem = static_cast<int>(-problem);
    return std::move(opened);
  };
  if (opened.file == -ENOENT) return ends(Found::absent, 0);
  if (opened.file == -ELOOP || opened.file == -ENXIO) return ends(Found::foreign, 0);
  if (opened.file < 0) return ends(Found::failed, opened.file);
  // Over NFS a file that another machine removed may be stale once it is open.
  if (const int result = files_->stat(opened.file, opened.stat); result < 0) {
    return result == -ESTALE ? ends(Found::absent, 0) : ends(Found::failed, result);
  }
  if (!opened.stat.regular) return ends(Found::foreign, 0);
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

// Only if it is still what was looked at: somebody may have put it again.
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
  // Another arrangement's is not damaged: somebody may want it.
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

Directory::Found Directory::verify(const EntryKey& key, EntryHeader& header) {
  Opened opened = open_entry(key);
  header = opened.header;
  if (opened.found != Found::whole) return opened.found;
  std::vector<uint32_t> words;
  std::vector<uint8_t> payload(header.info.bytes);
  const Answer answer =
      read_body(opened, words, [&](uint64_t offset, std::span<const uint8_t> piece) {
        std::memcpy(payload.data() + offset, piece.data(), piece.size());
        return true;
      });
  if (answer.outcome == TierOutcome::failed) return Found::failed;
  if (answer.outcome == TierOutcome::absent) return Found::absent;
  const bool holds = answer.outcome == TierOutcome::done && sum(words, payload) == header.sum;
  return holds ? Found::whole : Found::damaged;
}

// ---- Writing ----

Answer Directory::look_before_put(const EntryKey& key, const EntryInfo& info) {
  const Opened opened = open_entry(key);
  switch (opened.found) {
    case Found::failed: return failed(-opened.problem);
    case Found::newer:
    case Found::foreign: return ended(TierOutcome::refused);
    case Found::absent:
    case Found::damaged: return ended(TierOutcome::absent);
    case Found::whole: break;
  }
  if (!(opened.header.info == info)) return ended(TierOutcome::absent);
  return {.outcome = TierOutcome::done, .already_there = true};
}

int Directory::create_temporary(uint32_t folder, std::string& path) {
  const std::string in = path_ + "/" + folder_name(folder);
  path = in + "/" + prefix_ + std::to_string(++temporaries_);
  const int file = files_->create(path);
  if (file != -ENOENT) return file;
  // Without its marker this is not the directory: perhaps where it was mounted.
  if (const int result = check(); result < 0) return result;
  if (const int result = files_->make_directory(in); result < 0 && result != -EEXIST) return result;
  return files_->create(path);
}

int Directory::write_file(int file, const TierItem& item, const PutOptions& options, Loan& loan,
                          bool& cut) {
  EntryHeader header{.key = item.key, .info = item.info};
  header.written = options.used_ns / 1'000'000'000;
  std::vector<uint8_t>& memory = piece_memory();
  memory.resize(kHeaderBytes + item.words.size() * 4);
  cut = !loan.take();
  if (cut) return 0;
  header.sum = sum(item.words, item.source);
  for (size_t i = 0; i < item.words.size(); ++i) {
    for (size_t byte = 0; byte < 4; ++byte) {
      memory[kHeaderBytes + 4 * i + byte] = static_cast<uint8_t>(item.words[i] >> (8 * byte));
    }
  }
  loan.give();
  write_header(header, std::span(memory).first<kHeaderBytes>());
  uint64_t at = 0;
  for (uint64_t copied = 0; copied < item.info.bytes || !memory.empty();) {
    if (memory.size() < kPieceBytes && copied < item.info.bytes) {
      const uint64_t more = std::min(kPieceBytes - memory.size(), item.info.bytes - copied);
      cut = !loan.take();
      if (cut) return 0;
      const auto from = item.source.subspan(copied, more);
      memory.insert(memory.end(), from.begin(), from.end());
      loan.give();
      copied += more;
    }
    for (auto left = std::span<const uint8_t>(memory); !left.empty();) {
      const int64_t count = files_->write(file, at, left);
      if (count <= 0) return count == 0 ? -ENOSPC : static_cast<int>(count);
      left = left.subspan(static_cast<size_t>(count));
      at += static_cast<uint64_t>(count);
    }
    memory.clear();
  }
  if (options.durable) {
    if (const int result = files_->datasync(file); result < 0) return result;
  }
  files_->set_time(file, options.used_ns);  // Only the order is worse without.
  return 0;
}

bool Directory::has_vanished(const Answer& answer) {
  return (answer.problem == ENOENT || answer.problem == ESTALE) && check() == 0;
}

Answer Directory::put(const TierItem& item, const PutOptions& options, Loan& loan) {
  Answer answer = put_once(item, options, loan);
  if (!has_vanished(answer)) return answer;
  answer = put_once(item, options, loan);
  if (!has_vanished(answer)) return answer;
  if (!vanishing_told_.exchange(true)) {
    log(LogLevel::warning,
        "shared tier '" + path_ +
            "': another program removes files named .stemma-tmp-* while they are "
            "being written, so a put failed; exclude them from cleaning");
  }
  return ended(TierOutcome::failed);
}

Answer Directory::put_once(const TierItem& item, const PutOptions& options, Loan& loan) {
  const uint64_t front = kHeaderBytes + item.words.size() * 4;
  piece_memory().reserve(std::max(front, std::min<uint64_t>(front + item.info.bytes, kPieceBytes)));
  std::string temporary;
  const int file = create_temporary(folder_of(item.key), temporary);
  if (file < 0) return is_full(file) ? ended(TierOutcome::refused) : failed(file);
  bool cut = false;
  int result = write_file(file, item, options, loan, cut);
  // Before it can be found: over NFS others see only what was closed.
  const int closed = files_->close(file);
  if (result == 0) result = closed;
  Answer answer;
  if (cut) {
    answer = ended(TierOutcome::cancelled);
  } else if (result < 0) {
    answer = is_full(result) ? ended(TierOutcome::refused) : failed(result);
  } else {
    answer = publish(temporary, item);
  }
  files_->unlink(temporary);
  if (answer.outcome == TierOutcome::done && options.durable) {
    result = files_->sync_directory(path_ + "/" + folder_name(folder_of(item.key)));
    if (result < 0) return failed(result);
  }
  return answer;
}

Answer Directory::publish(const std::string& temporary, const TierItem& item) {
  const std::string path = path_of(item.key);
  int result = files_->link(temporary, path);
  if (result == -EEXIST) {
    // Somebody else was as fast, or our own link was answered twice.
    const Answer there = look_before_put(item.key, item.info);
    if (there.outcome != TierOutcome::absent) return there;
    result = files_->rename(temporary, path);
  } else if (cannot_link(result)) {
    result = files_->rename(temporary, path);
  }
  if (result < 0) return is_full(result) ? ended(TierOutcome::refused) : failed(result);
  return ended(TierOutcome::done);
}

Answer Directory::remove(const EntryKey& key) {
  const Opened opened = open_entry(key);
  if (opened.found == Found::failed) return failed(-opened.problem);
  if (opened.found != Found::whole && opened.found != Found::damaged) {
    return ended(TierOutcome::absent);
  }
  const int result = files_->unlink(path_of(key));
  if (result == -ENOENT) return no_file();
  if (result < 0) return failed(result);
  return {.outcome = TierOutcome::done, .gone = true};
}

int Directory::purge(uint32_t folder, const Purge& what, PurgeStep step,
                     const std::function<bool()>& go_on, PurgeChoice& choice,
                     std::vector<EntryKey>& gone) {
  const std::string path = path_ + "/" + folder_name(folder);
  std::vector<std::string> names;
  int problem = files_->list(path, names);
  if (problem == -ENOENT) return 0;
  if (problem < 0) return problem;
  const auto note = [&problem](int result) {
    if (problem == 0 && result < 0) problem = result;
  };
  for (const std::string& name : names) {
    const auto key = parse_name(name);
    if (!key || folder_of(*key) != folder || !what.names(*key)) continue;
    if (!go_on()) break;
    if (what.is_by_key()) {
      const int result = remove_unread(path + "/" + name, *key, choice);
      if (result == 0) gone.push_back(*key);
      note(result < 0 ? result : 0);
      continue;
    }
    const Opened opened = open_entry(*key);
    if (opened.found == Found::failed) note(opened.problem);
    // What cannot be read may be what is to go; what another version wrote is not ours to judge.
    if (opened.found == Found::newer) note(-EPROTONOSUPPORT);
    const bool whole = opened.found == Found::whole;
    if (!whole && opened.found != Found::damaged) continue;
    if (step == PurgeStep::look) {
      if (whole) choice.look(*key, opened.header.info);
      continue;
    }
    if (whole && !choice.takes(*key, opened.header.info)) continue;
    if (const int result = files_->unlink(path + "/" + name); result < 0) {
      if (result != -ENOENT && result != -ESTALE) note(result);
      continue;
    }
    gone.push_back(*key);
    choice.purged.entries += whole ? 0 : 1;
  }
  return problem;
}

// Its name tells whose it is. Reading a million headers takes minutes when they are not in memory.
// 1: it is gone, or was never ours.
int Directory::remove_unread(const std::string& path, const EntryKey& key, PurgeChoice& choice) {
  FileStat stat;
  int result = files_->stat(path, stat);
  if (result == 0 && !stat.regular) return 1;
  if (result == 0) result = files_->unlink(path);
  if (result == -ENOENT || result == -ESTALE) return 1;
  if (result < 0) return result;
  const uint64_t bytes = stat.bytes - std::min<uint64_t>(stat.bytes, kHeaderBytes);
  choice.takes(key, {.begin = 0, .end = 1, .layout = 0, .bytes = bytes, .words = 0});
  return 0;
}

int Directory::sync_folder(uint32_t folder) {
  return files_->sync_directory(path_ + "/" + folder_name(folder));
}

Directory::Evicted Directory::evict(const EntryKey& key, uint64_t on_file_ns, uint64_t& used_ns,
                                    int& problem) {
  const Opened opened = open_entry(key);
  problem = opened.problem;
  switch (opened.found) {
    case Found::absent: return Evicted::was_gone;
    case Found::failed: return Evicted::failed;
    case Found::newer:
    case Found::foreign: return Evicted::not_ours;
    case Found::whole:
    case Found::damaged: break;
  }
  if (opened.stat.modified_ns > on_file_ns) {
    used_ns = opened.stat.modified_ns;
    return Evicted::used_since;
  }
  const int result = files_->unlink(path_of(key));
  if (result == -ENOENT) return Evicted::was_gone;
  problem = result < 0 ? -result : 0;
  return problem == 0 ? Evicted::gone : Evicted::failed;
}

void Directory::touch(const EntryKey& key, uint64_t used_ns) {
  files_->touch(path_of(key), used_ns);  // Only the order is worse without.
}

}  // namespace stemma::tier::shared
