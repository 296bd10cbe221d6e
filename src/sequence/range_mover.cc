#include "sequence/range_mover.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>

#include "stemma/log.h"

namespace stemma::sequence {

namespace {

// A value that no model computes, and that is no position and no count.
constexpr uint64_t kMark = 0xFDB5'1E8A'C3F0'9D67U;
constexpr uint64_t kMarkEvery = 1024;
// Less than this is overwritten with zeroes.
constexpr uint64_t kMuch = 4U << 20U;
// One task cleans this many bytes.
constexpr uint64_t kPart = 8U << 20U;

}  // namespace

std::unique_ptr<RangeMover> RangeMover::create(const Options& options) try {
  std::unique_ptr<RangeMover> made(new RangeMover);
  if (!made->set_up(options)) made.reset();
  return made;
} catch (const std::bad_alloc&) {
  return nullptr;
} catch (const std::system_error&) {
  return nullptr;
}

bool RangeMover::set_up(const Options& options) {
  const base::Lock lock(mutex_);
  constexpr uint64_t kPage = 4096;
  buffer_bytes_ = (std::max<uint64_t>(options.buffer_bytes, 1) + kPage - 1) / kPage * kPage;
  const uint32_t buffers = std::max(options.buffers, 2U);
  if (!memory_.reserve(buffer_bytes_ * buffers)) return false;
  uses_.assign(buffers, Use::fresh);
  pinned_.assign(buffers, 0);
  cleaning_ = std::vector<Batch>(buffers);
  marked_.assign(buffers, 0);
  used_.assign(buffers, 0);
  // Made once: giving a buffer back takes no memory.
  for (uint32_t i = 0; i < buffers; ++i) {
    cleaning_[i].task = [this, i](uint32_t part) { make_ready(i, part); };
  }
  batches_.reserve(2 * buffers);
  hook_ = options.hook;
  const uint32_t all = std::thread::hardware_concurrency();
  const uint32_t threads = options.threads.value_or(std::clamp(all, 3U, 14U) - 2);
  thread_count_ = threads;
  for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  pinning_ = hook_ != nullptr;
  if (pinning_) pinner_ = std::thread([this] { pin_all(); });
  return true;
}

RangeMover::~RangeMover() {
  {
    const base::Lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  done_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  if (pinner_.joinable()) pinner_.join();
  for (uint32_t i = 0; i < pinned_.size(); ++i) {
    if (pinned_[i] != 0) hook_->unpin(bytes(i).data(), buffer_bytes_);
  }
}

// ---- Buffers -----------------------------------------------------------------------------------

uint32_t RangeMover::take() noexcept {
  const base::Lock lock(mutex_);
  // Pinned buffers are faster and have their memory; next come others that have memory.
  uint32_t best = kNone;
  const auto worth = [&](uint32_t i) STEMMA_REQUIRES(mutex_) {
    return pinned_[i] * 2 + (uses_[i] == Use::free ? 1 : 0);
  };
  for (uint32_t i = 0; i < uses_.size(); ++i) {
    const bool idle = uses_[i] == Use::free || uses_[i] == Use::fresh;
    if (idle && (best == kNone || worth(i) > worth(best))) best = i;
  }
  if (best == kNone) return kNone;
  if (uses_[best] == Use::fresh &&
      !memory_.commit(best * buffer_bytes_, (best + 1) * buffer_bytes_)) {
    // The system has no memory for this buffer; the others serve.
    uses_[best] = Use::refused;
    return kNone;
  }
  uses_[best] = Use::taken;
  return best;
}

void RangeMover::give_back(uint32_t buffer, uint64_t used) {
  used = std::min(used, buffer_bytes_);
  {
    const base::Lock lock(mutex_);
    uses_[buffer] = used == 0 ? Use::free : Use::cleaning;
  }
  if (used == 0) {
    done_.notify_all();
    return;
  }
  // What was marked before and was not used now is still marked.
  if (used > kMuch) marked_[buffer] = std::max(marked_[buffer], used);
  used_[buffer] = used;
  Batch& batch = cleaning_[buffer];
  batch.count = static_cast<uint32_t>((used + kPart - 1) / kPart);
  start(batch);
}

void RangeMover::make_ready(uint32_t buffer, uint32_t part) noexcept {
  const uint64_t used = used_[buffer];
  const std::span<uint8_t> memory = bytes(buffer).first(used).subspan(part * kPart);
  const uint64_t size = std::min<uint64_t>(memory.size(), kPart);
  if (used <= kMuch) {
    std::memset(memory.data(), 0, size);
    return;
  }
  for (uint64_t at = 0; at + sizeof kMark <= size; at += kMarkEvery) {
    std::memcpy(memory.data() + at, &kMark, sizeof kMark);
  }
}

bool RangeMover::unwritten(uint32_t buffer, uint64_t begin, uint64_t end) const noexcept {
  const uint8_t* memory = bytes(buffer).data();
  end = std::min(end, marked_[buffer]);
  begin = (begin + kMarkEvery - 1) / kMarkEvery * kMarkEvery;
  for (uint64_t at = begin; at + sizeof kMark <= end; at += kMarkEvery) {
    if (std::memcmp(memory + at, &kMark, sizeof kMark) == 0) return true;
  }
  return false;
}

bool RangeMover::wait_for_buffer() {
  base::Lock lock(mutex_);
  for (;;) {
    bool coming = false;
    for (uint32_t i = 0; i < uses_.size(); ++i) {
      if (uses_[i] == Use::free || uses_[i] == Use::fresh) return true;
      coming = coming || uses_[i] == Use::cleaning || uses_[i] == Use::pinning;
    }
    if (!coming) return false;
    if (!do_one(nullptr)) done_.wait(lock);
  }
}

void RangeMover::pin_all() {
  for (uint32_t i = 0; i < buffers(); ++i) {
    {
      // A buffer in use is pinned when it is free; the others serve callers until then.
      base::Lock lock(mutex_);
      const auto idle = [&]() STEMMA_REQUIRES(mutex_) {
        return uses_[i] == Use::free || uses_[i] == Use::fresh;
      };
      done_.wait(lock, [&]() STEMMA_REQUIRES(mutex_) { return ending_ || idle(); });
      if (ending_) break;
      if (uses_[i] == Use::fresh && !memory_.commit(i * buffer_bytes_, (i + 1) * buffer_bytes_))
        break;
      uses_[i] = Use::pinning;
    }
    // Touch all pages here: the driver would take them one by one.
    const std::span<uint8_t> memory = bytes(i);
    std::fill(memory.begin(), memory.end(), uint8_t{0});
    const bool pinned = hook_->pin(memory.data(), memory.size());
    {
      const base::Lock lock(mutex_);
      pinned_[i] = pinned ? 1 : 0;
      uses_[i] = Use::free;
    }
    done_.notify_all();
    if (!pinned) {
      log(LogLevel::warning,
          "stemma: the driver pins no memory: what is saved and restored moves several times "
          "slower");
      break;
    }
    pinned_bytes_.fetch_add(buffer_bytes_, std::memory_order_relaxed);
  }
  {
    const base::Lock lock(mutex_);
    pinning_ = false;
  }
  done_.notify_all();
}

void RangeMover::wait_until_pinned() {
  base::Lock lock(mutex_);
  done_.wait(lock, [&]() STEMMA_REQUIRES(mutex_) { return !pinning_; });
}

// ---- Work --------------------------------------------------------------------------------------

void RangeMover::start(Batch& batch, bool urgent) {
  batch.next = 0;
  batch.left.store(batch.count, std::memory_order_release);
  if (batch.count == 0) return;
  {
    const base::Lock lock(mutex_);
    // Urgent batches are served in the order they came.
    const auto at = urgent ? batches_.begin() + urgent_ : batches_.end();
    batches_.insert(at, &batch);
    urgent_ += urgent ? 1 : 0;
  }
  work_.notify_all();
  if (threads_.empty()) wait(batch);
}

bool RangeMover::do_one(Batch* only) {
  const auto found = only == nullptr ? batches_.begin() : std::ranges::find(batches_, only);
  if (found == batches_.end()) return false;
  const bool urgent = found - batches_.begin() < urgent_;
  // A caller that waits for one batch always works on it.
  const bool leisurely = only == nullptr && !urgent;
  if (leisurely && leisurely_ >= (threads() + 1) / 2) return false;
  leisurely_ += leisurely ? 1 : 0;
  Batch& batch = **found;
  const uint32_t task = batch.next++;
  if (batch.next == batch.count) {
    if (urgent) --urgent_;
    batches_.erase(found);
  }
  {
    const base::Unlocked meanwhile(mutex_);
    batch.task(task);
  }
  leisurely_ -= leisurely ? 1 : 0;
  if (leisurely && !batches_.empty()) work_.notify_one();
  // Under the lock: a caller that sees the last task done may destroy the batch at once.
  if (batch.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return true;
  if (&batch >= cleaning_.data() && &batch < cleaning_.data() + cleaning_.size()) {
    uses_[static_cast<size_t>(&batch - cleaning_.data())] = Use::free;
  }
  done_.notify_all();
  return true;
}

void RangeMover::work() {
  base::Lock lock(mutex_);
  for (;;) {
    if (do_one(nullptr)) continue;
    if (ending_) return;
    work_.wait(lock, [&]() STEMMA_REQUIRES(mutex_) {
      const bool leisure = urgent_ == 0 && leisurely_ >= (threads() + 1) / 2;
      return ending_ || (!batches_.empty() && !leisure);
    });
  }
}

void RangeMover::wait(Batch& batch) {
  base::Lock lock(mutex_);
  while (do_one(&batch)) {
  }
  done_.wait(lock, [&] { return done(batch); });
}

}  // namespace stemma::sequence
