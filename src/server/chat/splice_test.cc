// Tests splices: where sampled tokens replace text, and that edited text is never replaced.
#include "server/chat/splice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>

#include "dialect/answer_parser.h"
#include "server/chat/chat.h"
#include "server/chat/meaning.h"
#include "support/engine_kinds.h"
#include "support/scripted_model.h"

namespace stemma::server {
namespace {

using test::ScriptedModel;

std::string file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// A model, its template, and a conversation in which answers are sampled.
class Talk {
 public:
  explicit Talk(const std::string& chat_template = file("tests/templates/last_query.jinja"))
      : model({.engine = test::full_engine(), .chat_template = chat_template},
              [](std::string_view) { return std::string(); }) {
    std::string why;
    chat = Chat::create(model, "", why);
    EXPECT_NE(chat, nullptr) << why;
    ToolSpec tool;
    tool.name = "read";
    tool.parameters = std::get<stemma::Json>(parse_json(
        R"({"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer"}}})"));
    request.tools.push_back(tool);
    request.thinking.wanted = true;
  }

  void say(const std::string& role, const std::string& text) {
    Message& message = request.messages.emplace_back();
    message.role = role;
    message.parts.push_back({.text = text, .cache_control = {}});
    if (role == "tool") message.call_id = last_id_;
  }
  // Samples an answer to the conversation so far, and adds it as a client would return it.
  Message& answer(const std::string& sampled) {
    const std::vector<Token> before = prompt();
    Transcript transcript;
    transcript.tokens = model.sampled(sampled);
    dialect::AnswerParser parser(chat->format(), last.reading.tools, last.reading.start);
    std::vector<dialect::Event> events;
    parser.feed(sampled, events);
    parser.finish(dialect::AnswerEnd::stop, events);
    for (const dialect::Event& event : events) transcript.message.add(event);
    Message& message = request.messages.emplace_back();
    message.role = "assistant";
    message.parts.push_back({.text = transcript.message.content, .cache_control = {}});
    message.reasoning = transcript.message.reasoning;
    for (const dialect::ParsedCall& call : transcript.message.calls) {
      last_id_ = "toolu_" + std::to_string(++calls_);
      transcript.call_ids.push_back(last_id_);
      message.calls.push_back({.id = last_id_, .name = call.name, .arguments = call.arguments});
    }
    transcript.before = request.messages[request.messages.size() - 2].text();
    message.transcript_id = "tr_" + std::to_string(request.messages.size());
    held = before;
    held.insert(held.end(), transcript.tokens.begin(), transcript.tokens.end());
    transcripts.remember("", message.transcript_id, std::move(transcript));
    return message;
  }
  std::vector<Token> prompt() {
    ChatRequest copy = request;
    const Recall recall{.transcripts = transcripts, .found = transcripts.find("", copy.messages)};
    put_back(recall.found, copy.messages);
    last = {};
    const auto error = chat->render(copy, true, last, UINT64_MAX, &recall);
    EXPECT_FALSE(error) << error->message;
    return last.tokens;
  }
  // Whether the next prompt begins with all tokens that the sequence held after the last answer.
  bool goes_on() {
    const std::vector<Token> next = prompt();
    return next.size() > held.size() && std::equal(held.begin(), held.end(), next.begin());
  }
  uint64_t spliced() const { return transcripts.stats().spliced; }

  ScriptedModel model;
  std::unique_ptr<Chat> chat;
  ChatRequest request;
  Transcripts transcripts{{}};
  ChatPrompt last;
  std::vector<Token> held;  // Tokens of the sequence when the last answer ended.

