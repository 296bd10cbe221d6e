#include "capi/store/work.h"

#include <bit>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "tier/object/envelope.h"
#include "tier/wait_until.h"

namespace stemma::capi::store {

using tier::LevelMask;
using tier::Loaded;
using tier::monotonic_ns;
using tier::Sighting;
using tier::Wanted;
using tier::object::Envelope;
using tier::object::kEnvelopeBytes;

namespace {

// The time left, on Clock::monotonic().
uint64_t left_ns(const Batch& batch) noexcept {
  const uint64_t now = monotonic_ns();
  return batch.deadline_ns() <= now ? 0 : batch.deadline_ns() - now;
}

Status missing(const Batch& batch) noexcept {
  return left_ns(batch) == 0 ? Status::late : Status::absent;
}

Wanted as_wanted(const tier::object::Space& space, const EntryKey& key, uint64_t room) noexcept {
  Wanted wanted;
  wanted.key = key;
  wanted.info.layout = space.tier_layout();
  if (space.value_bytes() != 0) {
    wanted.info.bytes = kEnvelopeBytes + space.value_bytes();
  } else {
    wanted.at_most = kEnvelopeBytes + room;
  }
  return wanted;
}

}  // namespace

Work::Work(tier::TierStack& stack, std::shared_ptr<Ledger> ledger)
    : stack_(stack), ledger_(std::move(ledger)) {
  for (size_t l = 0; l < stack_.levels(); ++l) {
    if (stack_.write_policy(l) != tier::WritePolicy::on_second_use) {
      first_time_ |= LevelMask{1} << l;
    }
  }
}

void Work::run(const Piece& piece) noexcept {
  Batch& batch = *piece.batch;
  if (batch.is_over()) return;
  try {
    switch (batch.request().op) {
      case Op::put: put(piece); break;
      case Op::get: get(piece); break;
      case Op::contains: contains(piece, false); break;
      case Op::touch: contains(piece, true); break;
      case Op::remove: remove(piece); break;
    }
  } catch (const std::exception&) {
    // Out of memory. Items already handed on end when their levels have settled, or here.
    for (size_t i = piece.first; i < piece.first + piece.count; ++i) batch.end(i, Status::failed);
  }
}

std::vector<Wanted> Work::name(const Piece& piece) {
  const Request& request = piece.batch->request();
  const auto items = std::span(request.items).subspan(piece.first, piece.count);
  std::vector<std::span<const uint8_t>> keys;
  keys.reserve(piece.count);
  for (const Item& item : items) keys.push_back(request.key(item));
  std::vector<EntryKey> entries(piece.count);
  request.space->entry_keys(keys, entries);
  std::vector<Wanted> wanted;
  wanted.reserve(piece.count);
  for (size_t k = 0; k < piece.count; ++k) {
    wanted.push_back(as_wanted(*request.space, entries[k], items[k].bytes));
  }
  return wanted;
}

std::vector<LevelMask> Work::find(std::span<const Wanted> wanted) {
  std::vector<LevelMask> found = stack_.where_now(wanted);
  std::vector<Wanted> rest;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (found[i] == 0) rest.push_back(wanted[i]);
  }
  if (rest.empty()) return found;
  const std::vector<LevelMask> elsewhere = stack_.where(rest);
  size_t next = 0;
  for (LevelMask& mask : found) {
    if (mask == 0) mask = elsewhere[next++];
  }
  return found;
}

std::vector<LevelMask> Work::look(const tier::object::Space& space,
                                  std::span<const std::span<const uint8_t>> keys) {
  std::vector<EntryKey> entries(keys.size());
  space.entry_keys(keys, entries);
  std::vector<Wanted> wanted;
  wanted.reserve(keys.size());
  for (const EntryKey& key : entries) {
    wanted.push_back(as_wanted(space, key, tier::object::kMostValueBytes));
  }
  return stack_.where_now(wanted);
}

// ---- Put ----

void Work::put(const Piece& piece) {
  const std::vector<Wanted> wanted = name(piece);
  // Do not copy entries for the fast levels that already have them.
  const std::vector<LevelMask> there = stack_.where_now(wanted);
  for (size_t k = 0; k < piece.count; ++k) put_one(piece, piece.first + k, wanted[k], there[k]);
}

