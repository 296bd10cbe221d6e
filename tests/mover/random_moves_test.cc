// Random loads, stores, copies, gathers and scatters over random layouts, some of them damaged,
// beside a model that keeps the bytes of all pages: every answer and every byte must agree.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "base/random.h"
#include "base/word_sum.h"
#include "mover/machine.h"
#include "mover/scene.h"

namespace stemma::test {
namespace {

using namespace mover;

class RandomMoves {
 public:
  RandomMoves(Machine& machine, uint64_t seed)
      : machine_(machine), random_(seed), scene_(machine), odd_(below(2) == 0) {}
  ~RandomMoves() {
    mover_.reset();
    if (host_ != nullptr) machine_.give_back_host(host_);
  }
  RandomMoves(const RandomMoves&) = delete;
  RandomMoves& operator=(const RandomMoves&) = delete;

  void run(int steps) {
    const auto groups = static_cast<uint32_t>(1 + below(2));
    scene_.make_groups(random_, groups, odd_);
    scene_.options.threads = static_cast<uint32_t>(1 + below(3));
    scene_.options.ring_bytes = 65'536;
    scene_.options.batch_from_bytes = below(2) == 0 ? 1 : UINT64_MAX;
    scene_.options.arena_bytes = uint64_t{1} << 20U;
    auto made = machine_.make(scene_.options);
    ASSERT_TRUE(made) << made.error().to_string();
    mover_ = *std::move(made);
    scene_.fill(random_);
    for (uint32_t g = 0; g < groups; ++g) {
      ASSERT_EQ(mover_->layout(g).block_bytes(), scene_.block_bytes(g));
      host_bytes_ += scene_.options.groups[g].pages * (scene_.block_bytes(g) + 4096);
    }
    host_ = machine_.take_host(host_bytes_);
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) step();
    if (!::testing::Test::HasFailure()) {
      ASSERT_EQ(scene_.difference(), "");
    }
  }

 private:
  uint64_t below(uint64_t limit) { return base::next_random(random_) % limit; }

  void step() {
    group_ = static_cast<uint32_t>(below(mover_->groups()));
    bytes_ = scene_.block_bytes(group_);
    switch (below(5)) {
      case 0: load(); break;
      case 1: load(); break;
      case 2: store(); break;
      case 3: copy(); break;
      default: pack();
    }
    if (below(8) == 0) {
      ASSERT_EQ(scene_.difference(), "");
    }
  }

