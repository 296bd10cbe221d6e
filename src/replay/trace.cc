#include "replay/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>
#include <unordered_map>

#include "replay/chain.h"
#include "replay/trace_line.h"

namespace stemma::replay {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 28U;
constexpr size_t kProblemsKept = 5;

FinishReason finish_of(std::string_view text) {
  if (text == "tool_use" || text == "tool_calls") return FinishReason::tool_use;
  if (text == "end_turn" || text == "stop") return FinishReason::end_turn;
  if (text == "length" || text == "max_tokens") return FinishReason::length;
  if (text == "cancelled") return FinishReason::cancelled;
  return FinishReason::unknown;
}

const char* to_text(FinishReason finish) {
  switch (finish) {
    case FinishReason::tool_use: return "tool_use";
    case FinishReason::end_turn: return "end_turn";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::unknown: break;
  }
  return nullptr;
}

// Puts lines, one after the other, into a trace.
class Builder {
 public:
  Builder(const LoadOptions& options, Trace& trace) : trace_(trace) {
    trace_.block_tokens = options.block_tokens;
  }

  // Returns an empty string, or why the line cannot be used. Such a line is left out, with the
  // numbers of its blocks.
  std::string add(const TraceLine& line, uint64_t number) {
    if (ended_) return "comes after the line that ends the trace: two files in one?";
    if (line.has(TraceLine::kStemmaTrace)) return head(line, number);
    if (ours_ && line.has(TraceLine::kEnd)) return tail(line);
    std::string problem = request(line, number);
    if (ours_ && !problem.empty()) leave_out(line);
    return problem;
  }
  // A line that is not an object.
  void unreadable() {
    if (ours_) lose(kAllOthers);
  }
  // At the end of the file.
  std::string finish() {
    trace_.unique_blocks = chain_.size();
    trace_.sessions = static_cast<uint32_t>(sessions_.size());
    if (ours_ && !ended_) return "the file has no last line with \"end\": it was cut off";
    return {};
  }

 private:
  std::string head(const TraceLine& line, uint64_t number) {
    if (number != 1) {
      ended_ = ours_;  // From here on, block numbers mean other blocks.
      return "begins a trace of its own: two files in one?";
    }
    if (line.version != 1) {
      return "is of version " + std::to_string(line.version) + " of the format; this build reads 1";
    }
    if (line.block_tokens == 0 || line.block_tokens > kMostTokens) {
      return "\"block_tokens\" is missing, or not from 1 to 2147483647";
    }
    trace_.block_tokens = static_cast<uint32_t>(line.block_tokens);
    ours_ = true;
    return {};
  }
  std::string tail(const TraceLine& line) {
    ended_ = true;
    if (line.end == requests_seen_) return {};
    return "ends a trace of " + std::to_string(line.end) + " requests, and there were " +
           std::to_string(requests_seen_) + ": some were lost";
  }

  std::string request(const TraceLine& line, uint64_t number) {
    ++requests_seen_;
    const TraceLine::Field wanted = ours_ ? TraceLine::kPath : TraceLine::kHashIds;
    const char* const missing = !line.has(TraceLine::kTimestamp)     ? "timestamp"
                                : !line.has(TraceLine::kInputLength) ? "input_length"
                                : line.has(wanted)                   ? nullptr
                                : ours_                              ? "path"
                                                                     : "hash_ids";
    if (missing != nullptr) return std::string("has no '") + missing + "'";
    if (line.input_length > kMostTokens) return "'input_length' is more than 2147483647";
    if (line.has(TraceLine::kOutputLength) && line.output_length > kMostTokens) {
      return "'output_length' is more than 2147483647";
    }
    if (line.timestamp_ns < last_ns_) return "time goes back: 'timestamp' is less than before";
    const auto blocks = static_cast<uint32_t>(line.input_length / trace_.block_tokens);
    if (std::string problem =
            ours_ ? follow_path(line, blocks, number) : follow_ids(line, blocks, number);
        !problem.empty()) {
      return problem;
    }
    TraceRequest request;
    request.time_ns = line.timestamp_ns;
    request.first_word = trace_.words.size() - blocks;
    request.blocks = blocks;
    request.input_tokens = static_cast<uint32_t>(line.input_length);
    if (line.has(TraceLine::kOutputLength)) {
      request.output_tokens = static_cast<uint32_t>(line.output_length);
    }
    if (line.has(TraceLine::kTurn)) {
      request.turn = static_cast<uint32_t>(std::min<uint64_t>(line.turn, kMostTokens));
    }
    if (line.has(TraceLine::kSessionId)) request.session = session(line.session_id);
    if (line.has(TraceLine::kFinishReason)) request.finish = finish_of(line.finish_reason);
    request.subagent = line.has(TraceLine::kSubagent) && line.subagent;
    trace_.requests.push_back(request);
    trace_.words.push_back(Trace::kEndWord);
    trace_.block_refs += blocks;
    last_ns_ = line.timestamp_ns;
    return {};
  }

