// A StateStore, prompts as texts of its lexicon, and short ways to save and to find.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "sequence/state_store.h"
#include "support/text.h"

namespace stemma::sequence {

using test::image;
using test::tokens;

inline Scope scope_of(std::string_view salt) {
  return *Scope::make({.model = "m", .tenant_salt = std::string(salt)});
}

class States : public ::testing::Test {
 protected:
  void SetUp() override { make({.budget_bytes = 1000}); }
  void TearDown() override {
    if (store != nullptr) store->check_invariants();
    lexicon.release(scratch);
    store.reset();
    EXPECT_EQ(lexicon.items(), 0U);
  }
  void make(StateStore::Options options) {
    store.reset();
    options.clock = &clock;
    auto made = StateStore::create(options, lexicon);
    ASSERT_TRUE(made) << made.error().to_string();
    store = std::move(*made);
  }
  const Text& text(const test::Text& prompt) {
    EXPECT_TRUE(lexicon.read(prompt, scratch));
    return scratch;
  }
  Result<StateDraft> reserve(const test::Text& prompt, uint64_t bytes, uint32_t logits = 0,
                             const Scope& scope = scope_of("")) {
    return store->reserve(scope, text(prompt), prompt.size(), bytes, logits);
  }
  // A state of this many bytes, all of them `fill`.
  Result<void> save(const test::Text& prompt, uint64_t bytes, uint8_t fill = 1,
                    const Scope& scope = scope_of("")) {
    auto draft = reserve(prompt, bytes, 0, scope);
    if (!draft) return draft.error();
    std::ranges::fill(draft->state(), fill);
    return draft->commit(bytes);
  }
  StateMatch find(const test::Text& prompt, uint32_t at_most = ~0U,
                  const Scope& scope = scope_of("")) {
    return store->find(scope, text(prompt), at_most);
  }
  // The depth of the deepest state that can be used unchanged.
  uint32_t exact(const test::Text& prompt, uint32_t at_most = ~0U) {
    return find(prompt, at_most).exact.depth;
  }
  uint32_t common(const test::Text& prompt, uint32_t at_most = ~0U) {
    return find(prompt, at_most).longest.common;
  }
  StateLease lease(const test::Text& prompt) {
    auto leased = store->lease(find(prompt).exact);
    EXPECT_TRUE(leased);
    return leased ? std::move(*leased) : StateLease();
  }
  static int fill_of(const StateLease& lease) {
    const auto read = lease.read();
    if (!read || read->state.empty()) return -1;
    const uint8_t first = read->state.front();
    return std::ranges::all_of(read->state, [&](uint8_t byte) { return byte == first; }) ? first
                                                                                         : -2;
  }

  ManualClock clock;
  Lexicon lexicon;
  Text scratch;
  std::unique_ptr<StateStore> store;
};

}  // namespace stemma::sequence
