/* Tiers under a cache, for C: computed KV is kept in host memory, on a disk or in a Redis as well,
 * and comes back from there after a restart or on another machine. This is a library of its own,
 * libstemma_tiers.so, on top of libstemma.so; the rules at the top of stemma.h hold here too.
 *
 *   stemma_stack_create --> stemma_sequence_tiers_create --> stemma_sequence_tiers_listen
 *     --> stemma_sequences_create, and for each request:
 *         stemma_sequence_tiers_fetch --> stemma_fetch_wait --> stemma_fetch_admit
 *         --> stemma_fetch_end --> stemma_sequences_begin
 *
 *   stemma_stack_create --> stemma_paged_tiers_create, and for each request:
 *         stemma_paged_tiers_restore --> stemma_cache_lease --> release what restore holds
 *         --> the engine computes --> stemma_lease_commit --> stemma_paged_tiers_store
 *
 * The words are the same as in stemma/tier/tier_stack.h, sequence_tiers.h and paged_tiers.h, which
 * explain more. Tiers store KV, and KV can reveal its prompt: anyone who can read the directory or
 * the Redis can read conversations. docs/guide/add-tiers.md says what to do about that.
 *
 * Handles:    stemma_stack*, stemma_sequence_tiers* and stemma_paged_tiers* are opaque, like a
 *             stemma_cache*; a stemma_fetch is a number, like a stemma_lease.
 * Threading:  thread-safe, but no other call may use an object while it is being destroyed.
 * Errors:     are about calls. A tier that fails, stalls or has damaged bytes is no error: what it
 *             has is computed again, and statistics count it.
 * Log:        lines go to the handler of stemma_set_log_handler(). A broken invariant is logged,
 *             written to standard error, and stops the process.
 */
#ifndef STEMMA_STEMMA_TIERS_H
#define STEMMA_STEMMA_TIERS_H

#include "stemma/stemma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A stack of tiers ------------------------------------------------------------------------ */

#define STEMMA_MOST_LEVELS 8

enum stemma_level_kind {
  STEMMA_LEVEL_HOST = 0,  /* This process's memory. */
  STEMMA_LEVEL_DISK = 1,  /* A directory of this machine, for one process at a time. */
  STEMMA_LEVEL_REDIS = 2, /* Redis or Valkey, one server or a cluster. */
  STEMMA_LEVEL_SHARED = 3 /* A directory that many processes and machines use at once. */
};

/* When a level takes what was computed. */
enum stemma_write {
  STEMMA_WRITE_THROUGH = 0,   /* When it is first seen. */
  STEMMA_WRITE_BACK = 1,      /* When it leaves the engine's memory. */
  STEMMA_WRITE_SECOND_USE = 2 /* When it is seen for the second time. */
};

typedef struct stemma_level {
  uint32_t struct_size; /* The same in all elements of an array. */
  uint32_t kind;        /* A stemma_level_kind. */
  uint32_t write;       /* A stemma_write. */
  uint32_t promote;     /* 1: takes a copy of what is found at a level below. */
  /* Host, disk: never exceeded. Shared: see tier/shared_tier.h. Redis: 0, its server decides. */
  uint64_t capacity_bytes;
  /* Larger entries are not kept. 0: 8 MiB on disk, 4 MiB in Redis, 1 GiB in a shared directory. */
  uint64_t max_entry_bytes;
  const char* where; /* Disk, shared: the directory. Redis: the URL. Host: null. */
  /* latency_ns and bytes_per_second are assumed until the level is measured. 0: values that are
   * usual for its kind. */
  uint64_t latency_ns;
  uint64_t bytes_per_second;
  /* Entries are encrypted and authenticated with a key for each scope. The keys are in this
   * directory; it is made if it is not there, and must belong to the user alone
   * (stemma/tier/sealed_tier.h). Null: entries are not encrypted. */
  const char* seal_keys;
  /* Disk: while it has nothing else to do, it reads and checks its entries one by one, no faster
   * than this, and removes damaged ones. 0: never. Levels of other kinds: 0. */
  uint64_t scrub_bytes_per_second;
} stemma_level;
#define STEMMA_LEVEL_INIT \
  {sizeof(stemma_level), STEMMA_LEVEL_HOST, STEMMA_WRITE_THROUGH, 1, 0, 0, 0, 0, 0, 0, 0}

