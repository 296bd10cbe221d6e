// Random operations on a StateStore against the obvious model: a list of states with their words,
// and a queue of who goes next.
//
// Everything is predicted: what is found, what goes, what is refused, every count and every byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "model/states_model.h"
#include "model/world.h"
#include "sequence/state_store.h"

namespace stemma::test {
namespace {

using sequence::Lexicon;
using sequence::StateCandidate;
using sequence::StateDraft;
using sequence::StateLease;
using sequence::StateMatch;
using sequence::StateStore;

struct StatesSeen {
  std::map<std::string, uint64_t> times;
  uint64_t operations = 0;
};

size_t common_of(const Words& a, const Words& b) {
  const auto parted = std::ranges::mismatch(a, b);
  return static_cast<size_t>(parted.in1 - a.begin());
}

// ---- One run ------------------------------------------------------------------------------------

class StatesRun {
 public:
  StatesRun(uint64_t seed, StepLog& log, StatesSeen& seen)
      : random_(seed), log_(log), seen_(seen), author_(author_options(), random_) {
    model_.budget = random_.between(100, 3000);
    model_.most = random_.between(1, 24);
    log_.begin(seed, "budget " + std::to_string(model_.budget) + ", at most " +
                         std::to_string(model_.most) + " entries");
    auto made = StateStore::create(
        {.budget_bytes = model_.budget, .max_entries = model_.most, .clock = &clock_}, lexicon_);
    store_ = std::move(*made);
    for (const char* salt : {"a", "b", "c"}) {
      scopes_.push_back(*Scope::make({.model = "m", .tenant_salt = salt}));
    }
  }

  // Empty when all was as predicted.
  std::string run() {
    for (uint64_t step = 0; step < 400 && wrong_.empty(); ++step) {
      ++seen_.operations;
      clock_.advance_ns(1);
      const uint32_t dice = random_.below(100);
      log_.step(step, "dice " + std::to_string(dice));
      if (dice < 35) {
        reserve();
      } else if (dice < 50) {
        finish_draft();
      } else if (dice < 75) {
        find();
      } else if (dice < 90) {
        end_lease();
      } else if (dice < 96) {
        const uint32_t n = random_.below(3);
        uint32_t went = 0;
        while (went < n && model_.evict()) ++went;
        expect(store_->evict(n) == went, "evict");
      } else if (dice < 98) {
        drop(random_.below(3));
      } else if (dice == 98) {
        drop(kAll);
      } else {
        remove();
      }
      check();
    }
    leases_.clear();
    drafts_.clear();
    lexicon_.release(text_);
    store_.reset();
    expect(lexicon_.items() == 0, "references to media items are left");
    return wrong_;
  }

 private:
  static constexpr uint32_t kAll = ~0U;

  Author::Options author_options() {
    return {.block_tokens = random_.between(1, 20),
            .letters = random_.between(2, 3),
            .longest_tokens = random_.between(40, 400),
            .media_percent = random_.chance(50) ? 25U : 0U};
  }
  void expect(bool holds, const std::string& what) {
    if (!holds && wrong_.empty()) wrong_ = what;
  }
  void count(const char* what) { ++seen_.times[what]; }

  // A prompt as the lexicon reads it, and as the model does.
  Words write() {
    const Text prompt = author_.write();
    expect(lexicon_.read(prompt.prompt(), text_).has_value(), "a prompt was refused");
    Words words(text_.tokens.begin(), text_.tokens.end());
    for (const key::MediaSpan& span : text_.spans) {
      const auto identity = std::tuple(span.identity.kind, span.identity.causal,
                                       span.identity.length, span.identity.digest);
      const uint64_t number = items_.try_emplace(identity, items_.size()).first->second;
      std::fill(words.begin() + span.begin, words.begin() + span.end, (1ULL << 40U) + number);
    }
    return words;
  }
  uint32_t some_depth() { return text_.floor(random_.below(text_.length() + 1)); }

