// An engine that loads, computes, stores, aborts and reuses pages on several streams at once, and
// checks every block by its content. It holds to the rules at the top of stemma_mover.h; a planted
// bug breaks one of them, and must be noticed.
//
// Computing is a gather on the compute stream: it reads the pages at a time that only streams and
// events decide. What it read is compared with what the pages should have had. A real device is so
// fast that it would be done before a bug does harm: with a planted bug, its work is held up.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>

#include "base/random.h"
#include "base/word_sum.h"
#include "mover/cuda/cuda_copier.h"
#include "mover/cuda/driver.h"
#include "mover/fake_device.h"
#include "mover/machine.h"
#include "mover/scene.h"

namespace stemma::test {
namespace {

using namespace mover;

constexpr uint32_t kStressedPages = 24;
constexpr uint32_t kStored = 40;  // Blocks in host memory.
constexpr uint32_t kLate = 16;    // Reads that nobody waits for.

enum class Plant {
  none,
  missing_wait,   // Nothing waits for the layers that it reads.
  missing_order,  // Loads do not wait for the readers of their pages.
  early_commit,
  early_drop,
  reused_descriptors
};

struct Findings {
  uint64_t wrong_reads = 0, wrong_stores = 0, wrong_answers = 0, checked = 0;
  uint64_t bad() const { return wrong_reads + wrong_stores + wrong_answers; }
};

class Engine {
 public:
  Engine(Machine& machine, std::unique_ptr<Mover> mover, Scene& scene, uint64_t seed, Plant plant)
      : machine_(machine),
        mover_(std::move(mover)),
        random_(seed),
        plant_(plant),
        bytes_(scene.block_bytes(0)),
        compute_(machine.make_stream()),
        host_(machine.take_host(kStored * bytes_)),
        packed_(machine.take_pages(kStressedPages * bytes_)),
        late_(machine.take_pages(kLate * bytes_)) {
    content_.resize(kStressedPages);
    busy_.resize(kStressedPages);
    for (uint32_t i = 0; i < kStored; ++i) put_stored(i, new_block());
    for (uint32_t page = 0; page < kStressedPages; ++page) content_[page] = scene.block(0, page);
  }
  ~Engine() {
    // A mover that believes in events that have not happened would end before its kernels.
    machine_.finish(compute_);
    mover_.reset();
    machine_.give_back_pages(late_);
    machine_.give_back_host(host_);
    machine_.give_back_pages(packed_);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Findings run(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (below(4)) {
        case 0: load(); break;
        case 1: load(); break;
        case 2: store(); break;
        default: settle(below(2) == 0 ? 1 : kStressedPages);
      }
    }
    settle(kStressedPages);
    for (LateRead& late : late_reads_) check(late);
    return findings_;
  }

 private:
  // One load that runs, and what the engine computes with it.
  struct Running {
    std::shared_ptr<Transfer> transfer;
    std::vector<uint32_t> pages, stored;
    std::vector<Bytes> content;
    std::vector<std::shared_ptr<Transfer>> reads;  // Of each layer; they go to packed_.
    bool corrupt = false;
  };

  // A read of a page that was let go of meanwhile: whoever loads the page next has to wait for it.
  struct LateRead {
    std::shared_ptr<Transfer> transfer;
    Bytes content;
  };

  uint64_t below(uint64_t limit) { return base::next_random(random_) % limit; }
  Bytes new_block() {
    Bytes block(bytes_);
    uint64_t random = base::next_random(random_);
    for (size_t i = 0; i < block.size(); i += 8) {
      const uint64_t word = base::next_random(random);
      std::memcpy(block.data() + i, &word, 8);
    }
    return block;
  }
  void put_stored(uint32_t i, const Bytes& block) {
    std::memcpy(host_ + i * bytes_, block.data(), bytes_);
    if (stored_.size() <= i) stored_.resize(i + 1);
    stored_[i] = block;
  }
  std::vector<uint32_t> free_of(std::vector<bool>& busy, uint32_t count, uint64_t most) {
    std::vector<uint32_t> chosen;
    const uint64_t wanted = 1 + below(most);
    for (uint32_t tries = 0; tries < 4 * count && chosen.size() < wanted; ++tries) {
      const auto one = static_cast<uint32_t>(below(count));
      if (busy[one]) continue;
      busy[one] = true;
      chosen.push_back(one);
    }
    return chosen;
  }

