// A user's first program: lease, commit, release; the second time it is all there.
#include <cstdio>
#include <vector>

#include <stemma/cache.h>
#include <stemma/version.h>

int main() {
  stemma::Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 64}};
  auto cache = stemma::PagedCache::create(options);
  const auto scope = stemma::Scope::make({.model = "digest of the weights"});
  if (!cache || !scope) return 1;
  const std::vector<stemma::Token> prompt(100, 7);
  uint32_t reused = 0;
  for (int i = 0; i < 2; ++i) {
    auto lease = cache->lease(*scope, {.tokens = prompt});
    if (!lease) return 1;
    if (!lease->copies().empty() && !lease->copies_done()) return 1;
    if (!lease->commit(lease->length())) return 1;
    reused = lease->reused();
  }
  std::printf("stemma %s: %u of 100 tokens reused\n", stemma::version_string(), reused);
  return reused == 99 ? 0 : 1;
}
