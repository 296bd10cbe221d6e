/* The C ABI of Stemma: the KV prefix cache of an LLM engine, for every language that can call C.
 * This is the header to include. It serves engines that own pages, and includes stemma_sequence.h
 * for engines with opaque sequences and stemma_whole_prompt.h for whole prompts. Tiers are another
 * library, stemma_tiers.h.
 *
 *   stemma_cache_create --> stemma_cache_lease --> copies --> the engine computes
 *     --> stemma_lease_commit --> stemma_lease_release --> ... --> stemma_cache_destroy
 *
 * The words are the same as in the C++ headers, which explain more: `commit` there is
 * stemma_lease_commit here. For C99 and C++.
 *
 * Status:     every call that can fail returns a stemma_status; STEMMA_OK is 0. A call that returns
 *             anything else has changed nothing (exceptions are named) and written no output;
 *             stemma_last_error_message() says what is wrong. A comment lists errors last: "Out of
 *             blocks, invalid (tokens)." means STEMMA_OUT_OF_BLOCKS and STEMMA_INVALID_ARGUMENT.
 * Handles:    a stemma_cache* is opaque. Null, foreign and destroyed pointers are recognised and
 *             refused (a destroyed one until some 60,000 more caches have been created). A
 *             stemma_lease is a 64-bit number that is never given twice in a process. For 0, a
 *             number never given and the number of a released lease, calls return an error.
 * Threading:  thread-safe, with two exceptions. No other call may use a cache while it is being
 *             destroyed. A lease serves one call at a time: a second call that runs into the first
 *             returns STEMMA_BUSY and does nothing (also if it comes from a callback that the first
 *             waits for). Different threads may use different leases at once, and any thread may
 *             release a lease.
 * Callbacks:  called on any thread that needs them, with the `user` pointer they came with, and
 *             with none of Stemma's locks held (except the clock). Two threads may call one at the
 *             same time. They must return: no exception and no longjmp may cross Stemma. All but
 *             the clock and fences may call Stemma.
 * Ownership:  memory belongs to the side that allocated it. Arguments are borrowed for the call,
 *             and copied if they are needed longer. Results are written into the caller's memory,
 *             or borrowed for as long as the comment says. Callbacks and their `user` must stay
 *             valid until `closed` (see stemma_options) is called.
 * Buffers:    calls that fill (out, capacity, count) set *count to the number of elements. With
 *             capacity 0 they do nothing else (`out` may be null). If capacity is too small, they
 *             return STEMMA_OUT_OF_RANGE and write nothing else.
 * Structs:    a struct that begins with struct_size may grow at its end. Start from its
 *             STEMMA_..._INIT, which has the size and the defaults. A library newer than the caller
 *             takes every size that was ever released, and uses defaults for the missing fields. An
 *             older one takes a larger size if all fields that it does not know are 0 (in a struct
 *             that the library fills in, it leaves them alone). Any other size is
 *             STEMMA_INVALID_ARGUMENT. Structs without struct_size never change. `reserved` is 0.
 * Cost:       a call costs some 30 ns more than the C++ call. In steady state a call allocates only
 *             if the C++ call does.
 */
#ifndef STEMMA_STEMMA_H
#define STEMMA_STEMMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define STEMMA_API __attribute__((visibility("default")))
#else
#define STEMMA_API
#endif

/* ---- Status ---------------------------------------------------------------------------------- */

typedef int32_t stemma_status;

/* Grouped by what the caller does next. */
enum stemma_status_code {
  STEMMA_OK = 0,
  /* Make room: release leases, wait, or ask for less; then call again. */
  STEMMA_OUT_OF_BLOCKS = 1,  /* Too few blocks of some group are free or evictable. */
  STEMMA_OVER_QUOTA = 2,     /* The tenant's byte quota does not allow it. */
  STEMMA_OVER_PIN_SHARE = 3, /* Pins may not hold more of the pool than the options allow. */
  STEMMA_OUT_OF_MEMORY = 4,  /* The system gave no memory. */
  /* Retry later: nothing is wrong with the call. */
  STEMMA_BUSY = 5, /* Something is still in use: a lease, a copy, a fence. */
  /* Fix the call. */
  STEMMA_INVALID_ARGUMENT = 6, /* A value that no call accepts. */
  STEMMA_OUT_OF_RANGE = 7,     /* A position, index or count beyond what this object has. */
  STEMMA_WRONG_STATE = 8,      /* Right call, wrong moment: not committed yet, copies pending. */
  STEMMA_STALE = 9,            /* What the handle names is gone: released, destroyed, done. */
  STEMMA_UNSUPPORTED = 10,     /* This cache was not created with what the call needs. */
  /* Recompute: the bytes are not available. The answer is still correct, only slower. */
  STEMMA_COPY_FAILED = 11, /* Bytes could not be copied; what depended on them must be computed. */
  STEMMA_CORRUPT = 12      /* Stored bytes do not describe what they should. None were used. */
};

/* "out_of_blocks"; "unknown" for a number that is not a status. Static. */
STEMMA_API const char* stemma_status_name(stemma_status status);
/* Describes this thread's last failed call: "stemma_lease_commit: out_of_range: ...". Never null;
 * empty if no call has failed. Valid until this thread's next failed call. */
STEMMA_API const char* stemma_last_error_message(void);
/* The number that the error is about (a position, an index, an option's value), or UINT32_MAX. For
 * STEMMA_OUT_OF_BLOCKS of a cache: how many blocks are missing, or, if the request never fits, how
 * many too many it asks for. */
STEMMA_API uint32_t stemma_last_error_value(void);
/* For STEMMA_OUT_OF_BLOCKS: the layer group that is short, or STEMMA_MAX_GROUPS if no group is. */
STEMMA_API uint32_t stemma_last_error_group(void);
/* For STEMMA_OUT_OF_BLOCKS: 1 if the call would fail even with everything else gone. Do not wait:
 * ask for less at once, or refuse the request. */
