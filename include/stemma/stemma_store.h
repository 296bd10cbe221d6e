/* A store for engines that name their entries themselves: opaque keys of 1 to 64 bytes, and values
 * of bytes, over a stack of tiers (stemma_tiers.h). There are no prompts and no tokens here. An
 * engine's plug-in submits batches and never waits; an eventfd says when batches have ended. It is
 * a part of libstemma_tiers.so; the rules at the top of stemma.h hold here too.
 *
 *   stemma_stack_create --> stemma_store_create --> stemma_store_namespace
 *
 *   stemma_store_submit --> items end one by one, in any order --> the batch ends
 *                                                   '--> stemma_store_event_fd() becomes readable
 *   --> stemma_store_drain, or stemma_store_wait for one batch; stemma_store_cancel gives one up
 *
 * Keys:       a key names its bytes for good. A put of a key that is there already leaves what is
 *             there and ends as STEMMA_ITEM_DONE. To store other bytes under the same key, remove
 *             it first and wait for that. Engines whose keys are hashes never need to.
 * Namespaces: a name with a layout: a number for how the engine arranges a value's bytes, and how
 *             large values are. Entries of different names or layouts never mix: what one wrote is
 *             a miss for the other. Each entry carries its name, layout and key, and they are
 *             compared before a byte of it is handed out.
 * Values:     a get hands out only what was put under that key in that namespace, whole and with
 *             its checksum verified. Anything else is a miss (STEMMA_ITEM_ABSENT). Any entry may be
 *             evicted at any time; the levels' capacities are never exceeded.
 * Levels:     a put goes to all levels at once, also to those of STEMMA_WRITE_BACK, because the
 *             engine decides when a value leaves its memory. A get takes the value from the fastest
 *             level that has it, and then copies it up to the levels that promote.
 * Order:      batches, and the items of one batch, run at the same time and in any order. Wait for
 *             one batch before you submit another that depends on it.
 * Waiting:    only the four calls with a wait_ns (stemma_store_wait, _forget, _flush and _destroy)
 *             do I/O or wait for it. Queues are bounded: an item that finds no room ends as
 *             STEMMA_ITEM_BUSY. Each batch has a deadline, and ends by then whatever a tier does.
 * Memory:     submit copies keys, hints and the arrays of a request. Values and results belong to
 *             the caller, and must stay valid until the batch has ended: until drain, wait or
 *             cancel named it, or destroy returned. From then on the library touches none of it,
 *             even if a disk is still stuck: tiers only ever see copies.
 * Threading:  thread-safe. A store may even be destroyed while other threads call it: their calls
 *             return STEMMA_STALE.
 * fork():     a store belongs to the process that created it. In a child every call returns
 *             STEMMA_WRONG_STATE at once; a child creates a stack and a store of its own.
 * Errors:     a call returns a status; each item has a status of its own. For get and contains a
 *             tier that fails or stalls counts as empty; statistics count the failure.
 */
#ifndef STEMMA_STEMMA_STORE_H
#define STEMMA_STEMMA_STORE_H

#include "stemma/stemma_tiers.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STEMMA_STORE_MOST_KEY_BYTES 64
#define STEMMA_STORE_MOST_NAME_BYTES 64
#define STEMMA_STORE_MOST_ITEMS 65536   /* Of one batch. */
#define STEMMA_STORE_ENVELOPE_BYTES 256 /* What an entry takes besides its value, at each level. */

typedef struct stemma_store stemma_store;
typedef uint64_t stemma_batch; /* Never given twice by one store. 0: no batch. */

/* ---- A store -------------------------------------------------------------------------------- */

