// Memory runs out at every single point at which saved states and their words ask for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "base/slab.h"
#include "fault/failing_new.h"
#include "sequence/state_store.h"
#include "stemma/whole_prompt.h"
#include "support/text.h"

namespace stemma::test {
namespace {

using sequence::Lexicon;
using sequence::StateStore;

Scope scope_of(const std::string& salt) {
  return *Scope::make({.model = "m", .tenant_salt = salt});
}
const Text kPicture = tokens(70).with(image(1, 20, 30)).with(image(2, 52, 3));

struct StatesWorld {
  StatesWorld() {
    store = *StateStore::create({.budget_bytes = 1000, .max_entries = 100}, lexicon);
    EXPECT_TRUE(lexicon.read(tokens(40), known));
    EXPECT_TRUE(save(known, "a"));
    EXPECT_TRUE(lexicon.read(kPicture, text));
  }
  ~StatesWorld() {
    lexicon.release(text);
    lexicon.release(known);
    store->check_invariants();
    store.reset();
    EXPECT_EQ(lexicon.items(), 0U);
  }
  Result<void> save(const sequence::Text& what, const std::string& salt) {
    STEMMA_TRY(auto draft, store->reserve(scope_of(salt), what, what.length(), 100, 10));
    std::ranges::fill(draft.state(), 7);
    return draft.commit(100);
  }
  bool unchanged() const {
    const StateStore::Stats stats = store->stats();
    return stats.entries == 1 && stats.bytes == 140 && stats.held_bytes == 0 && stats.drafts == 0 &&
           stats.evictions == 0;
  }

  Lexicon lexicon;
  std::unique_ptr<StateStore> store;
  sequence::Text known;
  sequence::Text text;
};

// Tries `work` in fresh worlds with the n-th allocation failing, until none fails.
void refuse_everywhere(const std::function<Result<void>(StatesWorld&)>& work, uint64_t at_least) {
  uint64_t n = 1;
  for (bool fired = true; fired; ++n) {
    StatesWorld world;
    Result<void> done;
    {
      const FailingNew failing(n);
      done = work(world);
      fired = failing.fired();
    }
    if (!fired) {
      EXPECT_TRUE(done);
      break;
    }
    if (!done) {
      EXPECT_EQ(done.error().code(), Errc::out_of_memory) << n;
      EXPECT_TRUE(world.unchanged()) << n;
    }
    world.store->check_invariants();
    EXPECT_TRUE(work(world)) << n;
  }
  EXPECT_GT(n, at_least);
}

TEST(StatesMemory, SavingIsRefusedAndChangesNothing) {
  refuse_everywhere([](StatesWorld& world) { return world.save(world.text, "a"); }, 3);
  refuse_everywhere([](StatesWorld& world) { return world.save(world.text, "b"); }, 4);
}

TEST(StatesMemory, ReadingAPromptIsRefusedAndLeavesNoReferences) {
  const Text prompt = tokens(90).with(image(3, 1, 9)).with(image(4, 20, 9)).with(audio(5, 22, 20));
  refuse_everywhere(
      [&](StatesWorld& world) {
        sequence::Text text;
        const Result<void> read = world.lexicon.read(prompt, text);
        EXPECT_EQ(text.length(), read ? 90U : 0U);
        world.lexicon.release(text);
        return read;
      },
      4);
}

TEST(StatesMemory, ListIsRefused) {
  refuse_everywhere(
      [](StatesWorld& world) -> Result<void> {
        STEMMA_TRY(const auto all, world.store->list());
        EXPECT_EQ(all.size(), 1U);
        return {};
      },
      2);
}

TEST(StatesMemory, FindingLeasingAndForgettingNeedNone) {
  StatesWorld world;
  const NoMemory none;
  {
    auto lease = world.store->lease(world.store->find(scope_of("a"), world.known, 40).exact);
    EXPECT_TRUE(lease);
    EXPECT_TRUE(lease->read());
    world.store->used(*lease);
    EXPECT_TRUE(world.store->remove(*lease));
  }
  EXPECT_EQ(world.store->evict(3), 0U);
  EXPECT_EQ(world.store->drop_scope(scope_of("a")), 0U);
  EXPECT_EQ(world.store->clear(), 0U);
}

TEST(StatesMemory, SlabsThatCannotGrowAreARefusal) {
  for (int64_t n = 0; n < 8; ++n) {
    Lexicon lexicon;
    auto store = *StateStore::create({.budget_bytes = 1000}, lexicon);
    sequence::Text text;
    ASSERT_TRUE(lexicon.read(tokens(4000), text));
    base::refuse_slab_memory_after(n);
    auto draft = store->reserve(scope_of("a"), text, 4000, 10);
    base::refuse_slab_memory_after(base::kUnlimited);
    if (!draft) {
      EXPECT_EQ(draft.error().code(), Errc::out_of_memory);
      EXPECT_EQ(store->stats().bytes, 0U);
    }
    store->check_invariants();
    draft = store->reserve(scope_of("a"), text, 4000, 10);
    ASSERT_TRUE(draft);
    EXPECT_TRUE(draft->commit(10));
    EXPECT_EQ(store->find(scope_of("a"), text, 4000).exact.depth, 4000U);
  }
}

TEST(StatesMemory, StoreIsRefused) {
  Lexicon lexicon;
  uint64_t n = 1;
  for (;; ++n) {
    const FailingNew failing(n);
    const auto store = StateStore::create({.budget_bytes = 1000}, lexicon);
    if (!failing.fired()) break;
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code(), Errc::out_of_memory);
  }
  EXPECT_GT(n, 3U);
}

TEST(StatesMemory, PromptCacheAnswersAllTheSame) {
  const Text prompt = tokens(40);
  const std::vector<uint8_t> bytes(100, 7);
  const Scope scope = scope_of("a");
  uint64_t n = 1;
  for (bool fired = true; fired; ++n) {
    WholePromptCache cache = *WholePromptCache::create({.budget_mib = 1});
    {
      const FailingNew failing(n);
      const Result<void> stored = cache.store(scope, prompt.tokens, bytes);
      fired = failing.fired();
      EXPECT_EQ(stored.has_value(), !fired);
      EXPECT_TRUE(stored || stored.error().code() == Errc::out_of_memory);
    }
    EXPECT_EQ(cache.statistics().entries, fired ? 0U : 1U);
    EXPECT_TRUE(cache.store(scope, prompt.tokens, bytes));
    for (uint64_t m = 1; m <= 2; ++m) {
      const FailingNew failing(m);
      EXPECT_FALSE(cache.find(scope, prompt.tokens)) << m;
    }
    EXPECT_EQ(cache.statistics().misses, 2U);
    EXPECT_TRUE(cache.find(scope, prompt.tokens));
    EXPECT_EQ(cache.evict(9), 1U) << "nobody holds it";
  }
  EXPECT_GT(n, 5U);
}

}  // namespace
}  // namespace stemma::test
