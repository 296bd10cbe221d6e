/* Tiers under a cache, for C: what was computed is kept in host memory, on a disk or in a Redis as well,
 * and comes back from there after a restart or on another machine. A library of its own,
 * libstemma_tiers.so, on top of libstemma.so; the rules at the top of stemma.h hold here too.
 *
 *   stemma_stack_create --> stemma_sequence_tiers_create --> stemma_sequence_tiers_listen
 *     --> stemma_sequences_create, and for each request:
 *         stemma_sequence_tiers_fetch --> stemma_fetch_wait --> stemma_fetch_admit --> stemma_fetch_end
 *         --> stemma_sequences_begin
 *
 *   stemma_stack_create --> stemma_paged_tiers_create, and for each request:
 *         stemma_paged_tiers_restore --> stemma_cache_lease --> release what restore holds
 *         --> the engine computes --> stemma_lease_commit --> stemma_paged_tiers_store
 *
 * The words are those of stemma/tier_stack.h, sequence_tiers.h and paged_tiers.h, which say more.
 * What lies in a tier is KV, and KV can reveal the prompt it is of: whoever reads the directory or the
 * Redis can read conversations. docs/guide/add-tiers.md says what to do about that.
 *
 * Handles:    stemma_stack*, stemma_sequence_tiers* and stemma_paged_tiers* are opaque, like a
 *             stemma_cache*; a stemma_fetch is a number, like a stemma_lease.
 * Threading:  thread-safe, but nothing may be used by another call while it is being destroyed.
 * Errors:     of calls. A tier that fails, stalls or has damaged bytes is none: what it has is computed
 *             again, and statistics count it.
 * Log:        lines go to stemma_set_log_handler()'s. A broken invariant is logged, written to standard
 *             error, and stops the process.
 */
#ifndef STEMMA_STEMMA_TIERS_H
#define STEMMA_STEMMA_TIERS_H

#include "stemma/stemma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A stack of tiers ------------------------------------------------------------------------- */

#define STEMMA_MOST_LEVELS 8

enum stemma_level_kind {
  STEMMA_LEVEL_HOST = 0, /* This process's memory. */
  STEMMA_LEVEL_DISK = 1, /* A directory of this machine, for one process at a time. */
  STEMMA_LEVEL_REDIS = 2 /* Redis or Valkey, one server or a cluster. */
};

/* When a level takes what was computed. */
enum stemma_write {
  STEMMA_WRITE_THROUGH = 0,   /* When it is first seen. */
  STEMMA_WRITE_BACK = 1,      /* When it leaves the engine's memory. */
  STEMMA_WRITE_SECOND_USE = 2 /* When it is seen for the second time. */
};

typedef struct stemma_level {
  uint32_t struct_size;    /* The same in all elements of an array. */
  uint32_t kind;           /* A stemma_level_kind. */
  uint32_t write;          /* A stemma_write. */
  uint32_t promote;        /* 1: what was found below is put here too. */
  uint64_t capacity_bytes; /* Host and disk: never exceeded. Redis: 0, its server decides. */
  uint64_t
      max_entry_bytes; /* Disk and Redis: of one entry, larger ones are not kept. 0: 8 and 4 MiB. */
  const char* where;   /* Disk: the directory. Redis: the URL (stemma/redis_url.h). Host: null. */
  uint64_t latency_ns; /* What is assumed until it was measured; 0: what is usual for the kind. */
  uint64_t bytes_per_second; /* Likewise. */
  /* Entries are encrypted and authenticated with a key for each scope, which lies in this directory; it is
   * made if it is not there, and must be the user's alone (stemma/sealed_tier.h). Null: they are not. */
  const char* seal_keys;
} stemma_level;
#define STEMMA_LEVEL_INIT \
  {sizeof(stemma_level), STEMMA_LEVEL_HOST, STEMMA_WRITE_THROUGH, 1, 0, 0, 0, 0, 0, 0}

