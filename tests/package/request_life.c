/* A whole request life through the C ABI, in C99, with an engine whose KV is one number per
 * position: create, lease, compute, commit, fork, rewind, release; a second request that reuses;
 * statistics; calls that must be refused. Prints what it did; exits 1 at the first answer that is
 * not right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stemma/stemma.h>

#define BLOCKS 64
#define BLOCK_TOKENS 16
#define VOCABULARY 8

static uint64_t kv[BLOCKS * BLOCK_TOKENS];
static unsigned long long engine_copies, fence_questions, closed_calls;

static void die(int line, const char* what) {
  fprintf(stderr, "line %d: %s\n  last error: %s\n", line, what, stemma_last_error_message());
  exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : die(__LINE__, #condition))
#define OK(call) ((call) == STEMMA_OK ? (void)0 : die(__LINE__, #call))
/* The call must be refused with this status, and the message must name the culprit. */
#define REFUSED(status, word, call)                             \
  do {                                                          \
    CHECK((call) == (status));                                  \
    CHECK(strstr(stemma_last_error_message(), (word)) != NULL); \
  } while (0)

/* ---- The engine ------------------------------------------------------------------------------ */

static void copy_block(const stemma_block_copy* copy) {
  memcpy(kv + (size_t)copy->target * BLOCK_TOKENS, kv + (size_t)copy->source * BLOCK_TOKENS,
         copy->tokens * sizeof kv[0]);
  ++engine_copies;
}

static void engine_copy(void* user, stemma_io io, const stemma_block_copy* copies, size_t count) {
  size_t i;
  CHECK(user == kv);
  for (i = 0; i < count; ++i) copy_block(&copies[i]);
  OK(stemma_io_done(io, STEMMA_OK));
  REFUSED(STEMMA_STALE, "ended", stemma_io_done(io, STEMMA_OK));
}

/* Computes [committed, n) and checks all that came before it. */
static void compute(stemma_lease lease, const uint32_t* tokens, uint32_t n) {
  int64_t slots[256];
  stemma_positions at;
  uint64_t state = 0;
  uint32_t i;
  OK(stemma_lease_positions(lease, &at));
  OK(stemma_lease_slot_mapping(lease, 0, 0, slots, n, -1));
  for (i = 0; i < n; ++i) {
    state = state * 31 + tokens[i] + 1;
    CHECK(slots[i] >= 0);
    if (i < at.committed) CHECK(kv[slots[i]] == state);
    kv[slots[i]] = state;
  }
}

static int32_t after_four_questions(void* user) {
  unsigned long long* questions = user;
  return ++*questions >= 4;
}

static void on_closed(void* user) { ++*(unsigned long long*)user; }

static void take_dump(void* user, const uint8_t* bytes, size_t size) {
  stemma_cache* twin = user;
  OK(stemma_cache_load(twin, bytes, size));
}

static void count_event(void* user, const stemma_event* event) {
  char hex[65];
  if (event->kind == STEMMA_EVENT_STORED) {
    *(size_t*)user += event->key_count;
    OK(stemma_content_key_hex(&event->keys[0], hex));
    CHECK(strlen(hex) == 64);
  }
}

static stemma_bytes text(const char* words) {
  stemma_bytes bytes;
  bytes.data = words;
  bytes.size = strlen(words);
  return bytes;
}

static stemma_cache* make_cache(void) {
  stemma_group_options group = STEMMA_GROUP_OPTIONS_INIT;
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  stemma_options options = STEMMA_OPTIONS_INIT;
  stemma_cache* cache = NULL;
  group.capacity_blocks = BLOCKS;
  group.block_tokens = BLOCK_TOKENS;
  group.block_bytes = BLOCK_TOKENS * sizeof kv[0];
  io.user = kv;
  io.copy = engine_copy;
  options.groups = &group;
  options.group_count = 1;
  options.block_io = &io;
  options.logits_bytes = 4096;
  options.event_capacity = 64;
  options.closed = on_closed;
  options.closed_user = &closed_calls;
  OK(stemma_cache_create(&options, &cache));
  return cache;
}

/* ---- The requests ---------------------------------------------------------------------------- */

static uint32_t tokens[256];
static stemma_scope scope;

static stemma_prompt prompt_of(size_t count) {
  stemma_prompt prompt = {tokens, 0, NULL, 0};
  prompt.token_count = count;
  return prompt;
}

