// Tests Responses answers: every event has its type, its number and its place, and a stream adds up
// to the whole answer.
#include "server/api/responses/writer.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// A separate namespace, because sources are compiled together.
namespace stemma::server::responses_writer_test {
namespace {

using Parsed = nlohmann::json;
using dialect::EventKind;

std::vector<Parsed> events(std::string_view text) {
  std::vector<Parsed> out;
  while (!text.empty()) {
    const size_t line = text.find('\n');
    const size_t end = text.find("\n\n");
    EXPECT_NE(end, text.npos);
    const std::string_view name = text.substr(0, line);
    const std::string_view data = text.substr(line + 1, end - line - 1);
    EXPECT_TRUE(name.starts_with("event: ") && data.starts_with("data: ")) << text;
    out.push_back(Parsed::parse(data.substr(6)));
    EXPECT_EQ(out.back().at("type"), name.substr(7));
    EXPECT_EQ(out.back().at("sequence_number"), out.size() - 1);
    text.remove_prefix(end + 2);
  }
  return out;
}

ResponseHead head() {
  ResponseHead head{.key = "K"};
  head.model = "m";
  head.created_s = 17;
  return head;
}

Summary summary() {
  Summary out;
  out.prompt_tokens = 10;
  out.cached_tokens = 6;
  out.generated_tokens = 5;
  return out;
}

// An answer with everything: thinking, text in pieces, a call, a custom call.
std::vector<AnswerPart> everything() {
  std::vector<AnswerPart> parts;
  parts.push_back({.event = {.kind = EventKind::reasoning, .text = "let me "}});
  parts.push_back({.event = {.kind = EventKind::reasoning, .text = "see"}});
  parts.push_back({.event = {.text = "Hello \""}});
  parts.push_back({.event = {.text = "you\"\n"}});
  parts.push_back({.event = {.kind = EventKind::call_begin, .text = "f"}, .call_id = "call_1"});
  parts.push_back({.event = {.kind = EventKind::arguments, .text = R"({"a":)"}});
  parts.push_back({.event = {.kind = EventKind::arguments, .text = "1}"}});
  parts.push_back({.event = {.kind = EventKind::call_end}});
  parts.push_back({.event = {.kind = EventKind::call_begin, .call = 1, .text = "patch"},
                   .call_id = "call_2",
                   .custom = true});
  parts.push_back(
      {.event = {.kind = EventKind::arguments, .call = 1, .text = "*** x"}, .custom = true});
  parts.push_back({.event = {.kind = EventKind::call_end, .call = 1}});
  return parts;
}

WholeChoice whole_of(const std::vector<AnswerPart>& parts, const AnswerEnd& end) {
  WholeChoice choice{.end = end};
  for (const AnswerPart& part : parts) {
    auto& blocks = choice.blocks;
    using Kind = AnswerBlock::Kind;
    const auto add = [&](Kind kind) {
      if (blocks.empty() || blocks.back().kind != kind) blocks.push_back({.kind = kind});
      blocks.back().text += part.event.text;
    };
    switch (part.event.kind) {
      case EventKind::content: add(Kind::text); break;
      case EventKind::reasoning: add(Kind::thinking); break;
      case EventKind::call_begin:
        blocks.push_back({.kind = Kind::call,
                          .name = part.event.text,
                          .call_id = part.call_id,
                          .custom = part.custom,
                          .complete = false});
        break;
      case EventKind::arguments: blocks.back().text += part.event.text; break;
      case EventKind::call_end: blocks.back().complete = part.event.complete; break;
    }
  }
  return choice;
}

std::string stream(ResponsesWriter& writer, const std::vector<AnswerPart>& parts,
                   const AnswerEnd& end) {
  std::string out;
  writer.start({.transcript_id = "tr_1"}, out);
  for (const AnswerPart& part : parts) writer.part(part, out);
  writer.end_choice(end, out);
  writer.finish(summary(), out);
  return out;
}

std::vector<std::string> types(const std::vector<Parsed>& events) {
  std::vector<std::string> out;
  for (const Parsed& event : events) out.push_back(event.at("type").get<std::string>().substr(9));
  return out;
}

const AnswerEnd kCalls{
    .stop = AnswerStop::tool_calls, .thinking_tokens = 2, .transcript_id = "tr_1"};

TEST(ResponsesWriter, EveryEventIsTypedNumberedAndInItsPlace) {
  ResponsesWriter writer(head(), {});
  const auto said = events(stream(writer, everything(), kCalls));
  EXPECT_EQ(types(said), (std::vector<std::string>{"created",
                                                   "in_progress",
                                                   "output_item.added",
                                                   "content_part.added",
                                                   "reasoning_text.delta",
                                                   "reasoning_text.delta",
                                                   "reasoning_text.done",
                                                   "content_part.done",
                                                   "output_item.done",
                                                   "output_item.added",
                                                   "content_part.added",
                                                   "output_text.delta",
                                                   "output_text.delta",
                                                   "output_text.done",
                                                   "content_part.done",
                                                   "output_item.done",
                                                   "output_item.added",
                                                   "function_call_arguments.delta",
                                                   "function_call_arguments.delta",
                                                   "function_call_arguments.done",
                                                   "output_item.done",
                                                   "output_item.added",
                                                   "custom_tool_call_input.delta",
                                                   "custom_tool_call_input.done",
                                                   "output_item.done",
                                                   "completed"}));
  EXPECT_EQ(said[0]["response"]["id"], "resp_K");
  EXPECT_EQ(said[0]["response"]["status"], "in_progress");
  EXPECT_TRUE(said[0]["response"]["usage"].is_null());
  EXPECT_EQ(said[9]["item"], (Parsed{{"id", "msg_K_1"},
                                     {"type", "message"},
                                     {"role", "assistant"},
                                     {"content", Parsed::array()},
                                     {"status", "in_progress"}}));
  EXPECT_EQ(said[11]["item_id"], "msg_K_1");
  EXPECT_EQ(said[11]["output_index"], 1);
  EXPECT_EQ(said[11]["content_index"], 0);
  EXPECT_EQ(said[11]["delta"], "Hello \"");
  EXPECT_EQ(said[13]["text"], "Hello \"you\"\n");
  EXPECT_EQ(said[19]["arguments"], R"({"a":1})");
  EXPECT_EQ(said[19]["name"], "f");
  EXPECT_EQ(said[23]["input"], "*** x");
  EXPECT_EQ(said[24]["item"]["call_id"], "call_2");
}

// Deltas joined by index equal the items, and the finished items equal the output of the last
// event.
TEST(ResponsesWriter, AStreamSaysWhatTheWholeSays) {
  for (const bool summaries : {false, true}) {
    ResponseHead options = head();
    options.summary = summaries;
    options.encrypted_content = true;
    ResponsesWriter streaming(options, {});
    const auto said = events(stream(streaming, everything(), kCalls));
    ResponsesWriter whole(options, {});
    const WholeChoice choice = whole_of(everything(), kCalls);
    const Parsed all = Parsed::parse(whole.whole({&choice, 1}, summary()));
    EXPECT_EQ(said.back()["response"], all);
    Parsed done = Parsed::array();
    std::map<int, std::string> deltas;
    for (const Parsed& event : said) {
      if (event["type"] == "response.output_item.done") done.push_back(event["item"]);
      if (event.contains("delta")) {
        deltas[event["output_index"]] += event["delta"].get<std::string>();
      }
    }
    EXPECT_EQ(done, all["output"]);
    EXPECT_EQ(deltas[0], "let me see");
    const Parsed& thinking = all["output"][0];
    EXPECT_EQ((summaries ? thinking["summary"][0]["text"] : thinking["content"][0]["text"]),
              deltas[0]);
    EXPECT_EQ(thinking.contains("content"), !summaries);
    EXPECT_EQ(thinking["encrypted_content"], "tr_1");
    EXPECT_EQ(deltas[1], all["output"][1]["content"][0]["text"]);
    EXPECT_EQ(deltas[2], all["output"][2]["arguments"]);
    EXPECT_EQ(deltas[3], all["output"][3]["input"]);
    EXPECT_EQ(all["status"], "completed");
    const Parsed& usage = all["usage"];
    EXPECT_EQ(usage["total_tokens"],
              usage["input_tokens"].get<int>() + usage["output_tokens"].get<int>());
    EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"], 6);
    EXPECT_EQ(usage["output_tokens_details"]["reasoning_tokens"], 2);
  }
}

TEST(ResponsesWriter, WhatIsCutOffIsIncomplete) {
  std::vector<AnswerPart> parts = everything();
  parts.resize(6);  // In the middle of a call's arguments.
  parts.push_back({.event = {.kind = EventKind::call_end, .complete = false}});
  const AnswerEnd cut{.stop = AnswerStop::length};
  ResponsesWriter writer(head(), {});
  const auto said = events(stream(writer, parts, cut));
  EXPECT_EQ(said.back()["type"], "response.incomplete");
  const Parsed& response = said.back()["response"];
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][2]["status"], "incomplete");
  ResponsesWriter whole(head(), {});
  const WholeChoice choice = whole_of(parts, cut);
  EXPECT_EQ(Parsed::parse(whole.whole({&choice, 1}, summary())), response);
  // The same for a text that is cut off.
  parts.resize(4);
  ResponsesWriter text(head(), {});
  const auto cut_text = events(stream(text, parts, cut)).back()["response"];
  EXPECT_EQ(cut_text["output"][1]["status"], "incomplete");
  EXPECT_EQ(cut_text["output"][0]["status"], "completed");
  ResponsesWriter whole_text(head(), {});
  const WholeChoice cut_choice = whole_of(parts, cut);
  EXPECT_EQ(Parsed::parse(whole_text.whole({&cut_choice, 1}, summary())), cut_text);
}

