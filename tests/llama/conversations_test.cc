// Greedy answers are the same with and without a cache, over random conversations on every kind of
// model: several at a time, with common system prompts, a context and a memory too small for all of
// them.
//
//   STEMMA_LLAMA_CONVERSATIONS=n  how many, over all kinds of models (60)
//   STEMMA_LLAMA_SEED=n           which ones (1)
//
// The other side computes each prompt from nothing, alone in its context, as one batch (of up to
// 512). So the two round differently, and where the two best tokens are closer than that the
// answers may part: such conversations end there, and few may.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "llama/warm_rig.h"
#include "support/environment.h"

namespace stemma::test {
namespace {

constexpr uint32_t kAtOnce = 3;
constexpr uint32_t kTurns = 3;
constexpr uint32_t kAnswer = 12;
constexpr uint64_t kDefaultConversations = kSanitized ? 20 : 60;

struct Best {
  Token token = 0;
  double margin = 0;  // To the second best, in units of the logits' spread.
  double absolute = 0;
};

Best best_of(std::span<const float> logits) {
  Best best;
  float second = -1e30F;
  double sum = 0;
  double squares = 0;
  for (uint32_t i = 0; i < logits.size(); ++i) {
    sum += logits[i];
    squares += static_cast<double>(logits[i]) * logits[i];
    if (i == 0 || logits[i] > logits[best.token]) {
      if (i != 0) second = std::max(second, logits[best.token]);
      best.token = i;
    } else {
      second = std::max(second, logits[i]);
    }
  }
  const double n = static_cast<double>(logits.size());
  best.absolute = logits[best.token] - second;
  best.margin = best.absolute / std::sqrt(squares / n - sum / n * (sum / n));
  return best;
}

struct Setting {
  const char* name;
  Architecture architecture;
  bool flash_attention;
};
constexpr Setting kSettings[] = {
    {"full", Architecture::llama, true},
    {"full, no flash attention", Architecture::llama, false},
    {"window", Architecture::window, true},
    {"window, no flash attention", Architecture::window, false},
    {"recurrent", Architecture::recurrent, true},
    {"hybrid", Architecture::hybrid, true},
    {"hybrid, no flash attention", Architecture::hybrid, false},
};

// The results of the conversations of one setting.
struct Tally {
  uint32_t conversations = 0;
  uint32_t stopped = 0;  // At two tokens as good as equal.
  uint32_t parted = 0;   // Of these, where the answers parted there.
  uint32_t both = 0;   // Of these, where llama.cpp alone says the one or the other, by batch size.
  uint32_t wrong = 0;  // They parted elsewhere.
  double margin = 0;   // The largest at which they parted, of two best tokens.
  uint64_t steps = 0;
  uint64_t turns = 0;
  SequenceStats stats;
};

struct Conversation {
  uint64_t seed = 0;
  std::string name;
  Text text;  // So far, with the next question.
  std::vector<uint32_t> message_ends;
  uint32_t turn = 0;
  bool over = false;
  // Of the turn under way.
  Turn lease;
  std::vector<Token> said;
};

class Conversations {
 public:
  Conversations(const Setting& setting, uint64_t seed)
      : seed_(seed),
        warm_(load_model(small(setting))),
        cold_(load_model(alone(setting))),
        scope_(ok(Scope::make(warm_->info().scope))) {
    SequenceOptions options;
    options.segment_tokens = 32;
    const EngineTraits traits = warm_->sequences().traits();
    // Room for about half of what is said at a time.
    options.saved_bytes = 6 * (traits.fixed_bytes + traits.checkpoint_bytes) +
                          700 * (traits.bytes_per_token + 40) + 16'384;
    cache_ =
        std::make_unique<SequenceCache>(ok(SequenceCache::create(warm_->sequences(), options)));
  }

