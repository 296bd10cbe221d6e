// The C ABI as a careless binding would call it: structs made of any bytes, wrong handles, stale
// numbers. Only pointers and lengths are honest (null, or of the stated length), because nobody
// could check those. Every call must answer with a status; the books must balance after it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "input.h"
#include "stemma/stemma.h"

namespace stemma::fuzz {
namespace {

// Mostly its initial value; now and then some of its 32-bit words, struct_size included, are
// anything. Sizes stay below what the memory behind `value` has.
template <class T>
struct Padded {
  T value;
  uint8_t beyond[2048] = {};
};
template <class T>
void scramble(Input& in, Padded<T>& padded) {
  for (uint32_t i = in.below(4); i > 0; --i) {
    const uint32_t word = in.number();
    std::memcpy(reinterpret_cast<uint8_t*>(&padded) + in.below(sizeof(T) / 4) * 4, &word, 4);
  }
  if (in.below(8) == 0) padded.beyond[0] = 1;
}

struct Run {
  explicit Run(const uint8_t* data, size_t size) : in(data, size) {}
  Input in;
  stemma_cache* cache = nullptr;
  std::vector<stemma_lease> leases = {0, 1, ~uint64_t{0}};
  stemma_scope scope{};
  std::vector<uint32_t> tokens;
  std::vector<stemma_media_item> media;
  stemma_priority_range ranges[2] = {};
  stemma_fence fence{[](void*) -> int32_t { return 1; }, nullptr};

  void create() {
    Padded<stemma_group_options> group{STEMMA_GROUP_OPTIONS_INIT};
    group.value.capacity_blocks = 12;
    group.value.block_tokens = 4;
    group.value.block_bytes = 16;
    scramble(in, group);
    group.value.capacity_blocks %= 4096;
    Padded<stemma_options> options{STEMMA_OPTIONS_INIT};
    scramble(in, options);
    options.value.groups = &group.value;
    options.value.group_count = 1;
    options.value.quotas = nullptr;
    options.value.quota_count = in.below(2);
    options.value.index_cells %= 4096;
    options.value.event_capacity %= 64;
    options.value.policy = nullptr;
    options.value.block_io = nullptr;
    options.value.clock = {};
    options.value.closed = nullptr;
    (void)stemma_cache_create(&options.value, &cache);
  }

  stemma_retain retain() {
    Padded<stemma_retain> made{STEMMA_RETAIN_INIT};
    scramble(in, made);
    for (stemma_priority_range& range : ranges) {
      range = {in.number(), in.number(), in.number(), in.below(16) == 0, in.number()};
    }
    made.value.ranges = ranges;
    made.value.range_count = in.below(3);
    // Bytes beyond our own retain struct are not ours to promise.
    made.value.struct_size = std::min<uint32_t>(made.value.struct_size, sizeof(stemma_retain));
    return made.value;
  }

  stemma_prompt prompt() {
    tokens.resize(in.below(40));
    for (uint32_t& token : tokens) token = in.below(3);
    if (in.below(16) == 0 && !tokens.empty()) tokens.back() = in.u32();
    media.resize(in.below(3));
    for (stemma_media_item& item : media) {
      item = {1 + in.below(5),
              in.number(),
              in.number(),
              in.below(3),
              {static_cast<uint8_t>(in.below(2))}};
    }
    return {tokens.data(), tokens.size(), media.data(), media.size()};
  }

  void step() {
    const stemma_lease lease = leases[in.below(static_cast<uint32_t>(leases.size()))];
    const uint32_t n = in.number();
    uint32_t table[64];
    size_t count = 0;
    switch (in.below(16)) {
      case 0:
      case 1: {
        const stemma_prompt words = prompt();
        Padded<stemma_lookup_options> lookup{STEMMA_LOOKUP_OPTIONS_INIT};
        scramble(in, lookup);
        const stemma_retain keep = retain();
        Padded<stemma_lease_options> options{STEMMA_LEASE_OPTIONS_INIT};
        scramble(in, options);
        options.value.lookup = &lookup.value;
        options.value.retain = &keep;
        stemma_lease made = 0;
        if (stemma_cache_lease(cache, &scope, &words, &options.value, &made) == STEMMA_OK) {
          if (leases.size() < 64) leases.push_back(made);
        }
        break;
      }
      case 2: {
        const stemma_prompt words = prompt();
        Padded<stemma_report> report{STEMMA_REPORT_INIT};
        scramble(in, report);
        (void)stemma_cache_lookup(cache, &scope, &words, nullptr, &report.value);
        break;
      }
      case 3: (void)stemma_lease_copies_done(lease); break;
      case 4: (void)stemma_lease_commit(lease, n, nullptr); break;
      case 5: (void)stemma_lease_extend(lease, table, 0); break;
      case 6: (void)stemma_lease_rewind(lease, n); break;
      case 7:
        (void)stemma_lease_block_table(lease, in.below(3), table, in.below(64), n, nullptr);
        break;
      case 8: {
        stemma_lease fork = 0;
        if (stemma_lease_fork(lease, &fork) == STEMMA_OK && leases.size() < 64) {
          leases.push_back(fork);
        }
        break;
      }
      case 9: {
        const stemma_retain keep = retain();
        Padded<stemma_release_options> options{STEMMA_RELEASE_OPTIONS_INIT};
        scramble(in, options);
        options.value.retain = in.below(2) != 0 ? &keep : nullptr;
        options.value.fence = in.below(2) != 0 ? &fence : nullptr;
        (void)stemma_lease_release(lease, &options.value);
        break;
      }
      case 10: (void)stemma_lease_abandon(lease, nullptr); break;
      case 11: (void)stemma_lease_shrink_to(lease, n, nullptr); break;
      case 12: (void)stemma_lease_media_to_process(lease, table, in.below(4), &count); break;
      case 13: (void)stemma_cache_reset(cache, in.below(3)); break;
      case 14: (void)stemma_cache_evict(cache, n, nullptr); break;
      default: (void)stemma_cache_poll(in.below(2) != 0 ? cache : nullptr, nullptr); break;
    }
    if (cache != nullptr) (void)stemma_cache_check_invariants(cache);
  }

  void end() {
    for (const stemma_lease lease : leases) (void)stemma_lease_release(lease, nullptr);
    if (cache != nullptr) (void)stemma_cache_destroy(cache, STEMMA_ON_BUSY_DEFER);
  }
};

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::Run run(data, size);
  run.create();
  for (int i = 0; i < 200 && !run.in.empty(); ++i) run.step();
  run.end();
  return 0;
}
