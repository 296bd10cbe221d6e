/* A block's life through the mover, in plain C: pages that a CPU engine might have are stored, lost
 * and loaded again, and a damaged block is noticed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stemma/stemma_mover.h>

#define EXPECT(condition)                                                                       \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, stemma_last_error_message()); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

enum { PAGES = 8, TOKENS = 16, HEADS = 2, HEAD_BYTES = 64, LAYERS = 3 };

/* For each layer an array of keys [pages, tokens, heads, head] and one of values
 * [pages, heads, tokens, head]. */
static uint8_t keys[LAYERS][PAGES][TOKENS][HEADS][HEAD_BYTES];
static uint8_t values[LAYERS][PAGES][HEADS][TOKENS][HEAD_BYTES];

static stemma_mover* make_mover(void) {
  stemma_mover_plane planes[2 * LAYERS];
  stemma_mover_group group = {0, 2 * LAYERS, PAGES, 0};
  stemma_mover_options options = STEMMA_MOVER_OPTIONS_INIT;
  stemma_mover* mover = NULL;
  uint32_t layer;
  memset(planes, 0, sizeof planes);
  for (layer = 0; layer < LAYERS; ++layer) {
    stemma_mover_plane* k = &planes[2 * layer];
    stemma_mover_plane* v = k + 1;
    k->base = (uint64_t)(uintptr_t)keys[layer];
    k->page_stride = sizeof keys[layer][0];
    k->run_bytes = HEAD_BYTES;
    k->layer = layer;
    k->dim_count = 2;
    k->dim_size[0] = TOKENS;
    k->dim_stride[0] = HEADS * HEAD_BYTES;
    k->dim_size[1] = HEADS;
    k->dim_stride[1] = HEAD_BYTES;
    k->token_dim = 0;
    *v = *k;
    v->base = (uint64_t)(uintptr_t)values[layer];
    v->dim_size[0] = HEADS;
    v->dim_stride[0] = TOKENS * HEAD_BYTES;
    v->dim_size[1] = TOKENS;
    v->dim_stride[1] = HEAD_BYTES;
    v->token_dim = 1;
  }
  group.planes = planes;
  options.groups = &group;
  options.group_count = 1;
  options.arena_bytes = 1 << 20;
  EXPECT(stemma_mover_create(&options, &mover) == STEMMA_OK);
  return mover;
}

static void fill(void) {
  size_t i;
  for (i = 0; i < sizeof keys; ++i) ((uint8_t*)keys)[i] = (uint8_t)(i * 7 + i / 251);
  for (i = 0; i < sizeof values; ++i) ((uint8_t*)values)[i] = (uint8_t)(i * 11 + i / 241);
}

/* Three positions of page 5 to page 2. */
static void copy_part_of_a_page(stemma_mover* mover) {
  const stemma_block_copy copy = {0, 5, 2, 3};
  stemma_transfer transfer = 0;
  EXPECT(stemma_mover_copy(mover, &copy, 1, 0, &transfer) == STEMMA_OK);
  EXPECT(stemma_transfer_wait(transfer, STEMMA_NEVER) == STEMMA_OK);
  EXPECT(stemma_transfer_end(transfer) == STEMMA_OK);
  EXPECT(memcmp(keys[2][2], keys[2][5], 3 * sizeof keys[0][0][0]) == 0);
  EXPECT(keys[2][2][3][0][1] == 0);
  EXPECT(memcmp(values[1][2][1], values[1][5][1], 3 * HEAD_BYTES) == 0);
  EXPECT(values[1][2][1][3][1] == 0);
}

static void expect_stats(stemma_mover* mover) {
  stemma_mover_stats stats;
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  EXPECT(stemma_mover_stats_get(mover, &stats) == STEMMA_OK);
  EXPECT(stats.loads == 2 && stats.stores == 1 && stats.copies == 1 && stats.wrong_blocks == 1);
  EXPECT(strncmp(stats.device, "cpu, ", 5) == 0);
}

