// Arrivals: the entries of a fetch, as they arrive. Each becomes a part of the fetch once all
// before it are there, because it is useless without them. If parts are useful one by one, they can
// be taken at once; otherwise all appear at the end, in the order in which a cache admits them.
//
// Threading:  the one thread that works on the fetch.
// Ownership:  the fetch and the list of wanted entries must outlive it.
// Cost:       O(1) an entry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/lock.h"
#include "tier/prompt_fetch.h"

namespace stemma::tier {

class Arrivals {
 public:
  Arrivals(PromptFetch& fetch, std::span<const Wanted> wanted, uint32_t depth, bool alone)
      : fetch_(fetch), wanted_(wanted), depth_(depth), alone_(alone), there_(wanted.size()) {}

  void add(size_t index, const Loaded& loaded) {
    there_[index] = loaded;
    if (!alone_ || index != next_) return;
    LoadedParts more;
    for (; next_ < there_.size() && there_[next_].payload != nullptr; ++next_) move(more);
    if (more.parts.empty()) return;  // Later ones are useless without it.
    {
      const base::Lock lock(fetch_.mutex_);
      append(fetch_.loaded_parts_, more);
    }
    if (fetch_.on_part_) fetch_.on_part_();
  }

  // No more will arrive. `needed`: this many are useful only together.
  void end(size_t needed) {
    if (alone_) return;
    LoadedParts all;
    for (; next_ < there_.size() && there_[next_].payload != nullptr; ++next_) move(all);
    if (all.parts.size() != needed) fetch_.loaded_ = 0;
    // A segment before the checkpoint at its end.
    std::ranges::sort(all.parts, {},
                      [](const SavedPart& part) { return std::pair(part.range.end, part.kind); });
    const base::Lock lock(fetch_.mutex_);
    append(fetch_.loaded_parts_, all);
  }

 private:
  void move(LoadedParts& out) {
    Loaded& loaded = there_[next_];
    const Wanted& one = wanted_[next_];
    out.parts.push_back({one.key.kind, {one.info.begin, one.info.end}, loaded.payload->span()});
    fetch_.bytes_ += loaded.payload->size;
    fetch_.level_ = std::max(fetch_.level_, loaded.level);
    fetch_.loaded_ = std::max(fetch_.loaded_, std::min(one.info.end, depth_));
    out.payloads.push_back(std::move(loaded.payload));
  }
  // Appends both or, without memory, neither: every part has its bytes.
  static void append(LoadedParts& to, const LoadedParts& from) {
    to.parts.reserve(to.parts.size() + from.parts.size());
    to.payloads.reserve(to.payloads.size() + from.payloads.size());
    to.parts.insert(to.parts.end(), from.parts.begin(), from.parts.end());
    to.payloads.insert(to.payloads.end(), from.payloads.begin(), from.payloads.end());
  }

  PromptFetch& fetch_;
  const std::span<const Wanted> wanted_;
  const uint32_t depth_;
  const bool alone_;
  std::vector<Loaded> there_;
  size_t next_ = 0;  // The first one not a part yet.
};

}  // namespace stemma::tier
