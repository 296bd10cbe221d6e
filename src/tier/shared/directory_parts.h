// Shared by Directory's sources: an entry's open file, and helpers for answers.
#pragma once

#include <cerrno>
#include <utility>
#include <vector>

#include "tier/shared/directory.h"

namespace stemma::tier::shared {

inline constexpr size_t kPieceBytes = size_t{4} << 20U;

// The file system does not support the link or name: try another way.
inline bool cannot_link(int result) noexcept {
  return result == -EPERM || result == -ENOSYS || result == -EOPNOTSUPP || result == -EMLINK ||
         result == -EACCES;
}
inline bool is_full(int result) noexcept {
  return result == -ENOSPC || result == -EDQUOT || result == -EFBIG;
}
// Somebody else was faster.
inline bool is_gone(int result) noexcept { return result == -ENOENT || result == -ESTALE; }

inline Answer failed(int result) { return {.outcome = TierOutcome::failed, .problem = -result}; }
inline Answer ended(TierOutcome outcome) { return {.outcome = outcome}; }
inline Answer no_file() { return {.outcome = TierOutcome::absent, .gone = true}; }

// This thread's own memory for pieces.
inline std::vector<uint8_t>& piece_memory() {
  thread_local std::vector<uint8_t> memory;
  return memory;
}

// An entry's open file, with what its header tells.
struct Directory::Opened {
  Opened(Files& owner, int opened) noexcept : files(owner), file(opened) {}
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
  Files& files;
  int file;
  Found found = Found::failed;
  int problem = 0;
  FileStat stat;
  EntryHeader header;
};

}  // namespace stemma::tier::shared
