// The engines of tests about sequences: one for each way in which memory rewinds, is copied and is
// saved.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "support/fake_sequences.h"

namespace stemma::test {

using EngineOptions = FakeSequences::Options;

EngineOptions full_engine();          // Rewinds anywhere, shares, saves segments.
EngineOptions full_split_engine();    // The same, but one context a sequence; copies.
EngineOptions full_state_engine();    // Rewinds anywhere, saves whole states only.
EngineOptions live_engine();          // Rewinds anywhere, neither copies nor saves.
EngineOptions window_engine();        // A window of 16, segments and checkpoints.
EngineOptions window_state_engine();  // A window of 16, whole states only.
EngineOptions hybrid_engine();        // Rewinds nowhere, segments and checkpoints.
EngineOptions hybrid_state_engine();  // Rewinds nowhere, whole states only.
EngineOptions mamba_engine();         // No attention at all: a checkpoint is everything.
EngineOptions bounded_engine();       // Rewinds 4 positions, segments and checkpoints.

struct EngineKind {
  const char* name;
  EngineOptions options;

  bool saves() const { return options.fork != Fork::none; }
  bool copies() const { return options.fork == Fork::shared || options.fork == Fork::copy; }
};

// How gtest shows it.
inline void PrintTo(const EngineKind& kind, std::ostream* out) { *out << kind.name; }
// All engines, by name; `change` is applied to each.
std::vector<EngineKind> every_engine(const std::function<void(EngineOptions&)>& change = {});

}  // namespace stemma::test
