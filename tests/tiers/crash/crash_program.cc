// Usage: crash_program write DIR COUNTS PIPE FIRST SEED     puts and removes entries until it is killed
//        crash_program check DIR EXPECTED                   opens what is left and looks at every entry
//
// `check` exits with 0 if everything is right, otherwise with 1 and a line for each mistake.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string_view>

#include "support/forwarding_files.h"
#include "tier/disk/local_files.h"
#include "tier/disk/page_memory.h"
#include "tiers/crash/crash.h"

namespace stemma::test::crash {
namespace {

using tier::Io;
using tier::IoQueue;
using tier::disk::DiskTier;
using tier::disk::PageMemory;

// Counts the writes of a queue where the test can see them.
class CountingQueue final : public IoQueue {
 public:
  CountingQueue(std::unique_ptr<IoQueue> real, Counts& counts)
      : real_(std::move(real)), counts_(counts) {}
  void start(Io& io) override {
    if (io.kind == Io::Kind::write) counts_.started.fetch_add(1);
    real_->start(io);
  }
  size_t wait(std::span<Io*> ended, uint64_t timeout_ns) override {
    const size_t count = real_->wait(ended, timeout_ns);
    for (size_t i = 0; i < count; ++i) {
      if (ended[i]->kind == Io::Kind::write) counts_.ended.fetch_add(1);
    }
    return count;
  }
  void wake() noexcept override { real_->wake(); }
  std::string_view name() const noexcept override { return real_->name(); }

 private:
  std::unique_ptr<IoQueue> real_;
  Counts& counts_;
};

class CountingFiles final : public ForwardingFiles {
 public:
  explicit CountingFiles(Counts& counts)
      : ForwardingFiles(tier::disk::make_local_files()), counts_(counts) {}
  std::unique_ptr<IoQueue> queue(uint32_t depth) override {
    return std::make_unique<CountingQueue>(real_->queue(depth), counts_);
  }

