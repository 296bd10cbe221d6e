// LogWriter: writes lines to a file descriptor without making callers wait for its reader.
//
// line() puts a line into a bounded queue; the LogWriter's own thread writes it. When the reader
// stalls (a pipe that nobody reads, a stopped terminal) the queue fills, and further lines are
// dropped and counted. Once there is room again, one line says how many are missing:
//
//   the log is missing 173 lines here: nobody read it
//
// The destructor gives up on the rest if the reader takes nothing for `patience`.
//
// Invariant:  written lines are whole and in order; written + dropped + waiting equals the number
//             of calls of line().
// Threading:  thread-safe; line() waits for no reader.
// Ownership:  the caller owns the descriptor and keeps it open until the LogWriter is destroyed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <thread>

#include "base/lock.h"

namespace stemma::server {

class LogWriter {
 public:
  struct Options {
    size_t most_bytes = size_t{1} << 20U;       // Limit for waiting lines.
    std::chrono::milliseconds patience{1'000};  // At the end, for each write that must wait.
  };
  explicit LogWriter(int descriptor) : LogWriter(descriptor, Options()) {}
  LogWriter(int descriptor, const Options& options);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Writes `text`, which has no line break, with the time in front.
  void line(std::string_view text);

  uint64_t dropped() const;  // Lines.

 private:
  void work();
  // Returns false if the LogWriter is ending and the reader takes nothing.
  bool write(std::string_view text);
  bool wait_for_room();

  const int descriptor_;
  const Options options_;
  int wake_[2] = {-1, -1};  // A pipe; the destructor closes one end to stop the thread.
  mutable base::WaitMutex mutex_;
  base::Condition filled_;
  std::deque<std::string> lines_ STEMMA_GUARDED_BY(mutex_);
  size_t bytes_ STEMMA_GUARDED_BY(mutex_) = 0;      // Of lines_.
  uint64_t missing_ STEMMA_GUARDED_BY(mutex_) = 0;  // Dropped since the last line that was taken.
  uint64_t dropped_ STEMMA_GUARDED_BY(mutex_) = 0;
  bool ending_ STEMMA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stemma::server
