/* The pages of an engine on the CPU are stored as a block, and the block is loaded into another
 * page. On a GPU the same calls take device addresses and streams. docs/guide/move-blocks.md says
 * more. */
#include <stdio.h>
#include <string.h>

#include "stemma/stemma_mover.h"

enum { kPages = 4, kTokens = 16, kBytes = 64 };
static uint8_t keys[kPages][kTokens][kBytes], values[kPages][kTokens][kBytes];

static stemma_mover* make_mover(void) {
  stemma_mover_plane planes[2];
  stemma_mover_group group = {planes, 2, kPages, 0};
  stemma_mover_options options = STEMMA_MOVER_OPTIONS_INIT;
  stemma_mover* mover = NULL;
  memset(planes, 0, sizeof planes);
  planes[0].base = (uint64_t)(uintptr_t)keys; /* [pages, tokens, bytes]: strides in bytes. */
  planes[0].page_stride = sizeof keys[0];
  planes[0].dim_count = 1;
  planes[0].dim_size[0] = kTokens;
  planes[0].dim_stride[0] = sizeof keys[0][0];
  planes[0].run_bytes = kBytes;
  planes[1] = planes[0];
  planes[1].base = (uint64_t)(uintptr_t)values;
  options.groups = &group;
  options.group_count = 1;
  options.arena_bytes = 1 << 20;
  if (stemma_mover_create(&options, &mover) != STEMMA_OK) return NULL;
  return mover;
}

int main(void) {
  stemma_mover* mover = make_mover();
  stemma_mover_request request = STEMMA_MOVER_REQUEST_INIT;
  stemma_host_piece block = {NULL, sizeof keys[0] + sizeof values[0]};
  stemma_mover_item item = {1, 1, &block, 0};
  stemma_mover_result result;
  stemma_transfer transfer;
  size_t count;
  if (mover == NULL || stemma_mover_take(mover, block.bytes, &block.data) != STEMMA_OK) return 1;
  memset(keys[1], 'k', sizeof keys[1]);
  memset(values[1], 'v', sizeof values[1]);
  request.items = &item;
  request.count = 1;
  stemma_mover_store(mover, &request, &transfer); /* Page 1 to host memory, with a sum. */
  if (stemma_transfer_wait(transfer, STEMMA_NEVER) != STEMMA_OK) return 1;
  stemma_transfer_results(transfer, &result, 1, &count);
  stemma_transfer_end(transfer);
  item.page = 3; /* And from there to page 3. */
  item.sum = result.sum;
  stemma_mover_load(mover, &request, &transfer);
  stemma_transfer_gate(transfer, 0, 0); /* Layer 0 may be computed with; commit nothing yet. */
  if (stemma_transfer_wait(transfer, STEMMA_NEVER) != STEMMA_OK) return 1; /* All is right. */
  stemma_transfer_end(transfer);
  printf("page 3 has %c and %c\n", keys[3][15][63], values[3][0][0]);
  return stemma_mover_destroy(mover) == STEMMA_OK ? 0 : 1;
}