  // Pages get other blocks. Earlier reads of them may still be waiting on the compute stream.
  void load() {
    Running running;
    running.pages = free_of(busy_, kStressedPages, 4);
    if (running.pages.empty()) return;
    running.stored = free_of(stored_busy_, kStored, running.pages.size());
    running.pages.resize(std::min(running.pages.size(), running.stored.size()));
    for (size_t i = running.pages.size(); i < running.stored.size(); ++i) {
      stored_busy_[running.stored[i]] = false;
    }
    running.stored.resize(running.pages.size());
    if (running.pages.empty()) return settle(kStressedPages);
    running.corrupt = below(8) == 0;
    std::vector<HostPiece> pieces(running.pages.size());
    std::vector<Item> items(running.pages.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const uint32_t from = running.stored[i];
      running.content.push_back(stored_[from]);
      pieces[i] = {host_ + from * bytes_, bytes_};
      items[i] = {running.pages[i], {&pieces[i], 1}, base::word_sum(stored_[from])};
    }
    if (running.corrupt) items[0].sum ^= 1;  // The bytes are not those that were stored.
    std::vector<Bytes> others;
    if (plant_ == Plant::early_drop) {
      for (size_t i = 0; i < items.size(); ++i) others.push_back(new_block());
    }
    // The load waits for what the compute stream has now.
    if (plant_ == Plant::early_drop || plant_ == Plant::early_commit) machine_.delay(compute_);
    const auto begun =
        mover_->load({.items = items,
                      .after_stream = plant_ == Plant::missing_order ? kNoStream : compute_,
                      .layers_at_once = static_cast<uint32_t>(below(3))});
    ASSERT_TRUE(begun) << begun.error().to_string();
    running.transfer = *begun;
    // The reader is dropped before the load is over, and others get its memory.
    for (size_t i = 0; i < others.size(); ++i) put_stored(running.stored[i], others[i]);
    compute(running);
    running_.push_back(std::move(running));
    if (plant_ == Plant::early_commit) settle(kStressedPages);
  }

  // Layer by layer: waits for the layer, and reads all pages of the load. With a missing wait, it
  // reads what happens to be there.
  void compute(Running& running) {
    const uint32_t layers = mover_->layout(0).layers();
    for (uint32_t layer = 0; layer < layers; ++layer) {
      if (plant_ == Plant::missing_wait) continue;
      ASSERT_TRUE(mover_->gate(*running.transfer, layer, compute_));
    }
    for (size_t i = 0; i < running.pages.size(); ++i) {
      // Each page has its own place.
      const auto read = mover_->pack(Way::from_pages, 0, {&running.pages[i], 1},
                                     packed_ + running.pages[i] * bytes_, compute_);
      ASSERT_TRUE(read) << read.error().to_string();
      running.reads.push_back(*read);
    }
  }

  // Ends some of the running loads, oldest first: compares, and lets go of pages.
  void settle(uint64_t most) {
    for (; most != 0 && !running_.empty(); --most) {
      Running running = std::move(running_.front());
      running_.pop_front();
      bool good = true;
      if (plant_ != Plant::early_commit) {
        const Result<void> outcome = running.transfer->wait(kForever);
        good = outcome.has_value();
        findings_.wrong_answers += good == running.corrupt ? 1 : 0;
      }
      for (size_t i = 0; i < running.pages.size(); ++i) {
        if (plant_ != Plant::early_commit) (void)running.reads[i]->wait(kForever);
        Bytes read(bytes_);
        machine_.read(read.data(), packed_ + running.pages[i] * bytes_, bytes_);
        ++findings_.checked;
        // Committed: from now on others believe that the page has this block.
        findings_.wrong_reads += good && read != running.content[i] ? 1 : 0;
        content_[running.pages[i]] = running.content[i];
      }
      if (good && machine_.is_device()) read_late(running.pages[0]);
      for (const uint32_t page : running.pages) busy_[page] = false;
      for (const uint32_t from : running.stored) {
        stored_busy_[from] = false;
        if (below(4) == 0) put_stored(from, new_block());
      }
    }
  }

  void read_late(uint32_t page) {
    const uint64_t place = next_late_++ % kLate;
    LateRead& late = late_reads_[place];
    check(late);
    if (plant_ == Plant::missing_order) machine_.delay(compute_);
    const auto read =
        mover_->pack(Way::from_pages, 0, {&page, 1}, late_ + place * bytes_, compute_);
    ASSERT_TRUE(read) << read.error().to_string();
    late = {*read, content_[page]};
  }
  void check(LateRead& late) {
    if (late.transfer == nullptr) return;
    (void)late.transfer->wait(kForever);
    Bytes now(bytes_);
    machine_.read(now.data(), late_ + (&late - late_reads_.data()) * bytes_, bytes_);
    ++findings_.checked;
    findings_.wrong_reads += now == late.content ? 0 : 1;
    late.transfer = nullptr;
  }

