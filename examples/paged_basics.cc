// Lease, copy, compute, commit, release: a prompt reuses what was computed for an earlier one.
#include <cstdio>
#include <span>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

namespace {

// Stands for a model: its KV is one number per position, made from all tokens up to there.
struct Engine {
  std::vector<uint64_t> kv = std::vector<uint64_t>(size_t{64} * 16);  // 64 blocks of 16 positions.

  void copy(const BlockCopy& copy) {
    for (uint32_t i = 0; i < copy.tokens; ++i) {
      kv[to_index(copy.target) * 16 + i] = kv[to_index(copy.source) * 16 + i];
    }
  }
  // Computes from the committed positions to the end of the tokens.
  void compute(const Lease& lease, std::span<const Token> tokens) {
    std::vector<int64_t> slots(tokens.size());
    lease.slot_mapping(0, 0, slots).value();
    for (size_t i = lease.committed(); i < tokens.size(); ++i) {
      kv[slots[i]] = (i == 0 ? 0 : kv[slots[i - 1]] * 31) + tokens[i];
    }
    std::printf("the last position's KV is %016llx\n",
                static_cast<unsigned long long>(kv[slots.back()]));
  }
};

}  // namespace

static void serve(PagedCache& cache, Engine& engine, const Scope& scope,
                  std::span<const Token> prompt) {
  Lease lease = *cache.lease(scope, {.tokens = prompt});  // Finds, holds and drafts blocks.
  for (const BlockCopy& copy : lease.copies()) engine.copy(copy);
  lease.copies_done().value();
  engine.compute(lease, prompt);         // Only from lease.committed() on.
  lease.commit(lease.length()).value();  // Findable from now on.
  std::printf("%u tokens, %u of them reused\n", lease.length(), lease.reused());
}  // The lease ends here; its blocks stay cached until their room is needed.

int main() {
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 64}};
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});
  Engine engine;
  std::vector<Token> prompt(100, 7);
  serve(cache, engine, scope, prompt);  // All of it is new.
  serve(cache, engine, scope, prompt);  // All but the last token is there: 99 reused.
  prompt[70] = 8;
  serve(cache, engine, scope, prompt);  // The same up to token 70: 64 in place, 6 by copying.
}
