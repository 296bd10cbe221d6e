// The contract of every tier (include/stemma/tier/tier.h). A tier joins by an
// INSTANTIATE_TEST_SUITE_P(Name, TierContract, ...) in a file of tests/tiers: it gives a TierPlace
// that opens it. The traits decide which tests apply: `outlives_process` those that open a place
// again, `shared` those with a second handle, `capacity_bytes` those of eviction.
//
// How the suite interprets the contract:
//  - Statistics: every item is counted in exactly one of puts, gets, contains, removed, touched
//    (done), absent, refused, corrupt, failed, late, cancelled. already_there counts some of the
//    puts once more.
//  - A put of an existing entry (equal EntryInfo) is done; either copy may be kept, because a key
//    names one content. A put with another EntryInfo replaces the entry.
//  - Items of one batch go deepest first when room is short, also while the batch itself is put;
//    get counts as a use, contains does not.
//  - An empty batch is finished before it is submitted, without a callback.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "stemma/tier/tier.h"

namespace stemma::test {

using Bytes = std::vector<uint8_t>;

// The place of a tier's entries during one test; empty at first, removed with the object.
class TierPlace {
 public:
  virtual ~TierPlace() = default;
  // Opens a tier over this place with at least about this capacity (its traits give the exact one).
  // Only after the last one was destroyed, or beside it if the traits say `shared`.
  virtual std::unique_ptr<Tier> open(uint64_t capacity_bytes) = 0;
  // Whether it keeps the words it is given; if not, EntryInfo::words is 0 in answers.
  virtual bool keeps_words() const { return true; }
  // Whether it keeps EntryInfo::parent; if not, nobody can tell what follows a prefix.
  virtual bool keeps_parents() const { return true; }
};

struct TierCase {
  std::string name;
  // Null if this machine lacks something it needs; the tests are then skipped.
  std::function<std::unique_ptr<TierPlace>()> make;
};

inline void PrintTo(const TierCase& tier, std::ostream* out) { *out << tier.name; }
inline std::string case_name(const ::testing::TestParamInfo<TierCase>& info) {
  return info.param.name;
}

// An entry of a test: its bytes follow from the key, the depth and the size.
struct Entry {
  EntryKey key;
  EntryInfo info;
  Bytes bytes;
  std::vector<uint32_t> words;
  Priority priority = kDefaultPriority;
};

// The entry of `prompt` that ends at block `depth` (16 positions each), `bytes` long.
Entry entry(uint64_t prompt, uint32_t depth, uint64_t bytes);
// The same with its words.
Entry with_words(Entry entry);
// Entries 0 to count - 1 of a prompt.
std::vector<Entry> entries(uint64_t prompt, uint32_t count, uint64_t bytes);

inline constexpr TierOp kEveryOp[] = {TierOp::put, TierOp::get, TierOp::contains, TierOp::touch,
                                      TierOp::remove};
using Outcomes = std::vector<TierOutcome>;
inline Outcomes all(size_t count, TierOutcome outcome) { return Outcomes(count, outcome); }

// Where random tests begin: STEMMA_TIER_SEED, or somewhere else each time. Prints it.
uint64_t first_seed();

struct Got {
  TierOutcome outcome = TierOutcome::pending;
  EntryInfo info;
  Bytes bytes;  // As long as the room that was given.
};

inline constexpr uint64_t kRoomy = uint64_t{64} << 20U;
inline constexpr uint64_t kTight = uint64_t{4} << 20U;
inline constexpr uint64_t kPatienceNs = 60'000'000'000;

// One batch that a test looks at while it runs, and everything that its items name.
class Work {
 public:
  Work(TierOp op, std::span<const Entry> entries);

  std::shared_ptr<TierBatch> batch;
  std::vector<Entry> entries;
  std::vector<Bytes> rooms;  // get.

  void submit_to(Tier& tier) { tier.submit(batch); }
  // Fails the test if the batch does not end.
  Work& finish();
  Outcomes outcomes() const;
};

// Batches over a tier, one after the other, each waited for; counts its items.
class Client {
 public:
  explicit Client(Tier& tier) : tier_(&tier) {}

  Outcomes put(std::span<const Entry> entries, bool durable = false);
  std::vector<Got> get(std::span<const Entry> entries);
  Outcomes contains(std::span<const Entry> entries);
  Outcomes remove(std::span<const Entry> entries);
  Outcomes touch(std::span<const Entry> entries);
  TierOutcome put(const Entry& one) { return put(std::span(&one, 1))[0]; }
  Got get(const Entry& one) { return get(std::span(&one, 1))[0]; }
  TierOutcome contains(const Entry& one) { return contains(std::span(&one, 1))[0]; }
  TierOutcome remove(const Entry& one) { return remove(std::span(&one, 1))[0]; }

  // Expects it to be there with its own bytes and words, or not there at all; returns which.
  bool whole_or_absent(const Entry& one);
  uint64_t items() const { return items_; }

 private:
  Outcomes run(TierOp op, std::span<const Entry> entries);

  Tier* tier_;
  uint64_t items_ = 0;
};

// All items that ended, as the statistics say.
uint64_t counted(const TierStats& stats);

class TierContract : public ::testing::TestWithParam<TierCase> {
 protected:
  void SetUp() override {
    place = GetParam().make();
    if (place == nullptr) GTEST_SKIP() << "not on this machine";
    open(kRoomy);
  }
  void open(uint64_t capacity_bytes) {
    tier.reset();
    tier = place->open(capacity_bytes);
    ASSERT_NE(tier, nullptr);
    client = std::make_unique<Client>(*tier);
  }
  // Opens a tier with little room; false if its traits give no capacity.
  bool open_tight() {
    open(kTight);
    return tier->traits().capacity_bytes != 0;
  }
  uint32_t words_of(const Entry& one) const {
    return place->keeps_words() ? static_cast<uint32_t>(one.words.size()) : 0;
  }
  void expect_there(const Entry& one);
  void expect_absent(const Entry& one);
  // Which of a prompt's entries are there; expects those to be the shallowest.
  size_t kept_of(std::span<const Entry> prompt);

  std::unique_ptr<TierPlace> place;
  std::unique_ptr<Tier> tier;
  std::unique_ptr<Client> client;
};

}  // namespace stemma::test