  void store() {
    const std::vector<uint32_t> pages = free_of(busy_, kStressedPages, 3);
    std::vector<uint32_t> to = free_of(stored_busy_, kStored, 3);
    const size_t count = std::min(pages.size(), to.size());
    std::vector<HostPiece> pieces(count);
    std::vector<Item> items(count);
    for (size_t i = 0; i < count; ++i) {
      pieces[i] = {host_ + to[i] * bytes_, bytes_};
      items[i] = {pages[i], {&pieces[i], 1}, 0};
    }
    const auto begun = mover_->store({.items = items, .after_stream = compute_});
    ASSERT_TRUE(begun) << begun.error().to_string();
    const bool good = (*begun)->wait(kForever).has_value();
    for (size_t i = 0; i < count; ++i) {
      const Bytes now(host_ + to[i] * bytes_, host_ + (to[i] + 1) * bytes_);
      ++findings_.checked;
      findings_.wrong_stores +=
          good && now == content_[pages[i]] && (*begun)->outcome_of(i).sum == base::word_sum(now)
              ? 0
              : 1;
      stored_[to[i]] = now;
    }
    for (const uint32_t page : pages) busy_[page] = false;
    for (const uint32_t one : to) stored_busy_[one] = false;
  }

  Machine& machine_;
  std::unique_ptr<Mover> mover_;
  uint64_t random_;
  const Plant plant_;
  const uint64_t bytes_;
  const uint64_t compute_;
  uint8_t* const host_;
  const uint64_t packed_, late_;
  std::vector<LateRead> late_reads_ = std::vector<LateRead>(kLate);
  uint64_t next_late_ = 0;
  std::vector<Bytes> content_, stored_;
  std::vector<bool> busy_, stored_busy_ = std::vector<bool>(kStored);
  std::deque<Running> running_;
  Findings findings_;
};

int answers_at_once(cuda::Event) { return 0; }

// Runs the engine on a machine of this kind; none if there is no such machine.
std::optional<Findings> stress(MachineKind kind, uint64_t seed, Plant plant, int steps) {
  const auto machine = make_machine(kind, seed);
  if (machine == nullptr) return std::nullopt;
  Scene scene(*machine);
  scene.make_plain(3, kind == MachineKind::fake ? 1024 : uint64_t{64} << 10U, kStressedPages);
  scene.options.ring_bytes = 65'536;
  scene.options.batch_from_bytes = UINT64_MAX;
  // An event that says at once that it has happened: slots are used again while a kernel reads
  // them, and sums are read before they are written.
  scene.fill(seed);
  auto made =
      machine->make(scene.options, plant == Plant::reused_descriptors ? answers_at_once : nullptr);
  EXPECT_TRUE(made) << made.error().to_string();
  Engine engine(*machine, *std::move(made), scene, seed, plant);
  return engine.run(steps);
}

class EngineStress : public ::testing::TestWithParam<MachineKind> {
 protected:
  static int steps() {
    // More of them: STEMMA_MOVER_STEPS.
    const char* const wanted = std::getenv("STEMMA_MOVER_STEPS");
    return wanted != nullptr ? std::atoi(wanted) : 400;
  }
};

TEST_P(EngineStress, EveryBlockHasItsContent) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto found = stress(GetParam(), seed, Plant::none, steps());
    if (!found) GTEST_SKIP() << "this machine has no CUDA device";
    EXPECT_EQ(found->bad(), 0U) << "seed " << seed << ": " << found->wrong_reads << " reads, "
                                << found->wrong_stores << " stores, " << found->wrong_answers
                                << " answers";
    EXPECT_GT(found->checked, 100U);
  }
}

TEST_P(EngineStress, EveryPlantedBugIsNoticed) {
  if (GetParam() == MachineKind::cpu) GTEST_SKIP() << "a CPU has neither streams nor descriptors";
#ifdef STEMMA_TSAN
  GTEST_SKIP() << "the planted bugs are races, which this sanitizer reports";
#endif
  for (const Plant plant : {Plant::missing_wait, Plant::missing_order, Plant::early_commit,
                            Plant::early_drop, Plant::reused_descriptors}) {
    uint64_t bad = 0;
    for (uint64_t seed = 1; seed <= 5 && bad == 0; ++seed) {
      const auto found = stress(GetParam(), seed, plant, steps());
      if (!found) GTEST_SKIP() << "this machine has no CUDA device";
      bad += found->bad();
    }
    EXPECT_GT(bad, 0U) << "plant " << static_cast<int>(plant);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, EngineStress, ::testing::Values(MachineKind::cpu));
INSTANTIATE_TEST_SUITE_P(FakeDevice, EngineStress, ::testing::Values(MachineKind::fake));
INSTANTIATE_TEST_SUITE_P(Cuda, EngineStress, ::testing::Values(MachineKind::cuda));

}  // namespace
}  // namespace stemma::test