  Tally run(uint32_t count) {
    std::vector<Conversation> open;
    uint32_t begun = 0;
    uint64_t round = 0;
    while (begun < count || !open.empty()) {
      while (open.size() < 2 * kAtOnce && begun < count) open.push_back(begin(begun++));
      // Some of the open conversations take a turn together.
      std::vector<Conversation*> now;
      const uint64_t first = base::mix(seed_ * 77 + round++);
      for (size_t i = 0; i < open.size() && now.size() < kAtOnce; ++i) {
        now.push_back(&open[(first + i) % open.size()]);
      }
      take_turns(now);
      for (Conversation* each : now) judge(*each);
      std::erase_if(open, [](const Conversation& each) { return each.over; });
      if (round % 4 == 0) cache_->drain({.evict = round % 8 == 0});
    }
    tally_.conversations = count;
    tally_.stats = cache_->stats();
    cache_->check_invariants();
    return tally_;
  }

 private:
  static LlamaOptions small(const Setting& setting) {
    LlamaOptions options = options_for(setting.architecture);
    options.flash_attention = setting.flash_attention;
    options.context_tokens = 640;
    return options;
  }
  static LlamaOptions alone(const Setting& setting) {
    LlamaOptions options = options_for(setting.architecture);
    options.flash_attention = setting.flash_attention;
    options.sequences = 1;
    return options;
  }

  Conversation begin(uint32_t number) const {
    Conversation made;
    made.seed = base::mix(seed_, number);
    made.name = std::to_string(number);
    // One of three system prompts, of 40 to 120 words.
    const uint64_t system = made.seed % 3;
    made.text = words(40 + 40 * static_cast<uint32_t>(system), 7 + system);
    made.message_ends = {made.text.size()};
    question(made);
    return made;
  }
  static void question(Conversation& talk) {
    const uint64_t dice = base::mix(talk.seed, talk.turn);
    talk.text = talk.text + words(8 + static_cast<uint32_t>(dice % 40), dice);
    talk.message_ends.push_back(talk.text.size());
  }

  void decode(std::span<const BatchItem> batch) { ok(warm_->decode(batch)); }

  // Prompts one after another, then the answers, a token of each in a batch.
  void take_turns(std::span<Conversation* const> talks) {
    std::vector<Conversation*> answering;
    for (Conversation* talk : talks) {
      talk->said.clear();
      talk->lease = ok(cache_->begin(
          scope_, talk->text,
          {.session = talk->name, .reserve_tokens = kAnswer, .message_ends = talk->message_ends}));
      ok(talk->lease.execute());
      Token next = 0;
      while (talk->lease.computed() < talk->lease.length()) {
        std::vector<BatchItem> batch;
        const uint32_t end = talk->lease.next_stop();
        for (uint32_t i = talk->lease.computed(); i < end; ++i) {
          batch.push_back({talk->text.tokens[i], i, talk->lease.sequence(), i + 1 == end});
        }
        decode(batch);
        ok(talk->lease.computed(end));
        next = best_of(warm_->logits(static_cast<uint32_t>(batch.size()) - 1)).token;
      }
      talk->said.push_back(next);
      answering.push_back(talk);
    }
    for (uint32_t step = 1; step < kAnswer; ++step) {
      std::vector<BatchItem> batch;
      for (Conversation* talk : answering) {
        ok(talk->lease.extend({&talk->said.back(), 1}));
        batch.push_back({talk->said.back(), talk->lease.computed(), talk->lease.sequence(), true});
      }
      decode(batch);
      for (uint32_t i = 0; i < answering.size(); ++i) {
        Conversation& talk = *answering[i];
        ok(talk.lease.computed(talk.lease.length()));
        talk.said.push_back(best_of(warm_->logits(i)).token);
      }
    }
    for (Conversation* talk : talks) ok(talk->lease.finish());
  }

  // The same turn without a cache.
  void judge(Conversation& talk) {
    ++tally_.turns;
    constexpr SequenceId kOnly{0};
    ok(cold_->sequences().clear(kOnly));
    std::vector<float> logits = ok(compute(*cold_, kOnly, talk.text.tokens));
    for (uint32_t step = 0; step < kAnswer; ++step) {
      const Best best = best_of(logits);
      ++tally_.steps;
      const bool same = best.token == talk.said[step];
      const bool equal = best.absolute < 5e-3;  // As good as: nobody could tell them apart.
      if (equal || !same) {
        talk.over = true;
        const bool rounding = equal || best.margin < kNear;
        tally_.stopped += rounding ? 1 : 0;
        tally_.parted += rounding && !same ? 1 : 0;
        tally_.wrong += rounding ? 0 : 1;
        if (!same) {
          tally_.margin = std::max(tally_.margin, best.margin);
          tally_.both += could_say(talk.text.tokens, talk.said[step]) ? 1 : 0;
        }
        EXPECT_TRUE(rounding) << "conversation " << talk.name << ", turn " << talk.turn << ", step "
                              << step << ": margin " << best.margin;
        return;
      }
      talk.text.tokens.push_back(best.token);
      if (step + 1 < kAnswer) logits = ok(compute(*cold_, kOnly, {&best.token, 1}));
    }
    talk.message_ends.push_back(talk.text.size());
    if (++talk.turn == kTurns) {
      talk.over = true;
    } else {
      question(talk);
    }
  }