typedef struct stemma_stack_options {
  uint32_t struct_size;
  uint32_t prefetch_entries;  /* That wait to be brought up; more are dropped. */
  const stemma_level* levels; /* Fastest first; 1 to STEMMA_MOST_LEVELS. */
  size_t level_count;
  uint64_t query_ns;    /* The longest that a question to the tiers is waited for. */
  uint64_t load_ns;     /* The longest that loading is waited for. */
  uint64_t store_ns;    /* The longest that storing may take before it is given up. */
  uint64_t queue_bytes; /* Of entries that wait for one level; more are dropped. */
  /* What is loaded, and blocks that are stored, lie on their way in so much memory, set aside now, and pinned
   * where there is a CUDA driver with a device: then a context of that device is kept (of the one that has
   * one, if any has). What finds no room there, or cannot be pinned, lies in ordinary memory. 0: all does. */
  uint64_t transfer_bytes;
} stemma_stack_options;
#define STEMMA_STACK_OPTIONS_INIT \
  {sizeof(stemma_stack_options), 4096, 0, 0, 50000000u, 5000000000u, 10000000000u, 268435456u, 0}

/* There is no initialiser: set struct_size to its size. Since the stack was made, but for "now". */
typedef struct stemma_level_stats {
  uint32_t struct_size;
  uint32_t open;           /* Now. 0: it is not asked, because it failed or stalled. */
  char name[16];           /* "host", "disk", "redis"; terminated. */
  uint64_t entries;        /* Now; 0 where the tier does not know. So is the next. */
  uint64_t used_bytes;     /* With headers and padding. */
  uint64_t capacity_bytes; /* 0: the tier does not know. */
  uint64_t hits;           /* Entries that were loaded from here, */
  uint64_t hit_bytes;      /* and their bytes. */
  uint64_t misses;         /* Were said to be there, and could not be had. */
  uint64_t too_slow;       /* There, and faster to compute. */
  uint64_t stored;         /* Handed over to be kept. */
  uint64_t promoted;       /* Handed over because they were found below. */
  uint64_t dropped;        /* Not taken: too many were waiting. */
  uint64_t lost;           /* Taken, and then refused, failed or late. */
  uint64_t puts;           /* Of the tier: kept, */
  uint64_t put_bytes;      /* and their bytes. */
  uint64_t corrupt;        /* What lay there was not believed. */
  uint64_t failed;         /* I/O errors, unreachable servers. */
  uint64_t evictions;      /* To make room. */
  double latency_ns;       /* As measured. So is the next. */
  double bytes_per_second;
  uint64_t written_back; /* Of those stored: because they left memory. */
} stemma_level_stats;

/* What one level forgot. There is no initialiser: set struct_size of each to its size. */
typedef struct stemma_level_purged {
  uint32_t struct_size;
  uint32_t complete; /* 1: nothing is left of what it had. */
  char name[16];     /* "host", "disk", "redis"; terminated. */
  uint64_t entries;  /* That went, */
  uint64_t bytes;    /* their bytes, as far as the tier knows, */
  uint64_t
      unsure; /* and those of them of which nobody could tell whether they follow the prefix. */
  char error[128]; /* What kept it from being complete; terminated, perhaps cut off. */
} stemma_level_purged;

/* Forgets in the cache what the tiers are about to forget: drops the scope, or truncates it. */
typedef void (*stemma_drop_fn)(void* user);

typedef struct stemma_stack stemma_stack;

/* Opens every level. A disk's directory is made if it is not there, and read if it is; a Redis need not be
 * reachable now. Invalid (an option, a URL, a path that is no directory; the error's value is the level, or
 * the offending number), busy (another process has the directory), unsupported (a newer format; a kind that
 * this library was built without), corrupt (the directory is not a store of ours; nothing was touched), copy
 * failed (the system refuses: the error's value is its errno), out of memory (also with 4,096 alive). The
 * caller ends *out with stemma_stack_destroy(). */
