// The purpose of sealing: a reader or writer of the tier below who has no keys learns nothing and
// can forge nothing.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "stemma/tier/disk_tier.h"
#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "support/now.h"
#include "tier/seal/key_directory.h"
#include "tier/seal/scope_key.h"
#include "tier/seal/sealed_entry.h"
#include "tiers/borrowed_tier.h"
#include "tiers/sealed_rig.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using enum TierOutcome;
namespace fs = std::filesystem;

Entry owned(Entry one, uint64_t owner) {
  std::memcpy(one.key.chain.bytes.data() + 24, &owner, 8);
  return one;
}

std::unique_ptr<Tier> host_tier(uint64_t capacity = kRoomy) {
  return make_host_tier({.capacity_bytes = capacity}).value();
}

// A sealed tier, and the tier below it as seen without the keys.
class Sealed : public ::testing::Test {
 protected:
  // The entry in the tier below.
  Entry below(const Entry& plain, tier::KeyRing& ring) {
    Entry lies = plain;
    lies.key = ring.find(owner_of(plain.key)).value()->name(plain.key);
    lies.info.layout = tier::sealed_layout(plain.info.layout);
    lies.info.bytes = plain.info.bytes + tier::kSealBytes;
    lies.info.words = 0;
    lies.words.clear();
    return lies;
  }
  Entry stolen(const Entry& plain) {
    Entry lies = below(plain, *keys);
    const Got got = thief.get(lies);
    EXPECT_EQ(got.outcome, done);
    lies.bytes = got.bytes;
    return lies;
  }
  void replace(const Entry& with) {
    thief.remove(with);
    ASSERT_EQ(thief.put(with), done);
  }
  void expect_forgery(const Entry& wanted) {
    const Got got = client.get(wanted);
    EXPECT_EQ(got.outcome, corrupt);
    const Bytes zeros(got.bytes.size()), untouched(got.bytes.size(), 0xEE);
    EXPECT_TRUE(got.bytes == zeros || got.bytes == untouched) << "nothing is left of it";
    EXPECT_EQ(client.get(wanted).outcome, absent) << "and it is gone";
  }
  void expect_there(const Entry& wanted) {
    const Got got = client.get(wanted);
    EXPECT_EQ(got.outcome, done);
    EXPECT_EQ(got.bytes, wanted.bytes);
  }

  TemporaryDirectory directory;
  ManualClock clock;
  std::shared_ptr<tier::KeyRing> keys = open_keys(directory / "keys", &clock);
  std::unique_ptr<Tier> inner = host_tier();
  std::unique_ptr<Tier> tier = sealed(std::make_unique<Borrowed>(*inner), keys);
  Client client{*tier};
  Client thief{*inner};
  const Entry one = owned(entry(1, 3, 200), 7);
  const Entry two = owned(entry(1, 4, 200), 7);
  const Entry others = owned(entry(2, 3, 200), 8);
};

TEST_F(Sealed, NoFlippedBitIsServed) {
  ASSERT_EQ(client.put(one), done);
  const Entry good = stolen(one);
  for (size_t bit = 0; bit < good.bytes.size() * 8; bit += 3) {
    Entry bad = good;
    bad.bytes[bit / 8] = static_cast<uint8_t>(bad.bytes[bit / 8] ^ 1U << bit % 8);
    replace(bad);
    expect_forgery(one);
  }
  replace(good);
  expect_there(one);
}

TEST_F(Sealed, AnEntryThatWasCopiedToAnotherIsNotServed) {
  ASSERT_EQ(client.put(one), done);
  ASSERT_EQ(client.put(two), done);
  ASSERT_EQ(client.put(others), done);
  const Entry from = stolen(one);
  for (const Entry& wanted : {two, others}) {
    Entry moved = below(wanted, *keys);
    moved.bytes = from.bytes;
    replace(moved);
    expect_forgery(wanted);
  }
  // Or with another description.
  const auto changed = [&](auto&& change) {
    Entry wanted = one;
    change(wanted);
    Entry moved = below(wanted, *keys);
    moved.bytes = from.bytes;
    moved.bytes.resize(moved.info.bytes);
    replace(moved);
    expect_forgery(wanted);
  };
  changed([](Entry& e) { e.info.begin -= 16; });
  changed([](Entry& e) { e.info.end += 16; });
  changed([](Entry& e) { e.info.layout ^= 1U; });
  changed([](Entry& e) { e.info.bytes -= 1, e.bytes.pop_back(); });
  changed([](Entry& e) { e.key.kind = EntryKind::logits; });
  changed([](Entry& e) { e.key.group = 2; });
  ASSERT_EQ(client.put(one), done);
  expect_there(one);
}

