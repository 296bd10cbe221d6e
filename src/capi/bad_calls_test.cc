// Every call answers every mistake with a status and a message that names it, and changes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "support/c_cache.h"

namespace stemma::test {
namespace {

class BadCalls : public CapiFixture {
 protected:
  void SetUp() override {
    CapiFixture::SetUp();
    options.logits_bytes = 1024;
    options.event_capacity = 8;
    create();
    lease = take(words);
    before = books();
  }
  void TearDown() override {
    if (lease != 0) {
      EXPECT_EQ(books(), before) << "a refused call changed something";
      EXPECT_OK(stemma_lease_release(lease, nullptr));
    }
    CapiFixture::TearDown();
  }
  std::string books() {
    const stemma_stats s = stats();
    stemma_positions at{};
    EXPECT_OK(stemma_lease_positions(lease, &at));
    return std::to_string(s.groups[0].free_blocks) + " free, " +
           std::to_string(s.groups[0].cached_blocks) + " cached, " + std::to_string(s.leases) +
           " leases, at " + std::to_string(at.committed) + " of " + std::to_string(at.length) +
           ", room for " + std::to_string(at.capacity);
  }

  std::vector<uint32_t> words = tokens(40).tokens;
  stemma_prompt prompt = c_prompt(words);
  stemma_report report = STEMMA_REPORT_INIT;
  stemma_lease lease = 0;
  std::string before;
};

void no_event(void*, const stemma_event*) {}
void no_block(void*, const stemma_reclaimed_block*, size_t) {}
void no_bytes(void*, const uint8_t*, size_t) {}

// Runs `call` for each kind of number that is not a live lease.
template <class Call>
void for_wrong_leases(stemma_lease released, const Call& call) {
  call(0, STEMMA_INVALID_ARGUMENT, "lease is 0");
  call(~uint64_t{0}, STEMMA_INVALID_ARGUMENT, "no lease");
  call(12345, STEMMA_INVALID_ARGUMENT, "no lease");
  call(released, STEMMA_STALE, "released");
}

TEST_F(BadCalls, EveryLeaseCallKnowsWrongNumbers) {
  const stemma_lease gone = take(tokens(20, 2).tokens);
  ASSERT_OK(stemma_lease_abandon(gone, nullptr));
  before = books();
  for_wrong_leases(gone, [&](stemma_lease l, stemma_status wanted, const char* why) {
    stemma_positions positions{};
    size_t size = 0;
    uint32_t word = 0;
    const float* floats = nullptr;
    stemma_lease fork = 0;
    int64_t slot = 0;
    EXPECT_REFUSED(wanted, why, stemma_lease_positions, l, &positions);
    EXPECT_REFUSED(wanted, why, stemma_lease_report, l, &report);
    EXPECT_REFUSED(wanted, why, stemma_lease_copies, l, nullptr, 0, &size);
    EXPECT_REFUSED(wanted, why, stemma_lease_copies_done, l);
    EXPECT_REFUSED(wanted, why, stemma_lease_copies_failed, l);
    EXPECT_REFUSED(wanted, why, stemma_lease_run_copies, l);
    EXPECT_REFUSED(wanted, why, stemma_lease_shrink_to, l, 0, &word);
    EXPECT_REFUSED(wanted, why, stemma_lease_media_to_process, l, nullptr, 0, &size);
    EXPECT_REFUSED(wanted, why, stemma_lease_logits, l, &floats, &size);
    EXPECT_REFUSED(wanted, why, stemma_lease_extend, l, &word, 1);
    EXPECT_REFUSED(wanted, why, stemma_lease_reserve, l, 1);
    EXPECT_REFUSED(wanted, why, stemma_lease_commit, l, 0, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_lease_adopt_canonical, l, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_lease_fork, l, &fork);
    EXPECT_REFUSED(wanted, why, stemma_lease_rewind, l, 0);
    EXPECT_REFUSED(wanted, why, stemma_lease_draft_checkpoint, l, 0, &word);
    EXPECT_REFUSED(wanted, why, stemma_lease_commit_checkpoint, l, 0, 0);
    EXPECT_REFUSED(wanted, why, stemma_lease_hold_checkpoint, l, 0, 0, &word, &word);
    EXPECT_REFUSED(wanted, why, stemma_lease_attach_logits, l, 0, nullptr, 0);
    EXPECT_REFUSED(wanted, why, stemma_lease_release, l, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_lease_abandon, l, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_lease_block_count, l, 0, &word);
    EXPECT_REFUSED(wanted, why, stemma_lease_block_table, l, 0, &word, 1, 0, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_lease_draft_table, l, 0, &word, 1, 0, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_lease_slot_mapping, l, 0, 0, &slot, 1, -1);
    const stemma_lease both[2] = {lease, l};
    uint32_t lengths[2];
    EXPECT_REFUSED(wanted, why, stemma_context_lengths, both, 2, lengths);
    EXPECT_EQ(stemma_last_error_value(), 1U);
  });
}

TEST_F(BadCalls, EveryCacheCallKnowsWrongPointers) {
  stemma_cache* gone = nullptr;
  ASSERT_OK(stemma_cache_create(&options, &gone));
  ASSERT_OK(stemma_cache_destroy(gone, STEMMA_ON_BUSY_REFUSE));
  struct Case {
    stemma_cache* cache;
    stemma_status status;
    const char* why;
  };
  uint64_t number = 0;
  stemma_pin pin{};
  stemma_stats s{};
  s.struct_size = sizeof s;
  size_t size = 0;
  stemma_lease l = 0;
  const Case cases[] = {
      {nullptr, STEMMA_INVALID_ARGUMENT, "cache is null"},
      {reinterpret_cast<stemma_cache*>(&s), STEMMA_INVALID_ARGUMENT, "no cache"},
      {reinterpret_cast<stemma_cache*>(reinterpret_cast<char*>(cache) + 1), STEMMA_INVALID_ARGUMENT,
       "no cache"},
      {reinterpret_cast<stemma_cache*>(~uintptr_t{0}),  // NOLINT: points nowhere, on purpose
       STEMMA_INVALID_ARGUMENT, "no cache"},
      {gone, STEMMA_STALE, "destroyed"},
  };
  for (const auto& [c, wanted, why] : cases) {
    EXPECT_REFUSED(wanted, why, stemma_cache_destroy, c, 0);
    EXPECT_REFUSED(wanted, why, stemma_cache_lookup, c, &scope, &prompt, nullptr, &report);
    EXPECT_REFUSED(wanted, why, stemma_cache_lease, c, &scope, &prompt, nullptr, &l);
    EXPECT_REFUSED(wanted, why, stemma_cache_pin, c, &scope, &prompt, 1, &pin);
    EXPECT_REFUSED(wanted, why, stemma_cache_unpin, c, 1);
    EXPECT_REFUSED(wanted, why, stemma_cache_end_session, c, 1);
    EXPECT_REFUSED(wanted, why, stemma_cache_set_quota, c, 1, 1);
    EXPECT_REFUSED(wanted, why, stemma_cache_tenant_bytes, c, 1, &number);
    uint32_t tenant = 0;
    EXPECT_REFUSED(wanted, why, stemma_cache_tenant_of, c, &scope, &tenant, &tenant);
    EXPECT_REFUSED(wanted, why, stemma_cache_truncate, c, &scope, &prompt, 0, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_cache_drop_scope, c, &scope, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_cache_reset, c, 0);
    EXPECT_REFUSED(wanted, why, stemma_cache_evict, c, 1, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_cache_reclaim, c, 1, 1, no_block, nullptr, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_cache_stats, c, &s);
    EXPECT_REFUSED(wanted, why, stemma_cache_branch_points, c, &scope, &prompt, nullptr, 0, &size);
    EXPECT_REFUSED(wanted, why, stemma_cache_events, c, 0, 1, no_event, nullptr, &number);
    EXPECT_REFUSED(wanted, why, stemma_cache_event_dump, c, no_event, nullptr, &number);
    EXPECT_REFUSED(wanted, why, stemma_cache_poll, c, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_cache_dump, c, no_bytes, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_cache_load, c, nullptr, 0);
    EXPECT_REFUSED(wanted, why, stemma_cache_check_invariants, c);
  }
}

TEST_F(BadCalls, NullOutputsAndInputsAreNamed) {
  constexpr stemma_status kBad = STEMMA_INVALID_ARGUMENT;
  stemma_lease l = 0;
  size_t size = 0;
  uint64_t number = 0;
  const float* floats = nullptr;
  EXPECT_REFUSED(kBad, "options is null", stemma_cache_create, nullptr, &cache);
  EXPECT_REFUSED(kBad, "out is null", stemma_cache_create, &options, nullptr);
  EXPECT_REFUSED(kBad, "scope is null", stemma_cache_lookup, cache, nullptr, &prompt, nullptr,
                 &report);
  EXPECT_REFUSED(kBad, "prompt is null", stemma_cache_lookup, cache, &scope, nullptr, nullptr,
                 &report);
  EXPECT_REFUSED(kBad, "out is null", stemma_cache_lookup, cache, &scope, &prompt, nullptr,
                 nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_cache_lease, cache, &scope, &prompt, nullptr, nullptr);
  EXPECT_REFUSED(kBad, "scope is null", stemma_cache_lease, cache, nullptr, &prompt, nullptr, &l);
  EXPECT_REFUSED(kBad, "out is null", stemma_cache_pin, cache, &scope, &prompt, 1, nullptr);
  EXPECT_REFUSED(kBad, "scope is null", stemma_cache_drop_scope, cache, nullptr, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_cache_tenant_bytes, cache, 1, nullptr);
  uint32_t tenant = 0;
  EXPECT_REFUSED(kBad, "known is null", stemma_cache_tenant_of, cache, &scope, nullptr, &tenant);
  EXPECT_REFUSED(kBad, "tenant is null", stemma_cache_tenant_of, cache, &scope, &tenant, nullptr);
  EXPECT_REFUSED(kBad, "save is null", stemma_cache_reclaim, cache, 1, 1, nullptr, nullptr,
                 nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_cache_stats, cache, nullptr);
  EXPECT_REFUSED(kBad, "count is null", stemma_cache_branch_points, cache, &scope, &prompt, nullptr,
                 0, nullptr);
  EXPECT_REFUSED(kBad, "each is null", stemma_cache_events, cache, 0, 1, nullptr, nullptr, &number);
  EXPECT_REFUSED(kBad, "next is null", stemma_cache_events, cache, 0, 1, no_event, nullptr,
                 nullptr);
  EXPECT_REFUSED(kBad, "each is null", stemma_cache_event_dump, cache, nullptr, nullptr, &number);
  EXPECT_REFUSED(kBad, "next is null", stemma_cache_event_dump, cache, no_event, nullptr, nullptr);
  EXPECT_REFUSED(kBad, "take is null", stemma_cache_dump, cache, nullptr, nullptr);
  EXPECT_REFUSED(kBad, "bytes is null", stemma_cache_load, cache, nullptr, 4);
  EXPECT_REFUSED(kBad, "out is null", stemma_lease_positions, lease, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_lease_report, lease, nullptr);
  EXPECT_REFUSED(kBad, "count is null", stemma_lease_copies, lease, nullptr, 0, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_lease_copies, lease, nullptr, 3, &size);
  EXPECT_REFUSED(kBad, "count is null", stemma_lease_media_to_process, lease, nullptr, 0, nullptr);
  EXPECT_REFUSED(kBad, "logits is null", stemma_lease_logits, lease, nullptr, &size);
  EXPECT_REFUSED(kBad, "count is null", stemma_lease_logits, lease, &floats, nullptr);
  EXPECT_REFUSED(kBad, "tokens is null", stemma_lease_extend, lease, nullptr, 1);
  EXPECT_REFUSED(kBad, "out is null", stemma_lease_fork, lease, nullptr);
  EXPECT_REFUSED(kBad, "block is null", stemma_lease_draft_checkpoint, lease, 0, nullptr);
  EXPECT_REFUSED(kBad, "logits is null", stemma_lease_attach_logits, lease, 0, nullptr, 4);
  EXPECT_REFUSED(kBad, "count is null", stemma_lease_block_count, lease, 0, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_lease_block_table, lease, 0, nullptr, 3, 0, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_lease_draft_table, lease, 0, nullptr, 3, 0, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_lease_slot_mapping, lease, 0, 0, nullptr, 3, -1);
  EXPECT_REFUSED(kBad, "leases is null", stemma_context_lengths, nullptr, 1, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_context_lengths, &lease, 1, nullptr);
  EXPECT_REFUSED(kBad, "spec is null", stemma_scope_make, nullptr, &scope);
  EXPECT_REFUSED(kBad, "key is null", stemma_content_key_hex, nullptr, nullptr);
}

TEST_F(BadCalls, PromptsAreCheckedBeforeTheyAreRead) {
  const auto look = [&](stemma_status wanted, const char* why) {
    EXPECT_REFUSED(wanted, why, stemma_cache_lookup, cache, &scope, &prompt, nullptr, &report);
    prompt = c_prompt(words);
  };
  prompt.tokens = nullptr;
  look(STEMMA_INVALID_ARGUMENT, "prompt.tokens");
  prompt.token_count = ~size_t{0};
  look(STEMMA_OUT_OF_RANGE, "prompt.token_count");
  prompt.token_count = size_t{1} << 31;
  look(STEMMA_OUT_OF_RANGE, "prompt.token_count");
  prompt.media_count = 1;
  look(STEMMA_INVALID_ARGUMENT, "prompt.media");
  stemma_media_item item{STEMMA_MEDIA_IMAGE, 0, 1, 0, {}};
  prompt.media = &item;
  prompt.media_count = ~size_t{0};
  look(STEMMA_OUT_OF_RANGE, "prompt.media_count");
  for (const uint32_t kind : {0U, 5U, 257U}) {
    item.kind = kind;
    prompt.media = &item, prompt.media_count = 1;
    look(STEMMA_INVALID_ARGUMENT, "stemma_media_kind");
  }
  item = {STEMMA_MEDIA_IMAGE, 0, 1, 2, {}};
  prompt.media = &item, prompt.media_count = 1;
  look(STEMMA_INVALID_ARGUMENT, "causal");
  item = {STEMMA_MEDIA_IMAGE, 39, 2, 0, {}};
  prompt.media = &item, prompt.media_count = 1;
  look(STEMMA_INVALID_ARGUMENT, "beyond the prompt");
  words[7] = 0x8000'0000U;
  look(STEMMA_INVALID_ARGUMENT, "(7)");
  EXPECT_EQ(stemma_last_error_value(), 7U);
}

TEST_F(BadCalls, StructSizesAreCheckedEverywhere) {
  stemma_lookup_options lookup = STEMMA_LOOKUP_OPTIONS_INIT;
  stemma_lease_options taking = STEMMA_LEASE_OPTIONS_INIT;
  stemma_release_options ending = STEMMA_RELEASE_OPTIONS_INIT;
  stemma_retain retain = STEMMA_RETAIN_INIT;
  stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  stemma_stats s{};
  stemma_lease l = 0;
  stemma_cache* other = nullptr;
  for (const uint32_t wrong : {0U, 4U, 0xFFFF'FFFFU}) {
    lookup.struct_size = taking.struct_size = ending.struct_size = retain.struct_size = wrong;
    spec.struct_size = io.struct_size = s.struct_size = report.struct_size = wrong;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_report", stemma_cache_lookup,
                   cache, &scope, &prompt, nullptr, &report);
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_report", stemma_lease_report,
                   lease, &report);
    report.struct_size = sizeof report;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_lookup_options",
                   stemma_cache_lookup, cache, &scope, &prompt, &lookup, &report);
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_lease_options",
                   stemma_cache_lease, cache, &scope, &prompt, &taking, &l);
    taking = STEMMA_LEASE_OPTIONS_INIT;
    taking.lookup = &lookup;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_lookup_options",
                   stemma_cache_lease, cache, &scope, &prompt, &taking, &l);
    taking = STEMMA_LEASE_OPTIONS_INIT;
    taking.retain = &retain;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_retain", stemma_cache_lease,
                   cache, &scope, &prompt, &taking, &l);
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_release_options",
                   stemma_lease_release, lease, &ending);
    ending = STEMMA_RELEASE_OPTIONS_INIT;
    ending.retain = &retain;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_retain", stemma_lease_release,
                   lease, &ending);
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_stats", stemma_cache_stats,
                   cache, &s);
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_scope_spec", stemma_scope_make,
                   &spec, &scope);
    options.block_io = &io;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_block_io", stemma_cache_create,
                   &options, &other);
    options.block_io = nullptr;
    options.struct_size = wrong;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_options", stemma_cache_create,
                   &options, &other);
    options.struct_size = sizeof options;
    group.struct_size = wrong;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_group_options",
                   stemma_cache_create, &options, &other);
    group.struct_size = sizeof group;
  }
  EXPECT_EQ(other, nullptr);
}

