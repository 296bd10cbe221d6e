// Templates as an enemy would write them, probed for their format within small limits.
//
// Probing ends, and finds the same format again; what it found can be described, and a conversation
// that is written for it can be rendered and parsed.
#include <string>
#include <variant>
#include <vector>

#include "dialect/answer_parser.h"
#include "dialect/probe.h"
#include "dialect/write_calls.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stemma::dialect;  // NOLINT: a test.
  using stemma::jinja::Value;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = stemma::jinja::Template::parse(source);
  if (!std::holds_alternative<stemma::jinja::Template>(parsed)) return 0;
  const auto& chat = std::get<stemma::jinja::Template>(parsed);
  ProbeOptions options;
  options.limits = {.steps = 20'000, .work_bytes = 1U << 20U, .output_bytes = 1U << 16U};
  const Format format = probe(chat, source, options);
  FUZZ_EXPECT(probe(chat, source, options) == format);
  FUZZ_EXPECT(!describe(format).empty());
  FUZZ_EXPECT((format.source == "none") == !supports_tools(format));
  for (const std::string& marker : markers(format)) FUZZ_EXPECT(!marker.empty());

  const std::vector<Message> talk = {
      {.role = "user", .content = "Hi"},
      {.role = "assistant",
       .content = "Well.",
       .reasoning = "hm",
       .calls = {{"1", "probe_alpha", R"({"keyone": "x", "n": [1, {}]})"}, {"2", "f", "{}"}}},
      {.role = "tool", .content = "r", .call_id = "2"},
      {.role = "tool", .content = "s", .call_id = "1"}};
  stemma::jinja::RenderOptions render;
  render.limits = options.limits;
  const auto rendered =
      chat.render(Value::dict({{"messages", Value::list(write_messages(format, talk))}}), render);
  std::string answer = write_calls_as_text(format, talk[1].calls);
  if (const auto* text = std::get_if<stemma::jinja::Text>(&rendered)) answer += text->bytes;
  AnswerParser parser(format, {{"probe_alpha", {}}, {"f", {}}}, answer_start(format, source));
  std::vector<Event> events;
  parser.feed(answer, events);
  parser.finish(AnswerEnd::stop, events);
  return 0;
}
