#include "retain/policies.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <span>

#include "base/mutex.h"
#include "retain/adaptive.h"
#include "retain/arc.h"
#include "retain/gdsf.h"
#include "retain/lru.h"
#include "retain/lru_k.h"
#include "retain/s3_fifo.h"
#include "retain/sieve.h"
#include "retain/slru.h"

namespace stemma {
namespace {

using Make = std::unique_ptr<RetentionPolicy> (*)(uint32_t cells);

// Null if the system gave no memory; may throw std::bad_alloc.
template <class Policy>
std::unique_ptr<RetentionPolicy> make(uint32_t cells) {
  auto policy = std::make_unique<Policy>(cells);
  if (!policy->ok()) return nullptr;
  return policy;
}

struct Entry {
  std::string_view name;
  uint32_t bytes_per_cell;  // At most, with every kind of hint.
  uint32_t fixed_bytes;     // Beyond 128 KiB.
  Make make;
};

// For a LeafPolicy and its ghosts (their table is up to four times as long as necessary).
constexpr uint32_t kLeaf = 72 + 26;
constexpr uint32_t kGhosts = 24;

constexpr uint32_t kLru = 44;
constexpr uint32_t kAdaptive = kLru + 63;
constexpr uint32_t kModel =
    5U << 18U;  // The learnt weights, 1,024 extra conversations and the rivals.

// One row for each policy of the library.
constexpr Entry kPolicies[] = {
    {"lru", kLru, 0, make<retain::LruPolicy>},
    {"lru_k", kLeaf + kGhosts, 0, make<retain::LruKPolicy>},
    {"slru", kLeaf, 0, make<retain::SlruPolicy>},
    {"arc", kLeaf + kGhosts, 0, make<retain::ArcPolicy>},
    {"s3_fifo", kLeaf + kGhosts, 0, make<retain::S3FifoPolicy>},
    {"sieve", kLeaf, 0, make<retain::SievePolicy>},
    {"gdsf", kLeaf, 0, make<retain::GdsfPolicy>},
    {"adaptive", kAdaptive, kModel, make<retain::AdaptivePolicy>},
};

// The policies that the program registered. Rows are never changed once `count_` covers them, so
// readers need no lock.
class Registered {
 public:
  std::span<const Entry> rows() const noexcept {
    return {entries_.data(), count_.load(std::memory_order_acquire)};
  }
  bool add(const PolicyKind& kind) noexcept {
    const base::MutexLock lock(mutex_);
    if (written_ == kMost || knows_policy(kind.name)) return false;
    const uint32_t row = written_++;
    char* const text = names_[row].data();
    std::ranges::copy(kind.name, text);
    entries_[row] = {{text, kind.name.size()}, kind.bytes_per_cell, kind.fixed_bytes, kind.make};
    count_.store(written_, std::memory_order_release);
    return true;
  }

  static constexpr uint32_t kMost = 32, kLongestName = 31;

 private:
  base::Mutex mutex_;
  std::array<std::array<char, kLongestName>, kMost> names_{};
  std::array<Entry, kMost> entries_{};
  uint32_t written_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::atomic<uint32_t> count_{0};  // The same number, for readers.
};

Registered& registered() noexcept {
  static Registered all;
  return all;
}

const Entry* find(std::string_view name) noexcept {
  if (name == "default") name = "adaptive";
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return &entry;
  }
  for (const Entry& entry : registered().rows()) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

bool good_name(std::string_view name) noexcept {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= Registered::kLongestName &&
         std::ranges::all_of(name, good);
}

}  // namespace

std::unique_ptr<RetentionPolicy> make_policy(std::string_view name, uint32_t cells) noexcept {
  const Entry* const entry = find(name);
  if (entry == nullptr) return nullptr;
  try {
    return entry->make(cells);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool knows_policy(std::string_view name) noexcept { return find(name) != nullptr; }

Result<void> register_policy(const PolicyKind& kind) noexcept {
  constexpr const char* kName = "the name of a policy has 1 to 31 characters: a to z, 0 to 9 and _";
  if (!good_name(kind.name)) return Error(Errc::invalid_argument, kName);
  if (kind.make == nullptr) return Error(Errc::invalid_argument, "a policy needs a function make");
  if (registered().add(kind)) return {};
  return Error(Errc::invalid_argument, knows_policy(kind.name)
                                           ? "a policy of this name is known already"
                                           : "32 policies are registered already");
}

namespace retain {

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kPolicies) names.push_back(entry.name);
  for (const Entry& entry : registered().rows()) names.push_back(entry.name);
  return names;
}

PolicyBytes most_bytes(std::string_view name) noexcept {
  const Entry* const entry = find(name);
  if (entry == nullptr) return {};
  return {entry->bytes_per_cell, entry->fixed_bytes};
}

}  // namespace retain

}  // namespace stemma