TEST_F(BadCalls, OptionsNobodyMayHaveAreNamed) {
  stemma_cache* other = nullptr;
  const auto create_refused = [&](const char* why) {
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, why, stemma_cache_create, &options, &other);
    options = STEMMA_OPTIONS_INIT;
    group = c_group(64);
    options.groups = &group;
    options.group_count = 1;
  };
  options.enabled = 2;
  create_refused("options.enabled");
  options.content_keys = 256;
  create_refused("options.content_keys");
  options.reserved = 1;
  create_refused("options.reserved");
  options.groups = nullptr;
  create_refused("options.groups");
  options.group_count = 0;
  create_refused("options.groups");
  options.group_count = ~size_t{0};
  create_refused("options.group_count");
  options.quota_count = 1;
  create_refused("options.quotas");
  const stemma_tenant_quota quota{1, 1, 100};
  options.quotas = &quota, options.quota_count = ~size_t{0};
  create_refused("options.quota_count");
  options.quotas = &quota, options.quota_count = 1;
  create_refused("reserved of this quota");
  options.pin_share = NAN;
  create_refused("pin_share");
  options.policy = "clairvoyant";
  create_refused("policy");
  group.attention = 256;  // Would be 0 in eight bits.
  create_refused("stemma_attention");
  group.block_tokens = 3;
  create_refused("block_tokens");
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  options.block_io = &io;
  create_refused("block_io.copy");
  const stemma_group_options two[2] = {c_group(64), {}};
  options.groups = two, options.group_count = 2;
  create_refused("struct_size of");
}