STEMMA_API stemma_status stemma_stack_create(const stemma_stack_options* options,
                                             stemma_stack** out);
/* What waits to be stored is let go: flush first to keep it. Busy: something still uses the stack. */
STEMMA_API stemma_status stemma_stack_destroy(stemma_stack* stack);
/* Waits until everything stored before is there, as durably as tiers can, at most so long. *done (may be
 * null): 0, not by then. */
STEMMA_API stemma_status stemma_stack_flush(stemma_stack* stack, uint64_t wait_ns, uint32_t* done);
/* The engine computed so many tokens in so long: by this it is judged whether loading is worth it. */
STEMMA_API stemma_status stemma_stack_prefilled(stemma_stack* stack, uint32_t tokens, uint64_t ns);
STEMMA_API stemma_status stemma_stack_level_count(stemma_stack* stack, uint32_t* out);
/* out->struct_size says how much the caller wants. Out of range: no such level. */
STEMMA_API stemma_status stemma_stack_level_stats(stemma_stack* stack, uint32_t level,
                                                  stemma_level_stats* out);

/* ---- Under a stemma_sequences ----------------------------------------------------------------- */

typedef struct stemma_sequence_tiers_options {
  uint32_t struct_size;
  uint32_t segment_tokens; /* As the cache's. */
  uint32_t
      keep_words;   /* 1: the prompts' words are kept with the entries, for whoever reads them. */
  uint32_t threads; /* Fetches at one time. */
  uint32_t queue;   /* Fetches that may wait; more are over at once, with nothing. */
  uint32_t reserved;
  const stemma_engine_traits* traits; /* Required: the engine's. Copied. */
} stemma_sequence_tiers_options;
#define STEMMA_SEQUENCE_TIERS_OPTIONS_INIT \
  {sizeof(stemma_sequence_tiers_options), 64, 0, 2, 1024, 0, 0}

/* There is no initialiser: set struct_size to its size. */
typedef struct stemma_fetch_stats {
  uint32_t struct_size;
  uint32_t waiting;     /* Fetches, now. */
  uint64_t heard;       /* Parts that were saved, */
  uint64_t heard_bytes; /* their bytes, */
  uint64_t dropped;     /* and those for which there was no memory. */
  uint64_t fetches;
  uint64_t found;        /* Fetches that found more than there was, */
  uint64_t loaded;       /* and brought it; */
  uint64_t not_worth_it; /* or left it, because computing is faster. */
  uint64_t loaded_tokens;
  uint64_t loaded_bytes;
  uint64_t used_again;         /* Parts that were stored when they were used again, */
  uint64_t written_back;       /* and when they left memory; */
  uint64_t written_back_bytes; /* the bytes of these. */
} stemma_fetch_stats;

/* What a fetch came to. Zeros until it is over. */
typedef struct stemma_fetched {
  uint32_t over;
  uint32_t stored_tokens; /* Of the prompt, in tiers; usable. */
  uint32_t loaded_tokens; /* Of the prompt, after admit. */
  uint32_t level;         /* The slowest that something came from. */
  uint64_t bytes;
  uint64_t spent_ns;
} stemma_fetched;

typedef struct stemma_sequence_tiers stemma_sequence_tiers;
typedef uint64_t stemma_fetch; /* 0 is none. */

/* The stack is in use until stemma_sequence_tiers_destroy(). Invalid, out of memory. */
STEMMA_API stemma_status stemma_sequence_tiers_create(stemma_stack* stack,
                                                      const stemma_sequence_tiers_options* options,
                                                      stemma_sequence_tiers** out);
/* Fetches that wait are over, with nothing; they can still be asked and ended. Destroy the caches that it
 * listens to first: what they save afterwards is not kept. */
STEMMA_API stemma_status stemma_sequence_tiers_destroy(stemma_sequence_tiers* tiers);
/* Fills in options->listener, for stemma_sequences_create(). Invalid: segment_tokens are not the same; the
 * struct is older than the listener. */
