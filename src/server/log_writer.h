// LogWriter: lines to a file descriptor, without ever waiting for whoever reads it.
//
// line() leaves a line in a bounded queue; a thread of its own writes. When the reader stalls (a pipe that nobody
// reads, a terminal that was stopped) the queue fills, and further lines are dropped and counted. Once there is room
// again, one line says how many are missing:
//
//   the log is missing 173 lines here: nobody read it
//
// At its end a reader that takes nothing for `patience` loses the rest.
//
// Invariant:  lines that are written are whole and in order; written + dropped + waiting is how many came.
// Threading:  thread-safe; line() waits for no reader.
// Ownership:  the descriptor stays the caller's, and open until the end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace stemma::server {

class LogWriter {
 public:
  struct Options {
    size_t most_bytes = size_t{1} << 20U;       // Of lines that wait.
    std::chrono::milliseconds patience{1'000};  // At the end, for each time it can write nothing.
  };
  explicit LogWriter(int descriptor) : LogWriter(descriptor, Options()) {}
  LogWriter(int descriptor, const Options& options);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // `text` without its line break. The time is put in front.
  void line(std::string_view text);

  uint64_t dropped() const;  // Lines.

 private:
  void work();
  // False: it is to end, and the reader takes nothing.
  bool write(std::string_view text);
  bool wait_for_room();

  const int descriptor_;
  const Options options_;
  int wake_[2] = {-1, -1};  // A pipe that is closed at one end when it is to end.
  mutable std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;      // Of lines_.
  uint64_t missing_ = 0;  // Dropped since the last line that was taken.
  uint64_t dropped_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace stemma::server
