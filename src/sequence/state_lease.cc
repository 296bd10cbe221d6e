#include "sequence/state_lease.h"

#include <utility>

#include "sequence/state_store.h"

namespace stemma::sequence {

// ---- Reading ------------------------------------------------------------------------------------

StateLease::StateLease(StateLease&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)), found_(other.found_) {}

StateLease& StateLease::operator=(StateLease&& other) noexcept {
  if (this == &other) return *this;
  release();
  store_ = std::exchange(other.store_, nullptr);
  found_ = other.found_;
  return *this;
}

void StateLease::release() noexcept {
  if (store_ != nullptr) std::exchange(store_, nullptr)->end_lease(found_.entry);
}

Result<SavedState> StateLease::read() const {
  if (store_ == nullptr) return Error(Errc::wrong_state, "the lease has ended");
  STEMMA_TRY(const std::span<const uint8_t> bytes, store_->store_->read(found_.entry));
  const uint64_t logits_bytes = uint64_t{found_.logits} * sizeof(float);
  return SavedState{bytes.subspan(logits_bytes),
                    {reinterpret_cast<const float*>(bytes.data()), found_.logits}};
}

// ---- Writing ------------------------------------------------------------------------------------

StateDraft::StateDraft(StateDraft&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      entry_(other.entry_),
      sealed_(other.sealed_),
      state_(std::exchange(other.state_, {})),
      logits_(std::exchange(other.logits_, {})) {}

StateDraft& StateDraft::operator=(StateDraft&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  store_ = std::exchange(other.store_, nullptr);
  entry_ = other.entry_;
  sealed_ = other.sealed_;
  state_ = std::exchange(other.state_, {});
  logits_ = std::exchange(other.logits_, {});
  return *this;
}

Result<void> StateDraft::seal(uint64_t written) {
  if (store_ == nullptr || sealed_) return Error(Errc::wrong_state, "nothing is being written");
  if (written == 0) return Error(Errc::invalid_argument, "a state has bytes");
  if (written > state_.size()) return Error(Errc::out_of_range, "more than was reserved");
  STEMMA_TRY_VOID(store_->store_->seal(entry_, logits_.size_bytes() + written));
  sealed_ = true;
  return {};
}

Result<void> StateDraft::commit(uint64_t written, const Touch& touch, PartLabel&& label) {
  if (store_ == nullptr) return Error(Errc::wrong_state, "the draft has ended");
  if (!sealed_) STEMMA_TRY_VOID(seal(written));
  STEMMA_TRY_VOID(store_->commit(entry_, touch, std::move(label)));
  store_ = nullptr;
  state_ = {};
  logits_ = {};
  return {};
}

void StateDraft::abandon() noexcept {
  if (store_ == nullptr) return;
  std::exchange(store_, nullptr)->abandon(entry_);
  state_ = {};
  logits_ = {};
}

}  // namespace stemma::sequence