TEST_F(BadCalls, RequestOptionsNobodyMayHaveAreNamed) {
  stemma_lookup_options lookup = STEMMA_LOOKUP_OPTIONS_INIT;
  uint32_t* const flags[] = {&lookup.read, &lookup.write, &lookup.allow_copy, &lookup.want_logits,
                             &lookup.reserved};
  const char* const names[] = {"lookup.read", "lookup.write", "lookup.allow_copy",
                               "lookup.want_logits", "lookup.reserved"};
  for (size_t i = 0; i < std::size(flags); ++i) {
    lookup = STEMMA_LOOKUP_OPTIONS_INIT;
    *flags[i] = 256;
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, names[i], stemma_cache_lookup, cache, &scope, &prompt,
                   &lookup, &report);
  }

  stemma_release_options ending = STEMMA_RELEASE_OPTIONS_INIT;
  stemma_retain retain = STEMMA_RETAIN_INIT;
  ending.retain = &retain;
  const auto release_refused = [&](const char* why) {
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, why, stemma_lease_release, lease, &ending);
    retain = STEMMA_RETAIN_INIT;
  };
  retain.priority = 256 + 35;
  release_refused("retain.priority");
  retain.phase = 256;
  release_refused("retain.phase");
  retain.finish = 5;
  release_refused("retain.finish");
  retain.will_return = 2;
  release_refused("retain.will_return");
  retain.reserved = 1;
  release_refused("retain.reserved");
  retain.range_count = 1;
  release_refused("retain.ranges");
  stemma_priority_range range{0, 10, 256 + 35, 0, STEMMA_NEVER};
  retain.ranges = &range, retain.range_count = 1;
  release_refused("priority of this range");
  retain.ranges = &range, retain.range_count = ~size_t{0};
  release_refused("retain.range_count");
  range = {10, 10, 35, 0, STEMMA_NEVER};
  retain.ranges = &range, retain.range_count = 1;
  release_refused("range is empty");
  const stemma_fence fence{nullptr, nullptr};
  ending.fence = &fence;
  release_refused("fence.signalled");
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "fence.signalled", stemma_lease_abandon, lease, &fence);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "on_busy", stemma_cache_reset, cache, 2);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "on_busy", stemma_cache_destroy, cache, 2);
}

