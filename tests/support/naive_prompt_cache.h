// Two simple caches of whole prompts, with mistakes that real systems made.
//
// Tests also run against them: a check that they pass checks nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "stemma/ids.h"

namespace stemma::test {

using PromptTokens = std::vector<Token>;
using PromptBytes = std::vector<uint8_t>;

// Entries have a reference count that starts at one. Finding an entry does not raise it; storing it
// again only raises it. A hit returns the entry's own memory.
class NaiveCountedCache {
 public:
  explicit NaiveCountedCache(size_t most) : most_(most) {}

  struct Hit {
    std::weak_ptr<PromptBytes> bytes;

    bool still_there() const { return !bytes.expired(); }
    // Where the engine decodes on.
    PromptBytes& sequence() const { return *bytes.lock(); }
  };

  void store(const PromptTokens& prompt, const PromptBytes& bytes) {
    const auto known = entries_.find(prompt);
    if (known != entries_.end()) {
      ++known->second.references;
      known->second.used = ++clock_;
      return;
    }
    if (entries_.size() >= most_) evict(1);
    entries_[prompt] = {std::make_shared<PromptBytes>(bytes), 1, ++clock_};
  }
  std::optional<Hit> find(const PromptTokens& prompt) {
    const auto known = entries_.find(prompt);
    if (known == entries_.end()) return std::nullopt;
    known->second.used = ++clock_;
    return Hit{known->second.bytes};
  }
  uint32_t evict(uint32_t n) {
    uint32_t went = 0;
    for (; went < n && !entries_.empty(); ++went) {
      // Unreferenced entries go first, but there are none.
      entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& entry) {
        return std::pair(entry.second.references != 0, entry.second.used);
      }));
    }
    return went;
  }

 private:
  struct Entry {
    std::shared_ptr<PromptBytes> bytes;
    uint32_t references = 0;
    uint64_t used = 0;
  };
  size_t most_;
  uint64_t clock_ = 0;
  std::map<PromptTokens, Entry> entries_;
};

// It guesses sizes from the number of tokens, evicts before it knows whether that makes enough
// room, adds an existing entry again, and does not keep the bytes at all.
class NaiveShellCache {
 public:
  explicit NaiveShellCache(uint64_t budget_bytes) : budget_(budget_bytes) {}

  struct Hit {
    PromptBytes bytes;
    PromptBytes& sequence() { return bytes; }
  };

  void store(const PromptTokens& prompt, const PromptBytes&) {
    const uint64_t size = 4 * prompt.size() + 1024;
    while (used_ + size > budget_ && evict(1) != 0) {
    }
    if (used_ + size > budget_) return;
    entries_[prompt] = {};
    used_ += size;
    recency_.push_back(prompt);
  }
  std::optional<Hit> find(const PromptTokens& prompt) {
    const auto known = entries_.find(prompt);
    return known == entries_.end() ? std::nullopt : std::optional<Hit>(Hit{known->second});
  }
  uint32_t evict(uint32_t n) {
    uint32_t went = 0;
    for (; went < n && !recency_.empty(); ++went) {
      const PromptTokens prompt = recency_.front();
      recency_.erase(recency_.begin());
      if (entries_.erase(prompt) != 0) used_ -= std::min<uint64_t>(used_, 4 * prompt.size() + 1024);
    }
    return went;
  }
  uint64_t bytes() const { return used_; }
  uint64_t entries() const { return entries_.size(); }

 private:
  uint64_t budget_;
  uint64_t used_ = 0;
  std::map<PromptTokens, PromptBytes> entries_;
  std::vector<PromptTokens> recency_;
};

}  // namespace stemma::test