  std::string follow_ids(const TraceLine& line, uint32_t blocks, uint64_t number) {
    const bool too_few = line.ids.size() < blocks;
    if (too_few || line.ids.size() > size_t{blocks} + 1) {
      return std::string(too_few ? "has too few: " : "has too many: ") +
             std::to_string(line.ids.size()) + " ids for " + std::to_string(line.input_length) +
             " tokens in blocks of " + std::to_string(trace_.block_tokens);
    }
    return chain_.follow({line.ids.data(), blocks}, number, trace_.words);
  }
  std::string follow_path(const TraceLine& line, uint32_t blocks, uint64_t number) {
    if (line.ids.size() != 2) return "'path' is not two numbers";
    const uint64_t node = node_of(line.ids[0]);
    if (node == kLost) {
      return "goes on from block " + std::to_string(line.ids[0]) +
             ", which may be of a line that was left out";
    }
    if (node <= chain_.size() && chain_.depth(node) + line.ids[1] != blocks) {
      return "'path' has another number of blocks than 'input_length' says";
    }
    std::string problem = chain_.extend(node, line.ids[1], number, trace_.words);
    if (problem.empty()) numbered_ += line.ids[1];
    return problem;
  }

  // Lines that are left out had blocks, and later lines count them. Block numbers stay known as
  // long as the number of left-out blocks is known.
  void leave_out(const TraceLine& line) {
    if (line.has(TraceLine::kHashIds) && !line.has(TraceLine::kPath)) return;  // Of another trace.
    const bool readable = line.has(TraceLine::kPath) && line.ids.size() == 2;
    if (!readable || !believable(line)) return lose(kAllOthers);
    lose(line.ids[1]);
  }
  // Whether the path can be what was written: as long as the prompt.
  bool believable(const TraceLine& line) const {
    if (!line.has(TraceLine::kInputLength)) return line.ids[1] <= kMostTokens;
    const uint64_t blocks = line.input_length / trace_.block_tokens;
    const uint64_t node = node_of(line.ids[0]);
    if (node == kLost) return line.ids[1] <= std::min(blocks, kMostTokens);
    return node <= chain_.size() && line.ids[1] <= kMostTokens &&
           chain_.depth(node) + line.ids[1] == blocks;
  }
  void lose(uint64_t count) {
    if (count == 0 || (!gaps_.empty() && gaps_.back().end == kAllOthers)) return;
    const uint64_t before = gaps_.empty() ? 0 : gaps_.back().lost;
    if (count == kAllOthers) {
      gaps_.push_back({numbered_, kAllOthers, before});
      return;
    }
    gaps_.push_back({numbered_, numbered_ + count, before + count});
    numbered_ += count;
  }
  // The chain's number for the file's number, or kLost.
  uint64_t node_of(uint64_t number) const {
    const auto after = std::partition_point(gaps_.begin(), gaps_.end(),
                                            [&](const Gap& gap) { return gap.begin < number; });
    if (after == gaps_.begin()) return number;
    const Gap& gap = *(after - 1);
    return number <= gap.end ? kLost : number - gap.lost;
  }
  uint32_t session(std::string_view name) {
    const auto next = static_cast<uint32_t>(sessions_.size() + 1);
    return sessions_.try_emplace(std::string(name), next).first->second;
  }

  static constexpr uint64_t kAllOthers = UINT64_MAX;
  static constexpr uint64_t kLost = UINT64_MAX;
  struct Gap {  // Numbers after `begin`, up to `end`, are lost; `lost` with all gaps before.
    uint64_t begin;
    uint64_t end;
    uint64_t lost;
  };

  Trace& trace_;
  Chain chain_;
  std::vector<Gap> gaps_;
  uint64_t numbered_ = 0;  // Blocks that have a number in the file, as far as that is known.
  std::unordered_map<std::string, uint32_t> sessions_;
  uint64_t last_ns_ = 0;
  uint64_t requests_seen_ = 0;
  bool ours_ = false;
  bool ended_ = false;
};

class Loader {
 public:
  Loader(const LoadOptions& options, Trace& trace, LoadReport& report)
      : options_(options), report_(report), builder_(options, trace) {}

