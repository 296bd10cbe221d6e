// A server that restarts before every turn of a conversation goes on from its tiers.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tiers/sequence_process.h"

namespace stemma::test {
namespace {

struct Share {
  uint64_t reused = 0;
  uint64_t possible = 0;
  double value() const { return double(reused) / double(possible); }
};

// As a server does it: looks in the tiers, loads what they have, computes the rest and answers.
Text turn(Process& process, const Text& prompt, const Text& answer, const TurnOptions& options,
          uint32_t& reused) {
  const std::shared_ptr<tier::Fetch> fetch = process.look(prompt, options);
  ok(process.rig.cache.admit(process.rig.scope, prompt, fetch->parts(), options));
  Request request = process.rig.begin(prompt, options);
  process.rig.run(request);
  reused = request.turn.report().reused_tokens;
  process.rig.answer(request, answer);
  process.rig.finish(request);
  return request.text;
}

// Eight turns, each in a process of its own. All earlier words could be reused, except the last
// token of the answer, which no engine has computed. `crowd` other conversations fill the memory
// before each turn.
Share restarts(const EngineOptions& engine, Tier& tier, const SequenceOptions& options,
               uint32_t crowd) {
  Share share;
  Text said;
  std::vector<uint32_t> ends;
  for (uint32_t i = 0; i < 8; ++i) {
    Process process(engine, tier, tier::WritePolicy::write_through, options);
    for (uint32_t c = 0; c < crowd; ++c) {
      process.rig.chat(tokens(300, 1000 + i * 100 + c));
      process.rig.drain({.evict = true});
    }
    const Text prompt = said + tokens(i == 0 ? 250 : 41, 10 + i);
    ends.push_back(static_cast<uint32_t>(prompt.size()));
    uint32_t reused = 0;
    const size_t before = said.size();
    said = turn(process, prompt, tokens(23, 50 + i), {.message_ends = ends}, reused);
    ends.push_back(static_cast<uint32_t>(said.size()));
    if (i != 0) {
      share.reused += reused;
      share.possible += before - 1;
    }
    process.rig.drain({.evict = true});
    process.flush();
  }
  return share;
}

TEST(Restart, EveryMemoryGoesOnFromItsTiers) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> tier = host_tier(64U << 20U);
    const Share share = restarts(kind.options, *tier, small_cache(), 0);
    EXPECT_GE(share.value(), 0.97) << share.reused << " of " << share.possible;
  }
}

TEST(Restart, AFullMemoryKeepsNothingFromTheTiers) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> tier = host_tier(64U << 20U);
    SequenceOptions options = small_cache();
    options.saved_bytes = 48U << 10U;
    const Share share = restarts(kind.options, *tier, options, 6);
    EXPECT_GE(share.value(), 0.97) << share.reused << " of " << share.possible;
  }
}

}  // namespace
}  // namespace stemma::test
