// The small identifiers that cross Stemma's borders, each its own type so that two of them cannot
// be swapped by accident.
#pragma once

#include <cstdint>

namespace stemma {

// A token as an engine's tokenizer numbers it. Values of 2^31 and above are not tokens: a prompt
// that contains one is refused (a negative 32-bit token would look like that).
using Token = uint32_t;
inline constexpr Token kTokenLimit = 0x8000'0000U;

// The place of one KV block in the engine's memory of one layer group, counted from 0.
enum class BlockId : uint32_t {};
inline constexpr BlockId kNoBlock{0xFFFF'FFFFU};

// Which layer group of Options::groups, counted from 0.
using GroupIndex = uint32_t;
inline constexpr GroupIndex kMaxGroups = 8;

// A conversation's name, chosen by the caller; 0 means none. A hint for affinity and retention,
// never a border: two sessions share every block that their prompts have in common.
enum class SessionId : uint64_t {};
inline constexpr SessionId kNoSession{0};

// Who pays for cached bytes; 0 stands for everybody without their own quota.
enum class TenantId : uint32_t {};
inline constexpr TenantId kNoTenant{0};

constexpr uint32_t to_index(BlockId id) noexcept { return static_cast<uint32_t>(id); }

}  // namespace stemma
