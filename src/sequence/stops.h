// Stops: the depths of a prompt at which an engine that cannot rewind freely keeps a checkpoint.
//
// A checkpoint of a recurrent layer can be taken only while the sequence ends exactly there, so a stop ends a
// chunk of the prompt. A chunk of fewer than 64 tokens is expensive: llama.cpp on a CPU computes its attention
// up to 25 times slower per token, and less exactly. So stops keep a distance, and where several boundaries lie
// close together, the one that later prompts need most stands for the others.
//
// A sliding window can still be saved a little later. Then a stop ends no chunk, and stops may lie closer.
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
// Stops that end no chunk are still not closer than this: a checkpoint costs a call and its bytes.
inline constexpr uint32_t kLeastLateGap = 16;

struct StopInput {
  uint32_t available = 0;  // [0, available) need not be computed.
  // The depth before the last unit: where a prompt that comes again will resume.
  uint32_t terminal = 0;
  uint32_t parting = 0;                         // Where the prompt parts from what is known.
  std::span<const uint32_t> message_ends = {};  // Ascending.
  uint32_t least_tokens = 0;                    // Boundaries before it are not worth a checkpoint.
  uint32_t interval_tokens = 0;                 // A stop in each stretch of this length; 0 = none.
  // Stops lie at exact multiples of the interval. Otherwise a message that ends nearby takes the place.
  bool exact_intervals = false;
  uint32_t gap_tokens = kLeastChunk;  // Stops are at least this far apart.
  uint32_t marks = 0;                 // There are no more stops than this.
};

// The stops of a prompt, ascending. They lie behind `available`, before the prompt's end, and inside no media
// item. The gap holds between them and behind `available`, but not before `terminal`, the last one: what
// follows the stop before it is short in any case.
std::vector<uint32_t> choose_stops(const Text& text, const StopInput& input);

// The interval for a prompt whose options name none: a power of two, at least 256, so that no more than about
// an eighth of the prompt lies between two stops, and saving takes no more than a 64th of the time of computing.
// `saving_ns` is what saving a checkpoint takes, `token_ns` computing a token.
uint32_t natural_interval(uint32_t prompt_tokens, uint64_t saving_ns, uint64_t token_ns) noexcept;

// How many tokens an engine with a window can compute behind a position and still resume there. It is learned
// from what sequences hold after a pass.
//
// Threading:  one thread at a time.
class WindowSlack {
 public:
  // One pass computed [from, after.end) of a sequence. It held `before` then, and holds `after` now.
  void learn(const EngineTraits& traits, Held before, Held after, uint32_t from) noexcept;
  // 0 = nothing is known, or too little to compute a chunk of reasonable length beyond a stop.
  uint32_t tokens() const noexcept { return slack_ >= kLeastChunk ? slack_ : 0; }

 private:
  uint32_t slack_ = 0;
};

}  // namespace stemma::sequence
