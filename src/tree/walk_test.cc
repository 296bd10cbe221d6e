#include "tree/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/slab.h"

namespace stemma::tree {
namespace {

using Words = std::vector<uint32_t>;
using Cells = std::vector<CellIndex>;

// The memory a walk reads, written by hand: cells with up to two children each.
class Picture {
 public:
  static constexpr CellIndex kSentinel = 500;
  static constexpr CellIndex kRoot = 501;

  explicit Picture(uint32_t cell_tokens) : tokens(cell_tokens) {
    constexpr size_t kCells = 600;
    EXPECT_TRUE(words_.reserve(kCells * tokens) && words_.commit(0, kCells * tokens));
    EXPECT_TRUE(hot.reserve(kCells) && hot.commit(0, kCells));
    EXPECT_TRUE(sibling.reserve(kCells) && sibling.commit(0, kCells));
    for (size_t i = 0; i < kCells; ++i) set(i, kSentinel);
    hot[kRoot].link = kSentinel | kLive;
  }
  void add(CellIndex cell, CellIndex parent, const Words& words) {
    std::ranges::copy(words, words_.data() + size_t{cell} * tokens);
    set(cell, parent | kLive);
    const Ref only = hot[parent].child;
    if (only == kNoRef) {
      hot[parent].child = cell_ref(cell);
      return;
    }
    const uint32_t* other = words_.data() + size_t{cell_of(only)} * tokens;
    uint32_t i = 0;
    while (words[i] == other[i]) ++i;
    const auto bit = static_cast<uint32_t>(__builtin_clz(words[i] ^ other[i]));
    const uint32_t turn = words[i] >> (31 - bit) & 1U;
    sibling[cell].crit = static_cast<uint16_t>(i * 32 + bit);
    sibling[cell].turns[turn] = cell_ref(cell);
    sibling[cell].turns[1 - turn] = only;
    hot[parent].child = node_ref(cell);
  }
  WalkView view() const { return {words_.data(), hot.data(), sibling.data(), tokens, kSentinel}; }

  uint32_t tokens;
  base::Slab<Hot> hot;
  base::Slab<Sibling> sibling;