typedef struct stemma_store_options {
  uint32_t struct_size;
  uint32_t load_threads;  /* For gets. 1 to 64. */
  uint32_t store_threads; /* For puts and removes. 1 to 64. One more does contains and touch. */
  uint32_t most_batches;  /* Batches submitted and not named yet; more return STEMMA_BUSY. */
  uint32_t most_items;    /* Items that wait in batches; more end as STEMMA_ITEM_BUSY. */
  uint32_t reserved;
  uint64_t put_bytes;  /* Bytes of copies on their way to the levels; beyond that puts wait. */
  uint64_t timeout_ns; /* For batches that have no timeout_ns of their own. */
} stemma_store_options;
#define STEMMA_STORE_OPTIONS_INIT \
  {sizeof(stemma_store_options), 4, 2, 4096, 262144, 0, 134217728u, 10000000000u}

/* Makes a store over the stack, which is in use until the store is destroyed. `options` may be
 * null. Several stores, and tiers under caches, may share a stack. Besides the batches' deadlines,
 * the stack's query_ns, load_ns and store_ns limit each request to a level. Invalid, stale, out of
 * memory, wrong state (a stack of the parent process). The caller ends *out with
 * stemma_store_destroy(). */
STEMMA_API stemma_status stemma_store_create(stemma_stack* stack,
                                             const stemma_store_options* options,
                                             stemma_store** out);
/* Ends every batch: cancels what has not ended, and does not report it any more. After it returns,
 * no memory of any batch is touched, and the store's file descriptor is closed. Copies of values
 * that are on their way to levels still get there: flush first to be sure of that. Waits for the
 * store's threads, at most wait_ns, and so returns even if a level is stuck. A thread that is stuck
 * in a level holds the stack; until it comes back, stemma_stack_destroy() returns STEMMA_BUSY. */
STEMMA_API stemma_status stemma_store_destroy(stemma_store* store, uint64_t wait_ns);

/* ---- Namespaces ----------------------------------------------------------------------------- */

typedef struct stemma_store_layout {
  uint32_t struct_size;
  uint32_t reserved;
  /* A fingerprint of everything that decides how a value's bytes are arranged: model, data type,
   * shape, page size, tensor parallelism, the plug-in's version. Entries of other layouts are
   * misses. */
  uint64_t layout;
  /* How large each value is. A put of another size, or a get with less room, is refused with
   * STEMMA_INVALID_ARGUMENT. 0: values may have any size from 1 byte. */
  uint64_t value_bytes;
} stemma_store_layout;
#define STEMMA_STORE_LAYOUT_INIT {sizeof(stemma_store_layout), 0, 0, 0}

/* Gives a namespace a number for this store's calls: the same name and layout get the same *out.
 * `name` has 1 to 64 characters of A-Z a-z 0-9 . _ - / : @ + and is stored with every entry, so
 * all who can read the store can read it. Invalid, out of range (there are 4,096). */
STEMMA_API stemma_status stemma_store_namespace(stemma_store* store, const char* name,
                                                const stemma_store_layout* layout, uint32_t* out);

/* ---- Batches -------------------------------------------------------------------------------- */

enum stemma_store_op {
  STEMMA_STORE_PUT = 0,
  STEMMA_STORE_GET = 1,
  STEMMA_STORE_CONTAINS = 2, /* Asks every level; see stemma_store_lookup() for a quick answer. */
  STEMMA_STORE_REMOVE = 3,
  STEMMA_STORE_TOUCH = 4 /* The value was used elsewhere: levels keep it as if it had been read. */
};

/* What became of an item. */
enum stemma_item_status {
  STEMMA_ITEM_PENDING = 0,  /* It has not ended. */
  STEMMA_ITEM_DONE = 1,     /* put, contains, touch: a level has it. get: the value is there.
                               remove: it was there, and no level has it any more. */
  STEMMA_ITEM_ABSENT = 2,   /* All but put: no level has it, or its value is damaged, of another
                               size, or larger than the room. */
  STEMMA_ITEM_BUSY = 3,     /* A queue was full: nothing was done. Try again later. */
  STEMMA_ITEM_REFUSED = 4,  /* put: too large for every level, no room, or all levels are of
                               STEMMA_WRITE_SECOND_USE and this was the first. */
  STEMMA_ITEM_FAILED = 5,   /* put, remove, touch: the levels could not do it. */
  STEMMA_ITEM_LATE = 6,     /* The deadline passed. A put may still get there. */
  STEMMA_ITEM_CANCELLED = 7 /* Cancelled. A put may still get there. */
};

