// A store over tiers that fail, stall and lie: what a caller sees, and when its memory is touched.
#include "capi/store/store.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "support/now.h"
#include "tier/entry.h"
#include "tier/object/envelope.h"
#include "tier/wait_until.h"

namespace stemma::capi::store {
namespace {

using test::now_ns;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kMinute = 60'000 * kMs;
constexpr size_t kValue = 4096;

class StoreOverFaults : public ::testing::Test {
 protected:
  void open(const FaultPlan& plan, const Options& options = {}, uint64_t query_ns = kMinute) {
    auto inner = make_host_tier({.capacity_bytes = 16U << 20U}).value();
    inside = inner.get();
    auto faulty_tier = std::make_unique<FaultyTier>(std::move(inner), plan);
    faulty = faulty_tier.get();
    tier::StackOptions under;
    under.levels.push_back({.tier = std::move(faulty_tier)});
    under.query_ns = query_ns;
    under.load_ns = kMinute;
    under.store_ns = kMinute;
    under.sightings = 1U << 12U;
    stack = tier::TierStack::create(std::move(under)).value();
    start(options);
  }
  void start(const Options& options) {
    store = Store::create(*stack, nullptr, options).value();
    space = store->space(store->name_space("test", 1, 0).value()).value();
  }
  void TearDown() override {
    if (faulty != nullptr) faulty->set_plan({});
    if (store != nullptr) store->close(kNever);
  }

  static std::string key(uint32_t i) { return "key " + std::to_string(i); }
  static std::vector<uint8_t> value(uint32_t i, size_t size = kValue) {
    std::vector<uint8_t> bytes(size);
    std::iota(bytes.begin(), bytes.end(), static_cast<uint8_t>(i * 31));
    return bytes;
  }

  // Values lie one after the other in `memory`.
  Request request(Op op, uint32_t count, uint32_t first = 0) {
    Request made;
    made.op = op;
    made.space = space;
    made.user = first;
    // Memory that earlier requests may still write to stays in place.
    earlier.emplace_back(std::move(results), std::move(memory));
    results.assign(count, {});
    made.results = results.data();
    memory.assign(count, {});
    for (uint32_t i = 0; i < count; ++i) {
      const std::string name = key(first + i);
      memory[i] = op == Op::put ? value(first + i) : std::vector<uint8_t>(kValue, 0xEE);
      made.items.push_back({.number = i,
                            .key_at = static_cast<uint32_t>(made.key_bytes.size()),
                            .key_size = static_cast<uint8_t>(name.size()),
                            .value = memory[i].data(),
                            .bytes = op == Op::put || op == Op::get ? kValue : 0});
      made.key_bytes.insert(made.key_bytes.end(), name.begin(), name.end());
    }
    return made;
  }
  stemma_store_finished run(Request&& made) {
    const stemma_batch batch = store->submit(std::move(made)).value();
    stemma_store_finished finished{};
    EXPECT_TRUE(store->ledger().wait(batch, kNever, &finished).value());
    return finished;
  }
  bool readable() {
    pollfd one{.fd = store->ledger().event_fd(), .events = POLLIN, .revents = 0};
    return poll(&one, 1, 0) == 1;
  }
  Status status(size_t i) const { return static_cast<Status>(results[i].status); }

