// Answers as a confused model would write them, in every shape of call.
//
// However an answer is cut, it is the same message; calls begin and end in order; a complete call
// has JSON arguments; and the parser never holds more than it promises.
#include <string>
#include <vector>

#include "dialect/answer_parser.h"
#include "dialect/families.h"
#include "dialect/values/json_text.h"
#include "input.h"

namespace stemma::fuzz {
namespace {

using namespace stemma::dialect;  // NOLINT: a test.

Format family(std::string_view features, FamilyTurn turn) {
  Format format;
  FUZZ_EXPECT(apply_family(features, turn, format));
  format.thinking.opener = "<think>";
  format.thinking.closer = "</think>";
  return format;
}

Format json_in_tags() {
  Format format = family("<tool_call></tool_call>\"arguments\"", FamilyTurn::after_difference);
  format.content_open = "<|text|>";
  format.content_close = "<|/text|>";
  return format;
}

Format json_alone() {
  Format format = json_in_tags();
  format.calls.call_open = format.calls.call_close = "";
  format.calls.optional_opens = {"<|python_tag|>"};
  return format;
}

Format name_as_key() {
  Format format = json_in_tags();
  format.calls.call_open = format.calls.call_close = "";
  format.calls.section_open = "<|p|>";
  format.calls.section_close = "<|s|>";
  format.calls.list = format.calls.name_is_key = true;
  return format;
}

Format tagged(bool typed) {
  Format format = json_in_tags();
  Calls& calls = format.calls;
  calls.shape = CallShape::tagged;
  calls.call_open = "<tool_call>\n<function=";
  calls.call_close = "</function>\n</tool_call>";
  calls.header = {{PieceKind::name, {}}, {PieceKind::text, ">"}};
  calls.argument = {{PieceKind::text, "<p="}, {PieceKind::key, {}}, {PieceKind::text, ">"}};
  if (typed) {
    calls.argument = {{PieceKind::text, "<p="},
                      {PieceKind::key, {}},
                      {PieceKind::text, " s=\""},
                      {PieceKind::type, {}},
                      {PieceKind::text, "\">"}};
  }
  calls.value_close = "</p>";
  calls.value_on_lines = !typed;
  calls.character_data = typed;
  return format;
}

Format literals() {
  Format format = json_in_tags();
  format.calls.shape = CallShape::literals;
  format.calls.call_open = "<|call>call:";
  format.calls.call_close = "<call|>";
  format.calls.header = {{PieceKind::name, {}}};
  format.calls.quote = "<|\"|>";
  return format;
}

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      json_in_tags(),
      json_alone(),
      name_as_key(),
      tagged(false),
      tagged(true),
      literals(),
      family("<|tool_list_start|><|tool_response_start|>", FamilyTurn::after_difference),
      family("<|tool_calls_section_begin|><|tool_call_begin|>", FamilyTurn::after_difference),
      family("<|tool_call|>JSON list<|start_of_role|>", FamilyTurn::after_difference),
      family("<|channel|>analysis<|message|><|call|>", FamilyTurn::before_difference),
      family(">>><|start_header_id|><|eot_id|>", FamilyTurn::before_difference),
      family("atem:function_calls<|message|>to=self", FamilyTurn::before_difference),
      family("]<]minimax[>[invoke", FamilyTurn::before_difference)};
  return all;
}

std::vector<Tool> tools() {
  const auto schema = read_json(
      R"({"properties": {"s": {"type": "string"}, "n": {"type": "number"}, "o": {"type": "object"}}})");
  return {{"f", *schema}, {"f_2", {}}};
}

void check_events(const std::vector<Event>& events) {
  uint32_t calls = 0;
  bool open = false;
  for (const Event& event : events) {
    switch (event.kind) {
      case EventKind::call_begin:
        FUZZ_EXPECT(!open && event.call == calls);
        FUZZ_EXPECT(event.text == "f" || event.text == "f_2");
        open = true;
        break;
      case EventKind::arguments: FUZZ_EXPECT(open && event.call == calls); break;
      case EventKind::call_end:
        FUZZ_EXPECT(open && event.call == calls);
        open = false;
        ++calls;
        break;
      default: FUZZ_EXPECT(!open && !event.text.empty());
    }
  }
  FUZZ_EXPECT(!open);
}

ParsedMessage add_up(const std::vector<Event>& events) {
  ParsedMessage message;
  for (const Event& event : events) message.add(event);
  for (const ParsedCall& call : message.calls) {
    FUZZ_EXPECT(!call.complete || (is_json(call.arguments) && trimmed(call.arguments)[0] == '{'));
  }
  return message;
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stemma::fuzz;     // NOLINT: a test.
  using namespace stemma::dialect;  // NOLINT: a test.
  Input input(data, size);
  const Format& format = formats()[input.below(static_cast<uint32_t>(formats().size()))];
  const auto start = static_cast<AnswerStart>(input.below(3));
  const auto end = static_cast<AnswerEnd>(input.below(2));
  uint32_t portion = 1 + input.u8();
  const std::string answer(input.rest().begin(), input.rest().end());

  AnswerParser whole(format, tools(), start);
  std::vector<Event> events;
  whole.feed(answer, events);
  whole.finish(end, events);
  check_events(events);
  const ParsedMessage message = add_up(events);

  for (const bool single : {true, false}) {
    AnswerParser parser(format, tools(), start);
    std::vector<Event> parts;
    for (size_t at = 0; at < answer.size();) {
      const size_t next = single ? 1 : portion;
      portion = portion * 5 % 61 + 1;
      parser.feed(std::string_view(answer).substr(at, next), parts);
      FUZZ_EXPECT(parser.held_bytes() <= kMostValueBytes + next);
      at += next;
    }
    parser.finish(end, parts);
    check_events(parts);
    FUZZ_EXPECT(add_up(parts) == message);
  }
  return 0;
}
