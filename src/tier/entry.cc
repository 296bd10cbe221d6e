#include "tier/entry.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "key/content_key.h"
#include "key/little_endian.h"

namespace stemma::tier {

namespace {

constexpr char kMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'E', 'N'};
constexpr uint32_t kSummedBytes = kHeaderBytes - 8;

template <class Unsigned>
Unsigned take(const uint8_t*& from) noexcept {
  Unsigned value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value = static_cast<Unsigned>(value |
                                  static_cast<Unsigned>(static_cast<Unsigned>(*from++) << (8 * i)));
  }
  return value;
}

bool is_kind(uint8_t kind) noexcept {
  return kind >= static_cast<uint8_t>(EntryKind::block) &&
         kind <= static_cast<uint8_t>(EntryKind::transcript);
}

bool possible(const EntryInfo& info) noexcept {
  return info.begin <= info.end && info.end != 0 && info.end <= kMostPositions && info.bytes != 0 &&
         info.bytes <= kMostPayloadBytes &&
         (info.words == 0 || info.words == info.end - info.begin);
}

}  // namespace

uint64_t sum(std::span<const uint32_t> words, std::span<const uint8_t> payload) noexcept {
  if (words.empty()) return XXH3_64bits(payload.data(), payload.size());
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  std::array<uint8_t, 1024> bytes;
  while (!words.empty()) {
    const auto some = words.first(std::min<size_t>(words.size(), bytes.size() / 4));
    uint8_t* to = bytes.data();
    for (const uint32_t word : some) to = key::put_le(to, word);
    XXH3_64bits_update(&state, bytes.data(), some.size() * 4);
    words = words.subspan(some.size());
  }
  XXH3_64bits_update(&state, payload.data(), payload.size());
  return XXH3_64bits_digest(&state);
}

uint64_t sum(std::span<const uint8_t> body) noexcept {
  return XXH3_64bits(body.data(), body.size());
}

void write_header(const EntryHeader& header, std::span<uint8_t, kHeaderBytes> out) noexcept {
  std::memset(out.data(), 0, out.size());
  uint8_t* to = key::put_bytes(out.data(), kMagic, sizeof kMagic);
  to = key::put_le(to, kFormatVersion);
  to = key::put_le(to, static_cast<uint8_t>(header.key.kind));
  to = key::put_le(to, header.key.group);
  to = key::put_le(to, uint16_t{0});
  to = key::put_bytes(to, header.key.chain.bytes.data(), header.key.chain.bytes.size());
  to = key::put_le(to, header.info.begin);
  to = key::put_le(to, header.info.end);
  to = key::put_le(to, header.info.layout);
  to = key::put_le(to, header.info.bytes);
  to = key::put_le(to, header.info.words);
  to = key::put_le(to, uint32_t{0});
  to = key::put_le(to, header.sum);
  to = key::put_le(to, header.written);
  to = key::put_le(to, header.serial);
  key::put_le(to, header.info.parent);
  key::put_le(out.data() + kSummedBytes, uint64_t{XXH3_64bits(out.data(), kSummedBytes)});
}

Result<EntryHeader> read_header(std::span<const uint8_t, kHeaderBytes> bytes) noexcept {
  const uint8_t* from = bytes.data() + kSummedBytes;
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return Error(Errc::corrupt, "no entry begins here");
  }
  if (take<uint64_t>(from) != XXH3_64bits(bytes.data(), kSummedBytes)) {
    return Error(Errc::corrupt, "the header's checksum does not hold");
  }
  from = bytes.data() + sizeof kMagic;
  if (const auto version = take<uint32_t>(from); version != kFormatVersion) {
    return Error(Errc::unsupported, "the entry has another format version", version);
  }
  EntryHeader header;
  const auto kind = take<uint8_t>(from);
  if (!is_kind(kind)) return Error(Errc::corrupt, "there is no such kind of entry", kind);
  header.key.kind = static_cast<EntryKind>(kind);
  header.key.group = take<uint8_t>(from);
  from += 2;
  std::memcpy(header.key.chain.bytes.data(), from, header.key.chain.bytes.size());
  from += header.key.chain.bytes.size();
  header.info.begin = take<uint32_t>(from);
  header.info.end = take<uint32_t>(from);
  header.info.layout = take<uint64_t>(from);
  header.info.bytes = take<uint64_t>(from);
  header.info.words = take<uint32_t>(from);
  from += 4;
  header.sum = take<uint64_t>(from);
  header.written = take<uint64_t>(from);
  header.serial = take<uint64_t>(from);
  header.info.parent = take<uint64_t>(from);
  if (!possible(header.info)) return Error(Errc::corrupt, "the entry's sizes cannot be");
  // Unused bytes are zero, so every header has exactly one encoding.
  std::array<uint8_t, kHeaderBytes> again;
  write_header(header, again);
  if (std::memcmp(again.data(), bytes.data(), again.size()) != 0) {
    return Error(Errc::corrupt, "unused bytes of the header are in use");
  }
  return header;
}

TierOutcome believe(const EntryHeader& header, const TierItem& item) noexcept {
  if (!(header.key == item.key)) return TierOutcome::corrupt;
  const bool same_range = item.info.end == 0 || (header.info.end == item.info.end &&
                                                 header.info.begin == item.info.begin);
  if (header.info.layout != item.info.layout || !same_range) return TierOutcome::absent;
  return header.info.bytes <= item.into.size() ? TierOutcome::done : TierOutcome::refused;
}

}  // namespace stemma::tier

namespace stemma {

EntryKey entry_key(const ContentKey& chain, EntryKind kind, uint8_t group,
                   uint64_t layout) noexcept {
  std::array<uint8_t, 8> bytes;
  key::put_le(bytes.data(), layout);
  key::put_le(bytes.data(), uint64_t{XXH3_64bits(bytes.data(), bytes.size())});
  EntryKey key{chain, kind, group};
  for (size_t i = 0; i < bytes.size(); ++i) key.chain.bytes[i] ^= bytes[i];
  return key;
}

namespace {

uint64_t owner_of(const ContentKey& key) noexcept {
  const uint8_t* from = key.bytes.data() + key.bytes.size() - key::kOwnerBytes;
  return tier::take<uint64_t>(from);
}

}  // namespace

uint64_t owner_of(const EntryKey& key) noexcept { return owner_of(key.chain); }
uint64_t owner_of(const Scope& scope) noexcept { return owner_of(key::root_key(scope)); }

}  // namespace stemma

namespace stemma::tier {

TierOutcome check_put(const TierItem& item, const TierTraits& traits) noexcept {
  const EntryInfo& info = item.info;
  const bool fits = traits.max_entry_bytes == 0 || info.bytes <= traits.max_entry_bytes;
  const bool whole = item.source.size() == info.bytes && item.words.size() == info.words;
  return possible(info) && fits && whole && is_kind(static_cast<uint8_t>(item.key.kind))
             ? TierOutcome::pending
             : TierOutcome::refused;
}

}  // namespace stemma::tier
