// Tests Transcripts: which are found again, by whom, and which are not.
#include "server/chat/transcripts.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "stemma/tier/host_tier.h"

namespace stemma::server {
namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000;

Transcript answer(const std::string& text, const std::string& before = "question") {
  Transcript transcript;
  for (const char c : text) transcript.tokens.push_back(static_cast<uint8_t>(c));
  transcript.message.content = text;
  transcript.before = before;
  return transcript;
}

Transcript call(const std::string& id, const std::string& arguments) {
  Transcript transcript = answer("Let me see.");
  transcript.message.calls = {{.name = "read", .arguments = arguments, .id = "", .complete = true}};
  transcript.message.reasoning = "Which file?";
  transcript.call_ids = {id};
  return transcript;
}

Message said(const std::string& role, const std::string& text) {
  Message message;
  message.role = role;
  message.parts.push_back({.text = text, .cache_control = {}});
  return message;
}

Message called(const std::string& id, const std::string& arguments) {
  Message message = said("assistant", "Let me see.");
  message.calls = {{.id = id, .name = "read", .arguments = arguments}};
  return message;
}

const Transcript* found(Transcripts& transcripts, const Message& message,
                        const std::string& salt = "", const std::string& before = "question") {
  const Message messages[] = {said("user", before), message};
  return transcripts.find(salt, messages)[1].transcript.get();
}

TEST(Transcripts, AnAnswerIsFoundByItsDigest) {
  Transcripts transcripts({});
  transcripts.remember("", "tr_1", answer("Hello there\n"));
  const Transcript* const known = found(transcripts, said("assistant", "Hello there"));
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->tokens.size(), 12U);
  EXPECT_EQ(found(transcripts, said("assistant", "Hello here")), nullptr);
  EXPECT_EQ(found(transcripts, said("assistant", "Hello there"), "", "another question"), nullptr)
      << "an answer to somebody else's question may have other tokens";
  EXPECT_EQ(found(transcripts, said("user", "Hello there")), nullptr);
  EXPECT_EQ(transcripts.stats().unknown, 2U);
  EXPECT_EQ(transcripts.stats().entries, 1U);
}

TEST(Transcripts, ACallIsFoundByItsIdWhateverStandsBefore) {
  Transcripts transcripts({});
  transcripts.remember("", "tr_1", call("toolu_1", R"({"path": "a.txt", "line": 1})"));
  const Message messages[] = {said("user", "something else"),
                              called("toolu_1", R"({"line":1.0,"path":"a.txt"})")};
  const auto all = transcripts.find("", messages);
  ASSERT_NE(all[1].transcript, nullptr);
  EXPECT_TRUE(all[1].by_id);
  EXPECT_EQ(found(transcripts, called("toolu_1", R"({"line":2,"path":"a.txt"})")), nullptr);
  EXPECT_EQ(transcripts.stats().different, 1U);
}

TEST(Transcripts, AnIdOfTheAnswerItselfIsEnough) {
  Transcripts transcripts({});
  transcripts.remember("", "tr_1", answer("Yes"));
  Message message = said("assistant", "Yes");
  message.transcript_id = "tr_1";
  EXPECT_NE(found(transcripts, message, "", "other"), nullptr);
  message.transcript_id = "tr_2";
  EXPECT_EQ(found(transcripts, message, "", "other"), nullptr);
  // A call's id does not find an answer.
  transcripts.remember("", "tr_3", call("tr_4", "{}"));
  Message confused = called("", "{}");
  confused.transcript_id = "tr_4";
  EXPECT_EQ(found(transcripts, confused, "", "other"), nullptr);
}

TEST(Transcripts, NothingIsFoundUnderAnotherSalt) {
  Transcripts transcripts({});
  transcripts.remember("mine", "tr_1", call("toolu_1", "{}"));
  EXPECT_NE(found(transcripts, called("toolu_1", "{}"), "mine"), nullptr);
  Message message = called("toolu_1", "{}");
  message.transcript_id = "tr_1";
  for (const char* salt : {"", "yours", "min", "mine "}) {
    EXPECT_EQ(found(transcripts, message, salt), nullptr) << salt;
  }
  transcripts.forget("yours");
  EXPECT_NE(found(transcripts, message, "mine"), nullptr);
  transcripts.forget("mine");
  EXPECT_EQ(found(transcripts, message, "mine"), nullptr);
  EXPECT_EQ(transcripts.stats().bytes, 0U);
}

TEST(Transcripts, WhatIsNotWholeIsNotRemembered) {
  Transcripts transcripts({});
  Transcript cut = call("toolu_1", R"({"pa)");
  cut.message.calls[0].complete = false;
  transcripts.remember("", "tr_1", cut);
  transcripts.remember("", "tr_2", Transcript());
  transcripts.remember("", "", answer("a"));
  EXPECT_EQ(transcripts.stats().entries, 0U);
}

