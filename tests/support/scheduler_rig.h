// The vocabulary in which tests tell stories about a Scheduler, over a model whose answers depend
// on every word of the prompt.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "server/schedule/scheduler.h"
#include "support/engine_kinds.h"
#include "support/fake_model.h"

namespace stemma::server {

using test::FakeModel;
using test::FakeSequences;

// Listens to one request; tests can wait for it.
class Ear final : public Listener {
 public:
  void piece(Piece piece) override {
    {
      const std::lock_guard lock(mutex_);
      texts_.resize(std::max<size_t>(texts_.size(), piece.choice + 1));
      texts_[piece.choice] += piece.text;
      for (TokenLogprob& each : piece.logprobs) logprobs.push_back(std::move(each));
      heard_.notify_all();
    }
    if (on_text) std::exchange(on_text, nullptr)();
  }
  void ended(ChoiceEnd end) override {
    const std::lock_guard lock(mutex_);
    ends.push_back(std::move(end));
  }
  void done(const Summary& said) override { over(&said, ""); }
  void failed(const Error& error, const std::string& message, bool) override {
    code = error.code();
    over(nullptr, message);
  }

  // Called when the request has ended, between two passes of the engine and before waiting threads
  // wake.
  std::function<void()> on_over;
  // Called at the first piece, between two passes of the engine; set in Rig::together().
  std::function<void()> on_text;
  // The same at a later piece, counted from 1.
  void at_piece(uint32_t number, std::function<void()> then) {
    on_text = number == 1 ? std::move(then) : [this, number, then = std::move(then)]() mutable {
      at_piece(number - 1, std::move(then));
    };
  }

  bool wait(uint32_t seconds = 120) {
    std::unique_lock lock(mutex_);
    return heard_.wait_for(lock, std::chrono::seconds(seconds), [&] { return times_over_ != 0; });
  }
  // Until there is some text.
  bool wait_for_text(uint32_t seconds = 120) {
    std::unique_lock lock(mutex_);
    return heard_.wait_for(lock, std::chrono::seconds(seconds),
                           [&] { return !texts_.empty() || times_over_ != 0; });
  }
  std::string text(uint32_t choice = 0) {
    const std::lock_guard lock(mutex_);
    return choice < texts_.size() ? texts_[choice] : "";
  }
  uint32_t times_over() {
    const std::lock_guard lock(mutex_);
    return times_over_;
  }

  Summary summary;
  std::string failure;
  Errc code{};
  std::vector<ChoiceEnd> ends;
  std::vector<TokenLogprob> logprobs;

 private:
  void over(const Summary* what, const std::string& message) {
    if (on_over) std::exchange(on_over, nullptr)();
    const std::lock_guard lock(mutex_);
    if (what != nullptr) summary = *what;
    failure = message;
    ++times_over_;
    heard_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable heard_;
  std::vector<std::string> texts_;
  uint32_t times_over_ = 0;
};

class Rig {
 public:
  explicit Rig(FakeSequences::Options engine = test::full_engine(), SchedulerOptions options = {},
               uint32_t batch = 64)
      : model(engine, batch), clock(model.fake()) {
    if (options.clock == nullptr) options.clock = &clock;
    std::string why;
    scheduler = Scheduler::create(model, options, why);
    EXPECT_NE(scheduler, nullptr) << why;
  }
  // Greedy, unless `change` says otherwise.
  std::shared_ptr<Ear> ask(const std::string& prompt, uint32_t max_tokens,
                           const std::function<void(Generation&)>& change = {}) {
    Generation generation;
    generation.prompt = *model.tokenize(prompt, true, true);
    generation.max_tokens = max_tokens;
    generation.sampling.temperature = 0;
    if (change) change(generation);
    auto ear = std::make_shared<Ear>();
    const Result<uint64_t> taken = scheduler->submit(std::move(generation), ear);
    EXPECT_TRUE(taken.has_value()) << taken.error().to_string();
    number = taken ? *taken : 0;
    return ear;
  }
  // Calls `asking` while the engine is paused, so that all its requests arrive before one is
  // served.
  void together(const std::function<void()>& asking) {
    EXPECT_TRUE(scheduler->run([&](SequenceCache&) { asking(); }));
  }
  std::string expected(const std::string& prompt, uint32_t max_tokens) const {
    return model.text(model.greedy(*model.tokenize(prompt, true, true), max_tokens));
  }
  // All requests have ended: nothing is leased.
  void expect_quiet() {
    EXPECT_TRUE(scheduler->run([](SequenceCache& cache) { cache.check_invariants(); }));
    const SequenceStats stats = scheduler->cache().stats();
    EXPECT_EQ(stats.leased_sequences, 0U);
    EXPECT_EQ(scheduler->stats().running, 0U);
    EXPECT_EQ(scheduler->stats().waiting, 0U);
    EXPECT_TRUE(scheduler->running().empty());
  }

  FakeModel model;
  test::EngineClock clock;
  std::unique_ptr<Scheduler> scheduler;
  uint64_t number = 0;
};

inline std::string words(uint32_t count, uint32_t seed) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i)
    text += static_cast<char>('a' + base::mix(seed * 1000 + i) % 26);
  return text;
}

}  // namespace stemma::server