int main(void) {
  static uint8_t keys_before[sizeof keys], values_before[sizeof values];
  stemma_mover* mover = make_mover();
  stemma_mover_request request = STEMMA_MOVER_REQUEST_INIT;
  stemma_mover_item items[2];
  stemma_host_piece pieces[2];
  stemma_mover_result results[2];
  stemma_transfer transfer = 0;
  stemma_fence fence;
  uint64_t block_bytes = 0, begin = 0, bytes = 0;
  size_t count = 0;
  uint32_t layer;

  EXPECT(stemma_mover_block_bytes(mover, 0, &block_bytes) == STEMMA_OK);
  EXPECT(block_bytes == (uint64_t)2 * LAYERS * TOKENS * HEADS * HEAD_BYTES);
  EXPECT(stemma_mover_layer_range(mover, 0, 1, &begin, &bytes) == STEMMA_OK);
  EXPECT(begin == block_bytes / LAYERS && bytes == block_bytes / LAYERS);

  fill();
  memcpy(keys_before, keys, sizeof keys);
  memcpy(values_before, values, sizeof values);
  memset(items, 0, sizeof items);
  items[0].page = 5;
  items[1].page = 0;
  for (count = 0; count < 2; ++count) {
    EXPECT(stemma_mover_take(mover, block_bytes, &pieces[count].data) == STEMMA_OK);
    pieces[count].bytes = block_bytes;
    items[count].piece_count = 1;
    items[count].pieces = &pieces[count];
  }
  request.items = items;
  request.count = 2;
  EXPECT(stemma_mover_store(mover, &request, &transfer) == STEMMA_OK);
  EXPECT(stemma_transfer_wait(transfer, STEMMA_NEVER) == STEMMA_OK);
  EXPECT(stemma_transfer_results(transfer, results, 2, &count) == STEMMA_OK && count == 2);
  EXPECT(stemma_transfer_end(transfer) == STEMMA_OK);
  EXPECT(stemma_transfer_wait(transfer, 0) == STEMMA_STALE);
  EXPECT(results[0].sum == stemma_mover_sum(pieces[0].data, block_bytes));
  items[0].sum = results[0].sum;
  items[1].sum = results[1].sum;

  memset(keys, 0, sizeof keys);
  memset(values, 0, sizeof values);
  EXPECT(stemma_mover_load(mover, &request, &transfer) == STEMMA_OK);
  for (layer = 0; layer < LAYERS; ++layer) {
    EXPECT(stemma_transfer_gate(transfer, layer, 0) == STEMMA_OK);
    EXPECT(memcmp(keys[layer][5], keys_before + ((size_t)layer * PAGES + 5) * sizeof keys[0][0],
                  sizeof keys[0][0]) == 0);
    EXPECT(memcmp(values[layer][0], values_before + (size_t)layer * PAGES * sizeof values[0][0],
                  sizeof values[0][0]) == 0);
  }
  EXPECT(stemma_transfer_gate(transfer, LAYERS, 0) == STEMMA_OUT_OF_RANGE);
  EXPECT(stemma_transfer_fence(transfer, &fence) == STEMMA_OK);
  EXPECT(stemma_transfer_wait(transfer, STEMMA_NEVER) == STEMMA_OK);
  EXPECT(fence.signalled(fence.user) == 1);
  EXPECT(stemma_transfer_end(transfer) == STEMMA_OK);

  /* One flipped bit in the second block. */
  ((uint8_t*)pieces[1].data)[777] ^= 4;
  EXPECT(stemma_mover_load(mover, &request, &transfer) == STEMMA_OK);
  EXPECT(stemma_transfer_wait(transfer, STEMMA_NEVER) == STEMMA_CORRUPT);
  EXPECT(stemma_last_error_value() == 1);
  EXPECT(stemma_transfer_results(transfer, results, 2, &count) == STEMMA_OK);
  EXPECT(results[0].status == STEMMA_OK && results[1].status == STEMMA_CORRUPT);
  EXPECT(stemma_transfer_end(transfer) == STEMMA_OK);

  copy_part_of_a_page(mover);
  expect_stats(mover);
  for (count = 0; count < 2; ++count) {
    EXPECT(stemma_mover_give_back(mover, pieces[count].data) == STEMMA_OK);
  }
  EXPECT(stemma_mover_destroy(mover) == STEMMA_OK);
  EXPECT(stemma_mover_destroy(mover) == STEMMA_STALE);
  puts("right");
  return 0;
}
