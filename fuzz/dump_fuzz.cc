// Dumps as an enemy would write them. The first byte chooses the cache, the rest is the part
// between shape and checksum; this target writes the right magic, version, shape and checksum, so
// that the fuzzer gets past them.
//
// A load is refused and leaves the cache empty and usable, or it gives a cache whose books balance,
// that answers, and whose own dump is believed and comes out the same again.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "input.h"
#include "key/sha256.h"
#include "stemma/cache.h"

namespace stemma::fuzz {
namespace {

GroupOptions group(Attention attention, uint32_t blocks, uint32_t tokens, uint32_t reach = 0,
                   uint32_t sinks = 0) {
  return {.attention = attention,
          .block_tokens = tokens,
          .capacity_blocks = blocks,
          .window_tokens = reach,
          .sink_tokens = sinks,
          .block_bytes = 8};
}

Options shape(uint8_t which) {
  constexpr Attention kFull = Attention::full;
  constexpr Attention kWindow = Attention::window;
  constexpr Attention kRecurrent = Attention::recurrent;
  Options options;
  switch (which % 8) {
    case 0: options.groups = {group(kFull, 16, 4)}; break;
    case 1: options.groups = {group(kFull, 16, 1)}; break;
    case 2: options.groups = {group(kFull, 16, 2), group(kWindow, 9, 2, 5)}; break;
    case 3: options.groups = {group(kFull, 16, 2), group(kFull, 6, 8)}; break;
    case 4: options.groups = {group(kWindow, 12, 2, 3, 1)}; break;
    case 5: options.groups = {group(kFull, 16, 4), group(kRecurrent, 4, 16)}; break;
    case 6: options.groups = {group(kRecurrent, 4, 16)}; break;
    default:
      options.groups = {group(kFull, 6, 8), group(kWindow, 20, 2, 5, 2), group(kRecurrent, 3, 16)};
  }
  options.logits_bytes = (which & 8U) != 0 ? 200 : 0;
  options.event_capacity = (which & 16U) != 0 ? 4 : 0;
  if ((which & 32U) != 0) options.quotas = {{TenantId{1}, 64}};
  static const ManualClock clock;
  options.clock = &clock;
  return options;
}

// The beginning of every dump of this cache.
std::vector<uint8_t> head_of(const PagedCache& empty) {
  std::vector<uint8_t> head = empty.dump();
  head.resize(head.size() - 32 - 8);  // The checksum, no scopes, nothing in order.
  return head;
}

void use(PagedCache& cache, const Scope& scope, std::span<const Token> tokens) {
  const Result<Report> report = cache.lookup(scope, {.tokens = tokens});
  FUZZ_EXPECT(report.has_value() && report->reused_tokens <= tokens.size());
  const uint32_t in_place =
      cache.lookup(scope, {.tokens = tokens}, {.allow_copy = false})->reused_tokens;
  Result<Lease> lease = cache.lease(scope, {.tokens = tokens});
  if (!lease) return;  // Another tenant's scope, or no room.
  // When room is short a lease may do without a part-block.
  FUZZ_EXPECT(lease->reused() <= report->reused_tokens && lease->reused() >= in_place);
  cache.check_invariants();
  if (!lease->copies().empty()) FUZZ_EXPECT(lease->copies_done().has_value());
  FUZZ_EXPECT(lease->commit(lease->length()).has_value());
  FUZZ_EXPECT(lease->release().has_value());
  cache.check_invariants();
}

void run(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const Options options = shape(data[0]);
  PagedCache cache = *PagedCache::create(options);
  std::vector<uint8_t> bytes = head_of(cache);
  const size_t body = bytes.size();
  bytes.insert(bytes.end(), data + 1, data + size);
  const key::Digest digest = key::sha256(bytes);
  bytes.insert(bytes.end(), digest.begin(), digest.end());

  const Result<void> loaded = cache.load(bytes);
  cache.check_invariants();
  if (!loaded) {
    const Stats stats = cache.stats();
    FUZZ_EXPECT(stats.scopes == 0 && stats.leases == 0 && stats.logits_bytes == 0);
    for (uint32_t g = 0; g < stats.group_count; ++g) {
      FUZZ_EXPECT(stats.groups[g].free_blocks == stats.groups[g].capacity_blocks);
    }
  } else {
    const std::vector<uint8_t> again = cache.dump();
    PagedCache second = *PagedCache::create(options);
    FUZZ_EXPECT(second.load(again).has_value());
    second.check_invariants();
    // After a load, dumping and loading again changes nothing.
    PagedCache third = *PagedCache::create(options);
    const std::vector<uint8_t> fixed = second.dump();
    FUZZ_EXPECT(third.load(fixed).has_value());
    FUZZ_EXPECT(third.dump() == fixed);
  }

  // The first scope of the dump, if it has one, and another; prompts out of the dump's own words.
  std::vector<Token> tokens;
  for (size_t i = 1; i + 4 <= size && tokens.size() < 40; i += 4) {
    tokens.push_back((data[i] | data[i + 1] << 8U) & 0xFFFFU);
  }
  std::array<uint8_t, 32> scope{};
  for (size_t i = 0; i < 32 && body + 4 + i + 32 < bytes.size(); ++i)
    scope[i] = bytes[body + 4 + i];
  use(cache, Scope::from_digest(scope), tokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i % 3);
  use(cache, Scope::from_digest(scope), tokens);
  use(cache, Scope::from_digest({}), tokens);
  cache.evict(3);
  cache.check_invariants();
  FUZZ_EXPECT(cache.reset().has_value());
  cache.check_invariants();
  FUZZ_EXPECT(cache.load(PagedCache::create(options)->dump()).has_value());
}

// One honest dump for each shape, as inputs to start from.
void write_seeds(const std::string& folder) {
  for (uint8_t which = 0; which < 8; ++which) {
    const auto kind = static_cast<uint8_t>(which | 8U | (which % 2 == 0 ? 0U : 32U));
    const Options options = shape(kind);
    PagedCache cache = *PagedCache::create(options);
    const size_t head = head_of(cache).size();
    for (uint32_t turn = 0; turn < 3; ++turn) {
      std::array<uint8_t, 32> digest{};
      digest[0] = static_cast<uint8_t>(turn / 2);
      std::vector<Token> tokens;
      for (uint32_t i = 0; i < 11 - turn; ++i) tokens.push_back(i < 5 ? i : i + turn * 16);
      MediaItem item{.offset = 6, .length = 2};
      item.digest.fill(static_cast<uint8_t>(turn));
      Result<Lease> lease =
          cache.lease(Scope::from_digest(digest), {.tokens = tokens, .media = {&item, turn % 2}},
                      {.tenant = TenantId{turn / 2}});
      if (!lease) continue;
      if (!lease->copies().empty()) (void)lease->copies_done();
      (void)lease->commit(5);
      for (GroupIndex g = 0; g < options.groups.size(); ++g) {
        if (lease->draft_checkpoint(g)) (void)lease->commit_checkpoint(g, 5);
      }
      (void)lease->commit(lease->length());
      const float logits[] = {0.5F, 2.0F};
      (void)lease->attach_logits(lease->length(), logits);
    }
    const std::vector<uint8_t> dump = cache.dump();
    std::ofstream out(folder + "/shape_" + std::to_string(which), std::ios::binary);
    out.put(static_cast<char>(kind));
    for (size_t i = head; i + 32 < dump.size(); ++i) out.put(static_cast<char>(dump[i]));
  }
}

}  // namespace
}  // namespace stemma::fuzz

// STEMMA_FUZZ_SEEDS=fuzz/corpus/dump_fuzz writes that folder anew, after a change of the format.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (const char* folder = std::getenv("STEMMA_FUZZ_SEEDS")) {
    stemma::fuzz::write_seeds(folder);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::run(data, size);
  return 0;
}
