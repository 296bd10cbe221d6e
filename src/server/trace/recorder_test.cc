// Compares TraceRecorder with a model that knows every prompt: what is written and what is not, and
// in which order.
#include "server/trace/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "replay/byte_source.h"
#include "replay/trace.h"
#include "server/trace/numbers.h"

namespace stemma::server {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint32_t kBlock = 16;

// A client that keeps the bytes it gets, up to `room` of them.
class Reader final : public HttpReply {
 public:
  bool respond(int, std::string_view, std::string, HttpHeaders) override { return false; }
  bool begin(int status, std::string_view, HttpHeaders) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    return true;
  }
  bool send(std::string piece) override {
    const std::lock_guard lock(mutex_);
    if (ended_ || text_.size() + piece.size() > room) return false;
    text_ += piece;
    return true;
  }
  bool end() override {
    std::function<void()> released;
    const std::lock_guard lock(mutex_);
    ended_ = true;
    released.swap(on_gone_);
    return true;
  }
  void keep_alive(HttpKeepAlive) override {}
  bool gone() const override { return false; }
  void on_gone(std::function<void()> callback) override {
    const std::lock_guard lock(mutex_);
    on_gone_ = std::move(callback);
  }

  // The client closes the connection.
  void leave() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      callback.swap(on_gone_);
    }
    if (callback) callback();
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  std::vector<std::string> lines() const {
    std::istringstream in(text());
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  int status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  std::atomic<size_t> room = size_t{1} << 30U;

 private:
  mutable std::mutex mutex_;
  std::string text_;
  std::function<void()> on_gone_;
  int status_ = 0;
  bool ended_ = false;
};

Scope scope_of(const std::string& salt) {
  ScopeSpec spec;
  spec.model = "m";
  spec.tenant_salt = salt;
  return *Scope::make(spec);
}

