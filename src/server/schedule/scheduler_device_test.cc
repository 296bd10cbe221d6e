// Tests what users of a device can rely on, over a fake engine with a GPU's costs. Time is the
// engine's own: it passes only while the engine computes or moves bytes, so nothing here depends on
// this machine's speed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/scheduler_rig.h"

namespace stemma::server {
namespace {

constexpr double kMs = 1e6;

FakeSequences::Options device_engine() {
  FakeSequences::Options options;
  options.context_tokens = 4 * 33'000;
  options.range_tokens = 4096;
  options.costs = test::device_costs();
  return options;
}

// Counts bytes as pinned until they are unpinned.
class CountedPins final : public HostMemoryHook {
 public:
  bool pin(void*, uint64_t bytes) noexcept override {
    pinned += bytes;
    return true;
  }
  void unpin(void*, uint64_t bytes) noexcept override { pinned -= bytes; }
  std::atomic<uint64_t> pinned = 0;
};

class Device {
 public:
  explicit Device(Reuse reuse = Reuse::everything,
                  const FakeSequences::Options& engine = device_engine(),
                  uint64_t saved_bytes = 64U << 20U)
      : model(engine, 2048), clock(model.fake()) {
    SchedulerOptions options;
    options.cache.reuse = reuse;
    options.cache.saved_bytes = saved_bytes;
    options.cache.pinned = &pins;
    options.cache.range_threads = 0;  // Threads do not follow the fake time.
    // The same error as on a real device, where a token has 128 KiB.
    options.cache.move_byte_ps *= 128 * 1024 / 24;
    options.clock = &clock;
    std::string why;
    scheduler = Scheduler::create(model, options, why);
    EXPECT_NE(scheduler, nullptr) << why;
  }

  std::shared_ptr<Ear> ask(const std::string& prompt, uint32_t tokens,
                           const std::function<void(Ear&)>& prepare = {}) {
    Generation generation;
    generation.prompt = *model.tokenize(prompt, true, true);
    generation.max_tokens = tokens;
    generation.sampling.temperature = 0;
    generation.sampling.ignore_eos = true;
    auto ear = std::make_shared<Ear>();
    if (prepare) prepare(*ear);
    EXPECT_TRUE(scheduler->submit(std::move(generation), ear).has_value());
    return ear;
  }
  // Waits for its end. Returns the time to its first token.
  static double first_token_ms(Ear& ear) {
    EXPECT_TRUE(ear.wait());
    EXPECT_EQ(ear.failure, "");
    const Timings& timings = ear.summary.timings;
    return static_cast<double>(timings.queued_ns + timings.prompt_ns) / kMs;
  }
  double chat(const std::string& prompt, uint32_t tokens = 16) {
    return first_token_ms(*ask(prompt, tokens));
  }
  // Asks for a prompt again the moment that the first answer is over.
  double again_at_once(const std::string& prompt) {
    std::shared_ptr<Ear> again;
    const auto first =
        ask(prompt, 16, [&](Ear& ear) { ear.on_over = [&] { again = ask(prompt, 16); }; });
    EXPECT_TRUE(first->wait());
    return first_token_ms(*again);
  }
  void save_everything() {
    EXPECT_TRUE(scheduler->run([](SequenceCache& cache) {
      while (cache.drain({.evict = true}).more) {
      }
    }));
  }
  uint64_t waited_longer_than(double seconds) const {
    return longer_than(seconds, scheduler->stats().saving_seconds);
  }
  static uint64_t longer_than(double seconds, const Histogram& waits) {
    uint64_t longer = 0;
    for (uint32_t i = 1; i <= Histogram::kBuckets; ++i) {
      if (waits.bound(i - 1) >= seconds) longer += waits.in_bucket(i);
    }
    return longer;
  }

