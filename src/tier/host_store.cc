#include "tier/host_store.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"
#include "retain/policies.h"
#include "stemma/log.h"
#include "tier/entry.h"

namespace stemma::tier {

namespace {

constexpr uint32_t kLeastChunkBytes = 256;
constexpr uint32_t kMostChunkBytes = 64U << 20U;
// The arena grows in steps of this size.
constexpr uint64_t kStepBytes = 64U << 20U;

}  // namespace

HostStore::HostStore(const HostTierOptions& options, Counters& counters)
    : counters_(counters),
      chunk_bytes_(options.chunk_bytes),
      book_bytes_(4 + sizeof(Cell) + 8 + 3 + retain::most_bytes(options.policy).per_cell),
      fixed_bytes_(kFixedBytes + retain::most_bytes(options.policy).fixed) {}

HostStore::~HostStore() {
  if (hook_ != nullptr) hook_->unpin(arena_.data(), most_bytes());
}

Result<std::unique_ptr<HostStore>> HostStore::create(const HostTierOptions& options,
                                                     Counters& counters) {
  if (!std::has_single_bit(options.chunk_bytes) || options.chunk_bytes < kLeastChunkBytes ||
      options.chunk_bytes > kMostChunkBytes) {
    return Error(Errc::invalid_argument, "chunk_bytes must be a power of two, 256 to 67108864",
                 options.chunk_bytes);
  }
  if (!knows_policy(options.policy)) {
    return Error(Errc::invalid_argument, "the host tier's retention policy is not known");
  }
  std::unique_ptr<HostStore> store(new (std::nothrow) HostStore(options, counters));
  if (store == nullptr) return Error(Errc::out_of_memory, "no memory for a host tier");
  STEMMA_TRY_VOID(store->take_memory(options));
  return store;
}

Result<void> HostStore::take_memory(const HostTierOptions& options) {
  const uint64_t room = options.capacity_bytes - std::min(options.capacity_bytes, fixed_bytes_);
  const uint64_t chunks =
      std::min<uint64_t>(room / (chunk_bytes_ + book_bytes_), kNoCell - uint32_t{1});
  if (chunks == 0) {
    return Error(Errc::invalid_argument, "capacity_bytes has no room for a single chunk");
  }
  chunks_ = static_cast<uint32_t>(chunks);
  const uint64_t buckets = std::bit_ceil(uint64_t{chunks_});
  bucket_mask_ = buckets - 1;
  policy_ = make_policy(options.policy, chunks_);
  cell_growth_ = base::Growth(0, chunks_);
  chunk_growth_ = base::Growth(0, chunks_);
  const bool taken = policy_ != nullptr && arena_.reserve(most_bytes()) &&
                     links_.reserve(chunks_) && cells_.reserve(chunks_) &&
                     buckets_.reserve(buckets) && buckets_.commit(0, buckets);
  if (!taken) return Error(Errc::out_of_memory, "the system gave no memory for the host tier");
  if (options.hook == nullptr) return {};
  while (chunk_growth_.committed() < chunks_) {
    if (!grow_chunks()) {
      return Error(Errc::out_of_memory, "the system gave no memory to pin for the host tier");
    }
  }
  if (options.hook->pin(arena_.data(), most_bytes())) {
    hook_ = options.hook;
  } else {
    log(LogLevel::warning, "host tier: its memory could not be pinned and is plain");
  }
  return {};
}

uint64_t HostStore::used_bytes() const noexcept {
  return fixed_bytes_ + used_chunks_ * (chunk_bytes_ + book_bytes_);
}

uint64_t HostStore::memory_bytes() const noexcept {
  return arena_.bytes() + links_.bytes() + cells_.bytes() + buckets_.bytes() + policy_->bytes();
}

uint32_t& HostStore::bucket(const EntryKey& key) const noexcept {
  return buckets_[std::hash<EntryKey>()(key) & bucket_mask_];
}

uint32_t HostStore::find(const EntryKey& key) const noexcept {
  uint32_t cell = bucket(key) - 1;
  while (cell != kNone && !(cells_[cell].key == key)) cell = cells_[cell].next;
  return cell;
}

bool HostStore::grow_cells() {
  const size_t end = cell_growth_.next(fresh_cell_);
  if (!cells_.commit(cell_growth_.committed(), end) ||
      !policy_->prepare(static_cast<CellIndex>(end - 1))) {
    return false;
  }
  cell_growth_.advance(end);
  return true;
}

bool HostStore::grow_chunks() {
  const size_t begin = chunk_growth_.committed();
  const size_t end =
      std::min<size_t>(chunks_, begin + std::max<uint64_t>(kStepBytes / chunk_bytes_, 1));
  if (!arena_.commit(begin * chunk_bytes_, end * chunk_bytes_) || !links_.commit(begin, end)) {
    return false;
  }
  chunk_growth_.advance(end);
  return true;
}

bool HostStore::evict_one() {
  for (;;) {
    const CellIndex cell = policy_->victim(0, false, kNoTenant).cell;
    if (cell == kNoCell) return false;
    if (cells_[cell].readers != 0) {
      // The reader touches it afterwards, which puts it back.
      policy_->remove(cell);
      continue;
    }
    counters_.count_eviction(cells_[cell].info.bytes);
    unlist(cell);
    return true;
  }
}

uint32_t HostStore::reserve(uint64_t bytes) {
  const auto wanted = static_cast<uint32_t>((bytes + chunk_bytes_ - 1) / chunk_bytes_);
  if (wanted > chunks_) return kNone;
  // A cell first: if the books have room, there is one for every chunk.
  while (free_cell_ == kNone && !cell_growth_.covers(fresh_cell_)) {
    if (fresh_cell_ < chunks_ && grow_cells()) continue;
    if (!evict_one()) return kNone;
  }
  while (free_chunks_ + (chunk_growth_.committed() - fresh_chunk_) < wanted) {
    if (chunk_growth_.committed() < chunks_ && grow_chunks()) continue;
    if (!evict_one()) return kNone;
  }
  uint32_t number = fresh_cell_;
  if (free_cell_ != kNone) {
    number = free_cell_;
    free_cell_ = cells_[number].next;
  } else {
    ++fresh_cell_;
  }
  Cell& cell = cells_[number];
  cell = {};
  cell.state = State::filling;
  cell.first = kNone;
  cell.next = kNone;
  for (uint32_t i = 0; i < wanted; ++i) {
    uint32_t chunk = fresh_chunk_;
    if (free_chunk_ != kNone) {
      chunk = free_chunk_;
      free_chunk_ = links_[chunk];
      --free_chunks_;
    } else {
      ++fresh_chunk_;
    }
    if (cell.first == kNone) {
      cell.first = chunk;
    } else {
      links_[cell.last] = chunk;
    }
    cell.last = chunk;
  }
  links_[cell.last] = kNone;
  cell.chunks = wanted;
  used_chunks_ += wanted;
  return number;
}

void HostStore::free_cell(uint32_t number) noexcept {
  Cell& cell = cells_[number];
  links_[cell.last] = free_chunk_;
  free_chunk_ = cell.first;
  free_chunks_ += cell.chunks;
  used_chunks_ -= cell.chunks;
  cell.state = State::free;
  cell.next = free_cell_;
  free_cell_ = number;
}

void HostStore::drop(uint32_t cell) noexcept { free_cell(cell); }

void HostStore::publish(uint32_t number, const EntryKey& key, const EntryInfo& info, uint64_t sum,
                        Priority priority) noexcept {
  if (const uint32_t old = find(key); old != kNone) unlist(old);
  Cell& cell = cells_[number];
  cell.key = key;
  cell.info = info;
  cell.sum = sum;
  cell.priority = priority;
  cell.state = State::listed;
  uint32_t& head = bucket(key);
  cell.next = head - 1;
  head = number + 1;
  ++listed_;
}

void HostStore::unlist(uint32_t number) noexcept {
  Cell& cell = cells_[number];
  uint32_t& head = bucket(cell.key);
  if (head == number + 1) {
    head = cell.next + 1;
  } else {
    uint32_t before = head - 1;
    while (cells_[before].next != number) before = cells_[before].next;
    cells_[before].next = cell.next;
  }
  --listed_;
  policy_->remove(number);
  cell.state = State::going;
  if (cell.readers == 0) free_cell(number);
}

void HostStore::unpin(uint32_t number) noexcept {
  Cell& cell = cells_[number];
  if (--cell.readers == 0 && cell.state == State::going) free_cell(number);
}

void HostStore::touch(uint32_t cell) noexcept {
  policy_->touch(cell, {.priority = cells_[cell].priority});
}

void HostStore::check_invariants() const {
  uint64_t listed = 0, chunks = 0;
  for (uint32_t i = 0; i < fresh_cell_; ++i) {
    const Cell& cell = cells_[i];
    STEMMA_CHECK(cell.state == State::listed || !policy_->holds(i));
    if (cell.state == State::free) continue;
    chunks += cell.chunks;
    uint32_t chunk = cell.first;
    for (uint32_t n = 1; n < cell.chunks; ++n) chunk = links_[chunk];
    STEMMA_CHECK(chunk == cell.last && links_[chunk] == kNone);
    if (cell.state != State::listed) continue;
    ++listed;
    STEMMA_CHECK(find(cell.key) == i);
  }
  uint64_t free = 0;
  for (uint32_t chunk = free_chunk_; chunk != kNone; chunk = links_[chunk]) {
    STEMMA_CHECK(++free <= chunks_);
  }
  STEMMA_CHECK(listed == listed_ && chunks == used_chunks_ && free == free_chunks_);
  STEMMA_CHECK(used_chunks_ + free_chunks_ == fresh_chunk_);
  policy_->check_invariants();
}

}  // namespace stemma::tier
