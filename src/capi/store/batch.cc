#include "capi/store/batch.h"

#include <algorithm>
#include <utility>

#include "capi/store/ledger.h"

namespace stemma::capi::store {

namespace {

// The status for the caller when a level's put ends like this.
Status status_of(TierOutcome outcome) noexcept {
  switch (outcome) {
    case TierOutcome::done: return Status::done;
    case TierOutcome::refused: return Status::refused;
    case TierOutcome::late: return Status::late;
    case TierOutcome::cancelled: return Status::busy;
    default: return Status::failed;
  }
}

// Ranks the answers of several levels: the most useful one wins.
uint32_t weight(Status status) noexcept {
  switch (status) {
    case Status::failed: return 3;
    case Status::late: return 2;
    case Status::busy: return 1;
    default: return 0;
  }
}

}  // namespace

Batch::Batch(Request&& request, uint64_t number, uint64_t deadline_ns,
             std::shared_ptr<Ledger> ledger)
    : request_(std::move(request)),
      number_(number),
      deadline_ns_(deadline_ns),
      ledger_(std::move(ledger)),
      states_(request_.items.size()),
      left_(request_.items.size()) {}

bool Batch::is_over() const {
  const base::Lock lock(mutex_);
  return over_;
}

bool Batch::begin_copy() {
  const base::Lock lock(mutex_);
  if (closing_ || over_) return false;
  ++copies_;
  return true;
}

void Batch::end_copy() {
  const base::Lock lock(mutex_);
  if (--copies_ == 0 && closing_) copied_.notify_all();
}

bool Batch::end_one(size_t i, Status status, tier::LevelMask levels, uint64_t bytes) {
  State& state = states_[i];
  if (over_ || state.status != Status::pending) return false;
  state.status = status;
  ledger_->count(request_.op, status, bytes);
  if (request_.results != nullptr) {
    request_.results[request_.items[i].number] = {static_cast<uint32_t>(status), levels, bytes};
  }
  if (status == Status::done) {
    finished_.bytes += bytes;
    ++finished_.done;
  }
  if (--left_ != 0) return false;
  sum_up();
  return true;
}

void Batch::sum_up() noexcept {
  over_ = true;
  finished_.batch = number_;
  finished_.user = request_.user;
  finished_.op = static_cast<uint32_t>(request_.op);
  finished_.count = static_cast<uint32_t>(states_.size());
  finished_.leading = finished_.count;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].status == Status::done) continue;
    finished_.leading = std::min(finished_.leading, request_.items[i].number);
  }
}

void Batch::end(size_t i, Status status, tier::LevelMask levels, uint64_t bytes) {
  {
    const base::Lock lock(mutex_);
    if (!end_one(i, status, levels, bytes)) return;
  }
  ledger_->ended(number_);
}

void Batch::end_all(Status status) {
  {
    base::Lock lock(mutex_);
    closing_ = true;
    copied_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return copies_ == 0; });
    if (over_) return;
    bool last = false;
    for (size_t i = 0; i < states_.size(); ++i) {
      last = end_one(i, status, states_[i].levels, 0) || last;
    }
    if (!last) return;  // It had already ended.
  }
  ledger_->ended(number_);
}

void Batch::expect(size_t i, uint32_t levels, tier::LevelMask there, uint64_t bytes) {
  const base::Lock lock(mutex_);
  states_[i].levels_left = static_cast<uint8_t>(levels);
  states_[i].levels = static_cast<uint8_t>(there);
  states_[i].budget_bytes = bytes;
}

void Batch::settled(uint64_t number, uint32_t level, TierOutcome outcome) noexcept {
  uint64_t give_back = 0;
  bool last = false;
  {
    const base::Lock lock(mutex_);
    State& state = states_[number];
    if (state.levels_left == 0) return;
    const Status status = status_of(outcome);
    if (status == Status::done) {
      state.levels |= static_cast<uint8_t>(1U << level);
    } else if (weight(status) > weight(state.worst)) {
      state.worst = status;
    }
    if (--state.levels_left != 0) return;
    give_back = std::exchange(state.budget_bytes, 0);
    const bool done = state.levels != 0;
    last = end_one(number, done ? Status::done : state.worst, state.levels,
                   done ? request_.items[number].bytes : 0);
  }
  ledger_->budget().give_back(give_back);
  if (last) ledger_->ended(number_);
}

}  // namespace stemma::capi::store
