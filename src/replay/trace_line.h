// One line of a trace: a flat JSON object, read without building a tree.
//
// Unknown fields are skipped, whatever they hold. A known field that appears twice or has the wrong
// type is an error, described for the author of the file. docs/formats/trace.md has the fields.
// Threading: pure functions.
// Cost: a few nanoseconds an id; no allocation once `out.ids` has grown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::replay {

struct TraceLine {
  enum Field : uint32_t {
    kTimestamp = 1U << 0U,
    kInputLength = 1U << 1U,
    kHashIds = 1U << 2U,
    kOutputLength = 1U << 3U,
    kSessionId = 1U << 4U,
    kTurn = 1U << 5U,
    kFinishReason = 1U << 6U,
    kSubagent = 1U << 7U,
    kPath = 1U << 8U,         // Ours, in place of hash_ids.
    kStemmaTrace = 1U << 9U,  // Ours, on the first line: the version.
    kBlockTokens = 1U << 10U,
    kEnd = 1U << 11U,  // Ours, on the last line: the number of requests.
  };
  uint32_t fields = 0;  // The Field bits that the line has; null counts as absent.
  uint64_t timestamp_ns = 0;
  uint64_t input_length = 0;
  uint64_t output_length = 0;
  uint64_t turn = 0;
  uint64_t version = 0;
  uint64_t block_tokens = 0;
  uint64_t end = 0;
  bool subagent = false;
  std::string_view session_id;     // A string as in the line, with its escapes; or a number.
  std::string_view finish_reason;  // The same.
  std::vector<uint64_t> ids;       // hash_ids, or the two numbers of path.

  bool has(Field field) const noexcept { return (fields & field) != 0; }
};

// Views in `out` live as long as `line` does. Returns an empty string, or what is wrong with the
// line.
std::string parse_trace_line(std::string_view line, TraceLine& out);

}  // namespace stemma::replay
