// How content keys are made. A chain starts at root_key(scope) and takes one step per block, plus
// one step for each media item that the block shows. Every block of 16 words, and every media step,
// hashes at most 119 bytes: two compressions.
//
// A media item's number in this process never enters a key. Hashed instead are the item's identity,
// its place in the block and the part of the item that is there. The count of words is hashed, so a
// partly filled tail has its own key. The last kOwnerBytes of a key are those of its scope's root
// key: they identify the scope. docs/formats/content-key.md draws the bytes.
// Threading: pure functions. Cost: no allocation; about 85 ns a block of 16 words with
// SHA instructions, 410 ns without.
#pragma once

#include <cstdint>
#include <span>

#include "key/words.h"
#include "stemma/key.h"
#include "stemma/scope.h"

namespace stemma::key {

inline constexpr uint32_t kMaxBlockWords = 1024;
inline constexpr size_t kOwnerBytes = 8;

// Consecutive words of one block that belong to one media item.
struct MediaRun {
  uint32_t first_word = 0;      // Counted from the block's first word.
  uint32_t count = 0;           // At least 1.
  uint32_t offset_in_item = 0;  // Above 0 if the item began in an earlier block.
  const MediaIdentity* identity = nullptr;
};

// The parent of a scope's first block.
ContentKey root_key(const Scope& scope) noexcept;

// The runs of the block of `count` words that starts at depth `begin`, in order. They are written
// to `room`, which must hold `count` runs, and point into `spans` (find_media_spans() made them).
std::span<const MediaRun> media_runs(std::span<const MediaSpan> spans, uint32_t begin,
                                     uint32_t count, std::span<MediaRun> room) noexcept;

// The key of the prefix that ends with these 1 to kMaxBlockWords words.
// Requires: runs ordered and disjoint; every word outside them is a token. Words inside runs are
// ignored.
ContentKey block_key(const ContentKey& parent, std::span<const uint32_t> words,
                     std::span<const MediaRun> runs = {}) noexcept;

// Writes the keys of keys.size() consecutive full blocks of token words: keys[i] is
// block_key(keys[i - 1], block i); the parent of keys[0] is `parent`.
// Requires: words.size() == keys.size() * block_words; only tokens.
void chain_keys(const ContentKey& parent, std::span<const uint32_t> words, uint32_t block_words,
                std::span<ContentKey> keys) noexcept;

// The same, with or without media, for the blocks from position `begin` of a prompt on: keys[0] is
// the key of words[begin, begin + block_words). May throw std::bad_alloc if there are media.
void chain_keys(const ContentKey& parent, std::span<const uint32_t> words,
                std::span<const MediaSpan> media, uint32_t begin, uint32_t block_words,
                std::span<ContentKey> keys);

}  // namespace stemma::key
