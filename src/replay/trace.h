// A Trace is the requests of an hour or a day, in memory: when each arrived, which blocks it uses,
// and what else is known about it.
//
// A block is a word, numbered from 0 in the order of first appearance, so a trace's own ids may be
// any 64-bit hashes. Ids are chained: an id stands for its block and all blocks before it, so it
// always follows the same id. Other traces are refused, because no prefix cache could be judged by
// them. Only whole blocks count, floor(input_tokens / block_tokens) of them.
//
// Invariant:  time never goes back; a request's words are a path of the chain; the word after a
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

inline constexpr uint64_t kMostTokens = 0x7FFF'FFFFU;  // In a prompt, an answer or a block.

struct TraceRequest {
  static constexpr uint32_t kUnknown = 0xFFFF'FFFFU;

  uint64_t time_ns = 0;
  uint64_t first_word = 0;  // In Trace::words.
  uint32_t blocks = 0;
  uint32_t input_tokens = 0;
  // Fields about the answer are known only when the request ends.
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
  // The hit ratio of a cache without limits: every reference to a block hits except the first.
  double unlimited_ratio() const noexcept {
    return block_refs == 0
               ? 0
               : 1 - static_cast<double>(unique_blocks) / static_cast<double>(block_refs);
  }
};

struct LoadOptions {
  // Skips and counts unusable lines instead of failing.
  bool lenient = false;
  // Tokens per block of hash_ids; Mooncake's have 512. Files in our own format state it.
  uint32_t block_tokens = 512;
  // Called now and then with the number of lines read. May be empty.
  std::function<void(uint64_t lines)> progress = {};
};

struct LoadReport {
  uint64_t lines = 0;
  uint64_t skipped = 0;
  std::vector<std::string> first_problems;  // Of skipped lines; a few.
};

// Reads a whole trace: Mooncake's JSON lines, or ours (docs/formats/trace.md). Returns an empty
// string, or an error sentence that begins with the line's number; then `out` must not be used.
std::string load_trace(ByteSource& source, const LoadOptions& options, Trace& out,
                       LoadReport& report);
// The same from a file; "-" is standard input. The error begins with the file's name.
std::string load_trace(const std::string& path, const LoadOptions& options, Trace& out,
                       LoadReport& report);

// The trace in our own format, as text.
std::string write_trace(const Trace& trace);

}  // namespace stemma::replay
