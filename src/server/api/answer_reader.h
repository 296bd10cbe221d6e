// AnswerReader: splits the text of one choice into the parts that clients see: text, thinking,
// calls with ids.
//
//   text of pieces --dialect::AnswerParser--> events --ids, custom tools--> parts
//
// A custom tool takes plain text. The model sees it as a tool with one argument, {"input": text};
// its parts contain that text, not JSON.
//
// Invariant:  the parts add up to the same however the text was cut.
// Threading:  one thread at a time.
// Ownership:  shares the format; the rest is its own.
// Cost:       the parser's cost, and one copy of the message if it is kept.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_parser.h"
#include "server/api/answer_writer.h"

namespace stemma::server {

// How to parse all choices of a request.
struct AnswerReading {
  std::shared_ptr<const dialect::Format> format;  // null: everything is text.
  dialect::AnswerStart start = dialect::AnswerStart::text;
  std::vector<dialect::Tool> tools;
  std::vector<std::string> custom_tools;  // Those of `tools` that take plain text.
  std::string call_prefix = "call_";
  bool keep_message = false;  // Keep what message() returns.
};

// Extracts the text of {"input": "..."} as it arrives. Input in another form is passed on as it is.
class CustomInput {
 public:
  // Appends the text that `json` completes.
  void feed(std::string_view json, std::string& out);
  // Nothing follows.
  void finish(std::string& out);

 private:
  enum class At : uint8_t { before, inside, after, raw };
  At at_ = At::before;
  std::string held_;  // The beginning, or an escape that is not whole.
};

class AnswerReader {
 public:
  AnswerReader(const AnswerReading& how, uint32_t choice);

  // Appends the parts that `text` completes.
  void feed(std::string_view text, std::vector<AnswerPart>& parts);
  void finish(bool cut_off, std::vector<AnswerPart>& parts);

  // Whether a call has begun.
  bool calls_tools() const noexcept { return !call_ids_.empty(); }
  const dialect::ParsedMessage& message() const noexcept { return message_; }
  const std::vector<std::string>& call_ids() const noexcept { return call_ids_; }

 private:
  void take(std::vector<AnswerPart>& parts);
  void add(AnswerPart part, std::vector<AnswerPart>& parts);

  const AnswerReading& how_;
  const uint32_t choice_;
  std::unique_ptr<dialect::AnswerParser> parser_;  // null: everything is text.
  std::vector<dialect::Event> events_;
  std::optional<CustomInput> input_;  // For a running call of a custom tool.
  std::vector<std::string> call_ids_;
  dialect::ParsedMessage message_;
};

}  // namespace stemma::server