  std::vector<uint32_t> some_pages() {
    std::vector<uint32_t> all(scene_.options.groups[group_].pages);
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(i)]);
    all.resize(1 + below(all.size()));
    return all;
  }

  // Host pieces for blocks, cut at random; now and then in memory that no device reaches.
  struct Blocks {
    std::vector<std::vector<HostPiece>> pieces;
    std::vector<Item> items;
    Bytes plain;
    Bytes content(size_t i) const {
      Bytes all;
      for (const HostPiece& piece : pieces[i]) {
        all.insert(all.end(), piece.data, piece.data + piece.bytes);
      }
      return all;
    }
  };
  Blocks blocks_for(const std::vector<uint32_t>& pages) {
    Blocks made;
    uint8_t* at = host_;
    if (below(4) == 0) {
      made.plain.resize(host_bytes_ + 16);
      at = made.plain.data() + below(16);
    }
    for (const uint32_t page : pages) {
      (void)page;
      std::vector<HostPiece> pieces;
      for (uint64_t done = 0; done < bytes_;) {
        const uint64_t rest = bytes_ - done;
        const uint64_t bytes = below(3) == 0 ? rest : std::min(rest, 16 * (1 + below(64)));
        // Pieces are scattered: sometimes there is a gap.
        if (below(4) == 0 && at + rest + 4096 < host_ + host_bytes_ && at >= host_) at += 16;
        pieces.push_back({at, bytes});
        at += bytes;
        done += bytes;
      }
      made.pieces.push_back(std::move(pieces));
    }
    for (size_t i = 0; i < pages.size(); ++i) made.items.push_back({pages[i], made.pieces[i], 0});
    return made;
  }

  MoveRequest request(const Blocks& blocks) {
    MoveRequest made;
    made.group = group_;
    made.items = blocks.items;
    made.layers_at_once = static_cast<uint32_t>(below(4));
    return made;
  }

  void load() {
    Blocks blocks = blocks_for(some_pages());
    std::set<size_t> wrong;
    for (size_t i = 0; i < blocks.items.size(); ++i) {
      // Padding is zeros, as a store writes it: the block of another page with other bytes.
      Bytes block = scene_.block(group_, blocks.items[i].page);
      Bytes other = block;
      for (uint8_t& byte : other) byte = static_cast<uint8_t>(below(256));
      scene_.put(group_, blocks.items[i].page, other);
      other = scene_.block(group_, blocks.items[i].page);
      blocks.items[i].sum = base::word_sum(other);
      if (below(6) == 0) {
        // Damaged after its sum was made: one bit anywhere, padding too.
        const uint64_t bit = below(bytes_ * 8);
        other[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
        wrong.insert(i);
        scene_.put(group_, blocks.items[i].page, other);
      }
      uint64_t done = 0;
      for (const HostPiece& piece : blocks.pieces[i]) {
        std::memcpy(piece.data, other.data() + done, piece.bytes);
        done += piece.bytes;
      }
    }
    const auto loaded = mover_->load(request(blocks));
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    if (below(2) == 0) {
      const auto layer = static_cast<uint32_t>(below(mover_->layout(group_).layers()));
      ASSERT_TRUE(mover_->gate(**loaded, layer, 0));
    }
    const Result<void> outcome = (*loaded)->wait(kForever);
    ASSERT_EQ(outcome.has_value(), wrong.empty());
    if (!outcome) {
      ASSERT_EQ(outcome.error().value(), *wrong.begin());
    }
    for (size_t i = 0; i < blocks.items.size(); ++i) {
      ASSERT_EQ((*loaded)->outcome_of(i).error.has_value(), wrong.contains(i)) << i;
    }
  }

  void store() {
    Blocks blocks = blocks_for(some_pages());
    const auto stored = mover_->store(request(blocks));
    ASSERT_TRUE(stored) << stored.error().to_string();
    ASSERT_TRUE((*stored)->wait(kForever));
    for (size_t i = 0; i < blocks.items.size(); ++i) {
      const Bytes expected = scene_.block(group_, blocks.items[i].page);
      ASSERT_EQ(blocks.content(i), expected) << i;
      ASSERT_EQ((*stored)->outcome_of(i).sum, base::word_sum(expected)) << i;
    }
  }

  void copy() {
    std::vector<BlockOfGroup> copies;
    const std::vector<uint32_t> pages = some_pages();
    for (size_t i = 0; i + 1 < pages.size(); i += 2) {
      copies.push_back({group_, pages[i], pages[i + 1], static_cast<uint32_t>(below(18))});
    }
    const auto copied = mover_->copy(copies, {});
    ASSERT_TRUE(copied) << copied.error().to_string();
    ASSERT_TRUE((*copied)->wait(kForever));
    for (const BlockOfGroup& one : copies) scene_.copy(one);
  }

  void pack() {
    const std::vector<uint32_t> pages = some_pages();
    const uint64_t packed = machine_.take_pages(pages.size() * bytes_);
    Bytes packed_bytes(pages.size() * bytes_, 0xEE);
    machine_.write(packed, packed_bytes.data(), packed_bytes.size());
    const auto gathered = mover_->pack(Way::from_pages, group_, pages, packed, kOwnStream);
    ASSERT_TRUE(gathered) << gathered.error().to_string();
    ASSERT_TRUE((*gathered)->wait(kForever));
    machine_.read(packed_bytes.data(), packed, packed_bytes.size());
    for (size_t i = 0; i < pages.size(); ++i) {
      const Bytes block = scene_.block(group_, pages[i]);
      Bytes other = block;
      for (uint64_t at = 0; at < bytes_; ++at) {
        const uint8_t byte = packed_bytes[i * bytes_ + at];
        // Padding is not written.
        if (byte != block[at]) {
          ASSERT_TRUE(byte == 0xEE && block[at] == 0) << i << " " << at;
        }
        other[at] = static_cast<uint8_t>(~block[at]);
      }
      scene_.put(group_, pages[i], other);
      machine_.write(packed + i * bytes_, other.data(), bytes_);
    }
    const auto scattered = mover_->pack(Way::to_pages, group_, pages, packed, kOwnStream);
    ASSERT_TRUE(scattered) << scattered.error().to_string();
    ASSERT_TRUE((*scattered)->wait(kForever));
    machine_.give_back_pages(packed);
  }

  Machine& machine_;
  uint64_t random_;
  Scene scene_;
  bool odd_;
  std::unique_ptr<Mover> mover_;
  uint64_t host_bytes_ = 0;
  uint8_t* host_ = nullptr;
  uint32_t group_ = 0;
  uint64_t bytes_ = 0;
};

class RandomMovesTest : public ::testing::TestWithParam<MachineKind> {};

TEST_P(RandomMovesTest, AgreeWithTheModel) {
  // More rounds: STEMMA_MOVER_ROUNDS.
  const char* const wanted = std::getenv("STEMMA_MOVER_ROUNDS");
  const uint64_t rounds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 40;
  for (uint64_t seed = 1; seed <= rounds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto machine = make_machine(GetParam(), seed);
    if (machine == nullptr) GTEST_SKIP() << "this machine has no CUDA device";
    RandomMoves(*machine, seed).run(30);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, RandomMovesTest, ::testing::Values(MachineKind::cpu));
INSTANTIATE_TEST_SUITE_P(FakeDevice, RandomMovesTest, ::testing::Values(MachineKind::fake));
INSTANTIATE_TEST_SUITE_P(Cuda, RandomMovesTest, ::testing::Values(MachineKind::cuda));

}  // namespace
}  // namespace stemma::test
