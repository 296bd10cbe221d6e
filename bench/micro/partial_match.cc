// Thousands of cached prompts part inside the same block. How long does it take to find the one
// that shares most tokens with a new prompt?
//
// Times are of single calls of lookup(), with reading the clock included.
#include <string>

#include "bench/baseline/sibling_scan.h"
#include "bench/micro/areas.h"

namespace stemma::bench {
namespace {

struct Shape {
  const char* name;
  uint32_t siblings;
  uint32_t shared_tokens;
  bool limited;
};

constexpr Shape kShapes[] = {
    {"partial_match_8192_siblings_us", 8192, 7, true},
    {"partial_match_8192_siblings_share_0_us", 8192, 0, false},
    {"partial_match_8192_siblings_share_15_us", 8192, 15, false},
    {"partial_match_90000_siblings_us", 90'000, 7, false},
};

void run(Sheet& sheet, const Shape& shape) {
  Rng rng(8192);
  PagedCache cache = make_cache(shape.siblings);
  SiblingScan scan;
  const Tokens common = random_tokens(shape.shared_tokens, rng);
  std::vector<Tokens> siblings;
  for (uint32_t i = 0; i < shape.siblings; ++i) {
    Tokens tokens = common;
    append_random(tokens, kBlockTokens - shape.shared_tokens, rng);
    // With 15 tokens shared only the last one tells siblings apart: number them.
    tokens.back() = i * 16 + rng.below(16);
    insert(cache, tokens);
    scan.add(tokens);
    siblings.push_back(std::move(tokens));
  }
  require(cache.stats().groups[0].cached_blocks == shape.siblings, "a sibling is missing");

  // The query follows some sibling, at least to where all siblings part, then differs.
  constexpr uint32_t kQueries = 512;
  std::vector<Tokens> queries;
  for (uint32_t i = 0; i < kQueries; ++i) {
    Tokens query = siblings[rng.below(shape.siblings)];
    const uint32_t follow = shape.shared_tokens + rng.below(kBlockTokens - shape.shared_tokens);
    for (uint32_t j = follow; j < kBlockTokens; ++j) query[j] = (1U << 30) + rng.below(1U << 20);
    append_random(query, kBlockTokens, rng);
    const uint32_t expected = scan.longest_match(query);
    const auto report = must(cache.lookup(bench_scope(), {.tokens = query}), "lookup");
    require(expected >= shape.shared_tokens, "the reference is wrong");
    require(report.matched_tokens == expected, "a longer match was overlooked");
    require(report.reused_tokens == expected && report.copied_tokens == expected,
            "what was matched inside the block cannot be reused");
    queries.push_back(std::move(query));
  }

  Samples ours, theirs;
  for (uint32_t round = 0; round < sheet.settings().rounds(40); ++round) {
    for (const Tokens& query : queries) {
      ours.add(time_ns([&] { keep(cache.lookup(bench_scope(), {.tokens = query})); }));
    }
    for (uint32_t i = 0; i < 4; ++i) {
      const Tokens& query = queries[rng.below(kQueries)];
      theirs.add(time_ns([&] { keep(scan.longest_match(query)); }));
    }
  }
  const double us = ours.median() * 1e-3;
  Row& row =
      shape.limited ? sheet.at_most(shape.name, us, "us", 1) : sheet.info(shape.name, us, "us");
  row.against("scan of siblings", theirs.median() * 1e-3)
      .with_note(format("99 of 100 within %.2f us", ours.quantile(0.99) * 1e-3));
}

}  // namespace

void add_partial_match(std::vector<Benchmark>& out) {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  out.push_back({std::move(names), "How fast is the best of many siblings found inside a block?",
                 [](Sheet& sheet) {
                   for (const Shape& shape : kShapes) run(sheet, shape);
                 }});
}

}  // namespace stemma::bench
