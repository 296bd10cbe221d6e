#include "mover/transfer.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace stemma::mover {

Transfer::Transfer(Plan plan, BlockPlanner planner, TransferOptions options,
                   std::shared_ptr<Counters> counters)
    : plan_(std::move(plan)),
      planner_(std::move(planner)),
      options_(std::move(options)),
      counters_(std::move(counters)),
      sums_(std::make_unique<std::atomic<uint64_t>[]>(options_.items)) {}

Result<uint32_t> Transfer::step_of(uint32_t layer) const noexcept {
  const auto step = std::upper_bound(
      plan_.steps.begin(), plan_.steps.end(), layer,
      [](uint32_t wanted, const Step& candidate) { return wanted < candidate.end_layer; });
  if (step == plan_.steps.end()) {
    return Error(Errc::out_of_range, "the transfer has no such layer", layer);
  }
  return static_cast<uint32_t>(step - plan_.steps.begin());
}

void Transfer::finish(bool failed) noexcept {
  failed_ = failed;
  uint64_t wrong = 0;
  for (size_t i = 0; !failed && i < options_.expected.size(); ++i) {
    if (sums_[i].load(std::memory_order_relaxed) == options_.expected[i]) continue;
    if (wrong++ == 0) first_wrong_ = static_cast<uint32_t>(i);
  }
  counters_->wrong_blocks.fetch_add(wrong, std::memory_order_relaxed);
  {
    const base::Lock lock(mutex_);
    over_.store(true, std::memory_order_release);
    ended_.notify_all();
  }
  if (options_.done != nullptr) {
    const Result<void> result = outcome();
    options_.done(options_.user, result ? std::nullopt : std::optional(result.error().code()));
  }
  counters_->running.fetch_sub(1, std::memory_order_release);
}

Result<void> Transfer::outcome() const noexcept {
  if (failed_) return Error(Errc::copy_failed, "the device reported an error");
  if (first_wrong_ != UINT32_MAX) {
    return Error(Errc::corrupt, "the sum of an item is not that of its bytes", first_wrong_);
  }
  return {};
}

Result<void> Transfer::wait(uint64_t wait_ns) const {
  constexpr uint64_t kForever = uint64_t{1} << 62U;
  if (!over()) {
    base::Lock lock(mutex_);
    const auto ended = [this] { return over(); };
    if (wait_ns >= kForever) {
      ended_.wait(lock, ended);
    } else if (!ended_.wait_for(lock, std::chrono::nanoseconds(wait_ns), ended)) {
      return Error(Errc::busy, "the transfer is not over");
    }
  }
  return outcome();
}

Transfer::Outcome Transfer::outcome_of(size_t item) const noexcept {
  Outcome out;
  if (failed_) {
    out.error = Errc::copy_failed;
    return out;
  }
  if (options_.sum) out.sum = sums_[item].load(std::memory_order_relaxed);
  if (!options_.expected.empty() && out.sum != options_.expected[item]) out.error = Errc::corrupt;
  return out;
}

}  // namespace stemma::mover
