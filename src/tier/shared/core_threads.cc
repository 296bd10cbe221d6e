// The threads of a shared tier that no batch waits for: the watcher, which never calls the file
// system, and the keeper, which may.
#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

#include "stemma/log.h"
#include "tier/shared/core.h"
#include "tier/wait_until.h"

namespace stemma::tier::shared {

namespace {

constexpr uint64_t kMs = 1'000'000;

std::string system_text(int problem) {
  return std::error_code(problem, std::generic_category()).message();
}

}  // namespace

Result<void> Core::open() {
  const uint64_t begun_ns = monotonic_ns();
  STEMMA_TRY_VOID(directory_.open());
  int problem = -scan();
  Books::Plan plan;
  if (problem == 0) make_room(plan, problem);
  if (problem != 0) {
    return Error(Errc::copy_failed, "it cannot be read", static_cast<uint32_t>(problem));
  }
  TierStats stats;
  counters_.read(stats);
  opening_.dropped = stats.evictions;
  const Lock lock(mutex_);
  opening_.entries = books_.entries();
  opening_.ns = monotonic_ns() - begun_ns;
  return {};
}

void Core::launch(const std::function<void(Core&, Thread&)>& body) {
  threads_.push_back(std::make_unique<Thread>());
  Thread& self = *threads_.back();
  self.thread = std::thread([core = shared_from_this(), body, &self] { body(*core, self); });
}

void Core::start() {
  const Lock lock(mutex_);
  for (uint32_t i = 0; i < options_.threads; ++i) {
    launch([puts_first = i == 0](Core& core, Thread& self) { core.work(self, puts_first); });
  }
  launch(&Core::keep);
  launch(&Core::work_on_purges);
  launch(&Core::watch);
}

void Core::stop() {
  Lock lock(mutex_);
  stopping_ = true;
  has_work_.notify_all();
  watch_.notify_all();
  keep_.notify_all();
  purge_.notify_all();
  const auto exited = [this]() STEMMA_REQUIRES(mutex_) {
    size_t count = 0;
    for (const auto& thread : threads_) count += thread->exited ? 1U : 0U;
    return count + 1 == threads_.size();  // All but the watcher.
  };
  wait_until(ended_, lock, deadline_after(monotonic_ns(), options_.stop_ns), exited);
  finished_ = true;
  watch_.notify_all();
  // The watcher cuts loose what is still under way.
  ended_.wait(
      lock, [this]() STEMMA_REQUIRES(mutex_) { return live_.empty() && threads_.back()->exited; });
  std::vector<std::pair<Thread*, bool>> all;
  for (const auto& thread : threads_) all.emplace_back(thread.get(), thread->exited);
  lock.unlock();
  for (const auto& [thread, ended] : all) ended ? thread->thread.join() : thread->thread.detach();
}

// ---- The watcher: deadlines, cancellations, stalls ----

// Returns when to look again.
uint64_t Core::collect_overdue(uint64_t now, std::vector<std::pair<JobItem, TierOutcome>>& out) {
  // A thread may be stuck with an item that was cut loose.
  uint64_t next = live_.empty() && !any_busy() ? kNever : now + 50 * kMs;
  for (const auto& [serial, job] : live_) {
    TierOutcome verdict = job->batch->verdict(now);
    if (job->batch->deadline_ns > now) next = std::min(next, job->batch->deadline_ns);
    TierOutcome if_waiting = verdict;
    if (stopping_) if_waiting = TierOutcome::cancelled;
    if (breaker_.open() && if_waiting == TierOutcome::pending) if_waiting = TierOutcome::failed;
    if (finished_) verdict = TierOutcome::late;
    if (if_waiting == TierOutcome::pending) continue;
    for (size_t i = 0; i < job->size; ++i) {
      if (job->change(i, ItemState::waiting, ItemState::ended)) {
        out.push_back({{job, i}, if_waiting});
      } else if (verdict == TierOutcome::late) {
        if (job->change(i, ItemState::working, ItemState::ended)) {
          out.push_back({{job, i}, finished_ ? TierOutcome::cancelled : TierOutcome::late});
        } else if (job->states[i].load(std::memory_order_acquire) == ItemState::touching) {
          next = std::min(next, now + kMs);
        }
      }
    }
  }
  return next;
}

bool Core::any_busy() const {
  for (uint32_t i = 0; i < options_.threads; ++i) {
    if (threads_[i]->seen_ns.load(std::memory_order_relaxed) != 0) return true;
  }
  return false;
}

bool Core::all_stuck(uint64_t now) const {
  for (uint32_t i = 0; i < options_.threads; ++i) {
    const uint64_t seen_ns = threads_[i]->seen_ns.load(std::memory_order_relaxed);
    if (seen_ns == 0 || now < deadline_after(seen_ns, options_.stall_ns)) return false;
  }
  return true;
}

void Core::watch(Thread& self) {
  Lock lock(mutex_);
  std::vector<std::pair<JobItem, TierOutcome>> overdue;
  while (!finished_ || !live_.empty()) {
    const uint64_t now = monotonic_ns();
    uint64_t next = collect_overdue(now, overdue);
    if (finished_) next = now + kMs;
    const bool stalls = !breaker_.open() && all_stuck(now);
    if (overdue.empty() && !stalls) {
      wait_once(watch_, lock, next);
      continue;
    }
    lock.unlock();
    if (stalls) fail("it does not answer");
    for (const auto& [item, outcome] : overdue) end(item.first, item.second, outcome);
    overdue.clear();
    lock.lock();
  }
  self.exited = true;
  ended_.notify_all();
}

// ---- What is wrong, and whether it is over ----

void Core::note(const Answer& answer) {
  if (answer.problem == 0 && answer.outcome != TierOutcome::done) return;
  bool breaks = false;
  {
    const Lock lock(mutex_);
    // Only the keeper declares the failure over.
    if (breaker_.open()) return;
    if (answer.problem == 0) return breaker_.succeed();
    // A missing directory does not come back by trying again.
    const bool lost = answer.problem == ENOENT || answer.problem == ENOTDIR ||
                      answer.problem == ESTALE || answer.problem == ENODEV;
    breaks = lost ? breaker_.trip(monotonic_ns()) : breaker_.fail(monotonic_ns());
  }
  if (breaks) tell_of_failure(system_text(answer.problem));
}

void Core::fail(const std::string& why) {
  {
    const Lock lock(mutex_);
    if (breaker_.open() || !breaker_.trip(monotonic_ns())) return;
  }
  tell_of_failure(why);
}

void Core::tell_of_failure(const std::string& why) {
  {
    const Lock lock(mutex_);
    has_work_.notify_all();
    watch_.notify_one();
    keep_.notify_one();
    ended_.notify_all();
  }
  log(LogLevel::warning,
      "shared tier '" + options_.path + "': " + why + "; going on without it until it is back");
}

void Core::recover() {
  const bool back = directory_.is_back() && scan() == 0;
  {
    const Lock lock(mutex_);
    if (!back || all_stuck(monotonic_ns())) {
      breaker_.trip(monotonic_ns());
      return;
    }
    breaker_.succeed();
  }
  log(LogLevel::info, "shared tier '" + options_.path + "': it is back");
}

// ---- The keeper: scans, leftovers, room ----

void Core::keep(Thread& self) {
  Lock lock(mutex_);
  uint64_t scan_at_ns = deadline_after(monotonic_ns(), options_.scan_ns);
  if (options_.scrub_bytes_per_second != 0) scrub_at_ns_ = monotonic_ns();
  while (!stopping_) {
    if (breaker_.open()) {
      if (wait_until(keep_, lock, breaker_.probe_ns(),
                     [this]() STEMMA_REQUIRES(mutex_) { return stopping_; }))
        break;
      lock.unlock();
      recover();
      lock.lock();
    } else if (syncs_ended_ != syncs_wanted_) {
      lock.unlock();
      sync_if_wanted();
      lock.lock();
    } else if (scan_wanted_ || books_.wants_scan() || monotonic_ns() >= scan_at_ns) {
      scan_wanted_ = false;
      lock.unlock();
      const int result = scan();
      if (result < 0 && result != -ECANCELED) fail(system_text(-result));
      lock.lock();
      scan_at_ns = deadline_after(monotonic_ns(), options_.scan_ns);
    } else {
      if (books_.over()) {
        lock.unlock();
        Books::Plan plan;
        int problem = 0;
        make_room(plan, problem);
        if (problem != 0) note({.problem = problem});
        lock.lock();
      }
      const uint64_t now = monotonic_ns();
      const bool idle = !stopping_ && !scan_wanted_ && syncs_ended_ == syncs_wanted_;
      if (!idle || breaker_.open()) continue;
      if (scrub_at_ns_ <= now) {
        lock.unlock();
        scrub();
        lock.lock();
      } else {
        const uint64_t until = books_.over() ? now + 1000 * kMs : scan_at_ns;
        wait_once(keep_, lock, std::min(until, scrub_at_ns_));
      }
    }
  }
  self.exited = true;
  ended_.notify_all();
}

int Core::scan() {
  constexpr uint64_t kTellNs = 5'000 * kMs;
  if (const int result = directory_.check(); result < 0) return result;
  uint64_t told_ns = monotonic_ns(), leftovers = 0, foreign = 0, old = 0;
  if (const int result = directory_.remove_old(old); result < 0) return result;
  if (old != 0) {
    log(LogLevel::info, "shared tier '" + options_.path + "': " + std::to_string(old) +
                            " files of an earlier version were removed");
  }
  const uint64_t wall = wall_ns();
  uint64_t number;
  {
    const Lock lock(mutex_);
    number = ++scans_begun_;
    books_.begin_scan();
  }
  for (uint32_t folder = 0; folder < kFolders; ++folder) {
    uint64_t entries;
    {
      const Lock lock(mutex_);
      if (stopping_) return -ECANCELED;
      books_.begin_folder(folder);
      entries = books_.entries();
    }
    Directory::Folder found;
    const uint64_t leftover_ns = wall - std::min(wall, options_.leftover_ns);
    if (const int result = directory_.list(folder, leftover_ns, found); result < 0) return result;
    leftovers += found.leftovers;
    foreign += found.foreign;
    {
      const Lock lock(mutex_);
      books_.merge(folder, found.seen, found.temporary_bytes, wall_ns());
    }
    sync_if_wanted();
    if (monotonic_ns() - told_ns < kTellNs) continue;
    told_ns = monotonic_ns();
    log(LogLevel::info, "shared tier '" + options_.path + "': scanned " +
                            std::to_string(folder + 1) + " of " + std::to_string(kFolders) +
                            " folders, " + std::to_string(entries) + " entries so far");
  }
  const Lock lock(mutex_);
  books_.end_scan();
  scans_ended_ = number;
  if (number == 1) opening_.leftovers = leftovers, opening_.foreign = foreign;
  has_work_.notify_all();
  ended_.notify_all();
  return 0;
}

// While there is no other work, reads one entry after the other, no faster than configured.
void Core::scrub() {
  constexpr uint64_t kSecondNs = 1'000 * kMs;
  EntryKey key;
  uint64_t moment = 0, bytes = 0;
  {
    const Lock lock(mutex_);
    scrub_at_ns_ = deadline_after(monotonic_ns(), kSecondNs);
    if (!live_.empty()) return;
    for (uint32_t i = 0; i < kFolders && to_scrub_.empty(); ++i) {
      to_scrub_ = books_.keys_of(scrub_folder_);
      scrub_folder_ = (scrub_folder_ + 1) % kFolders;
    }
    if (to_scrub_.empty()) return;
    key = to_scrub_.back();
    to_scrub_.pop_back();
    const Books::Entry* const entry = books_.find(key);
    bytes = entry == nullptr ? 0 : entry->room;
    moment = books_.moment();
  }
  const uint64_t begun_ns = monotonic_ns();
  Answer answer;
  try {
    answer = directory_.scrub(key);
  } catch (const std::bad_alloc&) {
    return;  // It is checked when somebody gets it.
  }
  if (answer.outcome == TierOutcome::corrupt) counters_.count(TierOp::get, answer.outcome, 0);
  const Lock lock(mutex_);
  if (answer.gone) books_.forget(key, moment);
  const uint64_t rate = options_.scrub_bytes_per_second;
  scrub_at_ns_ =
      deadline_after(begun_ns, bytes / rate * kSecondNs + bytes % rate * kSecondNs / rate);
}

bool Core::make_room(Books::Plan& plan, int& problem) {
  using Stays = Books::Stays;
  for (;;) {
    {
      const Lock lock(mutex_);
      if (plan.victims.empty()) {
        if (plan.owed == 0 && !books_.over()) return true;
        if (!books_.add_victims(plan) && plan.victims.empty()) return false;
      }
    }
    while (!plan.victims.empty()) {
      const Books::Victim victim = plan.victims.back();
      const Books::Entry& entry = victim.entry;
      uint64_t used_ns = 0;
      int trouble = 0;
      const auto evicted = directory_.evict(victim.key, entry.on_file_ns, used_ns, trouble);
      if (trouble != 0) problem = trouble;
      const Lock lock(mutex_);
      plan.victims.pop_back();
      switch (evicted) {
        case Directory::Evicted::gone:
          books_.gone(victim);
          counters_.count_eviction(entry.room);
          break;
        case Directory::Evicted::was_gone: books_.gone(victim); break;
        case Directory::Evicted::used_since:
          books_.keep(plan, victim, Stays::in_order, used_ns, wall_ns());
          break;
        case Directory::Evicted::not_ours: books_.keep(plan, victim, Stays::forever, 0, 0); break;
        case Directory::Evicted::failed:
          books_.keep(plan, victim, Stays::in_order, entry.on_file_ns, wall_ns());
          break;
      }
    }
    const Lock lock(mutex_);
    books_.end_victims(plan);
    if (problem != 0) return false;
  }
}

// ---- What others ask of the keeper ----

void Core::sync_if_wanted() {
  uint64_t wanted;
  uint32_t epoch;
  {
    const Lock lock(mutex_);
    wanted = syncs_wanted_;
    if (wanted == syncs_ended_) return;
    unsynced_ = false;
    epoch = ++epoch_;
  }
  const bool good = directory_.sync_all() == 0;
  if (!good) distrust();
  const bool gone = remove_doubtful();
  const Lock lock(mutex_);
  if (good) unsynced_epoch_ = epoch;
  unsynced_ = unsynced_ || !good || !gone;
  syncs_ended_ = wanted;
  sync_good_ = good && gone;
  ended_.notify_all();
}

// After a failed sync, what was written since the last good one may or may not be on the disk; and
// the next sync will not report it, because the system has forgotten the error.
void Core::distrust() {
  size_t count;
  {
    const Lock lock(mutex_);
    const std::vector<EntryKey> keys = books_.put_since(unsynced_epoch_);
    doubtful_.insert(doubtful_.end(), keys.begin(), keys.end());
    bad_epoch_ = unsynced_epoch_ = ++epoch_;
    count = keys.size();
  }
  log(LogLevel::warning, "shared tier '" + options_.path +
                             "': a sync failed; what was written since the last one, " +
                             std::to_string(count) + " entries, is given up");
}

bool Core::remove_doubtful() {
  std::vector<EntryKey> keys;
  uint64_t moment;
  {
    const Lock lock(mutex_);
    keys.swap(doubtful_);
    moment = books_.moment();
  }
  std::vector<EntryKey> left;
  for (const EntryKey& key : keys) {
    const Answer answer = directory_.remove(key);
    note(answer);
    const Lock lock(mutex_);
    if (answer.problem != 0) {
      left.push_back(key);
    } else {
      books_.forget(key, moment);
    }
  }
  const Lock lock(mutex_);
  doubtful_.insert(doubtful_.end(), left.begin(), left.end());
  return left.empty();
}

bool Core::flush(uint64_t until_ns) {
  Lock lock(mutex_);
  const uint64_t last = serials_;
  const auto wait = [&](const std::function<bool()>& holds) {
    return tier::wait_until(ended_, lock, until_ns, holds);
  };
  if (!wait([&]() STEMMA_REQUIRES(mutex_) { return live_.empty() || live_.begin()->first > last; }))
    return false;
  if (!unsynced_) return true;
  const uint64_t mine = ++syncs_wanted_;
  keep_.notify_one();
  return wait([&]() STEMMA_REQUIRES(mutex_) { return syncs_ended_ >= mine || breaker_.open(); }) &&
         syncs_ended_ >= mine && sync_good_;
}

bool Core::scan_now() {
  Lock lock(mutex_);
  const uint64_t mine = scans_begun_ + 1;
  scan_wanted_ = true;
  keep_.notify_one();
  ended_.wait(lock,
              [&]() STEMMA_REQUIRES(mutex_) { return scans_ended_ >= mine || breaker_.open(); });
  return scans_ended_ >= mine;
}

}  // namespace stemma::tier::shared
