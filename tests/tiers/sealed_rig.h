// Shared by the tests of sealed tiers: a directory of keys, and tiers that look into the tier
// below.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "stemma/tier/key_ring.h"
#include "stemma/tier/sealed_tier.h"
#include "support/temporary_directory.h"

namespace stemma::test {

inline std::shared_ptr<tier::KeyRing> open_keys(const std::string& path,
                                                const Clock* clock = nullptr) {
  std::string why;
  auto keys = tier::KeyRing::open({.path = path, .clock = clock}, why);
  if (!keys) throw std::runtime_error(why);
  return *keys;
}

inline std::unique_ptr<Tier> sealed(std::unique_ptr<Tier> inner,
                                    std::shared_ptr<tier::KeyRing> keys,
                                    tier::SealedTierOptions options = {}) {
  options.keys = std::move(keys);
  return tier::make_sealed_tier(std::move(inner), options).value();
}

}  // namespace stemma::test