TEST_F(BadCalls, ScopesNobodyMayHaveAreNamed) {
  stemma_scope out{};
  const auto make_refused = [&](const stemma_scope_spec& spec, const char* why) {
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, why, stemma_scope_make, &spec, &out);
  };
  stemma_scope_spec good = STEMMA_SCOPE_SPEC_INIT;
  good.model = {"m", 1};
  stemma_scope_spec spec = good;
  spec.model = {nullptr, 0};
  make_refused(spec, "model");
  stemma_bytes stemma_scope_spec::* const texts[] = {
      &stemma_scope_spec::model,       &stemma_scope_spec::kv_types,
      &stemma_scope_spec::layout,      &stemma_scope_spec::rope_and_window,
      &stemma_scope_spec::tenant_salt, &stemma_scope_spec::caller_namespace};
  const char* const names[] = {"spec.model",           "spec.kv_types",    "spec.layout",
                               "spec.rope_and_window", "spec.tenant_salt", "spec.caller_namespace"};
  for (size_t i = 0; i < std::size(texts); ++i) {
    spec = good;
    spec.*texts[i] = {nullptr, 3};
    make_refused(spec, names[i]);
    spec.*texts[i] = {"x", ~size_t{0}};
    make_refused(spec, names[i]);
  }
  spec = good;
  spec.adapter_count = 1;
  make_refused(spec, "spec.adapters");
  stemma_scope_adapter adapter{{"a", 1}, 0, INFINITY};
  spec.adapters = &adapter;
  make_refused(spec, "finite");
  adapter = {{nullptr, 1}, 0, 1};
  make_refused(spec, "name of this adapter");
  spec.adapter_count = ~size_t{0};
  make_refused(spec, "spec.adapter_count");
}

