// Tiers under a PagedCache: a process reads what an earlier one computed from host memory or disk
// instead of computing it again. The second engine here stands for a restarted process.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "stemma/tier/disk_tier.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/paged_tiers.h"

using namespace stemma;

constexpr uint32_t kBlockBytes = 4096;

struct Engine final : BlockIo {  // 64 blocks of 16 positions; copies with memcpy, so done at once.
  std::vector<uint8_t> kv = std::vector<uint8_t>(size_t{64} * kBlockBytes);
  uint8_t* at(BlockId block) { return kv.data() + size_t{to_index(block)} * kBlockBytes; }
  void copy(std::span<const BlockCopy>, Done done, void* user) override {
    done(user, Error(Errc::unsupported, "blocks are leased whole here"));
  }
  void read(GroupIndex, std::span<const BlockId> b, std::span<uint8_t> to, Done done,
            void* user) override {
    for (size_t i = 0; i < b.size(); ++i)
      std::memcpy(to.data() + i * kBlockBytes, at(b[i]), kBlockBytes);
    done(user, {});
  }
  void write(GroupIndex, std::span<const BlockId> b, std::span<const uint8_t> from, Done done,
             void* user) override {
    for (size_t i = 0; i < b.size(); ++i)
      std::memcpy(at(b[i]), from.data() + i * kBlockBytes, kBlockBytes);
    done(user, {});
  }
};

static void live(const std::string& directory, const std::vector<Token>& words) {
  Engine engine;
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 64, .block_bytes = kBlockBytes}};
  PagedCache cache = *PagedCache::create(options);
  tier::StackOptions stack;  // The fastest first.
  stack.levels.push_back({.tier = *make_host_tier({.capacity_bytes = 16U << 20U})});
  stack.levels.push_back({.tier = *tier::disk::DiskTier::open(
                              {.path = directory, .capacity_bytes = uint64_t{64} << 20U})});
  stack.query_ns = 1'000'000'000;  // A tier that has not answered by then is skipped.
  auto tiers = *tier::PagedTiers::create(
      {.cache = &cache, .io = &engine, .groups = options.groups, .layout = 1},
      *tier::TierStack::create(std::move(stack)));

  const Scope scope = *Scope::make({.model = "digest of the weights"});
  tier::Restored restored = *tiers->restore(scope, {.tokens = words});
  Lease lease = *cache.lease(scope, {.tokens = words}, {.lookup = {.allow_copy = false}});
  restored.hold = {};                    // The lease holds them now.
  lease.commit(lease.length()).value();  // The engine has computed from lease.committed() on.
  tiers->store(scope, {.tokens = words}, lease).value();
  tiers->stack().flush(Clock::monotonic().now_ns() + 10'000'000'000);  // Before the process ends.
  std::printf("%u of %u tokens came out of tiers\n", restored.restored_tokens, lease.length());
}

int main() {
  char directory[] = "/tmp/stemma-tiers-XXXXXX";
  if (mkdtemp(directory) == nullptr) return 1;
  for (int life = 0; life < 2; ++life) live(directory, std::vector<Token>(100, 7));
  std::filesystem::remove_all(directory);
}