typedef struct stemma_stack_options {
  uint32_t struct_size;
  uint32_t prefetch_entries;  /* How many may wait to be brought up; more are dropped. */
  const stemma_level* levels; /* Fastest first; 1 to STEMMA_MOST_LEVELS. */
  size_t level_count;
  uint64_t query_ns;    /* The longest wait for an answer about what tiers have. */
  uint64_t load_ns;     /* The longest wait for loading. */
  uint64_t store_ns;    /* Storing that takes longer is given up. */
  uint64_t queue_bytes; /* Bytes of entries that may wait for one level; more are dropped. */
  /* The size of an area, set aside at creation, through which loaded entries and stored blocks
   * pass. It is pinned if there is a CUDA driver with a device. Then the library keeps a context of
   * that device: of a device that already has a context, if there is one. An area that cannot be
   * pinned is plain memory. Entries that find no room in the area pass through ordinary memory. 0:
   * all entries do. */
  uint64_t transfer_bytes;
} stemma_stack_options;
#define STEMMA_STACK_OPTIONS_INIT \
  {sizeof(stemma_stack_options), 4096, 0, 0, 50000000u, 5000000000u, 10000000000u, 268435456u, 0}

/* There is no initialiser: set struct_size to its size. Counted since the stack was made, except
 * where the comment says "now". */
typedef struct stemma_level_stats {
  uint32_t struct_size;
  uint32_t open;           /* Now. 0: the level failed or stalled, and is not asked. */
  char name[16];           /* "host", "disk", "redis"; terminated. */
  uint64_t entries;        /* Now; 0 if the tier does not know. */
  uint64_t used_bytes;     /* Now, with headers and padding; 0 if the tier does not know. */
  uint64_t capacity_bytes; /* 0: the tier does not know. */
  uint64_t hits;           /* Entries that were loaded from here. */
  uint64_t hit_bytes;      /* Bytes of the hits. */
  uint64_t misses;         /* The tier said that it had them, but they could not be loaded. */
  uint64_t too_slow;       /* Entries that were there, but faster to compute. */
  uint64_t stored;         /* Entries handed over to be kept. */
  uint64_t promoted;       /* Entries handed over because a lower level had them. */
  uint64_t dropped;        /* Entries not taken, because too many were waiting. */
  uint64_t lost;           /* Entries taken, and then refused, failed or late. */
  uint64_t puts;           /* Entries that the tier kept. */
  uint64_t put_bytes;      /* Bytes of the puts. */
  uint64_t corrupt;        /* Entries that were damaged, or not what they should be. */
  uint64_t failed;         /* I/O errors, unreachable servers. */
  uint64_t evictions;      /* Entries evicted to make room. */
  double latency_ns;       /* As measured, like bytes_per_second. */
  double bytes_per_second;
  uint64_t written_back; /* How many of `stored` were stored because they left memory. */
} stemma_level_stats;

/* What one level forgot. There is no initialiser: set struct_size of each to its size. */
typedef struct stemma_level_purged {
  uint32_t struct_size;
  uint32_t complete; /* 1: nothing is left of what it had. */
  char name[16];     /* "host", "disk", "redis"; terminated. */
  uint64_t entries;  /* How many were removed. */
  uint64_t bytes;    /* Their bytes, as far as the tier knows. */
  uint64_t unsure;   /* Removed without knowing whether they follow the prefix. */
  char error[128];   /* Why it is not complete; terminated, perhaps cut off. */
} stemma_level_purged;

/* Forgets in the cache what the tiers are about to forget: drops the scope, or truncates it. */
typedef void (*stemma_drop_fn)(void* user);

typedef struct stemma_stack stemma_stack;

