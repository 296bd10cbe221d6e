// What every mover promises: the CPU's, the one for devices over a fake driver, and the same over a
// real one where there is a device (`Cuda` is skipped by name elsewhere).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "base/random.h"
#include "base/word_sum.h"
#include "mover/machine.h"
#include "mover/scene.h"

namespace stemma::test {
namespace {

using namespace mover;

// Host memory for some blocks.
class Host {
 public:
  Host(Machine& machine, uint64_t bytes) : machine_(machine), at_(machine.take_host(bytes)) {}
  ~Host() { machine_.give_back_host(at_); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  uint8_t* at(uint64_t offset) const { return at_ + offset; }

 private:
  Machine& machine_;
  uint8_t* at_;
};

class MoverContract : public ::testing::TestWithParam<MachineKind> {
 protected:
  void SetUp() override {
    machine_ = make_machine(GetParam(), 1);
    if (machine_ == nullptr) GTEST_SKIP() << "this machine has no CUDA device";
    scene_.emplace(*machine_);
  }
  void TearDown() override {
    mover_.reset();
    scene_.reset();
  }
  void make() {
    auto made = machine_->make(scene_->options);
    ASSERT_TRUE(made) << made.error().to_string();
    mover_ = *std::move(made);
    scene_->fill(7);
  }
  // A group of two layers, both of two planes of 4 KiB.
  void make_plain() {
    scene_->make_plain(2, 4096, 6);
    make();
  }
  std::shared_ptr<Transfer> load(const MoveRequest& request) {
    auto begun = mover_->load(request);
    EXPECT_TRUE(begun) << begun.error().to_string();
    return begun ? *begun : nullptr;
  }
  std::shared_ptr<Transfer> store(const MoveRequest& request) {
    auto begun = mover_->store(request);
    EXPECT_TRUE(begun) << begun.error().to_string();
    return begun ? *begun : nullptr;
  }

