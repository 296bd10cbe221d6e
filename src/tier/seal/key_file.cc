#include "tier/seal/key_file.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>

#include "key/little_endian.h"
#include "key/sha256.h"

namespace stemma::tier::seal {

namespace {

constexpr char kKeyMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'K', 'Y'};
constexpr uint32_t kKeyVersion = 1;
constexpr size_t kSummed = 64;

uint64_t take(const uint8_t* from, size_t bytes) noexcept {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{from[i]} << (8 * i);
  return value;
}

}  // namespace

KeyFile::~KeyFile() { OPENSSL_cleanse(key.data(), key.size()); }

std::array<uint8_t, kKeyFileBytes> write_key_file(const KeyFile& file) noexcept {
  std::array<uint8_t, kKeyFileBytes> bytes{};
  uint8_t* to = key::put_bytes(bytes.data(), kKeyMagic, sizeof kKeyMagic);
  to = key::put_le(to, kKeyVersion);
  to = key::put_le(to, uint32_t{0});
  to = key::put_le(to, file.owner);
  to = key::put_bytes(to, file.id.data(), file.id.size());
  to = key::put_bytes(to, file.key.data(), file.key.size());
  const key::Digest digest = key::sha256(std::span(bytes).first(kSummed));
  key::put_bytes(to, digest.data(), kKeyFileBytes - kSummed);
  return bytes;
}

Result<KeyFile> read_key_file(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() < kKeyFileBytes) return Error(Errc::corrupt, "the key file is too short");
  if (std::memcmp(bytes.data(), kKeyMagic, sizeof kKeyMagic) != 0) {
    return Error(Errc::corrupt, "this is not a key file");
  }
  if (const auto version = static_cast<uint32_t>(take(bytes.data() + 8, 4));
      version != kKeyVersion) {
    return Error(Errc::unsupported, "the key file has another format version", version);
  }
  if (bytes.size() > kKeyFileBytes) return Error(Errc::corrupt, "the key file is too long");
  const key::Digest digest = key::sha256(bytes.first(kSummed));
  if (std::memcmp(digest.data(), bytes.data() + kSummed, kKeyFileBytes - kSummed) != 0) {
    return Error(Errc::corrupt, "the checksum of the key file does not hold");
  }
  if (take(bytes.data() + 12, 4) != 0) {
    return Error(Errc::corrupt, "unused bytes of the key file are in use");
  }
  KeyFile file;
  file.owner = take(bytes.data() + 16, 8);
  std::memcpy(file.id.data(), bytes.data() + 24, file.id.size());
  std::memcpy(file.key.data(), bytes.data() + 32, file.key.size());
  return file;
}

}  // namespace stemma::tier::seal