TEST(ResponsesWriter, AnAnswerOfNothingIsAnEmptyMessage) {
  ResponsesWriter writer(head(), {});
  const auto said = events(stream(writer, {}, {}));
  ASSERT_EQ(said.back()["response"]["output"].size(), 1U);
  EXPECT_EQ(said.back()["response"]["output"][0]["content"][0]["text"], "");
}

TEST(ResponsesWriter, FailsWithTheLastEvent) {
  std::string out;
  ResponsesWriter writer(head(), {});
  writer.start({}, out);
  writer.part({.event = {.text = "Hel"}}, out);
  writer.fail(
      {.status = 503, .message = "no room", .type = "overloaded_error", .code = "overloaded"}, out);
  const auto said = events(out);
  EXPECT_EQ(said.back()["type"], "response.failed");
  EXPECT_EQ(said.back()["response"]["status"], "failed");
  EXPECT_EQ(said.back()["response"]["error"],
            (Parsed{{"code", "overloaded"}, {"message", "no room"}}));
  EXPECT_EQ(said[said.size() - 2]["type"], "response.output_item.done");
  // Before its beginning no response exists that could have failed.
  ResponsesWriter early(head(), {});
  std::string alone;
  early.fail({.message = "no room", .code = "overloaded"}, alone);
  const auto only = events(alone);
  ASSERT_EQ(only.size(), 1U);
  EXPECT_EQ(only[0]["type"], "error");
  EXPECT_EQ(only[0]["message"], "no room");
}

