// For the tests of the shared tier: real files whose every call can be made to fail or wait, and
// the paths in a directory.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "stemma/tier/shared_tier.h"
#include "support/forwarding_files.h"
#include "tier/shared/names.h"
#include "tiers/tier_suite.h"

namespace stemma::test {

using tier::FileStat;
using tier::OpenAs;
using tier::shared::SharedOptions;
using tier::shared::SharedTier;

// on_call returns the error with which a call ends instead (-errno), or 0 to let it happen. It gets
// the path if there is one. Set it while nothing is under way.
class FaultyFiles final : public ForwardingFiles {
 public:
  std::function<int(std::string_view call, const std::string& path)> on_call;
  // Called with the result of each call that happened.
  std::function<void(std::string_view call, const std::string& path, int result)> after_call;
  // May change the result of stat().
  std::function<void(const std::string& path, FileStat& found)> on_stat;

  int open(const std::string& path, OpenAs as) override {
    const char* const call = as == OpenAs::made_new ? "create" : "open";
    return or_fails(call, path, [&] { return real_->open(path, as); });
  }
  int close(int file) override {
    const int failed = told("close", {});
    const int result = real_->close(file);
    return failed != 0 ? failed : result;
  }
  int64_t read(int file, uint64_t at, std::span<uint8_t> into) override {
    const int failed = told("read", {});
    return failed != 0 ? failed : real_->read(file, at, into);
  }
  int64_t write(int file, uint64_t at, std::span<const uint8_t> from) override {
    const int failed = told("write", {});
    return failed != 0 ? failed : real_->write(file, at, from);
  }
  int datasync(int file) override {
    return or_fails("datasync", {}, [&] { return real_->datasync(file); });
  }
  int set_time(int file, uint64_t ns) override {
    return or_fails("set_time", {}, [&] { return real_->set_time(file, ns); });
  }
  int touch(const std::string& path, uint64_t ns) override {
    return or_fails("touch", path, [&] { return real_->touch(path, ns); });
  }
  int stat(int file, FileStat& out) override {
    return or_fails("fstat", {}, [&] { return real_->stat(file, out); });
  }
  int stat(const std::string& path, FileStat& out) override {
    return or_fails("stat", path, [&] {
      const int result = real_->stat(path, out);
      if (result == 0 && on_stat) on_stat(path, out);
      return result;
    });
  }
  int link(const std::string& from, const std::string& to) override {
    return or_fails("link", to, [&] { return real_->link(from, to); });
  }
  int rename(const std::string& from, const std::string& to) override {
    return or_fails("rename", to, [&] { return real_->rename(from, to); });
  }
  int unlink(const std::string& path) override {
    return or_fails("unlink", path, [&] { return real_->unlink(path); });
  }
  int make_directory(const std::string& path) override {
    return or_fails("make_directory", path, [&] { return real_->make_directory(path); });
  }
  int remove_directory(const std::string& path) override {
    return or_fails("remove_directory", path, [&] { return real_->remove_directory(path); });
  }
  int sync_directory(const std::string& path) override {
    return or_fails("sync_directory", path, [&] { return real_->sync_directory(path); });
  }
  // It also covers other files on this machine, so not in tests.
  int sync_all(const std::string& path) override {
    return or_fails("sync_all", path, [] { return 0; });
  }
  int list(const std::string& path, std::vector<std::string>& out) override {
    return or_fails("list", path, [&] { return real_->list(path, out); });
  }

 private:
  int told(std::string_view call, const std::string& path) {
    return on_call ? on_call(call, path) : 0;
  }
  template <class Call>
  int or_fails(std::string_view call, const std::string& path, Call&& real) {
    const int failed = told(call, path);
    if (failed != 0) return failed;
    const int result = real();
    if (after_call) after_call(call, path, result);
    return result;
  }
};

// Holds calls until it is told to let them go.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool closed = false;
  uint32_t waiting = 0;
  void set(bool value) {
    const std::lock_guard lock(mutex);
    closed = value;
    opened.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex);
    ++waiting;
    opened.wait(lock, [&] { return !closed; });
    --waiting;
  }
  uint32_t held() {
    const std::lock_guard lock(mutex);
    return closed ? waiting : 0;
  }
};

inline std::unique_ptr<SharedTier> open_shared(const SharedOptions& options) {
  auto opened = SharedTier::open(options);
  EXPECT_TRUE(opened) << opened.error().to_string();
  return opened ? *std::move(opened) : nullptr;
}

inline std::string path_of(const std::string& store, const Entry& one) {
  const std::string scope = tier::shared::scope_name(owner_of(one.key));
  const std::string name = tier::shared::file_name(one.key);
  return store + "/" + name.substr(0, 1) + "/" + scope + "/" + name;
}

// Bytes of all files, in multiples of 4096, as the capacity counts them; a file that has two names
// for a moment counts half for each. While others write this is an estimate: it may include files
// that come and files that go during the listing.
inline uint64_t room_in(const std::string& store) {
  uint64_t sum = 0;
  std::error_code gone;
  for (auto at = std::filesystem::recursive_directory_iterator(store, gone);
       at != std::filesystem::recursive_directory_iterator(); at.increment(gone)) {
    const uint64_t bytes = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    const uint64_t names = at->hard_link_count(gone);
    if (!gone && at.depth() > 0) sum += (bytes + 4095) / 4096 * 4096 / std::max<uint64_t>(names, 1);
  }
  return sum;
}

inline bool eventually_holds(const std::function<bool()>& holds, uint64_t patience_ms = 60'000) {
  const uint64_t until = Clock::monotonic().now_ns() + patience_ms * 1'000'000;
  while (!holds()) {
    if (Clock::monotonic().now_ns() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace stemma::test
