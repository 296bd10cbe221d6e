#include "tier/object/space.h"

#include <algorithm>

#include "base/check.h"
#include "key/content_key.h"
#include "key/little_endian.h"

namespace stemma::tier::object {

namespace {

// Every change to the hashed bytes gets a new tag (docs/formats/object-entry.md).
constexpr std::string_view kRootTag = "stemma.space.v1";
constexpr std::string_view kKeyTag = "stemma.object.v1";
constexpr std::string_view kLayoutTag = "stemma.objlay.v1";

constexpr size_t kRootBytes = 32;
constexpr size_t kHashedBytes = kRootBytes - key::kOwnerBytes;
// The longest key that fits one block with its length and the padding (1 + 8 bytes).
constexpr size_t kOneBlockKey = key::kSha256Block - 1 - 9;

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._-/:@+").find(c) != std::string_view::npos;
}

// The second and last block of a message that ends with this key. Requires: `block` is zero.
void pad(std::span<const uint8_t> key, std::array<uint8_t, key::kSha256Block>& block) noexcept {
  STEMMA_CHECK(!key.empty() && key.size() <= kOneBlockKey);
  block[0] = static_cast<uint8_t>(key.size());
  key::put_bytes(block.data() + 1, key.data(), key.size());
  block[1 + key.size()] = 0x80;  // The end of the message, then its length in bits.
  const size_t bits = 8 * (key::kSha256Block + 1 + key.size());
  block[key::kSha256Block - 2] = static_cast<uint8_t>(bits >> 8U);
  block[key::kSha256Block - 1] = static_cast<uint8_t>(bits);
}

uint64_t number_at(const uint8_t* from) noexcept {
  uint64_t number = 0;
  for (uint32_t i = 0; i < 8; ++i) number |= uint64_t{from[i]} << (8 * i);
  return number;
}

}  // namespace

bool is_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kMostNameBytes &&
         std::all_of(name.begin(), name.end(), is_name_character);
}

Result<Space> Space::make(std::string_view name, uint64_t layout, uint64_t value_bytes) {
  if (!is_name(name)) {
    return Error(Errc::invalid_argument,
                 "name has not 1 to 64 characters of A-Z a-z 0-9 . _ - / : @ +",
                 static_cast<uint32_t>(std::min<size_t>(name.size(), Error::kNoValue - 1)));
  }
  if (value_bytes > kMostValueBytes) {
    return Error(Errc::invalid_argument, "value_bytes of the layout is more than 4 GiB");
  }
  Space space;
  space.name_ = name;
  space.layout_ = layout;
  space.value_bytes_ = value_bytes;

  std::array<uint8_t, kRootTag.size() + kMostNameBytes> root;
  key::put_bytes(key::put_bytes(root.data(), kRootTag.data(), kRootTag.size()), name.data(),
                 name.size());
  space.root_ = key::sha256(std::span(root).first(kRootTag.size() + name.size()));

  std::array<uint8_t, key::kSha256Block> beginning{};
  static_assert(kRootBytes + kKeyTag.size() <= beginning.size());
  key::put_bytes(key::put_bytes(beginning.data(), space.root_.data(), kRootBytes), kKeyTag.data(),
                 kKeyTag.size());
  space.begun_.update(beginning);
  space.state_ = state_after(beginning);

  std::array<uint8_t, kLayoutTag.size() + 16> arranged;
  uint8_t* to = key::put_bytes(arranged.data(), kLayoutTag.data(), kLayoutTag.size());
  key::put_le(key::put_le(to, layout), value_bytes);
  space.tier_layout_ = number_at(key::sha256(arranged).data());
  return space;
}

uint64_t Space::owner() const noexcept { return number_at(root_.data() + kHashedBytes); }

ContentKey Space::chain(std::span<const uint8_t> key) const noexcept {
  STEMMA_CHECK(!key.empty() && key.size() <= kMostKeyBytes);
  std::array<uint8_t, 1 + kMostKeyBytes> rest;
  rest[0] = static_cast<uint8_t>(key.size());
  key::put_bytes(rest.data() + 1, key.data(), key.size());
  key::Sha256 hash = begun_;
  hash.update(std::span(rest).first(1 + key.size()));
  ContentKey chain{hash.finish()};
  key::put_bytes(chain.bytes.data() + kHashedBytes, root_.data() + kHashedBytes, key::kOwnerBytes);
  return chain;
}

EntryKey Space::entry_key(std::span<const uint8_t> key) const noexcept {
  return stemma::entry_key(chain(key), EntryKind::object, 0, tier_layout_);
}

EntryKey Space::entry_of(const key::Digest& digest) const noexcept {
  ContentKey chain{digest};
  key::put_bytes(chain.bytes.data() + kHashedBytes, root_.data() + kHashedBytes, key::kOwnerBytes);
  return stemma::entry_key(chain, EntryKind::object, 0, tier_layout_);
}

void Space::entry_keys(std::span<const std::span<const uint8_t>> keys,
                       std::span<EntryKey> entries) const noexcept {
  // With SHA-256 instructions, hashing one after the other is faster.
  const bool in_lanes = !key::sha256_uses_instructions();
  for (size_t i = 0; i < keys.size();) {
    const auto some = keys.subspan(i, std::min(kShaLanes, keys.size() - i));
    const bool fit =
        in_lanes && some.size() == kShaLanes &&
        std::ranges::all_of(some, [](const auto& k) { return k.size() <= kOneBlockKey; });
    if (!fit) {
      entries[i] = entry_key(keys[i]);
      ++i;
      continue;
    }
    ShaBlocks blocks{};
    for (size_t lane = 0; lane < kShaLanes; ++lane) pad(some[lane], blocks[lane]);
    ShaDigests digests;
    digest_lanes(state_, blocks, digests);
    for (const key::Digest& digest : digests) entries[i++] = entry_of(digest);
  }
}

uint64_t Space::link(std::span<const uint8_t> key) const noexcept {
  return std::max<uint64_t>(link_of(chain(key)), 1);
}

}  // namespace stemma::tier::object