STEMMA_API int32_t stemma_last_error_never_fits(void);

/* ---- This library ---------------------------------------------------------------------------- */

#define STEMMA_VERSION_MAJOR 0
#define STEMMA_VERSION_MINOR 2
#define STEMMA_VERSION_PATCH 0

typedef struct stemma_version_numbers {
  uint32_t major;
  uint32_t minor;
  uint32_t patch;
} stemma_version_numbers;

/* The version of the running library; the macros give that of the compiled header. */
STEMMA_API stemma_version_numbers stemma_version(void);
STEMMA_API const char* stemma_version_string(void);
/* 1 if this build, on this machine, has the named feature ("avx2", "avx512", "sha_ni",
 * "content_keys", "events"); 0 otherwise, also for an unknown name and for null. */
STEMMA_API int32_t stemma_has_feature(const char* name);

enum stemma_log_level {
  STEMMA_LOG_DEBUG = 0,
  STEMMA_LOG_INFO = 1,
  STEMMA_LOG_WARNING = 2,
  STEMMA_LOG_ERROR = 3
};

/* `line` has `size` bytes, is not terminated, and is borrowed for the call. */
typedef void (*stemma_log_fn)(void* user, uint32_t level, const char* line, size_t size);
/* A process has one log handler. Null (the default) drops all lines. Set it before any cache. */
STEMMA_API stemma_status stemma_set_log_handler(stemma_log_fn handler, void* user);

/* Called with a description when Stemma finds its own books broken, just before it stops the
 * process. No argument, call order, callback result or stored byte can cause that. */
typedef void (*stemma_fatal_fn)(void* user, const char* what, size_t size);
/* A process has one fatal handler. Null writes to standard error. Set it before any cache. */
STEMMA_API stemma_status stemma_set_fatal_handler(stemma_fatal_fn handler, void* user);

/* This call and the next are for libraries on top of this one, such as stemma_tiers; engines need
 * neither. Copies this error as the thread's last error and returns `status`. STEMMA_OK and numbers
 * that are not a status count as STEMMA_INVALID_ARGUMENT. */
STEMMA_API stemma_status stemma_fail(const char* call, stemma_status status, const char* message,
                                     uint32_t value);
/* Hands a line to the process's log handler. */
STEMMA_API void stemma_log(uint32_t level, const char* line, size_t size);

/* ---- Small values ---------------------------------------------------------------------------- */

#define STEMMA_TOKEN_LIMIT 0x80000000u /* Tokens are below it. */
#define STEMMA_NO_BLOCK 0xFFFFFFFFu
#define STEMMA_MAX_GROUPS 8
#define STEMMA_NEVER UINT64_MAX /* A time that never comes. */
#define STEMMA_ALL UINT32_MAX   /* As a number of positions: no limit. */

/* Any bytes; need not be terminated. Null with size 0 is empty. */
typedef struct stemma_bytes {
  const void* data;
  size_t size;
} stemma_bytes;

/* A digest of everything that must be equal before the tokens of two prompts are compared. A plain
 * value: equal bytes are the same scope, and a stored digest may be put back here. */
typedef struct stemma_scope {
  uint8_t digest[32];
} stemma_scope;

/* An adapter as it is loaded now; its generation changes when other weights take its name. */
typedef struct stemma_scope_adapter {
  stemma_bytes name;
  uint64_t generation;
  double scale;
} stemma_scope_adapter;

typedef struct stemma_scope_spec {
  uint32_t struct_size;
  uint32_t state_format;                /* Version of the engine's opaque state bytes. */
  stemma_bytes model;                   /* Required. A digest of the weights, never a path. */
  const stemma_scope_adapter* adapters; /* In the order they are applied. */
  size_t adapter_count;
  stemma_bytes kv_types;        /* Element types of K and V: "f16/f16". */
  stemma_bytes layout;          /* How a block's bytes are arranged. */
  stemma_bytes rope_and_window; /* Whatever else changes K and V. */
  /* Keeps a tenant's cache private; 16 random bytes or more. Without one, all users of the scope
   * share it and can tell what is cached. */
  stemma_bytes tenant_salt;
  stemma_bytes caller_namespace; /* For the caller's own separations. */
} stemma_scope_spec;
#define STEMMA_SCOPE_SPEC_INIT \
  {sizeof(stemma_scope_spec), 0, {0, 0}, 0, 0, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}

/* Invalid: no model, a scale that is not finite (the error's value is the adapter's index). */
STEMMA_API stemma_status stemma_scope_make(const stemma_scope_spec* spec, stemma_scope* out);

enum stemma_media_kind {
  STEMMA_MEDIA_IMAGE = 1,
  STEMMA_MEDIA_AUDIO = 2,
  STEMMA_MEDIA_VIDEO = 3,
  STEMMA_MEDIA_OTHER = 4
};

/* Something that stands at [offset, offset + length) of a prompt and cannot be split. */
typedef struct stemma_media_item {
  uint32_t kind;
  uint32_t offset;
  uint32_t length;    /* At least 1. */
  uint32_t causal;    /* 1: its positions attend causally among themselves. 0: they do not. */
  uint8_t digest[16]; /* Of its content; the caller computes it. */
} stemma_media_item;

/* A prompt to be evaluated: one token for each position. Tokens under media are ignored. */
typedef struct stemma_prompt {
  const uint32_t* tokens;
  size_t token_count;
  const stemma_media_item* media; /* Ordered by offset. */
  size_t media_count;
} stemma_prompt;

/* Converts 64-bit tokens, as frameworks keep them, into the 32-bit tokens of a prompt: one pass,
 * without branches. Out of range: a token is negative or not below STEMMA_TOKEN_LIMIT; the error's
 * value is the index of the first one, and the contents of `out` are useless. Invalid: null with a
 * count. */
