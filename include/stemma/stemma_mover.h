/* The block mover copies KV blocks between host memory and an engine's pages, on a CPU or on a CUDA
 * device, and computes a checksum of the bytes in the same pass. It is a library of its own,
 * libstemma_mover.so, on top of libstemma.so. The rules at the top of stemma.h hold here too.
 *
 *   stemma_mover_create (the pages, described by strides)
 *     --> stemma_mover_load  --> stemma_transfer_gate for layer 0, 1, ... --> stemma_transfer_wait
 *     --> stemma_mover_store --> stemma_transfer_wait --> publish the bytes with their sums
 *     --> stemma_transfer_end --> stemma_mover_destroy
 *
 * Pages:      belong to the engine. A group of layers has pages numbered from 0. Each page lies in
 *             one or more planes: one array for the keys of layer 0, another for its values, and so
 *             on. A plane says where page 0 begins, how far it is to the next page, and how the
 *             bytes of one page lie in up to four dimensions. Keys and values in one array, layers
 *             in one array, and layouts that put pages before layers are planes with other strides.
 *             The mover sees bytes, so data types do not matter.
 * Blocks:     a block is the content of one page in host memory: its planes one after the other, in
 *             the order given. In each plane the dimensions come in the order given, without gaps,
 *             and zeros follow up to a multiple of 16 bytes. stemma_mover_block_bytes() returns its
 *             size; give this size to the cache and the tiers as block_bytes.
 * Memory:     a CUDA device reads and writes pinned host memory itself: memory from
 *             stemma_mover_take(), from a host tier or a stack with a pin hook, or pinned by the
 *             caller (torch's pin_memory()). Other memory goes through the mover's arena, which is
 *             slower.
 * Order:      a load or a store begins after all work that is in `after_stream` at the time of the
 *             call, for example kernels that read the old pages. After stemma_transfer_gate(), the
 *             computing stream may use the layer. Do not sample, commit or publish anything before
 *             stemma_transfer_wait() has returned STEMMA_OK.
 * Sums:       a block has a 64-bit sum (stemma_mover_sum()). A store computes it, a load compares
 *             it. A change within one 8-byte word always changes the sum. Other damage goes
 *             unnoticed once in 2^64. If a block was wrong, its pages hold the wrong bytes:
 *             recompute them.
 * Streams:    cudaStream_t and cudaEvent_t as 64-bit numbers, from any CUDA runtime in the process
 *             (torch: stream.cuda_stream). 0 is the legacy default stream. On a CPU streams are
 *             ignored: a call that would make a stream wait blocks instead, and events are 0.
 *             If a stream captures a graph, calls return wrong state: begin and gate transfers
 *             outside of the capture.
 * Threading:  thread-safe. A call returns when its work is queued; copies run on the mover's own
 *             streams and threads. If its internal queue is full, the call waits for the oldest
 *             transfer. stemma_mover_destroy() must not run beside another call with this mover.
 * Errors:     the statuses of stemma.h, with a sentence in stemma_last_error_message().
 *             Unsupported: built without CUDA, or there is no driver. Out of memory: on the host or
 *             the device. Copy failed: the device reported an error; if the device cannot recover,
 *             every later call returns this. Corrupt: the bytes that arrived have another sum.
 */
#ifndef STEMMA_STEMMA_MOVER_H
#define STEMMA_STEMMA_MOVER_H

#include "stemma/stemma.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STEMMA_MOVER_CPU (-1)                    /* The CPU, as a device. */
#define STEMMA_MOVER_MAX_DIMS 4                  /* Dimensions of a plane. */
#define STEMMA_MOVER_MAX_LAYERS 1024             /* Layers of a group. */
#define STEMMA_MOVER_NO_TOKENS 0xFFFFFFFFu       /* As token_dim. */
#define STEMMA_MOVER_NO_STREAM UINT64_MAX        /* There is nothing to wait for. */
#define STEMMA_MOVER_OWN_STREAM (UINT64_MAX - 1) /* The mover's stream for this direction. */

/* ---- Pages ----------------------------------------------------------------------------------- */

/* Page p begins at base + p * page_stride. It holds dim_size[0] * dim_size[1] * ... runs of
 * run_bytes each, the first dimension outermost; one step in dimension d is dim_stride[d] bytes.
 * Example: a tensor of shape [pages, tokens, heads, head_dim] has as base its address, as
 * page_stride the stride of its first dimension in bytes, two dimensions (tokens and heads) with
 * their strides, as run_bytes the bytes of one head, and token_dim 0. */
