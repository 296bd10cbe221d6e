#include "tree/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "key/words.h"

namespace stemma::tree {
namespace {

using Words = std::vector<uint32_t>;
using Cells = std::vector<CellIndex>;

// A tree with a naive model beside it: the words and the parent of every live cell.
class Forest {
 public:
  explicit Forest(uint32_t tokens, uint32_t first = 1000, uint32_t extra = 100, bool keys = false)
      : tokens_(tokens) {
    EXPECT_TRUE(tree.create({tokens, first, extra, keys}));
    root = add_root(tree.first_extra());
  }
  CellIndex add_root(CellIndex cell) {
    EXPECT_TRUE(tree.ensure(cell));
    tree.make_root(cell, {});
    nodes[cell] = {kNoCell, {}, 0};
    return cell;
  }
  CellIndex add(CellIndex cell, CellIndex parent, const Words& words) {
    const uint32_t level = nodes.at(parent).level + 1;
    const CellIndex up =
        level > kHintDistance ? tree.ancestor(parent, kHintDistance - 1) : tree.sentinel();
    EXPECT_TRUE(tree.ensure(cell));
    tree.publish(cell, parent, up, words, std::ranges::any_of(words, key::is_media_word), nullptr);
    nodes[cell] = {parent, words, level};
    return cell;
  }
  void remove(CellIndex cell) {
    tree.remove(cell);
    nodes.erase(cell);
  }
  Cells children(CellIndex parent) const {
    Cells cells;
    for (const auto& [cell, node] : nodes) {
      if (node.parent == parent) cells.push_back(cell);
    }
    return cells;
  }
  CellIndex find(CellIndex parent, const Words& words) const {
    for (CellIndex cell : children(parent)) {
      if (nodes.at(cell).words == words) return cell;
    }
    return kNoCell;
  }
  bool is_short(CellIndex cell) const {
    return cell != root && nodes.at(cell).words.size() < tokens_;
  }

  struct Node {
    CellIndex parent;
    Words words;
    uint32_t level;
  };
  PrefixTree tree;
  CellIndex root;
  std::map<CellIndex, Node> nodes;

