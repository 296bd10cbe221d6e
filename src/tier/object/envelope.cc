#include "tier/object/envelope.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "key/little_endian.h"
#include "tier/entry.h"

namespace stemma::tier::object {

namespace {

constexpr char kMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'O', 'B'};

// Where each part lies.
constexpr size_t kVersionAt = 8;
constexpr size_t kKeySizeAt = 12;
constexpr size_t kNameSizeAt = 13;
constexpr size_t kParentSizeAt = 14;
constexpr size_t kLayoutAt = 16;
constexpr size_t kSpaceBytesAt = 24;
constexpr size_t kValueBytesAt = 32;
constexpr size_t kDepthAt = 40;
constexpr size_t kKeyAt = 48;
constexpr size_t kNameAt = kKeyAt + kMostKeyBytes;
constexpr size_t kParentAt = kNameAt + kMostNameBytes;
constexpr size_t kSumAt = kEnvelopeBytes - 8;
static_assert(kParentAt + kMostKeyBytes <= kSumAt);

template <class Unsigned>
Unsigned take(const uint8_t* from) noexcept {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Unsigned); ++i) value |= uint64_t{from[i]} << (8 * i);
  return static_cast<Unsigned>(value);
}

}  // namespace

bool Envelope::is_of(const Space& space, std::span<const uint8_t> wanted) const noexcept {
  return name == space.name() && layout == space.layout() &&
         space_value_bytes == space.value_bytes() && std::ranges::equal(key, wanted);
}

void write_envelope(const Envelope& envelope, std::span<uint8_t, kEnvelopeBytes> out) noexcept {
  STEMMA_CHECK(!envelope.key.empty() && envelope.key.size() <= kMostKeyBytes &&
               envelope.name.size() <= kMostNameBytes && envelope.parent.size() <= kMostKeyBytes);
  uint8_t* const to = out.data();
  std::memset(to, 0, out.size());
  key::put_bytes(to, kMagic, sizeof kMagic);
  key::put_le(to + kVersionAt, kEnvelopeVersion);
  to[kKeySizeAt] = static_cast<uint8_t>(envelope.key.size());
  to[kNameSizeAt] = static_cast<uint8_t>(envelope.name.size());
  to[kParentSizeAt] = static_cast<uint8_t>(envelope.parent.size());
  key::put_le(to + kLayoutAt, envelope.layout);
  key::put_le(to + kSpaceBytesAt, envelope.space_value_bytes);
  key::put_le(to + kValueBytesAt, envelope.value_bytes);
  key::put_le(to + kDepthAt, envelope.depth);
  key::put_bytes(to + kKeyAt, envelope.key.data(), envelope.key.size());
  key::put_bytes(to + kNameAt, envelope.name.data(), envelope.name.size());
  if (!envelope.parent.empty()) {
    key::put_bytes(to + kParentAt, envelope.parent.data(), envelope.parent.size());
  }
  key::put_le(to + kSumAt, sum(out.first(kSumAt)));
}

Result<Envelope> read_envelope(std::span<const uint8_t, kEnvelopeBytes> bytes) noexcept {
  const uint8_t* const from = bytes.data();
  if (std::memcmp(from, kMagic, sizeof kMagic) != 0) {
    return Error(Errc::corrupt, "no envelope begins here");
  }
  if (take<uint64_t>(from + kSumAt) != sum(bytes.first(kSumAt))) {
    return Error(Errc::corrupt, "the envelope's checksum does not hold");
  }
  if (const auto version = take<uint32_t>(from + kVersionAt); version != kEnvelopeVersion) {
    return Error(Errc::unsupported, "the envelope has another version", version);
  }
  const size_t key_size = from[kKeySizeAt], name_size = from[kNameSizeAt],
               parent_size = from[kParentSizeAt];
  Envelope envelope;
  envelope.layout = take<uint64_t>(from + kLayoutAt);
  envelope.space_value_bytes = take<uint64_t>(from + kSpaceBytesAt);
  envelope.value_bytes = take<uint64_t>(from + kValueBytesAt);
  envelope.depth = take<uint32_t>(from + kDepthAt);
  const bool sizes = key_size != 0 && key_size <= kMostKeyBytes && name_size <= kMostNameBytes &&
                     parent_size <= kMostKeyBytes;
  if (!sizes || envelope.value_bytes == 0 || envelope.value_bytes > kMostValueBytes) {
    return Error(Errc::corrupt, "the envelope's sizes cannot be");
  }
  envelope.key = bytes.subspan(kKeyAt, key_size);
  envelope.name = {reinterpret_cast<const char*>(from + kNameAt), name_size};
  envelope.parent = bytes.subspan(kParentAt, parent_size);
  if (!is_name(envelope.name)) return Error(Errc::corrupt, "the envelope's name is none");
  // Unused bytes are zero, so every envelope has exactly one encoding.
  std::array<uint8_t, kEnvelopeBytes> again;
  write_envelope(envelope, again);
  if (std::memcmp(again.data(), from, again.size()) != 0) {
    return Error(Errc::corrupt, "unused bytes of the envelope are in use");
  }
  return envelope;
}

}  // namespace stemma::tier::object