typedef struct stemma_mover_plane {
  uint64_t base;
  uint64_t page_stride;
  uint64_t run_bytes; /* Contiguous bytes; at least 1. */
  uint32_t layer;     /* In the group, from 0. Planes of one layer arrive together. */
  uint32_t dim_count; /* 0: a page is one run. */
  uint64_t dim_size[STEMMA_MOVER_MAX_DIMS];
  uint64_t dim_stride[STEMMA_MOVER_MAX_DIMS];
  /* The dimension that counts a block's positions, for stemma_mover_copy().
   * STEMMA_MOVER_NO_TOKENS: pages are copied whole. */
  uint32_t token_dim;
  uint32_t reserved;
} stemma_mover_plane;

typedef struct stemma_mover_group {
  const stemma_mover_plane* planes; /* In ascending order of layer; every layer has at least one. */
  size_t plane_count;
  uint32_t pages; /* Pages are numbered [0, pages). */
  uint32_t reserved;
} stemma_mover_group;

typedef struct stemma_mover_options {
  uint32_t struct_size;
  int32_t device;                   /* The number of a CUDA device, or STEMMA_MOVER_CPU. */
  const stemma_mover_group* groups; /* One for each group of the cache. Copied. */
  size_t group_count;               /* 1 to STEMMA_MAX_GROUPS. */
  uint32_t threads;                 /* Copying threads, up to 64. 0: 4, or fewer on fewer cores. */
  uint32_t thread_blocks; /* Thread blocks of the kernel, 1 to 8. Each uses a multiprocessor. */
  /* Bytes of pinned memory, taken at creation for stemma_mover_take() and for host memory that the
   * device does not reach (which needs room for a block at least). 0: none. */
  uint64_t arena_bytes;
  /* The driver copies contiguous pieces of at least this size in batches. 0: measured at creation,
   * within a few tenths of a second. UINT64_MAX: never. */
  uint64_t batch_from_bytes;
  uint64_t ring_bytes; /* Room for descriptors in flight, 48 bytes a piece. At least 65,536. */
} stemma_mover_options;
#define STEMMA_MOVER_OPTIONS_INIT \
  {sizeof(stemma_mover_options), STEMMA_MOVER_CPU, 0, 0, 0, 8, 0, 0, 4194304u}

typedef struct stemma_mover stemma_mover;

/* 1 if this library was built with CUDA. It does not say whether there is a device. */
STEMMA_API int32_t stemma_mover_has_cuda(void);
/* The number of usable CUDA devices; 0 without a driver. Never fails. */
STEMMA_API uint32_t stemma_mover_device_count(void);

/* End the mover with stemma_mover_destroy(). Invalid: no such device, a plane that overlaps itself,
 * a layer without planes, pages that are not in this device's memory (for a CPU: null addresses);
 * the error's value is the number of the plane, counted over all groups. Unsupported, out of
 * memory. */
STEMMA_API stemma_status stemma_mover_create(const stemma_mover_options* options,
                                             stemma_mover** out);
/* Waits for running transfers and ends all of them. Afterwards memory from stemma_mover_take() no
 * longer exists. Busy: transfers that a cache or tiers began through stemma_mover_block_io() are
 * still running, or a `done` callback made this call. */
STEMMA_API stemma_status stemma_mover_destroy(stemma_mover* mover);

STEMMA_API stemma_status stemma_mover_block_bytes(stemma_mover* mover, uint32_t group,
                                                  uint64_t* bytes);
STEMMA_API stemma_status stemma_mover_layer_count(stemma_mover* mover, uint32_t group,
                                                  uint32_t* layers);
/* The range of a layer's bytes in a block of the group. */
STEMMA_API stemma_status stemma_mover_layer_range(stemma_mover* mover, uint32_t group,
                                                  uint32_t layer, uint64_t* begin, uint64_t* bytes);
/* A fingerprint of how a block's bytes are arranged, for stemma_paged_tiers_options::layout. Equal
 * if the planes have equal layers, dimensions, token_dim and run_bytes, wherever the pages are. */
STEMMA_API stemma_status stemma_mover_layout(stemma_mover* mover, uint64_t* fingerprint);

