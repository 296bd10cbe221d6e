// The whole index as bytes, and back. The layout is drawn in docs/formats/index-dump.md.
//
// A dump is read as if an enemy had written it: every count is checked against the bytes left,
// every number against the records, every cell against its siblings, before anything is used. A
// load that fails leaves the cache empty, as it was.
//
// Threading:  one thread at a time (the lock of Core).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/store/store.h"

namespace stemma::cache {

inline constexpr char kDumpMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'I', 'X'};
inline constexpr uint32_t kDumpVersion = 1;
inline constexpr size_t kDumpChecksumBytes = 32;

// May throw std::bad_alloc.
std::vector<uint8_t> dump_index(const Books& books);

// Whether the bytes are a dump of this version and whole. Needs no lock. Error: corrupt.
Result<void> check_dump(std::span<const uint8_t> bytes);
// Requires check_dump(). Error: corrupt, invalid_argument (other configuration), wrong_state (not
// empty), out_of_memory; nothing changed.
Result<void> load_index(Store& store, std::span<const uint8_t> bytes);

}  // namespace stemma::cache