 private:
  uint32_t tokens_;
};

uint32_t common(const Words& a, const Words& b) {
  uint32_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

// Words that share prefixes, differ in high and low bits, and contain media.
class WordSource {
 public:
  WordSource(uint32_t tokens, uint32_t seed) : random_(seed), tokens_(tokens) {}
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  uint32_t word() {
    constexpr uint32_t kWords[] = {0,           1,           2,           0x4000'0000, 0x7FFF'FFFF,
                                   0x8000'0000, 0x8000'0001, 0xBFFF'FFFE, 0x7FFF'FFFE};
    return kWords[below(9)];
  }
  Words words(uint32_t count, const Words& like) {
    Words made(count);
    const uint32_t same = below(count + 1);
    for (uint32_t i = 0; i < count; ++i) made[i] = i < same && i < like.size() ? like[i] : word();
    return made;
  }
  uint32_t any_length() { return 1 + below(tokens_); }

 private:
  std::mt19937 random_;
  uint32_t tokens_;
};

class PrefixTreeModel : public ::testing::TestWithParam<uint32_t> {};

void expect_same_answers(const Forest& forest, CellIndex parent, const Words& query) {
  const PrefixTree& tree = forest.tree;
  const Cells children = forest.children(parent);
  ASSERT_EQ(tree.find_child(parent, query), forest.find(parent, query));

  uint32_t most = 0;
  for (CellIndex child : children)
    most = std::max(most, common(forest.nodes.at(child).words, query));
  const PrefixTree::Partial best = tree.best_child(parent, query);
  ASSERT_EQ(best.words, most);
  if (most == 0) {
    ASSERT_EQ(best.cell, kNoCell);
  } else {
    ASSERT_EQ(common(forest.nodes.at(best.cell).words, query), most);
    ASSERT_EQ(forest.nodes.at(best.cell).parent, parent);
  }

  std::map<size_t, CellIndex> shorter;  // By length: there is one of each at most.
  for (CellIndex child : children) {
    const Words& words = forest.nodes.at(child).words;
    if (forest.is_short(child) && words.size() < query.size() &&
        common(words, query) == words.size()) {
      shorter[words.size()] = child;
    }
  }
  Cells expected;
  for (const auto& [length, cell] : shorter) expected.push_back(cell);
  Cells found;
  tree.short_prefixes(parent, query, found);
  ASSERT_EQ(found, expected);

  // Children part at each depth below the best match where one of them differs, and at its end if
  // those that share all of it continue differently.
  std::set<uint32_t> parts;
  std::set<uint32_t> next_words;
  for (CellIndex child : children) {
    const Words& words = forest.nodes.at(child).words;
    const uint32_t n = common(words, query);
    if (n < most) {
      parts.insert(100 + n);
    } else {
      next_words.insert(n < words.size() ? words[n] : key::kPadWord);
    }
  }
  if (next_words.size() > 1) parts.insert(100 + most);
  std::vector<uint32_t> depths;
  tree.branch_words(parent, query, 100, depths);
  ASSERT_EQ(depths, std::vector<uint32_t>(parts.begin(), parts.end()));
}

TEST_P(PrefixTreeModel, AgreesWithAVectorOfWords) {
  const uint32_t tokens = GetParam();
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    Forest forest(tokens);
    WordSource source(tokens, seed);
    Cells free_cells;
    for (CellIndex cell = 0; cell < 120; ++cell) free_cells.push_back(119 - cell);
    for (int step = 0; step < 3000; ++step) {
      const auto pick = [&](auto&& wanted) {
        Cells cells;
        for (const auto& [cell, node] : forest.nodes) {
          if (wanted(cell)) cells.push_back(cell);
        }
        return cells.empty() ? kNoCell : cells[source.below(static_cast<uint32_t>(cells.size()))];
      };
      const CellIndex parent = source.below(3) == 0
                                   ? forest.root
                                   : pick([&](CellIndex cell) { return !forest.is_short(cell); });
      const Cells siblings = forest.children(parent);
      const Words like =
          siblings.empty()
              ? Words{}
              : forest.nodes.at(siblings[source.below(static_cast<uint32_t>(siblings.size()))])
                    .words;
      const uint32_t length = source.below(2) == 0 ? tokens : source.any_length();
      const Words words = source.words(length, like);
      ASSERT_NO_FATAL_FAILURE(expect_same_answers(forest, parent, words)) << "step " << step;
      ASSERT_NO_FATAL_FAILURE(expect_same_answers(forest, parent, like.empty() ? words : like));
      if (source.below(100) < 60) {
        if (free_cells.empty() || forest.find(parent, words) != kNoCell) continue;
        forest.add(free_cells.back(), parent, words);
        free_cells.pop_back();
      } else {
        const CellIndex leaf = pick(
            [&](CellIndex cell) { return cell != forest.root && forest.children(cell).empty(); });
        if (leaf == kNoCell) continue;
        forest.remove(leaf);
        ASSERT_FALSE(forest.tree.is_live(leaf));
        free_cells.insert(
            free_cells.begin() + source.below(static_cast<uint32_t>(free_cells.size() + 1)), leaf);
      }
      if (step % 50 != 0) continue;
      forest.tree.check_invariants(forest.root);
      for (const auto& [cell, node] : forest.nodes) {
        ASSERT_TRUE(forest.tree.is_live(cell));
        Cells found;
        forest.tree.children(cell, found);
        std::ranges::sort(found);
        ASSERT_EQ(found, forest.children(cell));
        ASSERT_EQ(forest.tree.has_child(cell), !found.empty());
        ASSERT_EQ(forest.tree.branches(cell), found.size() > 1);
        if (cell == forest.root) continue;
        ASSERT_EQ(forest.tree.parent(cell), node.parent);
        ASSERT_EQ(forest.tree.is_short(cell), forest.is_short(cell));
        ASSERT_EQ(forest.tree.word_count(cell), node.words.size());
        ASSERT_EQ(Words(forest.tree.words(cell), forest.tree.words(cell) + node.words.size()),
                  node.words);
        ASSERT_EQ(forest.tree.has_media(cell), std::ranges::any_of(node.words, key::is_media_word));
      }
      Cells below;
      forest.tree.descendants(forest.root, below);
      ASSERT_EQ(below.size() + 1, forest.nodes.size());
      Cells in_place;
      for (CellIndex cell = forest.root; cell != kNoCell;
           cell = forest.tree.next_below(forest.root, cell)) {
        in_place.push_back(cell);
        ASSERT_LE(in_place.size(), forest.nodes.size());
        if (cell == forest.root) continue;
        ASSERT_NE(std::ranges::find(in_place, forest.tree.parent(cell)), in_place.end());
      }
      std::ranges::sort(in_place);
      Cells listed = below;
      listed.push_back(forest.root);
      std::ranges::sort(listed);
      ASSERT_EQ(in_place, listed);
      std::map<CellIndex, uint32_t> depths{{forest.root, 0}};
      forest.tree.visit_below(forest.root, [&](CellIndex cell, uint32_t depth) {
        EXPECT_EQ(depths.at(forest.tree.parent(cell)) + 1, depth) << "parents come before children";
        EXPECT_TRUE(depths.emplace(cell, depth).second);
      });
      ASSERT_EQ(depths.size(), forest.nodes.size());
      std::set<CellIndex> seen{forest.root};
      for (CellIndex cell : below) {
        ASSERT_TRUE(seen.count(forest.tree.parent(cell))) << "parents come before children";
        ASSERT_TRUE(seen.insert(cell).second);
      }
    }
  }
}

TEST_P(PrefixTreeModel, InnerAnchorsAgreeWithAVectorOfWords) {
  const uint32_t tokens = GetParam();
  if (tokens == 1) return;  // Nothing lies inside a cell of one word.
  Forest forest(tokens, 10, 200);
  PrefixTree& tree = forest.tree;
  WordSource source(tokens, 3);
  const CellIndex parent = forest.add(0, forest.root, source.words(tokens, {}));
  std::map<CellIndex, Words> inner;
  Cells free_cells;
  for (CellIndex i = 1; i < 60; ++i) free_cells.push_back(tree.first_extra() + i);
  for (int step = 0; step < 3000; ++step) {
    Words like;
    if (!inner.empty()) {
      like = std::next(inner.begin(), source.below(static_cast<uint32_t>(inner.size())))->second;
    }
    const Words words = source.words(1 + source.below(tokens - 1), like);
    CellIndex exact = kNoCell;
    std::map<size_t, CellIndex> shorter;
    for (const auto& [cell, held] : inner) {
      if (held == words) exact = cell;
      if (held.size() <= words.size() && common(held, words) == held.size()) {
        shorter[held.size()] = cell;
      }
    }
    ASSERT_EQ(tree.find_inner(parent, words), exact);
    Cells expected;
    for (const auto& [length, cell] : shorter) expected.push_back(cell);
    Cells found;
    tree.inner_prefixes(parent, words, found);
    ASSERT_EQ(found, expected);
    ASSERT_EQ(tree.find_child(parent, words), kNoCell) << "found only by their own calls";
    if (exact == kNoCell && !free_cells.empty() && source.below(5) < 3) {
      const CellIndex cell = free_cells.back();
      free_cells.pop_back();
      ASSERT_TRUE(tree.ensure(cell));
      tree.publish_inner(cell, parent, words, std::ranges::any_of(words, key::is_media_word));
      inner[cell] = words;
      ASSERT_TRUE(tree.is_inner(cell) && tree.is_live(cell));
    } else if (!inner.empty()) {
      const auto it = std::next(inner.begin(), source.below(static_cast<uint32_t>(inner.size())));
      tree.remove_inner(it->first);
      ASSERT_FALSE(tree.is_live(it->first));
      free_cells.push_back(it->first);
      inner.erase(it);
    }
    ASSERT_EQ(tree.has_inner(parent), !inner.empty());
    found.clear();
    tree.inner_children(parent, found);
    ASSERT_EQ(found.size(), inner.size());
    if (step % 100 == 0) tree.check_invariants(forest.root);
  }
  ASSERT_FALSE(tree.has_child(parent)) << "inner anchors are no children";
}

TEST_P(PrefixTreeModel, WalkFollowsThePathWhateverTheHintsSay) {
  const uint32_t tokens = GetParam();
  Forest forest(tokens, 2000);
  PrefixTree& tree = forest.tree;
  WordSource source(tokens, 17);
  // Several long paths that part at different depths, so that hints of shared cells are contested.
  std::vector<Words> prompts;
  CellIndex next = 0;
  for (int p = 0; p < 8; ++p) {
    const uint32_t depth = 20 + source.below(60);
    Words prompt = p == 0 ? Words{} : prompts[source.below(static_cast<uint32_t>(p))];
    prompt.resize(std::min<size_t>(prompt.size(), size_t{source.below(50)} * tokens));
    while (prompt.size() < size_t{depth} * tokens) prompt.push_back(source.word());
    CellIndex parent = forest.root;
    for (uint32_t i = 0; i < depth; ++i) {
      const Words words(prompt.begin() + i * tokens, prompt.begin() + (i + 1) * tokens);
      CellIndex cell = forest.find(parent, words);
      if (cell == kNoCell) cell = forest.add(next++, parent, words);
      parent = cell;
    }
    prompts.push_back(prompt);
  }
  const auto expect_right = [&] {
    for (const Words& prompt : prompts) {
      Words query = prompt;
      if (source.below(2) == 0) query[source.below(static_cast<uint32_t>(query.size()))] ^= 4;
      const auto cells = static_cast<uint32_t>(query.size() / tokens);
      Cells expected;
      uint32_t bits = 0;
      for (CellIndex parent = forest.root; expected.size() < cells;) {
        const Words words(query.begin() + static_cast<ptrdiff_t>(expected.size() * tokens),
                          query.begin() + static_cast<ptrdiff_t>((expected.size() + 1) * tokens));
        parent = tree.find_child(parent, words);
        if (parent == kNoCell) break;
        for (uint32_t word : words) bits |= word;
        expected.push_back(parent);
      }
      Cells path(cells, kNoCell);
      const WalkResult walk = tree.walk(forest.root, query.data(), cells, path.data());
      ASSERT_EQ(walk.cells, expected.size());
      path.resize(walk.cells);
      ASSERT_EQ(path, expected);
      ASSERT_EQ(walk.word_bits, bits);
      ASSERT_EQ(tree.valid_prefix(forest.root, path.data(), walk.cells, tree.births()), walk.cells);
    }
  };
  expect_right();
  for (int round = 0; round < 200; ++round) {
    // Hints may name any cell at all: others' cells, cells above, dead cells.
    Cells hostile(17 + source.below(200));
    for (CellIndex& cell : hostile) cell = source.below(next);
    tree.repair_hints(hostile.data(), static_cast<uint32_t>(hostile.size()));
    if (round % 10 == 0) {  // Stale ones too: a leaf goes, and comes back elsewhere.
      Cells leaves;
      for (const auto& [cell, node] : forest.nodes) {
        if (cell != forest.root && forest.children(cell).empty()) leaves.push_back(cell);
      }
      forest.remove(leaves[source.below(static_cast<uint32_t>(leaves.size()))]);
    }
    ASSERT_NO_FATAL_FAILURE(expect_right()) << "round " << round;
  }
  tree.check_invariants(forest.root);
}

INSTANTIATE_TEST_SUITE_P(CellSizes, PrefixTreeModel, ::testing::Values(1, 2, 4, 16, 64),
                         ::testing::PrintToStringParamName());

// ---- A long path -------------------------------------------------------------------------------

class LongPath : public ::testing::Test {
 protected:
  static constexpr uint32_t kTokens = 16;
  static constexpr uint32_t kCells = 100;