STEMMA_API stemma_status stemma_tokens_from_int64(const int64_t* tokens, size_t count,
                                                  uint32_t* out);

/* Names the KV of a prefix the same way on every machine (docs/formats/content-key.md). */
typedef struct stemma_content_key {
  uint8_t bytes[32];
} stemma_content_key;

/* Writes 64 lower-case hexadecimal digits and a zero byte. */
STEMMA_API stemma_status stemma_content_key_hex(const stemma_content_key* key, char out[65]);

/* ---- What an engine gives -------------------------------------------------------------------- */

/* One part-block copy that a lease needs before its target may be read. */
typedef struct stemma_block_copy {
  uint32_t group;
  uint32_t source;
  uint32_t target; /* STEMMA_NO_BLOCK: load `source` into the request's running state. */
  uint32_t tokens; /* How many leading positions of the block to copy. */
} stemma_block_copy;

/* A transfer that Stemma asked for and waits for. */
typedef uint64_t stemma_io;

/* How Stemma moves bytes. Each call starts a transfer and may return before the transfer is over.
 * End it with stemma_io_done(io, ...), exactly once, on any thread, even from inside the call.
 * Arrays are borrowed until then. Calls wait forever for a transfer that is never ended. */
typedef struct stemma_block_io {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  /* Copies the first `tokens` positions of each source to its target. Required. */
  void (*copy)(void* user, stemma_io io, const stemma_block_copy* copies, size_t count);
  /* Read and write whole blocks, block_bytes each, back to back. May be null: only tiers call them.
   */
  void (*read)(void* user, stemma_io io, uint32_t group, const uint32_t* blocks, size_t count,
               uint8_t* bytes, size_t size);
  void (*write)(void* user, stemma_io io, uint32_t group, const uint32_t* blocks, size_t count,
                const uint8_t* bytes, size_t size);
} stemma_block_io;
#define STEMMA_BLOCK_IO_INIT {sizeof(stemma_block_io), 0, 0, 0, 0, 0}

/* Ends a transfer; `outcome` is STEMMA_OK, or any other status if it failed.
 * Stale: it has already ended. Invalid: no such transfer, no such status. */
STEMMA_API stemma_status stemma_io_done(stemma_io io, stemma_status outcome);

/* For libraries on top of this one: starts a transfer of their own. stemma_io_done() ends it by
 * calling `done`, once. Returns 0 if the system gives no memory; `done` is not called then. */
typedef void (*stemma_io_done_fn)(void* user, stemma_status outcome);
STEMMA_API stemma_io stemma_io_begin(stemma_io_done_fn done, void* user);

/* Stands for work that may still touch a lease's blocks when the lease is released. No block of the
 * lease is reused before `signalled` first returns non-zero; after that Stemma does not call it
 * again. Calls that are short of blocks and stemma_cache_poll() call `signalled`; nobody calls it
 * after `closed`. It must be cheap, must not block, and must not call Stemma. */
typedef struct stemma_fence {
  int32_t (*signalled)(void* user);
  void* user;
} stemma_fence;

/* Returns nanoseconds that never run backwards. Stemma may call it with a lock held, so it must not
 * call Stemma. */
typedef struct stemma_clock {
  uint64_t (*now_ns)(void* user);
  void* user;
} stemma_clock;

/* ---- Options --------------------------------------------------------------------------------- */

enum stemma_attention {
  STEMMA_ATTENTION_FULL = 0,     /* All positions before n are needed to continue at n. */
  STEMMA_ATTENTION_WINDOW = 1,   /* Only [n - window_tokens, n), and the first sink_tokens. */
  STEMMA_ATTENTION_RECURRENT = 2 /* One state, valid at one depth; blocks are checkpoint slots. */
};

typedef struct stemma_group_options {
  uint32_t struct_size; /* The same in all elements of an array. */
  uint32_t attention;
  uint32_t block_tokens;    /* A power of two, 1 to 1024. Ignored for recurrent groups. */
  uint32_t capacity_blocks; /* Blocks (or slots) the engine has memory for. */
  /* Window groups: how many earlier positions a position sees, at least 1. That is a model's
   * sliding_window less 1, or more if the engine rewinds below what is committed. Others: 0. */
  uint32_t window_tokens;
  uint32_t sink_tokens; /* Window groups: leading positions that are always attended. */
  uint64_t block_bytes; /* KV bytes of a block; for budgets, quotas and reports. */
} stemma_group_options;
#define STEMMA_GROUP_OPTIONS_INIT \
  {sizeof(stemma_group_options), STEMMA_ATTENTION_FULL, 16, 0, 0, 0, 0}

typedef struct stemma_tenant_quota {
  uint32_t tenant; /* Not 0. */
  uint32_t reserved;
  uint64_t bytes; /* KV bytes of the tenant's drafts and cached blocks in all groups. */
} stemma_tenant_quota;

typedef struct stemma_options {
  uint32_t struct_size;
  uint32_t enabled;                   /* 0: leases lend blocks, nothing is found or kept. */
  const stemma_group_options* groups; /* At least one, at most STEMMA_MAX_GROUPS. */
  size_t group_count;
  uint64_t budget_bytes; /* KV, index and logits together. 0: whatever the groups add up to. */
  uint64_t logits_bytes; /* For attached logits; 0: none are kept. */
  double pin_share;      /* The part of a full group's blocks that pins may hold, 0 to 1. */
  const stemma_tenant_quota* quotas;
  size_t quota_count;
  uint32_t index_cells;    /* How many, if the index has cells of its own (options.h). 0: chosen. */
  uint32_t content_keys;   /* 1: keep them, 32 bytes per block. Events turn them on. */
  uint32_t event_capacity; /* Events kept for slow observers; 0: no events. */
  uint32_t reserved;       /* 0. */
  uint64_t stats_window_ns; /* Length of the statistics' window; at least 1. */
  const char* policy;       /* Name of the retention policy, terminated; null: "lru". */
  /* Copied, but not what `user` points to. Null: the engine does all of stemma_lease_copies(). */
  const stemma_block_io* block_io;
  stemma_clock clock; /* now_ns null: the machine's monotonic clock. */
  /* Called once, when the cache is destroyed and its last lease has ended: no callback of this
   * cache is called after it. May be null. */
  void (*closed)(void* user);
  void* closed_user;
} stemma_options;
#define STEMMA_OPTIONS_INIT \
  {sizeof(stemma_options), 1, 0, 0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0, 60000000000u, 0, 0, {0, 0}, 0, 0}