  std::unique_ptr<Machine> machine_;
  std::optional<Scene> scene_;
  std::unique_ptr<Mover> mover_;
};

Bytes noise(uint64_t bytes, uint64_t seed) {
  Bytes made(bytes);
  for (uint8_t& byte : made) byte = static_cast<uint8_t>(base::next_random(seed));
  return made;
}

TEST_P(MoverContract, AStoredBlockIsItsPlanesOneAfterTheOther) {
  make_plain();
  const uint64_t bytes = scene_->block_bytes(0);
  ASSERT_EQ(mover_->layout(0).block_bytes(), bytes);
  const Host host(*machine_, 2 * bytes);
  const HostPiece pieces[2] = {{host.at(0), bytes}, {host.at(bytes), bytes}};
  const Item items[2] = {{4, {pieces, 1}, 0}, {1, {pieces + 1, 1}, 0}};
  const auto stored = store({.items = items});
  ASSERT_TRUE(stored->wait(kForever));
  for (const uint32_t i : {0U, 1U}) {
    const Bytes expected = scene_->block(0, items[i].page);
    EXPECT_EQ(std::memcmp(host.at(i * bytes), expected.data(), bytes), 0);
    EXPECT_EQ(stored->outcome_of(i).sum, base::word_sum(expected));
  }
  EXPECT_EQ(scene_->difference(), "");
}

TEST_P(MoverContract, ALoadedBlockIsInItsPageAndNowhereElse) {
  scene_->make_groups(3, 2, false);
  make();
  for (const uint32_t group : {0U, 1U}) {
    const uint64_t bytes = scene_->block_bytes(group);
    const Bytes block = noise(bytes, 5 + group);
    const Host host(*machine_, bytes);
    std::memcpy(host.at(0), block.data(), bytes);
    const HostPiece piece{host.at(0), bytes};
    const Item item{1, {&piece, 1}, base::word_sum(block)};
    const auto loaded = load({.group = group, .items = {&item, 1}});
    ASSERT_TRUE(loaded->wait(kForever)) << loaded->wait(0).error().to_string();
    scene_->put(group, 1, block);
    EXPECT_EQ(scene_->difference(), "");
  }
}

TEST_P(MoverContract, EveryFlippedBitIsNoticed) {
  scene_->make_plain(1, 64, 3);
  make();
  const uint64_t bytes = scene_->block_bytes(0);
  ASSERT_EQ(bytes, 128U);
  const Bytes block = noise(bytes, 9);
  const Host host(*machine_, bytes);
  const HostPiece piece{host.at(0), bytes};
  const Item item{2, {&piece, 1}, base::word_sum(block)};
  for (uint64_t bit = 0; bit < bytes * 8; ++bit) {
    std::memcpy(host.at(0), block.data(), bytes);
    host.at(0)[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    const auto loaded = load({.items = {&item, 1}});
    const Result<void> outcome = loaded->wait(kForever);
    ASSERT_FALSE(outcome) << bit;
    ASSERT_EQ(outcome.error().code(), Errc::corrupt);
  }
  EXPECT_EQ(mover_->counters().wrong_blocks.load(), bytes * 8);
}

TEST_P(MoverContract, GoodItemsOfACorruptTransferStayGood) {
  make_plain();
  const uint64_t bytes = scene_->block_bytes(0);
  const Host host(*machine_, 3 * bytes);
  HostPiece pieces[3];
  Item items[3];
  for (uint32_t i = 0; i < 3; ++i) {
    const Bytes block = noise(bytes, 20 + i);
    std::memcpy(host.at(i * bytes), block.data(), bytes);
    pieces[i] = {host.at(i * bytes), bytes};
    items[i] = {i, {&pieces[i], 1}, base::word_sum(block)};
  }
  host.at(bytes)[bytes - 1] ^= 0x80;
  const auto loaded = load({.items = items});
  const Result<void> outcome = loaded->wait(kForever);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().value(), 1U);
  EXPECT_FALSE(loaded->outcome_of(0).error);
  EXPECT_EQ(loaded->outcome_of(1).error, Errc::corrupt);
  EXPECT_FALSE(loaded->outcome_of(2).error);
}

TEST_P(MoverContract, ABlockMayBeInManyPieces) {
  make_plain();
  const uint64_t bytes = scene_->block_bytes(0);
  const Bytes block = noise(bytes, 31);
  const Host host(*machine_, 4 * bytes);
  // Pieces end in the middle of planes, and lie in no order.
  std::vector<HostPiece> pieces;
  uint64_t done = 0, place = 3 * bytes;
  for (const uint64_t size : {uint64_t{16}, uint64_t{4096}, uint64_t{48}, uint64_t{8192},
                              bytes - 16 - 4096 - 48 - 8192}) {
    place -= (size + 15) / 16 * 16 + 32;
    std::memcpy(host.at(place), block.data() + done, size);
    pieces.push_back({host.at(place), size});
    done += size;
  }
  const Item item{5, pieces, base::word_sum(block)};
  const auto loaded = load({.items = {&item, 1}});
  ASSERT_TRUE(loaded->wait(kForever)) << loaded->wait(0).error().to_string();
  scene_->put(0, 5, block);
  EXPECT_EQ(scene_->difference(), "");
}

TEST_P(MoverContract, AfterItsGateALayerIsThere) {
  scene_->make_plain(4, 1024, 3);
  make();
  const uint64_t bytes = scene_->block_bytes(0);
  const Bytes block = noise(bytes, 41);
  const Host host(*machine_, 2 * bytes);
  std::memcpy(host.at(0), block.data(), bytes);
  const HostPiece piece{host.at(0), bytes};
  const Item item{0, {&piece, 1}, base::word_sum(block)};
  const uint64_t compute = machine_->make_stream();
  const auto loaded = load({.items = {&item, 1}, .layers_at_once = 1});
  scene_->put(0, 0, block);
  const Layout& layout = mover_->layout(0);
  for (uint32_t layer = 0; layer < 4; ++layer) {
    ASSERT_TRUE(mover_->gate(*loaded, layer, compute));
    machine_->finish(compute);
    for (const LaidPlane& plane : layout.planes_of(layer, layer + 1)) {
      Bytes now(plane.shape.bytes);
      machine_->read(now.data(), plane.page(0), now.size());
      EXPECT_EQ(std::memcmp(now.data(), block.data() + plane.begin, now.size()), 0) << layer;
    }
  }
  EXPECT_EQ(mover_->gate(*loaded, 4, compute).error().code(), Errc::out_of_range);
  EXPECT_EQ(mover_->event(*loaded, 0).value() != 0, machine_->is_device());
  EXPECT_TRUE(loaded->wait(kForever));
}

TEST_P(MoverContract, TheGateOfTheLastLayerOpensLast) {
  scene_->make_plain(3, uint64_t{1} << 20U, 1);
  make();
  const uint64_t bytes = scene_->block_bytes(0);
  const Host host(*machine_, bytes);
  const uint64_t compute = machine_->make_stream();
  const HostPiece piece{host.at(0), bytes};
  const Item item{0, {&piece, 1}, 0};
  const LaidPlane& last = mover_->layout(0).planes().back();
  for (uint8_t round = 1; round <= 5; ++round) {
    std::memset(host.at(0), round, bytes);
    const auto loaded = load({.items = {&item, 1}, .check = false, .layers_at_once = 1});
    ASSERT_TRUE(mover_->gate(*loaded, 2, compute));
    machine_->finish(compute);
    // Its last byte comes after everything else.
    uint8_t byte = 0;
    machine_->read(&byte, last.page(0) + last.shape.bytes - 1, 1);
    EXPECT_EQ(byte, round);
    ASSERT_TRUE(loaded->wait(kForever));
  }
}

TEST_P(MoverContract, ALoadWaitsForTheStreamThatReadsThePages) {
  if (!machine_->is_device()) GTEST_SKIP() << "a CPU has no streams";
  scene_->make_plain(1, 2048, 2);
  make();
  const uint64_t bytes = scene_->block_bytes(0);
  const Bytes before = scene_->block(0, 0), block = noise(bytes, 51);
  const Host host(*machine_, bytes);
  std::memcpy(host.at(0), block.data(), bytes);
  const HostPiece piece{host.at(0), bytes};
  const Item item{0, {&piece, 1}, base::word_sum(block)};
  const uint64_t compute = machine_->make_stream();
  const uint64_t packed = machine_->take_pages(bytes);
  for (int round = 0; round < 20; ++round) {
    scene_->fill(7);
    const uint32_t page = 0;
    const auto read = mover_->pack(Way::from_pages, 0, {&page, 1}, packed, compute);
    ASSERT_TRUE(read);
    const auto loaded = load({.items = {&item, 1}, .after_stream = compute});
    ASSERT_TRUE(loaded->wait(kForever));
    machine_->finish(compute);
    Bytes now(bytes);
    machine_->read(now.data(), packed, bytes);
    ASSERT_EQ(now, before) << "the load was faster than the reader";
    ASSERT_TRUE((*read)->wait(kForever));
  }
  machine_->give_back_pages(packed);
}

TEST_P(MoverContract, PartBlocksAreCopiedOnTheDevice) {
  for (const bool odd : {false, true}) {
    scene_.emplace(*machine_);
    mover_.reset();
    scene_->make_groups(odd ? 11 : 12, 2, odd);
    make();
    const BlockOfGroup copies[2] = {{0, 0, 1, 1}, {1, 1, 0, 2}};
    for (const BlockOfGroup& copy : copies) scene_->copy(copy);
    const auto copied = mover_->copy(copies, {});
    ASSERT_TRUE(copied) << copied.error().to_string();
    ASSERT_TRUE((*copied)->wait(kForever));
    EXPECT_EQ(scene_->difference(), "");
    mover_.reset();
  }
}

TEST_P(MoverContract, GatherAndScatterAreOpposites) {
  for (const bool odd : {false, true}) {
    scene_.emplace(*machine_);
    scene_->make_groups(odd ? 21 : 22, 1, odd);
    make();
    const uint64_t bytes = scene_->block_bytes(0);
    const uint64_t packed = machine_->take_pages(2 * bytes);
    const uint32_t pages[2] = {1, 0}, other_pages[2] = {0, 1};
    const Bytes one = scene_->block(0, 1), zero = scene_->block(0, 0);
    const auto gathered = mover_->pack(Way::from_pages, 0, pages, packed, kOwnStream);
    ASSERT_TRUE(gathered);
    ASSERT_TRUE((*gathered)->wait(kForever));
    const auto scattered = mover_->pack(Way::to_pages, 0, other_pages, packed, kOwnStream);
    ASSERT_TRUE(scattered);
    ASSERT_TRUE((*scattered)->wait(kForever));
    scene_->put(0, 0, one);
    scene_->put(0, 1, zero);
    EXPECT_EQ(scene_->difference(), "");
    machine_->give_back_pages(packed);
    mover_.reset();
  }
}

TEST_P(MoverContract, MemoryThatTheDeviceDoesNotReachGoesThroughTheArena) {
  scene_->make_plain(2, 4096, 6);
  scene_->options.arena_bytes = 3 * 16384;  // Some blocks at a time, not all.
  make();
  const uint64_t bytes = scene_->block_bytes(0);
  std::vector<Bytes> blocks;
  std::vector<HostPiece> pieces(6);
  std::vector<Item> items(6);
  // Unpinned, and misaligned.
  Bytes plain(6 * bytes + 64);
  uint8_t* const at = plain.data() + 1;
  for (uint32_t i = 0; i < 6; ++i) {
    blocks.push_back(noise(bytes, 60 + i));
    std::memcpy(at + i * bytes, blocks[i].data(), bytes);
    pieces[i] = {at + i * bytes, bytes};
    items[i] = {5 - i, {&pieces[i], 1}, base::word_sum(blocks[i])};
    scene_->put(0, 5 - i, blocks[i]);
  }
  const auto loaded = load({.items = items});
  ASSERT_TRUE(mover_->gate(*loaded, 1, machine_->is_device() ? machine_->make_stream() : 0));
  ASSERT_TRUE(loaded->wait(kForever)) << loaded->wait(0).error().to_string();
  EXPECT_EQ(scene_->difference(), "");
  std::fill(plain.begin(), plain.end(), 0);
  const auto stored = store({.items = items});
  ASSERT_TRUE(stored->wait(kForever));
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(std::memcmp(at + i * bytes, blocks[i].data(), bytes), 0) << i;
    EXPECT_EQ(stored->outcome_of(i).sum, items[i].sum);
  }
  EXPECT_EQ(mover_->counters().staged_bytes.load(), machine_->is_device() ? 12 * bytes : 0);
}

TEST_P(MoverContract, WithoutAnArenaUnreachableMemoryIsRefused) {
  if (!machine_->is_device()) GTEST_SKIP() << "a CPU reaches all memory";
  make_plain();
  Bytes plain(scene_->block_bytes(0));
  const HostPiece piece{plain.data(), plain.size()};
  const Item item{0, {&piece, 1}, 0};
  const auto begun = mover_->store({.items = {&item, 1}});
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code(), Errc::unsupported);
  EXPECT_EQ(mover_->counters().running.load(), 0U);
}

TEST_P(MoverContract, MoreThanTheRingHasRoomForStillArrives) {
  scene_->make_plain(8, 512, 128);
  scene_->options.ring_bytes = 65'536;  // 1,365 pieces; the transfer has 2,048.
  make();
  const uint64_t bytes = scene_->block_bytes(0);
  const Host host(*machine_, 128 * bytes);
  std::vector<HostPiece> pieces(128);
  std::vector<Item> items(128);
  for (uint32_t i = 0; i < 128; ++i) {
    const Bytes block = noise(bytes, 100 + i);
    std::memcpy(host.at(i * bytes), block.data(), bytes);
    pieces[i] = {host.at(i * bytes), bytes};
    items[i] = {i, {&pieces[i], 1}, base::word_sum(block)};
    scene_->put(0, i, block);
  }
  const auto loaded = load({.items = items, .layers_at_once = 0});
  ASSERT_TRUE(loaded->wait(kForever)) << loaded->wait(0).error().to_string();
  EXPECT_EQ(scene_->difference(), "");
}

TEST_P(MoverContract, LongRunsGoInBatchesAndAreSummed) {
  scene_->make_plain(2, uint64_t{96} << 10U, 3);
  scene_->options.batch_from_bytes = uint64_t{64} << 10U;
  make();
  const uint64_t bytes = scene_->block_bytes(0);
  const Host host(*machine_, bytes);
  const Bytes block = noise(bytes, 71);
  std::memcpy(host.at(0), block.data(), bytes);
  const HostPiece piece{host.at(0), bytes};
  const Item item{1, {&piece, 1}, base::word_sum(block)};
  ASSERT_TRUE(load({.items = {&item, 1}})->wait(kForever));
  scene_->put(0, 1, block);
  EXPECT_EQ(scene_->difference(), "");
  const auto stored = store({.items = {&item, 1}});
  ASSERT_TRUE(stored->wait(kForever));
  EXPECT_EQ(stored->outcome_of(0).sum, item.sum);
  EXPECT_EQ(std::memcmp(host.at(0), block.data(), bytes), 0);
  if (machine_->is_device() && mover_->copier().batch_from_bytes() != UINT64_MAX) {
    EXPECT_EQ(mover_->counters().batched_bytes.load(), 2 * bytes);
  }
  host.at(0)[70'000] ^= 1;
  EXPECT_EQ(load({.items = {&item, 1}})->wait(kForever).error().code(), Errc::corrupt);
}

// Stores the same block ten times, each begun by the end of the one before.
struct Chain {
  Mover* mover;
  Item item;
  std::atomic<int> calls{0};

  static void done(void* user, std::optional<Errc> outcome) {
    auto& self = *static_cast<Chain*>(user);
    EXPECT_FALSE(outcome);
    if (self.calls + 1 < 10) {
      EXPECT_TRUE(self.begin());
    }
    self.calls.fetch_add(1);
    self.calls.notify_all();
  }
  bool begin() {
    return mover->store({.items = {&item, 1}, .done = done, .user = this}).has_value();
  }
};

TEST_P(MoverContract, DoneIsCalledOnceAndMayBeginTheNextTransfer) {
  make_plain();
  const uint64_t bytes = scene_->block_bytes(0);
  const Host host(*machine_, bytes);
  const HostPiece piece{host.at(0), bytes};
  Chain chain{mover_.get(), {3, {&piece, 1}, 0}};
  ASSERT_TRUE(chain.begin());
  for (int seen = 0; seen != 10; seen = chain.calls) chain.calls.wait(seen);
  mover_.reset();
  EXPECT_EQ(chain.calls.load(), 10);
}

TEST_P(MoverContract, BadRequestsAreRefusedWithTheirItem) {
  make_plain();
  const uint64_t bytes = scene_->block_bytes(0);
  const Host host(*machine_, 2 * bytes);
  const HostPiece whole{host.at(0), bytes}, half{host.at(0), bytes / 2}, null{nullptr, bytes};
  const auto refused = [&](uint32_t group, std::vector<Item> items, Errc code, uint32_t value) {
    const auto begun = mover_->load({.group = group, .items = items});
    ASSERT_FALSE(begun);
    EXPECT_EQ(begun.error().code(), code);
    EXPECT_EQ(begun.error().value(), value);
  };
  const Item good{0, {&whole, 1}, 0};
  refused(1, {good}, Errc::out_of_range, 1);
  refused(0, {good, {6, {&whole, 1}, 0}}, Errc::out_of_range, 1);
  refused(0, {good, {0, {&whole, 1}, 0}}, Errc::invalid_argument, 1);
  refused(0, {good, {1, {&half, 1}, 0}}, Errc::invalid_argument, 1);
  refused(0, {good, {1, {&null, 1}, 0}}, Errc::invalid_argument, 1);
  refused(0, {good, {1, {}, 0}}, Errc::invalid_argument, 1);
  const BlockOfGroup chain[2] = {{0, 0, 1, 16}, {0, 1, 2, 16}},
                     twice[2] = {{0, 0, 1, 1}, {0, 2, 1, 1}};
  EXPECT_EQ(mover_->copy(chain, {}).error().value(), 1U);
  EXPECT_EQ(mover_->copy(twice, {}).error().value(), 1U);
  EXPECT_EQ(mover_->counters().running.load(), 0U);
}

TEST_P(MoverContract, NothingIsATransferToo) {
  make_plain();
  const auto loaded = load({});
  EXPECT_TRUE(mover_->gate(*loaded, 1, machine_->make_stream()));
  EXPECT_TRUE(loaded->wait(kForever));
}

INSTANTIATE_TEST_SUITE_P(Cpu, MoverContract, ::testing::Values(MachineKind::cpu));
INSTANTIATE_TEST_SUITE_P(FakeDevice, MoverContract, ::testing::Values(MachineKind::fake));
INSTANTIATE_TEST_SUITE_P(Cuda, MoverContract, ::testing::Values(MachineKind::cuda));

}  // namespace
}  // namespace stemma::test
