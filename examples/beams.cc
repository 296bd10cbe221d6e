// Beam search: a fork shares every whole block and copies one part-block.
#include <cstdio>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

namespace {

void print_blocks(const char* who, const Lease& lease) {
  std::vector<BlockId> table(lease.block_count(0));
  lease.block_table(0, table).value();
  std::printf("%-8s", who);
  for (const BlockId block : table) std::printf(" %2u", to_index(block));
  std::printf("\n");
}

}  // namespace

int main() {
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 64}};
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});
  const std::vector<Token> prompt(40, 7);

  Lease first = *cache.lease(scope, {.tokens = prompt});
  first.commit(40).value();
  print_blocks("prompt", first);

  std::vector<Lease> beams;
  for (int i = 0; i < 2; ++i) {
    Lease beam = *first.fork();
    for (const BlockCopy& copy : beam.copies()) {
      std::printf("copy %u positions of block %u to block %u\n", copy.tokens, to_index(copy.source),
                  to_index(copy.target));
    }
    beam.copies_done().value();
    beams.push_back(std::move(beam));
  }
  beams.push_back(std::move(first));

  for (uint32_t i = 0; i < beams.size(); ++i) {
    const std::vector<Token> continuation(30, 100 + i);
    beams[i].extend(continuation).value();
    beams[i].commit(beams[i].length()).value();
    print_blocks("beam", beams[i]);
  }
  beams[0].abandon().value();  // A loser: its last part-block is not worth keeping.
  beams[1].abandon().value();
  beams[2].release().value();

  const Stats stats = cache.stats();
  std::printf("%llu forks; %u blocks cached, %u free\n",
              static_cast<unsigned long long>(stats.forks), stats.groups[0].cached_blocks,
              stats.groups[0].free_blocks);
}
