#include "oracle/author.h"

#include <algorithm>

namespace stemma::oracle {
namespace {

constexpr Token kPlaceholder = 7;  // Under every picture: it proves nothing.

}  // namespace

Author::Author(const Options& options) : options_(options), random_(options.seed) {
  paged::Random family(options.family_seed);
  for (uint32_t i = family.between(2, 3); i > 0; --i) {
    paged::Text text;
    while (text.size() < 16) append(text, piece(family, 12));
    systems_.push_back(std::move(text));
  }
  for (uint32_t i = family.between(3, 6); i > 0; --i) {
    paged::Text text = piece(family, 8);
    // Some turns begin like another one and part in the middle.
    if (!turns_.empty() && family.chance(40)) {
      text = turns_.back();
      cut(text, family.below(text.size()) + 1);
      append(text, piece(family, 4));
    }
    turns_.push_back(std::move(text));
  }
}

paged::Text Author::piece(paged::Random& random, uint32_t longest) const {
  paged::Text text;
  for (uint32_t i = random.between(1, longest); i > 0; --i) {
    text.tokens.push_back(random.below(250));
  }
  if (!options_.media || !random.chance(35)) return text;
  MediaItem item;
  item.kind = static_cast<MediaKind>(random.between(1, 3));
  item.digest.fill(static_cast<uint8_t>(random.below(3)));
  item.length = random.between(1, 6);
  item.offset = text.size();
  item.causal = random.chance(30);
  text.tokens.resize(text.size() + item.length, kPlaceholder);
  text.media.push_back(item);
  if (item.length > 2 && random.chance(15)) {  // Another one over its second half.
    item.offset += item.length / 2;
    item.length -= item.length / 2;
    item.kind = MediaKind::audio;
    text.media.push_back(item);
  }
  return text;
}

void Author::append(paged::Text& text, const paged::Text& more) const {
  for (MediaItem item : more.media) {
    item.offset += text.size();
    text.media.push_back(item);
  }
  text.tokens.insert(text.tokens.end(), more.tokens.begin(), more.tokens.end());
}

void Author::cut(paged::Text& text, uint32_t n) const {
  n = std::min(paged::unit_ceiling(text, n), text.size());
  text.tokens.resize(n);
  std::erase_if(text.media, [&](const MediaItem& item) { return item.offset >= n; });
}

void Author::exchange(paged::Text& text, size_t index) {
  MediaItem& item = text.media[index];
  switch (random_.below(5)) {
    case 0: item.digest.fill(static_cast<uint8_t>(random_.below(3))); return;
    case 1: item.digest.back() = static_cast<uint8_t>(random_.below(3)); return;
    case 2: item.kind = static_cast<MediaKind>(random_.between(1, 3)); return;
    case 3: item.causal = !item.causal; return;
    default: break;
  }
  // One position longer; what follows moves.
  const uint32_t end = item.offset + item.length++;
  text.tokens.insert(text.tokens.begin() + end, kPlaceholder);
  for (MediaItem& other : text.media) {
    if (other.offset >= end) ++other.offset;
  }
}

paged::Text Author::beginning() {
  if (written_.empty()) return systems_.front();
  paged::Text text = written_[random_.below(static_cast<uint32_t>(written_.size()))];
  cut(text, random_.below(text.size()) + 1);
  return text;
}

paged::Text Author::write() {
  paged::Text text;
  const uint32_t how = random_.below(100);
  if (how < 40 && !finished_.empty()) {
    text = finished_[random_.below(static_cast<uint32_t>(finished_.size()))];
    append(text, turns_[random_.below(static_cast<uint32_t>(turns_.size()))]);
  } else if (how < 65 && !written_.empty()) {
    text = written_[random_.below(static_cast<uint32_t>(written_.size()))];
    // The same words around another picture.
    for (size_t i = 0; i < text.media.size(); ++i) {
      if (random_.chance(40)) exchange(text, i);
    }
  } else if (how < 75) {
    text = beginning();
    append(text, piece(random_, 6));
  } else if (how < 77) {
    text = piece(random_, 20);
  }
  if (text.size() == 0 || text.size() > options_.longest_tokens) {
    text = systems_[random_.below(static_cast<uint32_t>(systems_.size()))];
    for (uint32_t i = random_.below(3); i > 0; --i) {
      append(text, turns_[random_.below(static_cast<uint32_t>(turns_.size()))]);
    }
    cut(text, options_.longest_tokens);
  }
  written_.push_back(text);
  if (written_.size() > 12) written_.pop_front();
  return text;
}

void Author::remember(const paged::Text& text) {
  finished_.push_back(text);
  if (finished_.size() > 12) finished_.pop_front();
}

}  // namespace stemma::oracle