TEST_F(Sealed, WhoHasNoKeyCannotForge) {
  ASSERT_EQ(client.put(one), done);
  Entry forged = below(one, *keys);
  forged.bytes = Bytes(forged.info.bytes, 0x5A);
  replace(forged);
  expect_forgery(one);
  // Somebody with keys of his own, for the same scope.
  const auto own = open_keys(directory / "own");
  const auto cipher = tier::seal::Cipher::create();
  ASSERT_TRUE(tier::seal::seal_entry(*cipher, *own->make(7).value(), one.key, one.info, {},
                                     one.bytes, forged.bytes));
  replace(forged);
  expect_forgery(one);
  // Also under the name of the right key.
  const auto& id = keys->find(7).value()->id();
  std::copy(id.begin(), id.end(), forged.bytes.begin() + 16);
  replace(forged);
  expect_forgery(one);
  // In the clear.
  Entry plain = one;
  ASSERT_EQ(thief.put(plain), done);
  EXPECT_EQ(client.get(one).outcome, absent);
}

TEST_F(Sealed, WhatLiesBelowIsNotFoundByReadersWithoutKeys) {
  ASSERT_EQ(client.put(one), done);
  EXPECT_EQ(thief.get(one).outcome, absent);
  EXPECT_EQ(thief.contains(one), absent);
  const auto strangers = sealed(std::make_unique<Borrowed>(*inner), open_keys(directory / "own"));
  EXPECT_EQ(Client(*strangers).get(one).outcome, absent);
  // They may keep the same entry beside ours.
  EXPECT_EQ(Client(*strangers).put(one), done);
  EXPECT_EQ(Client(*strangers).get(one).outcome, done);
  expect_there(one);
  EXPECT_EQ(inner->stats().entries, 2U);
  EXPECT_EQ(tier->stats().corrupt, 0U);
}

TEST_F(Sealed, ADroppedKeyErasesItsEntriesAndNoOthers) {
  ASSERT_EQ(client.put(one), done);
  ASSERT_EQ(client.put(two), done);
  ASSERT_EQ(client.put(others), done);
  ASSERT_TRUE(keys->drop(7).value());
  for (const Entry& gone : {one, two}) {
    EXPECT_EQ(client.get(gone).outcome, absent);
    EXPECT_EQ(client.contains(gone), absent);
    EXPECT_EQ(client.touch(std::span(&gone, 1))[0], absent);
  }
  expect_there(others);
  // The next entry of the scope gets a new key, and only new entries are found.
  ASSERT_EQ(client.put(one), done);
  expect_there(one);
  EXPECT_EQ(client.get(two).outcome, absent);
  EXPECT_EQ(client.put(two), done) << "what cannot be read is not in the way";
  expect_there(two);
}

TEST_F(Sealed, PurgingAScopeDropsItsKeyAndNoOther) {
  ASSERT_EQ(client.put(one), done);
  ASSERT_EQ(client.put(others), done);
  const Purged purged = tier->purge({.owner = 7}, kNever);
  EXPECT_TRUE(purged.complete) << purged.error;
  EXPECT_EQ(purged.entries, 1U);
  EXPECT_EQ(keys->find(7).value(), nullptr);
  EXPECT_EQ(client.get(one).outcome, absent);
  expect_there(others);
}

TEST_F(Sealed, PurgingAPartOfAScopeKeepsItsKey) {
  ASSERT_EQ(client.put(one), done);
  EXPECT_TRUE(tier->purge({.owner = 7, .keep = one.info.end}, kNever).complete);
  EXPECT_NE(keys->find(7).value(), nullptr);
  expect_there(one);
}