typedef struct stemma_lookup_options {
  uint32_t struct_size;
  uint32_t at_most; /* Reuse no more than this many positions. */
  /* Units at the prompt's end that must be evaluated; at least 1. (Drafting with hidden states: see
   * stemma_lease_shrink_to.) */
  uint32_t evaluate_at_least;
  uint32_t read;        /* 0: reuse nothing (what is computed is still cached). */
  uint32_t write;       /* 0: what is computed is not cached. */
  uint32_t allow_copy;  /* 0: reuse ends at a block border. */
  uint32_t want_logits; /* 1: nothing is evaluated when logits are anchored at the end. */
  uint32_t reserved;
} stemma_lookup_options;
#define STEMMA_LOOKUP_OPTIONS_INIT {sizeof(stemma_lookup_options), STEMMA_ALL, 1, 1, 1, 1, 0, 0}

enum stemma_session_phase {
  STEMMA_SESSION_ENDED = 0,
  STEMMA_SESSION_UNKNOWN = 1,
  STEMMA_SESSION_ACTIVE = 2
};

enum stemma_finish_reason {
  STEMMA_FINISH_UNKNOWN = 0,
  STEMMA_FINISH_END_TURN = 1,
  STEMMA_FINISH_TOOL_USE = 2,
  STEMMA_FINISH_LENGTH = 3,
  STEMMA_FINISH_CANCELLED = 4
};

#define STEMMA_DEFAULT_PRIORITY 35
#define STEMMA_MAX_PRIORITY 100

/* A priority for the blocks whose first position lies in [begin, end). */
typedef struct stemma_priority_range {
  uint32_t begin;
  uint32_t end; /* STEMMA_ALL: no end. */
  uint32_t priority;
  uint32_t reserved;
  uint64_t ttl_ns; /* STEMMA_NEVER: for good. */
} stemma_priority_range;

/* What a request says about the blocks it leaves behind. */
typedef struct stemma_retain {
  uint32_t struct_size;
  uint32_t priority;                   /* 0 goes first, 100 last. */
  uint64_t ttl_ns;                     /* After that long `priority` falls back to the default. */
  const stemma_priority_range* ranges; /* Ordered, not overlapping. */
  size_t range_count;
  uint64_t session; /* 0: none. */
  uint32_t phase;
  uint32_t finish;
  uint64_t session_ttl_ns; /* How long an active session counts as active while unused. */
  uint32_t will_return;    /* 1: preempted and comes back; its blocks go last. */
  uint32_t reserved;
  uint64_t expected_return_ns; /* How soon the next use is expected; 0: no idea. */
} stemma_retain;
#define STEMMA_RETAIN_INIT                                                 \
  {sizeof(stemma_retain),  STEMMA_DEFAULT_PRIORITY, STEMMA_NEVER, 0, 0, 0, \
   STEMMA_SESSION_UNKNOWN, STEMMA_FINISH_UNKNOWN,   STEMMA_NEVER, 0, 0, 0}

typedef struct stemma_lease_options {
  uint32_t struct_size;
  uint32_t tenant;       /* 0: no tenant. Cannot change for a scope while it is cached. */
  uint32_t draft_tokens; /* Positions to draft room for now; STEMMA_ALL: the whole prompt. */
  /* Not 0: the lease fills [0, fill_to) with bytes from elsewhere. It shares the cached blocks of
   * that range and drafts only the other blocks that fill_to needs. Write the blocks that
   * stemma_lease_draft_table() names, then commit fill_to, or less if a block did not arrive. A
   * multiple of every block_tokens, within the prompt (see LeaseOptions in stemma/cache.h). */
  uint32_t fill_to;
  const stemma_lookup_options* lookup; /* Null: defaults. */
  const stemma_retain* retain;         /* Null: defaults. */
} stemma_lease_options;
#define STEMMA_LEASE_OPTIONS_INIT {sizeof(stemma_lease_options), 0, STEMMA_ALL, 0, 0, 0}

typedef struct stemma_release_options {
  uint32_t struct_size;
  uint32_t reserved;
  const stemma_retain* retain; /* Null: as given to stemma_cache_lease(). */
  const stemma_fence* fence;   /* Null: nothing is in flight. */
} stemma_release_options;
#define STEMMA_RELEASE_OPTIONS_INIT {sizeof(stemma_release_options), 0, 0, 0}

enum stemma_on_busy {
  STEMMA_ON_BUSY_REFUSE = 0, /* While something is in use: returns STEMMA_BUSY, changes nothing. */
  STEMMA_ON_BUSY_DEFER = 1   /* What is in use goes when it is released. */
};

/* ---- What comes back ------------------------------------------------------------------------- */

enum stemma_outcome {
  STEMMA_OUTCOME_FULL_HIT = 0, /* Everything that may be reused was. */
  STEMMA_OUTCOME_PARTIAL_HIT = 1,
  STEMMA_OUTCOME_MISS = 2,
  STEMMA_OUTCOME_BYPASSED = 3, /* The caller asked not to read, or the cache is switched off. */
  STEMMA_OUTCOME_REFUSED = 4   /* No lease was given. */
};