TEST(Transcripts, TheOneUsedLongestAgoMakesRoom) {
  Transcripts transcripts({.bytes = 10'000});
  transcripts.remember("", "tr_first", answer("first"));
  uint32_t count = 1;
  while (transcripts.stats().evicted == 0) {
    EXPECT_NE(found(transcripts, said("assistant", "first")), nullptr);
    ASSERT_LE(transcripts.stats().bytes, 10'000U);
    transcripts.remember("", "tr_" + std::to_string(count), answer("n" + std::to_string(count)));
    ++count;
    ASSERT_LT(count, 100U);
  }
  EXPECT_NE(found(transcripts, said("assistant", "first")), nullptr) << "used all the time";
  EXPECT_EQ(found(transcripts, said("assistant", "n1")), nullptr);
  Transcripts none({.bytes = 0});
  none.remember("", "tr_1", answer("a"));
  EXPECT_EQ(found(none, said("assistant", "a")), nullptr);
  Transcripts small({.bytes = 1'000});
  small.remember("", "tr_1", answer(std::string(2'000, 'a')));
  EXPECT_EQ(small.stats().entries, 0U);
}

TEST(Transcripts, TheLatestOfEqualAnswersCounts) {
  Transcripts transcripts({});
  transcripts.remember("", "tr_1", answer("OK"));
  Transcript other = answer("OK");
  other.tokens = {Token{500}};
  transcripts.remember("", "tr_2", other);
  EXPECT_EQ(found(transcripts, said("assistant", "OK"))->tokens.size(), 1U);
  Message first = said("assistant", "OK");
  first.transcript_id = "tr_1";
  EXPECT_EQ(found(transcripts, first)->tokens.size(), 2U);
}

// ---- Tiers --------------------------------------------------------------------------------------

class InTiers : public testing::Test {
 protected:
  InTiers() {
    auto tier = make_host_tier({.capacity_bytes = 64U << 20U});
    tier::StackOptions stack;
    stack.query_ns = stack.load_ns = stack.store_ns = kMinuteNs;  // A busy machine is no late tier.
    stack.levels.emplace_back().tier = *std::move(tier);
    stack_ = *tier::TierStack::create(std::move(stack));
  }
  // As after a server's restart: its memory is empty, the tiers are not.
  std::unique_ptr<Transcripts> server(const std::string& model = "m") {
    TranscriptOptions options;
    options.scope = [model](const std::string& salt) {
      return Scope::make({.model = model, .tenant_salt = salt});
    };
    options.stack = stack_.get();
    options.layout = 7;
    options.tier_ns = kMinuteNs;
    return std::make_unique<Transcripts>(options);
  }
  void flush() { ASSERT_TRUE(stack_->flush(Clock::monotonic().now_ns() + kMinuteNs)); }

  std::unique_ptr<tier::TierStack> stack_;
};

TEST_F(InTiers, AnAnswerOutlivesTheServer) {
  server()->remember("", "tr_1", call("toolu_1", R"({"a": 1})"));
  flush();
  // Each of its names finds it.
  auto by_call = server();
  const Transcript* const known = found(*by_call, called("toolu_1", R"({"a":1})"), "", "else");
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->tokens.size(), 11U);
  EXPECT_EQ(known->message.reasoning, "Which file?");
  EXPECT_EQ(by_call->stats().from_tiers, 1U);
  EXPECT_NE(found(*by_call, called("toolu_1", R"({"a":1})")), nullptr);
  EXPECT_EQ(by_call->stats().from_tiers, 1U) << "it is in memory now";
  auto by_id = server();
  Message message = called("", R"({"a":1})");
  message.transcript_id = "tr_1";
  EXPECT_NE(found(*by_id, message, "", "else"), nullptr);
  auto by_digest = server();
  EXPECT_NE(found(*by_digest, called("", R"({"a":1})")), nullptr);
  auto edited = server();
  EXPECT_EQ(found(*edited, called("toolu_1", R"({"a":2})")), nullptr);
  EXPECT_EQ(edited->stats().unknown, 1U);
}

TEST_F(InTiers, AnotherSaltAndAnotherModelFindNothing) {
  server()->remember("mine", "tr_1", call("toolu_1", "{}"));
  flush();
  EXPECT_EQ(found(*server(), called("toolu_1", "{}"), "yours"), nullptr);
  EXPECT_EQ(found(*server("other"), called("toolu_1", "{}"), "mine"), nullptr);
  EXPECT_NE(found(*server(), called("toolu_1", "{}"), "mine"), nullptr);
}

TEST_F(InTiers, APurgeTakesThemAlong) {
  server()->remember("mine", "tr_1", call("toolu_1", "{}"));
  server()->remember("", "tr_2", call("toolu_2", "{}"));
  flush();
  const Result<Scope> scope = Scope::make({.model = "m", .tenant_salt = "mine"});
  const auto purged =
      stack_->purge({.owner = owner_of(*scope)}, Clock::monotonic().now_ns() + kMinuteNs);
  EXPECT_TRUE(purged.at(0).purged.complete);
  EXPECT_EQ(purged.at(0).purged.entries, 3U);
  EXPECT_EQ(found(*server(), called("toolu_1", "{}"), "mine"), nullptr);
  EXPECT_NE(found(*server(), called("toolu_2", "{}")), nullptr);
  // A truncation forgets it too: we cannot tell what follows the prefix.
  const Result<Scope> plain = Scope::make({.model = "m"});
  stack_->purge({.owner = owner_of(*plain), .keep = 100'000, .follows = 5},
                Clock::monotonic().now_ns() + kMinuteNs);
  EXPECT_EQ(found(*server(), called("toolu_2", "{}")), nullptr);
}

}  // namespace
}  // namespace stemma::server
