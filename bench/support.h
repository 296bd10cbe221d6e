// Helpers of the benchmarks: seeded prompts, caches of one group with blocks of 16 tokens, and ways
// to prepare a cache for measuring.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness.h"
#include "stemma/cache.h"

namespace stemma::bench {

inline constexpr uint32_t kBlockTokens = 16;
using Tokens = std::vector<Token>;

// xorshift128+ seeded by splitmix: the same numbers on every machine.
class Rng {
 public:
  explicit Rng(uint64_t seed) noexcept;
  uint64_t next() noexcept {
    uint64_t a = state_[0];
    const uint64_t b = state_[1];
    state_[0] = b;
    a ^= a << 23;
    state_[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return state_[1] + b;
  }
  // Uniform enough in [0, limit).
  uint32_t below(uint32_t limit) noexcept {
    return static_cast<uint32_t>(((next() >> 32) * limit) >> 32);
  }

 private:
  uint64_t state_[2];
};

template <class T>
void shuffle(std::span<T> values, Rng& rng) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[rng.below(static_cast<uint32_t>(i))]);
  }
}

// Appends random tokens of a vocabulary of 128k.
void append_random(Tokens& tokens, size_t count, Rng& rng);
Tokens random_tokens(size_t count, Rng& rng);

// Opens a result, or throws WrongAnswer with the error's text.
[[noreturn]] void throw_error(const char* what, const Error& error);
template <class T>
T must(Result<T> result, const char* what) {
  if (!result) throw_error(what, result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

const Scope& bench_scope();
PagedCache make_cache(uint32_t capacity_blocks, bool content_keys = false,
                      const char* policy = "lru");

// Leases for filling a cache end at block borders, so nothing is ever copied.
const LeaseOptions& insert_options();
// Leases that pin what is found and draft nothing.
const LeaseOptions& hit_options();

// Leases, commits and releases a prompt of whole blocks. Returns the ids of all of its blocks.
std::vector<BlockId> insert(PagedCache& cache, std::span<const Token> tokens);
// Drops everything and leaves the free blocks in random order, as long use does.
void permute_free_blocks(PagedCache& cache, uint32_t capacity_blocks, Rng& rng);
// The fraction of neighbours on a path whose ids are neighbours too.
double adjacent_share(std::span<const BlockId> path);

// One full hit: look up, pin, write the block table, release.
inline void full_hit(PagedCache& cache, std::span<const Token> prompt, std::span<BlockId> table) {
  Result<Lease> lease = cache.lease(bench_scope(), {.tokens = prompt}, hit_options());
  require(lease && lease->reused() + 1 == prompt.size(), "a cached prompt was not found whole");
  keep(lease->block_table(0, table));
  keep(lease->release());
}

// The same without the table, as an engine's scheduler does first.
inline void pin_and_release(PagedCache& cache, std::span<const Token> prompt) {
  Result<Lease> lease = cache.lease(bench_scope(), {.tokens = prompt}, hit_options());
  require(lease && lease->reused() + 1 == prompt.size(), "a cached prompt was not found whole");
  keep(lease->release());
}

// Throws unless a full hit on `prompt` reuses exactly the blocks `expected`.
void check_full_hit(PagedCache& cache, std::span<const Token> prompt,
                    std::span<const BlockId> expected);

// "a: 1.25, b: 3" pieces for notes.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

}  // namespace stemma::bench