 private:
  void set(size_t cell, uint32_t link) {
    hot[cell].link = link;
    hot[cell].child = kNoRef;
    hot[cell].hint = kSentinel;
  }
  base::Slab<uint32_t> words_;
};

std::vector<std::pair<std::string, WalkFunction>> kernels(uint32_t tokens) {
  std::vector<std::pair<std::string, WalkFunction>> all{{"plain", walk_plain}};
#if defined(__x86_64__) && !defined(STEMMA_TSAN)
  if (tokens == 16 && cpu_has_avx2()) all.emplace_back("avx2", walk_avx2);
  if (tokens == 16 && cpu_has_avx512()) all.emplace_back("avx512", walk_avx512);
#endif
  (void)tokens;
  return all;
}

struct Walked {
  Cells path;
  uint32_t fallbacks = 0;
  uint32_t word_bits = 0;
  friend bool operator==(const Walked&, const Walked&) = default;
};

Walked run(WalkFunction walk, const Picture& picture, const Words& query) {
  const auto cells = static_cast<uint32_t>(query.size() / picture.tokens);
  Walked walked;
  walked.path.resize(cells);
  // Queries may lie anywhere in memory; shifting by one word exposes alignment errors.
  Words shifted(query.size() + 1);
  std::ranges::copy(query, shifted.begin() + 1);
  const WalkResult result =
      walk(picture.view(), Picture::kRoot, shifted.data() + 1, cells, walked.path.data());
  walked.path.resize(result.cells);
  walked.fallbacks = result.fallbacks;
  walked.word_bits = result.word_bits;
  return walked;
}

Words random_words(std::mt19937& random, uint32_t count) {
  Words words(count);
  for (uint32_t& word : words)
    word = random() % 3 == 0 ? 0x8000'0000U + random() % 2 : random() % 5;
  return words;
}

Words path_words(const std::vector<Words>& cells) {
  Words all;
  for (const Words& cell : cells) all.insert(all.end(), cell.begin(), cell.end());
  return all;
}

TEST(Walk, KernelsAgreeOnRandomTreesAndHints) {
  for (const uint32_t tokens : {1U, 2U, 4U, 16U, 64U}) {
    std::mt19937 random(tokens);
    for (int round = 0; round < 60; ++round) {
      Picture picture(tokens);
      std::vector<std::vector<Words>> prompts{{}, {}};
      // A trunk, and a second path that leaves it somewhere.
      const uint32_t length = 1 + random() % 90;
      const uint32_t leaves_at = random() % (length + 1);
      CellIndex parent = Picture::kRoot;
      CellIndex fork = Picture::kRoot;
      for (CellIndex i = 0; i < length; ++i) {
        prompts[0].push_back(random_words(random, tokens));
        picture.add(i, parent, prompts[0].back());
        if (i < leaves_at) {
          prompts[1].push_back(prompts[0].back());
          fork = i;
        }
        parent = i;
      }
      for (CellIndex i = 0; i < 60; ++i) {
        Words words = random_words(random, tokens);
        if (i == 0 && leaves_at < length && words == prompts[0][leaves_at]) words[0] ^= 1;
        prompts[1].push_back(words);
        picture.add(200 + i, i == 0 ? fork : 199 + i, words);
      }
      for (int i = 0; i < 300; ++i) {  // Hints that name anything.
        const CellIndex target = random() % 3 == 0 ? Picture::kSentinel : random() % 300;
        picture.hot[random() % 300].hint = target;
      }
      for (CellIndex i = 0; i + kHintDistance < length && random() % 4 != 0; ++i) {
        picture.hot[i].hint = i + kHintDistance;
      }
      for (auto prompt : prompts) {
        if (random() % 2 == 0) prompt[random() % prompt.size()][random() % tokens] ^= 2;
        const Words query = path_words(prompt);
        const Walked expected = run(walk_plain, picture, query);
        for (const auto& [name, walk] : kernels(tokens)) {
          ASSERT_EQ(run(walk, picture, query), expected) << name << ", " << tokens << " words";
        }
        // And the plain one agrees with a plain comparison.
        CellIndex at = Picture::kRoot;
        uint32_t bits = 0;
        size_t matched = 0;
        for (; matched < prompt.size(); ++matched) {
          CellIndex next = kNoCell;
          for (CellIndex cell = 0; cell < 300; ++cell) {
            const uint32_t* words = picture.view().words + size_t{cell} * tokens;
            if ((picture.hot[cell].link & kLive) != 0 &&
                (picture.hot[cell].link & kIndexMask) == at &&
                std::equal(prompt[matched].begin(), prompt[matched].end(), words)) {
              next = cell;
            }
          }
          if (next == kNoCell) break;
          ASSERT_EQ(expected.path.at(matched), next);
          for (uint32_t word : prompt[matched]) bits |= word;
          at = next;
        }
        ASSERT_EQ(expected.path.size(), matched);
        ASSERT_EQ(expected.word_bits, bits);
      }
    }
  }
}

TEST(Walk, RightHintsNeedNoDescents) {
  Picture picture(16);
  std::mt19937 random(1);
  std::vector<Words> prompt;
  for (CellIndex i = 0; i < 64; ++i) {
    prompt.push_back(random_words(random, 16));
    picture.add(i, i == 0 ? Picture::kRoot : i - 1, prompt.back());
    if (i >= kHintDistance) picture.hot[i - kHintDistance].hint = i;
  }
  for (const auto& [name, walk] : kernels(16)) {
    const Walked walked = run(walk, picture, path_words(prompt));
    EXPECT_EQ(walked.path.size(), 64U) << name;
    EXPECT_EQ(walked.fallbacks, kHintDistance) << "only before the first hint, " << name;
  }
}

TEST(Walk, WordsBeyondTheMatchAreNotAmongTheBits) {
  Picture picture(16);
  picture.add(0, Picture::kRoot, Words(16, 5));
  Words query(32, 5);
  query[20] = 0x8000'0000U;
  for (const auto& [name, walk] : kernels(16)) {
    const Walked walked = run(walk, picture, query);
    EXPECT_EQ(walked.path, Cells{0}) << name;
    EXPECT_EQ(walked.word_bits, 5U) << name << ": the caller looks at the rest itself";
  }
}

TEST(Walk, NothingAskedNothingFound) {
  Picture picture(16);
  for (const auto& [name, walk] : kernels(16)) {
    EXPECT_EQ(run(walk, picture, {}), Walked{}) << name;
    EXPECT_TRUE(run(walk, picture, Words(16, 1)).path.empty()) << name;
  }
}

TEST(Walk, EndsBesideAWriterThatLeavesNodesInCircles) {
  Picture picture(16);
  Words words(16, 5);
  picture.add(0, Picture::kRoot, words);
  words[15] = 4;
  picture.add(1, Picture::kRoot, words);
  // As a reader may see it in the middle of a change: nodes that point to each other.
  picture.sibling[2].turns[0] = picture.sibling[2].turns[1] = node_ref(1);
  picture.sibling[2].crit = 3;
  picture.sibling[1].turns[0] = picture.sibling[1].turns[1] = node_ref(2);
  for (const auto& [name, walk] : kernels(16)) {
    EXPECT_TRUE(run(walk, picture, words).path.empty()) << name;
  }
}

TEST(Walk, TheBestKernelIsChosenForTheMachineAndTheCell) {
  EXPECT_EQ(choose_walk(8), walk_plain);
  EXPECT_EQ(choose_walk(64), walk_plain);
  EXPECT_EQ(choose_walk(16), kernels(16).back().second);
}

}  // namespace
}  // namespace stemma::tree
