#include "server/chat/transcript_tiers.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace stemma::server {

namespace {

// Beyond the end of every prefix, so that a truncation always removes transcripts.
constexpr uint32_t kEnd = 1U << 30U;

}  // namespace

EntryKey TranscriptTiers::entry(const ContentKey& key) const {
  return entry_key(key, EntryKind::transcript, 0, layout_);
}

EntryInfo TranscriptTiers::info(uint64_t bytes) const {
  return {.begin = 0, .end = kEnd, .layout = layout_, .bytes = bytes};
}

tier::LevelMask TranscriptTiers::wanting(const ContentKey& key, tier::Sighting sighting) const {
  tier::LevelMask levels = stack_->wanting(entry(key), sighting);
  // Transcripts are small, and a write-back level would get them only when they leave memory.
  if (sighting == tier::Sighting::computed) {
    levels |= stack_->wanting(entry(key), tier::Sighting::evicted);
  }
  return levels;
}

void TranscriptTiers::store(const ContentKey& key, std::span<const uint8_t> bytes,
                            tier::LevelMask levels) const {
  auto payload = stack_->make_payload(bytes.size());
  if (payload == nullptr) return;
  std::ranges::copy(bytes, payload->span().begin());
  tier::StoreItem item;
  item.key = entry(key);
  item.info = info(bytes.size());
  item.payload = std::move(payload);
  stack_->store(item, levels);
}

void TranscriptTiers::keep(std::span<const ContentKey> names, const Transcript& transcript,
                           tier::Sighting sighting) const {
  if (stack_ == nullptr) return;
  if (const tier::LevelMask levels = wanting(names[0], sighting); levels != 0) {
    const std::vector<uint8_t> bytes = encode_transcript(names[0], names[1], transcript);
    if (bytes.empty()) return;
    store(names[0], bytes, levels);
  }
  for (const ContentKey& name : names.subspan(1)) {
    const tier::LevelMask levels = wanting(name, sighting);
    if (levels != 0) store(name, encode_pointer(names[0]), levels);
  }
}

std::vector<std::optional<std::variant<StoredTranscript, TranscriptPointer>>> TranscriptTiers::read(
    std::span<const ContentKey> keys) const {
  std::vector<std::optional<std::variant<StoredTranscript, TranscriptPointer>>> all(keys.size());
  std::vector<tier::Wanted> wanted;
  for (const ContentKey& key : keys) {
    wanted.push_back({.key = entry(key), .info = info(0), .at_most = kMostTranscriptBytes});
  }
  const std::vector<tier::LevelMask> where = stack_->where(wanted);
  std::vector<size_t> there;
  for (size_t i = 0; i < where.size(); ++i) {
    if (where[i] != 0) there.push_back(i);
  }
  // Each buffer has room for the largest transcript, so not all are loaded at once.
  constexpr size_t kAtOnce = 16;
  const uint64_t until = Clock::monotonic().now_ns() + wait_ns_;
  for (size_t begin = 0; begin < there.size(); begin += kAtOnce) {
    const size_t end = std::min(there.size(), begin + kAtOnce);
    std::vector<tier::Wanted> some;
    std::vector<tier::LevelMask> levels;
    for (size_t i = begin; i < end; ++i) {
      some.push_back(wanted[there[i]]);
      levels.push_back(where[there[i]]);
    }
    const uint64_t now = Clock::monotonic().now_ns();
    if (now >= until) break;
    const std::vector<tier::Loaded> loaded = stack_->load(some, levels, until - now);
    for (size_t i = begin; i < end; ++i) {
      const tier::Loaded& each = loaded[i - begin];
      if (each.payload != nullptr) all[there[i]] = decode_transcript(each.payload->span());
    }
  }
  return all;
}

std::vector<std::optional<StoredTranscript>> TranscriptTiers::load(
    std::span<const std::vector<ContentKey>> names) const {
  std::vector<std::optional<StoredTranscript>> all(names.size());
  if (stack_ == nullptr) return all;
  std::vector<ContentKey> keys;
  for (const std::vector<ContentKey>& each : names)
    keys.insert(keys.end(), each.begin(), each.end());
  if (keys.empty()) return all;
  auto first = read(keys);
  std::vector<ContentKey> targets;
  std::vector<size_t> owners;  // The owner of each target.
  size_t at = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t n = 0; n < names[i].size(); ++n, ++at) {
      if (!first[at] || all[i] || (!owners.empty() && owners.back() == i)) continue;
      if (auto* stored = std::get_if<StoredTranscript>(&*first[at])) {
        all[i] = std::move(*stored);
      } else {
        targets.push_back(std::get<TranscriptPointer>(*first[at]).to);
        owners.push_back(i);
      }
    }
  }
  if (targets.empty()) return all;
  auto second = read(targets);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (!second[t]) continue;
    if (auto* stored = std::get_if<StoredTranscript>(&*second[t]))
      all[owners[t]] = std::move(*stored);
  }
  return all;
}

}  // namespace stemma::server