STEMMA_API stemma_status stemma_sequence_tiers_listen(stemma_sequence_tiers* tiers,
                                                      stemma_sequence_options* options);
/* Called once, on any thread, when a fetch is over; perhaps before stemma_sequence_tiers_fetch() returns. */
typedef void (*stemma_fetch_over_fn)(void* user);
/* Starts to look for the prompt beyond what the cache has of it, while its request waits; the engine is not
 * kept waiting. `options` as begin will get them. `over` may be null. The caller ends *out with
 * stemma_fetch_end(). As stemma_sequences_lookup(). */
STEMMA_API stemma_status stemma_sequence_tiers_fetch(
    stemma_sequence_tiers* tiers, stemma_sequences* cache, const stemma_scope* scope,
    const stemma_prompt* prompt, const stemma_turn_options* options, stemma_fetch_over_fn over,
    void* user, stemma_fetch* out);
STEMMA_API stemma_status stemma_sequence_tiers_stats(stemma_sequence_tiers* tiers,
                                                     stemma_fetch_stats* out);
/* Removes what the tiers have of the scope and follows the prefix; all of the scope for a null or empty
 * prefix; everything of this engine's layout for a null scope (then `prefix` is null). `drop` (may be null) is
 * called once, on this thread, before the tiers are purged; what is fetched meanwhile has nothing of the
 * scope. A level that has sealed entries drops the key of a whole scope. Waits at most so long. `levels` (may
 * be null) is filled in for the first `level_count` levels. *complete: 1 when all levels are. A level that
 * fails is no error. Not on the engine's thread. Invalid, out of memory. */
STEMMA_API stemma_status stemma_sequence_tiers_forget(stemma_sequence_tiers* tiers,
                                                      const stemma_scope* scope,
                                                      const stemma_prompt* prefix, uint64_t wait_ns,
                                                      stemma_drop_fn drop, void* user,
                                                      stemma_level_purged* levels,
                                                      size_t level_count, uint32_t* complete);

/* Every one of these: invalid (0, or a number no fetch had), stale (ended), busy (another call is using it;
 * wait is not in anybody's way). */

/* Waits until it is over, at most so long (0: only looks). *out may be null. */
STEMMA_API stemma_status stemma_fetch_wait(stemma_fetch fetch, uint64_t wait_ns,
                                           stemma_fetched* out);
/* Nobody wants it any more: it is over soon, with whatever it has. */
STEMMA_API stemma_status stemma_fetch_cancel(stemma_fetch fetch);
/* Takes what was found into the cache: stemma_sequences_admit() with its errors, also its one call at a
 * time. *out may be null. Wrong state: it is not over. */
STEMMA_API stemma_status stemma_fetch_admit(stemma_fetch fetch, stemma_sequences* cache,
                                            const stemma_turn_options* options,
                                            stemma_admitted* out);
STEMMA_API stemma_status stemma_fetch_end(stemma_fetch fetch);

/* ---- Under a stemma_cache --------------------------------------------------------------------- */

typedef struct stemma_paged_tiers_options {
  uint32_t struct_size;
  uint32_t keep_words;                /* 1: the prompts' words are kept with the blocks. */
  const stemma_group_options* groups; /* As the cache's, with block_bytes. */
  size_t group_count;
  uint64_t layout;           /* Fingerprint of how a block's bytes are arranged. */
  const stemma_block_io* io; /* Required, with read and write; copied. `copy` is not called. */
} stemma_paged_tiers_options;
#define STEMMA_PAGED_TIERS_OPTIONS_INIT {sizeof(stemma_paged_tiers_options), 0, 0, 0, 0, 0}