static void first_request(stemma_cache* cache) {
  const stemma_prompt prompt = prompt_of(100);
  const uint32_t sampled[4] = {9, 8, 7, 6};
  float logits[VOCABULARY] = {0};
  stemma_lease lease = 0;
  stemma_lease fork = 0;
  stemma_commit commit;
  stemma_positions at;
  uint32_t table[8];
  uint32_t blocks = 0;
  size_t copies = 0;

  OK(stemma_cache_lease(cache, &scope, &prompt, NULL, &lease));
  OK(stemma_lease_copies(lease, NULL, 0, &copies));
  CHECK(copies == 0);
  compute(lease, tokens, 100);
  OK(stemma_lease_commit(lease, 100, &commit));
  CHECK(commit.committed == 100 && commit.published == 6);
  OK(stemma_lease_block_table(lease, 0, table, 8, STEMMA_NO_BLOCK, &blocks));
  CHECK(blocks == 7 && table[7] == STEMMA_NO_BLOCK);
  logits[3] = 1.5f;
  OK(stemma_lease_attach_logits(lease, 100, logits, VOCABULARY));

  /* Four tokens are tried, two of them are taken back. */
  memcpy(tokens + 100, sampled, sizeof sampled);
  OK(stemma_lease_extend(lease, sampled, 4));
  compute(lease, tokens, 104);
  OK(stemma_lease_commit(lease, 104, NULL));
  OK(stemma_lease_rewind(lease, 102));
  OK(stemma_lease_run_copies(lease));
  OK(stemma_lease_positions(lease, &at));
  CHECK(at.committed == 102 && at.length == 102);

  /* A second answer grows from the same place. */
  OK(stemma_lease_fork(lease, &fork));
  CHECK(fork != 0 && fork != lease);
  OK(stemma_lease_run_copies(fork));
  OK(stemma_lease_abandon(fork, NULL));
  REFUSED(STEMMA_STALE, "released", stemma_lease_commit(fork, 1, NULL));

  REFUSED(STEMMA_BUSY, "1", stemma_cache_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  OK(stemma_lease_release(lease, NULL));
  REFUSED(STEMMA_STALE, "released", stemma_lease_release(lease, NULL));
  printf("first request: %u blocks, rewound to %u, %llu copies\n", (unsigned)blocks,
         (unsigned)at.committed, engine_copies);
}

static void second_request(stemma_cache* cache) {
  const stemma_prompt prompt = prompt_of(102);
  stemma_release_options release = STEMMA_RELEASE_OPTIONS_INIT;
  stemma_retain retain = STEMMA_RETAIN_INIT;
  stemma_fence fence = {after_four_questions, NULL};
  stemma_report report = STEMMA_REPORT_INIT;
  stemma_block_copy copies[4];
  stemma_lease lease = 0;
  uint32_t length = 0;
  uint32_t settled = 0;
  size_t count = 0;
  size_t i;

  OK(stemma_cache_lookup(cache, &scope, &prompt, NULL, &report));
  CHECK(report.reused_tokens == 101 && report.outcome == STEMMA_OUTCOME_FULL_HIT);
  OK(stemma_cache_lease(cache, &scope, &prompt, NULL, &lease));
  OK(stemma_lease_copies(lease, copies, 4, &count));
  CHECK(count == 1 && copies[0].tokens == 5);
  REFUSED(STEMMA_WRONG_STATE, "cop", stemma_lease_commit(lease, 102, NULL));
  for (i = 0; i < count; ++i) copy_block(&copies[i]);
  OK(stemma_lease_copies_done(lease));
  compute(lease, tokens, 102);
  OK(stemma_lease_commit(lease, 102, NULL));
  OK(stemma_context_lengths(&lease, 1, &length));
  CHECK(length == 102);

  /* A kernel is still at work: the blocks wait for it. */
  fence.user = &fence_questions;
  retain.priority = 80;
  release.retain = &retain;
  release.fence = &fence;
  OK(stemma_lease_release(lease, &release));
  OK(stemma_cache_poll(cache, &settled));
  CHECK(settled == 0);
  OK(stemma_cache_poll(cache, &settled));
  CHECK(settled == 1 && fence_questions == 4);
  printf("second request: %u of %u tokens reused, %u by copying\n", (unsigned)report.reused_tokens,
         (unsigned)report.prompt_tokens, (unsigned)copies[0].tokens);
}

/* The prompt of the first request again: its logits are still there, so nothing is computed. */
static void third_request(stemma_cache* cache) {
  const stemma_prompt prompt = prompt_of(100);
  stemma_lookup_options lookup = STEMMA_LOOKUP_OPTIONS_INIT;
  stemma_lease_options options = STEMMA_LEASE_OPTIONS_INIT;
  stemma_lease lease = 0;
  const float* logits = NULL;
  size_t count = 0;
  lookup.want_logits = 1;
  options.lookup = &lookup;
  OK(stemma_cache_lease(cache, &scope, &prompt, &options, &lease));
  OK(stemma_lease_logits(lease, &logits, &count));
  CHECK(count == VOCABULARY && logits[3] == 1.5f);
  OK(stemma_lease_release(lease, NULL));
  printf("third request: logits of %u tokens, nothing computed\n", (unsigned)prompt.token_count);
}

static void bad_calls(stemma_cache* cache) {
  stemma_prompt prompt = prompt_of(10);
  stemma_report report = STEMMA_REPORT_INIT;
  stemma_lookup_options lookup = STEMMA_LOOKUP_OPTIONS_INIT;
  stemma_lease lease = 7;
  stemma_media_item item = {9, 0, 1, 0, {0}};
  REFUSED(STEMMA_INVALID_ARGUMENT, "cache is null",
          stemma_cache_lookup(NULL, &scope, &prompt, NULL, &report));
  REFUSED(STEMMA_INVALID_ARGUMENT, "no cache",
          stemma_cache_lookup((stemma_cache*)(void*)&prompt, &scope, &prompt, NULL, &report));
  REFUSED(STEMMA_INVALID_ARGUMENT, "lease is 0", stemma_lease_commit(0, 1, NULL));
  REFUSED(STEMMA_INVALID_ARGUMENT, "no lease", stemma_lease_commit(UINT64_MAX, 1, NULL));
  lookup.struct_size = 4;
  REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_lookup_options",
          stemma_cache_lookup(cache, &scope, &prompt, &lookup, &report));
  lookup.struct_size = sizeof lookup;
  lookup.read = 2;
  REFUSED(STEMMA_INVALID_ARGUMENT, "lookup.read",
          stemma_cache_lookup(cache, &scope, &prompt, &lookup, &report));
  prompt.media = &item;
  prompt.media_count = 1;
  REFUSED(STEMMA_INVALID_ARGUMENT, "media_kind",
          stemma_cache_lookup(cache, &scope, &prompt, NULL, &report));
  prompt = prompt_of((size_t)-1);
  REFUSED(STEMMA_OUT_OF_RANGE, "token_count",
          stemma_cache_lease(cache, &scope, &prompt, NULL, &lease));
  CHECK(lease == 7);
  printf("bad calls: refused, the last with \"%s\"\n", stemma_last_error_message());
}

