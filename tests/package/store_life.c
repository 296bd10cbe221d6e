/* A store of an engine's own keys through the C ABI, in C99: a process puts blocks under hashes,
 * ends, and the next one finds them on disk, bounded and whole. Prints what it did; exits 1 at the
 * first answer that is not right. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stemma/stemma_store.h>

#define BLOCKS 64
#define BLOCK_BYTES 16384
#define KEY_BYTES 36
#define MINUTE 60000000000u

static void die(int line, const char* what) {
  fprintf(stderr, "line %d: %s\n  last error: %s\n", line, what, stemma_last_error_message());
  exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : die(__LINE__, #condition))
#define OK(call) ((call) == STEMMA_OK ? (void)0 : die(__LINE__, #call))

static uint8_t keys[BLOCKS * KEY_BYTES];
static uint8_t blocks[BLOCKS][BLOCK_BYTES];
static void* places[BLOCKS];
static stemma_store_result results[BLOCKS];

static uint8_t stamp(int block, int byte) { return (uint8_t)(block * 37 + byte * 11 + 1); }

/* Submits a batch of all blocks, polls until it has ended, and drains it. */
static stemma_store_finished run(stemma_store* store, uint32_t space, uint32_t op) {
  stemma_store_request request = STEMMA_STORE_REQUEST_INIT;
  stemma_store_finished finished;
  struct pollfd waiting;
  stemma_batch batch = 0;
  size_t count = 0;
  int32_t fd = -1;
  request.op = op;
  request.name_space = space;
  request.count = BLOCKS;
  request.keys = keys;
  request.key_size = KEY_BYTES;
  request.values = places;
  request.results = results;
  request.timeout_ns = MINUTE;
  request.user = 42;
  OK(stemma_store_submit(store, &request, &batch));
  OK(stemma_store_event_fd(store, &fd));
  waiting.fd = fd;
  waiting.events = POLLIN;
  CHECK(poll(&waiting, 1, 60000) == 1);
  OK(stemma_store_drain(store, &finished, 1, &count));
  CHECK(count == 1 && finished.batch == batch && finished.user == 42);
  CHECK(finished.op == op && finished.count == BLOCKS);
  return finished;
}

static void one_life(const char* path, int second) {
  stemma_level levels[2] = {STEMMA_LEVEL_INIT, STEMMA_LEVEL_INIT};
  stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
  stemma_store_layout layout = STEMMA_STORE_LAYOUT_INIT;
  stemma_store_stats stats;
  stemma_stack* stack = NULL;
  stemma_store* store = NULL;
  uint32_t space = 0, other = 0, leading = 0, done = 0;
  int i, b;
  levels[0].kind = STEMMA_LEVEL_HOST;
  levels[0].capacity_bytes = 4u << 20;
  levels[1].kind = STEMMA_LEVEL_DISK;
  levels[1].capacity_bytes = 64u << 20;
  levels[1].where = path;
  options.levels = levels;
  options.level_count = 2;
  /* A busy disk is not a lost one. */
  options.query_ns = options.load_ns = options.store_ns = MINUTE;
  OK(stemma_stack_create(&options, &stack));
  OK(stemma_store_create(stack, NULL, &store));
  layout.layout = 20261118;
  layout.value_bytes = BLOCK_BYTES;
  OK(stemma_store_namespace(store, "store_life/model", &layout, &space));
  layout.layout = 20261119;
  OK(stemma_store_namespace(store, "store_life/model", &layout, &other));
  CHECK(space != other);

  OK(stemma_store_lookup(store, space, keys, NULL, KEY_BYTES, BLOCKS, NULL, &leading));
  CHECK(leading == (second ? BLOCKS : 0));
  if (!second) {
    CHECK(run(store, space, STEMMA_STORE_PUT).done == BLOCKS);
    for (i = 0; i < BLOCKS; ++i) CHECK(results[i].levels == 3);
  }
  memset(blocks, 0, sizeof blocks);
  CHECK(run(store, space, STEMMA_STORE_GET).leading == BLOCKS);
  for (i = 0; i < BLOCKS; ++i) {
    for (b = 0; b < BLOCK_BYTES; ++b) CHECK(blocks[i][b] == stamp(i, b));
  }
  /* Another layout has none of it. */
  CHECK(run(store, other, STEMMA_STORE_GET).done == 0);
  CHECK(results[0].status == STEMMA_ITEM_ABSENT);

  stats.struct_size = sizeof stats;
  OK(stemma_store_stats_read(store, &stats));
  CHECK(stats.gets == BLOCKS && stats.absent == BLOCKS && stats.namespaces == 2);
  OK(stemma_store_flush(store, MINUTE, &done));
  CHECK(done == 1);
  OK(stemma_store_destroy(store, MINUTE));
  OK(stemma_stack_destroy(stack));
  printf("%s life: %d blocks came back\n", second ? "second" : "first", BLOCKS);
}

int main(int argc, char** argv) {
  int i, b;
  if (argc != 2) return 2;
  for (i = 0; i < BLOCKS * KEY_BYTES; ++i) keys[i] = (uint8_t)(i / KEY_BYTES + i % KEY_BYTES * 7);
  for (i = 0; i < BLOCKS; ++i) {
    places[i] = blocks[i];
    for (b = 0; b < BLOCK_BYTES; ++b) blocks[i][b] = stamp(i, b);
  }
  one_life(argv[1], 0);
  one_life(argv[1], 1);
  return 0;
}
