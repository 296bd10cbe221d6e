// The forward pass over blocks, without a cache: its results depend on positions only.
#include "engine/paged/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/paged/kernels.h"
#include "engine/paged/plain.h"
#include "engine/paged/random.h"

namespace stemma::paged {
namespace {

ModelConfig hybrid() {
  ModelConfig config;
  config.groups = {{},
                   {.attention = Attention::window, .window_tokens = 7, .sink_tokens = 3},
                   {.attention = Attention::recurrent}};
  config.layers = {1, 2, 0, 1};
  config.experts = 3;
  return config;
}

Text text_with_media() {
  Text text;
  for (uint32_t i = 0; i < 50; ++i) text.tokens.push_back(i * 13 % 200);
  text.media = {{.kind = MediaKind::image, .offset = 9, .length = 6},
                {.kind = MediaKind::audio, .offset = 12, .length = 5, .causal = true},
                {.kind = MediaKind::video, .offset = 30, .length = 4, .causal = true}};
  return text;
}

// Evaluates a text in the given chunks over blocks in a scrambled order; logits after each chunk.
std::vector<float> paged_logits(const Model& model, const Text& text, uint32_t chunk_tokens,
                                std::vector<uint32_t>& ends) {
  const std::vector<GroupMemory> memory = {{4, 20}, {8, 20}, {1, 4}};
  KvArena arena(make_layout(model.config, memory));
  BlockTables tables(3);
  for (uint32_t b = 0; b < 13; ++b) tables[0].push_back(BlockId{(b * 7) % 20});
  for (uint32_t b = 0; b < 7; ++b) tables[1].push_back(BlockId{19 - b});
  RunningState state = fresh_state(arena.layout());
  std::vector<float> out;
  for (uint32_t begin = 0; begin < text.size();) {
    const uint32_t end = unit_ceiling(text, std::min(text.size(), begin + chunk_tokens));
    Chunk chunk{.model = &model,
                .text = &text,
                .begin = begin,
                .end = end,
                .tables = &tables,
                .state = &state};
    embed_chunk(chunk);
    run_layers(arena, {&chunk, 1}).value();
    const std::vector<float> logits = logits_after(chunk, end - 1);
    out.insert(out.end(), logits.begin(), logits.end());
    ends.push_back(end);
    begin = end;
  }
  return out;
}

TEST(Forward, BitsDependOnPositionsNotOnChunksOrBlocks) {
  const Model model = make_model(hybrid());
  const Text text = text_with_media();
  const PlainLogits plain = evaluate_plain(model, text);
  for (const uint32_t chunk_tokens : {1U, 2U, 5U, 16U, 50U}) {
    std::vector<uint32_t> ends;
    const std::vector<float> logits = paged_logits(model, text, chunk_tokens, ends);
    for (size_t i = 0; i < ends.size(); ++i) {
      const auto want = plain.after(ends[i]);
      EXPECT_EQ(std::memcmp(&logits[i * want.size()], want.data(), want.size_bytes()), 0)
          << "chunks of " << chunk_tokens << ", depth " << ends[i];
    }
  }
}

TEST(Forward, EveryWordBeforeAPositionMattersToIt) {
  const Model model = make_model(hybrid());
  const Text text = text_with_media();
  const PlainLogits plain = evaluate_plain(model, text);
  for (const uint32_t changed : {0U, 5U, 20U, 48U}) {
    Text other = text;
    other.tokens[changed] ^= 1;
    EXPECT_NE(std::memcmp(evaluate_plain(model, other).after(50).data(), plain.after(50).data(),
                          plain.after(50).size_bytes()),
              0);
  }
  Text other = text;
  other.media[2].digest[15] = 1;
  EXPECT_NE(std::memcmp(evaluate_plain(model, other).after(50).data(), plain.after(50).data(),
                        plain.after(50).size_bytes()),
            0);
  other = text;
  other.tokens[10] ^= 1;  // Under a picture: a placeholder.
  EXPECT_EQ(evaluate_plain(model, other).values, plain.values);
}

TEST(Forward, PositionWithoutABlockIsAnError) {
  const Model model = make_model({});
  KvArena arena(make_layout(model.config, std::vector<GroupMemory>{{4, 4}}));
  Text text;
  text.tokens = {1, 2, 3, 4, 5};
  RunningState state = fresh_state(arena.layout());
  BlockTables tables = {{BlockId{2}, kNoBlock}};
  Chunk chunk{
      .model = &model, .text = &text, .begin = 0, .end = 5, .tables = &tables, .state = &state};
  embed_chunk(chunk);
  const Result<void> done = run_layers(arena, {&chunk, 1});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().value(), 4U);
}

TEST(Kernels, WindowSeesItsLastPositionsAndTheSinks) {
  const LayerGroup window{.attention = Attention::window, .window_tokens = 3, .sink_tokens = 2};
  std::vector<uint32_t> seen;
  visible(window, {}, 1, seen);
  EXPECT_EQ(seen, (std::vector<uint32_t>{0, 1}));
  visible(window, {}, 9, seen);
  EXPECT_EQ(seen, (std::vector<uint32_t>{0, 1, 6, 7, 8, 9}));
  visible({}, {}, 3, seen);
  EXPECT_EQ(seen, (std::vector<uint32_t>{0, 1, 2, 3}));
}

TEST(Kernels, SamplingIsGreedyAndTakesTheLowestOnTies) {
  const std::vector<float> logits = {1, 4, 2, 4};
  EXPECT_EQ(sample(logits, 0, 7), 1U);
  EXPECT_EQ(sample(logits, 5, 7), sample(logits, 5, 7));
}

TEST(Texts, OverlappingItemsAreOneUnitThatSeesItselfWhenOneOfThemDoes) {
  const Text text = text_with_media();
  EXPECT_EQ(sees_until(text, 8), 9U);
  EXPECT_EQ(sees_until(text, 9), 17U);
  EXPECT_EQ(sees_until(text, 16), 17U);
  EXPECT_EQ(sees_until(text, 31), 32U) << "a causal item";
  EXPECT_EQ(unit_ceiling(text, 9), 9U);
  EXPECT_EQ(unit_ceiling(text, 10), 17U);
  EXPECT_EQ(unit_ceiling(text, 31), 34U);
  EXPECT_EQ(unit_ceiling(text, 40), 40U);
}

TEST(Arena, BlocksGoOutAndComeBackWhole) {
  KvArena arena(make_layout(hybrid(), std::vector<GroupMemory>{{4, 4}, {8, 4}, {1, 4}}));
  const size_t bytes = arena.layout().groups[1].block_bytes;
  std::vector<uint8_t> out(2 * bytes), in(2 * bytes);
  Random random(3);
  for (uint8_t& byte : in) byte = static_cast<uint8_t>(random.below(250));
  bool done = false;
  const BlockIo::Done note = [](void* user, Result<void> ok) {
    *static_cast<bool*>(user) = ok.has_value();
  };
  const BlockId blocks[] = {BlockId{3}, BlockId{1}};
  arena.write(1, blocks, in, note, &done);
  EXPECT_TRUE(std::exchange(done, false));
  arena.read(1, blocks, out, note, &done);
  EXPECT_TRUE(done);
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace stemma::paged