/* Opens every level. A disk's directory is made if it is not there, and read if it is; a Redis need
 * not be reachable now. Invalid (an option, a URL, a path that is no directory; the error's value
 * is the level, or the offending number), busy (another process has the directory), unsupported (a
 * newer format; a kind that this library was built without), corrupt (the directory is not a store
 * of ours; nothing was touched), copy failed (the system refuses: the error's value is its errno),
 * out of memory (also if 4,096 are alive). The caller ends *out with stemma_stack_destroy(). */
STEMMA_API stemma_status stemma_stack_create(const stemma_stack_options* options,
                                             stemma_stack** out);
/* Drops entries that wait to be stored: flush first to keep them. Waits for the reads and writes
 * that levels have begun; if a disk hangs, it waits until the disk comes back. Busy: something
 * still uses the stack. */
STEMMA_API stemma_status stemma_stack_destroy(stemma_stack* stack);
/* Waits, at most wait_ns, until everything stored before is kept as durably as the tiers can keep
 * it. *done (may be null): 0 if that was not so in time. */
STEMMA_API stemma_status stemma_stack_flush(stemma_stack* stack, uint64_t wait_ns, uint32_t* done);
/* Says that the engine computed `tokens` tokens in `ns`: this decides whether loading is worth it.
 */
STEMMA_API stemma_status stemma_stack_prefilled(stemma_stack* stack, uint32_t tokens, uint64_t ns);
STEMMA_API stemma_status stemma_stack_level_count(stemma_stack* stack, uint32_t* out);
/* out->struct_size says how much the caller wants. Out of range: no such level. */
STEMMA_API stemma_status stemma_stack_level_stats(stemma_stack* stack, uint32_t level,
                                                  stemma_level_stats* out);

/* ---- Under a stemma_sequences ---------------------------------------------------------------- */

typedef struct stemma_sequence_tiers_options {
  uint32_t struct_size;
  uint32_t segment_tokens; /* The same as the cache's. */
  uint32_t keep_words;     /* 1: keeps the prompts' words with the entries, readable by others. */
  uint32_t threads;        /* Fetches at one time. */
  uint32_t queue;          /* Fetches that may wait; more end at once, with nothing. */
  uint32_t reserved;
  const stemma_engine_traits* traits; /* Required: the engine's. Copied. */
} stemma_sequence_tiers_options;
#define STEMMA_SEQUENCE_TIERS_OPTIONS_INIT \
  {sizeof(stemma_sequence_tiers_options), 64, 0, 2, 1024, 0, 0}

/* There is no initialiser: set struct_size to its size. */
typedef struct stemma_fetch_stats {
  uint32_t struct_size;
  uint32_t waiting;     /* Fetches that wait now. */
  uint64_t heard;       /* Saved parts that the listener heard of. */
  uint64_t heard_bytes; /* Their bytes. */
  uint64_t dropped;     /* Parts for which there was no memory. */
  uint64_t fetches;
  uint64_t found;        /* Fetches that found more than the cache had. */
  uint64_t loaded;       /* How many of `found` loaded what they found. */
  uint64_t not_worth_it; /* How many of `found` loaded nothing, because computing is faster. */
  uint64_t loaded_tokens;
  uint64_t loaded_bytes;
  uint64_t used_again;         /* Parts that were stored when they were used again. */
  uint64_t written_back;       /* Parts that were stored when they left memory. */
  uint64_t written_back_bytes; /* Bytes of written_back. */
} stemma_fetch_stats;

/* The result of a fetch. Zeros until it is over. */
typedef struct stemma_fetched {
  uint32_t over;
  uint32_t stored_tokens; /* Tokens of the prompt that are in tiers and usable. */
  uint32_t loaded_tokens; /* Tokens of the prompt that are there after admit. */
  uint32_t level;         /* The slowest level that a part came from. */
  uint64_t bytes;
  uint64_t spent_ns;
} stemma_fetched;

typedef struct stemma_sequence_tiers stemma_sequence_tiers;
typedef uint64_t stemma_fetch; /* 0: no fetch. */

/* The stack is in use until stemma_sequence_tiers_destroy(). Invalid, out of memory. */
STEMMA_API stemma_status stemma_sequence_tiers_create(stemma_stack* stack,
                                                      const stemma_sequence_tiers_options* options,
                                                      stemma_sequence_tiers** out);
