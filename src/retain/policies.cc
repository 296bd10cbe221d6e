#include "retain/policies.h"

#include <memory>
#include <new>

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

// One row each.
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

const Entry* find(std::string_view name) noexcept {
  if (name == "default") name = "adaptive";
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
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

namespace retain {

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kPolicies) names.push_back(entry.name);
  return names;
}

PolicyBytes most_bytes(std::string_view name) noexcept {
  const Entry* const entry = find(name);
  if (entry == nullptr) return {};
  return {entry->bytes_per_cell, entry->fixed_bytes};
}

}  // namespace retain

}  // namespace stemma