 private:
  Counts& counts_;
};

void tell(int pipe, Told::What what, uint64_t number) {
  const Told told = {.what = what, .number = number};
  if (::write(pipe, &told, sizeof told) != sizeof told) std::_Exit(3);
}

struct Flight {
  std::shared_ptr<TierBatch> batch;
  PageMemory memory{kBatch * 17 * tier::kPage};
};

int write(const std::string& path, const std::string& counts_path, int pipe, uint64_t next,
          uint64_t seed) {
  const int file = ::open(counts_path.c_str(), O_RDWR | O_CLOEXEC);
  void* shared = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || shared == MAP_FAILED) return 3;
  CountingFiles files(*static_cast<Counts*>(shared));
  auto options = options_for(path);
  options.files = &files;
  auto opened = DiskTier::open(options);
  if (!opened) {
    std::fprintf(stderr, "crash_program: %s\n", opened.error().to_string().c_str());
    return 3;
  }
  DiskTier& tier = **opened;
  std::mt19937_64 random(seed);
  std::vector<Flight> flights(kBatches);
  std::mutex mutex;
  std::condition_variable ended;
  const auto free_flight = [&]() -> Flight* {
    for (Flight& flight : flights) {
      if (!flight.batch || flight.batch->finished()) return &flight;
    }
    return nullptr;
  };
  for (;;) {
    {
      std::unique_lock lock(mutex);
      ended.wait(lock, [&] { return free_flight() != nullptr; });
    }
    Flight& flight = *free_flight();
    if (flight.batch) flight.batch->wait();
    const bool removes = random() % 8 == 0 && next > 2 * kMargin;
    flight.batch = *TierBatch::make(removes ? TierOp::remove : TierOp::put, kBatch);
    // A few wait for syncs; the others keep writing meanwhile.
    flight.batch->durable = &flight - flights.data() < 4;
    std::vector<uint64_t> numbers(kBatch);
    for (uint64_t i = 0; i < kBatch; ++i) {
      numbers[i] = removes ? next - kMargin - random() % kMargin : next++;
      TierItem& item = flight.batch->items()[i];
      item.key = key_of(numbers[i]);
      tell(pipe, removes ? Told::removes : Told::begins, numbers[i]);
      if (removes) continue;
      item.info = info_of(numbers[i]);
      // Some at page borders, some not.
      uint8_t* memory = flight.memory.data() + i * 17 * tier::kPage + (i % 2) * 64;
      fill(numbers[i], memory);
      item.source = {memory, item.info.bytes};
    }
    flight.batch->on_done = [&, pipe, numbers, removes](TierBatch& batch) {
      for (uint64_t i = 0; i < kBatch; ++i) {
        if (batch.items()[i].outcome != TierOutcome::done) continue;
        tell(pipe, removes ? Told::removed : Told::acknowledged, numbers[i]);
      }
      const std::lock_guard lock(mutex);
      ended.notify_one();
    };
    tier.submit(flight.batch);
  }
}

int check(const std::string& path, const std::string& expected_path) {
  std::ifstream in(expected_path, std::ios::binary);
  Expected expected;
  in.read(reinterpret_cast<char*>(&expected), sizeof expected);
  const auto numbers = [&](uint64_t count) {
    std::vector<uint64_t> list(count);
    in.read(reinterpret_cast<char*>(list.data()), static_cast<std::streamsize>(count * 8));
    return std::set<uint64_t>(list.begin(), list.end());
  };
  const std::set<uint64_t> must = numbers(expected.must);
  const std::set<uint64_t> gone = numbers(expected.gone);
  int problems = 0;
  const auto problem = [&](const char* what, uint64_t number) {
    std::printf("%s: %llu\n", what, static_cast<unsigned long long>(number));
    problems = 1;
  };
  if (!in) problem("the list of what is expected cannot be read", 0);
  auto opened = DiskTier::open(options_for(path));
  if (!opened) {
    std::printf("it does not open: %s\n", opened.error().to_string().c_str());
    return 1;
  }
  DiskTier& tier = **opened;
  tier.check_invariants();
  struct stat found = {};
  stat((path + "/" + tier::disk::kSlabName).c_str(), &found);
  if (static_cast<uint64_t>(found.st_size) > kCapacityBytes) problem("slab too large", 0);
  if (tier.stats().used_bytes > kCapacityBytes) problem("capacity exceeded", 0);
  std::vector<uint8_t> bytes(kMostBytes);
  std::vector<uint8_t> right(bytes.size());
  for (uint64_t number = expected.first; number < expected.last; ++number) {
    TierItem item;
    for (const TierOp op : {TierOp::contains, TierOp::get}) {
      const auto batch = *TierBatch::make(op, 1);
      batch->items()[0].key = key_of(number);
      batch->items()[0].info.layout = 5;
      batch->items()[0].into = bytes;
      tier.submit(batch);
      batch->wait();
      item = batch->items()[0];
      if (item.outcome == TierOutcome::absent) break;
    }
    if (item.outcome == TierOutcome::done) {
      fill(number, right.data());
      const bool same = item.info == info_of(number) &&
                        std::memcmp(bytes.data(), right.data(), size_of(number)) == 0;
      if (!same) problem("wrong bytes", number);
      if (gone.contains(number)) problem("removed and there again", number);
    } else {
      if (item.outcome != TierOutcome::absent && item.outcome != TierOutcome::corrupt) {
        problem("neither there nor absent", number);
      }
      if (must.contains(number)) problem("acknowledged and not there", number);
    }
  }
  return problems;
}

}  // namespace
}  // namespace stemma::test::crash

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 6 && words[0] == "write") {
    return stemma::test::crash::write(words[1], words[2], std::stoi(words[3]),
                                      std::stoull(words[4]), std::stoull(words[5]));
  }
  if (words.size() == 3 && words[0] == "check") {
    return stemma::test::crash::check(words[1], words[2]);
  }
  std::fputs("usage: crash_program write DIR COUNTS PIPE FIRST SEED | check DIR EXPECTED\n",
             stderr);
  return 2;
}
