#include "cache/counters.h"

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

Counters::Slice& Counters::slice(uint64_t now_ns) noexcept {
  const uint64_t number = now_ns / slice_ns_;
  Slice& s = slices_[number % kSlices];
  if (s.number != number) s = {number, {}};
  return s;
}

void Counters::count(const Report& report, uint64_t now_ns) noexcept {
  Counts one;
  one.lookups = 1;
  one.outcomes[static_cast<uint32_t>(report.outcome)] = 1;
  one.reasons[static_cast<uint32_t>(report.reason)] = 1;
  one.queried_tokens = report.prompt_tokens;
  one.reused_tokens = report.reused_tokens;
  one.copied_tokens = report.copied_tokens;
  add(total_, one);
  add(slice(now_ns).counts, one);
  ++match_tokens_[histogram_bucket(report.matched_tokens)];
}

void Counters::add_computed(uint64_t tokens, uint64_t now_ns) noexcept {
  total_.computed_tokens += tokens;
  slice(now_ns).counts.computed_tokens += tokens;
}

Counts Counters::window(uint64_t now_ns) const noexcept {
  const uint64_t newest = now_ns / slice_ns_;
  Counts sum;
  for (const Slice& s : slices_) {
    if (s.number <= newest && newest - s.number < kSlices) add(sum, s.counts);
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
