/* Tiers under a cache through the C ABI, in C99: a process saves a conversation, ends, and the next
 * one finds it on disk; once with an engine whose sequences are opaque, once with one that owns
 * pages. Prints what it did; exits 1 at the first answer that is not right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stemma/stemma_tiers.h>

#define WORDS 200
#define BLOCKS 32
#define BLOCK_BYTES 256
#define MINUTE 60000000000u

static void die(int line, const char* what) {
  fprintf(stderr, "line %d: %s\n  last error: %s\n", line, what, stemma_last_error_message());
  exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : die(__LINE__, #condition))
#define OK(call) ((call) == STEMMA_OK ? (void)0 : die(__LINE__, #call))

/* ---- An engine with one sequence; its KV is its words ---------------------------------------- */

static uint32_t kv[WORDS];
static uint32_t kv_length;

static void held(void* user, uint32_t sequence, stemma_held* out) {
  (void)user, (void)sequence;
  out->end = kv_length;
  out->whole = 1;
}
static stemma_status trim(void* user, uint32_t sequence, uint32_t n) {
  (void)user, (void)sequence;
  kv_length = n;
  return STEMMA_OK;
}
static stemma_status clear(void* user, uint32_t sequence) { return trim(user, sequence, 0); }
static stemma_status size(void* user, uint32_t sequence, uint32_t part, const stemma_range* range,
                          uint64_t* bytes) {
  (void)user, (void)sequence, (void)part;
  *bytes = 4u * (range->end - range->begin);
  return STEMMA_OK;
}
static stemma_status save(void* user, uint32_t sequence, uint32_t part, const stemma_range* range,
                          uint8_t* out, size_t capacity, uint64_t* written) {
  (void)capacity;
  memcpy(out, kv + range->begin, 4u * (range->end - range->begin));
  return size(user, sequence, part, range, written);
}
static stemma_status load(void* user, uint32_t sequence, uint32_t part, const stemma_range* saved,
                          const stemma_range* wanted, const uint8_t* bytes, size_t count) {
  (void)user, (void)sequence, (void)part, (void)count;
  memcpy(kv + wanted->begin, bytes + 4u * (wanted->begin - saved->begin),
         4u * (wanted->end - wanted->begin));
  kv_length = wanted->end;
  return STEMMA_OK;
}

static stemma_stack* open_stack(const char* path) {
  stemma_level levels[2] = {STEMMA_LEVEL_INIT, STEMMA_LEVEL_INIT};
  stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
  stemma_stack* stack = NULL;
  levels[0].capacity_bytes = 4u << 20;
  levels[1].kind = STEMMA_LEVEL_DISK;
  levels[1].where = path;
  levels[1].capacity_bytes = 64u << 20;
  options.levels = levels;
  options.level_count = 2;
  options.query_ns = MINUTE;
  options.transfer_bytes = 1u << 20;
  OK(stemma_stack_create(&options, &stack));
  return stack;
}

static uint32_t sequence_process(const char* path, const stemma_scope* scope,
                                 const stemma_prompt* prompt) {
  stemma_engine_traits traits = STEMMA_ENGINE_TRAITS_INIT;
  stemma_engine engine = STEMMA_ENGINE_INIT;
  stemma_sequence_tiers_options with = STEMMA_SEQUENCE_TIERS_OPTIONS_INIT;
  stemma_sequence_options options = STEMMA_SEQUENCE_OPTIONS_INIT;
  stemma_stack* stack = open_stack(path);
  stemma_sequence_tiers* tiers = NULL;
  stemma_sequences* cache = NULL;
  stemma_fetch fetch = 0;
  stemma_fetched fetched;
  stemma_admitted admitted;
  stemma_turn turn = 0;
  uint32_t available = 0, flushed = 0, i;
  traits.context_tokens = WORDS + 1;
  traits.fork = STEMMA_FORK_RESTORE;
  traits.segments = 1;
  traits.bytes_per_token = 4;
  engine.traits = &traits;
  engine.held = held;
  engine.clear = clear;
  engine.trim = trim;
  engine.size = size;
  engine.save = save;
  engine.load = load;
  with.traits = &traits;
  memset(kv, 0, sizeof kv);
  kv_length = 0;
  OK(stemma_sequence_tiers_create(stack, &with, &tiers));
  OK(stemma_sequence_tiers_listen(tiers, &options));
  OK(stemma_sequences_create(&engine, &options, &cache));

  OK(stemma_sequence_tiers_fetch(tiers, cache, scope, prompt, NULL, NULL, NULL, &fetch));
  OK(stemma_fetch_wait(fetch, MINUTE, &fetched));
  CHECK(fetched.over == 1);
  OK(stemma_fetch_admit(fetch, cache, NULL, &admitted));
  OK(stemma_fetch_end(fetch));
  OK(stemma_sequences_begin(cache, scope, prompt, NULL, &turn));
  OK(stemma_turn_execute(turn, &available));
  for (i = 0; i < available; ++i) CHECK(kv[i] == prompt->tokens[i]);
  memcpy(kv, prompt->tokens, sizeof kv); /* The engine computes the rest. */
  kv_length = WORDS;
  OK(stemma_turn_computed(turn, WORDS, 0));
  OK(stemma_turn_finish(turn, NULL));
  OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 1, NULL));
  OK(stemma_stack_flush(stack, MINUTE, &flushed));
  CHECK(flushed == 1);

  OK(stemma_sequences_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  OK(stemma_sequence_tiers_destroy(tiers));
  OK(stemma_stack_destroy(stack));
  return available;
}

/* ---- An engine that owns pages --------------------------------------------------------------- */