TEST(ResponsesWriter, WhatIsStoredIsWhatWasSaid) {
  for (const bool wanted : {true, false}) {
    std::map<std::string, StoredResponse> kept;
    ResponseHead options = head();
    options.store = wanted;
    options.input = R"([{"role":"user","content":"Hi"}])";
    options.previous_response_id = "resp_J";
    ResponsesWriter writer(options, [&](const std::string& id, StoredResponse response) {
      kept[id] = std::move(response);
    });
    const auto said = events(stream(writer, everything(), kCalls));
    ASSERT_EQ(kept.size(), wanted ? 1U : 0U);
    if (!wanted) continue;
    EXPECT_EQ(Parsed::parse(kept.at("resp_K").text()), said.back()["response"]);
    EXPECT_EQ(Parsed::parse(kept.at("resp_K").output), said.back()["response"]["output"]);
    EXPECT_EQ(kept.at("resp_K").previous_id, "resp_J");
    EXPECT_EQ(kept.at("resp_K").input, options.input);
  }
}

TEST(ResponsesWriter, ANamespacedToolIsCalledByItsOwnName) {
  ResponseHead options = head();
  options.namespaced = {{"ns__f", "ns", "f"}};
  ResponsesWriter writer(options, {});
  const auto said =
      events(stream(writer,
                    {{.event = {.kind = EventKind::call_begin, .text = "ns__f"}, .call_id = "c"},
                     {.event = {.kind = EventKind::call_end}}},
                    kCalls));
  const Parsed& call = said.back()["response"]["output"][0];
  EXPECT_EQ(call["name"], "f");
  EXPECT_EQ(call["namespace"], "ns");
}

TEST(ResponsesWriter, LogprobsStandWithTheirText) {
  ResponseHead options = head();
  options.logprobs = true;
  const TokenLogprob token{{1, -0.5F}, "Hi", {{{2, -1.0F}, "Ho"}}};
  const std::vector<AnswerPart> parts = {{.event = {.text = "Hi"}, .logprobs = {token}}};
  ResponsesWriter writer(options, {});
  const auto said = events(stream(writer, parts, {}));
  const Parsed expected = {
      {{"token", "Hi"},
       {"logprob", -0.5},
       {"bytes", {72, 105}},
       {"top_logprobs", {{{"token", "Ho"}, {"logprob", -1.0}, {"bytes", {72, 111}}}}}}};
  EXPECT_EQ(said[4]["logprobs"], expected);
  WholeChoice choice = whole_of(parts, {});
  choice.logprobs = {token};
  ResponsesWriter whole(options, {});
  const Parsed all = Parsed::parse(whole.whole({&choice, 1}, summary()));
  EXPECT_EQ(all["output"][0]["content"][0]["logprobs"], expected);
  EXPECT_EQ(all, said.back()["response"]);
}

}  // namespace
}  // namespace stemma::server::responses_writer_test