/* There is no initialiser: set struct_size to its size. */
typedef struct stemma_mover_stats {
  uint32_t struct_size;
  uint32_t running;               /* Transfers that run now. */
  uint64_t loads, stores, copies; /* Transfers begun; a gather or a scatter counts as a copy. */
  uint64_t load_bytes, store_bytes, copy_bytes;
  uint64_t staged_bytes;     /* Bytes that went through the arena. */
  uint64_t batched_bytes;    /* Bytes that the driver copied in batches. */
  uint64_t wrong_blocks;     /* Blocks with a wrong sum. */
  uint64_t ring_waits;       /* How often a call waited for room for its descriptors. */
  uint64_t batch_from_bytes; /* As given or measured. UINT64_MAX: never. */
  uint64_t arena_bytes, arena_taken_bytes;
  char device[64]; /* "cpu, 4 threads" or "NVIDIA H200"; terminated. */
} stemma_mover_stats;
STEMMA_API stemma_status stemma_mover_stats_get(stemma_mover* mover, stemma_mover_stats* out);

/* ---- Host memory ----------------------------------------------------------------------------- */

/* Memory of the arena, aligned to 4,096 bytes. Out of memory: no free range is large enough. */
STEMMA_API stemma_status stemma_mover_take(stemma_mover* mover, uint64_t bytes, void** out);
/* No transfer may be using it. Invalid: it is not from stemma_mover_take(). */
STEMMA_API stemma_status stemma_mover_give_back(stemma_mover* mover, void* memory);
/* The sum of a block with these bytes. */
STEMMA_API uint64_t stemma_mover_sum(const void* bytes, uint64_t size);

/* ---- Loading and storing --------------------------------------------------------------------- */

typedef struct stemma_host_piece {
  void* data;
  uint64_t bytes;
} stemma_host_piece;

/* One block. Its bytes are in `pieces`, in this order; together they have block_bytes bytes. Each
 * piece begins at a multiple of 16, and all but the last have a multiple of 16 bytes. */
typedef struct stemma_mover_item {
  uint32_t page;
  uint32_t piece_count;
  const stemma_host_piece* pieces;
  uint64_t sum; /* For a load with `check`: the expected sum. */
} stemma_mover_item;

typedef uint64_t stemma_transfer; /* Never given twice in a process. 0 is none. */

/* Called once when the transfer is over: STEMMA_OK, STEMMA_CORRUPT or STEMMA_COPY_FAILED. It runs
 * on a thread of the mover, perhaps before the call that began the transfer returns. */
typedef void (*stemma_transfer_done_fn)(void* user, stemma_status outcome);

typedef struct stemma_mover_request {
  uint32_t struct_size;
  uint32_t group;
  /* At most 2^24 items. No page appears twice. Items and piece arrays are copied. The pieces'
   * memory is in use until the transfer is over. */
  const stemma_mover_item* items;
  size_t count;
  /* The stream that copies: a stream of the caller's, or STEMMA_MOVER_OWN_STREAM. Memory that goes
   * through the arena can only be copied on the mover's own stream; with another stream the request
   * is refused. */
  uint64_t stream;
  /* Copying begins after the work that this stream has now. STEMMA_MOVER_NO_STREAM: at once. */
  uint64_t after_stream;
  uint32_t check;          /* For a load. 1: compare the sums. 0: the items have none. */
  uint32_t layers_at_once; /* Layers that share a gate. 1: each has its own. 0: one gate for all. */
  stemma_transfer_done_fn done; /* May be null. */
  void* user;
} stemma_mover_request;
#define STEMMA_MOVER_REQUEST_INIT                                  \
  {sizeof(stemma_mover_request), 0, 0, 0, STEMMA_MOVER_OWN_STREAM, \
   STEMMA_MOVER_NO_STREAM,       1, 1, 0, 0}

/* Copies host memory to pages. Nobody else may use the pages until the transfer is over (drafts of
 * a lease are private). End the transfer with stemma_transfer_end(). Invalid: pieces of the wrong
 * size or alignment or in the device's memory, a page that appears twice. Out of range: no such
 * group or page. The error's value is the number of the item. Unsupported: the device does not
 * reach the host memory, and either the arena has no room for a block or the request names a stream
 * of the caller's. Copy failed. */
