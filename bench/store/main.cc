// Question: how much of a disk's speed reaches an engine that stores its blocks through
//           stemma_store.h, and how long does it take to learn which of 2,048 keys are there?
// The limit is measured in the same run, in turns: O_DIRECT writes and reads of the same sizes, by
// eight threads, on a file beside the store. Every byte that comes back is compared.
//
// Usage: store_bench [--dir DIR] [--bytes N] [--rounds N]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "flags/flags.h"
#include "stemma/stemma_store.h"

namespace {

constexpr uint64_t kMinute = 60'000'000'000;
constexpr uint32_t kThreads = 8;
constexpr uint32_t kKeyBytes = 36;
constexpr uint32_t kLookups = 2048;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "store_bench: %s (%s)\n", what, stemma_last_error_message());
  std::exit(1);
}
void ok(stemma_status status) { require(status == STEMMA_OK, "a call failed"); }

template <class Body>
double seconds(Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

// Memory whose blocks all differ, aligned for O_DIRECT.
class Blocks {
 public:
  Blocks(uint64_t size, uint32_t count) : size_(size), count_(count) {
    memory_ = static_cast<uint8_t*>(std::aligned_alloc(4096, size * count));
    require(memory_ != nullptr, "no memory");
    std::mt19937_64 random(7);
    for (uint64_t i = 0; i < size * count / 8; ++i) {
      const uint64_t word = random();
      std::memcpy(memory_ + 8 * i, &word, 8);
    }
  }
  ~Blocks() { std::free(memory_); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  uint8_t* at(uint32_t i) { return memory_ + i % count_ * size_; }
  void wipe() { std::memset(memory_, 0, size_ * count_); }
  bool is_as(Blocks& other) { return std::memcmp(memory_, other.memory_, size_ * count_) == 0; }

 private:
  uint64_t size_;
  uint32_t count_;
  uint8_t* memory_;
};

// The limit.
double raw(int file, Blocks& blocks, uint64_t size, uint32_t count, bool writes) {
  return seconds([&] {
    std::atomic<uint32_t> next{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (uint32_t i = next++; i < count; i = next++) {
          const auto at = static_cast<off_t>(i * size);
          const ssize_t moved =
              writes ? pwrite(file, blocks.at(i), size, at) : pread(file, blocks.at(i), size, at);
          require(moved == static_cast<ssize_t>(size), "the disk refuses");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

class Store {
 public:
  Store(const std::string& directory, uint64_t bytes, uint64_t size) {
    stemma_level level = STEMMA_LEVEL_INIT;
    level.kind = STEMMA_LEVEL_DISK;
    level.capacity_bytes = bytes;
    level.where = directory.c_str();
    stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
    options.levels = &level;
    options.level_count = 1;
    options.query_ns = options.load_ns = options.store_ns = kMinute;
    options.transfer_bytes = 256U << 20U;
    ok(stemma_stack_create(&options, &stack_));
    ok(stemma_store_create(stack_, nullptr, &store_));
    stemma_store_layout layout = STEMMA_STORE_LAYOUT_INIT;
    layout.value_bytes = size;
    ok(stemma_store_namespace(store_, "bench", &layout, &space_));
  }
  ~Store() {
    ok(stemma_store_destroy(store_, kMinute));
    ok(stemma_stack_destroy(stack_));
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  static std::vector<uint8_t> keys(uint32_t first, uint32_t count) {
    std::vector<uint8_t> bytes(size_t{count} * kKeyBytes);
    for (uint32_t i = 0; i < count; ++i) {
      std::mt19937_64 random(first + i);
      for (uint32_t b = 0; b < kKeyBytes; ++b) {
        bytes[i * kKeyBytes + b] = static_cast<uint8_t>(random());
      }
    }
    return bytes;
  }
  // In batches of 64 items, as an engine stores a request's blocks. Returns how many are done.
  uint64_t run(uint32_t op, uint32_t first, uint32_t count, Blocks& blocks) {
    constexpr uint32_t kBatch = 64;
    const std::vector<uint8_t> all = keys(first, count);
    std::vector<void*> places(count);
    for (uint32_t i = 0; i < count; ++i) places[i] = blocks.at(i);
    std::vector<stemma_batch> batches;
    for (uint32_t i = 0; i < count; i += kBatch) {
      stemma_store_request request = STEMMA_STORE_REQUEST_INIT;
      request.op = op;
      request.name_space = space_;
      request.count = std::min(kBatch, count - i);
      request.keys = all.data() + size_t{i} * kKeyBytes;
      request.key_size = kKeyBytes;
      request.values = places.data() + i;
      request.timeout_ns = 10 * kMinute;
      batches.emplace_back();
      ok(stemma_store_submit(store_, &request, &batches.back()));
    }
    uint64_t done = 0;
    for (const stemma_batch batch : batches) {
      uint32_t over = 0;
      stemma_store_finished finished{};
      ok(stemma_store_wait(store_, batch, 10 * kMinute, &over, &finished));
      done += finished.done;
    }
    return done;
  }
  uint32_t leading(const std::vector<uint8_t>& bytes, uint32_t count) {
    uint32_t there = 0;
    ok(stemma_store_lookup(store_, space_, bytes.data(), nullptr, kKeyBytes, count, nullptr,
                           &there));
    return there;
  }

 private:
  stemma_stack* stack_ = nullptr;
  stemma_store* store_ = nullptr;
  uint32_t space_ = 0;
};

void moves(const std::string& directory, uint64_t bytes, uint32_t rounds, uint64_t size) {
  const auto count = static_cast<uint32_t>(bytes / 4 / size);
  const std::string beside = directory + "/raw";
  const int file = open(beside.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
  require(file >= 0 && posix_fallocate(file, 0, static_cast<off_t>(size * count)) == 0,
          "no file for the limit: there is no O_DIRECT, or no room");
  Store store(directory + "/store-" + std::to_string(size), bytes, size);
  Blocks from(size, count), to(size, count);
  const double gb = static_cast<double>(size) * count / 1e9;
  // So that neither one writes to fresh places.
  raw(file, from, size, count, true);
  for (uint32_t i = 0; i < 5; ++i) store.run(STEMMA_STORE_PUT, 1'000'000 * (i + 1), count, from);
  std::vector<double> put, put_raw, get, get_raw, put_ratio, get_ratio;
  for (uint32_t round = 0; round < rounds; ++round) {
    const uint32_t first = 10'000'000 + round * count;
    put_raw.push_back(gb / raw(file, from, size, count, true));
    put.push_back(gb / seconds([&] {
                    require(store.run(STEMMA_STORE_PUT, first, count, from) == count,
                            "a put was not done");
                  }));
    get_raw.push_back(gb / raw(file, to, size, count, false));
    to.wipe();
    get.push_back(gb / seconds([&] {
                    require(store.run(STEMMA_STORE_GET, first, count, to) == count,
                            "a get was not done");
                  }));
    require(to.is_as(from), "other bytes came back");
    put_ratio.push_back(put.back() / put_raw.back());
    get_ratio.push_back(get.back() / get_raw.back());
  }
  close(file);
  std::filesystem::remove(beside);
  const auto row = [&](const char* what, const auto& ours, const auto& limit, const auto& ratio) {
    std::printf("%4llu KiB %s  %6.2f GB/s  raw O_DIRECT %6.2f GB/s  %5.2f of it\n",
                static_cast<unsigned long long>(size >> 10U), what, median(ours), median(limit),
                median(ratio));
  };
  row("put", put, put_raw, put_ratio);
  row("get", get, get_raw, get_ratio);
}

void lookups(const std::string& directory, uint32_t rounds) {
  Store store(directory + "/lookups", 256U << 20U, 4096);
  Blocks blocks(4096, kLookups);
  require(store.run(STEMMA_STORE_PUT, 0, kLookups, blocks) == kLookups, "a put was not done");
  const std::vector<uint8_t> there = Store::keys(0, kLookups);
  const std::vector<uint8_t> absent = Store::keys(1'000'000, kLookups);
  std::vector<double> hits, misses, batches;
  for (uint32_t i = 0; i < 20 * rounds; ++i) {
    hits.push_back(1e3 * seconds([&] {
                     require(store.leading(there, kLookups) == kLookups, "a key was not found");
                   }));
    misses.push_back(
        1e3 * seconds([&] { require(store.leading(absent, kLookups) == 0, "a key was found"); }));
    batches.push_back(1e3 * seconds([&] {
                        require(store.run(STEMMA_STORE_CONTAINS, 0, kLookups, blocks) == kLookups,
                                "not found");
                      }));
  }
  std::printf("lookup of 2,048 keys that are there   %.3f ms (slowest %.3f)\n", median(hits),
              *std::max_element(hits.begin(), hits.end()));
  std::printf("the same, of none that is there       %.3f ms (stops at the first)\n",
              median(misses));
  std::printf("the same as batches of 64, and waited %.3f ms\n", median(batches));
}

}  // namespace

int main(int argc, char** argv) {
  std::string directory = ".";
  uint64_t bytes = uint64_t{1} << 30U;
  uint32_t rounds = 8;
  stemma::flags::Flags flags;
  flags.text("--dir", directory);
  flags.whole("--bytes", bytes, uint64_t{64} << 20U);
  flags.whole("--rounds", rounds);
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const std::string wrong = flags.read(words);
  if (!wrong.empty() || flags.help()) {
    std::fprintf(wrong.empty() ? stdout : stderr,
                 "%s\nusage: store_bench [--dir DIR] [--bytes N] [--rounds N]\n", wrong.c_str());
    return wrong.empty() ? 0 : 2;
  }
  directory += "/store_bench-" + std::to_string(getpid());
  std::filesystem::create_directory(directory);
  for (const uint64_t size : {uint64_t{2} << 20U, uint64_t{64} << 10U}) {
    moves(directory, bytes, rounds, size);
  }
  lookups(directory, rounds);
  std::filesystem::remove_all(directory);
  return 0;
}
