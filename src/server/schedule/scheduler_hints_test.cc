// The hints that a Scheduler gives the retention policy, observed on the parts that it saves.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/scheduler_rig.h"
#include "support/server_rig.h"
#include "support/step_script.h"

namespace stemma::server {
namespace {

// The hint of the part saved last. Only the engine's thread uses it; others may after /cache/save
// or run().
class Hints final : public SavedListener {
 public:
  void saved(const Scope&, const Prompt&, const SavedPart& part, const ContentKey&,
             const Retain& retain) noexcept override {
    if (part.kind != EntryKind::segment) return;
    ranges.assign(retain.ranges.begin(), retain.ranges.end());
    last = retain;
    ++times;
  }
  Retain last;
  std::vector<PriorityRange> ranges;
  uint32_t times = 0;
};

class SchedulerHints : public ::testing::Test {
 protected:
  SchedulerHints() : rig_(test::full_engine(), with(hints_)) {}

  // Asks, saves everything, and returns the last hint.
  Retain told(const std::string& prompt, uint32_t max_tokens,
              const std::function<void(Generation&)>& change = {}) {
    const auto ear = rig_.ask(prompt, max_tokens, change);
    EXPECT_TRUE(ear->wait());
    return after();
  }
  Retain after() {
    Retain retain;
    EXPECT_TRUE(rig_.scheduler->run([&](SequenceCache& cache) {
      cache.drain({.evict = true});
      EXPECT_NE(hints_.times, 0U) << "nothing was saved";
      hints_.times = 0;
      retain = hints_.last;
    }));
    return retain;
  }
  // Returns a prompt whose answer does or does not end by itself within 30 tokens.
  std::string prompt_that_ends(bool ends) const {
    for (uint32_t seed = 1;; ++seed) {
      std::string prompt = words(200, seed);
      const size_t length = rig_.expected(prompt, 30).size();
      if (ends ? length > 2 && length < 30 : length == 30) return prompt;
    }
  }
  static SchedulerOptions with(Hints& hints) {
    SchedulerOptions options;
    options.cache.listener = &hints;
    return options;
  }

  Hints hints_;
  Rig rig_;
};

TEST_F(SchedulerHints, HowAnAnswerEndedAndHowLongItWas) {
  const std::string ends = prompt_that_ends(true);
  const Retain end = told(ends, 30);
  EXPECT_EQ(end.finish, FinishReason::end_turn);
  EXPECT_EQ(end.output_tokens, rig_.expected(ends, 30).size() + 1) << "with the one that ended it";

  const Retain length = told(prompt_that_ends(false), 30);
  EXPECT_EQ(length.finish, FinishReason::length);
  EXPECT_EQ(length.output_tokens, 30U);
}

TEST_F(SchedulerHints, ACancelledAnswerIsOne) {
  std::shared_ptr<Ear> ear;
  rig_.together([&] {
    ear = rig_.ask(prompt_that_ends(false), 500);
    ear->on_text = [&] { rig_.scheduler->cancel(rig_.number); };
  });
  ASSERT_TRUE(ear->wait());
  const Retain retain = after();
  EXPECT_EQ(retain.finish, FinishReason::cancelled);
  EXPECT_GE(retain.output_tokens, 1U);
}

// Its parser finds the call only once the answer is over.
class LateCaller final : public Listener {
 public:
  explicit LateCaller(std::shared_ptr<Ear> ear) : ear_(std::move(ear)) {}
  void piece(Piece piece) override { ear_->piece(std::move(piece)); }
  bool calls_tools(uint32_t) override { return over_; }
  void ended(ChoiceEnd end) override {
    over_ = true;
    ear_->ended(std::move(end));
  }
  void done(const Summary& summary) override { ear_->done(summary); }
  void failed(const Error& error, const std::string& message, bool overloaded) override {
    ear_->failed(error, message, overloaded);
  }

