// How entries are purged: by the keeper, folder by folder. Whoever asked waits until its time is
// over, whatever the file system does.
#include <cerrno>
#include <new>
#include <system_error>

#include "tier/shared/core.h"
#include "tier/wait_until.h"

namespace stemma::tier::shared {

Purged Core::purge(const Purge& what, uint64_t until_ns) try {
  Lock lock(mutex_);
  const uint64_t last = serials_;
  const auto ended = [&] { return live_.empty() || live_.begin()->first > last; };
  if (!tier::wait_until(ended_, lock, until_ns, ended)) {
    return {.error = "what was submitted before has not ended"};
  }
  const auto ticket = std::make_shared<Purging>();
  ticket->what = what;
  ticket->until_ns = until_ns;
  purges_.push_back(ticket);
  keep_.notify_one();
  if (tier::wait_until(ended_, lock, until_ns, [&] { return ticket->answered; })) {
    return ticket->answer;
  }
  return {.error = "the file system did not answer in time"};
} catch (const std::bad_alloc&) {
  return {.error = "there is no memory for it"};
}

void Core::carry_out(Purging& purge) try {
  int problem = -directory_.check();
  bool in_time = true;
  const auto go_on = [&] {
    const Lock lock(mutex_);
    in_time = !stopping_ && now_ns() < purge.until_ns;
    return in_time;
  };
  PurgeChoice choice(purge.what);
  std::vector<uint32_t> changed;
  const auto all_folders = [&](Directory::PurgeStep step) {
    for (uint32_t folder = 0; folder < kFolders && problem == 0 && go_on(); ++folder) {
      uint64_t moment = 0;
      {
        const Lock lock(mutex_);
        moment = books_.moment();
      }
      std::vector<EntryKey> gone;
      problem = -directory_.purge(folder, purge.what, step, go_on, choice, gone);
      if (!gone.empty()) changed.push_back(folder);
      const Lock lock(mutex_);
      for (const EntryKey& key : gone) books_.forget(key, moment);
    }
  };
  if (choice.looks_first()) all_folders(Directory::PurgeStep::look);
  all_folders(Directory::PurgeStep::remove);
  // When all is removed: the first sync does most of the work for the others.
  for (const uint32_t folder : changed) {
    const int result = directory_.sync_folder(folder);
    if (problem == 0 && result < 0) problem = -result;
  }
  purge.answer = choice.purged;
  if (problem == EPROTONOSUPPORT) {
    answer(purge, "entries that a newer version wrote were left as they are");
  } else if (problem != 0) {
    answer(purge, std::error_code(problem, std::generic_category()).message());
  } else {
    answer(purge, in_time ? "" : "the time was over before all folders were looked at");
  }
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
