// How long does it take to find, pin, list and let go 2,048 cached blocks, against merely comparing
// the prompt's 128 KiB of tokens with an equal copy?
//
// One prompt repeated has everything in the near caches; 48 prompts in turn do not, and every hit
// then moves its leaf in the list of recent use. Steady state is the scattered pool.
//
// In the rotating rows memcmp follows half a turn behind. So neither warms the buffers of the
// other: each sees a buffer again only after all others.
#include <string>

#include "bench/baseline/entry_scan.h"
#include "bench/baseline/hash_chain.h"
#include "bench/hit_pool.h"
#include "bench/micro/areas.h"

namespace stemma::bench {
namespace {

struct FullHitFigures {
  PairedSamples against_memcmp;
  Samples hash_chain, entry_scan;  // Nanoseconds.
};

// The same prompts in the baseline's table, its blocks arranged like ours.
HashChain make_hash_chain(const HitPool& pool, Ids ids) {
  HashChain chain(HitPool::kCapacityBlocks);
  HashChain::Request request;
  if (ids == Ids::scattered) {
    std::vector<HashChain::Request> singles(HitPool::kCapacityBlocks);
    for (auto& single : singles) chain.draft(1, single);
    Rng rng(7);
    shuffle(std::span(singles), rng);
    for (auto& single : singles) chain.release(single);
  }
  const auto add = [&](std::span<const Token> tokens) {
    const size_t blocks = tokens.size() / kBlockTokens;
    const size_t found = chain.match(tokens, blocks, request);
    require(chain.draft(blocks - found, request), "the baseline ran out of blocks");
    chain.commit(tokens, request);
    chain.release(request);
  };
  for (uint32_t i = 0; i < HitPool::kPrompts; ++i) {
    add(pool.copy(i));
    for (uint32_t j = 0; j < HitPool::kBranches; ++j) add(pool.branch(i, j));
  }
  return chain;
}

// All prompts, and the branches of the first: those of the others differ in their first block and
// would cost next to nothing.
EntryScan make_entry_scan(const HitPool& pool) {
  EntryScan scan;
  const auto add = [&](std::span<const Token> tokens) {
    scan.add(Tokens(tokens.begin(), tokens.end()),
             std::vector<BlockId>(tokens.size() / kBlockTokens, BlockId{1}));
  };
  for (uint32_t i = 0; i < HitPool::kPrompts; ++i) add(pool.copy(i));
  for (uint32_t j = 0; j < HitPool::kBranches; ++j) add(pool.branch(0, j));
  return scan;
}

FullHitFigures measure(HitPool& pool, HashChain& chain, EntryScan* scan, bool rotating,
                       const Settings& settings) {
  constexpr uint32_t kBytes = HitPool::kPathTokens * sizeof(Token);
  static_assert(kBytes == Memcmp::kBytes);
  const uint32_t turns = settings.rounds(960);
  std::vector<BlockId> table(HitPool::kPathBlocks);
  HashChain::Request request;
  FullHitFigures figures;
  uint32_t turn = 0;
  const auto step = [&](bool record) {
    const uint32_t ours = rotating ? turn % HitPool::kPrompts : 0;
    const uint32_t other = rotating ? (turn + HitPool::kPrompts / 2) % HitPool::kPrompts : 0;
    ++turn;
    const double hit = time_ns([&] { full_hit(pool.cache(), pool.prompt(ours), table); });
    const double compare =
        time_ns([&] { compare_equal(pool.prompt(other).data(), pool.copy(other).data(), kBytes); });
    if (!record) return;
    figures.against_memcmp.add_ours(hit);
    figures.against_memcmp.add_other(compare);
  };
  const auto chain_hit = [&](uint32_t index) {
    const double spent = time_ns([&] {
      chain.match(pool.prompt(index), HitPool::kPathBlocks, request);
      keep(request.blocks.size());
      chain.release(request);
    });
    return spent;
  };
  require(chain.match(pool.prompt(0), HitPool::kPathBlocks, request) == HitPool::kPathBlocks,
          "the baseline does not find its prompt");
  chain.release(request);

  for (uint32_t phase = 0; phase < kPhases; ++phase) {
    for (uint32_t i = 0; i < HitPool::kPrompts; ++i) step(false);
    for (uint32_t i = 0; i < turns; ++i) step(true);
    figures.against_memcmp.end_phase();
    const uint32_t unrecorded = rotating ? HitPool::kPrompts : 2;
    for (uint32_t i = 0; i < unrecorded + settings.rounds(50); ++i) {
      const double spent = chain_hit(rotating ? i % HitPool::kPrompts : 0);
      if (i >= unrecorded) figures.hash_chain.add(spent);
    }
    for (uint32_t i = 0; scan != nullptr && i < settings.rounds(10); ++i) {
      figures.entry_scan.add(time_ns([&] {
        require(scan->hit(pool.prompt(0), table) == HitPool::kPathBlocks,
                "the baseline does not find its prompt");
      }));
    }
  }
  // Measuring must not have changed the answers.
  for (uint32_t i = 0; i < HitPool::kPrompts; ++i) {
    check_full_hit(pool.cache(), pool.prompt(i), pool.blocks(i));
  }
  return figures;
}

void add_rows(Sheet& sheet, Ids ids, const std::string& suffix) {
  HitPool pool(ids);
  HashChain chain = make_hash_chain(pool, ids);
  EntryScan scan = make_entry_scan(pool);
  for (const bool rotating : {false, true}) {
    const uint64_t repairs = pool.cache().stats().hint_repairs;
    EntryScan* entries = rotating ? nullptr : &scan;
    const FullHitFigures figures = measure(pool, chain, entries, rotating, sheet.settings());
    const double memcmp_ns = figures.against_memcmp.other();
    Row& row =
        sheet.at_most(std::string("full_hit_vs_memcmp") + (rotating ? "_rotating" : "") + suffix,
                      figures.against_memcmp.ratio(), "x memcmp", 4);
    row.against("hash chain", figures.hash_chain.median() / memcmp_ns);
    if (entries != nullptr) {
      row.against("scan of entries", figures.entry_scan.median() / memcmp_ns);
    }
    row.with_note(
        format("%.2f us over %.2f us, %.0f %% of ids adjacent, %llu hint repairs",
               figures.against_memcmp.ours() * 1e-3, memcmp_ns * 1e-3, pool.adjacent() * 100,
               static_cast<unsigned long long>(pool.cache().stats().hint_repairs - repairs)));
  }
}

}  // namespace

void add_full_hit(std::vector<Benchmark>& out) {
  out.push_back({{"full_hit_vs_memcmp", "full_hit_vs_memcmp_rotating"},
                 "How does a full hit of 32k tokens compare with memcmp of them, on a fresh pool?",
                 [](Sheet& sheet) { add_rows(sheet, Ids::fresh, ""); }});
  out.push_back({{"full_hit_vs_memcmp_scattered", "full_hit_vs_memcmp_rotating_scattered"},
                 "And on a pool whose block ids are scattered, as after long use?",
                 [](Sheet& sheet) { add_rows(sheet, Ids::scattered, "_scattered"); }});
}

}  // namespace stemma::bench
