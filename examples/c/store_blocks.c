/* An engine with keys of its own stores its blocks in host memory and on a disk, and finds them
 * again. It never waits for a disk: it submits batches, and polls one descriptor.
 * docs/guide/store-under-an-engine.md says more. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "stemma/stemma_store.h"

enum { kBlocks = 8, kBytes = 65536, kKey = 32 };
static uint8_t hashes[kBlocks * kKey], blocks[kBlocks][kBytes];
static void* places[kBlocks];

/* A real engine would not wait in poll(): it works on until its event loop says that the descriptor
 * is readable. */
static uint32_t run(stemma_store* store, uint32_t space, uint32_t op) {
  stemma_store_request request = STEMMA_STORE_REQUEST_INIT;
  stemma_store_finished ended = {0};
  struct pollfd event = {-1, POLLIN, 0};
  stemma_batch batch;
  size_t count;
  request.op = op;
  request.name_space = space;
  request.count = kBlocks;
  request.keys = hashes; /* One after the other, each of key_size bytes. */
  request.key_size = kKey;
  request.values = places; /* The engine's memory; it stays as it is until the batch has ended. */
  if (stemma_store_submit(store, &request, &batch) != STEMMA_OK) return 0;
  stemma_store_event_fd(store, &event.fd);
  poll(&event, 1, -1);
  stemma_store_drain(store, &ended, 1, &count);
  return ended.leading;
}

int main(int argc, char** argv) {
  stemma_level levels[2] = {STEMMA_LEVEL_INIT, STEMMA_LEVEL_INIT};
  stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
  stemma_store_layout layout = STEMMA_STORE_LAYOUT_INIT;
  stemma_stack* stack;
  stemma_store* store;
  uint32_t space, found = 0;
  for (int i = 0; i < kBlocks; ++i) memset(places[i] = blocks[i], i, kBytes), hashes[i * kKey] = i;
  levels[0].capacity_bytes = 16u << 20;
  levels[1].kind = STEMMA_LEVEL_DISK;
  levels[1].capacity_bytes = 64u << 20;
  levels[1].where = argc > 1 ? argv[1] : "store_blocks.directory";
  options.levels = levels;
  options.level_count = 2;
  options.query_ns = 1000000000; /* A level that has not answered by then is skipped. */
  layout.layout = 1; /* Changes whenever the bytes of a block are arranged in another way. */
  layout.value_bytes = kBytes;
  if (stemma_stack_create(&options, &stack) != STEMMA_OK ||
      stemma_store_create(stack, NULL, &store) != STEMMA_OK ||
      stemma_store_namespace(store, "example/my-model", &layout, &space) != STEMMA_OK) {
    return fprintf(stderr, "%s\n", stemma_last_error_message()), 1;
  }
  stemma_store_lookup(store, space, hashes, NULL, kKey, kBlocks, NULL, &found);
  printf("%u of %d blocks are there from an earlier run\n", found, kBlocks);
  printf("%u are stored\n", run(store, space, STEMMA_STORE_PUT));
  printf("%u came back\n", run(store, space, STEMMA_STORE_GET));
  stemma_store_destroy(store, 10000000000u);
  return stemma_stack_destroy(stack) == STEMMA_OK ? 0 : 1;
}
