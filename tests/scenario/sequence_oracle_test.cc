// How much of what could be reused is reused, against an oracle that remembers everything.
//
// The oracle knows every word that any earlier request has computed. It could reuse the longest
// prefix that a prompt shares with one of them, except the last token, which is always computed.
// Engines with full attention reach that. The others resume only at checkpoints, so their reuse
// shows how well the boundaries were chosen.
#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

// ---- What clients send --------------------------------------------------------------------------

enum class Occasion : uint8_t { opening, next_turn, other_role, again, edit, raw };
constexpr std::array kOccasions = {"first question", "next turn", "other role",
                                   "asked again",    "edited",    "raw completion"};

// One request as the server passes it to the cache.
struct Asked {
  Occasion kind = Occasion::opening;
  Text prompt;
  std::vector<uint32_t> ends;
  Text answer;
};

enum class Role : Token { system = 10, user, assistant, tool };

class Clients {
 public:
  explicit Clients(uint32_t seed) : random_(seed) {
    for (uint32_t i = 0; i < 3; ++i) systems_.push_back(fresh(300 + 400 * i, 300));
    for (uint32_t i = 0; i < 3; ++i) examples_.push_back(fresh(700 + 500 * i, 200));
  }

  // All that clients send, in this order: conversations that are under way at the same time, and
  // completions.
  std::vector<Asked> requests(uint32_t conversations, uint32_t turns) {
    std::vector<Talk> talks;
    for (uint32_t i = 0; i < conversations; ++i) talks.push_back({systems_[i % systems_.size()]});
    for (uint32_t turn = 0; turn < turns; ++turn) {
      for (Talk& talk : talks) go_on(talk);
    }
    return std::move(asked_);
  }

 private:
  struct Said {
    Role role;
    Text words;
  };
  struct Talk {
    Text system;
    std::vector<Said> said = {};
  };

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  // At least this many words that no message has used before.
  Text fresh(uint32_t least, uint32_t more) { return tokens(least + below(more), 1000 + seed_++); }

  // <start> role <newline> words <end> <newline>, as most templates have it. A boundary lies behind
  // the <start> of the next message: all conversations that continue from here are equal up to
  // there.
  static void say(Asked& asked, Role role, const Text& words) {
    asked.prompt = asked.prompt + of({static_cast<Token>(role), 3}) + words + of({2, 3, 1});
    asked.ends.push_back(asked.prompt.size());
  }
  Asked render(Occasion kind, const Talk& talk) {
    Asked asked;
    asked.kind = kind;
    asked.prompt = of({1});
    say(asked, Role::system, talk.system);
    for (const Said& said : talk.said) say(asked, said.role, said.words);
    asked.prompt = asked.prompt + of({static_cast<Token>(Role::assistant), 3});
    asked.answer = fresh(20, 250);
    return asked;
  }
  void ask(Occasion kind, Talk& talk) {
    asked_.push_back(render(kind, talk));
    // One user in seven rejects the answer.
    if (chance(15)) asked_.push_back(render(Occasion::again, talk));
    talk.said.push_back({Role::assistant, asked_.back().answer});
  }

  void go_on(Talk& talk) {
    if (chance(10)) return complete();
    if (talk.said.empty()) {
      const bool other = chance(20);
      talk.said.push_back({other ? Role::tool : Role::user, fresh(10, 300)});
      return ask(other ? Occasion::other_role : Occasion::opening, talk);
    }
    if (chance(8)) return edit(talk);
    talk.said.push_back({Role::user, fresh(10, 300)});
    ask(Occasion::next_turn, talk);
  }

  // The user edits the middle of an earlier message, and the conversation continues from there.
  void edit(Talk& talk) {
    const uint32_t which = 2 * below(static_cast<uint32_t>(talk.said.size()) / 2);
    talk.said.resize(which + 1);
    Text& words = talk.said.back().words;
    words = words.first(below(words.size())) + fresh(5, 50);
    ask(Occasion::edit, talk);
  }

  void complete() {
    Asked asked;
    asked.kind = Occasion::raw;
    asked.prompt = examples_[below(3)] + fresh(20, 150);
    asked.answer = fresh(20, 60);
    asked_.push_back(asked);
  }

  std::mt19937 random_;
  uint32_t seed_ = 0;
  std::vector<Text> systems_;
  std::vector<Text> examples_;
  std::vector<Asked> asked_;
};