  CountedPins pins;
  FakeModel model;
  test::EngineClock clock;
  std::unique_ptr<Scheduler> scheduler;
};

TEST(SchedulerOnADevice, AgainAtOnceIsAsFastAsIfNothingWereSaved) {
  for (const uint32_t length : {2'000U, 8'192U, 32'000U}) {
    const std::string prompt = words(length, 1);
    const double live = Device(Reuse::live).again_at_once(prompt);
    const double ours = Device().again_at_once(prompt);
    EXPECT_LE(ours, 1.3 * live) << length;
  }
}

TEST(SchedulerOnADevice, AgainWhileOthersStreamIsAsFastAsIfNothingWereSaved) {
  const auto took = [](Reuse reuse) {
    Device device(reuse);
    const std::string prompt = words(8'192, 1);
    device.chat(prompt);
    std::shared_ptr<Ear> again;
    const auto asks = [&](Ear& ear) { ear.at_piece(20, [&] { again = device.ask(prompt, 16); }); };
    const auto first = device.ask(words(500, 2), 100);
    const auto second = device.ask(words(700, 3), 100, asks);
    EXPECT_TRUE(first->wait() && second->wait());
    return Device::first_token_ms(*again);
  };
  EXPECT_LE(took(Reuse::everything), 1.3 * took(Reuse::live));
}

TEST(SchedulerOnADevice, RestoringTakesWhatTheLinkTakes) {
  for (const auto& [length, times] : {std::pair{8'192U, 7.0}, std::pair{32'000U, 13.0}}) {
    Device device;
    const double cold = device.chat(words(length, 1));
    for (uint32_t i = 2; i < 8; ++i) {
      device.save_everything();
      device.chat(words(length, i));
    }
    device.save_everything();
    const auto ear = device.ask(words(length, 1), 16);
    const double restored = Device::first_token_ms(*ear);
    EXPECT_EQ(ear->summary.cached_tokens, length) << "all but the last";
    EXPECT_LE(restored * times, cold) << length;
    const double link = length * 24 * 0.119e-3 + 10;  // 119,000 ps a byte, and a pass.
    EXPECT_LE(restored, 1.3 * link) << length;
  }
}

TEST(SchedulerOnADevice, ColdBesideSavedIdleSequencesIsAsFastAsAlone) {
  for (const uint32_t length : {8'192U, 32'000U}) {
    Device device;
    const double alone = device.chat(words(length, 1));
    for (uint32_t i = 2; i < 4; ++i) device.chat(words(length, i));
    device.save_everything();
    EXPECT_LE(device.chat(words(length, 4)), 1.05 * alone) << length;
  }
}

// Smaller models: a cell costs a twelfth of the 8B shape's, and loading a token half of it. So
// dropping idle state saves less. Costs learned from restoring must not prevent dropping it.
TEST(SchedulerOnADevice, ColdBesideIdleSequencesOfSmallModelsIsAsFastAsAlone) {
  for (const Rewind rewind : {Rewind::window, Rewind::exact}) {
    FakeSequences::Options engine = device_engine();
    engine.rewind = rewind;
    engine.checkpoints = true;
    engine.rewind_tokens = 1024;
    engine.costs.token_ns = 24'000;
    engine.costs.cell_ps = 174;
    engine.costs.save_byte_ps = 170'000;
    engine.costs.load_byte_ps = 195'000;
    engine.costs.pass_ns = 3'000'000;
    Device device(Reuse::everything, engine);
    constexpr uint32_t kLength = 32'000;
    const double alone = device.chat(words(kLength, 1));
    for (uint32_t i = 2; i < 8; ++i) device.chat(words(kLength, i));
    device.save_everything();
    // Each one after the six others, twice.
    for (uint32_t i = 0; i < 14; ++i) device.chat(words(kLength, i % 7 + 1));
    for (uint32_t i = 8; i < 11; ++i) {
      device.save_everything();
      EXPECT_LE(device.chat(words(kLength, i)), 1.05 * alone) << i;
    }
  }
}

TEST(SchedulerOnADevice, PromptsInTurnWithoutAPauseHardlySlowEachOtherDown) {
  Device device;
  constexpr uint32_t kLength = 32'000;
  std::vector<std::shared_ptr<Ear>> ears(6);
  std::function<void(uint32_t)> next = [&](uint32_t i) {
    ears[i] = device.ask(words(kLength, i + 1), 4, [&, i](Ear& ear) {
      if (i + 1 < ears.size()) ear.on_over = [&, i] { next(i + 1); };
    });
  };
  next(0);
  const double alone = Device().chat(words(kLength, 1));
  // Each request is sent when the one before is over, before anyone learns of its end.
  for (size_t i = 0; i < ears.size(); ++i) {
    EXPECT_LE(Device::first_token_ms(*ears[i]), 1.3 * alone) << i;
  }
}

TEST(SchedulerOnADevice, NobodyWaitsLongForCaptures) {
  Device device;
  constexpr uint32_t kClients = 16;
  constexpr uint32_t kTurns = 4;
  std::vector<std::vector<std::shared_ptr<Ear>>> ears(kClients,
                                                      std::vector<std::shared_ptr<Ear>>(kTurns));
  std::function<void(uint32_t, uint32_t)> turn = [&](uint32_t client, uint32_t n) {
    const std::string prompt = words(300 + 450 * client, client) + words(100 * n, 99);
    ears[client][n] = device.ask(prompt, 20, [&, client, n](Ear& ear) {
      if (n + 1 < kTurns) ear.on_over = [&, client, n] { turn(client, n + 1); };
    });
  };
  EXPECT_TRUE(device.scheduler->run([&](SequenceCache&) {
    for (uint32_t client = 0; client < kClients; ++client) turn(client, 0);
  }));
  for (const auto& turns : ears) {
    for (const std::shared_ptr<Ear>& each : turns) EXPECT_TRUE(each->wait());
  }
  device.save_everything();
  EXPECT_EQ(device.waited_longer_than(0.01), 0U);
}

TEST(SchedulerOnADevice, RequestsOfOnePassAreSavedAlthoughItIsNeverQuiet) {
  Device device;
  constexpr uint32_t kRequests = 24;
  std::vector<std::shared_ptr<Ear>> ears(kRequests);
  std::function<void(uint32_t)> next = [&](uint32_t i) {
    ears[i] = device.ask(words(1'500, i % 3 + 1), 1, [&, i](Ear& ear) {
      if (i + 1 < kRequests) ear.on_over = [&, i] { next(i + 1); };
    });
  };
  next(0);
  for (const std::shared_ptr<Ear>& each : ears) EXPECT_TRUE(each->wait());
  EXPECT_GE(device.scheduler->cache().stats().captured_bytes, 3U * 1'400U * 24U);
}

TEST(SchedulerOnADevice, WhereTheLinkIsSlowerThanComputingNothingIsRestored) {
  FakeSequences::Options engine = device_engine();
  engine.costs.save_byte_ps *= 60;
  engine.costs.load_byte_ps *= 60;
  Device device(Reuse::everything, engine);
  for (uint32_t i = 1; i < 8; ++i) {
    device.chat(words(8'192, i));
    device.save_everything();
  }
  device.chat(words(8'192, 1));
  EXPECT_EQ(device.model.fake().counts().loaded_bytes, 0U);
  const uint64_t saved = device.model.fake().counts().saved_bytes;
  for (uint32_t i = 8; i < 12; ++i) {
    device.chat(words(8'192, i));
    device.save_everything();
  }
  EXPECT_EQ(device.model.fake().counts().saved_bytes, saved) << "what never pays is not saved";
}

// A device is lost while a saved prompt is copied to it: half of a range has arrived, and all
// passes fail. The request is refused, and what it had loaded is not used when the device is back.
TEST(SchedulerOnADevice, ADeviceThatIsLostInTheMiddleOfACopyServesNothingWrong) {
  for (const bool comes_back : {false, true}) {
    Device device;
    const std::string prompt = words(8'192, 1);
    for (uint32_t i = 1; i < 8; ++i) {
      device.chat(words(8'192, i));
      device.save_everything();
    }
    std::shared_ptr<Ear> ear;
    EXPECT_TRUE(device.scheduler->run([&](SequenceCache&) {
      device.model.fake().faults.next(test::Call::load, test::Fault::halfway);
      if (!comes_back) device.model.failing_passes = 1'000'000;
      ear = device.ask(prompt, 16);
    }));
    EXPECT_TRUE(ear->wait());
    const auto& happened = device.model.fake().faults.happened();
    ASSERT_EQ(happened.size(), 1U) << "it was not restored at all";
    const std::string right =
        device.model.text(device.model.greedy(*device.model.tokenize(prompt, true, true), 16));
    if (comes_back) {
      EXPECT_EQ(ear->failure, "");
      EXPECT_EQ(ear->text(), right) << "what was lost is computed";
    } else {
      EXPECT_NE(ear->failure, "");
      EXPECT_EQ(ear->text(), "");
    }
    device.model.failing_passes = 0;
    const auto again = device.ask(prompt, 16);
    EXPECT_TRUE(again->wait());
    EXPECT_EQ(again->failure, "");
    EXPECT_EQ(again->text(), right);
    EXPECT_TRUE(device.scheduler->run([](SequenceCache& cache) { cache.check_invariants(); }));
  }
}

// A long prompt leaves much to save. Meanwhile the answer that follows at once is streamed.
TEST(SchedulerOnADevice, NoTokenOfAnAnswerWaitsForMoreThanAStep) {
  for (const Rewind rewind : {Rewind::any, Rewind::window}) {
    FakeSequences::Options engine = device_engine();
    engine.rewind = rewind;
    engine.checkpoints = rewind == Rewind::window;
    Device device(Reuse::everything, engine);
    for (uint32_t i = 0; i < 3; ++i) device.again_at_once(words(30'000, i));
    // A pass takes 7 ms and a step beside answers 3.
    EXPECT_EQ(Device::longer_than(0.02, device.scheduler->stats().token_seconds), 0U);
  }
}

TEST(SchedulerOnADevice, MemoryIsFlatOverManyRequests) {
  Device device(Reuse::everything, device_engine(), 1U << 20U);
  uint64_t pinned = 0;
  for (uint32_t i = 0; i < 400; ++i) {
    device.chat(words(200 + i % 7 * 100, i % 60), 4);
    const SequenceStats stats = device.scheduler->cache().stats();
    EXPECT_LE(stats.saved_bytes, 1U << 20U);
    if (i == 100) pinned = std::max<uint64_t>(device.pins.pinned, 1U << 17U);
    EXPECT_LE(device.pins.pinned, i < 100 ? kNever : pinned);
  }
  EXPECT_GT(device.scheduler->cache().stats().segment_evictions, 0U);
}

}  // namespace
}  // namespace stemma::server
