// How fast do PagedTiers bring 255 blocks of 2 MiB from host memory into an engine's pages, and
// store them, through the block mover and the C libraries? Usage:
// tiers_speed [gpu | cpu] [rounds, 7]
//
// 32 layers with keys and values apart, 32 KiB a page in each plane, in an order of pages that a
// cache chose. Every byte is checked after each restore. Exits with 1 if one is wrong, with 3 if a
// bar of speed was missed, with 77 without a device. With `cpu`: four threads and no device.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#include "stemma/stemma_mover.h"
#include "stemma/stemma_tiers.h"

namespace {

constexpr uint32_t kBlocks = 255, kTokens = 16, kPages = 600, kPlanes = 64;
constexpr uint64_t kPlaneBytes = 32U << 10U, kBlockBytes = kPlanes * kPlaneBytes;

void need(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "WRONG: %s: %s\n", what, stemma_last_error_message());
  std::exit(1);
}
void ok(stemma_status status, const char* what) { need(status == STEMMA_OK, what); }

// Memory of pages: a device's or this machine's.
class Memory {
 public:
  explicit Memory(bool device) {
    if (!device) {
      at_ = reinterpret_cast<uint64_t>(std::aligned_alloc(1U << 21U, kPages * kBlockBytes));
      std::memset(reinterpret_cast<void*>(at_), 0, kPages * kBlockBytes);
      return;
    }
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    need(library != nullptr, "libcuda.so.1");
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      need(function != nullptr, name);
    };
    int (*init)(unsigned int), (*get)(int*, int), (*retain)(void**, int), (*set)(void*);
    int (*take)(uint64_t*, size_t);
    find(init, "cuInit");
    find(get, "cuDeviceGet");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set, "cuCtxSetCurrent");
    find(take, "cuMemAlloc_v2");
    find(to_device_, "cuMemcpyHtoD_v2");
    find(to_host_, "cuMemcpyDtoH_v2");
    find(synchronize_, "cuCtxSynchronize");
    int number = 0;
    void* context = nullptr;
    need(init(0) == 0 && get(&number, 0) == 0 && retain(&context, number) == 0 &&
             set(context) == 0 && take(&at_, kPages * kBlockBytes) == 0,
         "the device's memory");
  }
  uint64_t at() const { return at_; }
  void write(uint64_t offset, const void* from, uint64_t bytes) {
    if (to_device_ == nullptr) {
      std::memcpy(reinterpret_cast<void*>(at_ + offset), from, bytes);
    } else {
      need(to_device_(at_ + offset, from, bytes) == 0 && synchronize_() == 0, "a write");
    }
  }
  void read(void* to, uint64_t offset, uint64_t bytes) {
    if (to_host_ == nullptr) {
      std::memcpy(to, reinterpret_cast<const void*>(at_ + offset), bytes);
    } else {
      need(to_host_(to, at_ + offset, bytes) == 0, "a read");
    }
  }

 private:
  uint64_t at_ = 0;
  int (*to_device_)(uint64_t, const void*, size_t) = nullptr;
  int (*to_host_)(void*, uint64_t, size_t) = nullptr;
  int (*synchronize_)() = nullptr;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