void Work::put_one(const Piece& piece, size_t i, const Wanted& wanted, LevelMask there) {
  Batch& batch = *piece.batch;
  const Request& request = batch.request();
  const Item& item = request.items[i];
  const LevelMask now = stack_.wanting(wanted.key, Sighting::computed);
  const LevelMask levels = (first_time_ | now) & ~there;
  if (levels == 0) {
    if (there != 0) static_cast<void>(stack_.wanting(wanted.key, Sighting::used_again));
    return batch.end(i, there != 0 ? Status::done : Status::refused, there,
                     there != 0 ? item.bytes : 0);
  }
  const uint64_t bytes = kEnvelopeBytes + item.bytes;
  if (!ledger_->budget().take(bytes, batch.deadline_ns(), [&] { return batch.is_over(); })) {
    return batch.end(i, Status::late);
  }
  std::shared_ptr<tier::Payload> payload = stack_.make_payload(bytes);
  const bool may_copy = payload != nullptr && batch.begin_copy();
  if (!may_copy) {
    ledger_->budget().give_back(bytes);
    // Otherwise another thread is ending it.
    if (payload == nullptr) batch.end(i, Status::failed);
    return;
  }
  tier::object::write_envelope({.name = request.space->name(),
                                .layout = request.space->layout(),
                                .space_value_bytes = request.space->value_bytes(),
                                .key = request.key(item),
                                .parent = request.parent(item),
                                .depth = item.depth,
                                .value_bytes = item.bytes},
                               payload->span().first<kEnvelopeBytes>());
  std::memcpy(payload->span().data() + kEnvelopeBytes, item.value, item.bytes);
  batch.end_copy();
  tier::StoreItem store;
  store.key = wanted.key;
  store.info = {.begin = item.depth,
                .end = item.depth + 1,
                .layout = request.space->tier_layout(),
                .bytes = bytes,
                .parent = item.parent_size == 0 ? 0 : request.space->link(request.parent(item))};
  store.payload = std::move(payload);
  store.priority = item.priority;
  store.listener = piece.batch;
  store.number = i;
  batch.expect(i, static_cast<uint32_t>(std::popcount(levels)), there, bytes);
  try {
    stack_.store(store, levels);
  } catch (const std::bad_alloc&) {
    // Some levels may have taken it; they are no longer waited for.
    for (uint32_t l = 0; l < stack_.levels(); ++l) batch.settled(i, l, TierOutcome::failed);
  }
}

// ---- Get ----

void Work::get(const Piece& piece) {
  Batch& batch = *piece.batch;
  const std::vector<Wanted> wanted = name(piece);
  const std::vector<LevelMask> levels = find(wanted);
  const std::vector<Loaded> loaded = stack_.load(wanted, levels, left_ns(batch));
  for (size_t k = 0; k < piece.count; ++k) {
    hand_out(piece, piece.first + k, wanted[k], loaded[k]);
  }
}

void Work::hand_out(const Piece& piece, size_t i, const Wanted& wanted, const Loaded& loaded) {
  Batch& batch = *piece.batch;
  const Request& request = batch.request();
  const Item& item = request.items[i];
  if (loaded.payload == nullptr) return batch.end(i, missing(batch));
  const std::span<const uint8_t> bytes = loaded.payload->span();
  if (bytes.size() <= kEnvelopeBytes) {
    mismatched_.fetch_add(1, std::memory_order_relaxed);
    return batch.end(i, Status::absent);
  }
  const Result<Envelope> envelope = tier::object::read_envelope(bytes.first<kEnvelopeBytes>());
  const std::span<const uint8_t> value = bytes.subspan(kEnvelopeBytes);
  if (!envelope || !envelope->is_of(*request.space, request.key(item)) ||
      envelope->value_bytes != value.size()) {
    mismatched_.fetch_add(1, std::memory_order_relaxed);
    return batch.end(i, Status::absent);
  }
  // Another caller may have asked for the same entry with more room.
  if (value.size() > item.bytes) return batch.end(i, Status::absent);
  if (!batch.begin_copy()) return;
  std::memcpy(item.value, value.data(), value.size());
  batch.end_copy();
  batch.end(i, Status::done, LevelMask{1} << loaded.level, value.size());
  // Tells lower levels of the use; those that lost the entry get it again.
  const LevelMask again = stack_.wanting(wanted.key, Sighting::used_again);
  if (again == 0) return;
  tier::StoreItem store;
  store.key = wanted.key;
  store.info = loaded.info;
  store.info.words = 0;
  store.payload = loaded.payload;
  store.sighting = Sighting::used_again;
  stack_.store(store, again);
}

// ---- Questions, and removing ----

void Work::contains(const Piece& piece, bool touch) {
  Batch& batch = *piece.batch;
  const std::vector<Wanted> wanted = name(piece);
  const std::vector<LevelMask> levels = find(wanted);
  for (size_t k = 0; k < piece.count; ++k) {
    if (levels[k] == 0) {
      batch.end(piece.first + k, missing(batch));
      continue;
    }
    if (touch) static_cast<void>(stack_.wanting(wanted[k].key, Sighting::used_again));
    batch.end(piece.first + k, Status::done, levels[k]);
  }
}

void Work::remove(const Piece& piece) {
  Batch& batch = *piece.batch;
  std::vector<EntryKey> keys;
  keys.reserve(piece.count);
  for (const Item& item : batch.items().subspan(piece.first, piece.count)) {
    keys.push_back(batch.request().space->entry_key(batch.request().key(item)));
  }
  const std::vector<TierOutcome> outcomes = stack_.remove(keys, batch.deadline_ns());
  for (size_t k = 0; k < piece.count; ++k) {
    Status status = Status::failed;
    if (outcomes[k] == TierOutcome::done) status = Status::done;
    if (outcomes[k] == TierOutcome::absent) status = Status::absent;
    if (outcomes[k] == TierOutcome::late) status = Status::late;
    batch.end(piece.first + k, status);
  }
}

}  // namespace stemma::capi::store
