#include "tier/seal/sealed_entry.h"

#include <algorithm>
#include <cstring>

#include "key/little_endian.h"

namespace stemma::tier {

uint64_t sealed_layout(uint64_t layout) noexcept { return layout ^ 0x5EA1'ED5E'A1ED'5EA1U; }

namespace seal {

namespace {

constexpr char kSealMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'S', 'E'};
constexpr uint32_t kSealVersion = 1;
constexpr size_t kNonceAt = 24;
constexpr size_t kTagAt = kNonceAt + kNonceBytes;
static_assert(kTagAt + kTagBytes == kSealBytes);

constexpr size_t kAssociatedBytes = 88;

// The first 24 bytes of the header, and every field that identifies the entry.
std::array<uint8_t, kAssociatedBytes> associated_data(const uint8_t* header, const EntryKey& key,
                                                      const EntryInfo& info) noexcept {
  std::array<uint8_t, kAssociatedBytes> bytes{};
  uint8_t* to = key::put_bytes(bytes.data(), header, kNonceAt);
  to = key::put_bytes(to, key.chain.bytes.data(), key.chain.bytes.size());
  to = key::put_le(to, static_cast<uint8_t>(key.kind));
  to = key::put_le(to, key.group);
  to += 6;
  to = key::put_le(to, info.begin);
  to = key::put_le(to, info.end);
  to = key::put_le(to, info.layout);
  key::put_le(to, info.bytes);
  return bytes;
}

}  // namespace

void write_seal_header(const SealHeader& header, std::span<uint8_t, kSealBytes> out) noexcept {
  uint8_t* to = key::put_bytes(out.data(), kSealMagic, sizeof kSealMagic);
  to = key::put_le(to, kSealVersion);
  to = key::put_le(to, uint32_t{0});
  to = key::put_bytes(to, header.key_id.data(), header.key_id.size());
  to = key::put_bytes(to, header.nonce.data(), header.nonce.size());
  key::put_bytes(to, header.tag.data(), header.tag.size());
}

Result<SealHeader> read_seal_header(std::span<const uint8_t, kSealBytes> bytes) noexcept {
  if (std::memcmp(bytes.data(), kSealMagic, sizeof kSealMagic) != 0) {
    return Error(Errc::corrupt, "no sealed entry begins here");
  }
  uint32_t version = 0;
  for (size_t i = 0; i < 4; ++i) version |= uint32_t{bytes[8 + i]} << (8 * i);
  if (version != kSealVersion) {
    return Error(Errc::unsupported, "the sealed entry has another format version", version);
  }
  SealHeader header;
  std::memcpy(header.key_id.data(), bytes.data() + 16, header.key_id.size());
  std::memcpy(header.nonce.data(), bytes.data() + kNonceAt, header.nonce.size());
  std::memcpy(header.tag.data(), bytes.data() + kTagAt, header.tag.size());
  std::array<uint8_t, kSealBytes> again;
  write_seal_header(header, again);
  if (std::memcmp(again.data(), bytes.data(), again.size()) != 0) {
    return Error(Errc::corrupt, "unused bytes of the sealed entry are in use");
  }
  return header;
}

bool seal_entry(Cipher& cipher, const ScopeKey& scope, const EntryKey& key, const EntryInfo& info,
                const Nonce& nonce, std::span<const uint8_t> plain,
                std::span<uint8_t> out) noexcept {
  if (out.size() != plain.size() + kSealBytes) return false;
  SealHeader header;
  header.key_id = scope.id();
  header.nonce = nonce;
  const auto head = out.first<kSealBytes>();
  write_seal_header(header, head);
  if (!cipher.seal(scope.sealing(), header.nonce, associated_data(head.data(), key, info), plain,
                   out.data() + kSealBytes, header.tag)) {
    return false;
  }
  write_seal_header(header, head);
  return true;
}

bool open_entry(Cipher& cipher, const ScopeKey& scope, const EntryKey& key, const EntryInfo& info,
                std::span<const uint8_t> sealed, uint8_t* out) noexcept {
  if (sealed.size() < kSealBytes || info.bytes != sealed.size() - kSealBytes) return false;
  const auto head = sealed.first<kSealBytes>();
  const Result<SealHeader> header = read_seal_header(head);
  if (!header || header->key_id != scope.id()) return false;
  return cipher.open(scope.sealing(), header->nonce, associated_data(head.data(), key, info),
                     sealed.subspan(kSealBytes), header->tag, out);
}

}  // namespace seal

}  // namespace stemma::tier