  std::unique_ptr<tier::TierStack> stack;
  FaultyTier* faulty = nullptr;
  Tier* inside = nullptr;
  std::unique_ptr<Store> store;
  std::shared_ptr<const tier::object::Space> space;
  std::vector<stemma_store_result> results;
  std::vector<std::vector<uint8_t>> memory;
  std::deque<std::pair<std::vector<stemma_store_result>, std::vector<std::vector<uint8_t>>>>
      earlier;
};

TEST_F(StoreOverFaults, WhatWasPutComesBack) {
  open({});
  EXPECT_EQ(run(request(Op::put, 300)).done, 300U);
  const stemma_store_finished got = run(request(Op::get, 300));
  EXPECT_EQ(got.done, 300U);
  EXPECT_EQ(got.leading, 300U);
  EXPECT_EQ(got.bytes, 300 * kValue);
  for (uint32_t i = 0; i < 300; ++i) {
    EXPECT_EQ(memory[i], value(i)) << i;
    EXPECT_EQ(results[i].levels, 1U);
    EXPECT_EQ(results[i].bytes, kValue);
  }
}

TEST_F(StoreOverFaults, AnAnswerIsRightOrAMissWhateverGoesWrong) {
  open({});
  constexpr uint32_t kCount = 200;
  EXPECT_EQ(run(request(Op::put, kCount)).done, kCount);
  faulty->set_plan({.seed = 3, .fail = 100, .lose_answer = 100, .tear = 100, .flip = 100});
  uint32_t done = 0, absent = 0;
  for (int round = 0; round < 4; ++round) {
    const stemma_store_finished got = run(request(Op::get, kCount));
    uint32_t leading = kCount;
    for (uint32_t i = 0; i < kCount; ++i) {
      if (status(i) == Status::done) {
        EXPECT_EQ(memory[i], value(i)) << i;
        ++done;
      } else {
        EXPECT_EQ(status(i), Status::absent) << i;
        EXPECT_EQ(memory[i], std::vector<uint8_t>(kValue, 0xEE)) << "a miss wrote something";
        leading = std::min(leading, i);
        ++absent;
      }
    }
    EXPECT_EQ(got.leading, leading);
  }
  EXPECT_GT(done, 0U);
  EXPECT_GT(absent, 0U);
}

TEST_F(StoreOverFaults, FailedPutsAreSaidToHaveFailed) {
  open({.fail = 1000});
  EXPECT_EQ(run(request(Op::put, 3)).done, 0U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(status(i), Status::failed);
  faulty->set_plan({});
  EXPECT_EQ(run(request(Op::put, 3)).done, 3U) << "a put that failed can be tried again";
}

TEST_F(StoreOverFaults, AStalledTierHoldsUpNobodyAndBatchesEndByTheirDeadlines) {
  open({.stall = true});
  Request slow = request(Op::put, 8);
  slow.timeout_ns = 200 * kMs;
  const uint64_t before = now_ns();
  const stemma_batch batch = store->submit(std::move(slow)).value();
  std::vector<std::span<const uint8_t>> keys;
  const std::string name = key(0);
  keys.emplace_back(reinterpret_cast<const uint8_t*>(name.data()), name.size());
  std::vector<tier::LevelMask> levels(1);
  store->lookup(*space, keys, false, levels);
  // Neither call waited for the tier, which never answers; waiting would have taken an hour.
  EXPECT_LT(now_ns() - before, kMinute);
  EXPECT_EQ(levels[0], 0U);
  stemma_store_finished finished{};
  EXPECT_TRUE(store->ledger().wait(batch, kNever, &finished).value());
  EXPECT_GE(now_ns() - before, 200 * kMs);
  EXPECT_EQ(finished.done, 0U);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(status(i), Status::late);
}

TEST_F(StoreOverFaults, NoMemoryIsTouchedAfterABatchIsOver) {
  open({});
  EXPECT_EQ(run(request(Op::put, 4)).done, 4U);
  faulty->set_plan({.stall = true});
  Request get = request(Op::get, 4);
  const stemma_batch batch = store->submit(std::move(get)).value();
  stemma_store_finished finished{};
  ASSERT_TRUE(store->ledger().cancel(batch, &finished));
  EXPECT_EQ(finished.done, 0U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(status(i), Status::cancelled);
  EXPECT_EQ(store->ledger().cancel(batch, nullptr).error().code(), Errc::stale);
  std::vector<std::vector<uint8_t>> after = memory;
  std::fill(results.begin(), results.end(), stemma_store_result{77, 77, 77});
  faulty->set_plan({});  // The stalled requests begin now.
  ASSERT_TRUE(store->close(kNever));
  EXPECT_TRUE(stack->flush(kNever));
  EXPECT_EQ(memory, after);
  for (const stemma_store_result& one : results) EXPECT_EQ(one.status, 77U);
}

TEST_F(StoreOverFaults, CloseReturnsWhileATierIsStuckAndKeepsTheStackUntilItIsNot) {
  open({});
  EXPECT_EQ(run(request(Op::put, 1)).done, 1U);
  ASSERT_TRUE(store->close(kNever));
  auto keep = std::make_shared<int>(1);
  const std::weak_ptr<int> kept = keep;
  store = Store::create(*stack, std::move(keep), {}).value();
  space = store->space(store->name_space("test", 1, 0).value()).value();
  faulty->set_plan({.stall = true});
  const uint64_t asked = stack->stats().queries;
  static_cast<void>(store->submit(request(Op::get, 1)).value());
  // It first looks at what exists now, then waits for the answer.
  while (stack->stats().queries < asked + 2) std::this_thread::yield();
  EXPECT_FALSE(store->close(now_ns() + 50 * kMs));
  store.reset();
  EXPECT_FALSE(kept.expired());
  faulty->set_plan({});
  while (!kept.expired()) std::this_thread::yield();
}

TEST_F(StoreOverFaults, TheQueueIsBoundedAndSaysBusyForEachItem) {
  open({.stall = true}, {.most_batches = 3, .most_items = 10});
  const stemma_batch first = store->submit(request(Op::get, 8)).value();
  const stemma_batch second = store->submit(request(Op::get, 8)).value();
  // Two found room; the others report at once that there is none.
  EXPECT_EQ(status(0), Status::pending);
  EXPECT_EQ(status(1), Status::pending);
  for (size_t i = 2; i < 8; ++i) EXPECT_EQ(status(i), Status::busy) << i;
  const stemma_batch third = store->submit(request(Op::get, 2)).value();
  stemma_store_finished finished{};
  EXPECT_TRUE(store->ledger().wait(third, 0, &finished).value()) << "it had no room at all";
  EXPECT_EQ(finished.done, 0U);
  static_cast<void>(store->submit(request(Op::get, 1)).value());
  EXPECT_EQ(store->submit(request(Op::get, 1)).error().code(), Errc::busy);
  EXPECT_TRUE(store->ledger().cancel(first, nullptr));
  EXPECT_TRUE(store->ledger().cancel(second, nullptr));
  EXPECT_TRUE(store->submit(request(Op::get, 1)));
}

TEST_F(StoreOverFaults, TheEventIsThereExactlyWhileSomethingCanBeDrained) {
  open({});
  EXPECT_FALSE(readable());
  std::vector<stemma_batch> batches;
  for (uint32_t i = 0; i < 5; ++i) {
    batches.push_back(store->submit(request(Op::contains, 1, i)).value());
    while (store->ledger().counts().batches_ended != i + 1) std::this_thread::yield();
  }
  EXPECT_TRUE(readable());
  stemma_store_finished one{};
  EXPECT_TRUE(store->ledger().wait(batches[1], 0, &one).value());
  EXPECT_EQ(one.user, 1U);
  EXPECT_TRUE(readable());
  std::vector<stemma_store_finished> some(3);
  ASSERT_EQ(store->ledger().drain(some), 3U);
  EXPECT_EQ(some[0].batch, batches[0]);
  EXPECT_EQ(some[1].batch, batches[2]);
  EXPECT_EQ(some[2].batch, batches[3]);
  EXPECT_TRUE(readable());
  EXPECT_EQ(store->ledger().drain(some), 1U);
  EXPECT_EQ(some[0].batch, batches[4]);
  EXPECT_FALSE(readable());
  EXPECT_EQ(store->ledger().drain(some), 0U);
  EXPECT_EQ(store->ledger().wait(batches[0], 0, nullptr).error().code(), Errc::stale);
}

TEST_F(StoreOverFaults, RemovedMeansGoneAlsoFromWhatWasOnItsWayUp) {
  // Two levels: entries found on the lower one move up.
  auto upper = make_host_tier({.name = "upper", .capacity_bytes = 16U << 20U}).value();
  auto lower = make_host_tier({.name = "lower", .capacity_bytes = 16U << 20U}).value();
  Tier& above = *upper;
  Tier& below = *lower;
  tier::StackOptions under;
  under.levels.push_back({.tier = std::move(upper)});
  under.levels.push_back({.tier = std::move(lower)});
  under.query_ns = under.load_ns = kMinute;
  stack = tier::TierStack::create(std::move(under)).value();
  start({});
  constexpr uint32_t kCount = 50;
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(run(request(Op::put, kCount)).done, kCount);
    // As if the upper level had evicted them: a get moves them up again.
    EXPECT_TRUE(above.purge({}, kNever).complete);
    EXPECT_EQ(run(request(Op::get, kCount)).done, kCount);
    EXPECT_EQ(run(request(Op::remove, kCount)).done, kCount);
    EXPECT_EQ(run(request(Op::contains, kCount)).done, 0U) << "round " << round;
    EXPECT_TRUE(stack->flush(kNever));
    EXPECT_EQ(above.stats().entries + below.stats().entries, 0U) << "round " << round;
    EXPECT_EQ(run(request(Op::remove, kCount)).done, 0U);
    for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(status(i), Status::absent);
  }
}

TEST_F(StoreOverFaults, RemovedKeysCanHaveOtherBytes) {
  open({});
  EXPECT_EQ(run(request(Op::put, 1)).done, 1U);
  Request other = request(Op::put, 1);
  memory[0] = value(99);
  other.items[0].value = memory[0].data();
  EXPECT_EQ(run(std::move(other)).done, 1U);
  EXPECT_EQ(run(request(Op::get, 1)).done, 1U);
  EXPECT_EQ(memory[0], value(0)) << "a put of what is there leaves it";
  EXPECT_EQ(run(request(Op::remove, 1)).done, 1U);
  Request again = request(Op::put, 1);
  memory[0] = value(99);
  again.items[0].value = memory[0].data();
  EXPECT_EQ(run(std::move(again)).done, 1U);
  EXPECT_EQ(run(request(Op::get, 1)).done, 1U);
  EXPECT_EQ(memory[0], value(99));
}

TEST_F(StoreOverFaults, AnEvictedValueCanBePutAgain) {
  open({});
  EXPECT_EQ(run(request(Op::put, 20)).done, 20U);
  EXPECT_TRUE(inside->purge({}, kNever).complete);  // Without the stack's knowledge.
  EXPECT_EQ(run(request(Op::put, 20)).done, 20U);
  EXPECT_EQ(run(request(Op::get, 20)).done, 20U);
}

TEST_F(StoreOverFaults, AnEntryThatIsNotWhatItsNameSaysIsAMiss) {
  open({});
  // As if two keys had collided: a good entry under another key's name.
  const std::string mine = "mine", other = "other";
  const auto bytes_of = [](const std::string& text) {
    return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  std::vector<uint8_t> payload(tier::object::kEnvelopeBytes + kValue, 7);
  tier::object::write_envelope(
      {.name = "test", .layout = 1, .key = bytes_of(other), .value_bytes = kValue},
      std::span(payload).first<tier::object::kEnvelopeBytes>());
  const auto put = TierBatch::make(TierOp::put, 1).value();
  put->items()[0].key = space->entry_key(bytes_of(mine));
  put->items()[0].info = {.end = 1, .layout = space->tier_layout(), .bytes = payload.size()};
  put->items()[0].source = payload;
  inside->submit(put);
  ASSERT_TRUE(put->wait());
  ASSERT_EQ(put->items()[0].outcome, TierOutcome::done);
  Request get = request(Op::get, 1);
  get.key_bytes.assign(mine.begin(), mine.end());
  get.items[0].key_size = static_cast<uint8_t>(mine.size());
  EXPECT_EQ(run(std::move(get)).done, 0U);
  EXPECT_EQ(status(0), Status::absent);
  EXPECT_EQ(memory[0], std::vector<uint8_t>(kValue, 0xEE));
  EXPECT_EQ(store->stats().mismatched, 1U);
}

TEST_F(StoreOverFaults, AGetWithTooLittleRoomIsAMiss) {
  open({});
  EXPECT_EQ(run(request(Op::put, 1)).done, 1U);
  Request get = request(Op::get, 1);
  get.items[0].bytes = kValue - 1;
  EXPECT_EQ(run(std::move(get)).done, 0U);
  EXPECT_EQ(status(0), Status::absent);
  Request large = request(Op::get, 1);
  memory[0].resize(2 * kValue, 0xEE);
  large.items[0].value = memory[0].data();
  large.items[0].bytes = 2 * kValue;
  EXPECT_EQ(run(std::move(large)).done, 1U);
  EXPECT_EQ(results[0].bytes, kValue);
  EXPECT_EQ(memory[0][kValue], 0xEE);
}

TEST_F(StoreOverFaults, PutsKeepToTheirBudgetAndAllGetThere) {
  open({.delay_ns = 100'000}, {.put_bytes = 3 * kValue});
  EXPECT_EQ(run(request(Op::put, 100)).done, 100U);
  EXPECT_EQ(run(request(Op::get, 100)).done, 100U);
}

TEST_F(StoreOverFaults, ManyThreadsSubmitWaitDrainAndCancelAtOnce) {
  open({.seed = 5, .fail = 20, .jitter_ns = 200'000}, {.most_batches = 64});
  constexpr uint32_t kThreads = 4, kRounds = 60, kCount = 8;
  std::atomic<uint32_t> named{0}, submitted{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t round = 0; round < kRounds; ++round) {
        std::vector<stemma_store_result> mine(kCount);
        std::vector<std::vector<uint8_t>> values(kCount);
        Request one;
        one.op = static_cast<Op>((round + t) % kOps);
        one.space = space;
        one.results = mine.data();
        for (uint32_t i = 0; i < kCount; ++i) {
          const uint32_t number = round % 7 * kCount + i;
          const std::string name = key(number);
          values[i] = one.op == Op::put ? value(number) : std::vector<uint8_t>(kValue);
          one.items.push_back({.number = i,
                               .key_at = static_cast<uint32_t>(one.key_bytes.size()),
                               .key_size = static_cast<uint8_t>(name.size()),
                               .value = values[i].data(),
                               .bytes = kValue});
          one.key_bytes.insert(one.key_bytes.end(), name.begin(), name.end());
        }
        const Op op = one.op;
        const Result<stemma_batch> batch = store->submit(std::move(one));
        ASSERT_TRUE(batch) << batch.error().message();
        submitted.fetch_add(1);
        if (round % 5 == 4) {
          ASSERT_TRUE(store->ledger().cancel(*batch, nullptr));
        } else {
          ASSERT_TRUE(store->ledger().wait(*batch, kNever, nullptr).value());
        }
        named.fetch_add(1);
        for (uint32_t i = 0; i < kCount && op == Op::get; ++i) {
          if (static_cast<Status>(mine[i].status) != Status::done) continue;
          EXPECT_EQ(values[i], value(round % 7 * kCount + i));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(named.load(), submitted.load());
  EXPECT_EQ(named.load(), kThreads * kRounds);
  EXPECT_EQ(store->ledger().counts().items_waiting, 0U);
}

TEST_F(StoreOverFaults, OptionsAreChecked) {
  open({});
  for (const Options& wrong :
       {Options{.load_threads = 0}, Options{.load_threads = 65}, Options{.store_threads = 0},
        Options{.most_batches = 0}, Options{.most_items = 0}, Options{.put_bytes = 0},
        Options{.timeout_ns = 0}}) {
    EXPECT_EQ(Store::create(*stack, nullptr, wrong).error().code(), Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace stemma::capi::store
