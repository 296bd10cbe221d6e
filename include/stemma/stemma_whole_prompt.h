/* The part of the C ABI for callers that only find and store whole prompts, each with what an
 * engine had computed after it. stemma.h includes it, and has the rules for all calls; include
 * that one. The words are the same as in stemma/whole_prompt.h, which explains more.
 *
 * Handles:    a stemma_whole_prompts* is opaque, like a stemma_cache*; a stemma_prompt_lease is a
 *             number, like a stemma_lease, that is never given twice.
 * Threading:  thread-safe, but no other call may use a cache while it is being destroyed. A call
 *             returns STEMMA_BUSY for a lease that another call is using.
 */
#ifndef STEMMA_STEMMA_WHOLE_PROMPT_H
#define STEMMA_STEMMA_WHOLE_PROMPT_H

#include "stemma/stemma.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stemma_whole_prompt_options {
  uint32_t struct_size;
  uint32_t budget_mib; /* States and logits; 0 keeps nothing. */
  uint32_t enabled;
  uint32_t min_tokens; /* Shorter prompts are neither stored nor found. */
  uint32_t max_entries;
  uint32_t reserved;
} stemma_whole_prompt_options;
#define STEMMA_WHOLE_PROMPT_OPTIONS_INIT {sizeof(stemma_whole_prompt_options), 512, 1, 8, 100, 0}

/* A stored prompt that the query begins with. Borrowed until its lease is released. */
typedef struct stemma_stored_prompt {
  const uint32_t* tokens;
  size_t token_count;
  const uint8_t* bytes;
  size_t size;
  const float* logits; /* Null when none were stored. */
  size_t logit_count;
  uint32_t exact; /* 1: it is the whole query. */
  uint32_t reserved;
} stemma_stored_prompt;

/* There is no initialiser: set struct_size to its size. */
typedef struct stemma_whole_prompt_stats {
  uint32_t struct_size;
  uint32_t reserved;
  /* Each find counts in one of the next four. */
  uint64_t hits;
  uint64_t misses;
  uint64_t short_queries; /* Misses, because nothing that short is stored. */
  uint64_t bypassed;      /* Finds while the cache was off. */
  uint64_t exact_hits;    /* Hits of the whole query. */
  uint64_t reused_tokens; /* Sum over all hits. */
  uint64_t evictions;
  uint64_t refused; /* Entries that were too large. */
  uint64_t corrupt; /* Entries whose bytes had changed; they were forgotten. */
  uint64_t entries;
  uint64_t tokens; /* The sum over all entries. */
  uint64_t bytes;  /* In use by entries, and by forgotten entries that are still leased. */
  uint64_t index_bytes;
  uint64_t used_mib; /* `bytes` in MiB, rounded down. */
  uint64_t budget_mib;
} stemma_whole_prompt_stats;

typedef struct stemma_whole_prompts stemma_whole_prompts;
typedef uint64_t stemma_prompt_lease; /* 0: no lease. */

/* Null options: defaults. Invalid, out of memory (also if 4,096 of them are alive). The caller ends
 * *out with stemma_whole_prompts_destroy(). */
STEMMA_API stemma_status stemma_whole_prompts_create(const stemma_whole_prompt_options* options,
                                                     stemma_whole_prompts** out);
/* Refuse: returns STEMMA_BUSY while leases are alive (the error's value is how many). Defer: the
 * handle is gone at once; leases stay valid. */
STEMMA_API stemma_status stemma_whole_prompts_destroy(stemma_whole_prompts* cache,
                                                      uint32_t on_busy);
/* 0: nothing is found and nothing is stored; entries stay. Invalid: `on` is neither 0 nor 1. */
STEMMA_API stemma_status stemma_whole_prompts_enable(stemma_whole_prompts* cache, uint32_t on);

/* Finds the longest stored prompt that this one begins with or equals. Finding nothing is no error:
 * *lease is 0 and *found is empty, also if there is no memory for a lease. The caller ends *lease
 * with stemma_prompt_lease_release(). */
STEMMA_API stemma_status stemma_whole_prompts_find(stemma_whole_prompts* cache,
                                                   const stemma_scope* scope,
                                                   const uint32_t* tokens, size_t token_count,
                                                   stemma_prompt_lease* lease,
                                                   stemma_stored_prompt* found);
/* Stores a copy, in place of what was stored for this prompt. Does nothing while the cache is off,
 * and for prompts that are too short. Logits may be null with count 0. Invalid (a value that is not
 * a token, no bytes), out of range (larger than the whole budget), out of blocks (larger than the
 * room that leases leave). */
STEMMA_API stemma_status stemma_whole_prompts_store(stemma_whole_prompts* cache,
                                                    const stemma_scope* scope,
                                                    const uint32_t* tokens, size_t token_count,
                                                    const uint8_t* bytes, size_t size,
                                                    const float* logits, size_t logit_count);
/* Makes the entry of exactly this prompt the most recently used. *there (may be null): 0 if there
 * is none. */
STEMMA_API stemma_status stemma_whole_prompts_touch(stemma_whole_prompts* cache,
                                                    const stemma_scope* scope,
                                                    const uint32_t* tokens, size_t token_count,
                                                    uint32_t* there);
/* Evicts up to n entries that are not leased, least recently used first. *evicted may be null. */
STEMMA_API stemma_status stemma_whole_prompts_evict(stemma_whole_prompts* cache, uint32_t n,
                                                    uint32_t* evicted);
/* Forgets all entries and zeroes all counters. */
STEMMA_API stemma_status stemma_whole_prompts_clear(stemma_whole_prompts* cache);
/* out->struct_size says how much the caller wants. */
STEMMA_API stemma_status stemma_whole_prompts_stats(stemma_whole_prompts* cache,
                                                    stemma_whole_prompt_stats* out);
/* Invalid (0, or a number that no lease had), stale (released), busy. */
STEMMA_API stemma_status stemma_prompt_lease_release(stemma_prompt_lease lease);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STEMMA_STEMMA_WHOLE_PROMPT_H */
