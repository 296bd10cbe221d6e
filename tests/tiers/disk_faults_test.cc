// What a disk can do to its tier: fail, fill up, stall, forget, flip bits. Files are simulated, so
// any call can fail.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <set>
#include <thread>

#include "stemma/log.h"
#include "stemma/tier/disk_tier.h"
#include "support/environment.h"
#include "support/now.h"
#include "support/sim_files.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using enum TierOutcome;
using tier::kPage;
using tier::disk::DiskOptions;
using tier::disk::DiskTier;

constexpr const char* kSlab = "/store/entries.slab";
constexpr const char* kTable = "/store/entries.table";

DiskOptions options_for(SimFiles& files, uint64_t pages = 1024) {
  return {.path = "/store",
          .capacity_bytes = pages * kPage,
          .max_entry_bytes = 100'000,
          .depth = 8,
          .errors_to_break = 3,
          .retry_ns = 20'000'000,
          .files = &files};
}

std::unique_ptr<DiskTier> open(SimFiles& files, uint64_t pages = 1024) {
  return DiskTier::open(options_for(files, pages)).value();
}

size_t count(const Outcomes& outcomes, TierOutcome outcome) {
  return static_cast<size_t>(std::count(outcomes.begin(), outcomes.end(), outcome));
}

// Sizes of less than a page, of whole pages and of others.
Entry varied(uint64_t prompt, uint32_t depth) {
  static constexpr uint64_t kSizes[] = {100, 3968, 3969, 9000, 20'000, 65'536};
  Entry one = entry(prompt, depth, kSizes[(prompt + depth) % 6] + depth);
  return (prompt + depth) % 5 == 0 ? with_words(std::move(one)) : one;
}

std::vector<Entry> varied(uint64_t prompt, uint32_t first, uint32_t last) {
  std::vector<Entry> some;
  for (uint32_t depth = first; depth < last; ++depth) some.push_back(varied(prompt, depth));
  return some;
}

// A typical run of a tier. Returns which entries must survive a power loss.
std::vector<Entry> live(SimFiles& files) {
  std::vector<Entry> must;
  auto opened = DiskTier::open(options_for(files));
  if (!opened) {
    EXPECT_EQ(opened.error().code(), Errc::copy_failed) << opened.error().to_string();
    return must;
  }
  DiskTier& tier = **opened;
  Client client(tier);
  client.put(varied(1, 0, 6));
  const auto durable = varied(2, 0, 6);
  const Outcomes outcomes = client.put(durable, /*durable=*/true);
  client.get(varied(1, 0, 6));
  client.remove(varied(1, 2, 4));
  client.put(varied(3, 0, 3));
  for (size_t i = 0; i < durable.size(); ++i) {
    if (outcomes[i] == done) must.push_back(durable[i]);
  }
  // Reads may have found entries damaged by the failure: those are gone, and were reported.
  (void)tier.flush(now_ns() + kPatienceNs);
  tier.check_invariants();
  return must;
}

}  // namespace

