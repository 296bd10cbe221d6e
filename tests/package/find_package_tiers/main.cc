// The first steps with tiers: an entry into host memory and a disk and back; blocks of a PagedCache
// out of the tiers of a process that has ended.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <stemma/tier/disk_tier.h>
#include <stemma/tier/faulty_tier.h>
#include <stemma/tier/host_tier.h>
#include <stemma/tier/paged_tiers.h>
#include <stemma/tier/sequence_tiers.h>
#include <stemma/tier/shared_tier.h>
#include <stemma/tier/tier_stack.h>
#ifdef WITH_REDIS
#include <stemma/tier/redis_tier.h>
#endif
#ifdef WITH_SEAL
#include <stemma/tier/key_ring.h>
#include <stemma/tier/sealed_tier.h>
#endif

using namespace stemma;

namespace {

constexpr uint32_t kBlockBytes = 1024;
constexpr uint32_t kBlocks = 32;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

uint64_t in_a_minute() { return Clock::monotonic().now_ns() + 60'000'000'000; }

struct Memory final : BlockIo {
  std::vector<uint8_t> kv = std::vector<uint8_t>(size_t{kBlocks} * kBlockBytes);
  uint8_t* at(BlockId block) { return kv.data() + size_t{to_index(block)} * kBlockBytes; }
  void copy(std::span<const BlockCopy>, Done done, void* user) override {
    done(user, Error(Errc::unsupported, "no copies here"));
  }
  void read(GroupIndex, std::span<const BlockId> blocks, std::span<uint8_t> bytes, Done done,
            void* user) override {
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::memcpy(bytes.data() + i * kBlockBytes, at(blocks[i]), kBlockBytes);
    }
    done(user, {});
  }
  void write(GroupIndex, std::span<const BlockId> blocks, std::span<const uint8_t> bytes, Done done,
             void* user) override {
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::memcpy(at(blocks[i]), bytes.data() + i * kBlockBytes, kBlockBytes);
    }
    done(user, {});
  }
};

std::unique_ptr<tier::TierStack> open(const std::string& directory) {
  auto host = make_host_tier({.capacity_bytes = 4U << 20U});
  auto disk = tier::disk::DiskTier::open(
      {.path = directory, .capacity_bytes = 16U << 20U, .max_entry_bytes = 64U << 10U});
  check(host.has_value() && disk.has_value(), "a host and a disk tier can be opened");
  tier::StackOptions options;
  options.levels.push_back({.tier = *std::move(host)});
  options.levels.push_back({.tier = *std::move(disk)});
  options.query_ns = options.load_ns = 60'000'000'000;  // A busy machine is not a late tier.
  auto stack = tier::TierStack::create(std::move(options));
  check(stack.has_value(), "a stack can be made");
  return *std::move(stack);
}

void one_entry(const std::string& directory) {
  const EntryKey key{.kind = EntryKind::block};
  const EntryInfo info{.begin = 0, .end = 16, .layout = 1, .bytes = 100};
  {
    auto stack = open(directory);
    auto bytes = tier::Payload::make(100);
    std::memset(bytes->data.get(), 42, 100);
    stack->store({key, info, bytes, {}, kDefaultPriority},
                 stack->wanting(key, tier::Sighting::computed));
    check(stack->flush(in_a_minute()), "what was stored is there in time");
  }
  auto stack = open(directory);
  const tier::Wanted wanted{.key = key, .info = info, .tokens = 16};
  const auto where = stack->where({&wanted, 1});
  check(where[0] == 2, "after a restart it is on the disk and not in host memory");
  const auto loaded = stack->load({&wanted, 1}, where);
  check(loaded[0].payload != nullptr && loaded[0].payload->span()[99] == 42, "the bytes are back");
}

uint32_t request(const std::string& directory) {
  Memory memory;
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = kBlocks, .block_bytes = kBlockBytes}};
  auto cache = PagedCache::create(options);
  const auto scope = Scope::make({.model = "digest of the weights"});
  check(cache.has_value() && scope.has_value(), "a cache can be made");
  auto tiers = tier::PagedTiers::create(
      {.cache = &*cache, .io = &memory, .groups = options.groups, .layout = 2}, open(directory));
  check(tiers.has_value(), "tiers go under it");
  const std::vector<Token> words(100, 7);
  auto restored = (*tiers)->restore(*scope, {.tokens = words});
  auto lease = cache->lease(*scope, {.tokens = words}, {.lookup = {.allow_copy = false}});
  check(restored.has_value() && lease.has_value(), "a request can begin");
  std::vector<BlockId> table(lease->block_count(0), kNoBlock);
  check(lease->block_table(0, table, kNoBlock).has_value(), "a lease has blocks");
  for (uint32_t b = 0; b < lease->reused() / 16; ++b) {
    check(memory.at(table[b])[7] == b + 1, "a restored block is the right one");
  }
  for (uint32_t b = lease->reused() / 16; b < table.size(); ++b) {
    std::memset(memory.at(table[b]), static_cast<int>(b + 1), kBlockBytes);
  }
  check(lease->commit(lease->length()).has_value(), "it can be committed");
  check((*tiers)->store(*scope, {.tokens = words}, *lease).has_value(), "and stored");
  check((*tiers)->stack().flush(in_a_minute()), "and is there in time");
  return restored->restored_tokens;
}

}  // namespace

int main() {
  char directory[] = "/tmp/stemma-package-XXXXXX";
  check(mkdtemp(directory) != nullptr, "there is a directory");
  const std::string path = directory;
  one_entry(path);
  const uint32_t first = request(path), second = request(path);
  std::filesystem::remove_all(path);
  check(first == 0 && second == 96, "the second process restores what the first computed");
  const std::string shared = path + "-shared";
  check(tier::shared::SharedTier::open({.path = shared, .capacity_bytes = 1U << 20U}).has_value(),
        "a directory can be shared");
  std::filesystem::remove_all(shared);
#ifdef WITH_REDIS
  const auto place = tier::redis::parse_url("redis://127.0.0.1:1");
  check(place.has_value(), "a URL can be read");
  const auto redis = tier::redis::RedisTier::create({.place = *place});
  check(redis.has_value() && !(*redis)->wait_ready(in_a_minute()), "nobody listens there");
#endif
#ifdef WITH_SEAL
  const std::string keys = path + "-keys";
  std::string why;
  auto ring = tier::KeyRing::open({.path = keys}, why);
  auto host = make_host_tier({.capacity_bytes = 1U << 20U});
  check(ring.has_value() && host.has_value(), "a key directory can be made");
  const auto sealed = tier::make_sealed_tier(*std::move(host), {.keys = *std::move(ring)});
  check(sealed.has_value(), "a tier can be sealed");
  std::filesystem::remove_all(keys);
#endif
  std::printf("%u of 100 tokens restored from tiers\n", second);
}
