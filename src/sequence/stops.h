// Stops: the depths of a prompt at which an engine that cannot rewind freely keeps a checkpoint.
//
// A checkpoint of a recurrent layer can be taken only while the sequence ends exactly there, so a
// stop ends a chunk of the prompt. A chunk of fewer than 64 tokens is expensive: llama.cpp on a CPU
// computes its attention up to 25 times slower per token, and less exactly. So stops keep a
// distance, and where several boundaries lie close together, the one that later prompts need most
// stands for the others.
//
// A sliding window can still be saved a little later. Then a stop ends no chunk, and stops may lie
// closer.
//
// Threading:  pure functions.
// Cost:       O(boundaries * marks).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sequence/lexicon.h"
#include "stemma/sequence_engine.h"

namespace stemma::sequence {

// No chunk is shorter than this because of a stop.
inline constexpr uint32_t kLeastChunk = 64;
// Even stops that end no chunk are at least this far apart: a checkpoint costs a call and its
// bytes.
inline constexpr uint32_t kLeastLateGap = 16;

struct StopInput {
  uint32_t available = 0;  // [0, available) need not be computed.
  // The depth before the last unit: where the same prompt will resume when it comes again.
  uint32_t terminal = 0;
  uint32_t parting = 0;                         // Where the prompt parts from what is known.
  std::span<const uint32_t> message_ends = {};  // Ascending.
  uint32_t least_tokens = 0;                    // Boundaries before it are not worth a checkpoint.
  uint32_t interval_tokens = 0;                 // A stop in each stretch of this length; 0 = none.
  // true: stops lie at exact multiples of the interval. false: the end of a message nearby takes
  // the place of one.
  bool exact_intervals = false;
  uint32_t gap_tokens = kLeastChunk;  // Stops are at least this far apart.
  uint32_t marks = 0;                 // The most stops.
};

// The stops of a prompt, ascending. They lie after `available`, before the prompt's end, and not
// inside a media item. They keep the gap from each other and from `available`. Only `terminal`, the
// last one, need not: what follows the stop before it is short in any case.
std::vector<uint32_t> choose_stops(const Text& text, const StopInput& input);

// The interval for a prompt whose options set none: a power of two, at least 256. About an eighth
// of the prompt at most lies between two stops, and saving takes at most a 64th of the time of
// computing. `saving_ns` is the time to save a checkpoint, `token_ns` to compute a token.
uint32_t natural_interval(uint32_t prompt_tokens, uint64_t saving_ns, uint64_t token_ns) noexcept;

// How many tokens an engine with a window can compute behind a position and still resume there. It
// is learned from what sequences hold after a pass.
//
// Threading:  one thread at a time.
class WindowSlack {
 public:
  // One pass computed [from, after.end) of a sequence. It held `before` then, and holds `after`
  // now.
  void learn(const EngineTraits& traits, Held before, Held after, uint32_t from) noexcept;
  // 0 = nothing is known, or too little to compute a chunk of reasonable length beyond a stop.
  uint32_t tokens() const noexcept { return slack_ >= kLeastChunk ? slack_ : 0; }

 private:
  uint32_t slack_ = 0;
};

}  // namespace stemma::sequence