class Bench {
 public:
  explicit Bench(bool device) : device_(device), memory_(device) {
    make_mover();
    stemma_group_options group = STEMMA_GROUP_OPTIONS_INIT;
    group.capacity_blocks = kPages;
    group.block_tokens = kTokens;
    group.block_bytes = kBlockBytes;
    stemma_options options = STEMMA_OPTIONS_INIT;
    options.groups = &group;
    options.group_count = 1;
    ok(stemma_cache_create(&options, &cache_), "the cache");
    stemma_level level = STEMMA_LEVEL_INIT;
    level.capacity_bytes = uint64_t{2} << 30U;
    stemma_stack_options under = STEMMA_STACK_OPTIONS_INIT;
    under.levels = &level;
    under.level_count = 1;
    under.query_ns = under.load_ns = under.store_ns = STEMMA_NEVER;
    under.queue_bytes = uint64_t{2} << 30U;
    under.transfer_bytes = uint64_t{1} << 30U;
    ok(stemma_stack_create(&under, &stack_), "the stack");
    stemma_block_io io = STEMMA_BLOCK_IO_INIT;
    ok(stemma_mover_block_io(mover_, STEMMA_MOVER_NO_STREAM, &io), "the io");
    stemma_paged_tiers_options tiers = STEMMA_PAGED_TIERS_OPTIONS_INIT;
    tiers.groups = &group;
    tiers.group_count = 1;
    tiers.io = &io;
    ok(stemma_mover_layout(mover_, &tiers.layout), "the layout");
    ok(stemma_paged_tiers_create(stack_, &tiers, &tiers_), "the tiers");
    stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
    spec.model = {"bench", 5};
    ok(stemma_scope_make(&spec, &scope_), "the scope");
  }
  ~Bench() {
    ok(stemma_paged_tiers_destroy(tiers_), "the end of the tiers");
    ok(stemma_stack_destroy(stack_), "the end of the stack");
    ok(stemma_cache_destroy(cache_, STEMMA_ON_BUSY_REFUSE), "the end of the cache");
    ok(stemma_mover_destroy(mover_), "the end of the mover");
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool run(int rounds) {
    std::vector<double> stores, flushes, restores;
    for (int round = 0; round < rounds; ++round) {
      set_prompt(round);
      store(stores, flushes);
      ok(stemma_cache_drop_scope(cache_, &scope_, nullptr), "drop");
      restores.push_back(restore());
    }
    stemma_mover_stats stats = {};
    stats.struct_size = sizeof stats;
    ok(stemma_mover_stats_get(mover_, &stats), "stats");
    std::printf("PagedTiers, %u blocks of 2 MiB, %s: loads %llu, stores %llu, staged %llu MiB\n",
                kBlocks, stats.device, static_cast<unsigned long long>(stats.loads),
                static_cast<unsigned long long>(stats.stores),
                static_cast<unsigned long long>(stats.staged_bytes >> 20U));
    const double bytes = static_cast<double>(kBlocks * kBlockBytes) / 1e9;
    std::printf("  store until the call returned %.1f GB/s, until it was kept %.1f GB/s\n",
                bytes / median(stores), bytes / median(flushes));
    const double least = device_ ? 45 : 15;
    bool good = bar("restore, GB/s", bytes / median(restores), least);
    good = bar("store until the call returned, GB/s", bytes / median(stores), least) && good;
    return good;
  }

 private:
  static bool bar(const char* what, double value, double least) {
    const bool met = value >= least;
    std::printf("  bar: %-58s %8.2f, wanted %8.2f or more: %s\n", what, value, least,
                met ? "met" : "MISSED");
    return met;
  }

  void make_mover() {
    std::vector<stemma_mover_plane> planes(kPlanes);
    for (uint32_t i = 0; i < kPlanes; ++i) {
      planes[i].base = memory_.at() + i * kPages * kPlaneBytes;
      planes[i].page_stride = planes[i].run_bytes = kPlaneBytes;
      planes[i].layer = i / 2;
      planes[i].token_dim = STEMMA_MOVER_NO_TOKENS;
    }
    const stemma_mover_group group = {planes.data(), planes.size(), kPages, 0};
    stemma_mover_options options = STEMMA_MOVER_OPTIONS_INIT;
    options.groups = &group;
    options.group_count = 1;
    options.device = device_ ? 0 : STEMMA_MOVER_CPU;
    options.threads = 4;
    options.arena_bytes = device_ ? uint64_t{64} << 20U : 0;
    ok(stemma_mover_create(&options, &mover_), "the mover");
  }

  void set_prompt(int round) {
    words_.resize(kBlocks * kTokens + 1);
    for (size_t i = 0; i < words_.size(); ++i) {
      words_[i] = static_cast<uint32_t>(i * 7 + static_cast<size_t>(round) * 100'000);
    }
    prompt_ = {words_.data(), words_.size(), nullptr, 0};
  }
  // What a block has in a plane.
  std::vector<uint64_t> content(uint32_t block, uint32_t plane) const {
    std::vector<uint64_t> words(kPlaneBytes / 8);
    uint64_t value = (uint64_t{words_[block * kTokens]} << 32U) + plane;
    for (uint64_t& word : words) word = value = value * 6364136223846793005U + 1442695040888963407U;
    return words;
  }
  std::vector<uint32_t> table_of(stemma_lease lease) {
    std::vector<uint32_t> table(kPages);
    uint32_t count = 0;
    ok(stemma_lease_block_table(lease, 0, table.data(), kPages, STEMMA_NO_BLOCK, &count),
       "a table");
    table.resize(count);
    return table;
  }
  static uint64_t place(uint32_t page, uint32_t plane) {
    return (uint64_t{plane} * kPages + page) * kPlaneBytes;
  }

  void store(std::vector<double>& stores, std::vector<double>& flushes) {
    stemma_lease lease = 0;
    uint32_t stored = 0;
    ok(stemma_cache_lease(cache_, &scope_, &prompt_, nullptr, &lease), "a lease");
    const std::vector<uint32_t> table = table_of(lease);
    for (uint32_t block = 0; block < kBlocks; ++block) {
      for (uint32_t plane = 0; plane < kPlanes; ++plane) {
        memory_.write(place(table[block], plane), content(block, plane).data(), kPlaneBytes);
      }
    }
    ok(stemma_lease_commit(lease, kBlocks * kTokens, nullptr), "a commit");
    const auto begin = std::chrono::steady_clock::now();
    ok(stemma_paged_tiers_store(tiers_, &scope_, &prompt_, lease, 0, 50, &stored), "a store");
    stores.push_back(seconds_since(begin));
    ok(stemma_stack_flush(stack_, STEMMA_NEVER, nullptr), "flush");
    flushes.push_back(seconds_since(begin));
    need(stored == kBlocks, "not all was stored");
    ok(stemma_lease_release(lease, nullptr), "a release");
    for (uint32_t block = 0; block < kBlocks; ++block) {
      for (uint32_t plane = 0; plane < kPlanes; ++plane) {
        memory_.write(place(table[block], plane), zeros_.data(), kPlaneBytes);
      }
    }
  }

  double restore() {
    stemma_lookup_options whole = STEMMA_LOOKUP_OPTIONS_INIT;
    whole.allow_copy = 0;
    stemma_lease_options leased = STEMMA_LEASE_OPTIONS_INIT;
    leased.lookup = &whole;
    stemma_restored restored = {};
    const auto begin = std::chrono::steady_clock::now();
    ok(stemma_paged_tiers_restore(tiers_, cache_, &scope_, &prompt_, &leased, &restored),
       "a restore");
    const double took = seconds_since(begin);
    need(restored.restored_tokens == kBlocks * kTokens, "not all came back");
    stemma_lease lease = 0;
    ok(stemma_cache_lease(cache_, &scope_, &prompt_, &leased, &lease), "a lease");
    const std::vector<uint32_t> table = table_of(lease);
    std::vector<uint64_t> now(kPlaneBytes / 8);
    for (uint32_t block = 0; block < kBlocks; ++block) {
      for (uint32_t plane = 0; plane < kPlanes; ++plane) {
        memory_.read(now.data(), place(table[block], plane), kPlaneBytes);
        need(now == content(block, plane), "a block has other bytes");
      }
    }
    ok(stemma_lease_release(lease, nullptr), "a release");
    if (restored.hold != 0) ok(stemma_lease_release(restored.hold, nullptr), "a release");
    ok(stemma_cache_drop_scope(cache_, &scope_, nullptr), "drop");
    return took;
  }

  bool device_;
  Memory memory_;
  std::vector<uint64_t> zeros_ = std::vector<uint64_t>(kPlaneBytes / 8);
  std::vector<uint32_t> words_;
  stemma_prompt prompt_ = {};
  stemma_scope scope_ = {};
  stemma_mover* mover_ = nullptr;
  stemma_cache* cache_ = nullptr;
  stemma_stack* stack_ = nullptr;
  stemma_paged_tiers* tiers_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const bool cpu = argc > 1 && std::strcmp(argv[1], "cpu") == 0;
  if (!cpu && stemma_mover_device_count() == 0) {
    std::printf("no CUDA device, or built without nvcc: nothing was measured\n");
    return 77;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  return Bench(!cpu).run(rounds > 0 ? rounds : 1) ? 0 : 3;
}
