// A Situation is the setting of one schedule: an engine, a cache over it, the requests, and the
// faults. All of it follows from the seed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sequences/dice.h"
#include "stemma/sequence.h"
#include "support/fake_sequences.h"

namespace stemma::schedules {

using test::FakeSequences;

// Every mix of capabilities that an engine can have, with sizes left at their defaults.
std::vector<FakeSequences::Options> every_mix();
std::string describe(const FakeSequences::Options& engine);

// What goes wrong in a schedule. held() lies alone: if a call and held() told the same lie, nobody
// could notice.
enum class Faults : uint8_t {
  none,
  calls,  // Any of clear, trim, copy, size, save, load, shift and compute, in any way.
  held,   // held() lies, and forward passes fail.
};

// What a schedule does next, and how often.
enum class Operation : uint8_t {
  begin,    // A request, of any kind.
  advance,  // A turn does what comes next for it: execute, compute up to a stop, finish.
  extend,
  reserve,
  rewind,
  fork,
  shift,
  attach_logits,
  finish,
  abandon,
  destroy,  // A turn is destroyed where it stands.
  drain,
  warm,
  lookup,
  admit,
  misuse,  // Calls in the wrong order or with impossible values.
  end_session,
  drop_scope,
  drop_saved,
  forget_context,
  truncate,
};
inline constexpr uint32_t kOperations = 21;
const char* to_string(Operation operation);

struct Situation {
  uint64_t seed = 0;
  Faults faults = Faults::none;
  FakeSequences::Options engine;
  SequenceOptions cache;  // Its clock is the schedule's.
  uint32_t fault_per_mille = 0;
  std::vector<test::Call> faulty;  // Calls that go wrong.
  std::array<uint32_t, kOperations> weights{};
  uint32_t steps = 300;

  // The requests.
  uint32_t scopes = 2;
  uint32_t session_names = 4;
  uint32_t tenants = 3;
  uint32_t longest_tokens = 100;  // Of a prompt that is to fit.
  uint32_t message_tokens = 20;   // At most.
  uint32_t media_percent = 0;     // Of messages that have an item.
  uint32_t fresh_percent = 20;    // Of requests unlike any earlier one.
  // Turns take more positions than they were promised; then positions promised to others may be
  // gone.
  bool careless = false;
  // Parameters of requests are as callers leave them, mostly: long prefixes get reused.
  bool plain = false;

  static Situation random(uint64_t seed, Faults faults);
  std::string text() const;
  // Whether this engine and cache can reuse anything worth counting.
  bool reuses() const;
};

}  // namespace stemma::schedules