STEMMA_API stemma_status stemma_mover_load(stemma_mover* mover, const stemma_mover_request* request,
                                           stemma_transfer* out);
/* Copies pages to host memory, as stemma_mover_load() does. `check` and the items' sums are
 * ignored; stemma_transfer_results() returns the sums. */
STEMMA_API stemma_status stemma_mover_store(stemma_mover* mover,
                                            const stemma_mover_request* request,
                                            stemma_transfer* out);

/* ---- On the device --------------------------------------------------------------------------- */

/* Copies the first `tokens` positions of each source page to its target page, on the stream. Planes
 * without a token dimension are copied whole. The transfer has one gate: any layer number names it.
 * No target may be a source or another target. Out of range, invalid, copy failed. */
STEMMA_API stemma_status stemma_mover_copy(stemma_mover* mover, const stemma_block_copy* copies,
                                           size_t count, uint64_t stream, stemma_transfer* out);
/* Gather packs pages into blocks, back to back in the device's memory at `packed` (a multiple of
 * 16). Scatter unpacks them. The zeros between planes are neither written nor read. Invalid: the
 * memory at `packed` is not the device's, or is too small. */
STEMMA_API stemma_status stemma_mover_gather(stemma_mover* mover, uint32_t group,
                                             const uint32_t* pages, size_t count, uint64_t packed,
                                             uint64_t stream, stemma_transfer* out);
STEMMA_API stemma_status stemma_mover_scatter(stemma_mover* mover, uint32_t group,
                                              const uint32_t* pages, size_t count, uint64_t packed,
                                              uint64_t stream, stemma_transfer* out);

/* ---- Transfers ------------------------------------------------------------------------------- */

/* Errors of all these calls: invalid (0, or a number that no transfer had), stale (ended). */

/* Makes the stream wait until the layer of a load is in its pages; on a CPU the call waits. The
 * bytes are not checked yet: compute with them, but commit nothing. Out of range: no such layer.
 * Copy failed: the bytes will never arrive. */
STEMMA_API stemma_status stemma_transfer_gate(stemma_transfer transfer, uint32_t layer,
                                              uint64_t stream);
/* The event that the gate waits for, borrowed until stemma_transfer_end(); 0 on a CPU. */
STEMMA_API stemma_status stemma_transfer_event(stemma_transfer transfer, uint32_t layer,
                                               uint64_t* event);
/* Waits until the transfer is over, for wait_ns at most (0 only looks; STEMMA_NEVER waits without
 * a limit). OK: all bytes arrived and all sums are right. Corrupt: some sums are wrong; the error's
 * value is the number of the first such item, and the other items are good. Copy failed: nothing is
 * known. Busy: it is not over. */
STEMMA_API stemma_status stemma_transfer_wait(stemma_transfer transfer, uint64_t wait_ns);

typedef struct stemma_mover_result {
  uint64_t sum; /* The sum of the copied bytes; 0 if they were not summed. */
  stemma_status status;
  uint32_t reserved;
} stemma_mover_result;
/* The results of all items, in their order. Busy: it is not over. Out of range: `out` is too small.
 */
STEMMA_API stemma_status stemma_transfer_results(stemma_transfer transfer, stemma_mover_result* out,
                                                 size_t capacity, size_t* count);
/* A fence that is signalled when the transfer no longer touches pages or host memory. Use it to
 * release a lease whose load is still running. Ask it until it is signalled, also after
 * stemma_transfer_end(), but not after stemma_mover_destroy(). */
STEMMA_API stemma_status stemma_transfer_fence(stemma_transfer transfer, stemma_fence* out);
/* Forgets the number. A running transfer goes on, and `done` is called when it is over. */
STEMMA_API stemma_status stemma_transfer_end(stemma_transfer transfer);

/* ---- Under a cache and tiers ----------------------------------------------------------------- */

/* Fills in stemma_options::block_io or stemma_paged_tiers_options::io. Each transfer is a load, a
 * store or a copy of this mover on its own streams. It waits for the work that `after_stream` then
 * has, as requests do. With STEMMA_MOVER_NO_STREAM the engine must make sure of the order. */
STEMMA_API stemma_status stemma_mover_block_io(stemma_mover* mover, uint64_t after_stream,
                                               stemma_block_io* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STEMMA_STEMMA_MOVER_H */