/* Fetches that wait end with nothing found; calls on them still work. Destroy the caches that these
 * tiers listen to first: parts that they save afterwards are not kept. */
STEMMA_API stemma_status stemma_sequence_tiers_destroy(stemma_sequence_tiers* tiers);
/* Fills in options->listener, for stemma_sequences_create(). Invalid: segment_tokens differ, or the
 * struct is too old to have a listener. */
STEMMA_API stemma_status stemma_sequence_tiers_listen(stemma_sequence_tiers* tiers,
                                                      stemma_sequence_options* options);
/* Called once, on any thread, when a fetch is over; perhaps before stemma_sequence_tiers_fetch()
 * returns. */
typedef void (*stemma_fetch_over_fn)(void* user);
/* Starts to look for more of the prompt than the cache has, while its request waits and the engine
 * works on. `options` are those that begin will get. `over` may be null. The caller ends *out with
 * stemma_fetch_end(). Fails as stemma_sequences_lookup() does. */
STEMMA_API stemma_status stemma_sequence_tiers_fetch(
    stemma_sequence_tiers* tiers, stemma_sequences* cache, const stemma_scope* scope,
    const stemma_prompt* prompt, const stemma_turn_options* options, stemma_fetch_over_fn over,
    void* user, stemma_fetch* out);
STEMMA_API stemma_status stemma_sequence_tiers_stats(stemma_sequence_tiers* tiers,
                                                     stemma_fetch_stats* out);
/* Removes entries from the tiers: those of the scope that follow the prefix; with a null or empty
 * prefix, all entries of the scope; with a null scope (and a null `prefix`), everything of this
 * engine's layout. `drop` (may be null) is called once, on this thread, before the tiers are
 * purged. Meanwhile fetches get nothing of the scope. If a whole scope is forgotten, a level with
 * sealed entries drops the scope's key. Waits at most wait_ns. `levels` (may be null) is filled in
 * for the first `level_count` levels. *complete: 1 if all levels are complete. A level that fails
 * is not an error of the call. Do not call it on the engine's thread. Invalid, out of memory. */
STEMMA_API stemma_status stemma_sequence_tiers_forget(stemma_sequence_tiers* tiers,
                                                      const stemma_scope* scope,
                                                      const stemma_prompt* prefix, uint64_t wait_ns,
                                                      stemma_drop_fn drop, void* user,
                                                      stemma_level_purged* levels,
                                                      size_t level_count, uint32_t* complete);

/* Errors of all these calls: invalid (0, or a number that no fetch had), stale (ended), busy
 * (another call is using it; stemma_fetch_wait() makes no other call busy). */

/* Waits until it is over, at most wait_ns (0: only looks). *out may be null. */
STEMMA_API stemma_status stemma_fetch_wait(stemma_fetch fetch, uint64_t wait_ns,
                                           stemma_fetched* out);
/* Ends the fetch soon, with whatever it has. Use it when its request is gone. */
STEMMA_API stemma_status stemma_fetch_cancel(stemma_fetch fetch);
/* Takes the parts that were found into the cache, as stemma_sequences_admit() does. The errors and
 * the rule of one call at a time are the same. *out may be null. Wrong state: the fetch is not
 * over. */
STEMMA_API stemma_status stemma_fetch_admit(stemma_fetch fetch, stemma_sequences* cache,
                                            const stemma_turn_options* options,
                                            stemma_admitted* out);
STEMMA_API stemma_status stemma_fetch_end(stemma_fetch fetch);

/* ---- Under a stemma_cache -------------------------------------------------------------------- */

typedef struct stemma_paged_tiers_options {
  uint32_t struct_size;
  uint32_t keep_words;                /* 1: the prompts' words are kept with the blocks. */
  const stemma_group_options* groups; /* The same as the cache's, with block_bytes. */
  size_t group_count;
  uint64_t layout;           /* Fingerprint of how a block's bytes are arranged. */
  const stemma_block_io* io; /* Required, with read and write; copied. `copy` is not called. */
} stemma_paged_tiers_options;
#define STEMMA_PAGED_TIERS_OPTIONS_INIT {sizeof(stemma_paged_tiers_options), 0, 0, 0, 0, 0}

