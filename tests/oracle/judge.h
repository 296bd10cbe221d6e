// A Judge compares logits that an engine sampled from with those of the model without a cache.
//
// Expectations are collected while engines run and judged afterwards, longest text first: one plain
// evaluation answers for every beginning of its text, so most answers are there already.
// Threading: one thread at a time; take() joins what several threads have collected.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/paged/model.h"

namespace stemma::oracle {

// The identity of each beginning of a text under an adapter: hashes[n] is that of n positions.
using PrefixHash = std::pair<uint64_t, uint64_t>;
std::vector<PrefixHash> prefix_hashes(uint32_t adapter, const paged::Text& text);

class Judge {
 public:
  explicit Judge(std::vector<const paged::Model*> models) : models_(std::move(models)) {}

  // The engine claims that these are the logits after all of `text`.
  void claim(uint32_t adapter, const paged::Text& text, std::span<const float> logits);
  void take(Judge&& other);

  // Judges all claims since the last call. Returns "" or the first mistake.
  std::string verdict();

  uint64_t claims() const { return judged_; }
  uint64_t wrong() const { return wrong_; }
  uint64_t plain_tokens() const { return plain_tokens_; }
  double plain_seconds() const { return plain_seconds_; }

 private:
  struct Claim {
    uint32_t adapter;
    paged::Text text;
    std::vector<float> logits;
  };
  std::vector<const paged::Model*> models_;  // By adapter.
  std::vector<Claim> claims_;
  std::map<PrefixHash, std::vector<float>> known_;
  uint64_t judged_ = 0;
  uint64_t wrong_ = 0;
  uint64_t plain_tokens_ = 0;
  double plain_seconds_ = 0;
};

}  // namespace stemma::oracle
