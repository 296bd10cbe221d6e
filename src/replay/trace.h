// A Trace is the requests of an hour or a day, in memory: when each came, which blocks it asked for,
// and what else is known of it.
//
// A block is a word, numbered from 0 in the order of first appearance, so a trace's own ids may be
// hashes of any 64 bits. Ids are chained: an id stands for its block and all before it, so it follows
// the same id wherever it is; a trace in which it does not is refused, because no cache of prefixes
// could be judged by it. Only whole blocks count, floor(input_tokens / block_tokens) of them.
//
// Invariant:  time never goes back; words of a request are a path of the chain; the word behind a
//             request's last is kEndWord.
// Threading:  a value; loading is one thread at a time.
// Cost:       4 bytes a block reference, 48 a request; loading 3.8 M references takes about 0.2 s.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replay/byte_source.h"
#include "stemma/ids.h"
#include "stemma/retention.h"

namespace stemma::replay {

inline constexpr uint64_t kMostTokens = 0x7FFF'FFFFU;  // Of a prompt, an answer or a block.

struct TraceRequest {
  static constexpr uint32_t kUnknown = 0xFFFF'FFFFU;

  uint64_t time_ns = 0;
  uint64_t first_word = 0;  // In Trace::words.
  uint32_t blocks = 0;
  uint32_t input_tokens = 0;
  // What describes the answer is known when the request ends, not before.
  uint32_t output_tokens = kUnknown;
  uint32_t turn = kUnknown;  // The first is 1.
  uint32_t session = 0;      // Numbered from 1; 0 = the trace does not say.
  FinishReason finish = FinishReason::unknown;
  bool subagent = false;
};

struct Trace {
  static constexpr Token kEndWord = kTokenLimit - 1;  // No block has it.

  std::string name;
  uint32_t block_tokens = 512;
  uint32_t unique_blocks = 0;
  uint32_t sessions = 0;
  uint64_t block_refs = 0;
  std::vector<TraceRequest> requests;
  std::vector<Token> words;

  std::span<const Token> blocks_of(const TraceRequest& request) const noexcept {
    return {words.data() + request.first_word, request.blocks};
  }
  // floor(percent of the unique blocks).
  uint64_t blocks_at_percent(double percent) const noexcept;
  // What a cache without limits finds: every reference to a block but the first.
  double unlimited_ratio() const noexcept {
    return block_refs == 0
               ? 0
               : 1 - static_cast<double>(unique_blocks) / static_cast<double>(block_refs);
  }
};

struct LoadOptions {
  // Lines that cannot be used are left out and counted, instead of ending it.
  bool lenient = false;
  // Tokens in a block of hash_ids; Mooncake's are 512. Files of our own say it themselves.
  uint32_t block_tokens = 512;
  // Told now and then how many lines were read. May be empty.
  std::function<void(uint64_t lines)> progress = {};
};

struct LoadReport {
  uint64_t lines = 0;
  uint64_t skipped = 0;
  std::vector<std::string> first_problems;  // Of what was skipped; a few.
};

// Reads a whole trace: Mooncake's JSON lines, or ours (docs/formats/trace.md). Returns an empty string
// or a sentence that begins with the line's number; `out` is then of no use.
std::string load_trace(ByteSource& source, const LoadOptions& options, Trace& out,
                       LoadReport& report);
// The same from a file; "-" is standard input. The sentence begins with the file's name.
std::string load_trace(const std::string& path, const LoadOptions& options, Trace& out,
                       LoadReport& report);

// The trace in our own format, as text.
std::string write_trace(const Trace& trace);

}  // namespace stemma::replay