/* Why less was reused than the prompt would allow. */
enum stemma_miss_reason {
  STEMMA_MISS_NONE = 0,
  STEMMA_MISS_UNKNOWN_SCOPE = 1, /* Nothing is cached under this scope. */
  STEMMA_MISS_FIRST_USE = 2,     /* No cached prompt continues like this one. */
  STEMMA_MISS_TOO_SHORT = 3,     /* No unit to spare beyond what must be evaluated. */
  STEMMA_MISS_AT_MOST = 4,       /* The caller's limit. */
  STEMMA_MISS_MEDIA = 5,         /* Equal up to a media item whose end is not covered. */
  STEMMA_MISS_GROUP_HOLE = 6,    /* A layer group lacks a block that the depth needs. */
  STEMMA_MISS_NO_CHECKPOINT = 7, /* No checkpoint at a depth that serves. */
  STEMMA_MISS_NO_COPY = 8,       /* A part-block could be copied, but that was not allowed. */
  STEMMA_MISS_READ_OFF = 9,      /* Not looked for. */
  STEMMA_MISS_NO_ROOM = 10,      /* Refused. */
  STEMMA_MISS_GAVE_UP = 11       /* Found, and given up during execution. */
};

/* "full_hit", "no_checkpoint"; "unknown" for an unknown number. Static. */
STEMMA_API const char* stemma_outcome_name(uint32_t outcome);
STEMMA_API const char* stemma_miss_reason_name(uint32_t reason);

/* What became of one request. Counts are positions. */
typedef struct stemma_report {
  uint32_t struct_size;
  uint32_t prompt_tokens;
  uint32_t matched_tokens; /* Verified equal to something cached, servable or not. */
  uint32_t reused_tokens;  /* Available now without computing: the n that really holds. */
  uint32_t copied_tokens;  /* The part of reused_tokens that comes by copying. */
  uint32_t to_compute_tokens;
  uint32_t checkpoint_would_help_at; /* 0: nowhere. */
  uint32_t limiting_group;           /* The group that cut the match, or STEMMA_MAX_GROUPS. */
  uint32_t outcome;
  uint32_t reason;
} stemma_report;
#define STEMMA_REPORT_INIT {sizeof(stemma_report), 0, 0, 0, 0, 0, 0, STEMMA_MAX_GROUPS, 0, 0}

/* Where a lease stands, in positions: reused <= committed <= length <= capacity. */
typedef struct stemma_positions {
  uint32_t reused;    /* Found in the cache. */
  uint32_t committed; /* Written and findable, or found. */
  uint32_t length;    /* Words known. */
  uint32_t capacity;  /* Room drafted. */
} stemma_positions;

typedef struct stemma_commit {
  uint32_t committed;  /* Positions now written, as given. */
  uint32_t published;  /* Blocks that this call made findable (first group's grid). */
  uint32_t duplicates; /* Blocks that another request had already cached. */
  uint32_t reserved;
} stemma_commit;

typedef struct stemma_pin {
  uint64_t id;
  uint32_t pinned_tokens; /* How much of the prompt is cached and now held. */
  uint32_t reserved;
} stemma_pin;

#define STEMMA_HISTOGRAM_BUCKETS 33

/* Bucket 0 counts zeros, bucket i values in [2^(i-1), 2^i), the last one everything larger. */
typedef struct stemma_histogram {
  uint64_t buckets[STEMMA_HISTOGRAM_BUCKETS];
} stemma_histogram;

typedef struct stemma_counts {
  uint64_t outcomes[8]; /* By stemma_outcome; the rest is 0. */
  uint64_t reasons[16]; /* By stemma_miss_reason; the rest is 0. */
  uint64_t lookups;
  uint64_t queried_tokens;
  uint64_t reused_tokens;
  uint64_t copied_tokens;
  uint64_t computed_tokens; /* Positions that leases committed beyond what they reused. */
} stemma_counts;

typedef struct stemma_group_stats {
  uint32_t capacity_blocks;
  uint32_t free_blocks;   /* Without contents. */
  uint32_t cached_blocks; /* With contents. */
  uint32_t draft_blocks;  /* Leased for writing, or waiting for a fence or a copy. */
  uint32_t peak_used_blocks;
  uint32_t reserved;
  uint64_t block_bytes;
} stemma_group_stats;

/* A consistent snapshot. There is no initialiser: set struct_size to sizeof(stemma_stats). */
typedef struct stemma_stats {
  uint32_t struct_size;
  uint32_t group_count;
  stemma_counts total;
  stemma_counts window; /* The last window_ns. */
  uint64_t window_ns;
  stemma_group_stats groups[STEMMA_MAX_GROUPS];
  uint64_t leases; /* Alive now, including those that wait for fences. */
  uint64_t scopes;
  uint64_t evicted_blocks;
  uint64_t duplicate_blocks;
  uint64_t tails_published;
  uint64_t forks;
  uint64_t rewinds;
  uint64_t pin_expiries;
  uint64_t quota_refusals;
  uint64_t orphaned_blocks; /* Invalidated while leased; they go at release. */
  uint64_t stale_walks;
  uint64_t hint_repairs;
  uint64_t markers_dropped;
  uint64_t exact_counts;
  uint64_t pinned_blocks;
  uint64_t logits_bytes;
  uint64_t checkpoints;
  uint64_t index_bytes;
  uint64_t event_bytes;
  uint64_t kv_bytes_used;
  uint64_t kv_bytes_capacity;
  stemma_histogram match_tokens;
  stemma_histogram eviction_age_us;
  /* By group: cached blocks that no lease, copy or pin needs. Apart from quotas, these and the free
   * blocks could be drafted now. Exact, or a lower bound if there is no memory to count them. */
  uint32_t evictable_blocks[STEMMA_MAX_GROUPS];
} stemma_stats;