 private:
  std::string last_id_;
  uint32_t calls_ = 0;
};

constexpr const char* kCall =
    "<think>\nwhich file is it\n</think>\n\n<tool_call>\n{\"name\": \"read\", \"arguments\": "
    "{\"path\": \"notes.txt\",   \"line\": 3}}\n</tool_call>";

TEST(Splice, AnAnswerHasTheTokensItWasSampledAs) {
  Talk talk;
  talk.say("user", "hello");
  talk.answer("<think>\neasy\n</think>\n\nhello there");
  talk.request.messages.back().reasoning.clear();  // As most clients do.
  talk.say("user", "and now");
  const std::vector<Token> next = talk.prompt();
  EXPECT_EQ(talk.spliced(), 1U);
  // The template left out the thinking; the words after it have the sampled tokens.
  const std::vector<Token> words = talk.model.sampled("hello there");
  EXPECT_NE(std::search(next.begin(), next.end(), words.begin(), words.end()), next.end());
  EXPECT_EQ(talk.model.text(next).find("easy"), std::string::npos);
}

TEST(Splice, ThinkingAndCallsAreSplicedWhileTheQuestionIsWorkedOn) {
  Talk talk;
  talk.say("user", "read it");
  for (int turn = 0; turn < 10; ++turn) {
    talk.answer(kCall);
    talk.say("tool", "line " + std::to_string(turn));
    EXPECT_TRUE(talk.goes_on()) << turn;
  }
}

TEST(Splice, WhatClientsDoToAMessageDoesNotMatter) {
  Talk talk;
  talk.say("user", "read it");
  Message& message = talk.answer(
      "<think>\nhm\n</think>\n\nLet me see.\n\n<tool_call>\n{\"name\": "
      "\"read\", \"arguments\": {\"path\": \"a\", \"line\": 3}}\n</tool_call>");
  talk.say("tool", "text");
  const std::vector<Token> held = talk.held;
  ASSERT_TRUE(talk.goes_on());
  Message& returned = talk.request.messages[1];
  returned.calls[0].arguments = R"({"line":3.0,"path":"\u0061"})";
  EXPECT_TRUE(talk.goes_on()) << "written anew";
  returned.reasoning.clear();
  EXPECT_TRUE(talk.goes_on()) << "without its thinking";
  returned.parts = {{.text = "Let me see.\n", .cache_control = {}}};
  EXPECT_TRUE(talk.goes_on()) << "a newline dropped";
  returned.transcript_id.clear();
  EXPECT_TRUE(talk.goes_on()) << "without the signature";
  returned.calls[0].id = "call_of_a_client";
  talk.request.messages[2].call_id = "call_of_a_client";
  returned.reasoning = "hm";
  EXPECT_TRUE(talk.goes_on()) << "without any id of ours";
  static_cast<void>(message);
}

TEST(Splice, MessageEndsAndPinsStayRight) {
  Talk talk;
  talk.say("user", "read it");
  talk.answer(kCall);
  talk.request.messages.back().cache_control = CacheControl{};
  talk.say("tool", "text");
  const std::vector<Token> next = talk.prompt();
  ASSERT_EQ(talk.last.pinned.size(), 1U);
  EXPECT_EQ(talk.last.pinned[0].end, talk.held.size()) << "to the end of the answer";
  ASSERT_FALSE(talk.last.message_ends.empty());
  EXPECT_TRUE(std::ranges::is_sorted(talk.last.message_ends));
  // One end after the answer's turn: before the header of what follows.
  const auto behind = std::ranges::lower_bound(talk.last.message_ends, talk.held.size() + 1);
  ASSERT_NE(behind, talk.last.message_ends.end());
  const std::string frame =
      talk.model.text(std::span(next).subspan(talk.held.size(), *behind - talk.held.size()));
  EXPECT_TRUE(frame.starts_with("<|im_end|>")) << frame;
  for (const uint32_t end : talk.last.message_ends) {
    EXPECT_TRUE(end <= talk.held.size() - talk.model.sampled(kCall).size() ||
                end > talk.held.size())
        << "none inside the answer";
  }
}

TEST(Splice, TheFrameIsTheTemplates) {
  Talk talk;
  talk.say("user", "read it");
  talk.answer(kCall);
  talk.say("tool", "text");
  const std::string text = talk.model.text(talk.prompt());
  const size_t at = text.find("<|im_start|>assistant\n<think>\nwhich file is it");
  EXPECT_NE(at, std::string::npos) << text;
  EXPECT_NE(text.find("   \"line\": 3}}\n</tool_call><|im_end|>\n<|im_start|>user\n<result>", at),
            std::string::npos)
      << text;
}

TEST(Splice, AnotherFormIsNotSpliced) {
  // A template that writes answers in capitals.
  Talk talk(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | upper if m.role == "
      "'assistant' else m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
      "<|im_start|>assistant\n{% endif %}");
  talk.request.tools.clear();
  talk.say("user", "hi");
  talk.answer("hello");
  talk.say("user", "more");
  const std::string text = talk.model.text(talk.prompt());
  EXPECT_NE(text.find("HELLO"), std::string::npos);
  EXPECT_EQ(talk.spliced(), 0U);
  EXPECT_EQ(talk.transcripts.stats().unfit, 1U);
}

TEST(Splice, ATemplateWithoutAHeaderIsSplicedToo) {
  Talk talk(
      "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} "
      "[/INST]{% else %} {{ m.content }}<|im_end|>{% endif %}{% endfor %}");
  talk.request.tools.clear();
  talk.request.thinking = {};
  talk.say("user", "hi");
  talk.answer(" hello you");
  talk.request.messages.back().parts[0].text = "hello you";
  talk.say("user", "more");
  EXPECT_TRUE(talk.goes_on());
}

TEST(Splice, IdsThatTheModelWroteComeBack) {
  Message call;
  call.role = "assistant";
  call.calls = {{.id = "toolu_1", .name = "f", .arguments = "{}"},
                {.id = "toolu_2", .name = "f", .arguments = "{}"}};
  Message result;
  result.role = "tool";
  result.call_id = "toolu_2";
  std::vector<Message> messages = {call, result, call, result};
  messages[2].calls[1].id = "toolu_2";
  auto known = std::make_shared<Transcript>();
  known->message.calls = {{.name = "f", .arguments = "{}", .id = "f:0", .complete = true},
                          {.name = "f", .arguments = "{}", .id = "f:1", .complete = true}};
  known->message.reasoning = "thought";
  std::vector<Transcripts::Found> found(4);
  found[0] = {known, false};
  put_back(found, messages);
  EXPECT_EQ(messages[0].calls[1].id, "f:1");
  EXPECT_EQ(messages[1].call_id, "f:1");
  EXPECT_EQ(messages[3].call_id, "toolu_2") << "the other message's call";
  EXPECT_EQ(messages[0].reasoning, "") << "the answer to somebody else's question, perhaps";
  found[0].by_id = true;
  put_back(found, messages);
  EXPECT_EQ(messages[0].reasoning, "thought");
}

// ---- Edits --------------------------------------------------------------------------------------

// Changes the message's content somewhere. Returns the kind of change; empty if none was possible.
std::string edit(Message& message, std::mt19937& random) {
  const auto change = [&](std::string& text) {
    if (text.empty()) {
      text = "x";
      return;
    }
    const size_t at = random() % text.size();
    switch (random() % 3) {
      case 0: text[at] = text[at] == 'q' ? 'z' : 'q'; break;
      case 1: text.insert(at, "q"); break;
      default: text.insert(text.size() / 2, "q");
    }
  };
  switch (random() % 6) {
    case 0: change(message.parts[0].text); return "text";
    case 1:
      if (message.reasoning.empty()) return "";
      change(message.reasoning);
      return "thought";
    case 2:
      if (message.calls.empty()) return "";
      message.calls[0].arguments =
          R"({"path":"other)" + std::to_string(random()) + R"(","line":3})";
      return "argument";
    case 3:
      if (message.calls.empty()) return "";
      message.calls[0].arguments = R"({"path":"notes.txt","line":4})";
      return "number";
    case 4:
      if (message.calls.empty()) return "";
      message.calls.clear();
      return "call";
    default:
      if (message.calls.empty()) return "";
      message.calls[0].name += "x";
      return "name";
  }
}

TEST(Splice, NothingThatWasEditedIsSpliced) {
  std::mt19937 random(20261118);
  uint32_t edits = 0;
  for (int round = 0; round < 150; ++round) {
    Talk talk;
    talk.say("user", "begin " + std::to_string(round));
    const uint32_t turns = 2 + random() % 3;
    for (uint32_t turn = 0; turn < turns; ++turn) {
      const bool calls = random() % 3 != 0;
      talk.answer(calls ? kCall
                        : "<think>\nwell\n</think>\n\nSome words, number " + std::to_string(turn));
      talk.say(calls ? "tool" : "user", "turn " + std::to_string(turn));
    }
    talk.prompt();
    const uint64_t all = talk.spliced();
    EXPECT_EQ(all - (turns * (turns - 1)) / 2, turns) << "each prompt has spliced what was there";
    const uint32_t which = 1 + 2 * (random() % turns);
    Message& message = talk.request.messages[which];
    const Message before = message;
    const std::string what = edit(message, random);
    if (what.empty()) continue;
    ++edits;
    const TranscriptStats then = talk.transcripts.stats();
    const std::vector<Token> next = talk.prompt();
    const TranscriptStats now = talk.transcripts.stats();
    EXPECT_EQ(now.spliced - then.spliced, turns - 1) << what << " of message " << which;
    EXPECT_EQ(now.different + now.unknown, then.different + then.unknown + 1) << what;
    // The prompt has the client's text.
    if (what == "argument") {
      const std::string said = talk.model.text(next);
      EXPECT_NE(said.find(message.calls[0].arguments.substr(9, 8)), std::string::npos) << said;
    }
    // Once restored, it is spliced again.
    message = before;
    talk.prompt();
    EXPECT_EQ(talk.spliced() - now.spliced, turns);
  }
  EXPECT_GT(edits, 80U);
}

TEST(Splice, AnswersInAnotherOrderSayWhatTheirPlaceSays) {
  Talk talk;
  talk.say("user", "one");
  talk.answer("first words");
  talk.say("user", "two");
  talk.answer("second words");
  talk.say("user", "three");
  std::swap(talk.request.messages[1], talk.request.messages[3]);
  const std::string text = talk.model.text(talk.prompt());
  EXPECT_LT(text.find("second words"), text.find("first words"));
}

}  // namespace
}  // namespace stemma::server
