// bench/python/full_hit.py compares Python with this: lease, block table and release of one cached
// prompt, in C++. Prints the median and the smallest time in microseconds.
//
//   g++ -std=c++20 -O3 -Iinclude bench/python/full_hit.cc build-wheel/libstemma_core.a -lpthread \
//     -o full_hit
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

int main(int argc, char** argv) {
  const size_t tokens = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 32'768;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3000;
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 8192}};
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "m"});
  std::mt19937 random(1);
  std::vector<Token> prompt(tokens);
  for (Token& token : prompt) token = random() % 131'072;
  {
    Lease lease = *cache.lease(scope, {.tokens = prompt});
    lease.commit(lease.length()).value();
  }
  std::vector<BlockId> table(tokens / 16 + 1);
  std::vector<double> us;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    {
      Lease lease = *cache.lease(scope, {.tokens = prompt});
      (void)lease.block_table(0, table, kNoBlock);
    }
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                     .count());
  }
  std::sort(us.begin(), us.end());
  std::printf("%.2f %.2f\n", us[us.size() / 2], us.front());
}
