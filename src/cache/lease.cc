// Lease, in terms of Core and the calls in lease/. A lease that is not active returns 0 from every
// query and wrong_state from every call.
#include "stemma/lease.h"

#include <utility>

#include "cache/core.h"
#include "cache/guarded.h"
#include "cache/lease/block_tables.h"
#include "cache/lease/commit.h"
#include "cache/lease/copies.h"
#include "cache/lease/ending.h"
#include "cache/lease/fork.h"
#include "cache/lease/growth.h"
#include "cache/lease/lease_anchors.h"

namespace stemma {

using cache::guarded;

namespace {

Error released() { return {Errc::wrong_state, "this lease is released, moved from or empty"}; }

}  // namespace

Lease::Lease(Lease&& other) noexcept
    : core_(other.core_), record_(std::exchange(other.record_, nullptr)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    if (active()) (void)release();
    core_ = other.core_;
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
uint32_t Lease::capacity() const noexcept {
  return active() ? record_->capacity(core_->view().cell_tokens()) : 0;
}
Report Lease::report() const noexcept { return active() ? record_->report : Report{}; }

std::span<const BlockCopy> Lease::copies() const noexcept {
  return active() ? std::span<const BlockCopy>(record_->copies) : std::span<const BlockCopy>{};
}

Result<void> Lease::copies_done() {
  if (!active()) return released();
  cache::copies_done(*core_, *record_);
  return {};
}

Result<void> Lease::copies_failed() {
  if (!active()) return released();
  return guarded([&] { return cache::copies_failed(*core_, *record_); });
}

Result<void> Lease::run_copies() {
  if (!active()) return released();
  return guarded([&] { return cache::run_copies(*core_, *record_); });
}

Result<uint32_t> Lease::shrink_to(uint32_t n) {
  if (!active()) return released();
  return guarded([&] { return cache::shrink_to(*core_, *record_, n); });
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
  return guarded([&] { return cache::extend(*core_, *record_, tokens); });
}

Result<void> Lease::reserve(uint32_t positions) {
  if (!active()) return released();
  return guarded([&] { return cache::reserve(*core_, *record_, positions); });
}

Result<Commit> Lease::commit(uint32_t n) {
  if (!active()) return released();
  return guarded([&] { return cache::commit(*core_, *record_, n); });
}

uint32_t Lease::adopt_canonical() {
  return active() ? cache::adopt_canonical(*core_, *record_) : 0;
}

Result<Lease> Lease::fork() {
  if (!active()) return released();
  STEMMA_TRY(cache::LeaseRecord * child, guarded([&] { return cache::fork(*core_, *record_); }));
  return Lease(core_, child);
}

Result<void> Lease::rewind(uint32_t n) {
  if (!active()) return released();
  return guarded([&] { return cache::rewind(*core_, *record_, n); });
}

Result<BlockId> Lease::draft_checkpoint(GroupIndex group) {
  if (!active()) return released();
  return guarded([&] { return cache::draft_checkpoint(*core_, *record_, group); });
}

Result<void> Lease::commit_checkpoint(GroupIndex group, uint32_t depth) {
  if (!active()) return released();
  return guarded([&] { return cache::commit_checkpoint(*core_, *record_, group, depth); });
}

Result<Checkpoint> Lease::hold_checkpoint(GroupIndex group, uint32_t at_most) const {
  if (!active()) return released();
  return guarded([&] { return cache::hold_checkpoint(*core_, *record_, group, at_most); });
}

Result<void> Lease::attach_logits(uint32_t depth, std::span<const float> logits) {
  if (!active()) return released();
  return guarded([&] { return cache::attach_logits(*core_, *record_, depth, logits); });
}

Result<void> Lease::release(const ReleaseOptions& options) {
  if (!active()) return released();
  STEMMA_TRY_VOID(cache::release(*core_, record_, options, cache::Tail::publish));
  record_ = nullptr;
  return {};
}

Result<void> Lease::abandon(Fence* fence) {
  if (!active()) return released();
  STEMMA_TRY_VOID(
      cache::release(*core_, record_, {.retain = nullptr, .fence = fence}, cache::Tail::forget));
  record_ = nullptr;
  return {};
}

uint32_t Lease::block_count(GroupIndex group) const noexcept {
  return active() ? cache::block_count(core_->view(), *record_, group) : 0;
}

Result<uint32_t> Lease::block_table(GroupIndex group, std::span<BlockId> out, BlockId pad) const {
  if (!active()) return released();
  return cache::block_table(core_->view(), *record_, group, out, pad);
}

Result<uint32_t> Lease::draft_table(GroupIndex group, std::span<BlockId> out, BlockId pad) const {
  if (!active()) return released();
  return cache::draft_table(core_->view(), *record_, group, out, pad);
}

Result<void> Lease::slot_mapping(GroupIndex group, uint32_t begin, std::span<int64_t> out,
                                 int64_t pad) const {
  return active() ? cache::slot_mapping(core_->view(), *record_, group, begin, out, pad)
                  : released();
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