TEST_F(BadCalls, LengthsAndPositionsBeyondTheLeaseAreRefused) {
  uint32_t table[2];
  uint32_t word = 1;
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "(3)", stemma_lease_block_table, lease, 0, table, 2, 0,
                 nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "group", stemma_lease_block_table, lease, 9, table, 2, 0,
                 nullptr);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "", stemma_lease_commit, lease, 41, nullptr);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "", stemma_lease_rewind, lease, 41);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "reused", stemma_lease_shrink_to, lease, 41, nullptr);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "count", stemma_lease_extend, lease, &word, ~size_t{0});
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "count", stemma_lease_attach_logits, lease, 0,
                 reinterpret_cast<const float*>(&word), ~size_t{0});
  EXPECT_REFUSED(STEMMA_OUT_OF_BLOCKS, "too many for group 0", stemma_lease_reserve, lease, 10'000);
  EXPECT_EQ(stemma_last_error_group(), 0U);
  EXPECT_EQ(stemma_last_error_value(), 10'000U / group.block_tokens - group.capacity_blocks);
  EXPECT_EQ(stemma_last_error_never_fits(), 1);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "", stemma_lease_commit, lease, 41, nullptr);
  EXPECT_EQ(stemma_last_error_group(), static_cast<uint32_t>(STEMMA_MAX_GROUPS));
  EXPECT_EQ(stemma_last_error_never_fits(), 0);
  EXPECT_REFUSED(STEMMA_UNSUPPORTED, "", stemma_lease_draft_checkpoint, lease, 0, &word);
  EXPECT_REFUSED(STEMMA_UNSUPPORTED, "block_io", stemma_lease_run_copies, lease);
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "pending", stemma_lease_copies_failed, lease);
  EXPECT_OK(stemma_lease_copies_done(lease)) << "none is as good as all";
  EXPECT_REFUSED(STEMMA_STALE, "", stemma_cache_unpin, cache, 99);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "", stemma_cache_set_quota, cache, 9, 1);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "size", stemma_cache_load, cache,
                 reinterpret_cast<const uint8_t*>(&word), ~size_t{0});
  EXPECT_REFUSED(STEMMA_BUSY, "", stemma_cache_reset, cache, STEMMA_ON_BUSY_REFUSE);
}