int main(void) {
  stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
  stemma_stats stats;
  stemma_cache* cache = make_cache();
  stemma_cache* twin = make_cache();
  stemma_prompt prompt = prompt_of(0);
  stemma_lease lease = 0;
  uint64_t next = 0;
  size_t stored = 0;
  uint32_t i;

  CHECK(stemma_version().major == STEMMA_VERSION_MAJOR);
  CHECK(stemma_has_feature("events") == 1 && stemma_has_feature("teleport") == 0);
  spec.model = text("digest of the weights");
  OK(stemma_scope_make(&spec, &scope));
  for (i = 0; i < 256; ++i) tokens[i] = i * 7 % 50;

  first_request(cache);
  second_request(cache);
  third_request(cache);
  bad_calls(cache);

  OK(stemma_cache_events(cache, 0, 1000, count_event, &stored, &next));
  CHECK(stored >= 7);
  stats.struct_size = sizeof stats;
  OK(stemma_cache_stats(cache, &stats));
  CHECK(stats.total.lookups == 3 && stats.leases == 0 && stats.forks == 1 && stats.rewinds == 1);
  CHECK(stats.total.outcomes[STEMMA_OUTCOME_FULL_HIT] == 2);
  OK(stemma_cache_check_invariants(cache));
  OK(stemma_cache_dump(cache, take_dump, twin));

  /* A lease may outlive its cache. */
  prompt = prompt_of(100);
  OK(stemma_cache_lease(twin, &scope, &prompt, NULL, &lease));
  OK(stemma_cache_destroy(twin, STEMMA_ON_BUSY_DEFER));
  REFUSED(STEMMA_STALE, "destroyed", stemma_cache_poll(twin, NULL));
  CHECK(closed_calls == 0);
  OK(stemma_lease_release(lease, NULL));
  CHECK(closed_calls == 1);
  OK(stemma_cache_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  CHECK(closed_calls == 2);
  printf("%llu lookups, %llu of %llu tokens reused; libstemma %s\n",
         (unsigned long long)stats.total.lookups, (unsigned long long)stats.total.reused_tokens,
         (unsigned long long)stats.total.queried_tokens, stemma_version_string());
  return 0;
}
