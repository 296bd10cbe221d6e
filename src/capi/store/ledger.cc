#include "capi/store/ledger.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tier/wait_until.h"

namespace stemma::capi::store {

namespace {

Error closed() { return {Errc::stale, "this store was destroyed"}; }
Error unknown() {
  return {Errc::stale, "batch was named already, or does not belong to this store"};
}

}  // namespace

// ---- Budget ----

bool Budget::take(uint64_t bytes, uint64_t until_ns, const std::function<bool()>& stop) {
  base::Lock lock(mutex_);
  const auto fits = [&]()
                        STEMMA_REQUIRES(mutex_) { return taken_ == 0 || taken_ + bytes <= bytes_; };
  const auto ready = [&]() STEMMA_REQUIRES(mutex_) { return fits() || stop(); };
  if (!tier::wait_until(changed_, lock, until_ns, ready) || !fits()) return false;
  taken_ += bytes;
  return true;
}

void Budget::give_back(uint64_t bytes) {
  const base::Lock lock(mutex_);
  taken_ -= bytes;
  changed_.notify_all();
}

void Budget::poke() {
  const base::Lock lock(mutex_);
  changed_.notify_all();
}

// ---- Ledger ----

Result<std::shared_ptr<Ledger>> Ledger::make(const Limits& limits) {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    return Error(Errc::copy_failed, "the system gives no eventfd", static_cast<uint32_t>(errno));
  }
  try {
    return std::make_shared<Ledger>(limits, fd);
  } catch (const std::bad_alloc&) {
    ::close(fd);
    return Error(Errc::out_of_memory, "no memory for a store");
  }
}

Ledger::Ledger(const Limits& limits, int event_fd)
    : limits_(limits), event_fd_(event_fd), budget_(limits.put_bytes) {}

Ledger::~Ledger() { ::close(event_fd_); }

void Ledger::signal() noexcept {
  const bool wanted = ended_count_ != 0;
  if (wanted == signalled_) return;
  uint64_t value = 1;
  // Neither can fail: the counter is 0 or 1, and no other code reads it.
  const ssize_t moved =
      wanted ? write(event_fd_, &value, sizeof value) : read(event_fd_, &value, sizeof value);
  if (moved == sizeof value) signalled_ = wanted;
}

Result<Ledger::Opened> Ledger::open(Request&& request, uint64_t deadline_ns) {
  const size_t count = request.items.size();
  const base::Lock lock(mutex_);
  if (closed_) return closed();
  if (batches_.size() >= limits_.batches) {
    return Error(Errc::busy, "so many batches are under way or wait to be drained",
                 limits_.batches);
  }
  const uint64_t number = last_number_ + 1;
  Opened opened{
      .batch = std::make_shared<Batch>(std::move(request), number, deadline_ns, shared_from_this()),
      .admitted = std::min(count, limits_.items - items_waiting_)};
  const auto deadline = deadlines_.emplace(deadline_ns, number).first;
  try {
    Entry entry{.batch = opened.batch, .admitted = opened.admitted, .place = {number}};
    entry.in_order = entry.place.begin();
    batches_.emplace(number, std::move(entry));
  } catch (...) {
    deadlines_.erase(deadline);
    throw;
  }
  last_number_ = number;
  items_waiting_ += opened.admitted;
  if (deadlines_.begin() == deadline) deadlines_changed_.notify_all();
  return opened;
}

void Ledger::ended(uint64_t number) {
  // Puts that wait for room in the budget check whether they are still wanted.
  budget_.poke();
  const base::Lock lock(mutex_);
  const auto found = batches_.find(number);
  if (found == batches_.end()) return;  // The ledger was closed.
  Entry& entry = found->second;
  entry.ended = true;
  items_waiting_ -= entry.admitted;
  deadlines_.erase({entry.batch->deadline_ns(), number});
  order_.splice(order_.end(), entry.place);
  ++ended_count_;
  signal();
  ended_.notify_all();
}

