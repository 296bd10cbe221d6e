// The classical policies, block by block, against naive simulators.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "replay/replay.h"
#include "replay/synthetic.h"
#include "support/rooms/replays.h"

namespace stemma::replay {
namespace {

using test::trace_in;

using Path = std::vector<uint32_t>;

// A cache of blocks that keeps everything it knows about each block and searches all of them for a
// victim.
class PlainCache {
 public:
  explicit PlainCache(size_t capacity) : capacity_(capacity) {}
  virtual ~PlainCache() = default;

  uint32_t request(const Path& whole) {
    const Path path(whole.begin(), whole.begin() + std::min(whole.size(), capacity_));
    uint32_t found = 0;
    while (found < path.size() && blocks_.contains(path[found])) ++found;
    // Only the last block found can be a leaf. It is in use: a policy that names it is asked again.
    const uint32_t pinned = found == 0 ? kNobody : path[found - 1];
    bool named = false;
    while (blocks_.size() + path.size() - found > capacity_) {
      std::vector<uint32_t> leaves;
      for (const auto& [id, block] : blocks_) {
        if (block.children == 0 && (!named || id != pinned)) leaves.push_back(id);
      }
      const uint32_t victim = choose(leaves);
      if (victim == pinned) {
        named = true;
        continue;
      }
      evicted(victim);
      if (blocks_[victim].parent != kNobody) --blocks_[blocks_[victim].parent].children;
      blocks_.erase(victim);
    }
    for (size_t i = found; i < path.size(); ++i) {
      Block& block = blocks_[path[i]];
      block.born = ++time_;
      if (i > 0) {
        block.parent = path[i - 1];
        ++blocks_[path[i - 1]].children;
      }
      inserted(path[i]);
    }
    ++time_;
    for (size_t i = 0; i < path.size(); ++i) {
      Block& block = blocks_[path[i]];
      block.previous = block.last;
      block.last = time_;
      ++block.uses;
      if (i < found) {
        block.again = true;
        reused(path[i]);
      }
    }
    return found;
  }

 protected:
  static constexpr uint32_t kNobody = ~0U;
  struct Block {
    uint32_t parent = kNobody;
    uint32_t children = 0;
    uint64_t born = 0;
    uint64_t last = 0;
    uint64_t previous = 0;
    uint32_t uses = 0;
    bool again = false;
    int queue = 0;
  };
  virtual uint32_t choose(const std::vector<uint32_t>& leaves) = 0;
  virtual void inserted(uint32_t id) { (void)id; }
  virtual void reused(uint32_t id) { (void)id; }
  virtual void evicted(uint32_t id) { (void)id; }