  void SetUp() override {
    CellIndex parent = forest.root;
    for (uint32_t i = 0; i < kCells; ++i) parent = forest.add(i, parent, words_at(i));
  }
  Words words_at(uint32_t i) const {
    return {prompt.begin() + i * kTokens, prompt.begin() + (i + 1) * kTokens};
  }
  WalkResult walk() { return forest.tree.walk(forest.root, prompt.data(), kCells, path.data()); }
  uint32_t valid(uint32_t births) const {
    return forest.tree.valid_prefix(forest.root, path.data(), kCells, births);
  }

  Words prompt = [] {
    Words words(kTokens * kCells);
    for (uint32_t i = 0; i < words.size(); ++i) words[i] = i * 7 + 1;
    return words;
  }();
  Forest forest{kTokens};
  Cells path = Cells(kCells, kNoCell);
};

TEST_F(LongPath, RepairedHintsSpareTheDescents) {
  EXPECT_EQ(walk().fallbacks, kHintDistance) << "fresh hints are right";
  Cells nothing(kCells);
  for (uint32_t i = 0; i < kCells; ++i) nothing[i] = i / 2;
  forest.tree.repair_hints(nothing.data(), kCells);
  EXPECT_GT(walk().fallbacks, kHintDistance);
  EXPECT_EQ(walk().cells, kCells);
  forest.tree.repair_hints(path.data(), kCells);
  EXPECT_EQ(walk().fallbacks, kHintDistance);
}

TEST_F(LongPath, CellsRemovedAfterTheWalkAreRejected) {
  const uint32_t births = forest.tree.births();
  ASSERT_EQ(walk().cells, kCells);
  for (uint32_t kept = kCells; kept-- > 0;) {
    forest.remove(kept);
    ASSERT_EQ(valid(births), kept);
  }
}

TEST_F(LongPath, CellsRebornDuringTheWalkAreRejected) {
  const uint32_t births = forest.tree.births();
  // The same cells with the same words under the same parents are still not the earlier cells.
  for (uint32_t i = kCells; i-- > 40;) forest.remove(i);
  for (uint32_t i = 40; i < kCells; ++i) forest.add(i, i - 1, words_at(i));
  ASSERT_EQ(walk().cells, kCells);
  EXPECT_EQ(valid(births), 40U);
  EXPECT_EQ(valid(forest.tree.births()), kCells) << "a walk that begins now may believe them";
}

TEST_F(LongPath, AnAncestorRecycledBeforeTheDeepestWasBornIsSeen) {
  // The deepest cell alone would look right to a reader that only compares it.
  const uint32_t births = forest.tree.births();
  for (uint32_t i = kCells; i-- > 10;) forest.remove(i);
  Words other = words_at(10);
  other[3] ^= 1;
  forest.add(10, 9, other);
  CellIndex parent = 10;
  for (uint32_t i = 11; i < kCells; ++i) parent = forest.add(i, parent, words_at(i));
  for (uint32_t i = 0; i < kCells; ++i) path[i] = i;  // A path that a reader may have assembled.
  EXPECT_EQ(valid(births), 10U);
}

TEST_F(LongPath, OrphansAreRejectedAndLiveOn) {
  const uint32_t births = forest.tree.births();
  ASSERT_EQ(walk().cells, kCells);
  forest.tree.orphan(30);
  EXPECT_EQ(valid(births), 30U);
  EXPECT_EQ(forest.tree.find_child(29, words_at(30)), kNoCell);
  EXPECT_FALSE(forest.tree.has_child(29));
  for (uint32_t i = 30; i < kCells; ++i) {
    EXPECT_TRUE(forest.tree.is_live(i) && forest.tree.is_orphan(i));
    EXPECT_EQ(forest.tree.is_cut(i), i == 30);
    EXPECT_EQ(Words(forest.tree.words(i), forest.tree.words(i) + kTokens), words_at(i));
  }
  forest.tree.check_invariants(forest.root);
  forest.tree.check_invariants(30);
  // The same words may be added again beside the orphan, and are found instead of it.
  forest.add(500, 29, words_at(30));
  EXPECT_EQ(forest.tree.find_child(29, words_at(30)), 500U);
  const uint32_t now = forest.tree.births();
  const uint32_t cells = walk().cells;
  EXPECT_LE(forest.tree.valid_prefix(forest.root, path.data(), cells, now), 31U);
  // A cell published below an orphan is an orphan too.
  forest.add(501, 99, words_at(5));
  EXPECT_TRUE(forest.tree.is_orphan(501));
  forest.remove(501);
  for (uint32_t i = kCells; i-- > 30;) forest.remove(i);
  EXPECT_EQ(forest.tree.find_child(29, words_at(30)), 500U) << "removing the orphan left it alone";
  forest.tree.check_invariants(forest.root);
}

TEST_F(LongPath, AnotherRootInTheSameCellIsNotTheRoot) {
  const uint32_t births = forest.tree.births();
  ASSERT_EQ(walk().cells, kCells);
  for (uint32_t i = kCells; i-- > 0;) forest.remove(i);
  forest.remove(forest.root);
  EXPECT_EQ(valid(births), 0U);
  forest.add_root(forest.root);
  EXPECT_EQ(valid(births), 0U);
  EXPECT_EQ(walk().cells, 0U);
}

TEST_F(LongPath, FlagsAndUpLinksStay) {
  forest.tree.set_anchored(50, true);
  EXPECT_TRUE(forest.tree.is_anchored(50));
  EXPECT_TRUE(forest.tree.is_live(50));
  EXPECT_EQ(forest.tree.parent(50), 49U);
  forest.tree.set_anchored(50, false);
  EXPECT_FALSE(forest.tree.is_anchored(50));
  EXPECT_EQ(forest.tree.up(50), 34U);
  EXPECT_EQ(forest.tree.up(15), forest.tree.sentinel()) << "16 above it is the root";
  EXPECT_EQ(forest.tree.ancestor(50, 16), 34U);
  EXPECT_TRUE(forest.tree.is_root(forest.root));
  EXPECT_FALSE(forest.tree.is_root(0));
}

TEST_F(LongPath, WalksBesideAWriterAreRightWhenTheyAreValid) {
  // A writer removes the lower half of the path and writes it again, sometimes with other words in
  // the same cells. Any path that a reader may keep under the lock must spell its prompt.
  PrefixTree& tree = forest.tree;
  std::mutex lock;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> walks{0};
  std::atomic<uint64_t> wrong{0};
  std::jthread reader([&] {
    Cells mine(kCells);
    while (!stop.load(std::memory_order_relaxed)) {
      const uint32_t births = tree.births();
      const WalkResult found = tree.walk(forest.root, prompt.data(), kCells, mine.data());
      const std::lock_guard guard(lock);
      const uint32_t kept = tree.valid_prefix(forest.root, mine.data(), found.cells, births);
      CellIndex parent = forest.root;
      for (uint32_t i = 0; i < kept; ++i) {
        const bool right = tree.is_live(mine[i]) && tree.parent(mine[i]) == parent &&
                           std::equal(prompt.begin() + i * kTokens,
                                      prompt.begin() + (i + 1) * kTokens, tree.words(mine[i]));
        if (!right) ++wrong;
        parent = mine[i];
      }
      ++walks;
    }
  });
  std::mt19937 random(2);
  for (int round = 0; round < 2000 || walks.load() < 200; ++round) {
    const uint32_t from = 1 + random() % (kCells - 1);
    for (uint32_t i = kCells; i-- > from;) {
      const std::lock_guard guard(lock);
      forest.remove(i);
    }
    const uint32_t differs = random() % (2 * kCells);
    for (uint32_t i = from; i < kCells; ++i) {
      Words words = words_at(i);
      if (i == differs) words[random() % kTokens] ^= 1;
      const std::lock_guard guard(lock);
      forest.add(i, i - 1, words);
    }
    if (differs < from || differs >= kCells) continue;
    for (uint32_t i = kCells; i-- > differs;) {  // Put right what was written wrong.
      const std::lock_guard guard(lock);
      forest.remove(i);
    }
    for (uint32_t i = differs; i < kCells; ++i) {
      const std::lock_guard guard(lock);
      forest.add(i, i - 1, words_at(i));
    }
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong.load(), 0U);
}

// ---- Corners -----------------------------------------------------------------------------------

TEST(PrefixTree, EmptyTreeOfManyCellsCostsLittle) {
  PrefixTree tree;
  ASSERT_TRUE(
      tree.create({.cell_tokens = 16, .first_cells = 50'000'000, .extra_cells = 1'000'000}));
  EXPECT_LE(tree.bytes(), 200'000U);
}

TEST(PrefixTree, ACellCostsFortyFourBytesAndItsWords) {
  PrefixTree tree;
  ASSERT_TRUE(tree.create({.cell_tokens = 16, .first_cells = 100'000, .extra_cells = 10}));
  const uint64_t empty = tree.bytes();
  ASSERT_TRUE(tree.ensure(99'999));
  EXPECT_LE(tree.bytes() - empty, (44 + 64) * 100'000U + 5 * 2 * 4096U);
}

TEST(PrefixTree, KeysAreKeptWhenAskedFor) {
  Forest forest(2, 10, 10, true);
  ContentKey key;
  key.bytes.fill(7);
  ASSERT_TRUE(forest.tree.ensure(3));
  const Words words{1, 2};
  forest.tree.publish(3, forest.root, forest.tree.sentinel(), words, false, &key);
  EXPECT_EQ(forest.tree.key(3), key);
}

TEST(PrefixTree, TwoRootsShareNothing) {
  Forest forest(2);
  const CellIndex other = forest.add_root(forest.tree.first_extra() + 1);
  forest.add(1, forest.root, {1, 2});
  EXPECT_EQ(forest.tree.find_child(other, Words{1, 2}), kNoCell);
  forest.add(2, other, {1, 2});
  EXPECT_EQ(forest.tree.find_child(other, Words{1, 2}), 2U);
  EXPECT_EQ(forest.tree.find_child(forest.root, Words{1, 2}), 1U);
}

TEST(PrefixTree, AnAdversarysDescentIsAsLongAsACellHasBits) {
  // Words that part from each other in one more bit each time.
  Forest forest(16);
  Words base(16, 0);
  CellIndex next = 0;
  for (uint32_t bit = 0; bit < 16 * 32; ++bit) {
    if (bit % 32 == 0) continue;  // The highest bit would make it a media word.
    Words words = base;
    words[bit / 32] = 1U << (31 - bit % 32);
    forest.add(next++, forest.root, words);
  }
  forest.add(next, forest.root, base);
  forest.tree.check_invariants(forest.root);
  EXPECT_EQ(forest.tree.find_child(forest.root, base), next);
  CellIndex path = kNoCell;
  EXPECT_EQ(forest.tree.walk(forest.root, base.data(), 1, &path).cells, 1U);
  EXPECT_EQ(path, next);
}

TEST(PrefixTreeDeathTest, EqualSiblingsAreOurOwnBug) {
  Forest forest(2);
  forest.add(1, forest.root, {1, 2});
  EXPECT_DEATH(forest.add(2, forest.root, {1, 2}), "sibling_trie");
}

TEST(PrefixTreeDeathTest, ACellWithAChildIsNeverRemoved) {
  Forest forest(2);
  forest.add(1, forest.root, {1, 2});
  forest.add(2, 1, {1, 2});
  EXPECT_DEATH(forest.tree.remove(1), "prefix_tree");
  EXPECT_DEATH(forest.tree.remove(5), "prefix_tree") << "nor one that is not live";
}

}  // namespace
}  // namespace stemma::tree