typedef struct stemma_restored {
  uint32_t cached_tokens;   /* The cache had them. */
  uint32_t stored_tokens;   /* Beyond, some tier had them. */
  uint32_t restored_tokens; /* Of those, what is now in the cache. */
  uint32_t shared;          /* 1: another call was restoring them; this one waited for it. */
  uint32_t level_tokens[STEMMA_MOST_LEVELS]; /* Of restored_tokens, where they came from. */
  stemma_lease hold; /* Keeps them until the request has its own lease; then release it. 0: none. */
} stemma_restored;

typedef struct stemma_paged_tiers stemma_paged_tiers;

/* The stack is in use until stemma_paged_tiers_destroy(). Invalid, out of memory. */
STEMMA_API stemma_status stemma_paged_tiers_create(stemma_stack* stack,
                                                   const stemma_paged_tiers_options* options,
                                                   stemma_paged_tiers** out);
/* No other call may be under way; io is not called any more. */
STEMMA_API stemma_status stemma_paged_tiers_destroy(stemma_paged_tiers* tiers);
/* Brings the prompt beyond what is cached back into the cache, through io.write, as deep as every group can
 * serve it: of a window group what its window needs there, of a recurrent one its checkpoint. Waits for the
 * tiers, within what computing would take, and for the writes. Nothing restored is an answer. Options as
 * the request's own lease will get them. Invalid, out of memory. */
STEMMA_API stemma_status stemma_paged_tiers_restore(stemma_paged_tiers* tiers, stemma_cache* cache,
                                                    const stemma_scope* scope,
                                                    const stemma_prompt* prompt,
                                                    const stemma_lease_options* options,
                                                    stemma_restored* out);
/* Brings what is stored of the prompt up to the first level, some time soon; for requests that queue. */
STEMMA_API stemma_status stemma_paged_tiers_prefetch(stemma_paged_tiers* tiers, stemma_cache* cache,
                                                     const stemma_scope* scope,
                                                     const stemma_prompt* prompt);
/* The lease, whose words the prompt is, has committed them: stores what a level wants of the whole blocks of
 * positions [from, committed) that the lease still holds and of the checkpoints beyond `from`, read through
 * io.read. Tell each position once a request. *stored (may be null): how many were handed to the stack. Copy
 * failed (a read failed; the error's value is the block, or the checkpoint's depth), invalid, out of memory,
 * and what stemma_lease_positions() answers. */
STEMMA_API stemma_status stemma_paged_tiers_store(stemma_paged_tiers* tiers,
                                                  const stemma_scope* scope,
                                                  const stemma_prompt* prompt, stemma_lease lease,
                                                  uint32_t from, uint32_t priority,
                                                  uint32_t* stored);

/* Evicts until so many positions can be drafted without evicting, as far as that is possible, and writes what
 * goes back to the levels that want it, read through io.read; where none is STEMMA_WRITE_BACK, nothing
 * happens. Restoring does it for its prompt; call it before a lease grows, and with UINT32_MAX to leave nothing
 * behind at the end. *stored (may be null): blocks and checkpoints handed to the stack. Copy failed (so many
 * could not be read, which are lost), out of memory, and what stemma_cache_reclaim() answers. */
STEMMA_API stemma_status stemma_paged_tiers_make_room(stemma_paged_tiers* tiers,
                                                      stemma_cache* cache, uint32_t positions,
                                                      uint32_t* stored);

/* As stemma_sequence_tiers_forget(). Blocks do not name the prefix that they go on from: all of the scope that
 * is deeper than the prefix goes. Nothing is restored meanwhile, and nothing of the scope is stored. A lease
 * that was taken before and is stored afterwards stores what it has: release such leases first. */
STEMMA_API stemma_status stemma_paged_tiers_forget(stemma_paged_tiers* tiers,
                                                   const stemma_scope* scope,
                                                   const stemma_prompt* prefix, uint64_t wait_ns,
                                                   stemma_drop_fn drop, void* user,
                                                   stemma_level_purged* levels, size_t level_count,
                                                   uint32_t* complete);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STEMMA_STEMMA_TIERS_H */
