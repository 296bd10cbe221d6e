#include "llama/warm_rig.h"

#include <algorithm>

#include "base/random.h"

namespace stemma::test {

namespace {

// A clock that stands still: every measured call costs nothing, so plans are the same on every
// machine.
const ManualClock& still_clock() {
  static const ManualClock clock;
  return clock;
}

}  // namespace

Text words(uint32_t count, uint64_t seed) {
  Text text;
  for (uint32_t i = 0; i < count; ++i) text.tokens.push_back(base::mix(seed, i) % 256);
  return text;
}

WarmRig::WarmRig(const LlamaOptions& options, const SequenceOptions& cache_options)
    : model(load_model(options)),
      engine(model->sequences()),
      cache(ok(SequenceCache::create(engine, cache_options))),
      scope(ok(Scope::make(model->info().scope))),
      judge_(load_model(options)),
      near_(options.flash_attention ? kNear : kNearer) {}

SequenceOptions WarmRig::still() {
  SequenceOptions options;
  options.saved_bytes = 16U << 20U;
  options.segment_tokens = 32;
  options.clock = &still_clock();
  return options;
}

void WarmRig::recall(Asked& asked, uint32_t n) const {
  if (n == 0) return;
  const auto begins_alike = [&](const Known& known) {
    return known.tokens.size() >= n &&
           std::equal(known.tokens.begin(), known.tokens.begin() + n, asked.text.tokens.begin());
  };
  const auto found = std::ranges::find_if(known_, begins_alike);
  ASSERT_NE(found, known_.end()) << n << " words are there that nobody computed";
  for (const uint32_t end : found->ends) {
    if (end <= n) asked.ends.push_back(end);
  }
  asked.same_split = !asked.ends.empty() && asked.ends.back() == n;
  if (!asked.same_split) asked.ends.push_back(n);
}

Result<void> WarmRig::decode(Asked& asked, uint32_t end) {
  std::vector<BatchItem> batch;
  const uint32_t begin = asked.turn.computed();
  for (uint32_t i = begin; i < end; ++i) {
    batch.push_back({asked.text.tokens[i], i, asked.turn.sequence(), i + 1 == asked.text.size()});
  }
  STEMMA_TRY_VOID(model->decode(batch));
  asked.ends.push_back(end);
  if (end == asked.text.size()) {
    const std::span<const float> logits = model->logits(end - begin - 1);
    asked.logits.emplace_back(logits.begin(), logits.end());
  }
  return asked.turn.computed(end);
}

Result<void> WarmRig::try_compute(Asked& asked) {
  while (asked.turn.computed() < asked.turn.length()) {
    STEMMA_TRY_VOID(
        decode(asked, std::min(asked.turn.next_stop(), asked.turn.computed() + chunk_tokens)));
  }
  known_.push_back({asked.text.tokens, asked.ends});
  return {};
}

Result<Asked> WarmRig::try_start(const Text& text, const TurnOptions& options) {
  Asked asked;
  asked.text = text;
  STEMMA_TRY(asked.turn, cache.begin(scope, text, options));
  STEMMA_TRY(const uint32_t available, asked.turn.execute());
  asked.report = asked.turn.report();
  recall(asked, available);
  STEMMA_TRY_VOID(try_compute(asked));
  return asked;
}

Asked WarmRig::start(const Text& text, const TurnOptions& options) {
  return ok(try_start(text, options));
}

Result<void> WarmRig::try_say(Asked& asked, const Text& more) {
  for (const Token token : more.tokens) {
    STEMMA_TRY_VOID(asked.turn.extend({&token, 1}));
    asked.text.tokens.push_back(token);
    STEMMA_TRY_VOID(decode(asked, asked.turn.length()));
  }
  known_.push_back({asked.text.tokens, asked.ends});
  return {};
}

Asked WarmRig::ask(const Text& text, const TurnOptions& options) {
  Asked asked = start(text, options);
  say(asked, words(3, 1000 + text.size()));
  finish(asked);
  return asked;
}

Asked WarmRig::fork(Asked& asked, const Text& more, const TurnOptions& options) {
  Asked branch;
  branch.turn = ok(asked.turn.fork(options));
  branch.report = branch.turn.report();
  branch.text = asked.text;
  recall(branch, branch.turn.available());
  ok(try_compute(branch));
  branch.logits.clear();
  say(branch, more);
  return branch;
}

double WarmRig::apart(const Asked& asked) {
  constexpr SequenceId kAnew{0};
  ok(judge_->sequences().clear(kAnew));
  double most = asked.logits.empty() ? 1e9 : 0;
  uint32_t begin = 0;
  const auto first = static_cast<uint32_t>(asked.text.size() + 1 - asked.logits.size());
  for (const uint32_t end : asked.ends) {
    const auto seen = compute(
        *judge_, kAnew, std::span(asked.text.tokens).subspan(begin, end - begin), end - begin);
    if (end >= first) most = std::max(most, difference(ok(seen), asked.logits[end - first]));
    begin = end;
  }
  worst = std::max(worst, most);
  return most;
}

void WarmRig::expect_exact(const Asked& asked) {
  EXPECT_TRUE(asked.same_split) << "a batch is cut";
  EXPECT_EQ(apart(asked), 0.0);
}

void WarmRig::expect_near(const Asked& asked) { EXPECT_LT(apart(asked), near_); }

}  // namespace stemma::test