  void reserve() {
    Words words = write();
    uint32_t depth = random_.chance(50) ? text_.length() : some_depth();
    if (depth == 0) return;
    words.resize(depth);
    State state{.scope = random_.below(3), .words = words};
    const uint32_t logits = random_.chance(30) ? random_.between(1, 8) : 0;
    const uint64_t bytes = random_.chance(3) ? model_.budget * 2 : random_.between(1, 500);
    state.bytes = bytes + 4 * logits;
    const uint64_t stamp = ++stamp_;
    state.stamp = stamp;
    const Scope& scope = scopes_[state.scope];
    auto draft = store_->reserve(scope, text_, depth, bytes, logits);
    const bool fits = model_.reserve(stamp, std::move(state));
    log_.note(" reserve " + std::to_string(stamp) + ": depth " + std::to_string(depth) + ", " +
              std::to_string(bytes) + " bytes, " + (fits ? "fits" : "refused"));
    count(fits ? "drafts" : "refusals");
    expect(draft.has_value() == fits, "reserve: a refusal that was not expected, or none that was");
    if (!draft || !fits) return;
    expect(draft->state().size() == bytes && draft->logits().size() == logits, "size of a draft");
    std::ranges::fill(draft->state(), static_cast<uint8_t>(stamp));
    std::ranges::fill(draft->logits(), static_cast<float>(stamp));
    drafts_.emplace_back(stamp, std::move(*draft));
    if (random_.chance(80)) finish_draft(drafts_.size() - 1, true);
  }
  void finish_draft() {
    if (!drafts_.empty()) {
      finish_draft(random_.below(static_cast<uint32_t>(drafts_.size())), random_.chance(60));
    }
  }
  void finish_draft(size_t which, bool commit) {
    auto [stamp, draft] = std::move(drafts_[which]);
    drafts_.erase(drafts_.begin() + static_cast<ptrdiff_t>(which));
    log_.note((commit ? " commit " : " abandon ") + std::to_string(stamp));
    const bool dropped = model_.states.at(stamp).dropped;
    if (commit) {
      const uint64_t written = random_.between(1, static_cast<uint32_t>(draft.state().size()));
      const Result<void> done = draft.commit(written);
      expect(done.has_value() == !dropped, "commit");
      if (dropped) count("commits after drop_scope");
    }
    if (commit && !dropped) {
      const uint64_t before = model_.replaced;
      model_.commit(stamp);
      count(model_.replaced != before ? "replaced" : "committed");
    } else {
      model_.abandon(stamp);
      draft.abandon();
    }
  }

  void find() {
    Words words = write();
    const uint32_t scope = random_.below(3);
    const uint32_t at_most = random_.chance(40) ? random_.below(text_.length() + 9) : ~0U;
    const uint32_t limit = text_.floor(std::min(at_most, text_.length()));
    words.resize(limit);
    const StateMatch match = store_->find(scopes_[scope], text_, at_most);
    size_t exact = 0;
    size_t common = 0;
    uint64_t exact_stamp = 0;
    for (const auto& [stamp, state] : model_.states) {
      if (!state.kept || state.scope != scope) continue;
      const size_t same = common_of(state.words, words);
      common = std::max(common, same);
      if (same == state.words.size() && same > exact) {
        exact = same;
        exact_stamp = stamp;
      }
    }
    log_.note(" find: exact " + std::to_string(exact) + ", common " + std::to_string(common));
    count(exact != 0 ? "exact found" : "exact missed");
    expect(match.exact.depth == exact && static_cast<bool>(match.exact) == (exact != 0),
           "depth of the exact one");
    expect(match.longest.common == common && static_cast<bool>(match.longest) == (common != 0),
           "words in common");
    if (common > exact) count("longest shares more");
    if (match.exact) lease(match.exact, exact_stamp, words);
    if (match.longest) lease(match.longest, 0, words);
  }
  void lease(const StateCandidate& found, uint64_t expected, const Words& words) {
    auto leased = store_->lease(found);
    expect(leased.has_value(), "lease");
    if (!leased) return;
    const auto read = leased->read();
    expect(read.has_value(), "read");
    if (!read) return;
    const uint8_t fill = read->state.front();
    // Which one it says it is: its bytes, depth and words must be those.
    uint64_t stamp = 0;
    for (const auto& [number, state] : model_.states) {
      if (!state.kept || static_cast<uint8_t>(number) != fill) continue;
      if (state.words.size() == found.depth && state.bytes == found.bytes &&
          common_of(state.words, words) == found.common) {
        stamp = number;
      }
    }
    expect(stamp != 0 && (expected == 0 || stamp == expected), "a state that is not the right one");
    if (stamp == 0) return;
    expect(right(*leased, stamp), "bytes of a lease");
    ++model_.states.at(stamp).leases;
    if (random_.chance(40)) {
      store_->used(*leased);
      model_.use(stamp);
    }
    leases_.emplace_back(stamp, std::move(*leased));
    if (random_.chance(60)) end_lease();
  }
  static bool right(const StateLease& lease, uint64_t stamp) {
    const auto read = lease.read();
    return read && !read->state.empty() &&
           std::ranges::all_of(read->state,
                               [&](uint8_t byte) { return byte == static_cast<uint8_t>(stamp); }) &&
           std::ranges::all_of(read->logits,
                               [&](float value) { return value == static_cast<float>(stamp); });
  }
  void end_lease() {
    if (leases_.empty()) return;
    const size_t which = random_.below(static_cast<uint32_t>(leases_.size()));
    const uint64_t stamp = leases_[which].first;
    expect(right(leases_[which].second, stamp), "bytes changed under a lease");
    count(model_.states.at(stamp).kept ? "leases ended" : "leases out of sight ended");
    leases_.erase(leases_.begin() + static_cast<ptrdiff_t>(which));
    model_.end_lease(stamp);
  }
  void remove() {
    if (leases_.empty()) return;
    const auto& [stamp, lease] = leases_[random_.below(static_cast<uint32_t>(leases_.size()))];
    const bool kept = model_.states.at(stamp).kept;
    expect(store_->remove(lease) == kept, "remove");
    if (kept) model_.put_away(stamp);
    count("removed");
  }
  void drop(uint32_t scope) {
    uint32_t went = 0;
    std::vector<uint64_t> all;
    for (auto& [stamp, state] : model_.states) {
      if (scope != kAll && state.scope != scope) continue;
      state.dropped = state.dropped || state.draft;
      if (state.kept) all.push_back(stamp);
    }
    for (uint64_t stamp : all) model_.put_away(stamp), ++went;
    const uint32_t gone = scope == kAll ? store_->clear() : store_->drop_scope(scopes_[scope]);
    expect(gone == went, "drop");
    count("scopes dropped");
  }

