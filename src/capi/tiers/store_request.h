// Checks and copies what a caller asks a store for: keys and requests. Values and results stay the
// caller's.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "capi/store/store.h"
#include "stemma/stemma_store.h"

namespace stemma::capi {

// Where each of `count` keys lies among bytes that have no gaps.
struct KeyList {
  std::vector<uint32_t> at;  // One more than there are keys: where the last one ends.
  uint32_t size(size_t i) const noexcept { return at[i + 1] - at[i]; }
};

// Reads keys as a stemma_store_request has them. Error: invalid_argument; the value is the key's
// number, if it is about one.
Result<KeyList> read_keys(const uint8_t* keys, const uint8_t* sizes, uint32_t size, uint32_t count);

Result<store::Request> read_request(const stemma_store_request* given, const store::Store& store);

}  // namespace stemma::capi