TEST_F(BadCalls, BufferTooSmallSaysHowMuchIsNeeded) {
  const stemma_media_item items[2] = {{STEMMA_MEDIA_IMAGE, 2, 3, 0, {1}},
                                      {STEMMA_MEDIA_AUDIO, 10, 3, 0, {2}}};
  prompt.media = items;
  prompt.media_count = 2;
  stemma_lease with_media = 0;
  ASSERT_OK(stemma_cache_lease(cache, &scope, &prompt, nullptr, &with_media));
  uint32_t out[2] = {7, 7};
  size_t count = 0;
  EXPECT_OK(stemma_lease_media_to_process(with_media, nullptr, 0, &count));
  EXPECT_EQ(count, 2U);
  count = 0;
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "(2)", stemma_lease_media_to_process, with_media, out, 1,
                 &count);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(out[0], 7U);
  EXPECT_OK(stemma_lease_media_to_process(with_media, out, 2, &count));
  EXPECT_EQ(out[1], 1U);
  EXPECT_OK(stemma_lease_abandon(with_media, nullptr));
}

TEST_F(BadCalls, DestroyingUnderALeaseIsRefusedOrDeferredAsAsked) {
  EXPECT_REFUSED(STEMMA_BUSY, "(1)", stemma_cache_destroy, cache, STEMMA_ON_BUSY_REFUSE);
  EXPECT_EQ(stemma_last_error_value(), 1U);
  EXPECT_EQ(books(), before);
  stemma_lease fork = 0;
  ASSERT_OK(stemma_lease_fork(lease, &fork));
  EXPECT_REFUSED(STEMMA_BUSY, "(2)", stemma_cache_destroy, cache, STEMMA_ON_BUSY_REFUSE);
  ASSERT_OK(stemma_cache_destroy(cache, STEMMA_ON_BUSY_DEFER));
  EXPECT_REFUSED(STEMMA_STALE, "destroyed", stemma_cache_poll, cache, nullptr);
  // The leases live on, with everything they need.
  EXPECT_OK(stemma_lease_commit(lease, 40, nullptr));
  EXPECT_OK(stemma_lease_extend(fork, words.data(), 4));
  EXPECT_OK(stemma_lease_release(fork, nullptr));
  EXPECT_OK(stemma_lease_release(lease, nullptr));
  EXPECT_REFUSED(STEMMA_STALE, "released", stemma_lease_release, lease, nullptr);
  cache = nullptr;
  lease = 0;
}

TEST_F(BadCalls, MessageStaysUntilTheNextFailureOfThisThread) {
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "", stemma_lease_commit, lease, 41, nullptr);
  const std::string message = stemma_last_error_message();
  EXPECT_OK(stemma_cache_poll(cache, nullptr));
  EXPECT_EQ(stemma_last_error_message(), message);
  EXPECT_STREQ(stemma_status_name(STEMMA_OK), "ok");
  EXPECT_STREQ(stemma_status_name(STEMMA_CORRUPT), "corrupt");
  EXPECT_STREQ(stemma_status_name(-1), "unknown");
  EXPECT_STREQ(stemma_status_name(13), "unknown");
  EXPECT_STREQ(stemma_outcome_name(STEMMA_OUTCOME_FULL_HIT), "full_hit");
  EXPECT_STREQ(stemma_outcome_name(5), "unknown");
  EXPECT_STREQ(stemma_miss_reason_name(STEMMA_MISS_GAVE_UP), "gave_up");
  EXPECT_STREQ(stemma_miss_reason_name(12), "unknown");
}

}  // namespace
}  // namespace stemma::test