 private:
  const std::shared_ptr<Ear> ear_;
  bool over_ = false;
};

TEST_F(SchedulerHints, ACallThatIsFoundAtTheEndOfAnAnswerIsOne) {
  const auto ear = std::make_shared<Ear>();
  Generation generation;
  generation.prompt = *rig_.model.tokenize(prompt_that_ends(true), true, true);
  generation.max_tokens = 30;
  generation.sampling.temperature = 0;
  ASSERT_TRUE(
      rig_.scheduler->submit(std::move(generation), std::make_shared<LateCaller>(ear)).has_value());
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(after().finish, FinishReason::tool_use);
}

TEST_F(SchedulerHints, SessionsAreTellable) {
  const auto named = [](const char* name) {
    return [name](Generation& generation) { generation.session = name; };
  };
  const Retain ann = told(words(200, 1), 5, named("ann"));
  EXPECT_EQ(ann.phase, SessionPhase::active);
  EXPECT_NE(ann.session, kNoSession);
  const Retain ben = told(words(200, 2), 5, named("ben"));
  EXPECT_NE(ben.session, ann.session);
  EXPECT_EQ(told(words(200, 3), 5, named("ann")).session, ann.session);
  const Retain nobody = told(words(200, 4), 5);
  EXPECT_EQ(nobody.session, kNoSession);
  EXPECT_EQ(nobody.phase, SessionPhase::unknown);
}

TEST_F(SchedulerHints, PrioritiesAndHowLongTheyCount) {
  const Retain plain = told(words(200, 1), 5);
  EXPECT_EQ(plain.priority, kDefaultPriority);
  EXPECT_EQ(plain.ttl_ns, kNever);
  const Retain high = told(words(200, 2), 5, [](Generation& generation) {
    generation.priority = 77;
    generation.priority_ns = 1'000'000'000;
    generation.pinned.push_back({.begin = 0, .end = 64, .priority = 90, .ttl_ns = 5});
  });
  EXPECT_EQ(high.priority, 77);
  EXPECT_EQ(high.ttl_ns, 1'000'000'000U);
  ASSERT_EQ(hints_.ranges.size(), 1U);
  EXPECT_EQ(hints_.ranges[0].end, 64U);
  EXPECT_EQ(hints_.ranges[0].priority, 90);
  EXPECT_EQ(hints_.ranges[0].ttl_ns, 5U);
}

// From the JSON field to the policy.
TEST(AppHints, WhatClientsSayReachesThePolicy) {
  Hints hints;
  test::ServerRigOptions options;
  options.scheduler.cache.listener = &hints;
  test::ServerRig rig(options);
  const auto told = [&](const test::Json& body) {
    EXPECT_EQ(rig.post("/v1/chat/completions", body).status, 200);
    EXPECT_EQ(rig.post("/cache/save", test::Json::object()).status, 200);
    return hints.last;
  };
  using test::conversation;
  using test::letters;
  const Retain day =
      told(conversation({{"user", letters(200, 1)}}, 3, {{"prompt_cache_retention", "24h"}}));
  EXPECT_EQ(day.priority, kPinnedPriority);
  EXPECT_EQ(day.ttl_ns, uint64_t{86'400} * 1'000'000'000);

  test::Json marked =
      conversation({{"system", letters(200, 2)}, {"user", "hi"}}, 3, {{"prompt_cache_key", "ann"}});
  marked["messages"][0]["cache_control"] = {{"type", "ephemeral"}, {"ttl", "1h"}};
  const Retain pinned = told(marked);
  EXPECT_EQ(pinned.priority, kDefaultPriority);
  EXPECT_EQ(pinned.phase, SessionPhase::active);
  EXPECT_NE(pinned.session, kNoSession);
  ASSERT_EQ(hints.ranges.size(), 1U);
  EXPECT_EQ(hints.ranges[0].priority, kPinnedPriority);
  EXPECT_EQ(hints.ranges[0].ttl_ns, uint64_t{3'600} * 1'000'000'000);
}

// From the headers that agents send, in every API that they speak.
TEST(AppHints, SessionsInHeadersReachThePolicyAndCallsAreToolUse) {
  Hints hints;
  test::ScriptedRigOptions options = test::step_rig(test::full_engine());
  options.scheduler.cache.listener = &hints;
  options.app.any_model = true;
  const test::ScriptedRig rig(options, test::do_step);
  uint32_t step = 0;
  const auto told = [&](const std::string& target, const test::HttpFields& headers) {
    test::Json body = {{"model", "m"}};
    ++step;
    const std::string text = test::letters(300, step) + " step " + std::to_string(step);
    const test::Json messages = {{{"role", "user"}, {"content", text}}};
    if (target == "/v1/responses") {
      body["input"] = text;
      body["tools"] = {
          {{"type", "function"}, {"name", "read"}, {"parameters", test::step_arguments()}}};
    } else if (target == "/v1/messages") {
      body["max_tokens"] = 2000;
      body["messages"] = messages;
      body["tools"] = {{{"name", "read"}, {"input_schema", test::step_arguments()}}};
    } else {
      body["messages"] = messages;
      body["tools"] = {{{"type", "function"},
                        {"function", {{"name", "read"}, {"parameters", test::step_arguments()}}}}};
    }
    EXPECT_EQ(rig.ask(target, body, headers).status, 200);
    EXPECT_EQ(rig.ask("/cache/save", test::Json::object()).status, 200);
    EXPECT_EQ(hints.last.finish, FinishReason::tool_use) << target;
    return hints.last.session;
  };
  const SessionId claude = told("/v1/messages", {{"x-claude-code-session-id", "ann"}});
  EXPECT_NE(claude, kNoSession);
  EXPECT_EQ(told("/v1/messages", {{"x-claude-code-session-id", "ann"}}), claude);
  EXPECT_NE(told("/v1/messages", {{"x-claude-code-session-id", "ben"}}), claude);
  // The name counts, not the header or the API.
  EXPECT_EQ(told("/v1/responses", {{"session-id", "ann"}}), claude);
  EXPECT_EQ(told("/v1/chat/completions", {{"x-session-id", "ann"}}), claude);
  EXPECT_EQ(told("/v1/chat/completions", {}), kNoSession);
}

}  // namespace
}  // namespace stemma::server