enum stemma_event_kind {
  STEMMA_EVENT_STORED = 0,
  STEMMA_EVENT_REMOVED = 1,
  STEMMA_EVENT_CLEARED = 2
};

/* Every event except `cleared` is about one layer group. What was stored for (group, key) is there
 * until it is removed for the same (group, key), or everything is cleared.
 * `stored`, for the group whose blocks make up the index (0, or STEMMA_MAX_GROUPS if the index has
 * cells of its own): keys[i] names the i-th block after `parent`, `words` are their words back to
 * back. For other groups it has only keys: one for each prefix that ends with a block or state.
 * `removed`: only keys. If only a window group gave up the block, it is a hole: the prefix stays.
 * `cleared`: everything is gone. Pointers are borrowed for the callback. See stemma/events.h. */
typedef struct stemma_event {
  uint32_t struct_size; /* How much of it this library fills in. */
  uint32_t kind;
  uint64_t sequence; /* Counts up by one; a gap means the ring overflowed in between. */
  stemma_content_key parent;
  const stemma_content_key* keys;
  size_t key_count;
  const uint32_t* words;
  size_t word_count;
  uint32_t block_tokens; /* Of the group's blocks; 0 for recurrent groups and `removed`. */
  uint32_t reserved;
  uint32_t group;
  uint32_t tail; /* `stored`: 1 for a part-block, which is only ever copied from. */
} stemma_event;

/* A cached path, from its beginning to a block without successor. */
typedef struct stemma_cached_path {
  uint32_t struct_size; /* How much of it this library fills in. */
  uint32_t tokens;      /* Its length from the beginning. */
  stemma_scope scope;
  uint32_t held; /* 1: a lease or a pin holds it. */
  uint32_t reserved;
} stemma_cached_path;

typedef void (*stemma_cached_path_fn)(void* user, const stemma_cached_path* path);
typedef void (*stemma_event_fn)(void* user, const stemma_event* event);
typedef void (*stemma_bytes_fn)(void* user, const uint8_t* bytes, size_t size);

/* ---- The cache ------------------------------------------------------------------------------- */

typedef struct stemma_cache stemma_cache;
typedef uint64_t stemma_lease; /* 0: no lease. */

/* Invalid: the message names the impossible option. Out of memory: also if 4,096 caches are alive.
 * The caller owns *out and ends it with stemma_cache_destroy(). */
STEMMA_API stemma_status stemma_cache_create(const stemma_options* options, stemma_cache** out);
/* Refuse: returns STEMMA_BUSY while leases are alive (the error's value is how many), and changes
 * nothing. Defer: the handle is gone at once; leases stay valid, and the release of the last one
 * frees the rest. In both cases a released lease that still waits for its fence does not count as
 * alive, and its fence is not asked again. */
STEMMA_API stemma_status stemma_cache_destroy(stemma_cache* cache, uint32_t on_busy);

/* Reports what a lease would reuse now, and takes nothing. Null options: defaults. */
STEMMA_API stemma_status stemma_cache_lookup(stemma_cache* cache, const stemma_scope* scope,
                                             const stemma_prompt* prompt,
                                             const stemma_lookup_options* options,
                                             stemma_report* out);
/* Looks up, pins the match, drafts the rest; all or nothing. Null options: defaults. The caller
 * ends *out with stemma_lease_release() or _abandon(). Invalid (tokens, media, options), out of
 * blocks, over quota, out of memory. */
STEMMA_API stemma_status stemma_cache_lease(stemma_cache* cache, const stemma_scope* scope,
                                            const stemma_prompt* prompt,
                                            const stemma_lease_options* options, stemma_lease* out);

/* Does stemma_cache_lease() with default options and stemma_lease_block_table() of group 0 in one
 * call, for languages in which the call itself costs more than its work. The prompt has no media.
 * token_bytes is 4, or 8 for tokens as stemma_tokens_from_int64() takes them. All or nothing: if
 * `table` is too small there is no lease. *blocks: how many come before the padding. Fails as the
 * two calls do. Unsupported: group 0 has no block table. */
STEMMA_API stemma_status stemma_cache_lease_table(stemma_cache* cache, const stemma_scope* scope,
                                                  const void* tokens, size_t token_count,
                                                  uint32_t token_bytes, uint32_t* table,
                                                  size_t capacity, uint32_t pad, uint32_t* blocks,
                                                  stemma_lease* out);

/* Holds the cached part of a prompt until ttl_ns from now. Over pin share, invalid. */
STEMMA_API stemma_status stemma_cache_pin(stemma_cache* cache, const stemma_scope* scope,
                                          const stemma_prompt* prompt, uint64_t ttl_ns,
                                          stemma_pin* out);
/* Stale: it has expired or was never given. */
STEMMA_API stemma_status stemma_cache_unpin(stemma_cache* cache, uint64_t pin);
/* Ends a conversation: the path it used last goes early, unless another request used it since. */
STEMMA_API stemma_status stemma_cache_end_session(stemma_cache* cache, uint64_t session);
/* Invalid: the tenant had no quota at creation. */
STEMMA_API stemma_status stemma_cache_set_quota(stemma_cache* cache, uint32_t tenant,
                                                uint64_t bytes);
STEMMA_API stemma_status stemma_cache_tenant_bytes(stemma_cache* cache, uint32_t tenant,
                                                   uint64_t* out);
/* The tenant that pays for a scope. If nothing of it is cached, *known is 0 and *tenant is not
 * written. */
STEMMA_API stemma_status stemma_cache_tenant_of(stemma_cache* cache, const stemma_scope* scope,
                                                uint32_t* known, uint32_t* tenant);

/* Forgets the cached continuation of the prompt from the block that holds position `keep` on; with
 * `keep` at the prompt's end, every continuation. Running leases go on unchanged;
 * PagedCache::truncate in stemma/cache.h says which of their blocks can be found afterwards.
 * *forgotten (may be null): how many blocks can no longer be found. */