typedef struct stemma_restored {
  uint32_t cached_tokens;   /* Tokens that the cache had before. */
  uint32_t stored_tokens;   /* Tokens beyond cached_tokens that some tier had. */
  uint32_t restored_tokens; /* How many of stored_tokens are now in the cache. */
  uint32_t shared;          /* 1: another call was restoring them; this one waited for it. */
  uint32_t level_tokens[STEMMA_MOST_LEVELS]; /* How many of restored_tokens each level gave. */
  /* Keeps the restored tokens until the request has its own lease; then release this one. 0: there
   * is none. */
  stemma_lease hold;
} stemma_restored;

typedef struct stemma_paged_tiers stemma_paged_tiers;

/* The stack is in use until stemma_paged_tiers_destroy(). Invalid, out of memory. */
STEMMA_API stemma_status stemma_paged_tiers_create(stemma_stack* stack,
                                                   const stemma_paged_tiers_options* options,
                                                   stemma_paged_tiers** out);
/* No other call may be under way. Afterwards io is not called any more. */
STEMMA_API stemma_status stemma_paged_tiers_destroy(stemma_paged_tiers* tiers);
/* Brings stored parts of the prompt back into the cache, through io.write, as deep as every group
 * can then serve the prompt. For a window group it loads the blocks that the window needs at that
 * depth, for a recurrent group the checkpoint. Waits for the tiers, no longer than computing would
 * take, and for the writes. Restoring nothing is not an error. `options` are those that the
 * request's own lease will get. Invalid, out of memory. */
STEMMA_API stemma_status stemma_paged_tiers_restore(stemma_paged_tiers* tiers, stemma_cache* cache,
                                                    const stemma_scope* scope,
                                                    const stemma_prompt* prompt,
                                                    const stemma_lease_options* options,
                                                    stemma_restored* out);
/* Copies the stored parts of the prompt up to the first level soon, and returns at once. For
 * requests that wait in a queue. */
STEMMA_API stemma_status stemma_paged_tiers_prefetch(stemma_paged_tiers* tiers, stemma_cache* cache,
                                                     const stemma_scope* scope,
                                                     const stemma_prompt* prompt);
/* Call it after the lease has committed words of the prompt; `prompt` must have the lease's words.
 * Of the whole blocks of [from, committed) that the lease still holds, and of the checkpoints
 * beyond `from`, it stores those that a level wants. It reads them through io.read. Pass each
 * position once per request. *stored (may be null): how many blocks and checkpoints were handed to
 * the stack. Copy failed (a read failed; the error's value is the block, or the checkpoint's
 * depth), invalid, out of memory, and the errors of stemma_lease_positions(). */
STEMMA_API stemma_status stemma_paged_tiers_store(stemma_paged_tiers* tiers,
                                                  const stemma_scope* scope,
                                                  const stemma_prompt* prompt, stemma_lease lease,
                                                  uint32_t from, uint32_t priority,
                                                  uint32_t* stored);

/* Evicts until `positions` positions can be drafted without evicting, as far as that is possible.
 * Reads what it evicts through io.read and writes it back to the levels that want it. Does nothing
 * if no level is STEMMA_WRITE_BACK. Restoring does this for its prompt; call it before a lease
 * grows, and with UINT32_MAX to leave nothing behind at the end. *stored (may be null): blocks and
 * checkpoints handed to the stack. Copy failed (the error's value is how many could not be read;
 * they are lost), out of memory, and the errors of stemma_cache_reclaim(). */
STEMMA_API stemma_status stemma_paged_tiers_make_room(stemma_paged_tiers* tiers,
                                                      stemma_cache* cache, uint32_t positions,
                                                      uint32_t* stored);

/* Like stemma_sequence_tiers_forget(). But blocks do not name the prefix that they continue, so it
 * removes everything of the scope that is deeper than the prefix. Meanwhile nothing is restored,
 * and nothing of the scope is stored. If a lease was taken before this call and is stored after it,
 * its blocks are stored again: release such leases first. */
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
