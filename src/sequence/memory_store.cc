#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/page_warmer.h"
#include "base/slab.h"
#include "stemma/byte_store.h"
#include "stemma/byte_sum.h"

namespace stemma {
namespace {

class MemoryStore final : public ByteStore {
 public:
  MemoryStore(uint32_t slots, uint64_t slot_bytes) : slots_(slots), slot_bytes_(slot_bytes) {
    if (slot_bytes_ == 0) pieces_.resize(slots);
  }
  static bool can_address(uint32_t slots, uint64_t slot_bytes) noexcept {
    return slots == 0 || slot_bytes <= kMostBytes / slots;
  }
  bool reserve() {
    if (slot_bytes_ == 0) return true;
    if (!arena_.reserve(all_bytes())) return false;
    ahead_ = std::min(all_bytes() / 8, uint64_t{1} << 30U);
    if (ahead_ >= kWorthWarming) warmer_.emplace(arena_.data());
    return true;
  }

  Result<std::span<uint8_t>> open(uint32_t slot, uint64_t bytes, Fill fill) override {
    if (slot >= slots_.size()) return Error(Errc::out_of_range, "no such slot", slot);
    drop(slot);
    if (bytes > (slot_bytes_ != 0 ? slot_bytes_ : kMostBytes)) {
      return Error(Errc::out_of_range, "more bytes than a slot has", slot);
    }
    uint8_t* memory = memory_for(slot, bytes);
    if (memory == nullptr) return Error(Errc::out_of_memory, "no memory for saved bytes", slot);
    // A large piece is fresh from the system, so it is already zero.
    const bool fresh = slot_bytes_ == 0 && bytes >= kLargePiece;
    if (fill == Fill::zeroes && !fresh) std::memset(memory, 0, bytes);
    slots_[slot].opened = bytes;
    return std::span(memory, bytes);
  }

  Result<void> seal(uint32_t slot, uint64_t bytes, std::optional<uint64_t> sum) override {
    if (slot >= slots_.size() || slots_[slot].opened == kNone) {
      return Error(Errc::wrong_state, "the slot is not being written", slot);
    }
    Slot& it = slots_[slot];
    if (bytes > it.opened) return Error(Errc::out_of_range, "more bytes than were opened", slot);
    it.opened = kNone;
    it.sealed = bytes;
    it.sum = sum ? *sum : ByteSum::of({at(slot), bytes});
    return {};
  }

  Result<std::span<const uint8_t>> read(uint32_t slot) override {
    STEMMA_TRY(const std::span<const uint8_t> bytes, read_unchecked(slot));
    if (ByteSum::of(bytes) != slots_[slot].sum) return changed(slot);
    return bytes;
  }

  Result<std::span<const uint8_t>> read_unchecked(uint32_t slot) override {
    if (slot >= slots_.size() || slots_[slot].sealed == kNone) {
      return Error(Errc::stale, "nothing is saved there", slot);
    }
    return std::span<const uint8_t>(at(slot), slots_[slot].sealed);
  }

  Result<void> check(uint32_t slot, uint64_t sum) const override {
    const bool sealed = slot < slots_.size() && slots_[slot].sealed != kNone;
    return sealed && slots_[slot].sum == sum ? Result<void>{} : Result<void>(changed(slot));
  }

  std::span<const uint8_t> written(uint32_t slot) const noexcept override {
    const uint64_t bytes = size(slot);
    return bytes == 0 ? std::span<const uint8_t>() : std::span<const uint8_t>(at(slot), bytes);
  }

  void drop(uint32_t slot) noexcept override {
    if (slot >= slots_.size()) return;
    slots_[slot] = {};
    if (slot_bytes_ == 0) pieces_[slot] = {};
  }

  uint64_t size(uint32_t slot) const noexcept override {
    return slot < slots_.size() && slots_[slot].sealed != kNone ? slots_[slot].sealed : 0;
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  static constexpr uint64_t kMostBytes = uint64_t{1} << 46U;  // More than a process can address.
  struct Slot {
    uint64_t opened = kNone;
    uint64_t sealed = kNone;
    uint64_t sum = 0;
  };
  // A thread takes pages this far ahead of the writer, but only for an arena large enough to be
  // worth a thread.
  static constexpr uint64_t kWorthWarming = uint64_t{32} << 20U;
  // Large pieces get their own pages, of the largest kind: touching 25 MB for the first time then
  // takes 2 ms, instead of 12 with pages of 4 KiB.
  static constexpr uint64_t kLargePiece = uint64_t{1} << 20U;
  struct Piece {
    std::unique_ptr<uint8_t[]> small;
    base::Slab<uint8_t> large;
    uint8_t* data() const noexcept { return large ? large.data() : small.get(); }
  };

  static Error changed(uint32_t slot) { return {Errc::corrupt, "saved bytes changed", slot}; }
  uint8_t* at(uint32_t slot) const noexcept {
    return slot_bytes_ == 0 ? pieces_[slot].data() : arena_.data() + slot * slot_bytes_;
  }
  uint8_t* memory_for(uint32_t slot, uint64_t bytes) {
    if (slot_bytes_ == 0) {
      Piece piece;
      if (bytes < kLargePiece) {
        piece.small.reset(new (std::nothrow) uint8_t[std::max<uint64_t>(bytes, 1)]);
      } else if (!piece.large.reserve(bytes) || !piece.large.commit(0, bytes)) {
        return nullptr;
      }
      pieces_[slot] = std::move(piece);
      return pieces_[slot].data();
    }
    return commit((slot + 1) * slot_bytes_) ? at(slot) : nullptr;
  }
  uint64_t all_bytes() const noexcept { return slots_.size() * slot_bytes_; }
  // Slots are used from the lowest up, so the committed part grows at its end.
  bool commit(uint64_t end) {
    const uint64_t needed = warmer_ ? std::min(all_bytes(), end + ahead_ / 2) : end;
    if (needed <= committed_) return true;
    const uint64_t step = warmer_ ? ahead_ : std::min(committed_, uint64_t{64} << 20U);
    uint64_t wanted = std::min(all_bytes(), std::max(end, committed_ + step));
    if (!arena_.commit(committed_, wanted)) {
      if (end <= committed_) return true;
      wanted = end;  // Without the reserve for later.
      if (!arena_.commit(committed_, wanted)) return false;
    }
    committed_ = wanted;
    if (warmer_) warmer_->warm_up_to(committed_);
    return true;
  }

  std::vector<Slot> slots_;
  uint64_t slot_bytes_;
  base::Slab<uint8_t> arena_;
  uint64_t committed_ = 0;
  uint64_t ahead_ = 0;
  std::optional<base::PageWarmer> warmer_;  // Ends before the arena does.
  std::vector<Piece> pieces_;               // Without an arena.
};

}  // namespace

std::unique_ptr<ByteStore> make_memory_store(uint32_t slots, uint64_t slot_bytes) noexcept try {
  if (!MemoryStore::can_address(slots, slot_bytes)) return nullptr;
  auto store = std::make_unique<MemoryStore>(slots, slot_bytes);
  if (!store->reserve()) return nullptr;
  return store;
} catch (const std::bad_alloc&) {
  return nullptr;
}

}  // namespace stemma
