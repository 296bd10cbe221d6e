// An engine that owns its KV and offers sequences: trim, copy, save, load. This engine's "KV" is
// the tokens themselves. Two conversations share a system prompt and take turns in one sequence;
// neither is computed again.
#include <cstdio>
#include <cstring>
#include <vector>

#include "stemma/sequence.h"

using namespace stemma;
using Tokens = std::vector<Token>;

struct ToyEngine final : SequenceEngine {
  std::vector<Tokens> kv{1};
  Tokens& at(SequenceId s) { return kv[to_index(s)]; }
  EngineTraits traits() const override {
    return {.sequences = 1, .context_tokens = 4096, .segments = true, .bytes_per_token = 4};
  }
  Held held(SequenceId s) override { return {0, static_cast<uint32_t>(at(s).size()), true}; }
  Result<void> clear(SequenceId s) override { return at(s).clear(), Result<void>(); }
  Result<void> trim(SequenceId s, uint32_t n) override { return at(s).resize(n), Result<void>(); }
  Result<void> copy(SequenceId from, SequenceId to, Range r) override {
    at(to).assign(at(from).begin(), at(from).begin() + r.end);
    return {};
  }
  Result<uint64_t> size(SequenceId, Part, Range r) override { return 4ULL * (r.end - r.begin); }
  Result<uint64_t> save(SequenceId s, Part, Range r, std::span<uint8_t> out) override {
    const uint64_t bytes = 4ULL * (r.end - r.begin);  // `out` may have more.
    std::memcpy(out.data(), at(s).data() + r.begin, bytes);
    return bytes;
  }
  Result<void> load(SequenceId s, Part, Range saved, Range r, std::span<const uint8_t> b) override {
    at(s).resize(r.end);
    std::memcpy(at(s).data() + r.begin, b.data() + (r.begin - saved.begin) * 4,
                (r.end - r.begin) * sizeof(Token));
    return {};
  }
  Result<void> shift(SequenceId, uint32_t, uint32_t) override {
    return Error(Errc::unsupported, "not this one");
  }
};

int main() {
  ToyEngine engine;
  SequenceCache cache = *SequenceCache::create(engine, {.saved_bytes = 1U << 20U});
  const Scope scope = *Scope::make({.model = "toy"});
  Tokens talks[2] = {Tokens(500, 7), Tokens(500, 7)};  // The same system prompt.
  for (Token t = 0; t < 6; ++t) {
    Tokens& talk = talks[t % 2];
    talk.insert(talk.end(), 40, 100 + t);  // A question.
    Turn turn = *cache.begin(scope, {talk}, {.session = t % 2 == 0 ? "ann" : "bob"});
    const uint32_t n = *turn.execute();  // What is there.
    engine.at(turn.sequence()).insert(engine.kv[0].end(), talk.begin() + n, talk.end());
    turn.computed(turn.length()).value();
    turn.finish().value();
    std::printf("turn %u: %u of %zu tokens were there\n", t, n, talk.size());
    cache.drain();  // A quiet moment.
  }
}
