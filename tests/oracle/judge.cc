#include "oracle/judge.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <sstream>

#include "engine/paged/plain.h"
#include "engine/paged/random.h"

namespace stemma::oracle {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

}  // namespace

std::vector<PrefixHash> prefix_hashes(uint32_t adapter, const paged::Text& text) {
  std::vector<PrefixHash> hashes{{adapter + 1, adapter + 2}};
  for (uint32_t p = 0; p < text.size(); ++p) {
    uint64_t word = text.tokens[p];
    bool is_media = false;
    for (const MediaItem& item : text.media) {
      if (p < item.offset || p - item.offset >= item.length) continue;
      uint64_t content[2];
      std::memcpy(content, item.digest.data(), sizeof content);
      if (!is_media) word = ~uint64_t{0};
      is_media = true;
      for (const uint64_t field :
           {content[0], content[1], uint64_t{item.length}, uint64_t{p - item.offset},
            uint64_t{item.causal}, static_cast<uint64_t>(item.kind)}) {
        word = paged::mix(word, field);
      }
    }
    hashes.emplace_back(paged::mix(hashes.back().first, word),
                        paged::mix(hashes.back().second ^ 0x1234'5678, ~word));
  }
  return hashes;
}

void Judge::claim(uint32_t adapter, const paged::Text& text, std::span<const float> logits) {
  claims_.push_back({adapter, text, {logits.begin(), logits.end()}});
}

void Judge::take(Judge&& other) {
  std::move(other.claims_.begin(), other.claims_.end(), std::back_inserter(claims_));
  other.claims_.clear();
}

std::string Judge::verdict() {
  std::sort(claims_.begin(), claims_.end(),
            [](const Claim& a, const Claim& b) { return a.text.size() > b.text.size(); });
  std::string first;
  uint32_t shortest = ~0U;
  for (const Claim& claim : claims_) {
    const std::vector<PrefixHash> hashes = prefix_hashes(claim.adapter, claim.text);
    auto found = known_.find(hashes.back());
    if (found == known_.end()) {
      const double begin = now_seconds();
      const paged::PlainLogits plain = evaluate_plain(*models_[claim.adapter], claim.text);
      plain_seconds_ += now_seconds() - begin;
      plain_tokens_ += claim.text.size();
      for (uint32_t n = 1; n <= claim.text.size(); ++n) {
        const auto values = plain.after(n);
        known_.try_emplace(hashes[n], values.begin(), values.end());
      }
      found = known_.find(hashes.back());
    }
    ++judged_;
    // As many as the model has words, bit by bit.
    if (std::ranges::equal(found->second, claim.logits, {}, bits, bits)) continue;
    ++wrong_;
    // The shortest wrong one is nearest to the cause.
    if (claim.text.size() >= shortest) continue;
    shortest = claim.text.size();
    std::ostringstream out;
    out << "wrong logits after " << claim.text.size() << " positions, adapter " << claim.adapter
        << ", " << claim.text.media.size() << " media items";
    if (claim.logits.size() != found->second.size()) {
      out << "; they are " << claim.logits.size() << ", should be " << found->second.size();
    }
    for (size_t i = 0; i < std::min(claim.logits.size(), found->second.size()); ++i) {
      if (bits(claim.logits[i]) == bits(found->second[i])) continue;
      out << "; logit " << i << " is " << claim.logits[i] << ", should be " << found->second[i];
      break;
    }
    first = out.str();
  }
  claims_.clear();
  return first;
}

}  // namespace stemma::oracle