  void check() {
    const StateStore::Stats stats = store_->stats();
    expect(stats.bytes == model_.bytes() && stats.bytes <= model_.budget, "bytes");
    expect(stats.held_bytes == model_.bytes(true), "held bytes");
    expect(stats.entries == model_.kept(), "entries");
    expect(stats.drafts == drafts_.size(), "drafts");
    expect(stats.evictions == model_.evictions, "evictions");
    expect(stats.replaced == model_.replaced, "replaced");
    expect(stats.refused_too_large == model_.refused, "refused");
    if (random_.chance(10)) store_->check_invariants();
    if (!random_.chance(5)) return;
    const auto all = store_->list();
    std::multiset<std::pair<size_t, uint64_t>> listed, expected;
    for (const auto& info : *all) listed.emplace(info.words.size(), info.bytes);
    for (const auto& [stamp, state] : model_.states) {
      if (state.kept) expected.emplace(state.words.size(), state.bytes);
    }
    expect(listed == expected, "list");
  }

  Random random_;
  StepLog& log_;
  StatesSeen& seen_;
  Author author_;
  ManualClock clock_;
  Lexicon lexicon_;
  sequence::Text text_;
  std::map<std::tuple<MediaKind, bool, uint32_t, std::array<uint8_t, 16>>, uint64_t> items_;
  std::vector<Scope> scopes_;
  StatesModel model_;
  std::unique_ptr<StateStore> store_;
  std::vector<std::pair<uint64_t, StateDraft>> drafts_;
  std::vector<std::pair<uint64_t, StateLease>> leases_;
  uint64_t stamp_ = 0;
  std::string wrong_;
};

TEST(Model, StateStoreAgreesWithAListOfStates) {
  using Clock = std::chrono::steady_clock;
  const RunLength length = RunLength::from_environment();
  const double seconds = std::max(length.seconds, 50.0) * 0.04;
  StepLog log;
  StatesSeen seen;
  const Clock::time_point begin = Clock::now();
  std::printf("first seed %llu, %.1f s\n", static_cast<unsigned long long>(length.first_seed),
              seconds);
  for (uint64_t seed = length.first_seed;; ++seed) {
    StatesRun run(seed, log, seen);
    const std::string wrong = run.run();
    log.end();
    ASSERT_EQ(wrong, "") << log.text();
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (length.only_one || passed >= seconds) break;
  }
  std::printf("  %-26s %10llu\n", "operations", static_cast<unsigned long long>(seen.operations));
  for (const auto& [what, times] : seen.times) {
    std::printf("  %-26s %10llu\n", what.c_str(), static_cast<unsigned long long>(times));
  }
  if (length.only_one) return;
  const uint64_t wanted = RunLength::times_wanted(seen.operations, 100'000);
  for (const char* what :
       {"committed", "replaced", "refusals", "exact found", "longest shares more",
        "leases out of sight ended", "commits after drop_scope", "removed"}) {
    EXPECT_GE(seen.times[what], wanted) << what;
  }
}

}  // namespace
}  // namespace stemma::test
