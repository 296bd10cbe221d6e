#include "replay/trace_line.h"

#include <charconv>
#include <cmath>

namespace stemma::replay {
namespace {

constexpr uint32_t kMaxNesting = 64;

struct Name {
  std::string_view text;
  TraceLine::Field field;
};
constexpr Name kNames[] = {
    {"timestamp", TraceLine::kTimestamp},
    {"input_length", TraceLine::kInputLength},
    {"hash_ids", TraceLine::kHashIds},
    {"output_length", TraceLine::kOutputLength},
    {"session_id", TraceLine::kSessionId},
    {"turn", TraceLine::kTurn},
    {"finish_reason", TraceLine::kFinishReason},
    {"subagent", TraceLine::kSubagent},
    {"path", TraceLine::kPath},
    {"stemma_trace", TraceLine::kStemmaTrace},
    {"block_tokens", TraceLine::kBlockTokens},
    {"end", TraceLine::kEnd},
};

class Parser {
 public:
  Parser(std::string_view line, TraceLine& out)
      : at_(line.data()), end_(line.data() + line.size()), out_(out) {}

  std::string run() {
    out_.fields = 0;
    out_.ids.clear();
    skip_space();
    if (!take('{')) return "is no JSON object";
    skip_space();
    if (take('}')) return rest();
    do {
      skip_space();
      std::string_view name;
      if (!string(name)) return ended("a field's name is missing");
      skip_space();
      if (!take(':')) return ended("':' is missing behind a field's name");
      skip_space();
      if (std::string problem = member(name); !problem.empty()) return problem;
      skip_space();
    } while (take(','));
    if (!take('}')) return ended("',' or '}' is missing behind a value");
    return rest();
  }

 private:
  std::string rest() {
    skip_space();
    return at_ == end_ ? std::string() : "something follows the object";
  }
  std::string ended(const char* otherwise) const {
    return at_ == end_ ? "ends in the middle" : otherwise;
  }
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (static_cast<size_t>(end_ - at_) < word.size()) return false;
    if (std::string_view(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string member(std::string_view name) {
    TraceLine::Field field{};
    for (const Name& known : kNames) {
      if (known.text == name) field = known.field;
    }
    if (field == TraceLine::Field{}) return skip_value(0) ? std::string() : broken(name);
    if ((seen_ & field) != 0) return "'" + std::string(name) + "' is there twice";
    seen_ |= field;
    if (take("null")) return {};
    out_.fields |= field;
    switch (field) {
      case TraceLine::kTimestamp: return milliseconds(name);
      case TraceLine::kInputLength: return whole(name, out_.input_length);
      case TraceLine::kOutputLength: return whole(name, out_.output_length);
      case TraceLine::kTurn: return whole(name, out_.turn);
      case TraceLine::kStemmaTrace: return whole(name, out_.version);
      case TraceLine::kBlockTokens: return whole(name, out_.block_tokens);
      case TraceLine::kEnd: return whole(name, out_.end);
      case TraceLine::kSessionId: return text_or_number(name, out_.session_id);
      case TraceLine::kFinishReason:
        return string(out_.finish_reason) ? std::string() : wrong(name, "a string");
      case TraceLine::kSubagent:
        out_.subagent = take("true");
        return out_.subagent || take("false") ? std::string() : wrong(name, "true or false");
      case TraceLine::kHashIds:
      case TraceLine::kPath: return whole_list(name);
    }
    return {};
  }

  std::string broken(std::string_view name) const {
    return at_ == end_ ? "ends in the middle"
                       : "the value of '" + std::string(name) + "' is no JSON";
  }
  std::string wrong(std::string_view name, const char* wanted) const {
    if (at_ == end_) return "ends in the middle";
    return "'" + std::string(name) + "' is not " + wanted;
  }

  bool digits(uint64_t& out) {
    const char* const begin = at_;
    uint64_t value = 0;
    for (; at_ != end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
      value = value * 10 + static_cast<uint64_t>(*at_ - '0');
    }
    out = value;
    if (at_ - begin < 20) return at_ != begin;  // Fewer digits always fit.
    return std::from_chars(begin, at_, out).ec == std::errc();
  }
  bool at_fraction() const { return at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E'); }

  std::string whole(std::string_view name, uint64_t& out) {
    if (!digits(out) || at_fraction()) return wrong(name, "a whole number of at most 64 bits");
    return {};
  }
  std::string milliseconds(std::string_view name) {
    double value = 0;
    const auto [after, error] = std::from_chars(at_, end_, value);
    if (error != std::errc() || !std::isfinite(value) || value < 0 || value > 1e13) {
      return wrong(name, "a time in milliseconds, from 0 to 1e13");
    }
    at_ = after;
    out_.timestamp_ns = static_cast<uint64_t>(std::llround(value * 1e6));
    return {};
  }
  std::string text_or_number(std::string_view name, std::string_view& out) {
    if (at_ != end_ && *at_ == '"') return string(out) ? std::string() : broken(name);
    const char* const begin = at_;
    uint64_t value;
    if (!digits(value) || at_fraction()) return wrong(name, "a string or a whole number");
    out = {begin, static_cast<size_t>(at_ - begin)};
    return {};
  }
  std::string whole_list(std::string_view name) {
    constexpr const char* kWanted = "a list of whole numbers of at most 64 bits";
    if (!take('[')) return wrong(name, kWanted);
    skip_space();
    if (take(']')) return {};
    do {
      skip_space();
      uint64_t value;
      if (!digits(value) || at_fraction()) return wrong(name, kWanted);
      out_.ids.push_back(value);
      skip_space();
    } while (take(','));
    return take(']') ? std::string() : wrong(name, kWanted);
  }

  // Between the quotes, as it stands there.
  bool string(std::string_view& out) {
    if (!take('"')) return false;
    const char* const begin = at_;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      if (*at_ != '\\') continue;
      ++at_;
      if (at_ == end_) return false;
    }
    out = {begin, static_cast<size_t>(at_ - begin)};
    return take('"');
  }
  bool skip_value(uint32_t nesting) {
    if (at_ == end_ || nesting > kMaxNesting) return false;
    std::string_view ignored;
    if (*at_ == '"') return string(ignored);
    if (*at_ == '{' || *at_ == '[') return skip_container(nesting);
    if (take("true") || take("false") || take("null")) return true;
    double number;
    const auto [after, error] = std::from_chars(at_, end_, number);
    if (error == std::errc::invalid_argument) return false;
    at_ = after;
    return true;
  }
  bool skip_container(uint32_t nesting) {
    const bool object = *at_++ == '{';
    const char close = object ? '}' : ']';
    skip_space();
    if (take(close)) return true;
    do {
      skip_space();
      std::string_view ignored;
      if (object) {
        if (!string(ignored)) return false;
        skip_space();
        if (!take(':')) return false;
        skip_space();
      }
      if (!skip_value(nesting + 1)) return false;
      skip_space();
    } while (take(','));
    return take(close);
  }

  const char* at_;
  const char* end_;
  TraceLine& out_;
  uint32_t seen_ = 0;
};

}  // namespace

std::string parse_trace_line(std::string_view line, TraceLine& out) {
  return Parser(line, out).run();
}

}  // namespace stemma::replay
