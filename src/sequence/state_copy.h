// Saving and loading of states and checkpoints through a buffer that the device's driver has
// pinned.
//
// A device copies from and to pinned memory about five times as fast as from and to other memory.
// The memory that keeps states is not pinned. So a large state goes through a buffer of the
// RangeMover, and the mover's threads copy between the two. States that are small or get no buffer,
// and engines without a mover, go the direct way.
//
// Threading:  as the engine's calls. Waits for the mover's threads.
// Cost:       one more copy, by all threads; nothing is allocated but a closure.
#pragma once

#include <cstdint>
#include <span>

#include "sequence/range_mover.h"
#include "stemma/result.h"
#include "stemma/sequence_engine.h"

namespace stemma::sequence {

// As SequenceEngine::save(). `mover` may be null. Error: also corrupt (the engine did not write
// what it claims).
Result<uint64_t> save_state(RangeMover* mover, SequenceEngine& engine, SequenceId id, Part part,
                            Range range, std::span<uint8_t> out);

// As SequenceEngine::load() of all of a state's positions. `mover` may be null.
Result<void> load_state(RangeMover* mover, SequenceEngine& engine, SequenceId id, Part part,
                        Range range, std::span<const uint8_t> bytes);

}  // namespace stemma::sequence