  // Whether in some batches the word comes next without a cache.
  bool could_say(std::span<const Token> text, Token word) {
    return std::ranges::any_of(std::array{1U, 7U, 16U, 33U, 47U, 64U, 100U}, [&](uint32_t batch) {
      ok(cold_->sequences().clear(SequenceId{0}));
      return best_of(ok(compute(*cold_, SequenceId{0}, text, batch))).token == word;
    });
  }

  uint64_t seed_;
  std::unique_ptr<LlamaModel> warm_;
  std::unique_ptr<LlamaModel> cold_;
  std::unique_ptr<SequenceCache> cache_;
  Scope scope_;
  Tally tally_;
};

void print(const Setting& setting, const Tally& tally) {
  const auto steps = [&](Step step) {
    return static_cast<unsigned long long>(tally.stats.steps[static_cast<uint32_t>(step)]);
  };
  const SequenceStats& stats = tally.stats;
  std::printf(
      "%-27s %4u conversations %5llu turns %6llu tokens: %u stopped, %u of them parted (margin "
      "%.1e; %u as other batches do), %u wrong\n",
      setting.name, tally.conversations, static_cast<unsigned long long>(tally.turns),
      static_cast<unsigned long long>(tally.steps), tally.stopped, tally.parted, tally.margin,
      tally.both, tally.wrong);
  std::printf(
      "%27s reused %.0f %%; turns that stay %llu trim %llu fork %llu segments %llu state %llu "
      "checkpoint %llu; %llu evictions\n",
      "", 100 * stats.hit_ratio(), steps(Step::stay), steps(Step::trim), steps(Step::fork),
      steps(Step::segments), steps(Step::state), steps(Step::checkpoint),
      static_cast<unsigned long long>(stats.segment_evictions + stats.state_evictions));
}

TEST(LlamaConversations, GreedyAnswersAreTheSameWithAndWithoutACache) {
  const uint64_t count = from_environment("STEMMA_LLAMA_CONVERSATIONS", kDefaultConversations);
  const uint64_t seed = from_environment("STEMMA_LLAMA_SEED", 1);
  std::printf("%llu conversations; replay with STEMMA_LLAMA_SEED=%llu\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(seed));
  uint32_t stopped = 0;
  std::array<uint64_t, kStepCount> steps{};
  for (uint64_t s = 0; s < std::size(kSettings); ++s) {
    const uint64_t share =
        count * (s + 1) / std::size(kSettings) - count * s / std::size(kSettings);
    SCOPED_TRACE(kSettings[s].name);
    Conversations conversations(kSettings[s], base::mix(seed, s));
    const Tally tally = conversations.run(static_cast<uint32_t>(share));
    print(kSettings[s], tally);
    stopped += tally.stopped;
    for (uint32_t i = 0; i < kStepCount; ++i) steps[i] += tally.stats.steps[i];
    EXPECT_EQ(tally.wrong, 0U);
    EXPECT_GT(tally.stats.hit_ratio(), 0.2);
  }
  std::printf("%u of %llu stopped\n", stopped, static_cast<unsigned long long>(count));
  // Every way to come by a prefix was taken.
  if (count >= 60) {
    for (uint32_t i = 0; i < kStepCount; ++i) {
      EXPECT_GT(steps[i], 0U) << to_string(static_cast<Step>(i));
    }
  }
  // 2 %; a few of few may be chance.
  EXPECT_LE(stopped, std::max<uint64_t>(3, count / 50));
}

}  // namespace
}  // namespace stemma::test
