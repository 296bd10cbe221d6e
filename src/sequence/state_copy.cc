#include "sequence/state_copy.h"

#include <algorithm>
#include <cstring>

namespace stemma::sequence {
namespace {

// Below this size, threads and buffers cost more time than they save.
constexpr uint64_t kLeastBytes = uint64_t{1} << 20U;
// The piece that one thread copies at a time.
constexpr uint64_t kChunkBytes = uint64_t{1} << 20U;

// A buffer of the mover, given back at the end. Holds none if a direct copy is better.
class Buffer {
 public:
  Buffer(RangeMover* mover, uint64_t bytes) noexcept : mover_(mover), bytes_(bytes) {
    if (mover == nullptr || bytes < kLeastBytes || bytes > mover->buffer_bytes()) return;
    number_ = mover->take();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (*this) mover_->give_back(number_, bytes_);
  }
  explicit operator bool() const noexcept { return number_ != RangeMover::kNone; }
  std::span<uint8_t> bytes() const noexcept { return mover_->bytes(number_).first(bytes_); }
  bool unwritten(uint64_t bytes) const noexcept { return mover_->unwritten(number_, 0, bytes); }

 private:
  RangeMover* mover_;
  uint64_t bytes_;
  uint32_t number_ = RangeMover::kNone;
};

void copy(RangeMover& mover, std::span<const uint8_t> from, uint8_t* to) {
  RangeMover::Batch batch;
  batch.count = static_cast<uint32_t>((from.size() + kChunkBytes - 1) / kChunkBytes);
  batch.task = [&](uint32_t i) {
    const uint64_t begin = i * kChunkBytes;
    std::memcpy(to + begin, from.data() + begin, std::min(kChunkBytes, from.size() - begin));
  };
  mover.start(batch, /*urgent=*/true);
  mover.wait(batch);
}

}  // namespace

Result<uint64_t> save_state(RangeMover* mover, SequenceEngine& engine, SequenceId id, Part part,
                            Range range, std::span<uint8_t> out) {
  const Buffer buffer(mover, out.size());
  if (!buffer) return engine.save(id, part, range, out);
  STEMMA_TRY(const uint64_t written, engine.save(id, part, range, buffer.bytes()));
  if (written > out.size()) return Error(Errc::out_of_range, "more was written than there is room");
  if (buffer.unwritten(written)) return Error(Errc::corrupt, "a state was not written");
  copy(*mover, buffer.bytes().first(written), out.data());
  return written;
}

Result<void> load_state(RangeMover* mover, SequenceEngine& engine, SequenceId id, Part part,
                        Range range, std::span<const uint8_t> bytes) {
  const Buffer buffer(mover, bytes.size());
  if (!buffer) return engine.load(id, part, range, range, bytes);
  copy(*mover, bytes, buffer.bytes().data());
  return engine.load(id, part, range, range, buffer.bytes());
}

}  // namespace stemma::sequence
