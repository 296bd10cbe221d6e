#include "tier/disk/uring_queue.h"

#ifdef STEMMA_HAS_LIBURING

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/check.h"

namespace stemma::tier::disk {

namespace {

constexpr uint64_t kWorthAThread = 1U << 20U;

// One ring, used by one thread. wake() writes to an eventfd that the ring reads from.
class UringQueue final : public IoQueue {
 public:
  static std::unique_ptr<IoQueue> make(uint32_t depth) {
    auto queue = std::unique_ptr<UringQueue>(new UringQueue);
    // One more for reading the eventfd.
    if (io_uring_queue_init(depth + 1, &queue->ring_, 0) < 0) return nullptr;
    queue->has_ring_ = true;
    io_uring_probe* probe = io_uring_get_probe_ring(&queue->ring_);
    const auto can = [probe](int op) { return io_uring_opcode_supported(probe, op) != 0; };
    const bool all = probe != nullptr && can(IORING_OP_READV) && can(IORING_OP_WRITEV) &&
                     can(IORING_OP_FSYNC) && can(IORING_OP_READ);
    if (probe != nullptr) io_uring_free_probe(probe);
    if (!all || (queue->ring_.features & IORING_FEAT_EXT_ARG) == 0) return nullptr;
    queue->event_ = eventfd(0, EFD_CLOEXEC);
    if (queue->event_ < 0) return nullptr;
    queue->listen();
    return queue;
  }

  ~UringQueue() override {
    if (has_ring_) {
      // Transfers under way write to the callers' memory: they must have ended.
      if (listening_) {
        closing_ = true;
        ring_bell();
        Io* ended[16];
        while (under_way_ != 0 || listening_) {
          const int result = io_uring_submit_and_wait(&ring_, 1);
          if (result < 0 && result != -EINTR) break;
          reap(ended);
        }
      }
      io_uring_queue_exit(&ring_);
    }
    if (event_ >= 0) ::close(event_);
  }

  void start(Io& io) override {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
      io_uring_submit(&ring_);
      sqe = io_uring_get_sqe(&ring_);
    }
    STEMMA_CHECK(sqe != nullptr);
    switch (io.kind) {
      case Io::Kind::read:
        io_uring_prep_readv(sqe, io.file, io.parts.data(), io.part_count, io.offset);
        break;
      case Io::Kind::write:
        io_uring_prep_writev(sqe, io.file, io.parts.data(), io.part_count, io.offset);
        break;
      case Io::Kind::sync: io_uring_prep_fsync(sqe, io.file, IORING_FSYNC_DATASYNC); break;
    }
    io_uring_sqe_set_data(sqe, &io);
    ++under_way_;
    const uint64_t bytes = io.bytes();
    // The kernel prepares a read in the submitting thread: it clears pages that were never used,
    // and copies data from the page cache or an in-memory file system. A large read is worth a
    // kernel thread.
    if (io.kind == Io::Kind::read && bytes >= kWorthAThread) sqe->flags |= IOSQE_ASYNC;
    // Submits large ones at once: the disk works while the next checksum is computed. Small ones
    // are submitted together.
    constexpr uint64_t kLarge = 128U << 10U;
    if (bytes >= kLarge || io_uring_sq_ready(&ring_) >= 8) io_uring_submit(&ring_);
  }

  size_t wait(std::span<Io*> ended, uint64_t timeout_ns) override {
    if (size_t count = reap(ended); count != 0 || timeout_ns == 0) {
      io_uring_submit(&ring_);
      return count;
    }
    if (woken_.exchange(false, std::memory_order_acq_rel)) {
      io_uring_submit(&ring_);
      return 0;
    }
    __kernel_timespec time = {static_cast<int64_t>(timeout_ns / 1'000'000'000),
                              static_cast<long long>(timeout_ns % 1'000'000'000)};
    io_uring_cqe* cqe = nullptr;
    io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &time, nullptr);
    woken_.store(false, std::memory_order_release);
    return reap(ended);
  }

  void wake() noexcept override {
    // While one wake-up is pending, the next needs no system call.
    if (woken_.exchange(true, std::memory_order_acq_rel)) return;
    ring_bell();
  }

  std::string_view name() const noexcept override { return "io_uring"; }

 private:
  UringQueue() = default;

  void ring_bell() const noexcept {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(event_, &one, sizeof one);
  }

  void listen() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    STEMMA_CHECK(sqe != nullptr);
    io_uring_prep_read(sqe, event_, &event_value_, sizeof event_value_, 0);
    io_uring_sqe_set_data(sqe, nullptr);
    listening_ = true;
  }

  size_t reap(std::span<Io*> ended) {
    size_t count = 0;
    io_uring_cqe* cqe = nullptr;
    while (count < ended.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      Io* io = static_cast<Io*>(io_uring_cqe_get_data(cqe));
      if (io == nullptr) {
        listening_ = false;
      } else {
        io->result = cqe->res;
        --under_way_;
        ended[count++] = io;
      }
      io_uring_cqe_seen(&ring_, cqe);
    }
    if (!listening_ && !closing_) listen();
    return count;
  }

  io_uring ring_ = {};
  bool has_ring_ = false;
  int event_ = -1;
  uint64_t event_value_ = 0;
  bool listening_ = false;
  bool closing_ = false;
  uint32_t under_way_ = 0;
  std::atomic<bool> woken_{false};
};

}  // namespace

std::unique_ptr<IoQueue> make_uring_queue(uint32_t depth) { return UringQueue::make(depth); }

}  // namespace stemma::tier::disk

#else

namespace stemma::tier::disk {

std::unique_ptr<IoQueue> make_uring_queue(uint32_t) { return nullptr; }

}  // namespace stemma::tier::disk

#endif