  template <class Key>
  static uint32_t lowest(const std::vector<uint32_t>& ids, Key&& key) {
    return *std::min_element(ids.begin(), ids.end(),
                             [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  }
  std::vector<uint32_t> in_queue(const std::vector<uint32_t>& ids, int queue) {
    std::vector<uint32_t> out;
    for (const uint32_t id : ids) {
      if (blocks_[id].queue == queue) out.push_back(id);
    }
    return out;
  }
  size_t size_of(int queue) const {
    return static_cast<size_t>(std::count_if(
        blocks_.begin(), blocks_.end(), [&](const auto& b) { return b.second.queue == queue; }));
  }

  size_t capacity_;
  uint64_t time_ = 0;
  std::map<uint32_t, Block> blocks_;
};

// The last evicted blocks that did not come back: the id, and a number.
class PlainGhosts {
 public:
  void add(uint32_t id, uint64_t note, size_t most) {
    ++added_;
    list_.push_back({id, note, added_});
    if (list_.front().when + most <= added_) list_.pop_front();
  }
  bool take(uint32_t id, uint64_t& note) {
    const auto it = std::find_if(list_.begin(), list_.end(), [&](auto& g) { return g.id == id; });
    if (it == list_.end()) return false;
    note = it->note;
    list_.erase(it);
    return true;
  }
  double count(uint64_t note) const {
    return static_cast<double>(
        std::count_if(list_.begin(), list_.end(), [&](auto& g) { return g.note == note; }));
  }

 private:
  struct Ghost {
    uint32_t id;
    uint64_t note;
    uint64_t when;
  };
  std::deque<Ghost> list_;
  uint64_t added_ = 0;
};

class PlainLruK final : public PlainCache {
 public:
  using PlainCache::PlainCache;

 private:
  uint32_t choose(const std::vector<uint32_t>& leaves) override {
    return lowest(leaves, [&](uint32_t id) {
      const Block& b = blocks_[id];
      return std::pair(b.previous, b.previous == 0 ? b.last : 0);
    });
  }
  void inserted(uint32_t id) override { (void)ghosts_.take(id, blocks_[id].last); }
  void evicted(uint32_t id) override { ghosts_.add(id, blocks_[id].last, capacity_); }
  PlainGhosts ghosts_;
};

class PlainSieve final : public PlainCache {
 public:
  using PlainCache::PlainCache;

 private:
  uint32_t choose(const std::vector<uint32_t>& leaves) override {
    for (;;) {
      uint32_t next = kNobody;
      for (const bool wrapped : {false, true}) {
        for (const uint32_t id : leaves) {
          if (!wrapped && blocks_[id].born < hand_) continue;
          if (next == kNobody || blocks_[id].born < blocks_[next].born) next = id;
        }
        if (next != kNobody) break;
      }
      hand_ = blocks_[next].born;
      if (!blocks_[next].again) return next;
      blocks_[next].again = false;
      ++hand_;
    }
  }
  uint64_t hand_ = 0;
};

class PlainS3Fifo final : public PlainCache {
 public:
  using PlainCache::PlainCache;

 private:
  uint32_t choose(const std::vector<uint32_t>& leaves) override {
    for (;;) {
      const auto small = in_queue(leaves, 0);
      const auto main = in_queue(leaves, 1);
      const bool from_small = !small.empty() && (waiting() >= capacity_ / 10 + 1 || main.empty());
      const uint32_t id =
          lowest(from_small ? small : main, [&](uint32_t i) { return blocks_[i].born; });
      Block& b = blocks_[id];
      const uint32_t uses = std::min(b.uses - 1, 3U);
      if (from_small ? uses <= 1 : uses == 0) return id;
      b.uses = from_small ? 1 : uses;  // The first is not counted.
      b.queue = 1;
      b.born = ++time_;
    }
  }
  // Blocks that were used again take no room of the small queue.
  size_t waiting() const {
    return static_cast<size_t>(std::count_if(blocks_.begin(), blocks_.end(), [](const auto& b) {
      return b.second.queue == 0 && !b.second.again;
    }));
  }
  void inserted(uint32_t id) override {
    uint64_t ignored;
    blocks_[id].queue = ghosts_.take(id, ignored) ? 1 : 0;
  }
  void evicted(uint32_t id) override {
    if (blocks_[id].queue == 0) ghosts_.add(id, 0, capacity_);
  }
  PlainGhosts ghosts_;
};

class PlainArc final : public PlainCache {
 public:
  using PlainCache::PlainCache;

 private:
  uint32_t choose(const std::vector<uint32_t>& leaves) override {
    const auto once = in_queue(leaves, 0);
    const auto again = in_queue(leaves, 1);
    const bool from_once =
        again.empty() || (!once.empty() && static_cast<double>(size_of(0)) > target_);
    return lowest(from_once ? once : again, [&](uint32_t id) { return blocks_[id].last; });
  }
  void inserted(uint32_t id) override {
    const double first = ghosts_.count(0);
    const double second = ghosts_.count(1);
    uint64_t kind;
    if (!ghosts_.take(id, kind)) return;
    blocks_[id].queue = 1;
    if (kind == 0) {
      target_ =
          std::min<double>(static_cast<double>(capacity_), target_ + std::max(1.0, second / first));
    } else {
      target_ = std::max(0.0, target_ - std::max(1.0, first / second));
    }
  }
  void reused(uint32_t id) override { blocks_[id].queue = 1; }
  void evicted(uint32_t id) override {
    ghosts_.add(id, static_cast<uint64_t>(blocks_[id].queue), capacity_);
  }
  PlainGhosts ghosts_;
  double target_ = 0;
};

class PlainSlru final : public PlainCache {
 public:
  using PlainCache::PlainCache;

 private:
  uint64_t since(uint32_t id) { return std::max(blocks_[id].last, blocks_[id].born); }
  uint32_t choose(const std::vector<uint32_t>& leaves) override {
    const auto oldest = [&](int queue) {
      return lowest(in_queue(leaves, queue), [&](uint32_t id) { return since(id); });
    };
    while (size_of(1) > capacity_ * 4 / 5 && !in_queue(leaves, 1).empty()) {
      const uint32_t id = oldest(1);
      blocks_[id].queue = 0;
      blocks_[id].born = ++time_;
    }
    return oldest(in_queue(leaves, 0).empty() ? 1 : 0);
  }
  void reused(uint32_t id) override { blocks_[id].queue = 1; }
};

std::unique_ptr<PlainCache> plain(const std::string& policy, size_t capacity) {
  if (policy == "lru_k") return std::make_unique<PlainLruK>(capacity);
  if (policy == "sieve") return std::make_unique<PlainSieve>(capacity);
  if (policy == "s3_fifo") return std::make_unique<PlainS3Fifo>(capacity);
  if (policy == "slru") return std::make_unique<PlainSlru>(capacity);
  return std::make_unique<PlainArc>(capacity);
}

class ClassicalPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(ClassicalPolicies, FindWhatAPlainSimulatorFinds) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    std::vector<Path> live{{}};
    std::vector<Path> paths;
    std::string text;
    uint32_t next = 0;
    for (int i = 0; i < 400; ++i) {
      Path path = live[random() % live.size()];
      path.resize(path.size() - random() % (path.size() / 2 + 1));
      for (uint32_t more = random() % 5; more > 0; --more) path.push_back(next++);
      if (live.size() < 20) {
        live.push_back(path);
      } else {
        live[random() % live.size()] = path;
      }
      std::string ids;
      for (const uint32_t id : path) ids += (ids.empty() ? "" : ",") + std::to_string(id);
      text += "{\"timestamp\":" + std::to_string(i) +
              ",\"input_length\":" + std::to_string(path.size() * 512) + ",\"hash_ids\":[" + ids +
              "]}\n";
      paths.push_back(path);
    }
    const Trace trace = trace_in(text);
    for (const uint64_t capacity : {2, 9, 25, 60, 120}) {
      ReplayResult result;
      ASSERT_EQ(
          replay(trace,
                 {.policy = GetParam(), .capacity_blocks = capacity, .keep_request_hits = true},
                 result),
          "");
      const auto simulator = plain(GetParam(), capacity);
      for (size_t r = 0; r < paths.size(); ++r) {
        ASSERT_EQ(result.request_hits[r], simulator->request(paths[r]))
            << "seed " << seed << ", capacity " << capacity << ", request " << r;
      }
    }
  }
}

// Long sessions that continue for ever, a few blocks at a time: the blocks they arrived with cannot
// leave the small queue, and must not keep all other new blocks out of the cache.
TEST(S3Fifo, LongPromptsDoNotFillTheSmallQueue) {
  const Trace trace =
      make_trace({.workload = Workload::agents, .requests = 3000, .requests_per_second = 2});
  const auto found = [&](const char* policy) {
    ReplayResult result;
    EXPECT_EQ(replay(trace, {.policy = policy, .capacity_blocks = trace.unique_blocks / 5}, result),
              "");
    return result.hit_ratio();
  };
  EXPECT_GT(found("s3_fifo"), found("lru") - 0.03);
}

INSTANTIATE_TEST_SUITE_P(Policies, ClassicalPolicies,
                         ::testing::Values("lru_k", "sieve", "s3_fifo", "arc", "slru"),
                         [](const auto& policy) { return policy.param; });

}  // namespace
}  // namespace stemma::replay