TEST_F(Sealed, AKeyThatAnotherProcessDroppedIsNoticed) {
  ASSERT_EQ(client.put(one), done);
  ASSERT_EQ(client.put(others), done);
  ASSERT_TRUE(open_keys(directory / "keys")->drop(7).value());
  clock.advance_ns(1'000'000'000);
  EXPECT_EQ(client.get(one).outcome, absent);
  EXPECT_EQ(client.contains(one), absent);
  expect_there(others);
}

TEST_F(Sealed, WithADamagedKeyNothingIsServedOrOverwritten) {
  ASSERT_EQ(client.put(one), done);
  ASSERT_EQ(client.put(others), done);
  const std::string file = directory / "keys/" + tier::seal::hex_of(7) + ".key";
  fs::resize_file(file, 50);
  clock.advance_ns(1'000'000'000);
  const TierStats before = inner->stats();
  EXPECT_EQ(client.get(one).outcome, failed);
  EXPECT_EQ(client.contains(one), failed);
  EXPECT_EQ(client.put(two), failed);
  EXPECT_EQ(client.remove(one), failed);
  const TierStats after = inner->stats();
  EXPECT_EQ(after.puts, before.puts);
  EXPECT_EQ(after.removed, before.removed);
  EXPECT_EQ(fs::file_size(file), 50U);
  EXPECT_NE(keys->problem().find(file), std::string::npos) << keys->problem();
  expect_there(others);
}

// The control does the same without sealing: there everything is found.
TEST_F(Sealed, NothingOfAnEntryIsFoundOnTheDisk) {
  Entry secret = with_words(owned(entry(5, 2, 100'000), 7));
  const std::string pattern = "a pattern that stands for KV state of a prompt";
  for (size_t at = 0; at + pattern.size() < secret.bytes.size(); at += 997) {
    std::copy(pattern.begin(), pattern.end(), secret.bytes.begin() + static_cast<long>(at));
  }
  for (uint32_t i = 0; i < secret.words.size(); ++i) secret.words[i] = 0x6162'6364U;
  const std::string words = "dcbadcbadcbadcba";
  const std::string chain(reinterpret_cast<const char*>(secret.key.chain.bytes.data()), 8);
  for (const bool seals : {false, true}) {
    const std::string path = directory / (seals ? "sealed" : "plain");
    std::unique_ptr<Tier> disk =
        tier::disk::DiskTier::open({.path = path, .capacity_bytes = 16U << 20U}).value();
    if (seals) disk = sealed(std::move(disk), keys);
    ASSERT_EQ(Client(*disk).put(secret), done);
    ASSERT_TRUE(disk->flush(now_ns() + kPatienceNs));
    EXPECT_EQ(Client(*disk).get(secret).bytes, secret.bytes);
    disk.reset();
    std::string all;
    for (const auto& file : fs::directory_iterator(path)) {
      std::ifstream in(file.path(), std::ios::binary);
      all.append(std::istreambuf_iterator<char>(in), {});
    }
    for (const std::string& what : {pattern.substr(0, 12), words, chain}) {
      EXPECT_EQ(all.find(what) == std::string::npos, seals) << what;
    }
  }
}

TEST_F(Sealed, NoncesDoNotRepeatAndNeitherDoBytes) {
  std::set<Bytes> nonces, bodies;
  constexpr size_t kRounds = 50, kEntries = 70;
  for (size_t round = 0; round < kRounds; ++round) {
    // The same bytes again and again, in one batch and in many.
    std::vector<Entry> same;
    for (uint32_t i = 0; i < kEntries; ++i) same.push_back(owned(entry(3, i, 64), 7));
    for (Entry& each : same) each.bytes = Bytes(64, 'x');
    ASSERT_EQ(client.put(same), all(kEntries, done));
    for (const Entry& each : same) {
      const Bytes bytes = stolen(each).bytes;
      nonces.insert({bytes.begin() + 24, bytes.begin() + 48});
      bodies.insert({bytes.begin() + tier::kSealBytes, bytes.end()});
    }
    ASSERT_EQ(client.remove(same), all(kEntries, done));
  }
  EXPECT_EQ(nonces.size(), kRounds * kEntries);
  EXPECT_EQ(bodies.size(), kRounds * kEntries);
}

TEST_F(Sealed, SizesAreThoseOfThePlaintext) {
  EXPECT_EQ(tier->traits().max_entry_bytes, inner->traits().max_entry_bytes - tier::kSealBytes);
  EXPECT_EQ(tier->traits().name, "host");
  ASSERT_EQ(client.put(with_words(one)), done);
  Work there(TierOp::contains, std::span(&one, 1));
  there.batch->items()[0].info = {};
  there.submit_to(*tier);
  there.finish();
  EXPECT_EQ(there.batch->items()[0].info, one.info);
  EXPECT_EQ(tier->stats().put_bytes, one.info.bytes);
  EXPECT_EQ(inner->stats().put_bytes, one.info.bytes + tier::kSealBytes);
}

// ---- Bounds ----

class Stalled : public Sealed {
 protected:
  void SetUp() override {
    auto made = std::make_unique<FaultyTier>(host_tier(), FaultPlan{.stall = true});
    faulty = made.get();
    tier = sealed(std::move(made), keys, {.threads = 2, .staging_bytes = 64U << 10U});
  }
  FaultyTier* faulty = nullptr;
};

// Staging memory is full of entries that the inner tier has not taken. Later items wait, but only
// until their deadlines.
TEST_F(Stalled, WhatDoesNotFitWaitsUntilItsDeadline) {
  Work first(TierOp::put, std::vector{owned(entry(1, 0, 60'000), 7)});
  first.submit_to(*tier);
  Work second(TierOp::put, std::vector{owned(entry(2, 0, 60'000), 7)});
  second.batch->deadline_ns = now_ns() + 20'000'000;
  second.submit_to(*tier);
  EXPECT_EQ(second.finish().outcomes(), all(1, late));
  Work third(TierOp::put, std::vector{owned(entry(3, 0, 60'000), 7)});
  third.submit_to(*tier);
  EXPECT_FALSE(first.batch->finished());
  // Reading has memory of its own.
  Work read(TierOp::get, std::vector{owned(entry(1, 0, 60'000), 7)});
  read.submit_to(*tier);
  faulty->set_plan({});
  EXPECT_EQ(first.finish().outcomes(), all(1, done));
  EXPECT_EQ(third.finish().outcomes(), all(1, done));
  read.finish();
}

TEST_F(Stalled, ACancellationReachesTheInnerTier) {
  Work begun(TierOp::put, std::vector{owned(entry(1, 0, 60'000), 7)});
  Work waiting(TierOp::put, std::vector{owned(entry(2, 0, 60'000), 7)});
  begun.submit_to(*tier);
  waiting.submit_to(*tier);
  waiting.batch->cancel();
  EXPECT_EQ(waiting.finish().outcomes(), all(1, cancelled));
  begun.batch->cancel();
  EXPECT_EQ(begun.finish().outcomes(), all(1, cancelled));
}

TEST_F(Stalled, AFullQueueRefuses) {
  tier = sealed(std::make_unique<FaultyTier>(host_tier(), FaultPlan{.stall = true}), keys,
                {.queue_items = 4});
  Work first(TierOp::put, entries(1, 3, 100));
  first.submit_to(*tier);
  Work puts(TierOp::put, entries(2, 3, 100));
  puts.submit_to(*tier);
  EXPECT_EQ(puts.finish().outcomes(), all(3, refused));
  Work gets(TierOp::get, entries(2, 3, 100));
  gets.submit_to(*tier);
  EXPECT_EQ(gets.finish().outcomes(), all(3, failed));
  tier.reset();
  EXPECT_EQ(first.finish().outcomes(), all(3, cancelled));
}

TEST_F(Stalled, ACancellationReachesWhatSubmitSealed) {
  ASSERT_NE(keys->make(7).value(), nullptr);  // So that no put has to queue.
  for (const TierOp op : {TierOp::put, TierOp::get}) {
    Work begun(op, std::vector{owned(entry(1, 0, 1000), 7)});
    begun.submit_to(*tier);
    begun.batch->cancel();
    EXPECT_EQ(begun.finish().outcomes(), all(1, cancelled));
  }
}

// Host memory copies at once, so all is done when submit() returns.
TEST_F(Sealed, ASmallPutIsSealedInsideSubmit) {
  const auto ends_in_submit = [&](const tier::SealedTierOptions& options, size_t bytes) {
    const auto small = sealed(host_tier(), keys, options);
    Work put(TierOp::put, std::vector{owned(entry(1, 0, bytes), 7)});
    put.submit_to(*small);
    const bool ended = put.batch->finished();
    EXPECT_EQ(put.finish().outcomes(), all(1, done));
    return ended;
  };
  ASSERT_EQ(client.put(one), done);  // Makes the key.
  EXPECT_TRUE(ends_in_submit({}, 60'000));
  clock.advance_ns(3'600'000'000'000);  // The key has to be compared with its file first.
  EXPECT_EQ(client.put(two), done);
  expect_there(one);
  expect_there(two);
}

// A batch goes down in parts, by several threads. Its order is that of one batch all the same.
TEST_F(Sealed, OfABatchThatWasCutTheDeepestGoFirst) {
  for (uint64_t round = 0; round < 20; ++round) {
    const auto cut = sealed(host_tier(kTight), keys,
                            {.threads = 4, .staging_bytes = 1U << 20U, .part_bytes = 1});
    Client many(*cut);
    std::vector<Entry> prompt;
    for (const Entry& each : entries(round, 8, 60'000)) prompt.push_back(owned(each, 7));
    ASSERT_EQ(many.put(prompt), all(8, done));
    Outcomes there = all(8, done);
    for (uint64_t p = 100; there == all(8, done); ++p) {
      many.put(owned(entry(p, 0, 60'000), 8));
      there = many.contains(prompt);
    }
    EXPECT_EQ(there, (Outcomes{done, done, done, done, done, done, done, absent})) << round;
  }
}

TEST_F(Sealed, OptionsThatCannotBeAreRefused) {
  const auto code = [&](tier::SealedTierOptions options) {
    return tier::make_sealed_tier(host_tier(), options).error().code();
  };
  EXPECT_EQ(code({}), Errc::invalid_argument);
  EXPECT_EQ(code({.keys = keys, .threads = 0}), Errc::invalid_argument);
  EXPECT_EQ(code({.keys = keys, .threads = 65}), Errc::invalid_argument);
  EXPECT_EQ(code({.keys = keys, .staging_bytes = 0}), Errc::invalid_argument);
  EXPECT_EQ(tier::make_sealed_tier(nullptr, {.keys = keys}).error().code(), Errc::invalid_argument);
}

}  // namespace
}  // namespace stemma::test
