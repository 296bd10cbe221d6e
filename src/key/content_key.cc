#include "key/content_key.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "key/little_endian.h"
#include "key/sha256.h"

namespace stemma {

std::string ContentKey::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

namespace key {
namespace {

// Each change to what is hashed gets a new tag (docs/formats/content-key.md).
constexpr std::string_view kRootTag = "stemma.root.v1";
constexpr std::string_view kBlockTag{"stemma.block.v2\0", 16};
constexpr std::string_view kMediaTag{"stemma.media.v2\0", 16};

constexpr size_t kKeyBytes = 32;
// A key ends with the same bytes as its parent, and so as the root key of its scope.
void keep_owner(const uint8_t* parent, ContentKey& key) noexcept {
  constexpr size_t kHashed = kKeyBytes - kOwnerBytes;
  put_bytes(key.bytes.data() + kHashed, parent + kHashed, kOwnerBytes);
}

constexpr size_t kBlockHeader = 16 + 4;
constexpr size_t kMediaMessage = kKeyBytes + 16 + 4 + 4 + 16 + 4 + 4 + 4;
static_assert(kKeyBytes + kBlockHeader + 16 * 4 <= kShortMessage);
static_assert(kMediaMessage <= kShortMessage);

// The message of a block step, padded once and then filled with one block after the other.
class BlockMessage {
 public:
  explicit BlockMessage(size_t word_count) noexcept {
    STEMMA_CHECK(word_count >= 1 && word_count <= kMaxBlockWords);
    uint8_t* to = put_bytes(bytes_ + kKeyBytes, kBlockTag.data(), kBlockTag.size());
    put_le(to, static_cast<uint32_t>(word_count));
    sha_blocks_ = sha256_pad(bytes_, kKeyBytes + kBlockHeader + 4 * word_count);
  }

  void set_parent(const ContentKey& parent) noexcept {
    put_bytes(bytes_, parent.bytes.data(), kKeyBytes);
  }
  void set_word(uint32_t index, uint32_t word) noexcept { put_le(words() + 4 * index, word); }

  // Copies token words and returns their OR, which shows whether any is not a token.
  uint32_t set_tokens(uint32_t first, std::span<const uint32_t> from) noexcept {
    uint32_t any = 0;
    for (const uint32_t word : from) any |= word;
    if constexpr (std::endian::native == std::endian::little) {
      if (!from.empty()) std::memcpy(words() + 4 * first, from.data(), from.size_bytes());
    } else {
      for (size_t i = 0; i < from.size(); ++i) {
        set_word(first + static_cast<uint32_t>(i), from[i]);
      }
    }
    return any;
  }

  void hash_to(ContentKey& key) const noexcept {
    sha256_padded(bytes_, sha_blocks_, key.bytes.data());
    keep_owner(bytes_, key);
  }

 private:
  uint8_t* words() noexcept { return bytes_ + kKeyBytes + kBlockHeader; }

  static constexpr size_t kLongest = kKeyBytes + kBlockHeader + 4 * kMaxBlockWords + 9;
  alignas(64) uint8_t bytes_[(kLongest + kSha256Block - 1) / kSha256Block * kSha256Block];
  size_t sha_blocks_;
};

ContentKey media_step(const ContentKey& parent, const MediaRun& run) noexcept {
  const MediaIdentity& item = *run.identity;
  uint8_t bytes[kMediaMessage];
  uint8_t* to = put_bytes(bytes, parent.bytes.data(), kKeyBytes);
  to = put_bytes(to, kMediaTag.data(), kMediaTag.size());
  const uint8_t kind[4] = {static_cast<uint8_t>(item.kind), item.causal, 0, 0};
  to = put_bytes(to, kind, sizeof kind);
  to = put_le(to, item.length);
  to = put_bytes(to, item.digest.data(), item.digest.size());
  to = put_le(to, run.first_word);
  to = put_le(to, run.offset_in_item);
  put_le(to, run.count);
  ContentKey key{sha256(bytes)};
  keep_owner(bytes, key);
  return key;
}

}  // namespace

ContentKey root_key(const Scope& scope) noexcept {
  uint8_t bytes[kRootTag.size() + kKeyBytes];
  uint8_t* to = put_bytes(bytes, kRootTag.data(), kRootTag.size());
  put_bytes(to, scope.digest().data(), kKeyBytes);
  return {sha256(bytes)};
}

std::span<const MediaRun> media_runs(std::span<const MediaSpan> spans, uint32_t begin,
                                     uint32_t count, std::span<MediaRun> room) noexcept {
  const uint64_t end = uint64_t{begin} + count;
  auto span = std::upper_bound(spans.begin(), spans.end(), begin,
                               [](uint32_t depth, const MediaSpan& s) { return depth < s.end; });
  size_t found = 0;
  for (; span != spans.end() && span->begin < end; ++span) {
    STEMMA_CHECK(found < room.size());
    const uint32_t first = std::max(span->begin, begin);
    const uint32_t last = static_cast<uint32_t>(std::min<uint64_t>(span->end, end));
    room[found++] = {.first_word = first - begin,
                     .count = last - first,
                     .offset_in_item = first - span->begin,
                     .identity = &span->identity};
  }
  return room.first(found);
}

ContentKey block_key(const ContentKey& parent, std::span<const uint32_t> words,
                     std::span<const MediaRun> runs) noexcept {
  BlockMessage message(words.size());
  ContentKey key = parent;
  uint32_t done = 0;
  uint32_t any = 0;
  for (const MediaRun& run : runs) {
    STEMMA_CHECK(run.first_word >= done && run.first_word <= words.size() &&
                 run.count <= words.size() - run.first_word);
    STEMMA_CHECK(uint64_t{run.offset_in_item} + run.count <= run.identity->length);
    any |= message.set_tokens(done, words.subspan(done, run.first_word - done));
    for (uint32_t i = 0; i < run.count; ++i) {
      message.set_word(run.first_word + i, kMediaWord | (run.offset_in_item + i));
    }
    done = run.first_word + run.count;
    key = media_step(key, run);
  }
  any |= message.set_tokens(done, words.subspan(done));
  STEMMA_CHECK(is_token_word(any));
  message.set_parent(key);
  message.hash_to(key);
  return key;
}

void chain_keys(const ContentKey& parent, std::span<const uint32_t> words, uint32_t block_words,
                std::span<ContentKey> keys) noexcept {
  STEMMA_CHECK(words.size() == keys.size() * block_words);
  if (keys.empty()) return;
  BlockMessage message(block_words);
  const ContentKey* previous = &parent;
  for (ContentKey& key : keys) {
    message.set_parent(*previous);
    const uint32_t any = message.set_tokens(0, words.first(block_words));
    STEMMA_CHECK(is_token_word(any));
    message.hash_to(key);
    words = words.subspan(block_words);
    previous = &key;
  }
}

void chain_keys(const ContentKey& parent, std::span<const uint32_t> words,
                std::span<const MediaSpan> media, uint32_t begin, uint32_t block_words,
                std::span<ContentKey> keys) {
  if (media.empty()) {
    chain_keys(parent, words.subspan(begin, keys.size() * block_words), block_words, keys);
    return;
  }
  std::vector<MediaRun> room(block_words);
  const ContentKey* above = &parent;
  for (ContentKey& key : keys) {
    const auto runs = media_runs(media, begin, block_words, room);
    key = block_key(*above, words.subspan(begin, block_words), runs);
    above = &key;
    begin += block_words;
  }
}

}  // namespace key
}  // namespace stemma
