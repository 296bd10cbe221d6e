#include "server/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

namespace stemma::server {
namespace {

// A writable pipe takes at least this many bytes without blocking.
constexpr size_t kSliceBytes = 512;

std::string stamped(std::string_view text) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[48];
  const size_t bytes = std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(stamp + bytes, sizeof stamp - bytes, ".%03dZ ", static_cast<int>(ms));
  std::string line = stamp;
  line.append(text).append("\n");
  return line;
}

}  // namespace

LogWriter::LogWriter(int descriptor, const Options& options)
    : descriptor_(descriptor), options_(options) {
  if (::pipe(wake_) != 0) wake_[0] = wake_[1] = -1;  // poll() ignores those.
  thread_ = std::thread([this] { work(); });
}

LogWriter::~LogWriter() {
  {
    const base::Lock lock(mutex_);
    ending_ = true;
  }
  filled_.notify_one();
  if (wake_[1] >= 0) ::close(wake_[1]);
  thread_.join();
  if (wake_[0] >= 0) ::close(wake_[0]);
}

void LogWriter::line(std::string_view text) {
  std::string whole = stamped(text);
  {
    const base::Lock lock(mutex_);
    if (bytes_ + whole.size() > options_.most_bytes && !lines_.empty()) {
      ++missing_;
      ++dropped_;
      return;
    }
    if (missing_ != 0) {
      lines_.push_back(stamped("the log is missing " + std::to_string(missing_) +
                               " lines here: nobody read it"));
      bytes_ += lines_.back().size();
      missing_ = 0;
    }
    bytes_ += whole.size();
    lines_.push_back(std::move(whole));
  }
  filled_.notify_one();
}

uint64_t LogWriter::dropped() const {
  const base::Lock lock(mutex_);
  return dropped_;
}

void LogWriter::work() {
  base::Lock lock(mutex_);
  for (;;) {
    filled_.wait(lock, [&]() STEMMA_REQUIRES(mutex_) { return ending_ || !lines_.empty(); });
    if (lines_.empty()) {
      if (missing_ == 0) return;
      lines_.push_back(stamped("the log is missing " + std::to_string(std::exchange(missing_, 0)) +
                               " lines here: nobody read it"));
      bytes_ += lines_.back().size();
    }
    const std::string next = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    const bool written = write(next);
    lock.lock();
    // A line takes room while it is written, too.
    bytes_ -= next.size();
    if (!written) return;
  }
}

bool LogWriter::write(std::string_view text) {
  while (!text.empty()) {
    if (!wait_for_room()) return false;
    const ssize_t count = ::write(descriptor_, text.data(), std::min(text.size(), kSliceBytes));
    if (count > 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EINTR && errno != EAGAIN) {
      return true;  // This line can never be written: drop it, and try the next one.
    }
  }
  return true;
}

bool LogWriter::wait_for_room() {
  for (;;) {
    bool ending = false;
    {
      const base::Lock lock(mutex_);
      ending = ending_;
    }
    pollfd fds[2] = {{.fd = descriptor_, .events = POLLOUT, .revents = 0},
                     {.fd = ending ? -1 : wake_[0], .events = POLLIN, .revents = 0}};
    const int ready = ::poll(fds, 2, ending ? static_cast<int>(options_.patience.count()) : -1);
    if (ready < 0 && errno != EINTR) return true;
    if (fds[0].revents != 0) return true;
    if (ending && ready == 0) return false;
  }
}

}  // namespace stemma::server
