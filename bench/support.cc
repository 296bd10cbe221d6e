#include "bench/support.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <numeric>

#include "base/random.h"

namespace stemma::bench {

Rng::Rng(uint64_t seed) noexcept {
  for (uint64_t& word : state_) word = base::next_random(seed);
}

void append_random(Tokens& tokens, size_t count, Rng& rng) {
  constexpr uint32_t kVocabulary = 128 * 1024;
  const size_t begin = tokens.size();
  tokens.resize(begin + count);
  for (size_t i = begin; i < tokens.size(); ++i) tokens[i] = rng.below(kVocabulary);
}

Tokens random_tokens(size_t count, Rng& rng) {
  Tokens tokens;
  append_random(tokens, count, rng);
  return tokens;
}

void throw_error(const char* what, const Error& error) {
  throw WrongAnswer(std::string(what) + ": " + error.to_string());
}

const Scope& bench_scope() {
  static const Scope scope = must(Scope::make({.model = "bench"}), "scope");
  return scope;
}

PagedCache make_cache(uint32_t capacity_blocks, bool content_keys, const char* policy) {
  Options options;
  options.groups = {
      {.block_tokens = kBlockTokens, .capacity_blocks = capacity_blocks, .block_bytes = 64 * 1024}};
  options.content_keys = content_keys;
  options.policy = policy;
  return must(PagedCache::create(options), "creating a cache");
}

const LeaseOptions& insert_options() {
  static const LeaseOptions options = [] {
    LeaseOptions made;
    made.lookup.allow_copy = false;
    return made;
  }();
  return options;
}

const LeaseOptions& hit_options() {
  static const LeaseOptions options = [] {
    LeaseOptions made;
    made.draft_tokens = 0;
    return made;
  }();
  return options;
}

std::vector<BlockId> insert(PagedCache& cache, std::span<const Token> tokens) {
  Lease lease = must(cache.lease(bench_scope(), {.tokens = tokens}, insert_options()), "lease");
  must(lease.commit(static_cast<uint32_t>(tokens.size())), "commit");
  std::vector<BlockId> ids(tokens.size() / kBlockTokens);
  const uint32_t written = must(lease.block_table(0, ids), "block table");
  require(written == ids.size(), "the block table has another length than the prompt");
  must(lease.release(), "release");
  return ids;
}

void permute_free_blocks(PagedCache& cache, uint32_t capacity_blocks, Rng& rng) {
  std::vector<Lease> leases;
  leases.reserve(capacity_blocks);
  for (uint32_t i = 0; i < capacity_blocks; ++i) {
    const Tokens tokens = random_tokens(kBlockTokens, rng);
    leases.push_back(
        must(cache.lease(bench_scope(), {.tokens = tokens}, insert_options()), "lease"));
    must(leases.back().commit(kBlockTokens), "commit");
  }
  shuffle(std::span(leases), rng);
  for (Lease& lease : leases) must(lease.release(), "release");
  cache.evict(capacity_blocks);
  require(cache.stats().groups[0].free_blocks == capacity_blocks, "evicting all left some");
}

double adjacent_share(std::span<const BlockId> path) {
  if (path.size() < 2) return 0;
  size_t adjacent = 0;
  for (size_t i = 1; i < path.size(); ++i) {
    const uint32_t a = to_index(path[i - 1]);
    const uint32_t b = to_index(path[i]);
    adjacent += a + 1 == b || b + 1 == a ? 1 : 0;
  }
  return static_cast<double>(adjacent) / static_cast<double>(path.size() - 1);
}

void check_full_hit(PagedCache& cache, std::span<const Token> prompt,
                    std::span<const BlockId> expected) {
  Lease lease = must(cache.lease(bench_scope(), {.tokens = prompt}, hit_options()), "lease");
  require(lease.reused() == expected.size() * kBlockTokens, "a cached prompt was not found whole");
  require(lease.report().outcome == Outcome::full_hit, "a full hit is not reported as one");
  require(lease.copies().empty(), "a hit on whole blocks wants copies");
  std::vector<BlockId> table(expected.size());
  const uint32_t written = must(lease.block_table(0, table), "block table");
  require(written == expected.size(), "the block table has another length than the prompt");
  require(std::equal(table.begin(), table.end(), expected.begin()),
          "a hit returned other blocks than were committed");
  must(lease.release(), "release");
}

std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

}  // namespace stemma::bench
