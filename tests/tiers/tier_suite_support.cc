#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/random.h"
#include "support/environment.h"
#include "tiers/tier_suite.h"

namespace stemma::test {

namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr uint64_t kLayout = 0x11AA'22BB'33CC'44DDU;
constexpr size_t kGuardBytes = 64;
constexpr uint8_t kGuard = 0xEE;

uint64_t until() { return Clock::monotonic().now_ns() + kPatienceNs; }

}  // namespace

uint64_t first_seed() {
  const uint64_t seed =
      from_environment("STEMMA_TIER_SEED", Clock::monotonic().now_ns() % 1'000'000'007);
  std::printf("STEMMA_TIER_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

Entry entry(uint64_t prompt, uint32_t depth, uint64_t bytes) {
  Entry made;
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t word = base::mix(base::mix(prompt, depth), i);
    std::memcpy(made.key.chain.bytes.data() + 8 * i, &word, 8);
  }
  made.info = {.begin = depth * kBlockTokens,
               .end = (depth + 1) * kBlockTokens,
               .layout = kLayout,
               .bytes = bytes};
  made.bytes.resize(bytes);
  uint64_t state = base::mix(base::mix(prompt, depth), bytes);
  for (size_t at = 0; at < bytes; at += 8) {
    state = base::mix(state + 0x9E37'79B9'7F4A'7C15U);
    std::memcpy(made.bytes.data() + at, &state, std::min<size_t>(8, bytes - at));
  }
  return made;
}

Entry with_words(Entry one) {
  one.info.words = one.info.end - one.info.begin;
  for (uint32_t i = 0; i < one.info.words; ++i) one.words.push_back(one.info.begin + i);
  return one;
}

std::vector<Entry> entries(uint64_t prompt, uint32_t count, uint64_t bytes) {
  std::vector<Entry> made;
  for (uint32_t depth = 0; depth < count; ++depth) made.push_back(entry(prompt, depth, bytes));
  return made;
}

Work::Work(TierOp op, std::span<const Entry> of) : entries(of.begin(), of.end()) {
  batch = TierBatch::make(op, entries.size()).value();
  if (op == TierOp::get) rooms.resize(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& one = entries[i];
    TierItem& item = batch->items()[i];
    item.key = one.key;
    item.info = one.info;
    if (op == TierOp::put) {
      item.source = one.bytes;
      item.words = one.words;
      item.priority = one.priority;
    } else if (op == TierOp::get) {
      // Wanted: the facts that a reader knows without having seen the entry.
      item.info.words = 0;
      rooms[i].assign(one.info.bytes + kGuardBytes, kGuard);
      item.into = std::span(rooms[i]).first(one.info.bytes);
    }
  }
}

Work& Work::finish() {
  EXPECT_TRUE(batch->wait(until())) << "a batch does not end";
  for (const Bytes& room : rooms) {
    EXPECT_TRUE(std::all_of(room.end() - kGuardBytes, room.end(), [](uint8_t byte) {
      return byte == kGuard;
    })) << "bytes behind the room are not the tier's";
  }
  return *this;
}

Outcomes Work::outcomes() const {
  Outcomes all;
  for (const TierItem& item : batch->items()) all.push_back(item.outcome);
  return all;
}

Outcomes Client::run(TierOp op, std::span<const Entry> of) {
  Work work(op, of);
  work.submit_to(*tier_);
  items_ += of.size();
  return work.finish().outcomes();
}

Outcomes Client::put(std::span<const Entry> of, bool durable) {
  Work work(TierOp::put, of);
  work.batch->durable = durable;
  work.submit_to(*tier_);
  items_ += of.size();
  return work.finish().outcomes();
}

std::vector<Got> Client::get(std::span<const Entry> of) {
  Work work(TierOp::get, of);
  work.submit_to(*tier_);
  items_ += of.size();
  work.finish();
  std::vector<Got> got(of.size());
  for (size_t i = 0; i < of.size(); ++i) {
    const TierItem& item = work.batch->items()[i];
    got[i] = {item.outcome, item.info, Bytes(item.into.begin(), item.into.end())};
  }
  return got;
}

Outcomes Client::contains(std::span<const Entry> of) { return run(TierOp::contains, of); }
Outcomes Client::remove(std::span<const Entry> of) { return run(TierOp::remove, of); }
Outcomes Client::touch(std::span<const Entry> of) { return run(TierOp::touch, of); }

bool Client::whole_or_absent(const Entry& one) {
  const Got got = get(one);
  if (got.outcome == TierOutcome::absent) return false;
  EXPECT_EQ(got.outcome, TierOutcome::done);
  EXPECT_EQ(got.bytes, one.bytes);
  return got.outcome == TierOutcome::done;
}

uint64_t counted(const TierStats& stats) {
  return stats.puts + stats.gets + stats.contains + stats.removed + stats.touched + stats.absent +
         stats.refused + stats.corrupt + stats.failed + stats.late + stats.cancelled;
}

void TierContract::expect_there(const Entry& one) {
  const Got got = client->get(one);
  ASSERT_EQ(got.outcome, TierOutcome::done) << to_string(got.outcome);
  EXPECT_EQ(got.bytes, one.bytes);
  EXPECT_EQ(got.info.begin, one.info.begin);
  EXPECT_EQ(got.info.end, one.info.end);
  EXPECT_EQ(got.info.layout, one.info.layout);
  EXPECT_EQ(got.info.bytes, one.info.bytes);
  EXPECT_EQ(got.info.words, words_of(one));
  EXPECT_EQ(client->contains(one), TierOutcome::done);
}

void TierContract::expect_absent(const Entry& one) {
  EXPECT_EQ(client->contains(one), TierOutcome::absent);
  EXPECT_EQ(client->get(one).outcome, TierOutcome::absent);
}

size_t TierContract::kept_of(std::span<const Entry> prompt) {
  const Outcomes there = client->contains(prompt);
  const auto first_gone = std::find(there.begin(), there.end(), TierOutcome::absent);
  EXPECT_EQ(std::find(first_gone, there.end(), TierOutcome::done), there.end())
      << "a deeper entry outlived a shallower one of its prompt";
  return static_cast<size_t>(first_gone - there.begin());
}

}  // namespace stemma::test
