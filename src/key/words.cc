#include "key/words.h"

#include <algorithm>
#include <exception>
#include <string_view>

#include "key/little_endian.h"
#include "key/sha256.h"

namespace stemma::key {
namespace {

constexpr std::string_view kMixedTag{"stemma.mixed.v1\0", 16};

bool known(MediaKind kind) noexcept {
  switch (kind) {
    case MediaKind::image:
    case MediaKind::audio:
    case MediaKind::video:
    case MediaKind::other: return true;
  }
  return false;
}

Result<void> check_items(const Prompt& prompt) noexcept {
  const uint64_t positions = prompt.tokens.size();
  if (positions > kMaxPromptPositions) {
    return Error(Errc::out_of_range, "a prompt has at most 2^31 - 1 positions");
  }
  uint32_t previous = 0;
  for (size_t i = 0; i < prompt.media.size(); ++i) {
    const MediaItem& item = prompt.media[i];
    const uint32_t index = static_cast<uint32_t>(i);
    if (!known(item.kind)) {
      return Error(Errc::invalid_argument, "a media item's kind is unknown", index);
    }
    if (item.length == 0) {
      return Error(Errc::invalid_argument, "a media item has no positions", index);
    }
    if (uint64_t{item.offset} + item.length > positions) {
      return Error(Errc::out_of_range, "a media item ends beyond the prompt", index);
    }
    if (item.offset < previous) {
      return Error(Errc::invalid_argument, "media items are not ordered by offset", index);
    }
    previous = item.offset;
  }
  return {};
}

MediaIdentity merge(std::span<const MediaItem> parts, uint32_t begin, uint32_t end) noexcept {
  MediaIdentity merged{.kind = kMixedMedia, .causal = true, .length = end - begin};
  Sha256 hash;
  hash.update({reinterpret_cast<const uint8_t*>(kMixedTag.data()), kMixedTag.size()});
  for (const MediaItem& part : parts) {
    uint8_t bytes[28] = {static_cast<uint8_t>(part.kind), part.causal};
    uint8_t* to = put_bytes(bytes + 4, part.digest.data(), part.digest.size());
    put_le(put_le(to, part.offset - begin), part.length);
    hash.update(bytes);
    merged.causal = merged.causal && part.causal;
  }
  const Digest digest = hash.finish();
  std::copy_n(digest.begin(), merged.digest.size(), merged.digest.begin());
  return merged;
}

template <class Span>
uint32_t floor_in(std::span<const Span> spans, uint32_t n) noexcept {
  // The first span that ends beyond n is the only one that can hold it.
  const auto span = std::upper_bound(spans.begin(), spans.end(), n,
                                     [](uint32_t depth, const Span& s) { return depth < s.end; });
  return span != spans.end() ? std::min(span->begin, n) : n;
}

}  // namespace

Result<void> find_media_spans(const Prompt& prompt, std::vector<MediaSpan>& out) noexcept {
  out.clear();
  STEMMA_TRY_VOID(check_items(prompt));
  const std::span<const MediaItem> items = prompt.media;
  try {
    out.reserve(items.size());
  } catch (const std::exception&) {
    return Error(Errc::out_of_memory, "no memory for a prompt's media items");
  }
  for (size_t first = 0, next; first < items.size(); first = next) {
    const MediaItem& item = items[first];
    const uint32_t begin = item.offset;
    uint32_t end = begin + item.length;
    for (next = first + 1; next < items.size() && items[next].offset < end; ++next) {
      end = std::max(end, items[next].offset + items[next].length);
    }
    const MediaIdentity identity =
        next - first == 1 ? MediaIdentity{item.kind, item.causal, item.length, item.digest}
                          : merge(items.subspan(first, next - first), begin, end);
    out.push_back({begin, end, identity});
  }
  return {};
}

uint32_t floor_to_unit(std::span<const UnitSpan> spans, uint32_t n) noexcept {
  return floor_in(spans, n);
}

uint32_t floor_to_unit(std::span<const MediaSpan> spans, uint32_t n) noexcept {
  return floor_in(spans, n);
}

uint32_t leave_units(std::span<const MediaSpan> spans, uint32_t length, uint32_t units) noexcept {
  uint32_t at = length;
  size_t next = spans.size();
  while (units != 0 && at != 0) {
    if (next != 0 && spans[next - 1].end == at) {
      at = spans[--next].begin;
      --units;
      continue;
    }
    // Plain tokens down to the end of the previous item, or as many as were asked for.
    const uint32_t stop = next == 0 ? 0 : spans[next - 1].end;
    const uint32_t step = std::min(units, at - stop);
    at -= step;
    units -= step;
  }
  return at;
}

bool all_tokens_valid(std::span<const Token> tokens) noexcept {
  // No early exit: a plain OR is what the compiler turns into vector code.
  Token any = 0;
  for (const Token token : tokens) any |= token;
  return any < kTokenLimit;
}

std::optional<uint32_t> first_bad_token(std::span<const Token> tokens,
                                        std::span<const MediaSpan> media) noexcept {
  auto unit = media.begin();
  for (size_t i = 0; i < tokens.size(); ++i) {
    while (unit != media.end() && unit->end <= i) ++unit;
    const bool placeholder = unit != media.end() && unit->begin <= i;
    if (tokens[i] >= kTokenLimit && !placeholder) return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

}  // namespace stemma::key