/* One group of layers that sees everything, one that sees a window. */
#define GROUPS 2
static uint8_t pages[GROUPS][BLOCKS * BLOCK_BYTES];

static void read_blocks(void* user, stemma_io io, uint32_t group, const uint32_t* blocks,
                        size_t count, uint8_t* bytes, size_t total) {
  size_t i;
  (void)user, (void)total;
  for (i = 0; i < count; ++i) {
    memcpy(bytes + i * BLOCK_BYTES, pages[group] + blocks[i] * BLOCK_BYTES, BLOCK_BYTES);
  }
  OK(stemma_io_done(io, STEMMA_OK));
}
static void write_blocks(void* user, stemma_io io, uint32_t group, const uint32_t* blocks,
                         size_t count, const uint8_t* bytes, size_t total) {
  size_t i;
  (void)user, (void)total;
  for (i = 0; i < count; ++i) {
    memcpy(pages[group] + blocks[i] * BLOCK_BYTES, bytes + i * BLOCK_BYTES, BLOCK_BYTES);
  }
  OK(stemma_io_done(io, STEMMA_OK));
}

static uint32_t paged_process(const char* path, const stemma_scope* scope,
                              const stemma_prompt* prompt) {
  stemma_group_options groups[GROUPS] = {STEMMA_GROUP_OPTIONS_INIT, STEMMA_GROUP_OPTIONS_INIT};
  stemma_options options = STEMMA_OPTIONS_INIT;
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  stemma_paged_tiers_options with = STEMMA_PAGED_TIERS_OPTIONS_INIT;
  stemma_lookup_options whole_blocks = STEMMA_LOOKUP_OPTIONS_INIT;
  stemma_lease_options leased = STEMMA_LEASE_OPTIONS_INIT;
  stemma_stack* stack = open_stack(path);
  stemma_paged_tiers* tiers = NULL;
  stemma_cache* cache = NULL;
  stemma_restored restored;
  stemma_positions at;
  stemma_lease lease = 0;
  stemma_level_stats stats;
  uint32_t table[BLOCKS], count = 0, b, g, behind = 0;
  for (g = 0; g < GROUPS; ++g) {
    groups[g].capacity_blocks = BLOCKS;
    groups[g].block_bytes = BLOCK_BYTES;
  }
  groups[1].attention = STEMMA_ATTENTION_WINDOW;
  groups[1].window_tokens = 16;
  options.groups = groups;
  options.group_count = GROUPS;
  io.read = read_blocks;
  io.write = write_blocks;
  with.groups = groups;
  with.group_count = GROUPS;
  with.layout = 1;
  with.io = &io;
  whole_blocks.allow_copy = 0;
  leased.lookup = &whole_blocks;
  memset(pages, 0, sizeof pages);
  OK(stemma_cache_create(&options, &cache));
  OK(stemma_paged_tiers_create(stack, &with, &tiers));

  OK(stemma_paged_tiers_restore(tiers, cache, scope, prompt, &leased, &restored));
  OK(stemma_cache_lease(cache, scope, prompt, &leased, &lease));
  if (restored.hold != 0) OK(stemma_lease_release(restored.hold, NULL));
  OK(stemma_lease_positions(lease, &at));
  CHECK(at.reused == restored.restored_tokens);
  for (g = 0; g < GROUPS; ++g) {
    OK(stemma_lease_block_table(lease, g, table, BLOCKS, STEMMA_NO_BLOCK, &count));
    for (b = 0; b < count; ++b) {
      if (table[b] == STEMMA_NO_BLOCK) {
        ++behind; /* The window has passed it: it came back from nowhere and need not. */
      } else if (b < at.reused / 16) {
        CHECK(pages[g][table[b] * BLOCK_BYTES] == b + 1 + g * 100);
      } else {
        memset(pages[g] + table[b] * BLOCK_BYTES, (int)(b + 1 + g * 100), BLOCK_BYTES);
      }
    }
  }
  CHECK(behind == (at.reused == 0 ? 0 : at.reused / 16 - 1));
  OK(stemma_lease_commit(lease, at.length, NULL));
  OK(stemma_paged_tiers_store(tiers, scope, prompt, lease, 0, 50, &count));
  OK(stemma_lease_release(lease, NULL));
  OK(stemma_stack_flush(stack, MINUTE, NULL));
  stats.struct_size = sizeof stats;
  OK(stemma_stack_level_stats(stack, 1, &stats));
  CHECK(strcmp(stats.name, "disk") == 0 && stats.entries != 0 && stats.corrupt == 0);

  OK(stemma_paged_tiers_destroy(tiers));
  OK(stemma_cache_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  OK(stemma_stack_destroy(stack));
  return restored.restored_tokens;
}

int main(int argc, char** argv) {
  stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
  stemma_scope scope;
  uint32_t tokens[WORDS], i, first, second;
  stemma_prompt prompt = {tokens, WORDS, NULL, 0};
  if (argc != 2) {
    fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  for (i = 0; i < WORDS; ++i) tokens[i] = 1000 + i;
  spec.model.data = "model";
  spec.model.size = 5;
  OK(stemma_scope_make(&spec, &scope));
  first = sequence_process(argv[1], &scope, &prompt);
  second = sequence_process(argv[1], &scope, &prompt);
  CHECK(first == 0 && second == WORDS - 1);
  printf("sequences: %u, then %u of %u words were there\n", first, second, (unsigned)WORDS);
  first = paged_process(argv[1], &scope, &prompt);
  second = paged_process(argv[1], &scope, &prompt);
  CHECK(first == 0 && second == WORDS / 16 * 16);
  printf("pages: %u, then %u of %u words were there\n", first, second, (unsigned)WORDS);
  return 0;
}
