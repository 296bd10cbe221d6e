/* Lease, copy, compute, commit, release: the same as paged_basics.cc, in C. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stemma/stemma.h>

static uint64_t kv[64 * 16]; /* Stands for the engine's memory: 64 blocks of 16 positions. */

static void must(stemma_status status) {
  if (status == STEMMA_OK) return;
  fprintf(stderr, "%s\n", stemma_last_error_message());
  exit(1);
}

static void serve(stemma_cache* cache, const stemma_scope* scope, const uint32_t* tokens) {
  stemma_prompt prompt = {tokens, 100, NULL, 0};
  stemma_positions at;
  stemma_block_copy copy[1];
  size_t copies;
  int64_t slots[100];
  stemma_lease lease;
  must(stemma_cache_lease(cache, scope, &prompt, NULL, &lease)); /* Finds, holds, drafts. */
  must(stemma_lease_copies(lease, copy, 1, &copies));
  if (copies != 0) {
    memcpy(kv + copy[0].target * 16, kv + copy[0].source * 16, copy[0].tokens * sizeof kv[0]);
    must(stemma_lease_copies_done(lease));
  }
  must(stemma_lease_positions(lease, &at));
  must(stemma_lease_slot_mapping(lease, 0, 0, slots, 100, -1));
  for (uint32_t i = at.committed; i < at.length; ++i) { /* Only what is not there yet. */
    kv[slots[i]] = (i == 0 ? 0 : kv[slots[i - 1]] * 31) + tokens[i];
  }
  must(stemma_lease_commit(lease, at.length, NULL)); /* Findable from now on. */
  must(stemma_lease_release(lease, NULL));           /* Cached until the room is needed. */
  printf("%u tokens, %u of them reused\n", at.length, at.reused);
}

int main(void) {
  stemma_group_options group = STEMMA_GROUP_OPTIONS_INIT;
  stemma_options options = STEMMA_OPTIONS_INIT;
  stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
  stemma_cache* cache;
  stemma_scope scope;
  uint32_t tokens[100] = {7};
  group.capacity_blocks = 64;
  options.groups = &group;
  options.group_count = 1;
  spec.model.data = "digest of the weights";
  spec.model.size = strlen(spec.model.data);
  must(stemma_cache_create(&options, &cache));
  must(stemma_scope_make(&spec, &scope));
  serve(cache, &scope, tokens); /* All of it is new. */
  serve(cache, &scope, tokens); /* All but the last token is there: 99 reused. */
  tokens[70] = 8;
  serve(cache, &scope, tokens); /* The same up to token 70: 64 in place, 6 by copying. */
  must(stemma_cache_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  return 0;
}
