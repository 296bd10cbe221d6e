// Lease, in terms of Shared. A lease that is not active answers every question with 0 and every
// call with wrong_state.
#include "stemma/lease.h"

#include "cache/shared.h"

namespace stemma {

using cache::guarded;

namespace {

Error released() { return {Errc::wrong_state, "this lease is released, moved from or empty"}; }

}  // namespace

Lease::Lease(Lease&& other) noexcept
    : shared_(other.shared_), record_(std::exchange(other.record_, nullptr)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    if (active()) (void)release();
    shared_ = other.shared_;
    record_ = std::exchange(other.record_, nullptr);
  }
  return *this;
}

Lease::~Lease() {
  if (active()) (void)release();
}

uint32_t Lease::reused() const noexcept { return active() ? record_->reused : 0; }
uint32_t Lease::committed() const noexcept { return active() ? record_->committed : 0; }
uint32_t Lease::length() const noexcept { return active() ? record_->length : 0; }
uint32_t Lease::capacity() const noexcept { return active() ? shared_->capacity(*record_) : 0; }
Report Lease::report() const noexcept { return active() ? record_->report : Report{}; }

std::span<const BlockCopy> Lease::copies() const noexcept {
  return active() ? std::span<const BlockCopy>(record_->copies) : std::span<const BlockCopy>{};
}

Result<void> Lease::copies_done() { return active() ? shared_->copies_done(*record_) : released(); }

Result<void> Lease::copies_failed() {
  if (!active()) return released();
  return guarded([&] { return shared_->copies_failed(*record_); });
}

Result<void> Lease::run_copies() {
  if (!active()) return released();
  return guarded([&] { return shared_->run_copies(*record_); });
}

Result<uint32_t> Lease::shrink_to(uint32_t n) {
  if (!active()) return released();
  return guarded([&] { return shared_->shrink_to(*record_, n); });
}

std::span<const uint32_t> Lease::media_to_process() const noexcept {
  return active() ? std::span<const uint32_t>(record_->media_to_process)
                  : std::span<const uint32_t>{};
}

std::span<const float> Lease::logits() const noexcept {
  return active() && record_->logits != nullptr ? std::span<const float>(*record_->logits)
                                                : std::span<const float>{};
}

Result<void> Lease::extend(std::span<const Token> tokens) {
  if (!active()) return released();
  return guarded([&] { return shared_->extend(*record_, tokens); });
}

Result<void> Lease::reserve(uint32_t positions) {
  if (!active()) return released();
  return guarded([&] { return shared_->reserve(*record_, positions); });
}

Result<Commit> Lease::commit(uint32_t n) {
  if (!active()) return released();
  return guarded([&] { return shared_->commit(*record_, n); });
}

uint32_t Lease::adopt_canonical() { return active() ? shared_->adopt_canonical(*record_) : 0; }

Result<Lease> Lease::fork() {
  if (!active()) return released();
  STEMMA_TRY(cache::LeaseRecord * child, guarded([&] { return shared_->fork(*record_); }));
  return Lease(shared_, child);
}

Result<void> Lease::rewind(uint32_t n) {
  if (!active()) return released();
  return guarded([&] { return shared_->rewind(*record_, n); });
}

Result<BlockId> Lease::draft_checkpoint(GroupIndex group) {
  if (!active()) return released();
  return guarded([&] { return shared_->draft_checkpoint(*record_, group); });
}

Result<void> Lease::commit_checkpoint(GroupIndex group, uint32_t depth) {
  if (!active()) return released();
  return guarded([&] { return shared_->commit_checkpoint(*record_, group, depth); });
}

Result<Checkpoint> Lease::hold_checkpoint(GroupIndex group, uint32_t at_most) const {
  if (!active()) return released();
  return guarded([&] { return shared_->hold_checkpoint(*record_, group, at_most); });
}

Result<void> Lease::attach_logits(uint32_t depth, std::span<const float> logits) {
  if (!active()) return released();
  return guarded([&] { return shared_->attach_logits(*record_, depth, logits); });
}

Result<void> Lease::release(const ReleaseOptions& options) {
  if (!active()) return released();
  STEMMA_TRY_VOID(shared_->release(record_, options, true));
  record_ = nullptr;
  return {};
}

Result<void> Lease::abandon(Fence* fence) {
  if (!active()) return released();
  STEMMA_TRY_VOID(shared_->release(record_, {.retain = nullptr, .fence = fence}, false));
  record_ = nullptr;
  return {};
}

uint32_t Lease::block_count(GroupIndex group) const noexcept {
  return active() ? shared_->block_count(*record_, group) : 0;
}

Result<uint32_t> Lease::block_table(GroupIndex group, std::span<BlockId> out, BlockId pad) const {
  if (!active()) return released();
  return shared_->block_table(*record_, group, out, pad);
}

Result<uint32_t> Lease::draft_table(GroupIndex group, std::span<BlockId> out, BlockId pad) const {
  if (!active()) return released();
  return shared_->draft_table(*record_, group, out, pad);
}

Result<void> Lease::slot_mapping(GroupIndex group, uint32_t begin, std::span<int64_t> out,
                                 int64_t pad) const {
  return active() ? shared_->slot_mapping(*record_, group, begin, out, pad) : released();
}

Result<void> context_lengths(std::span<const Lease* const> leases, std::span<uint32_t> out) {
  if (out.size() < leases.size()) {
    return Error(Errc::out_of_range, "one entry per lease is needed",
                 static_cast<uint32_t>(leases.size()));
  }
  for (size_t i = 0; i < leases.size(); ++i) {
    if (leases[i] == nullptr) {
      return Error(Errc::invalid_argument, "a null lease at this index", static_cast<uint32_t>(i));
    }
    out[i] = leases[i]->committed();
  }
  return {};
}

}  // namespace stemma
