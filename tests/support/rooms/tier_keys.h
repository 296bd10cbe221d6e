// Keys of entries, for tests of tiers.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/random.h"
#include "stemma/tier/tier.h"

namespace stemma::test {

// Another key for every number, scattered as real ones are.
inline EntryKey numbered_key(uint64_t number) {
  EntryKey key;
  const uint64_t word = base::mix(number + 1);
  std::memcpy(key.chain.bytes.data(), &word, sizeof word);
  return key;
}

}  // namespace stemma::test
