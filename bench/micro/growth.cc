// How does the time of a full hit (look up, pin, release) grow with the length of the prompt, and
// with the number of other things that are cached?
//
// Every length is measured warm, many times in a row, as memcmp is: memcmp's own slope is above 1
// because longer buffers live in slower caches. Short prompts are repeated within one measurement
// so that reading the clock does not count.
#include <algorithm>
#include <array>
#include <string>

#include "bench/hit_pool.h"
#include "bench/micro/areas.h"

namespace stemma::bench {
namespace {

constexpr std::array<uint32_t, 6> kLengths = {1u << 10, 1u << 12, 1u << 14,
                                              1u << 16, 1u << 18, 1u << 20};

void measure_lengths(Sheet& sheet, Ids ids) {
  uint32_t blocks = 0;
  for (const uint32_t length : kLengths) blocks += length / kBlockTokens;
  PagedCache cache = make_cache(blocks);
  Rng rng(1024);
  if (ids == Ids::scattered) permute_free_blocks(cache, blocks, rng);
  std::vector<Tokens> prompts, copies;
  for (const uint32_t length : kLengths) {
    Tokens tokens = random_tokens(length, rng);
    const std::vector<BlockId> path = insert(cache, tokens);
    require(ids == Ids::scattered ? adjacent_share(path) < 0.1 : adjacent_share(path) > 0.9,
            "the block ids are not arranged as the benchmark says");
    copies.push_back(tokens);
    append_random(tokens, 1, rng);
    check_full_hit(cache, tokens, path);
    prompts.push_back(std::move(tokens));
  }

  std::array<Samples, kLengths.size()> hits, compares;
  for (uint32_t round = 0; round < sheet.settings().rounds(20); ++round) {
    for (size_t i = 0; i < kLengths.size(); ++i) {
      const uint32_t length = kLengths[i];
      const uint32_t repeats = std::max(1U, (1U << 16) / length);
      const auto hit = [&] {
        for (uint32_t n = 0; n < repeats; ++n) pin_and_release(cache, prompts[i]);
      };
      const auto compare = [&] {
        for (uint32_t n = 0; n < repeats; ++n) {
          compare_equal(prompts[i].data(), copies[i].data(), length * sizeof(Token));
        }
      };
      hit();
      for (int n = 0; n < 5; ++n) hits[i].add(time_ns(hit) / repeats);
      compare();
      for (int n = 0; n < 5; ++n) compares[i].add(time_ns(compare) / repeats);
    }
  }

  std::array<double, kLengths.size()> x, ours, theirs;
  std::string note = "ns a token:";
  for (size_t i = 0; i < kLengths.size(); ++i) {
    x[i] = kLengths[i];
    ours[i] = hits[i].median();
    theirs[i] = compares[i].median();
    note += format(" %.3f", ours[i] / x[i]);
  }
  note += format("; memcmp's exponent is %.3f", log_log_slope(x, theirs));
  const bool scattered = ids == Ids::scattered;
  sheet
      .at_most(scattered ? "lookup_growth_exponent_scattered" : "lookup_growth_exponent",
               log_log_slope(x, ours), "exponent", scattered ? 1.20 : 1.05)
      .with_note(note);
}

// A prompt of 32k tokens among `others` one-block entries. Nine in ten stand beside its first
// block, one in ten parts from it at a random depth.
struct Crowd {
  explicit Crowd(uint32_t others) : cache(make_cache(HitPool::kPathBlocks + others)) {
    Rng rng(100);
    prompt = random_tokens(HitPool::kPathTokens + 1, rng);
    for (uint32_t i = 0; i < others; ++i) {
      // The prompt comes when half of the others are there.
      if (i == others / 2) {
        path = insert(cache, std::span(prompt).first(HitPool::kPathTokens));
      }
      const uint32_t depth = i % 10 == 0 ? rng.below(HitPool::kPathBlocks) : 0;
      const auto shared = std::span(prompt).first(depth * kBlockTokens);
      Tokens tokens(shared.begin(), shared.end());
      append_random(tokens, kBlockTokens, rng);
      insert(cache, tokens);
    }
    check_full_hit(cache, prompt, path);
  }

