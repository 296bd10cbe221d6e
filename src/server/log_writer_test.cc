// A log without a reader blocks nobody, and reports later how much is missing.
#include "server/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace stemma::server {
namespace log_lines {
namespace {

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Pipe() {
    close_reader();
    ::close(ends_[1]);
  }
  int writer() const { return ends_[1]; }
  void close_reader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  // Fills the pipe until a write would block. Returns the number of lines.
  uint32_t fill() {
    const std::string line = std::string(4095, '.') + "\n";
    const int flags = ::fcntl(ends_[1], F_GETFL);
    ::fcntl(ends_[1], F_SETFL, flags | O_NONBLOCK);
    uint32_t lines = 0;
    while (::write(ends_[1], line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
      ++lines;
    }
    ::fcntl(ends_[1], F_SETFL, flags);
    return lines;
  }
  // Waits for the next line and returns it without the time.
  std::string line() {
    size_t end = 0;
    while ((end = text_.find('\n')) == std::string::npos) {
      char buffer[4096];
      const ssize_t count = ::read(ends_[0], buffer, sizeof buffer);
      if (count <= 0) return "";
      text_.append(buffer, static_cast<size_t>(count));
    }
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line.substr(line.find(' ') + 1);
  }

 private:
  int ends_[2] = {-1, -1};
  std::string text_;
};

TEST(LogWriter, LinesComeWholeAndInOrder) {
  Pipe pipe;
  LogWriter log(pipe.writer());
  const std::string longer(10'000, 'l');
  log.line("one");
  log.line(longer);
  log.line("three");
  EXPECT_EQ(pipe.line(), "one");
  EXPECT_EQ(pipe.line(), longer);
  EXPECT_EQ(pipe.line(), "three");
  EXPECT_EQ(log.dropped(), 0U);
}

TEST(LogWriter, AReaderThatStallsHoldsNobodyUpAndHearsWhatIsMissing) {
  Pipe pipe;
  const uint32_t before = pipe.fill();
  LogWriter log(pipe.writer(), {.most_bytes = 10'000});
  uint64_t sent = 0;
  while (log.dropped() < 100) log.line("line " + std::to_string(++sent));
  const uint64_t taken = sent - log.dropped();
  EXPECT_GT(taken, 100U);
  for (uint32_t i = 0; i < before; ++i) pipe.line();
  for (uint64_t i = 1; i <= taken; ++i) ASSERT_EQ(pipe.line(), "line " + std::to_string(i));
  // Everything was read: there is room again.
  log.line("after");
  EXPECT_EQ(pipe.line(), "the log is missing 100 lines here: nobody read it");
  EXPECT_EQ(pipe.line(), "after");
}

TEST(LogWriter, EndsWhoeverReads) {
  {
    Pipe stalled;
    stalled.fill();
    LogWriter log(stalled.writer(),
                  {.most_bytes = 10'000, .patience = std::chrono::milliseconds(1)});
    while (log.dropped() == 0) log.line("nobody reads this");
  }
  Pipe pipe;
  {
    LogWriter log(pipe.writer());
    log.line("the last line");
  }
  EXPECT_EQ(pipe.line(), "the last line");
}

}  // namespace
}  // namespace log_lines
}  // namespace stemma::server
