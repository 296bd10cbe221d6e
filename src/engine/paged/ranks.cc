#include "engine/paged/ranks.h"

#include <algorithm>
#include <utility>

#include "engine/paged/kernels.h"

namespace stemma::paged {

RankPipeline::RankPipeline(const Model& model, const Scope& scope,
                           std::span<const GroupMemory> memory, std::span<const uint32_t> borders)
    : model_(model), scope_(scope) {
  for (size_t r = 0; r + 1 < borders.size(); ++r) {
    auto arena =
        std::make_unique<KvArena>(make_layout(model.config, memory, borders[r], borders[r + 1]));
    Options options;
    options.groups = arena->layout().groups;
    options.block_io = arena.get();
    ranks_.push_back({std::move(arena), PagedCache::create(options).value()});
  }
}

Result<uint32_t> RankPipeline::agree(std::span<Part> parts) {
  const auto smallest = [&] {
    uint32_t n = ~0U;
    for (const Part& part : parts) n = std::min(n, part.lease.reused());
    return n;
  };
  for (uint32_t n = smallest();; n = smallest()) {
    for (Part& part : parts) {
      const uint32_t had = part.lease.reused();
      STEMMA_TRY(const uint32_t has, part.lease.shrink_to(std::min(n, had)));
      given_back_tokens_ += had - has;
    }
    // A rank may have stepped back further, if a window or a state cannot stop at n.
    if (smallest() == n) return n;
  }
}

Result<std::vector<float>> RankPipeline::evaluate(std::span<Part> parts, const Text& text,
                                                  uint32_t begin, uint32_t end) {
  Chunk chunk{.model = &model_, .text = &text, .begin = begin, .end = end};
  embed_chunk(chunk);
  for (size_t r = 0; r < parts.size(); ++r) {
    Part& part = parts[r];
    const KvLayout& layout = ranks_[r].arena->layout();
    part.tables.resize(layout.groups.size());
    for (GroupIndex g = 0; g < layout.groups.size(); ++g) {
      if (layout.recurrent(g)) continue;
      part.tables[g].resize(part.lease.block_count(g));
      part.lease.block_table(g, part.tables[g], kNoBlock).value();
    }
    // The hidden vectors go from rank to rank; everything else stays.
    chunk.tables = &part.tables;
    chunk.state = &part.state;
    STEMMA_TRY_VOID(run_layers(*ranks_[r].arena, {&chunk, 1}));
    part.lease.commit(end).value();
    for (GroupIndex g = 0; g < layout.groups.size(); ++g) {
      if (!layout.recurrent(g)) continue;
      const Result<BlockId> slot = part.lease.draft_checkpoint(g);
      if (!slot) continue;
      ranks_[r].arena->save_state(g, *slot, part.state[g]);
      (void)part.lease.commit_checkpoint(g, end);
    }
  }
  return logits_after(chunk, end - 1);
}

Result<Text> RankPipeline::generate(const Text& prompt, uint32_t new_tokens, uint64_t sample_seed,
                                    uint32_t chunk_tokens, const OnLogits& on_logits) {
  std::vector<Part> parts;
  for (Rank& rank : ranks_) {
    STEMMA_TRY(Lease lease, rank.cache.lease(scope_, prompt.prompt()));
    parts.push_back({std::move(lease), fresh_state(rank.arena->layout()), {}});
  }
  STEMMA_TRY(const uint32_t n, agree(parts));
  reused_tokens_ += n;
  for (size_t r = 0; r < parts.size(); ++r) {
    for (const BlockCopy& copy : parts[r].lease.copies()) {
      if (copy.target != kNoBlock) continue;
      ranks_[r].arena->load_state(copy.group, copy.source, parts[r].state[copy.group]);
    }
    STEMMA_TRY_VOID(parts[r].lease.run_copies());
  }

  Text text = prompt;
  uint32_t computed = n;
  for (;;) {
    const uint32_t end =
        unit_ceiling(text, std::min(text.size(), computed + std::max(chunk_tokens, 1U)));
    STEMMA_TRY(const std::vector<float> logits, evaluate(parts, text, computed, end));
    computed = end;
    if (computed < text.size()) continue;
    on_logits(text, logits);
    if (text.size() - prompt.size() == new_tokens) return text;
    text.tokens.push_back(sample(logits, sample_seed, text.size()));
    for (Part& part : parts) {
      STEMMA_TRY_VOID(part.lease.extend(std::span(text.tokens).last(1)));
    }
  }
}

}  // namespace stemma::paged
