// How entries are written, published and removed.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "stemma/log.h"
#include "tier/shared/directory_parts.h"

namespace stemma::tier::shared {

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

int Directory::create_temporary(const EntryKey& key, std::string& path, bool& made) {
  constexpr int kTries = 4;  // An empty folder may be removed at any time.
  const std::string outer = folder_path(folder_of(key));
  const std::string inner = scope_path(folder_of(key), owner_of(key));
  path = inner + "/" + prefix_ + std::to_string(++temporaries_);
  int file = files_->open(path, OpenAs::made_new);
  for (int i = 0; i < kTries && file == -ENOENT; ++i) {
    // Without its marker this is not the directory, but perhaps its empty mount point.
    if (const int result = check(); result < 0) return result;
    for (const std::string* folder : {&outer, &inner}) {
      const int result = files_->make_directory(*folder);
      if (result < 0 && result != -EEXIST && result != -ENOENT) return result;
    }
    made = true;
    file = files_->open(path, OpenAs::made_new);
  }
  return file;
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
  files_->set_time(file, options.used_ns);  // If this fails, only the order of use is worse.
  return 0;
}

bool Directory::has_vanished(const Answer& answer) {
  return (answer.problem == ENOENT || answer.problem == ESTALE) && check() == 0;
}

Answer Directory::put(const TierItem& item, const PutOptions& options, Loan& loan) {
  const Answer answer = write_and_publish(item, options, loan);
  if (!has_vanished(answer)) return answer;
  if (!vanishing_told_.exchange(true)) {
    log(LogLevel::warning,
        "shared tier '" + path_ +
            "': a file named .stemma-tmp-* was removed while it was being written, so a put "
            "failed; unless entries were being purged, exclude such files from cleaning");
  }
  return ended(TierOutcome::failed);
}

Answer Directory::write_and_publish(const TierItem& item, const PutOptions& options, Loan& loan) {
  const uint64_t front = kHeaderBytes + item.words.size() * 4;
  piece_memory().reserve(std::max(front, std::min<uint64_t>(front + item.info.bytes, kPieceBytes)));
  std::string temporary;
  bool made = false;
  const int file = create_temporary(item.key, temporary, made);
  if (file < 0) return is_full(file) ? ended(TierOutcome::refused) : failed(file);
  bool cut = false;
  int result = write_file(file, item, options, loan, cut);
  // Before the file can be found: over NFS, others see only closed files.
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
  if (answer.outcome != TierOutcome::done || !options.durable) return answer;
  const uint32_t folder = folder_of(item.key);
  result = files_->sync_directory(scope_path(folder, owner_of(item.key)));
  if (result == 0 && made) result = files_->sync_directory(folder_path(folder));
  if (result == 0 && made) result = files_->sync_directory(path_);
  return result < 0 ? failed(result) : answer;
}

Answer Directory::publish(const std::string& temporary, const TierItem& item) {
  const std::string path = path_of(item.key);
  int result = files_->link(temporary, path);
  if (result == -EEXIST) {
    // Another machine was as fast, or our own link request was answered twice.
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
  files_->touch(path_of(key), used_ns);  // If this fails, only the order of use is worse.
}

}  // namespace stemma::tier::shared