  PagedCache cache;
  Tokens prompt;
  std::vector<BlockId> path;
};

void measure_entries(Sheet& sheet) {
  Crowd few(10);
  Crowd many(100'000);
  PairedSamples times;
  for (uint32_t round = 0; round < 10; ++round) {
    for (uint32_t i = 0; i < sheet.settings().rounds(200); ++i) {
      times.add_ours(time_ns([&] { pin_and_release(many.cache, many.prompt); }));
      times.add_other(time_ns([&] { pin_and_release(few.cache, few.prompt); }));
    }
    times.end_phase();
  }
  sheet.at_most("lookup_entries_growth", times.ratio(), "ratio", 1.5)
      .with_note(format("%.2f us among 100,000 over %.2f us among 10", times.ours() * 1e-3,
                        times.other() * 1e-3));
}

// Calls that handle many things at once, with n things and with 4 n: the time per thing at 4 n over
// that at n. A linear call stays near 1; a quadratic one comes to 4.
constexpr uint32_t kFewThings = 500;

PagedCache stems(uint32_t things, Rng& rng) {
  // Half of them form one path; the other half are siblings below it.
  PagedCache cache = make_cache(things + things / 8);
  Tokens stem = random_tokens(things / 2 * kBlockTokens, rng);
  insert(cache, stem);
  const size_t length = stem.size();
  for (uint32_t i = 0; i < things / 2; ++i) {
    stem.resize(length);
    append_random(stem, kBlockTokens, rng);
    insert(cache, stem);
  }
  return cache;
}

double time_of_contents(uint32_t things) {
  Rng rng(7);
  const PagedCache cache = stems(things, rng);
  size_t paths = 0;
  const double spent = time_ns([&] { paths = must(cache.contents(), "contents").size(); });
  require(paths == things / 2, "contents() does not list every path");
  return spent;
}

double time_of_reclaim(uint32_t things) {
  Rng rng(8);
  PagedCache cache = make_cache(things);
  for (uint32_t i = 0; i < things; ++i) insert(cache, random_tokens(kBlockTokens, rng));
  Reclaimed reclaimed;
  const double spent =
      time_ns([&] { reclaimed = must(cache.reclaim(things * kBlockTokens, things), "reclaim"); });
  require(reclaimed.blocks().size() == things, "reclaim() did not give up everything");
  return spent;
}

double time_of_truncate(uint32_t things) {
  Rng rng(9);
  Options options;
  options.groups = {{.block_tokens = kBlockTokens, .capacity_blocks = things * 2}};
  options.pin_share = 1;
  PagedCache cache = must(PagedCache::create(options), "creating a cache");
  std::vector<Tokens> to_go;
  for (uint32_t i = 0; i < things; ++i) {
    const Tokens pinned = random_tokens(kBlockTokens, rng);
    insert(cache, pinned);
    must(cache.pin(bench_scope(), {.tokens = pinned}, kNever), "pin");
    to_go.push_back(random_tokens(kBlockTokens, rng));
    insert(cache, to_go.back());
  }
  uint32_t gone = 0;
  const double spent = time_ns([&] {
    for (const Tokens& tokens : to_go) {
      gone += must(cache.truncate(bench_scope(), {.tokens = tokens}, 0), "truncate");
    }
  });
  require(gone == things, "truncate() forgot something else");
  return spent;
}

void measure_things(Sheet& sheet) {
  const struct {
    const char* name;
    double (*time_of)(uint32_t things);
  } calls[] = {{"contents_growth", time_of_contents},
               {"reclaim_growth", time_of_reclaim},
               {"truncate_beside_pins_growth", time_of_truncate}};
  for (const auto& [name, time_of] : calls) {
    // The shortest of each: a single interruption is longer than the whole call.
    double few = time_of(kFewThings);
    double many = time_of(kFewThings * 4);
    for (uint32_t round = 0; round < sheet.settings().rounds(10); ++round) {
      few = std::min(few, time_of(kFewThings));
      many = std::min(many, time_of(kFewThings * 4));
    }
    sheet.at_most(name, many / few / 4, "ratio", 2.5)
        .with_note(format("%.0f ns each of %u over %.0f ns each of %u", many / (kFewThings * 4),
                          kFewThings * 4, few / kFewThings, kFewThings));
  }
}

}  // namespace

void add_growth(std::vector<Benchmark>& out) {
  out.push_back({{"lookup_growth_exponent"},
                 "How does a hit grow with the prompt, from 1k to 1M tokens, on a fresh pool?",
                 [](Sheet& sheet) { measure_lengths(sheet, Ids::fresh); }});
  out.push_back({{"lookup_growth_exponent_scattered"},
                 "And on a scattered pool?",
                 [](Sheet& sheet) { measure_lengths(sheet, Ids::scattered); }});
  out.push_back({{"lookup_entries_growth"},
                 "How much slower is a hit among 100,000 other entries than among 10?",
                 measure_entries});
  out.push_back({{"contents_growth", "reclaim_growth", "truncate_beside_pins_growth"},
                 "How do the calls that go over much at once grow with what there is?",
                 measure_things});
}

}  // namespace stemma::bench
