#include "cache/books/counters.h"

#include <algorithm>
#include <bit>

namespace stemma {

const char* to_string(Outcome outcome) noexcept {
  constexpr const char* kNames[kOutcomeCount] = {"full_hit", "partial_hit", "miss", "bypassed",
                                                 "refused"};
  const auto i = static_cast<uint32_t>(outcome);
  return i < kOutcomeCount ? kNames[i] : "unknown";
}

const char* to_string(MissReason reason) noexcept {
  constexpr const char* kNames[kMissReasonCount] = {
      "none",       "unknown_scope", "first_use", "too_short", "at_most", "media",
      "group_hole", "no_checkpoint", "no_copy",   "read_off",  "no_room", "gave_up"};
  const auto i = static_cast<uint32_t>(reason);
  return i < kMissReasonCount ? kNames[i] : "unknown";
}

}  // namespace stemma

namespace stemma::cache {
namespace {

void add(Counts& into, const Counts& from) noexcept {
  for (uint32_t i = 0; i < kOutcomeCount; ++i) into.outcomes[i] += from.outcomes[i];
  for (uint32_t i = 0; i < kMissReasonCount; ++i) into.reasons[i] += from.reasons[i];
  into.lookups += from.lookups;
  into.queried_tokens += from.queried_tokens;
  into.reused_tokens += from.reused_tokens;
  into.copied_tokens += from.copied_tokens;
  into.computed_tokens += from.computed_tokens;
}

}  // namespace

uint32_t histogram_bucket(uint64_t value) noexcept {
  return std::min<uint32_t>(static_cast<uint32_t>(std::bit_width(value)), kHistogramBuckets - 1);
}

Counts& Counters::counts(Shard& shard, uint64_t now_ns) noexcept {
  const uint64_t number = now_ns / slice_ns_;
  Slice& s = shard.slices[number % kSlices];
  if (s.number != number) {
    add(shard.past, s.counts);
    s = {number, {}};
  }
  return s.counts;
}

void Counters::count(const Report& report, uint64_t now_ns) noexcept {
  Shard& mine = shard();
  Counts& counted = counts(mine, now_ns);
  ++counted.lookups;
  counted.queried_tokens += report.prompt_tokens;
  counted.reused_tokens += report.reused_tokens;
  counted.copied_tokens += report.copied_tokens;
  ++counted.outcomes[static_cast<uint32_t>(report.outcome)];
  ++counted.reasons[static_cast<uint32_t>(report.reason)];
  ++mine.match_tokens[histogram_bucket(report.matched_tokens)];
}

void Counters::add_computed(uint64_t tokens, uint64_t now_ns) noexcept {
  counts(shard(), now_ns).computed_tokens += tokens;
}

Counts Counters::total() const noexcept {
  Counts sum;
  for (const Shard& shard : shards_) {
    add(sum, shard.past);
    for (const Slice& s : shard.slices) add(sum, s.counts);
  }
  return sum;
}

Counts Counters::window(uint64_t now_ns) const noexcept {
  const uint64_t newest = now_ns / slice_ns_;
  Counts sum;
  for (const Shard& shard : shards_) {
    for (const Slice& s : shard.slices) {
      if (s.number <= newest && newest - s.number < kSlices) add(sum, s.counts);
    }
  }
  return sum;
}

Histogram Counters::match_tokens() const noexcept {
  Histogram sum{};
  for (const Shard& shard : shards_) {
    for (uint32_t i = 0; i < kHistogramBuckets; ++i) sum[i] += shard.match_tokens[i];
  }
  return sum;
}

void Counters::sample_birth(uint32_t birth, uint64_t now_ns) noexcept {
  if (sample_count_ != 0) {
    const Sample& last = samples_[(samples_begin_ + sample_count_ - 1) % kSamples];
    if (birth - last.birth < sample_step_) return;
  }
  if (sample_count_ == kSamples) {
    samples_begin_ = (samples_begin_ + 1) % kSamples;
    --sample_count_;
  }
  samples_[(samples_begin_ + sample_count_++) % kSamples] = {birth, now_ns};
}

void Counters::find_age(uint32_t birth, uint64_t now_ns) noexcept {
  const auto sample = [&](uint32_t i) -> const Sample& {
    return samples_[(samples_begin_ + i) % kSamples];
  };
  uint32_t low = 0;  // Samples before this one are not after `birth`.
  uint32_t high = sample_count_;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (static_cast<int32_t>(sample(middle).birth - birth) <= 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  cached_now_ns_ = now_ns;
  cached_span_ = 0;
  cached_bucket_ = 0;
  if (sample_count_ == 0) return;
  // Older than all samples: at least as old as the oldest.
  const Sample& then = sample(low == 0 ? 0 : low - 1);
  cached_bucket_ = histogram_bucket((now_ns - std::min(then.now_ns, now_ns)) / 1000);
  cached_begin_ = low == 0 ? birth : then.birth;
  cached_span_ = low == 0 ? 1 : (low < sample_count_ ? sample(low).birth - then.birth : 1);
}

}  // namespace stemma::cache