  std::string run(ByteSource& source) {
    std::string buffer;
    bool more = true;
    while (more) {
      more = source.read(buffer);
      if (buffer.size() > kMaxLineBytes && buffer.find('\n') == std::string::npos) {
        return at_line(report_.lines + 1) + "is longer than 256 MiB";
      }
      size_t begin = 0;
      for (;;) {
        const size_t end = buffer.find('\n', begin);
        if (end == std::string::npos) break;
        if (std::string problem = take({buffer.data() + begin, end - begin}); !problem.empty()) {
          return problem;
        }
        begin = end + 1;
      }
      buffer.erase(0, begin);
    }
    if (!source.problem().empty()) {
      const std::string problem =
          "after line " + std::to_string(report_.lines) + " the file " + source.problem();
      if (!options_.lenient) return problem;
      skip(problem);
    } else if (!buffer.empty()) {
      if (std::string problem = take(buffer); !problem.empty()) return problem;
    }
    if (std::string problem = builder_.finish(); !problem.empty()) {
      problem = "after line " + std::to_string(report_.lines) + ": " + problem;
      if (!options_.lenient) return problem;
      skip(problem);
    }
    return {};
  }

 private:
  static std::string at_line(uint64_t line) { return "line " + std::to_string(line) + ": "; }
  void skip(const std::string& problem) {
    ++report_.skipped;
    if (report_.first_problems.size() < kProblemsKept) report_.first_problems.push_back(problem);
  }
  std::string take(std::string_view text) {
    const uint64_t number = ++report_.lines;
    if (number % 1024 == 0 && options_.progress) options_.progress(number);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return {};
    std::string problem = parse_trace_line(text, line_);
    if (problem.empty()) {
      problem = builder_.add(line_, number);
    } else {
      builder_.unreadable();
    }
    if (problem.empty()) return {};
    problem = at_line(number) + problem;
    if (!options_.lenient) return problem;
    skip(problem);
    return {};
  }

  const LoadOptions& options_;
  LoadReport& report_;
  Builder builder_;
  TraceLine line_;
};

}  // namespace

uint64_t Trace::blocks_at_percent(double percent) const noexcept {
  // 0.3 % is not exact as a double: the error must not cost a block.
  return static_cast<uint64_t>(std::floor(percent * unique_blocks / 100.0 + 1e-9));
}

std::string load_trace(ByteSource& source, const LoadOptions& options, Trace& out,
                       LoadReport& report) try {
  out = {};
  report = {};
  if (options.block_tokens == 0) return "a block has at least one token";
  std::string problem = Loader(options, out, report).run(source);
  if (problem.empty() && out.requests.empty()) {
    problem = "no requests are in it";
    if (!report.first_problems.empty()) problem += "; " + report.first_problems.front();
  }
  return problem;
} catch (const std::bad_alloc&) {
  return "line " + std::to_string(report.lines) + ": no memory for more of the trace";
}

std::string load_trace(const std::string& path, const LoadOptions& options, Trace& out,
                       LoadReport& report) {
  const std::string name = path == "-" ? "standard input" : path;
  std::string problem;
  const std::unique_ptr<ByteSource> source = ByteSource::open(path, problem);
  if (source == nullptr) return name + ": " + problem;
  problem = load_trace(*source, options, out, report);
  if (!problem.empty()) return name + ": " + problem;
  const size_t slash = name.rfind('/');
  out.name = slash == std::string::npos ? name : name.substr(slash + 1);
  return {};
}

std::string write_trace(const Trace& trace) {
  std::string out =
      "{\"stemma_trace\":1,\"block_tokens\":" + std::to_string(trace.block_tokens) + "}\n";
  uint32_t known = 0;  // Words are numbered by first appearance: lower numbers are old.
  const auto field = [&](const char* name, uint64_t value) {
    out += std::string(",\"") + name + "\":" + std::to_string(value);
  };
  for (const TraceRequest& request : trace.requests) {
    const std::span<const Token> blocks = trace.blocks_of(request);
    const auto old =
        static_cast<size_t>(std::partition_point(blocks.begin(), blocks.end(),
                                                 [&](Token word) { return word < known; }) -
                            blocks.begin());
    const uint64_t fresh = blocks.size() - old;
    char time[32];
    const uint64_t fraction = request.time_ns % 1'000'000;
    std::snprintf(time, sizeof time, fraction == 0 ? "%.0f" : "%.6f",
                  static_cast<double>(request.time_ns) / 1e6);
    out += std::string("{\"timestamp\":") + time;
    field("input_length", request.input_tokens);
    if (request.output_tokens != TraceRequest::kUnknown)
      field("output_length", request.output_tokens);
    if (request.session != 0) field("session_id", request.session);
    if (request.turn != TraceRequest::kUnknown) field("turn", request.turn);
    if (const char* finish = to_text(request.finish); finish != nullptr) {
      out += std::string(",\"finish_reason\":\"") + finish + "\"";
    }
    if (request.subagent) out += ",\"subagent\":true";
    out += ",\"path\":[" + std::to_string(old == 0 ? 0 : blocks[old - 1] + uint64_t{1}) + "," +
           std::to_string(fresh) + "]}\n";
    known += static_cast<uint32_t>(fresh);
  }
  out += "{\"end\":" + std::to_string(trace.requests.size()) + "}\n";
  return out;
}

}  // namespace stemma::replay