/* Written by the time the batch has ended. Never grows. */
typedef struct stemma_store_result {
  uint32_t status; /* A stemma_item_status. */
  uint32_t levels; /* put, contains, touch: bit l: level l has it. get: where it came from. */
  uint64_t bytes;  /* get: of the value. Otherwise 0. */
} stemma_store_result;

/* Each array has `count` elements. A null array counts as not given. */
typedef struct stemma_store_request {
  uint32_t struct_size;
  uint32_t op;              /* A stemma_store_op. */
  uint32_t name_space;      /* From stemma_store_namespace(). */
  uint32_t count;           /* Items: 1 to STEMMA_STORE_MOST_ITEMS. */
  const uint8_t* keys;      /* Required: the keys one after the other, without gaps. */
  const uint8_t* key_sizes; /* How long each is, 1 to 64. Null: all have key_size. */
  uint32_t key_size;        /* Used if key_sizes is null. */
  uint32_t priority;        /* put: the priority of all items, 0 (evicted first) to 100. */
  void* const* values;      /* put: read. get: written. Required for these. */
  /* put: the size of each value. get: the room for each value. Null: value_size for all. */
  const uint64_t* value_sizes;
  uint64_t value_size; /* Used if value_sizes is null. 0: the namespace's value_bytes. */
  /* Hints for a put, all optional. They are kept with the entry, but do not name it. */
  const uint8_t* priorities;   /* One for each item. Null: `priority` for all. */
  const uint32_t* depths;      /* Blocks before each item in its prompt, below 2^30. In one batch
                                  the deeper ones go first when room is short. */
  const uint8_t* parents;      /* Keys of the entries that they continue, one after the other. */
  const uint8_t* parent_sizes; /* Required with `parents`: how long each is; 0: no parent. */
  uint64_t timeout_ns;         /* The deadline from now, an hour at most. 0: the store's timeout. */
  uint64_t user;               /* Handed back when the batch has ended. */
  stemma_store_result* results; /* Written until the batch has ended. Null: not wanted. */
} stemma_store_request;
#define STEMMA_STORE_REQUEST_INIT \
  {sizeof(stemma_store_request), STEMMA_STORE_PUT, 0, 0, 0, 0, 0, 35, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* A batch that ended. Never grows. */
typedef struct stemma_store_finished {
  stemma_batch batch;
  uint64_t user;  /* The request's. */
  uint64_t bytes; /* put, get: of the values of items that are done. */
  uint32_t op;
  uint32_t count;   /* Items in the batch. */
  uint32_t done;    /* Items that ended as STEMMA_ITEM_DONE. */
  uint32_t leading; /* Done items before the first that is not done. */
} stemma_store_finished;

/* Starts a batch and returns at once; the batch may have ended by then. On an error nothing was
 * started: invalid (an argument; the error's value is the item, if it is about one), busy
 * (most_batches are under way or wait to be drained), out of memory, stale, wrong state. */
STEMMA_API stemma_status stemma_store_submit(stemma_store* store,
                                             const stemma_store_request* request,
                                             stemma_batch* out);
/* A file descriptor that is readable while there is a batch that has ended and that drain, wait and
 * cancel have not named yet. It belongs to the store: only poll it, never read or close it. */
STEMMA_API stemma_status stemma_store_event_fd(stemma_store* store, int32_t* out);
/* Names at most `capacity` batches that have ended, in the order in which they ended. Each batch is
 * named once. *count: how many. Does not wait; 0 is not an error. */
STEMMA_API stemma_status stemma_store_drain(stemma_store* store, stemma_store_finished* out,
                                            size_t capacity, size_t* count);
/* Waits at most wait_ns until the batch has ended (0: only looks). *over: 1 if it has; then *out
 * (may be null) is filled in, and the batch counts as named. Stale: it was named already, or never
 * existed. */
STEMMA_API stemma_status stemma_store_wait(stemma_store* store, stemma_batch batch,
                                           uint64_t wait_ns, uint32_t* over,
                                           stemma_store_finished* out);
/* Ends the batch now: items that have not ended end as STEMMA_ITEM_CANCELLED. The batch counts as
 * named; *out may be null. Waits only for a memory copy that has begun. Stale: as for wait. Either
 * way the batch's memory is not touched any more. */
STEMMA_API stemma_status stemma_store_cancel(stemma_store* store, stemma_batch batch,
                                             stemma_store_finished* out);

/* ---- At once -------------------------------------------------------------------------------- */

/* Looks up keys, without waiting, at the levels that know what they have: host memory and disks. A
 * key that only a Redis or a shared directory has is not found. keys, key_sizes and key_size are as
 * in a request. levels[i] (`levels` may be null): bit l: level l has it. *leading (may be null):
 * how many are there before the first that is not. About 0.15 us a key with SHA instructions, 0.35
 * us without. */
STEMMA_API stemma_status stemma_store_lookup(stemma_store* store, uint32_t name_space,
                                             const uint8_t* keys, const uint8_t* key_sizes,
                                             uint32_t key_size, uint32_t count, uint8_t* levels,
                                             uint32_t* leading);

/* ---- Forgetting and flushing ---------------------------------------------------------------- */

/* Removes all entries of the namespace's name at all levels: those of its layout, or with
 * all_layouts 1 of every layout. Puts that have not ended may land afterwards: end them first.
 * Waits at most wait_ns. `levels`, `level_count` and *complete as in
 * stemma_sequence_tiers_forget(). */
STEMMA_API stemma_status stemma_store_forget(stemma_store* store, uint32_t name_space,
                                             uint32_t all_layouts, uint64_t wait_ns,
                                             stemma_level_purged* levels, size_t level_count,
                                             uint32_t* complete);
/* Waits, at most wait_ns, until all puts of ended batches are as durable as the levels can make
 * them: on a disk they survive a loss of power. (Items that are done survive a kill of the process
 * even without this call.) *done (may be null): 0 if that was not so in time. */
STEMMA_API stemma_status stemma_store_flush(stemma_store* store, uint64_t wait_ns, uint32_t* done);

/* ---- Statistics ----------------------------------------------------------------------------- */

/* There is no initialiser: set struct_size to its size. Counted since the store was made, except
 * where the comment says "now". */
typedef struct stemma_store_stats {
  uint32_t struct_size;
  uint32_t namespaces;      /* Now. */
  uint64_t batches;         /* Submitted. */
  uint64_t batches_waiting; /* Now: batches that have not ended. */
  uint64_t items_waiting;   /* Now: items that have not ended. */
  uint64_t batches_ended;   /* Now: batches that have ended and wait to be named. */
  /* The next seven count items that are done, and the bytes of puts and gets. */
  uint64_t puts;
  uint64_t put_bytes;
  uint64_t gets;
  uint64_t get_bytes;
  uint64_t found; /* By contains. */
  uint64_t removed;
  uint64_t touched;
  /* The next six count items of all kinds that ended in other ways. */
  uint64_t absent;
  uint64_t busy;
  uint64_t refused;
  uint64_t failed;
  uint64_t late;
  uint64_t cancelled;
  uint64_t mismatched;   /* Entries whose envelope was not the one asked for. They are misses. */
  uint64_t lookups;      /* Keys that lookup was asked about. */
  uint64_t lookup_found; /* How many of these were there. */
} stemma_store_stats;

/* out->struct_size says how much the caller wants. */
STEMMA_API stemma_status stemma_store_stats_read(stemma_store* store, stemma_store_stats* out);
/* The same as one JSON object, with "levels" (an array, as stemma_level_stats) and "namespaces"
 * (their names, layouts and value_bytes). It is not terminated. See Buffers in stemma.h. */
STEMMA_API stemma_status stemma_store_stats_json(stemma_store* store, char* out, size_t capacity,
                                                 size_t* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STEMMA_STEMMA_STORE_H */
