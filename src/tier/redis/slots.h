// Tells which of a cluster's 16,384 slots a key is in, and which node has a slot.
//
// Our keys have no hash tags (no braces), so a key's slot is the CRC of all of it.
// Threading: hash_slot() is pure; a SlotMap is for one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/tier/redis_url.h"
#include "tier/redis/resp.h"

namespace stemma::tier::redis {

inline constexpr uint32_t kSlots = 16'384;

// CRC-16 with the polynomial 0x1021, not reflected, started with 0.
uint16_t crc16(std::string_view bytes) noexcept;
inline uint16_t hash_slot(std::string_view key) noexcept { return crc16(key) % kSlots; }

// "host:port" as MOVED and ASK spell it: the port follows the last colon; an empty host means the
// host that answered.
std::optional<Address> parse_endpoint(std::string_view text, std::string_view asked_host);

struct SlotRange {
  uint16_t first = 0, last = 0;
  Address primary;
};

// Reads an answer to CLUSTER SLOTS. None if it is malformed or contradicts itself. A node that does
// not know its own address is the one that was asked.
std::optional<std::vector<SlotRange>> read_slots(const Reply& reply, std::string_view asked_host);

}  // namespace stemma::tier::redis