STEMMA_API stemma_status stemma_cache_truncate(stemma_cache* cache, const stemma_scope* scope,
                                               const stemma_prompt* prompt, uint32_t keep,
                                               uint32_t* forgotten);
/* Forgets a whole scope. *forgotten may be null. */
STEMMA_API stemma_status stemma_cache_drop_scope(stemma_cache* cache, const stemma_scope* scope,
                                                 uint32_t* forgotten);
/* Forgets everything. `on_busy` says what happens if leases are alive. */
STEMMA_API stemma_status stemma_cache_reset(stemma_cache* cache, uint32_t on_busy);
/* Evicts up to `blocks` blocks; the policy chooses. *evicted (may be null): how many it evicted. */
STEMMA_API stemma_status stemma_cache_evict(stemma_cache* cache, uint32_t blocks,
                                            uint32_t* evicted);

/* A whole block that was evicted to make room. */
typedef struct stemma_reclaimed_block {
  uint32_t group;
  uint32_t block;
  /* Its positions [begin, end). In a recurrent group begin == end: it is the state at `end`. */
  uint32_t begin;
  uint32_t end;
  /* Content key of the prefix that ends with it, in steps of its group's blocks; in a recurrent
   * group, in steps of the largest blocks that any group has (16 if there are none). */
  uint8_t key[32];
  const uint32_t* words; /* Its words; null if media are on its path. */
} stemma_reclaimed_block;

/* Evicts until leases could draft `positions` positions without evicting (in a window group at most
 * a window, in a recurrent group a slot), but at most `most` blocks of the index's grid and of
 * window and recurrent groups. Then calls `save` once with the whole blocks that it evicted, if
 * there are any, on this thread and without locks. No lease gets these blocks until `save` returns,
 * so ask for few at a time. *went (may be null): how many were evicted, including those that `save`
 * is not given. 0: nothing had to be evicted, or nothing could be. Out of memory: the evicted
 * blocks are lost. */
STEMMA_API stemma_status
stemma_cache_reclaim(stemma_cache* cache, uint32_t positions, uint32_t most,
                     void (*save)(void* user, const stemma_reclaimed_block* blocks, size_t count),
                     void* user, uint32_t* went);

/* out->struct_size says how much the caller wants. */
STEMMA_API stemma_status stemma_cache_stats(stemma_cache* cache, stemma_stats* out);
/* The depths on the prompt's cached path at which cached prompts diverge, ascending. */
STEMMA_API stemma_status stemma_cache_branch_points(stemma_cache* cache, const stemma_scope* scope,
                                                    const stemma_prompt* prompt, uint32_t* out,
                                                    size_t capacity, size_t* count);
/* Calls `each` for every path that is cached. O(everything). Out of memory: it was not called. */
STEMMA_API stemma_status stemma_cache_contents(stemma_cache* cache, stemma_cached_path_fn each,
                                               void* user);
/* Calls `each` for at most `limit` events, from number `from` on; for fewer if memory is short.
 * *next: the number to ask for next time; smaller than `from` if there was never such an event. If
 * event `from` is no longer kept, the number of the first event shows the gap. */
STEMMA_API stemma_status stemma_cache_events(stemma_cache* cache, uint64_t from, uint32_t limit,
                                             stemma_event_fn each, void* user, uint64_t* next);
/* Calls `each` with everything cached at one instant, as `stored` events; the stream continues at
 * *next. Out of memory: it was not called. */
STEMMA_API stemma_status stemma_cache_event_dump(stemma_cache* cache, stemma_event_fn each,
                                                 void* user, uint64_t* next);
/* Settles releases whose fences have signalled. *settled may be null. */
STEMMA_API stemma_status stemma_cache_poll(stemma_cache* cache, uint32_t* settled);

/* Calls `take` once with the whole index, without KV bytes (docs/formats/index-dump.md).
 * Out of memory: it was not called. */
STEMMA_API stemma_status stemma_cache_dump(stemma_cache* cache, stemma_bytes_fn take, void* user);
/* Loads a dump into an empty cache of the same configuration. Corrupt, invalid, wrong state. */
STEMMA_API stemma_status stemma_cache_load(stemma_cache* cache, const uint8_t* bytes, size_t size);
/* Stops the process with a description if the books do not balance. For tests; O(everything). */
STEMMA_API stemma_status stemma_cache_check_invariants(stemma_cache* cache);

/* ---- A lease --------------------------------------------------------------------------------- */
/* Errors of all these calls: invalid (0, or a number that no lease had), stale (released), busy
 * (another call is using it). */

STEMMA_API stemma_status stemma_lease_positions(stemma_lease lease, stemma_positions* out);
/* What the lookup found and what is left to do; shrink_to and copies_failed update it. */
STEMMA_API stemma_status stemma_lease_report(stemma_lease lease, stemma_report* out);

/* Part-blocks to copy before anything reads them. */
STEMMA_API stemma_status stemma_lease_copies(stemma_lease lease, stemma_block_copy* out,
                                             size_t capacity, size_t* count);
/* Says that all copies are done; allowed if there were none. */
STEMMA_API stemma_status stemma_lease_copies_done(stemma_lease lease);
/* Says that the copies failed: the lease shrinks to what it can reuse without them. Wrong state (no
 * copies are pending), out of blocks (they are still pending: release the lease). */
STEMMA_API stemma_status stemma_lease_copies_failed(stemma_lease lease);
/* Runs the copies through stemma_options.block_io and waits. Copy failed: the lease has fallen
 * back, as above. Unsupported: no block_io. */
