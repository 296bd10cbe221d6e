#include "sequence/stops.h"

#include <algorithm>
#include <bit>

namespace stemma::sequence {
namespace {

// If the same prompt comes again, a stop this close before its end serves it: fewer than this many
// tokens more are computed.
constexpr uint32_t kNearEnd = 4;
// Prompts that part this few tokens behind a message's end really part there: the rest is equal by
// chance.
constexpr uint32_t kByChance = 16;
constexpr uint32_t kLeastInterval = 256;
constexpr uint32_t kIntervals = 8;          // Intervals per prompt.
constexpr uint32_t kShareOfComputing = 64;  // Saving takes at most the 64th part of the time.

class Chooser {
 public:
  Chooser(const Text& text, const StopInput& input) : text_(text), in_(input) {
    for (const uint32_t end : in_.message_ends) {
      const uint32_t depth = text_.floor(end);
      if (depth < in_.least_tokens || depth >= text_.length()) continue;
      if (ends_.empty() || ends_.back() != depth) ends_.push_back(depth);
    }
  }

  std::vector<uint32_t> choose() {
    if (in_.marks == 0) return {};
    most_ = in_.marks - 1;  // One is kept for the end of the prompt.
    add(parting());
    // First where most others part, then where this conversation continues.
    const auto first = std::ranges::lower_bound(ends_, in_.available + in_.gap_tokens);
    if (first != ends_.end()) add(*first);
    if (!ends_.empty()) add(ends_.back());
    add_intervals();
    for (auto end = ends_.rbegin(); end != ends_.rend(); ++end) add(*end);
    // The end of the prompt, unless a stop just before it serves a repeated prompt nearly as well.
    const bool near = !stops_.empty() && stops_.back() + kNearEnd > in_.terminal;
    if (!near && in_.terminal > in_.available) insert(in_.terminal);
    return stops_;
  }

 private:
  uint32_t parting() const {
    const uint32_t depth = text_.floor(in_.parting);
    for (const uint32_t end : ends_) {
      if (end <= depth && depth - end < kByChance) return end;
    }
    return depth;
  }

  bool allowed(uint32_t depth) const {
    if (depth < in_.least_tokens || depth >= text_.length() || depth <= in_.available) return false;
    if (depth - in_.available < in_.gap_tokens) return false;
    return std::ranges::none_of(stops_, [&](uint32_t stop) {
      return (stop > depth ? stop - depth : depth - stop) < in_.gap_tokens;
    });
  }

  void add(uint32_t depth) {
    if (stops_.size() < most_ && allowed(depth)) insert(depth);
  }
  void insert(uint32_t depth) {
    const auto at = std::ranges::lower_bound(stops_, depth);
    if (at == stops_.end() || *at != depth) stops_.insert(at, depth);
  }

  // Every second one first, and so on: if only some are kept, they are evenly spread.
  void add_intervals() {
    if (in_.interval_tokens == 0) return;
    const uint64_t last = text_.length() / in_.interval_tokens;
    for (uint64_t step = std::bit_floor(last); step != 0 && stops_.size() < most_; step /= 2) {
      for (uint64_t k = step; k <= last && stops_.size() < most_; k += 2 * step) {
        add(place(static_cast<uint32_t>(k * in_.interval_tokens)));
      }
    }
  }

  // The place of the stop for a multiple of the interval.
  uint32_t place(uint32_t depth) const {
    if (!in_.exact_intervals) {
      const uint32_t half = in_.interval_tokens / 2;
      const auto end = std::ranges::lower_bound(ends_, depth);
      if (end != ends_.begin() && depth - *(end - 1) < half) return *(end - 1);
      if (end != ends_.end() && *end - depth < half) return *end;
    }
    return text_.floor(depth);
  }

  const Text& text_;
  const StopInput& in_;
  std::vector<uint32_t> ends_;  // The ends of messages that are worth a stop.
  std::vector<uint32_t> stops_;
  uint32_t most_ = 0;
};

}  // namespace

std::vector<uint32_t> choose_stops(const Text& text, const StopInput& input) {
  return Chooser(text, input).choose();
}

uint32_t natural_interval(uint32_t prompt_tokens, uint64_t saving_ns, uint64_t token_ns) noexcept {
  constexpr uint32_t kMost = 1U << 30U;
  uint32_t interval = kLeastInterval;
  while (interval < kMost && (interval < prompt_tokens / kIntervals ||
                              interval * token_ns / kShareOfComputing < saving_ns)) {
    interval *= 2;
  }
  return interval;
}

void WindowSlack::learn(const EngineTraits& traits, Held before, Held after,
                        uint32_t from) noexcept {
  // A few tokens push little out of the window.
  if (!after.whole || after.end < from + kLeastChunk) return;
  const uint64_t needed = uint64_t{after.begin} + traits.rewind_tokens;
  const auto slack = static_cast<uint32_t>(after.end - std::min<uint64_t>(after.end, needed));
  if (after.begin <= before.begin) {
    // Nothing was pushed out, so the slack is at least this much.
    slack_ = std::max(slack_, slack);
    return;
  }
  // A smaller slack counts at once, so that no second stop is missed.
  slack_ = slack > slack_ && slack_ != 0 ? slack_ + (slack - slack_) / 2 : slack;
}

}  // namespace stemma::sequence
