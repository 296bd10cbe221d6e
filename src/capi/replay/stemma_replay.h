/* Replays a recorded trace of requests and reports what a cache would have found, for C: the
 * library libstemma_replay.so, on top of libstemma.so. It does what `stemma replay` does, for the
 * Python package; the rules at the top of stemma.h hold here too.
 *
 * Threading:  thread-safe. A call starts as many threads of its own as --jobs says, and joins them.
 * Cost:       reads the whole trace into memory; docs/guide/replay.md has figures.
 */
#ifndef STEMMA_STEMMA_REPLAY_H
#define STEMMA_STEMMA_REPLAY_H

#include "stemma/stemma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one policy found at one capacity. */
typedef struct stemma_replay_row {
  uint32_t struct_size; /* How much of it this library fills in. */
  uint32_t hints;       /* 1: the cache was given the trace's hints. */
  const char* trace;    /* Its name. This and the next: terminated, borrowed for the call. */
  const char* policy;
  uint64_t capacity_blocks;
  uint32_t block_tokens; /* Positions in a block of the trace. */
  uint32_t reserved;
  uint64_t requests;
  uint64_t block_refs; /* Blocks that the requests asked for. */
  uint64_t block_hits; /* How many of block_refs were cached. */
  double hit_ratio;
  double cost_weighted_hit_ratio; /* A block weighs 1 + its depth in tokens / 32768. */
  uint64_t evictions;
  double seconds; /* How long this replay took, without reading the trace. */
} stemma_replay_row;

typedef void (*stemma_replay_row_fn)(void* user, const stemma_replay_row* row);

/* Replays a trace. `words` are the arguments of `stemma replay`, each terminated: the trace's path,
 * then options such as "--policy", "lru", "--capacity", "5%". Arguments that write a file, draw
 * tables or read standard input are refused (--report, --json, --tiers, --help, "-"). Calls `each`
 * for every policy and capacity, in the order in which the program prints them, on this thread and
 * after all replays are done. *skipped (may be null): how many lines --lenient left out. Invalid:
 * an argument. Corrupt: the trace cannot be read or used; the message has its line. Out of memory.
 * If the call fails, `each` was not called. */
STEMMA_API stemma_status stemma_replay_run(const char* const* words, size_t count,
                                           stemma_replay_row_fn each, void* user,
                                           uint64_t* skipped);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STEMMA_STEMMA_REPLAY_H */
