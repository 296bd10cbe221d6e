// ValueReader takes a Redis value apart as it arrives: the entry's header, then its words, then the
// payload, which goes directly into the caller's memory. Once a value turns out not to be what the
// item asked for, the rest is thrown away.
//
//   begin(bytes, item) --> room(), took() ... until whole() --> finish()
//                              '-- cut_loose(): the item's memory is not written from now on
//
// Threading:  one thread at a time.
// Cost:       no copy of the payload; a checksum over it in finish().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tier/entry.h"

namespace stemma::tier::redis {

class ValueReader {
 public:
  // `item` is nullptr if the value is no longer wanted.
  void begin(uint64_t bytes, TierItem* item);

  // Where the next bytes go; never empty before whole().
  std::span<uint8_t> room();
  void took(size_t bytes);  // At most room().size().
  bool whole() const noexcept { return left_ == 0; }
  void cut_loose() noexcept { item_ = nullptr; }

  // Requires whole(). Returns the get's outcome and fills in the item's info; absent for an entry
  // that a newer version wrote.
  TierOutcome finish();

 private:
  enum class Part : uint8_t { header, words, payload, skipped };

  void header_is_there();

  Part part_ = Part::skipped;
  TierItem* item_ = nullptr;
  TierOutcome outcome_ = TierOutcome::corrupt;
  uint64_t left_ = 0;       // Of the value.
  uint64_t part_done_ = 0;  // Of the part.
  std::array<uint8_t, kHeaderBytes> header_bytes_;
  EntryHeader header_;
  std::vector<uint32_t> words_;
  std::unique_ptr<std::array<uint8_t, 65'536>> scratch_;
};

}  // namespace stemma::tier::redis
