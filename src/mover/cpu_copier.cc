#include "mover/cpu_copier.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "mover/copy_piece.h"
#include "tier/transfer_arena.h"

namespace stemma::mover {
namespace {

// Small pieces are taken together, so that threads seldom meet at the lock.
constexpr uint64_t kWorthTaking = uint64_t{256} << 10U;

uint32_t thread_count(uint32_t wanted) noexcept {
  if (wanted != 0) return wanted;
  return std::clamp<uint32_t>(std::thread::hardware_concurrency(), 1, 4);
}

}  // namespace

CpuCopier::CpuCopier(const CopierOptions& options)
    : shapes_(options.shapes.begin(), options.shapes.end()) {
  const uint32_t count = thread_count(options.threads);
  threads_.reserve(count);
}

Result<std::unique_ptr<Copier>> CpuCopier::create(const CopierOptions& options) {
  std::unique_ptr<CpuCopier> made(new CpuCopier(options));
  if (options.arena_bytes != 0) {
    made->arena_ = tier::TransferArena::create(options.arena_bytes, nullptr);
    if (made->arena_ == nullptr) {
      return Error(Errc::out_of_memory, "the system gave no memory for arena_bytes");
    }
  }
  try {
    for (uint32_t i = 0; i < thread_count(options.threads); ++i) {
      made->threads_.emplace_back([copier = made.get()] { copier->run(); });
    }
  } catch (const std::system_error&) {
    return Error(Errc::out_of_memory, "the system gave no thread");
  }
  return std::unique_ptr<Copier>(std::move(made));
}

CpuCopier::~CpuCopier() {
  {
    const base::Lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::string CpuCopier::device() const {
  return "cpu, " + std::to_string(threads_.size()) +
         (threads_.size() == 1 ? " thread" : " threads");
}

Result<void> CpuCopier::start(const std::shared_ptr<Transfer>& transfer) {
  transfer->plan_all();
  const Plan& plan = transfer->plan();
  auto made = std::make_unique<Progress>();
  made->left = plan.pieces.size();
  size_t begin = 0;
  for (const Step& step : plan.steps) {
    made->left_of_step.push_back(step.end_piece - begin);
    begin = step.end_piece;
  }
  transfer->extra = std::move(made);
  if (plan.pieces.empty()) {
    transfer->finish(false);
    return {};
  }
  {
    const base::Lock lock(mutex_);
    queue_.push_back(transfer);
  }
  work_.notify_all();
  return {};
}

Result<void> CpuCopier::gate(Transfer& transfer, uint32_t step, uint64_t) {
  base::Lock lock(mutex_);
  steps_.wait(lock,
              [&]() STEMMA_REQUIRES(mutex_) { return progress(transfer).left_of_step[step] == 0; });
  return {};
}

void CpuCopier::run() {
  for (;;) {
    const Taken taken = take();
    if (taken.transfer == nullptr) return;
    copy(taken);
    if (arrived(taken)) taken.transfer->finish(false);
  }
}

CpuCopier::Taken CpuCopier::take() {
  base::Lock lock(mutex_);
  work_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return ending_ || !queue_.empty(); });
  if (queue_.empty()) return {};
  std::shared_ptr<Transfer> transfer = queue_.front();
  const std::vector<Piece>& pieces = transfer->plan().pieces;
  Progress& progress = this->progress(*transfer);
  const size_t begin = progress.next;
  size_t end = begin;
  for (uint64_t bytes = 0; end < pieces.size() && bytes < kWorthTaking; ++end) {
    bytes += pieces[end].bytes;
  }
  progress.next = end;
  if (end == pieces.size()) queue_.pop_front();
  return {std::move(transfer), begin, end};
}

void CpuCopier::copy(const Taken& taken) const {
  Transfer& transfer = *taken.transfer;
  const std::vector<Piece>& pieces = transfer.plan().pieces;
  const Way way = transfer.options().way;
  const bool sum = transfer.options().sum;
  for (size_t i = taken.begin; i < taken.end; ++i) {
    const uint64_t share = copy_piece(pieces[i], shapes_[pieces[i].shape], way, sum);
    if (sum) transfer.add_sum(pieces[i].item, share);
  }
  base::end_of_word_copies();
}

bool CpuCopier::arrived(const Taken& taken) {
  const Plan& plan = taken.transfer->plan();
  bool last = false, gate_opened = false;
  {
    const base::Lock lock(mutex_);
    Progress& progress = this->progress(*taken.transfer);
    auto step = std::upper_bound(
        plan.steps.begin(), plan.steps.end(), taken.begin,
        [](size_t piece, const Step& candidate) { return piece < candidate.end_piece; });
    for (size_t at = taken.begin; at < taken.end; ++step) {
      const size_t end = std::min(taken.end, step->end_piece);
      size_t& left = progress.left_of_step[static_cast<size_t>(step - plan.steps.begin())];
      left -= end - at;
      gate_opened |= left == 0;
      at = end;
    }
    progress.left -= taken.end - taken.begin;
    last = progress.left == 0;
  }
  if (gate_opened) steps_.notify_all();
  return last;
}

}  // namespace stemma::mover