std::vector<Token> prompt_of(uint32_t tokens, uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<Token> prompt(tokens);
  for (Token& token : prompt) token = bits() % 1000;
  return prompt;
}
std::vector<Token> joined(std::vector<Token> first, const std::vector<Token>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Loads this text as a trace file.
replay::Trace loaded(const std::string& text) {
  replay::Trace trace;
  replay::LoadReport report;
  const auto source = replay::ByteSource::of(text);
  EXPECT_EQ(replay::load_trace(*source, {}, trace, report), "") << text;
  return trace;
}

class Rig {
 public:
  explicit Rig(TraceRecorder::Options options = {}) : recorder(with(std::move(options))) {}
  ~Rig() { recorder.end_all(); }

  std::shared_ptr<Reader> record(uint32_t block_tokens = kBlock) {
    auto reader = std::make_shared<Reader>();
    number = recorder.begin(reader, block_tokens);
    return reader;
  }
  std::shared_ptr<RecordedRequest> take(const std::vector<Token>& prompt,
                                        const std::string& session = "",
                                        const std::string& salt = "") {
    auto request = recorder.look(scope_of(salt), prompt, session);
    if (request != nullptr) request->taken();
    return request;
  }
  void ask(const std::vector<Token>& prompt, const std::string& session = "",
           const std::string& salt = "") {
    take(prompt, session, salt)->ended(FinishReason::end_turn, 1);
  }
  bool logged(const std::string& part) const {
    return std::ranges::any_of(
        log, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }

  ManualClock clock;
  std::vector<std::string> log;
  TraceRecorder recorder;
  std::optional<uint64_t> number;

 private:
  TraceRecorder::Options with(TraceRecorder::Options options) {
    options.clock = &clock;
    options.log = [this](std::string_view line) { log.emplace_back(line); };
    return options;
  }
};

TEST(TraceRecorder, WritesTheDocumentedLines) {
  Rig rig;
  const auto reader = rig.record();
  EXPECT_EQ(reader->status(), 200);
  EXPECT_EQ(reader->text(), "{\"stemma_trace\":1,\"block_tokens\":16}\n");
  const std::vector<Token> first = prompt_of(47, 1);
  rig.take(first)->ended(FinishReason::length, 7);
  rig.clock.advance_ns(120 * kMillisecond + 45'678);
  std::vector<Token> second = joined({first.begin(), first.begin() + 16}, prompt_of(50, 2));
  rig.take(second, "ann")->ended(FinishReason::end_turn, 0);
  EXPECT_TRUE(rig.recorder.end(*rig.number));
  EXPECT_TRUE(reader->ended());
  EXPECT_EQ(reader->text(),
            "{\"stemma_trace\":1,\"block_tokens\":16}\n"
            "{\"timestamp\":0,\"input_length\":47,\"output_length\":7,\"finish_reason\":\"length\","
            "\"path\":[0,2]}\n"
            "{\"timestamp\":120.045,\"input_length\":66,\"output_length\":0,\"session_id\":1,"
            "\"turn\":1,\"finish_reason\":\"end_turn\",\"path\":[1,3]}\n"
            "{\"end\":2}\n");
}

// A request as the model sees it.
struct Said {
  std::string salt;
  std::string session;
  std::vector<Token> prompt;
  uint64_t time_ns = 0;
  uint32_t output = 0;
  FinishReason finish = FinishReason::unknown;
};

// Computes the same from whole prefixes, compared word by word.
replay::Trace by_force(const std::vector<Said>& all) {
  replay::Trace trace;
  trace.block_tokens = kBlock;
  std::map<std::pair<std::string, std::vector<Token>>, Token> blocks;
  std::map<std::pair<std::string, std::string>, std::pair<uint32_t, uint32_t>> sessions;
  for (const Said& said : all) {
    replay::TraceRequest request;
    request.time_ns = said.time_ns;
    request.first_word = trace.words.size();
    request.blocks = static_cast<uint32_t>(said.prompt.size() / kBlock);
    request.input_tokens = static_cast<uint32_t>(said.prompt.size());
    request.output_tokens = said.output;
    request.finish = said.finish;
    for (uint32_t i = 1; i <= request.blocks; ++i) {
      const std::vector<Token> prefix(said.prompt.begin(), said.prompt.begin() + i * kBlock);
      const auto next = static_cast<Token>(blocks.size());
      trace.words.push_back(blocks.try_emplace({said.salt, prefix}, next).first->second);
    }
    trace.words.push_back(replay::Trace::kEndWord);
    if (!said.session.empty()) {
      const auto next = static_cast<uint32_t>(sessions.size() + 1);
      auto& session = sessions.try_emplace({said.salt, said.session}, next, 0).first->second;
      request.session = session.first;
      request.turn = ++session.second;
    }
    trace.requests.push_back(request);
  }
  return trace;
}

TEST(TraceRecorder, RandomTrafficIsWrittenAsAModelWouldWriteIt) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 bits(seed);
    Rig rig;
    const auto reader = rig.record();
    std::vector<Said> all;
    std::vector<std::pair<size_t, std::shared_ptr<RecordedRequest>>> open;
    const auto end_one = [&] {
      const size_t which = bits() % open.size();
      Said& said = all[open[which].first];
      said.output = bits() % 50;
      said.finish = bits() % 2 != 0 ? FinishReason::length : FinishReason::cancelled;
      open[which].second->ended(said.finish, said.output);
      open.erase(open.begin() + static_cast<ptrdiff_t>(which));
    };
    for (uint32_t i = 0; i < 120; ++i) {
      rig.clock.advance_ns(bits() % 3 * kMillisecond);
      Said said;
      said.salt = bits() % 3 == 0 ? "salt" : "";
      if (bits() % 3 != 0) said.session = std::string(1, static_cast<char>('a' + bits() % 4));
      said.prompt = joined(prompt_of(16 + bits() % 40, 1 + bits() % 2),
                           prompt_of(bits() % 80, 10 + bits() % 5));
      if (!all.empty() && bits() % 2 == 0) {
        said.prompt = joined(all[bits() % all.size()].prompt, prompt_of(bits() % 60, bits() % 20));
      }
      said.time_ns = rig.clock.now_ns() - 1;
      auto request = rig.take(said.prompt, said.session, said.salt);
      open.emplace_back(all.size(), std::move(request));
      all.push_back(std::move(said));
      while (!open.empty() && bits() % 2 == 0) end_one();
    }
    while (!open.empty()) end_one();
    rig.recorder.end_all();
    EXPECT_EQ(reader->text(), replay::write_trace(by_force(all)));
    if (HasFailure()) return;
  }
}

TEST(TraceRecorder, NothingIsWrittenBeforeWhatCameEarlier) {
  Rig rig;
  const auto reader = rig.record();
  const auto first = rig.take(prompt_of(16, 1));
  const auto second = rig.take(prompt_of(32, 2));
  const auto third = rig.take(prompt_of(48, 3));
  third->ended(FinishReason::end_turn, 3);
  second->ended(FinishReason::end_turn, 2);
  EXPECT_EQ(reader->lines().size(), 1U);
  first->ended(FinishReason::end_turn, 1);
  const replay::Trace trace = (rig.recorder.end_all(), loaded(reader->text()));
  ASSERT_EQ(trace.requests.size(), 3U);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(trace.requests[i].output_tokens, i + 1);
}

TEST(TraceRecorder, OneLongRequestHoldsUpNoMoreThanTheLimit) {
  Rig rig({.waiting = 4});
  const auto reader = rig.record();
  const auto slow = rig.take(prompt_of(16, 1));
  for (uint32_t i = 0; i < 3; ++i) rig.ask(prompt_of(16, 2));
  EXPECT_EQ(reader->lines().size(), 1U);
  rig.ask(prompt_of(16, 2));
  ASSERT_EQ(reader->lines().size(), 6U) << "the slow one, and all that waited behind it";
  EXPECT_EQ(reader->lines()[1], "{\"timestamp\":0,\"input_length\":16,\"path\":[0,1]}");
  slow->ended(FinishReason::end_turn, 9);  // Too late.
  rig.recorder.end_all();
  EXPECT_EQ(loaded(reader->text()).requests.size(), 5U);
}

TEST(TraceRecorder, RefusedRequestsLeaveNothing) {
  Rig rig;
  const auto reader = rig.record();
  static_cast<void>(rig.recorder.look(scope_of(""), prompt_of(64, 1), "refused"));
  rig.ask(prompt_of(64, 1), "ann");
  rig.recorder.end_all();
  EXPECT_NE(reader->text().find("\"session_id\":1,\"turn\":1"), std::string::npos);
  EXPECT_NE(reader->text().find("\"path\":[0,4]"), std::string::npos) << reader->text();
  EXPECT_EQ(loaded(reader->text()).requests.size(), 1U);
}

// A client may have its answer before the thread that accepted its request reports that.
TEST(TraceRecorder, AnEndMayComeFirst) {
  Rig rig;
  const auto reader = rig.record();
  const auto request = rig.recorder.look(scope_of(""), prompt_of(64, 1), "");
  request->ended(FinishReason::length, 5);
  EXPECT_EQ(reader->lines().size(), 2U);
  request->taken();
  EXPECT_EQ(reader->lines().size(), 2U);
  rig.recorder.end_all();
  EXPECT_EQ(loaded(reader->text()).requests[0].output_tokens, 5U);
}

TEST(TraceRecorder, ScopesAndTheirSessionsAreKeptApart) {
  Rig rig;
  const auto reader = rig.record();
  for (const char* salt : {"", "a", "b", "a"}) rig.ask(prompt_of(64, 1), "same", salt);
  rig.recorder.end_all();
  const replay::Trace trace = loaded(reader->text());
  EXPECT_EQ(trace.unique_blocks, 12U);
  EXPECT_EQ(trace.sessions, 3U);
  EXPECT_EQ(trace.requests[3].session, trace.requests[1].session);
  EXPECT_EQ(trace.requests[3].turn, 2U);
}

// If only words and names differ, the file is the same: so it contains neither.
TEST(TraceRecorder, OtherWordsAndNamesMakeTheSameFile) {
  const auto record = [](uint32_t seed, const std::string& name) {
    Rig rig;
    const auto reader = rig.record();
    for (uint32_t i = 0; i < 20; ++i) {
      rig.clock.advance_ns(kMillisecond);
      rig.ask(joined(prompt_of(100, seed), prompt_of(40 + i, seed + 1 + i % 7)),
              name + std::to_string(i % 3), name);
    }
    rig.recorder.end_all();
    return reader->text();
  };
  EXPECT_EQ(record(1, "ann"), record(1000, "somebody-else"));
}

TEST(TraceRecorder, TooManyBlocksEndTheRecordingAndLeaveAWholeTrace) {
  Rig rig({.blocks = 10});
  const auto reader = rig.record();
  const auto waits = rig.take(prompt_of(16 * 4, 1));
  rig.ask(prompt_of(16 * 6, 2));
  rig.ask(prompt_of(16 * 6, 2));  // This has no new blocks.
  EXPECT_FALSE(reader->ended());
  rig.ask(prompt_of(16, 3));
  EXPECT_TRUE(reader->ended());
  EXPECT_FALSE(rig.recorder.records());
  EXPECT_TRUE(rig.logged("3 requests: it has more different blocks")) << rig.log.back();
  waits->ended(FinishReason::end_turn, 1);
  const replay::Trace trace = loaded(reader->text());
  EXPECT_EQ(trace.requests.size(), 3U);
  EXPECT_EQ(trace.unique_blocks, 10U);
  EXPECT_EQ(trace.requests[0].output_tokens, replay::TraceRequest::kUnknown);
}

TEST(TraceRecorder, TooManySessionsEndTheRecording) {
  Rig rig({.sessions = 2});
  const auto reader = rig.record();
  for (const char* session : {"a", "b", "a", "b", "c"}) rig.ask(prompt_of(20, 1), session);
  EXPECT_TRUE(reader->ended());
  EXPECT_EQ(loaded(reader->text()).requests.size(), 4U);
}

TEST(TraceRecorder, ReadersThatAreSlowOrGoneHurtNobody) {
  Rig rig;
  const auto slow = rig.record();
  const auto good = rig.record(32);
  const auto gone = rig.record();
  slow->room = 200;
  for (uint32_t i = 0; i < 3; ++i) rig.ask(prompt_of(64, i));
  gone->leave();
  for (uint32_t i = 0; i < 3; ++i) rig.ask(prompt_of(64, i));
  EXPECT_EQ(gone->lines().size(), 4U);
  EXPECT_FALSE(slow->ended());
  EXPECT_TRUE(rig.logged("recording 1 ended")) << "and not at the end";
  EXPECT_TRUE(rig.logged("recording 3 ended"));
  slow->leave();
  rig.recorder.end_all();
  const replay::Trace trace = loaded(good->text());
  EXPECT_EQ(trace.requests.size(), 6U);
  EXPECT_EQ(trace.block_tokens, 32U);
  EXPECT_EQ(trace.unique_blocks, 6U);
}

TEST(TraceRecorder, ThereAreOnlySoManyAtOnce) {
  Rig rig({.recordings = 2});
  EXPECT_FALSE(rig.recorder.records());
  EXPECT_EQ(rig.take(prompt_of(64, 1)), nullptr) << "nobody records";
  const auto first = rig.record();
  const auto second = rig.record();
  ASSERT_TRUE(rig.number.has_value());
  const auto third = rig.record();
  EXPECT_FALSE(rig.number.has_value());
  EXPECT_EQ(third->status(), 0) << "it was not touched";
  first->leave();
  const auto fourth = rig.record();
  ASSERT_TRUE(rig.number.has_value());
  EXPECT_TRUE(rig.recorder.end(*rig.number));
  EXPECT_FALSE(rig.recorder.end(*rig.number));
  EXPECT_EQ(fourth->lines().back(), "{\"end\":0}");
  rig.recorder.end_all();
  EXPECT_TRUE(second->ended());
  EXPECT_FALSE((rig.record(), rig.number.has_value())) << "the server is ending";
}

TEST(TraceRecorder, RequestsOfManyThreadsMakeAWholeTrace) {
  TraceRecorder recorder({});
  const auto reader = std::make_shared<Reader>();
  const auto leaves = std::make_shared<Reader>();
  ASSERT_TRUE(recorder.begin(reader, kBlock));
  ASSERT_TRUE(recorder.begin(leaves, kBlock));
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kEach = 200;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::shared_ptr<RecordedRequest>> open;
      for (uint32_t i = 0; i < kEach; ++i) {
        auto request = recorder.look(scope_of(""), joined(prompt_of(32, i % 5), prompt_of(i, t)),
                                     i % 2 != 0 ? "s" : "");
        // Its end is reported on another thread, at any time.
        std::thread other([request] { request->ended(FinishReason::end_turn, 1); });
        request->taken();
        other.join();
        if (t == 0 && i == kEach / 2) leaves->leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder.end_all();
  const replay::Trace trace = loaded(reader->text());
  EXPECT_EQ(trace.requests.size(), kThreads * kEach);
  EXPECT_EQ(trace.sessions, 1U);
}

TEST(TraceNumbers, AreThoseOfFirstAppearance) {
  TraceNumbers numbers(42);
  std::map<uint64_t, uint32_t> model;
  std::mt19937_64 bits(1);
  for (uint32_t i = 0; i < 20'000; ++i) {
    const uint64_t value = bits() % 8'000;
    const TraceDigest digest{value % 7, value};  // Many values are similar.
    const auto [at, fresh] = model.try_emplace(value, static_cast<uint32_t>(model.size() + 1));
    ASSERT_EQ(numbers.find(digest), fresh ? 0 : at->second);
    if (fresh) {
      ASSERT_EQ(numbers.add(digest), at->second);
    }
  }
  EXPECT_EQ(numbers.size(), model.size());
}

}  // namespace
}  // namespace stemma::server
