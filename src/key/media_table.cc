#include "key/media_table.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"

namespace stemma::key {
namespace {

constexpr uint32_t kNone = 0xFFFF'FFFFU;
constexpr size_t kFirstBuckets = 16;

uint64_t mix(uint64_t x) noexcept {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}

}  // namespace

MediaTable::MediaTable(uint32_t limit) noexcept
    : limit_(std::min(limit, kMediaNumberLimit)), first_free_(kNone) {}

const MediaTable::Entry& MediaTable::used(uint32_t number) const noexcept {
  STEMMA_CHECK(number < entries_.size() && entries_[number].references != 0);
  return entries_[number];
}

MediaTable::Entry& MediaTable::used(uint32_t number) noexcept {
  return const_cast<Entry&>(std::as_const(*this).used(number));
}

uint32_t MediaTable::bucket_of(uint32_t scope, const MediaIdentity& identity) const noexcept {
  uint64_t low, high;
  std::memcpy(&low, identity.digest.data(), 8);
  std::memcpy(&high, identity.digest.data() + 8, 8);
  const uint64_t rest = uint64_t{scope} << 32 | identity.length;
  const uint64_t hash = mix(mix(low ^ mix(rest)) ^ high);
  return static_cast<uint32_t>(hash & (buckets_.size() - 1));
}

std::optional<uint32_t> MediaTable::find(uint32_t scope,
                                         const MediaIdentity& identity) const noexcept {
  if (size_ == 0) return std::nullopt;
  uint32_t number = buckets_[bucket_of(scope, identity)];
  for (; number != kNone; number = entries_[number].next) {
    const Entry& entry = entries_[number];
    if (entry.scope == scope && entry.identity == identity) return number;
  }
  return std::nullopt;
}

Result<uint32_t> MediaTable::intern(uint32_t scope, MediaIdentity identity) noexcept {
  if (const std::optional<uint32_t> number = find(scope, identity)) {
    ++entries_[*number].references;
    return *number;
  }
  if (size_ == limit_) {
    return Error(Errc::out_of_memory, "every media number is in use", limit_);
  }
  if (first_free_ == kNone && !grow()) {
    return Error(Errc::out_of_memory, "no memory for another media item");
  }
  const uint32_t number = first_free_;
  first_free_ = entries_[number].next;
  uint32_t& head = buckets_[bucket_of(scope, identity)];
  entries_[number] = {identity, scope, head, 1};
  head = number;
  ++size_;
  return number;
}

// Makes one more entry, free, and buckets to match. Changes nothing if there is no memory.
bool MediaTable::grow() noexcept {
  const uint32_t number = static_cast<uint32_t>(entries_.size());
  try {
    if (number == buckets_.size()) {
      std::vector<uint32_t> wider(std::max(kFirstBuckets, 2 * buckets_.size()), kNone);
      entries_.reserve(std::min<size_t>(wider.size(), limit_));
      buckets_.swap(wider);
      for (uint32_t i = 0; i < number; ++i) {  // All in use: the free list is empty here.
        uint32_t& head = buckets_[bucket_of(entries_[i].scope, entries_[i].identity)];
        entries_[i].next = head;
        head = i;
      }
    }
    entries_.push_back({{}, 0, kNone, 0});
  } catch (const std::exception&) {
    return false;
  }
  first_free_ = number;
  return true;
}

void MediaTable::add_reference(uint32_t number) noexcept { ++used(number).references; }

void MediaTable::drop_reference(uint32_t number) noexcept {
  Entry& entry = used(number);
  if (--entry.references != 0) return;
  uint32_t* link = &buckets_[bucket_of(entry.scope, entry.identity)];
  while (*link != number) link = &entries_[*link].next;
  *link = entry.next;
  entry.next = first_free_;
  first_free_ = number;
  --size_;
}

size_t MediaTable::bytes() const noexcept {
  return sizeof *this + entries_.capacity() * sizeof(Entry) +
         buckets_.capacity() * sizeof(uint32_t);
}

void MediaTable::check_invariants() const {
  STEMMA_CHECK(entries_.size() <= limit_ && entries_.size() <= buckets_.size());
  STEMMA_CHECK((buckets_.size() & (buckets_.size() - 1)) == 0);
  size_t in_use = 0;
  for (uint32_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (uint32_t number = buckets_[bucket]; number != kNone; number = entries_[number].next) {
      STEMMA_CHECK(number < entries_.size() && in_use < entries_.size());
      const Entry& entry = entries_[number];
      STEMMA_CHECK(entry.references != 0);
      STEMMA_CHECK(bucket_of(entry.scope, entry.identity) == bucket);
      STEMMA_CHECK(find(entry.scope, entry.identity) == number);
      ++in_use;
    }
  }
  size_t unused = 0;
  for (uint32_t number = first_free_; number != kNone; number = entries_[number].next) {
    STEMMA_CHECK(number < entries_.size() && unused < entries_.size());
    STEMMA_CHECK(entries_[number].references == 0);
    ++unused;
  }
  STEMMA_CHECK(in_use == size_ && in_use + unused == entries_.size());
}

}  // namespace stemma::key
