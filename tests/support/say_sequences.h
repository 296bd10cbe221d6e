// The answers of SequenceCache and of its C twin as text; texts are equal if and only if the
// answers are.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "stemma/sequence.h"
#include "support/c_cache.h"

namespace stemma::test {

inline std::string say(const SequenceReport& r) {
  std::ostringstream out;
  out << r.prompt_tokens << ' ' << r.matched_tokens << ' ' << r.reused_tokens << ' '
      << r.evaluated_tokens << ' ' << r.media_to_process << ' ' << r.logits << ' ' << r.failures
      << ' ' << r.victims << ' ' << uint32_t(r.outcome) << ' ' << uint32_t(r.reason) << ' '
      << r.restored_bytes << ' ' << r.saved_bytes << ' ' << r.plan_ns << ' ' << r.execute_ns
      << " |";
  for (const uint32_t n : r.steps) out << ' ' << n;
  return out.str();
}
inline std::string say(const stemma_sequence_report& r) {
  std::ostringstream out;
  out << r.prompt_tokens << ' ' << r.matched_tokens << ' ' << r.reused_tokens << ' '
      << r.evaluated_tokens << ' ' << r.media_to_process << ' ' << r.logits << ' ' << r.failures
      << ' ' << r.victims << ' ' << r.outcome << ' ' << r.reason << ' ' << r.restored_bytes << ' '
      << r.saved_bytes << ' ' << r.plan_ns << ' ' << r.execute_ns << " |";
  for (uint32_t i = 0; i < kStepCount; ++i) out << ' ' << r.steps[i];
  return out.str();
}

// Both kinds of statistics have the same names.
template <class Stats>
std::string say_stats(const Stats& s) {
  std::ostringstream out;
  const auto some = [&](const auto& array, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) out << array[i] << ' ';
    out << "| ";
  };
  out << s.turns << ' ' << s.prompt_tokens << ' ' << s.reused_tokens << ' ' << s.evaluated_tokens
      << " | ";
  some(s.outcomes, kOutcomeCount);
  some(s.reasons, kSequenceMissCount);
  some(s.steps, kStepCount);
  some(s.step_tokens, kStepCount);
  some(s.failures, kStepCount);
  some(s.captures, kCaptureFateCount);
  out << s.quarantined << ' ' << s.victims << ' ' << s.victims_saved << ' ' << s.stale_calls << ' '
      << s.broken << ' ' << s.restored_bytes << ' ' << s.captured_bytes << " | " << s.sequences
      << ' ' << s.free_sequences << ' ' << s.idle_sequences << ' ' << s.leased_sequences << ' '
      << s.broken_sequences << ' ' << s.sessions << ' ' << s.pending << " | " << s.context_tokens
      << ' ' << s.used_tokens << ' ' << s.saved_bytes << ' ' << s.segment_bytes << ' '
      << s.state_bytes << ' ' << s.checkpoint_bytes << ' ' << s.logits_bytes << ' '
      << s.segment_evictions << ' ' << s.state_evictions << ' ' << s.compute_token_ns << ' '
      << s.move_byte_ps << ' ' << s.move_call_ns;
  return out.str();
}

inline std::string stand(const Turn& turn) {
  std::ostringstream out;
  out << say(turn.report()) << " | " << to_index(turn.sequence()) << ' ' << turn.generation() << ' '
      << turn.available() << ' ' << turn.computed() << ' ' << turn.length() << ' '
      << turn.next_stop() << " |";
  for (const uint32_t item : turn.media_to_process()) out << ' ' << item;
  out << " |";
  for (const float value : turn.logits()) out << ' ' << value;
  return out.str();
}
inline std::string stand(stemma_turn turn) {
  std::ostringstream out;
  stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
  stemma_turn_place at{};
  EXPECT_OK(stemma_turn_report(turn, &report));
  EXPECT_OK(stemma_turn_positions(turn, &at));
  out << say(report) << " | " << at.sequence << ' ' << at.generation << ' ' << at.available << ' '
      << at.computed << ' ' << at.length << ' ' << at.next_stop << " |";
  uint32_t items[8];
  size_t count = 0;
  EXPECT_OK(stemma_turn_media_to_process(turn, items, 8, &count));
  for (size_t i = 0; i < count; ++i) out << ' ' << items[i];
  out << " |";
  const float* logits = nullptr;
  EXPECT_OK(stemma_turn_logits(turn, &logits, &count));
  for (size_t i = 0; i < count; ++i) out << ' ' << logits[i];
  return out.str();
}

}  // namespace stemma::test
