// Media items as nobody should send them: any offsets, lengths, kinds and orders, alone through
// find_media_spans() and in prompts through lookup and lease.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "input.h"
#include "key/words.h"
#include "stemma/cache.h"

namespace stemma::fuzz {
namespace {

struct Text {
  std::vector<Token> tokens;
  std::vector<MediaItem> media;
  Prompt view() const { return {tokens, media}; }
};

Text read_text(Input& in) {
  Text text;
  text.tokens.resize(in.below(64));
  const uint32_t pattern = in.below(8);
  for (size_t i = 0; i < text.tokens.size(); ++i) text.tokens[i] = pattern == 7 ? in.u32() : i % 3;
  const uint32_t items = in.below(7);
  const bool tame = in.below(4) != 0;  // In order and inside the prompt, most of the time.
  uint32_t at = 0;
  for (uint32_t i = 0; i < items; ++i) {
    MediaItem item;
    item.kind = MediaKind{static_cast<uint8_t>(tame ? 1 + in.below(4) : in.u8())};
    item.digest.fill(static_cast<uint8_t>(in.below(3)));
    item.causal = in.below(2) != 0;
    at += in.below(10);
    item.offset = tame ? at : in.number();
    item.length = tame ? 1 + in.below(12) : in.number();
    if (tame && uint64_t{item.offset} + item.length > text.tokens.size()) break;
    text.media.push_back(item);
  }
  return text;
}

// Which positions go together, by the plainest rule there is.
std::vector<uint32_t> units_of(const Text& text) {
  std::vector<uint32_t> first(text.tokens.size());  // The first position of the unit at i.
  for (uint32_t i = 0; i < first.size(); ++i) first[i] = i;
  for (uint32_t round = 0; round < text.media.size(); ++round) {
    for (const MediaItem& item : text.media) {
      uint32_t low = item.offset;
      for (uint32_t i = 0; i < item.length; ++i) low = std::min(low, first[item.offset + i]);
      for (uint32_t i = 0; i < item.length; ++i) first[item.offset + i] = low;
    }
  }
  return first;
}

bool check_spans(const Text& text) {
  std::vector<key::MediaSpan> spans;
  const Result<void> found = key::find_media_spans(text.view(), spans);
  bool good = true;
  uint32_t last = 0;
  for (const MediaItem& item : text.media) {
    good = good && item.length != 0 && item.offset >= last &&
           static_cast<uint8_t>(item.kind) >= 1 && static_cast<uint8_t>(item.kind) <= 4 &&
           uint64_t{item.offset} + item.length <= text.tokens.size();
    last = item.offset;
  }
  FUZZ_EXPECT(found.has_value() == good);
  if (!good) {
    FUZZ_EXPECT(spans.empty() && found.error().value() < text.media.size());
    return false;
  }
  const std::vector<uint32_t> first = units_of(text);
  uint32_t end = 0;
  for (const key::MediaSpan& span : spans) {
    FUZZ_EXPECT(span.begin >= end && span.begin < span.end);
    FUZZ_EXPECT(span.identity.length == span.end - span.begin);
    for (uint32_t i = span.begin; i < span.end; ++i) FUZZ_EXPECT(first[i] == span.begin);
    FUZZ_EXPECT(span.end == first.size() || first[span.end] == span.end);
    end = span.end;
  }
  for (uint32_t n = 0; n <= first.size(); ++n) {
    const uint32_t floor = key::floor_to_unit(std::span<const key::MediaSpan>(spans), n);
    FUZZ_EXPECT(floor == (n == first.size() ? n : first[n]));
  }
  return true;
}

void run(Input& in) {
  Options options;
  options.groups = {{.block_tokens = 1U << in.below(4), .capacity_blocks = 64}};
  if (in.below(2) != 0) {
    options.groups.push_back({.attention = Attention::window,
                              .block_tokens = 8,
                              .capacity_blocks = 32,
                              .window_tokens = 5});
  }
  options.content_keys = in.below(2) != 0;
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = Scope::from_digest({});
  std::vector<Text> seen;
  for (uint32_t round = 0; round < 12 && !in.empty(); ++round) {
    Text text = in.below(3) == 0 && !seen.empty() ? seen[in.u8() % seen.size()] : read_text(in);
    const bool good = check_spans(text);
    const Result<Report> report = cache.lookup(scope, text.view());
    // When room is short a lease may do without a part-block.
    const Result<Report> whole = cache.lookup(scope, text.view(), {.allow_copy = false});
    const uint32_t in_place = whole ? whole->reused_tokens : 0;
    Result<Lease> lease = cache.lease(scope, text.view());
    if (!good) FUZZ_EXPECT(!report && !lease);
    FUZZ_EXPECT(!lease || report.has_value());
    if (!lease) continue;
    const std::vector<uint32_t> first = units_of(text);
    const uint32_t n = lease->reused();
    // With more groups, which of several equal part-blocks serves depends on the items' numbers.
    if (options.groups.size() == 1) FUZZ_EXPECT(n <= report->reused_tokens && n >= in_place);
    FUZZ_EXPECT(n == 0 || (n < first.size() && first[n] == n));
    for (uint32_t item : lease->media_to_process()) {
      FUZZ_EXPECT(text.media[item].offset + text.media[item].length > n);
    }
    if (!lease->copies().empty()) FUZZ_EXPECT(lease->copies_done().has_value());
    // Stop anywhere, also inside an item.
    const uint32_t end =
        in.below(2) == 0 ? lease->length() : std::min(lease->length(), n + in.below(64));
    FUZZ_EXPECT(lease->commit(end).has_value());
    FUZZ_EXPECT(lease->release().has_value());
    cache.check_invariants();
    if (end == text.tokens.size() && options.groups.size() == 1) {
      // All of it is found again, but for the last unit.
      const uint32_t all = text.tokens.empty() ? 0 : first.back();
      FUZZ_EXPECT(cache.lookup(scope, text.view())->reused_tokens == all);
    }
    seen.push_back(std::move(text));
  }
  const std::vector<uint8_t> dump = cache.dump();
  PagedCache twin = *PagedCache::create(options);
  FUZZ_EXPECT(twin.load(dump).has_value());
  twin.check_invariants();
  // Words are found alike. With more groups, which of several equal part-blocks serves may change.
  for (const Text& text : seen) {
    const Report here = *cache.lookup(scope, text.view());
    const Report there = *twin.lookup(scope, text.view());
    FUZZ_EXPECT(here.matched_tokens == there.matched_tokens);
    if (options.groups.size() == 1) FUZZ_EXPECT(here.reused_tokens == there.reused_tokens);
  }
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::Input in(data, size);
  stemma::fuzz::run(in);
  return 0;
}
