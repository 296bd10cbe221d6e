// How entries are purged: by a thread of its own with helpers, one folder each. The caller waits
// until its time is over, whatever the file system does.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <new>
#include <system_error>
#include <thread>

#include "tier/shared/core.h"
#include "tier/shared/directory_purge.h"
#include "tier/wait_until.h"

namespace stemma::tier::shared {

namespace {

// Files of one folder are removed one after the other; over a network, each takes a while.
constexpr uint32_t kThreads = 8;

// Returns whether there was memory for all of it.
bool each_folder(const std::function<void(uint32_t)>& work) {
  std::atomic<uint32_t> next{0};
  std::atomic<bool> good{true};
  const auto some = [&] {
    try {
      for (uint32_t folder = next++; folder < kFolders; folder = next++) work(folder);
    } catch (const std::bad_alloc&) {
      good = false;
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(kThreads);
  while (helpers.size() + 1 < kThreads) {
    try {
      helpers.emplace_back(some);
    } catch (const std::system_error&) {
      break;  // Continue with the threads that started.
    }
  }
  some();
  for (std::thread& helper : helpers) helper.join();
  return good;
}

}  // namespace

Purged Core::purge(const Purge& what, uint64_t until_ns) try {
  Lock lock(mutex_);
  const uint64_t last = serials_;
  const auto ended = [&]() STEMMA_REQUIRES(mutex_) {
    return live_.empty() || live_.begin()->first > last;
  };
  if (!tier::wait_until(ended_, lock, until_ns, ended)) {
    return {.error = "what was submitted before has not ended"};
  }
  const auto ticket = std::make_shared<Purging>();
  ticket->what = what;
  ticket->until_ns = until_ns;
  purges_.push_back(ticket);
  purge_.notify_one();
  if (tier::wait_until(ended_, lock, until_ns, [&] { return ticket->answered; })) {
    return ticket->answer;
  }
  return {.error = "the file system did not answer in time"};
} catch (const std::bad_alloc&) {
  return {.error = "there is no memory for it"};
}

void Core::work_on_purges(Thread& self) {
  Lock lock(mutex_);
  for (;;) {
    purge_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return stopping_ || !purges_.empty(); });
    if (purges_.empty()) break;
    const std::shared_ptr<Purging> purge = purges_.front();
    purges_.pop_front();
    const bool closed = stopping_;
    lock.unlock();
    closed ? answer(*purge, "the tier was closed before it had begun") : carry_out(*purge);
    lock.lock();
  }
  self.exited = true;
  ended_.notify_all();
}

void Core::carry_out(Purging& purge) try {
  std::atomic<bool> in_time{true};
  const auto go_on = [&] {
    const Lock lock(mutex_);
    if (stopping_ || monotonic_ns() >= purge.until_ns) in_time = false;
    return in_time.load();
  };
  const auto told = [&](int problem) {
    if (problem == EPROTONOSUPPORT) {
      return answer(purge, "entries that a newer version wrote were left as they are");
    }
    if (problem != 0)
      return answer(purge, std::error_code(problem, std::generic_category()).message());
    answer(purge, in_time ? "" : "the time was over before all folders were looked at");
  };
  if (const int problem = -directory_.check(); problem != 0) return told(problem);
  DirectoryPurge work(directory_, purge.what, go_on);
  bool has_memory = true;
  if (work.looks_first()) has_memory = each_folder([&](uint32_t folder) { work.look(folder); });
  const auto remove = [&](uint32_t folder) {
    uint64_t moment = 0;
    {
      const Lock lock(mutex_);
      moment = books_.moment();
    }
    std::vector<EntryKey> gone;
    if (go_on()) work.remove(folder, gone);
    const Lock lock(mutex_);
    for (const EntryKey& key : gone) books_.forget(key, moment);
  };
  // Only after seeing all entries is it known which of them follow.
  if (has_memory && in_time) has_memory = each_folder(remove);
  if (has_memory) work.remove_old();
  const int problem = work.finish();
  purge.answer = work.purged();
  has_memory ? told(problem) : answer(purge, "there is no memory for it");
} catch (const std::bad_alloc&) {
  answer(purge, "there is no memory for it");
}

void Core::answer(Purging& purge, std::string error) {
  const Lock lock(mutex_);
  purge.answer.complete = error.empty();
  purge.answer.error = std::move(error);
  purge.answered = true;
  ended_.notify_all();
}

}  // namespace stemma::tier::shared