STEMMA_API stemma_status stemma_lease_run_copies(stemma_lease lease);
/* Gives back the reused positions beyond n, so that they are computed instead. *reused (may be
 * null): how many are reused now, n or fewer. No block holds the hidden states of the last reused
 * position. So an engine that drafts with them (EAGLE, MTP) shrinks to reused - 1 first, or by a
 * block if nothing can be copied. Out of range, wrong state, out of blocks. */
STEMMA_API stemma_status stemma_lease_shrink_to(stemma_lease lease, uint32_t n, uint32_t* reused);
/* The indices of the prompt's media items that are not wholly reused. */
STEMMA_API stemma_status stemma_lease_media_to_process(stemma_lease lease, uint32_t* out,
                                                       size_t capacity, size_t* count);
/* Logits anchored at the prompt's end, when want_logits found them; null and 0 otherwise. *logits
 * is borrowed until the lease is released. */
STEMMA_API stemma_status stemma_lease_logits(stemma_lease lease, const float** logits,
                                             size_t* count);

/* Appends tokens and drafts room for them; all or nothing. Out of blocks, over quota, invalid. */
STEMMA_API stemma_status stemma_lease_extend(stemma_lease lease, const uint32_t* tokens,
                                             size_t count);
/* Drafts room for [0, positions), whether their words are known or not; all or nothing. */
STEMMA_API stemma_status stemma_lease_reserve(stemma_lease lease, uint32_t positions);
/* Says that the KV of [0, n) is written: whole blocks before n become findable. *out may be null.
 * Out of range (beyond length, or below committed), wrong state (copies pending). */
STEMMA_API stemma_status stemma_lease_commit(stemma_lease lease, uint32_t n, stemma_commit* out);
/* Replaces private duplicates by the canonical blocks; the block table then names those.
 * *given_up (may be null): how many. */
STEMMA_API stemma_status stemma_lease_adopt_canonical(stemma_lease lease, uint32_t* given_up);
/* Makes another lease over [0, committed), cut down to a whole unit. The caller ends it like any
 * other. Out of blocks, over quota, wrong state, out of range (committed is inside a media item and
 * a window or recurrent group cannot go back to the item's start). */
STEMMA_API stemma_status stemma_lease_fork(stemma_lease lease, stemma_lease* out);
/* Forgets positions from n on; if n is below committed, there may be copies to do again. No work of
 * the engine may still touch what is given up. Out of range, busy (a fork still copies), wrong
 * state, out of blocks. */
STEMMA_API stemma_status stemma_lease_rewind(stemma_lease lease, uint32_t n);

/* Drafts a slot of a recurrent group, for saving the running state. Unsupported, out of blocks,
 * wrong state. */
STEMMA_API stemma_status stemma_lease_draft_checkpoint(stemma_lease lease, uint32_t group,
                                                       uint32_t* block);
/* Says that the drafted slot holds the state after exactly `depth` positions. Out of range, wrong
 * state. */
STEMMA_API stemma_status stemma_lease_commit_checkpoint(stemma_lease lease, uint32_t group,
                                                        uint32_t depth);
/* Finds the deepest checkpoint of the lease's words that is no deeper than at_most, for reading: at
 * *depth, in slot *block; 0 and STEMMA_NO_BLOCK if there is none. The lease holds the checkpoint
 * until it ends or until the next call for this group. Unsupported. */
STEMMA_API stemma_status stemma_lease_hold_checkpoint(stemma_lease lease, uint32_t group,
                                                      uint32_t at_most, uint32_t* depth,
                                                      uint32_t* block);
/* Keeps a copy of the logits after exactly `depth` positions. Unsupported, out of range, out of
 * memory (larger than the budget). */
STEMMA_API stemma_status stemma_lease_attach_logits(stemma_lease lease, uint32_t depth,
                                                    const float* logits, size_t count);

/* Ends the lease: whole blocks stay cached, the committed part of the last block becomes a copy
 * source, and drafts go back. Null options: defaults. After the errors invalid (retain) and out of
 * memory (with a fence that has not signalled) the lease is still alive. */
STEMMA_API stemma_status stemma_lease_release(stemma_lease lease,
                                              const stemma_release_options* options);
/* The same, but the part-block is not published. `fence` may be null. */
STEMMA_API stemma_status stemma_lease_abandon(stemma_lease lease, const stemma_fence* fence);

/* How many blocks of `group` hold [0, capacity); 0 for a recurrent or unknown group. */
STEMMA_API stemma_status stemma_lease_block_count(stemma_lease lease, uint32_t group,
                                                  uint32_t* count);
/* Writes the block ids in order, then `pad` to the end of `out`; blocks that fell out of a window
 * are `pad` too. For `pad` use STEMMA_NO_BLOCK, or a block that no lease gets; do not use 0, which
 * is a block like any other. *count (may be null): how many entries come before the padding. Out of
 * range: `out` is too small. Invalid: no such paged group. */
STEMMA_API stemma_status stemma_lease_block_table(stemma_lease lease, uint32_t group, uint32_t* out,
                                                  size_t capacity, uint32_t pad, uint32_t* count);
/* The same, with `pad` for every block that this lease may not write. */
STEMMA_API stemma_status stemma_lease_draft_table(stemma_lease lease, uint32_t group, uint32_t* out,
                                                  size_t capacity, uint32_t pad, uint32_t* count);
/* out[i] = block * block_tokens + offset for position begin + i; `pad` where there is no block. */
STEMMA_API stemma_status stemma_lease_slot_mapping(stemma_lease lease, uint32_t group,
                                                   uint32_t begin, int64_t* out, size_t count,
                                                   int64_t pad);
/* out[i] = committed positions of leases[i]. On an error the lengths before the failing lease are
 * written; the error's value is its index. */
STEMMA_API stemma_status stemma_context_lengths(const stemma_lease* leases, size_t count,
                                                uint32_t* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "stemma/stemma_sequence.h"
#include "stemma/stemma_whole_prompt.h"

#endif /* STEMMA_STEMMA_H */