// ---- The oracle ---------------------------------------------------------------------------------

class Oracle {
 public:
  uint32_t possible(const Text& prompt) const {
    uint32_t most = 0;
    for (const std::vector<Token>& words : computed_) {
      const auto parts = std::ranges::mismatch(words, prompt.tokens);
      most = std::max(most, static_cast<uint32_t>(parts.in1 - words.begin()));
    }
    return std::min(most, prompt.size() - 1);
  }
  void computed(const Text& text) { computed_.push_back(text.tokens); }

 private:
  std::vector<std::vector<Token>> computed_;
};

struct Reused {
  std::array<uint64_t, kOccasions.size()> possible{};
  std::array<uint64_t, kOccasions.size()> reused{};
  uint64_t prompt_tokens = 0;
  uint32_t short_chunks = 0;  // Shorter than 64 tokens, and not at the end of a prompt.

  static double ratio(uint64_t part, uint64_t all) {
    return all == 0 ? 1 : static_cast<double>(part) / static_cast<double>(all);
  }
  double total() const {
    uint64_t part = 0;
    uint64_t all = 0;
    for (size_t i = 0; i < kOccasions.size(); ++i) part += reused[i], all += possible[i];
    return ratio(part, all);
  }
  void print(const std::string& name) const {
    std::printf("%-13s %.4f of the oracle:", name.c_str(), total());
    for (size_t i = 0; i < kOccasions.size(); ++i) {
      std::printf(" %s %.3f", kOccasions[i], ratio(reused[i], possible[i]));
    }
    std::printf("\n");
  }
};

// Plays the clients' requests against a cache that has room for everything saved.
Reused play(EngineOptions engine, uint32_t seed) {
  engine.context_tokens = 16'384;
  SequenceOptions options;
  options.saved_bytes = 512U << 20U;
  SequenceRig rig(engine, options);
  Oracle oracle;
  Reused sums;
  for (const Asked& asked : Clients(seed).requests(16, 6)) {
    const auto kind = static_cast<size_t>(asked.kind);
    const uint32_t possible = oracle.possible(asked.prompt);
    rig.stops.clear();
    Request request = rig.begin(asked.prompt, {.message_ends = asked.ends});
    const SequenceReport report = rig.run(request);
    uint32_t begin = report.reused_tokens;
    for (const uint32_t stop : rig.stops) {
      // A prompt may end in a short chunk, which is cut once more before the very last token.
      const bool last = stop + 1 >= asked.prompt.size();
      if (stop - begin < 64 && !last) ++sums.short_chunks;
      begin = stop;
    }
    rig.answer(request, asked.answer);
    rig.finish(request);
    rig.drain();
    oracle.computed(asked.prompt + asked.answer);
    EXPECT_LE(report.reused_tokens, possible) << "more than anybody has computed";
    sums.possible[kind] += possible;
    sums.reused[kind] += report.reused_tokens;
    sums.prompt_tokens += asked.prompt.size();
  }
  EXPECT_EQ(rig.cache.stats().state_evictions, 0U) << "checkpoints fit";
  return sums;
}

// A window as real models have it: cells that a forward pass pushes out stay until the next pass.
EngineOptions wide_window(EngineOptions options) {
  options.rewind_tokens = 256;
  options.window_slack_tokens = 512;
  return options;
}

TEST(SequenceOracle, FullAttentionReusesEverythingThatWasComputed) {
  for (const EngineOptions& engine : {full_engine(), full_split_engine()}) {
    const Reused sums = play(engine, 1);
    sums.print("full");
    EXPECT_EQ(sums.total(), 1.0);
  }
}

TEST(SequenceOracle, OtherMemoriesReuseNinetyNineOfAHundred) {
  const std::pair<const char*, EngineOptions> kinds[] = {
      {"window", wide_window(window_engine())},
      {"hybrid", hybrid_engine()},
      {"recurrent", mamba_engine()},
  };
  for (const auto& [name, engine] : kinds) {
    for (const uint32_t seed : {1U, 2U}) {
      const Reused sums = play(engine, seed);
      sums.print(name);
      EXPECT_GE(sums.total(), 0.99) << name;
      EXPECT_EQ(sums.short_chunks, 0U) << name;
    }
  }
}

}  // namespace
}  // namespace stemma::test