Result<bool> Ledger::name(uint64_t number, stemma_store_finished* out) {
  if (closed_) return closed();
  const auto found = batches_.find(number);
  if (found == batches_.end()) return unknown();
  if (!found->second.ended) return false;
  if (out != nullptr) *out = found->second.batch->finished();
  order_.erase(found->second.in_order);
  batches_.erase(found);
  --ended_count_;
  signal();
  return true;
}

size_t Ledger::drain(std::span<stemma_store_finished> out) {
  const base::Lock lock(mutex_);
  size_t count = 0;
  while (count < out.size() && !order_.empty() && !closed_) {
    if (!name(order_.front(), &out[count])) break;
    ++count;
  }
  return count;
}

Result<bool> Ledger::wait(uint64_t number, uint64_t until_ns, stemma_store_finished* out) {
  base::Lock lock(mutex_);
  const auto is_told = [&]() STEMMA_REQUIRES(mutex_) {
    const auto found = batches_.find(number);
    return closed_ || found == batches_.end() || found->second.ended;
  };
  tier::wait_until(ended_, lock, until_ns, is_told);
  return name(number, out);
}

Result<void> Ledger::cancel(uint64_t number, stemma_store_finished* out) {
  std::shared_ptr<Batch> batch;
  {
    const base::Lock lock(mutex_);
    const auto found = batches_.find(number);
    if (found == batches_.end()) return closed_ ? closed() : unknown();
    batch = found->second.batch;
  }
  batch->end_all(Status::cancelled);
  // Its last item may have ended on another thread that has not reported it yet.
  STEMMA_TRY(const bool over, wait(number, kNever, out));
  static_cast<void>(over);
  return {};
}

uint64_t Ledger::expire(uint64_t now_ns) {
  for (;;) {
    std::shared_ptr<Batch> late;
    {
      const base::Lock lock(mutex_);
      if (deadlines_.empty()) return kNever;
      const auto [deadline_ns, number] = *deadlines_.begin();
      if (deadline_ns > now_ns) return deadline_ns;
      late = batches_.at(number).batch;
      deadlines_.erase(deadlines_.begin());
    }
    late->end_all(Status::late);
  }
}

void Ledger::wait_for_deadlines(uint64_t until_ns) {
  base::Lock lock(mutex_);
  const auto earlier = [&]() STEMMA_REQUIRES(mutex_) {
    return closed_ || (!deadlines_.empty() && deadlines_.begin()->first < until_ns);
  };
  tier::wait_until(deadlines_changed_, lock, until_ns, earlier);
}

void Ledger::close() {
  std::unordered_map<uint64_t, Entry> gone;
  {
    const base::Lock lock(mutex_);
    closed_ = true;
    gone.swap(batches_);
    deadlines_.clear();
    order_.clear();
    ended_count_ = items_waiting_ = 0;
    ended_.notify_all();
    deadlines_changed_.notify_all();
  }
  for (const auto& [number, entry] : gone) entry.batch->end_all(Status::cancelled);
  budget_.poke();
}

bool Ledger::is_closed() const {
  const base::Lock lock(mutex_);
  return closed_;
}

void Ledger::count(Op op, Status status, uint64_t bytes) noexcept {
  const auto o = static_cast<size_t>(op);
  items_[o][static_cast<size_t>(status)].fetch_add(1, std::memory_order_relaxed);
  bytes_[o].fetch_add(bytes, std::memory_order_relaxed);
}

Counts Ledger::counts() const {
  Counts counts;
  for (size_t o = 0; o < kOps; ++o) {
    for (size_t s = 0; s < kStatuses; ++s) {
      counts.items[o][s] = items_[o][s].load(std::memory_order_relaxed);
    }
    counts.bytes[o] = bytes_[o].load(std::memory_order_relaxed);
  }
  const base::Lock lock(mutex_);
  counts.batches = last_number_;
  counts.batches_ended = ended_count_;
  counts.batches_waiting = batches_.size() - ended_count_;
  counts.items_waiting = items_waiting_;
  return counts;
}

}  // namespace stemma::capi::store
