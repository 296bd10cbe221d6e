// What a cache expects of every BlockIo, and how it handles the three ways in which one can answer.
// An engine's own BlockIo joins with one line at the end of this file.
#include "stemma/block_io.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

struct IoCase {
  std::string name;
  FakeEngine::Mode mode;
  bool succeeds;
};

// Counts what is reported and waits for it.
struct Reported {
  std::atomic<int> times = 0;
  std::atomic<Errc> code = kOk;

  static void done(void* user, Result<void> outcome) {
    auto* self = static_cast<Reported*>(user);
    self->code = outcome ? kOk : outcome.error().code();
    ++self->times;
  }
  void wait() const {
    while (times == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // For a second, wrong report.
  }
};

class BlockIoContract : public PagedFixture, public ::testing::WithParamInterface<IoCase> {
 protected:
  BlockIoContract() : options(grouped({full(10)})), engine(options.groups) {
    engine.memory.set_mode(GetParam().mode);
    options.block_io = &engine.memory;
  }
  // A prompt of 40 whose KV is there, part-block included.
  void cache_forty(PagedCache& cache) {
    Lease writer = take(cache, text);
    engine.run(writer, story, 40);
    ok(writer.release());
  }

  Options options;
  Engine engine;
  Text text = tokens(40);
  Story story = story_of(text);
};

TEST_P(BlockIoContract, EveryCallIsReportedExactlyOnce) {
  BlockIo& io = engine.memory;
  const BlockId blocks[] = {BlockId{1}, BlockId{2}};
  const BlockCopy copies[] = {
      {.group = 0, .source = BlockId{0}, .target = BlockId{3}, .tokens = 5}};
  std::vector<uint8_t> bytes(2 * options.groups[0].block_bytes);
  Reported copied, read, written;
  io.copy(copies, Reported::done, &copied);
  io.read(0, blocks, bytes, Reported::done, &read);
  read.wait();
  io.write(0, blocks, bytes, Reported::done, &written);
  for (Reported* report : {&copied, &read, &written}) {
    report->wait();
    EXPECT_EQ(report->times, 1);
    EXPECT_EQ(report->code == kOk, GetParam().succeeds);
  }
}

TEST_P(BlockIoContract, CopiesTheLeadingPositionsOnly) {
  PagedCache& cache = cache_with(options);
  const Text twin_text = text.first(5) + tokens(11, 2);
  const Story twin_story = story_of(twin_text);
  Lease writer = take(cache, text);
  Lease twin = take(cache, twin_text);
  engine.write(writer, story, 0, 16);
  engine.write(twin, twin_story, 5, 16);
  const BlockCopy copies[] = {
      {.group = 0, .source = blocks_of(writer)[0], .target = blocks_of(twin)[0], .tokens = 5}};
  BlockIo& io = engine.memory;
  Reported report;
  io.copy(copies, Reported::done, &report);
  report.wait();
  EXPECT_EQ(engine.memory.verify(twin, twin_story, 16).empty(), GetParam().succeeds);
  engine.expect_right(writer, story, 16);
}

TEST_P(BlockIoContract, WhatWasReadCanBeWrittenElsewhere) {
  PagedCache& cache = cache_with(options);
  Lease writer = take(cache, text);
  engine.write(writer, story, 0, 40);
  Lease twin = take(cache, text);
  std::vector<uint8_t> bytes(3 * options.groups[0].block_bytes);
  Reported read, written;
  BlockIo& io = engine.memory;
  io.read(0, blocks_of(writer), bytes, Reported::done, &read);
  read.wait();
  io.write(0, blocks_of(twin), bytes, Reported::done, &written);
  written.wait();
  if (read.code == kOk && written.code == kOk) engine.expect_right(twin, story, 40);
  EXPECT_EQ(read.code == kOk, GetParam().succeeds);
}

TEST_P(BlockIoContract, RunCopiesEndsInTheTruth) {
  PagedCache& cache = cache_with(options);
  cache_forty(cache);
  Lease lease = take(cache, text);
  ASSERT_EQ(lease.reused(), 39U);
  engine.memory.poison(lease, 39);
  const Result<void> result = lease.run_copies();
  EXPECT_TRUE(lease.copies().empty());
  if (GetParam().succeeds) {
    EXPECT_EQ(code(result), kOk);
    EXPECT_EQ(lease.reused(), 39U);
  } else {
    EXPECT_EQ(code(result), Errc::copy_failed);
    EXPECT_EQ(lease.reused(), 32U);
    EXPECT_EQ(lease.report().reason, MissReason::gave_up);
    EXPECT_EQ(lease.report().to_compute_tokens, 8U);
  }
  engine.expect_right(lease, story, lease.reused());
  engine.run(lease, story, 40);
}

TEST_P(BlockIoContract, SourceIsWholeAgainHoweverTheCopyEnded) {
  PagedCache& cache = cache_with(options);
  cache_forty(cache);
  for (int i = 0; i < 5; ++i) {
    Lease lease = take(cache, text);
    static_cast<void>(lease.run_copies());
    ok(lease.abandon());
  }
  EXPECT_EQ(kept(cache, text), 40U);
  EXPECT_EQ(cache.evict(10), 3U) << "no copy still holds its source";
}

TEST_P(BlockIoContract, NothingToCopyIsNoCall) {
  PagedCache& cache = cache_with(options);
  Lease lease = take(cache, text);
  const Errc result = code(lease.run_copies());
  EXPECT_TRUE(result == kOk || result == Errc::wrong_state);
  EXPECT_EQ(lease.length(), 40U);
}

INSTANTIATE_TEST_SUITE_P(Fakes, BlockIoContract,
                         ::testing::Values(IoCase{"at_once", FakeEngine::Mode::at_once, true},
                                           IoCase{"deferred", FakeEngine::Mode::deferred, true},
                                           IoCase{"failing", FakeEngine::Mode::failing, false}),
                         [](const auto& io) { return io.param.name; });

}  // namespace
}  // namespace stemma::test