TEST(DiskFaults, AnyOneCallMayFail) {
  SimFiles dry;
  dry.on_call({});
  EXPECT_EQ(live(dry).size(), 6U);
  const auto calls = dry.all_calls();
  EXPECT_GE(calls.at("io.write"), 15U);
  EXPECT_GE(calls.at("write"), 15U);
  EXPECT_GT(calls.at("allocate"), 0U);
  uint64_t failed_calls = 0;
  for (const auto& [name, times] : calls) {
    for (uint64_t n = 0; n < times; ++n) {
      SimFiles files;
      bool hit = false;
      files.on_call([&, &failing = name](std::string_view call, uint64_t nth) {
        const bool now = call == failing && nth == n;
        hit = hit || now;
        return now ? std::optional<int64_t>(-EIO) : std::nullopt;
      });
      const auto must = live(files);
      failed_calls += hit ? 1U : 0U;
      SCOPED_TRACE(name + " " + std::to_string(n));
      files.on_call({});
      const auto tier = open(files);
      Client client(*tier);
      for (uint64_t prompt = 1; prompt <= 3; ++prompt) {
        for (const Entry& one : varied(prompt, 0, 6)) client.whole_or_absent(one);
      }
      for (const Entry& one : must) EXPECT_EQ(client.get(one).outcome, done);
      EXPECT_EQ(client.put(entry(9, 0, 50'000)), done);
      tier->check_invariants();
    }
  }
  EXPECT_GT(failed_calls, 50U);
}

TEST(DiskFaults, ShortReadsAndWritesAreFinished) {
  SimFiles files;
  const auto tier = open(files);
  files.on_call([](std::string_view call, uint64_t nth) -> std::optional<int64_t> {
    if (call == "io.read" || call == "io.write") return 512 + 512 * static_cast<int64_t>(nth % 9);
    return std::nullopt;
  });
  Client client(*tier);
  const auto some = varied(1, 0, 12);
  EXPECT_EQ(count(client.put(some), done), some.size());
  for (const Entry& one : some) EXPECT_TRUE(client.whole_or_absent(one));
}

TEST(DiskFaults, AFullDiskRefusesAndTheTierGoesOn) {
  SimFiles files;
  const auto tier = open(files);
  Client client(*tier);
  const auto before = entries(1, 4, 9000);
  ASSERT_EQ(count(client.put(before), done), 4U);
  // No more pages: existing ones are reused.
  files.on_call([](std::string_view call, uint64_t) {
    return call == "allocate" ? std::optional<int64_t>(-ENOSPC) : std::nullopt;
  });
  static std::atomic<int> told;
  told = 0;
  set_log_handler(
      [](LogLevel level, std::string_view line, void*) {
        if (level == LogLevel::warning && line.find("is full") != std::string::npos) ++told;
      },
      nullptr);
  for (uint64_t prompt = 2; prompt < 12; ++prompt) {
    EXPECT_EQ(count(client.put(entries(prompt, 4, 9000)), done), 4U) << prompt;
  }
  set_log_handler(nullptr, nullptr);
  EXPECT_EQ(told, 1);
  EXPECT_GT(tier->stats().evictions, 0U);
  // Not even those can be written.
  files.on_call([](std::string_view call, uint64_t) {
    return call == "io.write" ? std::optional<int64_t>(-ENOSPC) : std::nullopt;
  });
  EXPECT_EQ(client.put(entry(50, 0, 9000)), refused);
  EXPECT_TRUE(tier->stats().reachable);
  files.on_call({});
  EXPECT_EQ(client.put(entry(51, 0, 9000)), done);
  tier->check_invariants();
}

// Places that could not be written while the disk was full or away are used again afterwards.
TEST(DiskFaults, PlacesThatCouldNotBeWrittenComeBack) {
  SimFiles files;
  const auto tier = open(files, /*pages=*/27);
  Client client(*tier);
  const auto some = entries(1, 9, 9000);
  ASSERT_EQ(count(client.put(some), done), 9U);
  for (const int problem : {ENOSPC, EIO}) {
    SCOPED_TRACE(problem);
    files.on_call([&](std::string_view call, uint64_t) {
      return call == "io.write" ? std::optional<int64_t>(-problem) : std::nullopt;
    });
    for (uint64_t prompt = 2; prompt < 40; ++prompt) {
      EXPECT_NE(client.put(entry(prompt, 0, 9000)), done);
    }
    files.on_call({});
    const uint64_t give_up_ns = now_ns() + kPatienceNs;
    while (count(client.put(some), done) != 9U && now_ns() < give_up_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(tier->stats().entries, 9U);
    for (const Entry& one : some) EXPECT_EQ(client.get(one).outcome, done);
    EXPECT_EQ(tier->stats().retired_bytes, 0U);
    tier->check_invariants();
  }
}

TEST(DiskFaults, ABrokenDiskIsLeftAloneAndAskedAgain) {
  SimFiles files;
  const auto tier = open(files);
  Client client(*tier);
  const auto some = entries(1, 8, 9000);
  ASSERT_EQ(count(client.put(some), done), 8U);
  files.on_call([](std::string_view call, uint64_t) {
    return call.starts_with("io.") ? std::optional<int64_t>(-EIO) : std::nullopt;
  });
  for (const Entry& one : some) EXPECT_EQ(client.get(one).outcome, failed);
  EXPECT_FALSE(tier->stats().reachable);
  EXPECT_LT(files.calls("io.read"), 6U);
  EXPECT_EQ(client.contains(some[0]), failed);
  EXPECT_EQ(client.put(entry(2, 0, 9000)), failed);
  files.on_call({});
  const uint64_t give_up_ns = now_ns() + kPatienceNs;
  while (client.get(some[7]).outcome != done && now_ns() < give_up_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(tier->stats().reachable);
  // The unreadable entry is gone and can be put again, even in the same place.
  for (const Entry& one : some) client.whole_or_absent(one);
  EXPECT_GE(tier->stats().entries, 4U);
  EXPECT_EQ(count(client.put(some), done), 8U);
  EXPECT_EQ(tier->stats().retired_bytes, 0U);
  tier->check_invariants();
}

TEST(DiskFaults, DeadlinesAndCancellationsReachWhatWaitsBehindAStalledDisk) {
  SimFiles files;
  auto options = options_for(files);
  options.depth = 2;
  const auto tier = DiskTier::open(options).value();
  Client client(*tier);
  const auto some = entries(1, 8, 9000);
  ASSERT_EQ(count(client.put(some), done), 8U);
  files.hold(true);
  Work stuck(TierOp::get, std::span(some).first(2));
  stuck.submit_to(*tier);
  files.wait_for_held(2);
  Work timed(TierOp::get, std::span(some).subspan(2));
  timed.batch->deadline_ns = now_ns() + 20'000'000;
  Work unwanted(TierOp::put, entries(2, 3, 9000));
  timed.submit_to(*tier);
  unwanted.submit_to(*tier);
  unwanted.batch->cancel();
  EXPECT_EQ(count(timed.finish().outcomes(), late), 6U);
  EXPECT_EQ(count(unwanted.finish().outcomes(), cancelled), 3U);
  EXPECT_FALSE(stuck.batch->finished());
  EXPECT_EQ(client.contains(some[5]), done);  // No disk is asked for that.
  files.hold(false);
  EXPECT_EQ(count(stuck.finish().outcomes(), done), 2U);
}

TEST(DiskFaults, TooMuchAtOnceIsRefused) {
  SimFiles files;
  auto options = options_for(files);
  options.queue_items = 10;
  const auto tier = DiskTier::open(options).value();
  files.hold(true);
  Work first(TierOp::put, entries(1, 10, 9000));
  Work second(TierOp::put, entries(2, 10, 9000));
  Work third(TierOp::get, entries(1, 10, 9000));
  first.submit_to(*tier);
  second.submit_to(*tier);
  third.submit_to(*tier);
  EXPECT_EQ(count(second.finish().outcomes(), refused), 10U);
  EXPECT_EQ(count(third.finish().outcomes(), failed), 10U);
  files.hold(false);
  EXPECT_EQ(count(first.finish().outcomes(), done), 10U);
}

// Random work, during which the power fails. With room for all: entries acknowledged as durable are
// there, durably removed ones are not.
TEST(DiskFaults, PowerLossLosesNothingThatWasDurable) {
  const uint64_t rounds = from_environment("STEMMA_POWER_ROUNDS", kSanitized ? 30 : 150);
  const uint64_t first = from_environment("STEMMA_TIER_SEED", 1);
  uint64_t kept = 0;
  uint64_t lost = 0;
  for (uint64_t seed = first; seed < first + rounds; ++seed) {
    SCOPED_TRACE("STEMMA_TIER_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    auto files = std::make_unique<SimFiles>(seed);
    std::set<uint32_t> must;
    std::set<uint32_t> gone;
    for (int life = 0; life < 3; ++life) {
      auto tier = open(*files, 2048);
      Client client(*tier);
      for (uint32_t i = 0; i < 40; ++i) {
        const Entry one = varied(7, i);
        const bool there = client.whole_or_absent(one);
        EXPECT_TRUE(there || !must.contains(i)) << i;
        EXPECT_FALSE(there && gone.contains(i)) << i;
        ++(there ? kept : lost);
      }
      for (int step = 0; step < 12; ++step) {
        const auto first_index = static_cast<uint32_t>(random() % 36);
        const auto some = varied(7, first_index, first_index + 4);
        const bool durable = random() % 2 == 0;
        if (random() % 4 == 0) {
          Work work(TierOp::remove, some);
          work.batch->durable = durable;
          work.submit_to(*tier);
          const Outcomes outcomes = work.finish().outcomes();
          for (uint32_t i = 0; i < 4; ++i) {
            must.erase(first_index + i);
            if (outcomes[i] == done && durable) gone.insert(first_index + i);
          }
        } else {
          const Outcomes outcomes = client.put(some, durable);
          for (uint32_t i = 0; i < 4; ++i) {
            if (outcomes[i] != done) continue;
            gone.erase(first_index + i);
            if (durable) must.insert(first_index + i);
          }
        }
      }
      // I/O under way at that moment: held back, or half done.
      Work last(TierOp::put, varied(7, 36, 40));
      last.batch->durable = true;
      const bool held = random() % 2 == 0;
      files->hold(held);
      for (uint32_t i = 36; i < 40; ++i) gone.erase(i);
      last.submit_to(*tier);
      if (held) files->wait_for_held(1);
      if (!held) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      auto later = files->after_power_loss(seed * 7 + static_cast<uint64_t>(life));
      files->hold(false);
      last.finish();
      tier.reset();
      files = std::move(later);
    }
  }
  EXPECT_GT(kept, rounds * 30);
  EXPECT_GT(lost, rounds);
}

// With too little room: nothing wrong is served, and capacity holds.
TEST(DiskFaults, PowerLossUnderPressureServesNothingWrong) {
  const uint64_t rounds = from_environment("STEMMA_POWER_ROUNDS", kSanitized ? 20 : 100);
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto files = std::make_unique<SimFiles>(seed);
    files->supports_zero = seed % 2 == 0;
    for (int life = 0; life < 3; ++life) {
      auto tier = open(*files, 256);
      Client client(*tier);
      for (uint32_t i = 0; i < 60; ++i) client.whole_or_absent(varied(7, i));
      for (int step = 0; step < 20; ++step) {
        const auto at = static_cast<uint32_t>(random() % 56);
        client.put(varied(7, at, at + 4), random() % 4 == 0);
      }
      EXPECT_LE(files->taken_bytes(kSlab), 256 * kPage);
      EXPECT_LE(tier->stats().used_bytes, 256 * kPage);
      tier->check_invariants();
      Work last(TierOp::put, varied(7, 10, 20));
      last.submit_to(*tier);
      auto later = files->after_power_loss(seed * 5 + static_cast<uint64_t>(life));
      last.finish();
      tier.reset();
      files = std::move(later);
    }
  }
}

TEST(DiskFaults, FlippedBitsAreMissesAndCounted) {
  SimFiles files;
  const auto some = varied(1, 0, 24);
  {
    ASSERT_EQ(count(Client(*open(files)).put(some), done), some.size());
  }
  const std::vector<uint8_t> good = files.bytes_of(kSlab);
  const std::vector<uint8_t> good_table = files.bytes_of(kTable);
  std::mt19937_64 random(3);
  uint64_t misses = 0;
  uint64_t noticed = 0;
  for (int round = 0; round < 200; ++round) {
    files.bytes_of(kSlab) = good;
    files.bytes_of(kTable) = good_table;
    const bool before = round % 2 == 0;
    const auto flip = [&] {
      for (int i = 0; i < 20; ++i) {
        // The table is looked at only when it is opened.
        auto& bytes = files.bytes_of(before && i < 2 ? kTable : kSlab);
        bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1U << random() % 8);
      }
    };
    // Opening checks the last puts; only reading can see later damage.
    if (before) flip();
    const auto tier = open(files);
    if (!before) flip();
    Client client(*tier);
    noticed += tier->opening().damaged;
    for (const Entry& one : some) {
      const Got got = client.get(one);
      if (got.outcome == done) {
        ASSERT_EQ(got.bytes, one.bytes);
        continue;
      }
      ++misses;
      ASSERT_TRUE(got.outcome == corrupt || got.outcome == absent);
      ASSERT_EQ(client.get(one).outcome, absent);
    }
    noticed += tier->stats().corrupt;
    tier->check_invariants();
  }
  EXPECT_GT(misses, 100U);
  EXPECT_GT(noticed, 100U);
}

TEST(DiskFaults, ATruncatedSlabIsMisses) {
  SimFiles files;
  const auto some = varied(1, 0, 24);
  {
    ASSERT_EQ(count(Client(*open(files)).put(some), done), some.size());
  }
  const std::vector<uint8_t> good = files.bytes_of(kSlab);
  const std::vector<uint8_t> good_table = files.bytes_of(kTable);
  for (size_t size = 0; size < good.size(); size += 3333) {
    for (const bool slab : {true, false}) {
      const int file = files.open(slab ? kSlab : kTable, OpenAs::existing);
      files.truncate(file, 0);
      files.write(file, 0, slab ? std::span(good).first(size) : std::span(good_table));
      files.close(file);
    }
    const auto tier = open(files);
    Client client(*tier);
    for (const Entry& one : some) client.whole_or_absent(one);
    EXPECT_EQ(client.put(entry(5, 0, 30'000)), done);
    tier->check_invariants();
  }
}

}  // namespace stemma::test
