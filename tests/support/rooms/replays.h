// Traces and replays, for tests of src/replay.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "replay/replay.h"
#include "replay/trace.h"

namespace stemma::test {

// The trace that a file with this text is.
inline replay::Trace trace_in(const std::string& text) {
  replay::Trace trace;
  replay::LoadReport report;
  EXPECT_EQ(load_trace(*replay::ByteSource::of(text), {}, trace, report), "");
  return trace;
}

inline replay::ReplayResult replayed(const replay::Trace& trace, const std::string& policy,
                                     uint64_t capacity, bool hints = false) {
  replay::ReplayResult result;
  EXPECT_EQ(replay::replay(trace,
                           {.policy = policy,
                            .capacity_blocks = capacity,
                            .hints = hints,
                            .keep_request_hits = true},
                           result),
            "");
  return result;
}

}  // namespace stemma::test
