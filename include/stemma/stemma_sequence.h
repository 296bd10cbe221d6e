/* The part of the C ABI for engines with opaque sequences: they trim, copy, save and load, and
 * nobody sees inside. stemma.h includes it, and has the rules for all calls; include that one.
 *
 *   stemma_sequences_create --> stemma_sequences_begin --> stemma_turn_execute --> the engine
 *     computes --> stemma_turn_computed --> stemma_turn_finish --> ... --> stemma_sequences_destroy
 *
 * The words are the same as in stemma/sequence.h and stemma/sequence_engine.h, which explain more.
 *
 * Handles:    a stemma_sequences* is opaque, like a stemma_cache*. A stemma_turn is a number, like
 *             a stemma_lease, that is never given twice.
 * Threading:  one thread at a time for all calls that change a stemma_sequences (create, destroy,
 *             begin, drain, warm, those that forget, and every stemma_turn call): a second one that
 *             runs into the first returns STEMMA_BUSY and does nothing. The other calls say "any
 *             thread", and may run beside it.
 * Callbacks:  the engine and `compute` are called on the thread of the call that needs them,
 *             without any of Stemma's locks, and not after stemma_sequences_destroy(). They may
 *             make "any thread" calls and call other caches; calls that change this cache return
 *             STEMMA_BUSY there.
 */
#ifndef STEMMA_STEMMA_SEQUENCE_H
#define STEMMA_STEMMA_SEQUENCE_H

#include "stemma/stemma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The engine ------------------------------------------------------------------------------ */

#define STEMMA_NO_SEQUENCE 0xFFFFFFFFu

/* How far back a sequence can go without computing anything again. */
enum stemma_rewind {
  STEMMA_REWIND_ANY = 0,     /* Full attention: to any position. */
  STEMMA_REWIND_WINDOW = 1,  /* To n while the rewind_tokens positions before n are still held. */
  STEMMA_REWIND_BOUNDED = 2, /* Recurrent: at most rewind_tokens positions before its end. */
  STEMMA_REWIND_EXACT = 3    /* Recurrent: nowhere; it stands at its end. */
};

/* How one sequence's positions get into another. */
enum stemma_fork {
  STEMMA_FORK_SHARED = 0,  /* copy of any range is cheap, and uses no memory until they differ. */
  STEMMA_FORK_COPY = 1,    /* copy of [0, n) into an empty sequence works, and costs like a load. */
  STEMMA_FORK_RESTORE = 2, /* Only by save and load. */
  STEMMA_FORK_NONE = 3     /* Not possible; nothing can be saved either. */
};

/* What is saved of a sequence. */
enum stemma_part {
  STEMMA_PART_STATE = 0,   /* All of [0, end), loaded into an empty sequence. */
  STEMMA_PART_SEGMENT = 1, /* The full-attention part of [begin, end), loaded behind [0, begin). */
  STEMMA_PART_CHECKPOINT = 2 /* The window and recurrent part at exactly end, loaded last. */
};

typedef struct stemma_engine_traits {
  uint32_t struct_size;
  uint32_t sequences;      /* How many the cache may use, numbered from 0. */
  uint32_t context_tokens; /* How many positions there is memory for. */
  /* 1: context_tokens is for all sequences together, and shared positions count once. 0: each
   * sequence has as many. */
  uint32_t unified;
  uint32_t rewind;        /* A stemma_rewind. */
  uint32_t rewind_tokens; /* For STEMMA_REWIND_WINDOW and STEMMA_REWIND_BOUNDED. */
  uint32_t fork;          /* A stemma_fork. */
  uint32_t segments;      /* 1: segments can be saved, and loaded behind what is held. */
  uint32_t checkpoints;   /* 1: checkpoints can be saved and loaded. Not with STEMMA_REWIND_ANY. */
  uint32_t shift;         /* 1: shift works. */
  /* Upper limits. A segment has fixed_bytes plus bytes_per_token for each token; a checkpoint has
   * checkpoint_bytes; a state has all of these, even if checkpoints are not offered. */
  uint64_t bytes_per_token;
  uint64_t fixed_bytes;
  uint64_t checkpoint_bytes;
} stemma_engine_traits;
#define STEMMA_ENGINE_TRAITS_INIT \
  {sizeof(stemma_engine_traits),  \
   1,                             \
   0,                             \
   1,                             \
   STEMMA_REWIND_ANY,             \
   0,                             \
   STEMMA_FORK_SHARED,            \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0}

/* What a sequence really holds: [0, end) in full-attention layers, [begin, end) in window layers; a
 * recurrent layer stands anywhere from begin + 1 to end. An empty sequence is {0, 0, 1}. An
 * unfinished one (it has a gap, or waits for its checkpoint, or a call failed) is {0, 0, 0}. */
typedef struct stemma_held {
  uint32_t begin;
  uint32_t end;
  uint32_t whole; /* 1: the sequence holds nothing else. */
} stemma_held;

/* Positions [begin, end). For a state or a checkpoint begin is 0. */
typedef struct stemma_range {
  uint32_t begin;
  uint32_t end;
} stemma_range;

/* What an engine lets the cache do with its sequences. Every call may fail, before, during or after
 * its effect. The cache does not trust a success either: it calls `held`. An engine reports what it
 * knows and cleans up nothing. A call never changes any other sequence. A result that is not a
 * stemma_status counts as a failure.
 *
 * Statuses: invalid (no such sequence, an empty range), out of range (positions that are not held,
 * a buffer too small), unsupported, wrong state (the sequence cannot do it now), out of blocks (no
 * room in the context), corrupt (the bytes are refused), and any other that fits. */
typedef struct stemma_engine {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  const stemma_engine_traits* traits; /* Required; copied. */
  /* Required, and cheap. Says which positions the sequence really has. *out starts as {0, 0, 0};
   * an impossible answer counts as that. */
  void (*held)(void* user, uint32_t sequence, stemma_held* out);
  /* Required. Forgets everything, whatever state the sequence is in. */
  stemma_status (*clear)(void* user, uint32_t sequence);
  /* Required. Forgets positions from n on. Wrong state: a recurrent layer cannot go back so far;
   * nothing changed. */
  stemma_status (*trim)(void* user, uint32_t sequence, uint32_t n);
  /* Adds positions `range` of `from` to `to`, which holds [0, range->begin). May be null unless
   * traits->fork is shared or copy. */
  stemma_status (*copy)(void* user, uint32_t from, uint32_t to, const stemma_range* range);
  /* The next three may be null together if traits->fork is not restore and there are no segments
   * and no checkpoints; then nothing is saved. `size`: how many bytes save would write now. */
  stemma_status (*size)(void* user, uint32_t sequence, uint32_t part, const stemma_range* range,
                        uint64_t* bytes);
  /* Writes the part into `out`, which has at least as many bytes as `size` said; *written: how
   * many. */
  stemma_status (*save)(void* user, uint32_t sequence, uint32_t part, const stemma_range* range,
                        uint8_t* out, size_t capacity, uint64_t* written);
  /* Puts positions `wanted` of what save wrote for `saved` into the sequence, which holds
   * [0, wanted->begin). After a failure nothing in the sequence counts. Unless the failure is out
   * of blocks, busy or out of memory, the cache takes the bytes to be bad and drops them. */
  stemma_status (*load)(void* user, uint32_t sequence, uint32_t part, const stemma_range* saved,
                        const stemma_range* wanted, const uint8_t* bytes, size_t size);
  /* Forgets [keep, keep + discard) and moves what follows down. May be null unless traits->shift.
   */
  stemma_status (*shift)(void* user, uint32_t sequence, uint32_t keep, uint32_t discard);
} stemma_engine;
#define STEMMA_ENGINE_INIT {sizeof(stemma_engine), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* ---- Options --------------------------------------------------------------------------------- */

/* Where a prefix may come from. */
enum stemma_reuse {
  STEMMA_REUSE_DISABLED = 0,  /* Every request starts empty and leaves nothing. */
  STEMMA_REUSE_LIVE = 1,      /* Sequences that are in the engine. */
  STEMMA_REUSE_SAVED = 2,     /* What was saved; a sequence is emptied when its request ends. */
  STEMMA_REUSE_EVERYTHING = 3 /* Both. */
};

/* The kind of a saved part that leaves the cache or comes back into it. */
enum stemma_saved_kind {
  STEMMA_SAVED_SEGMENT = 2,
  STEMMA_SAVED_STATE = 3,
  STEMMA_SAVED_CHECKPOINT = 4,
  STEMMA_SAVED_LOGITS = 5
};

typedef struct stemma_saved_part {
  uint32_t kind; /* A stemma_saved_kind. */
  uint32_t reserved;
  stemma_range range; /* Of the words; begins at 0 unless it is a segment. */
  const uint8_t* bytes;
  size_t size;
} stemma_saved_part;

/* Why the cache tells the listener again of a part that was saved or admitted earlier. */
enum stemma_seen_again {
  STEMMA_SEEN_USED = 0,   /* Another capture found it there, or the engine loaded it. */
  STEMMA_SEEN_LEAVING = 1 /* Evicted for lack of room, or stemma_sequences_hand_on() offers it. */
};

/* The cache tells a listener of everything that it saves, so that it can be kept elsewhere too
 * (stemma_tiers.h has a listener). `saved`: `part` was saved for the prompt's first part->range.end
 * words, `key` is their content key on the grid of segment_tokens, `priority` is the turn's. Called
 * on the thread of the call that saves, not after stemma_sequences_destroy(). Arguments are
 * borrowed for the call. It must be quick; calls that change the cache return STEMMA_BUSY there. */
typedef struct stemma_saved_listener {
  void (*saved)(void* user, const stemma_scope* scope, const stemma_prompt* prompt,
                const stemma_saved_part* part, const stemma_content_key* key, uint32_t priority);
  void* user;
  /* Asks later whether the listener wants a part's bytes now (`seen` is a stemma_seen_again). 0:
   * no. With any other number, `take` gets the bytes, and the number as `wanted`. Null: never. */
  uint32_t (*wants)(void* user, uint32_t kind, const stemma_content_key* key, uint32_t seen);
  /* Gets exactly the bytes that were saved. It is never called for a part that was dropped,
   * truncated, quarantined or damaged. `words` are the words of the part's range if keep_words is 1
   * and there are no media; otherwise word_count is 0. */
  void (*take)(void* user, const stemma_saved_part* part, const stemma_content_key* key,
               uint32_t priority, const uint32_t* words, size_t word_count, uint32_t wanted);
  uint32_t keep_words; /* 1: the cache remembers words for take, 4 bytes a position. */
  uint32_t reserved;
} stemma_saved_listener;

typedef struct stemma_sequence_options {
  uint32_t struct_size;
  uint32_t reuse;            /* A stemma_reuse. */
  uint64_t saved_bytes;      /* Segments, states and checkpoints, with their index. 0: none. */
  double checkpoint_share;   /* The part of saved_bytes for checkpoints, 0 to 1. */
  uint64_t logits_bytes;     /* For attached logits; 0: none are kept. */
  uint32_t segment_tokens;   /* Positions in a saved segment; a power of two, 1 to 1024. */
  uint32_t least_tokens;     /* No boundary before this depth is kept, except a prompt's end. */
  uint32_t interval_tokens;  /* Checkpoints, or states, at multiples of it; 0: the cache chooses. */
  uint32_t marks;            /* At most this many boundaries of one request are kept. */
  uint32_t pending_captures; /* At most this many wait for drain; a newer one drops the oldest. */
  uint32_t sessions;         /* Names remembered; the one unused longest is forgotten first. */
  const stemma_tenant_quota* quotas; /* For saved segments. */
  size_t quota_count;
  const char* policy;        /* Name of the retention policy, terminated; null: "lru". */
  uint64_t compute_token_ns; /* Costs to assume until they are measured: three fields. */
  uint64_t move_byte_ps;
  uint64_t move_call_ns;
  stemma_clock clock; /* now_ns null: the machine's monotonic clock. */
  /* Called once when the cache is destroyed and its last turn has ended. May be null. */
  void (*closed)(void* user);
  void* closed_user;
  stemma_saved_listener listener; /* saved null: there is no listener. */
} stemma_sequence_options;
#define STEMMA_SEQUENCE_OPTIONS_INIT \
  {sizeof(stemma_sequence_options),  \
   STEMMA_REUSE_EVERYTHING,          \
   268435456u,                       \
   0.25,                             \
   0,                                \
   64,                               \
   32,                               \
   0,                                \
   8,                                \
   64,                               \
   65536,                            \
   0,                                \
   0,                                \
   0,                                \
   1000000u,                         \
   200u,                             \
   50000u,                           \
   {0, 0},                           \
   0,                                \
   0,                                \
   {0, 0, 0, 0, 0, 0}}

typedef struct stemma_turn_options {
  uint32_t struct_size;
  uint32_t tenant;
  stemma_bytes session;         /* The conversation, if it has a name: a hint, never a barrier. */
  uint32_t exclusive;           /* 1: busy while another turn of the session is under way. */
  uint32_t reuse;               /* A stemma_reuse; it can only limit what the cache allows. */
  uint32_t bypass;              /* 1: starts empty and keeps nothing, whatever the words are. */
  uint32_t keep;                /* 0: what is computed is forgotten at the end. */
  uint32_t at_most;             /* Make no more than this many positions available. */
  uint32_t evaluate_at_least;   /* Units at the prompt's end that must be evaluated; 0 is 1. */
  uint32_t reserve_tokens;      /* Room to leave for the answer. */
  uint32_t want_logits;         /* 1: if this prompt's logits are kept, nothing is evaluated. */
  const uint32_t* message_ends; /* Depths at which messages end, ascending. */
  size_t message_end_count;
  const stemma_retain* retain; /* Null: defaults. */
} stemma_turn_options;
#define STEMMA_TURN_OPTIONS_INIT \
  {sizeof(stemma_turn_options),  \
   0,                            \
   {0, 0},                       \
   1,                            \
   STEMMA_REUSE_EVERYTHING,      \
   0,                            \
   1,                            \
   STEMMA_ALL,                   \
   1,                            \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   0}

/* The defaults, for languages without the macros. out->struct_size says how large *out is. */
STEMMA_API stemma_status stemma_sequence_options_defaults(stemma_sequence_options* out);
STEMMA_API stemma_status stemma_turn_options_defaults(stemma_turn_options* out);

/* ---- What comes back ------------------------------------------------------------------------- */

/* How part of a prompt got into its sequence. */
enum stemma_step {
  STEMMA_STEP_STAY = 0,      /* The sequence held exactly this. */
  STEMMA_STEP_TRIM = 1,      /* The sequence held more, and was cut. */
  STEMMA_STEP_FORK = 2,      /* Copied from another sequence. */
  STEMMA_STEP_SEGMENTS = 3,  /* Loaded, in segments. */
  STEMMA_STEP_STATE = 4,     /* Loaded, as a whole state. */
  STEMMA_STEP_CHECKPOINT = 5 /* The window or recurrent part was loaded. */
};

/* Why less is available than the prompt would allow. */
enum stemma_sequence_miss {
  STEMMA_SEQUENCE_MISS_NONE = 0,
  STEMMA_SEQUENCE_MISS_UNKNOWN_SCOPE = 1, /* Nothing of this scope is known. */
  STEMMA_SEQUENCE_MISS_FIRST_USE = 2,     /* Nothing known continues like this prompt. */
  STEMMA_SEQUENCE_MISS_TOO_SHORT = 3,     /* No unit to spare beyond what must be evaluated. */
  STEMMA_SEQUENCE_MISS_AT_MOST = 4,       /* The caller's limit. */
  STEMMA_SEQUENCE_MISS_MEDIA = 5,         /* Equal up to a media item whose end is not covered. */
  STEMMA_SEQUENCE_MISS_NO_REWIND = 6,     /* Known, but the memory cannot go back there. */
  STEMMA_SEQUENCE_MISS_NOT_SAVED = 7,     /* Only a sequence holds it, and it cannot be copied. */
  STEMMA_SEQUENCE_MISS_NOT_WORTH = 8,     /* Loading would take longer than computing. */
  STEMMA_SEQUENCE_MISS_MODE = 9,          /* Known, but the mode of reuse excludes it. */
  STEMMA_SEQUENCE_MISS_BYPASSED = 10,     /* Not looked for. */
  STEMMA_SEQUENCE_MISS_FAILED = 11        /* Found, and lost during execution. */
};

/* What became of a capture: something that was to be saved. */
enum stemma_capture_fate {
  STEMMA_CAPTURE_SAVED = 0,
  STEMMA_CAPTURE_PRESENT = 1,   /* All of it was saved before. */
  STEMMA_CAPTURE_COALESCED = 2, /* A later one of the same sequence includes it. */
  STEMMA_CAPTURE_STALE = 3,     /* Its sequence was given up or cut. */
  STEMMA_CAPTURE_CROWDED = 4,   /* The queue was full, and it was the oldest. */
  STEMMA_CAPTURE_TOO_LARGE = 5, /* More than the store can ever hold, or than the traits say. */
  STEMMA_CAPTURE_NO_ROOM = 6,   /* Everything in the store is in use. */
  STEMMA_CAPTURE_FAILED = 7     /* The engine could not save it. */
};

enum stemma_sequence_state {
  STEMMA_SEQUENCE_FREE = 0,   /* Empty. */
  STEMMA_SEQUENCE_IDLE = 1,   /* Holds what its last turn left. */
  STEMMA_SEQUENCE_LEASED = 2, /* A turn has it. */
  STEMMA_SEQUENCE_BROKEN = 3  /* The engine failed to clear it; it is cleared before it is used. */
};

enum stemma_content_kind {
  STEMMA_CONTENT_LIVE = 0,
  STEMMA_CONTENT_SEGMENT_PATH = 1,
  STEMMA_CONTENT_STATE = 2,
  STEMMA_CONTENT_CHECKPOINT = 3,
  STEMMA_CONTENT_LOGITS = 4
};

/* "everything", "segments", "no_rewind"; "unknown" for an unknown number. Static. */
STEMMA_API const char* stemma_reuse_name(uint32_t reuse);
STEMMA_API const char* stemma_step_name(uint32_t step);
STEMMA_API const char* stemma_sequence_miss_name(uint32_t reason);
STEMMA_API const char* stemma_capture_fate_name(uint32_t fate);
STEMMA_API const char* stemma_sequence_state_name(uint32_t state);
STEMMA_API const char* stemma_content_kind_name(uint32_t kind);

/* What became of one request. Fields named tokens count positions. */
typedef struct stemma_sequence_report {
  uint32_t struct_size;
  uint32_t prompt_tokens;
  uint32_t matched_tokens;   /* Verified equal to something known, usable or not. */
  uint32_t reused_tokens;    /* Available without computing. */
  uint32_t evaluated_tokens; /* The rest of the prompt. */
  uint32_t media_to_process;
  uint32_t logits;   /* 1: kept for exactly this prompt. */
  uint32_t failures; /* Steps that failed and were replaced by others. */
  uint32_t victims;  /* Idle sequences emptied for this turn. */
  uint32_t outcome;  /* A stemma_outcome. */
  uint32_t reason;   /* A stemma_sequence_miss. */
  uint32_t reserved;
  uint32_t steps[8]; /* By stemma_step: positions; for a checkpoint its depth. The rest is 0. */
  uint64_t restored_bytes;
  uint64_t saved_bytes; /* Saved from victims before they were emptied. */
  uint64_t plan_ns;
  uint64_t execute_ns;
} stemma_sequence_report;
#define STEMMA_SEQUENCE_REPORT_INIT \
  {sizeof(stemma_sequence_report), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, 0, 0, 0, 0}

/* Where a turn stands, in positions: available <= computed <= length. */
typedef struct stemma_turn_place {
  uint64_t generation; /* Counts how often the sequence gave up what it held. */
  uint32_t sequence;   /* STEMMA_NO_SEQUENCE: it was taken away (forget_context). */
  uint32_t available;  /* Positions that are there without computing; 0 before execute. */
  uint32_t computed;   /* Positions that are in the sequence. */
  uint32_t length;     /* Words known. */
  uint32_t next_stop;  /* How far to compute before the next stemma_turn_computed(). */
  uint32_t reserved;
} stemma_turn_place;

typedef struct stemma_drained {
  uint32_t items; /* Items taken from the queue, saved or not. */
  uint32_t saved;
  uint64_t bytes;
} stemma_drained;

/* How far stemma_sequences_hand_on() came. */
typedef struct stemma_handed_on {
  uint32_t parts; /* How many the listener took. */
  uint32_t over;  /* 0: call again with `next`. */
  uint64_t bytes; /* The size of these parts. */
  uint64_t next;
} stemma_handed_on;

/* What became of the parts that stemma_sequences_admit() was given. */
typedef struct stemma_admitted {
  uint32_t taken;
  uint32_t present; /* Parts that were there already. */
  uint32_t refused; /* Parts without room or without a place for their kind, or after a gap. */
  uint32_t reserved;
  uint64_t bytes; /* The size of the parts taken. */
} stemma_admitted;

/* What stemma_sequences_truncate() forgot, and what it could not. */
typedef struct stemma_truncated {
  uint64_t live_tokens; /* Positions that idle sequences gave up. */
  uint32_t sequences;   /* Idle sequences that were cut or emptied. */
  uint32_t segments;    /* Segments that are no longer found. */
  uint32_t states;      /* States that are no longer found. */
  uint32_t checkpoints; /* Checkpoints that are no longer found. */
  uint32_t logits;      /* Logits that are no longer found. */
  uint32_t in_use;      /* Sequences of turns under way that hold more than `keep` positions. */
} stemma_truncated;

typedef struct stemma_sequence_info {
  uint32_t struct_size;
  uint32_t state;          /* A stemma_sequence_state. */
  uint64_t generation;     /* Counts how often it gave up what it held. */
  uint32_t length;         /* Words known to be in it. */
  uint32_t unsaved_tokens; /* Waiting to be saved. */
  uint32_t approximate;    /* 1: it was shifted; only positions before the shift are reused. */
  uint32_t reserved;
} stemma_sequence_info;
#define STEMMA_SEQUENCE_INFO_INIT {sizeof(stemma_sequence_info), 0, 0, 0, 0, 0, 0}

typedef struct stemma_session_info {
  uint32_t struct_size;
  uint32_t known;
  uint32_t in_flight;
  uint32_t resident; /* 1: its last sequence still holds what it left. */
  uint32_t sequence; /* Valid if resident or in flight, else STEMMA_NO_SEQUENCE. */
  uint32_t length;   /* The length of its last finished turn. */
  uint64_t turns;    /* Finished or not. */
  uint64_t last_used_ns;
} stemma_session_info;
#define STEMMA_SESSION_INFO_INIT {sizeof(stemma_session_info), 0, 0, 0, STEMMA_NO_SEQUENCE, 0, 0, 0}

/* Sums over all turns. There is no initialiser: set struct_size to its size. */
typedef struct stemma_sequence_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t turns;
  uint64_t prompt_tokens;
  uint64_t reused_tokens;
  uint64_t evaluated_tokens;
  uint64_t outcomes[8]; /* By stemma_outcome. Unused elements of this and the next arrays are 0. */
  uint64_t reasons[16]; /* By stemma_sequence_miss. */
  uint64_t steps[8];    /* By stemma_step: turns in which such a step succeeded. */
  uint64_t step_tokens[8];
  uint64_t failures[8];  /* Steps that failed. */
  uint64_t captures[16]; /* By stemma_capture_fate. */
  uint64_t quarantined;  /* Saved entries given up because they were bad. */
  uint64_t victims;      /* Idle sequences emptied for others. */
  uint64_t victims_saved;
  uint64_t stale_calls; /* Calls of turns whose sequence was taken away. */
  uint64_t broken;      /* How often the engine failed to clear a sequence. */
  uint64_t restored_bytes;
  uint64_t captured_bytes;
  uint32_t sequences; /* This field and those below are about the situation now. */
  uint32_t free_sequences;
  uint32_t idle_sequences;
  uint32_t leased_sequences;
  uint32_t broken_sequences;
  uint32_t sessions;
  uint32_t pending;
  uint32_t reserved_now;
  uint64_t context_tokens; /* Positions the engine has memory for. */
  uint64_t used_tokens;    /* Positions taken; shared ones count once. */
  uint64_t saved_bytes;    /* Segments, states and checkpoints, with their index. */
  uint64_t segment_bytes;
  uint64_t state_bytes;
  uint64_t checkpoint_bytes;
  uint64_t logits_bytes;
  uint64_t index_bytes;
  uint64_t segment_evictions;
  uint64_t state_evictions;  /* Evictions of states and of checkpoints. */
  uint64_t compute_token_ns; /* The costs that the planner uses: three fields. */
  uint64_t move_byte_ps;
  uint64_t move_call_ns;
} stemma_sequence_stats;

/* One thing that can be reused now. */
typedef struct stemma_sequence_content {
  uint32_t struct_size; /* How much of it this library fills in. */
  uint32_t kind;        /* A stemma_content_kind. */
  stemma_scope scope;
  uint32_t depth;
  uint32_t sequence; /* For live content, else STEMMA_NO_SEQUENCE. */
  uint64_t bytes;    /* 0 for live content. */
  uint32_t leased;
  uint32_t reserved;
} stemma_sequence_content;

typedef void (*stemma_sequence_content_fn)(void* user, const stemma_sequence_content* content);
/* Appends tokens to the sequence; the first of them is at position `begin`. */
typedef stemma_status (*stemma_compute_fn)(void* user, uint32_t sequence, const uint32_t* tokens,
                                           size_t count, uint32_t begin);

/* ---- The cache ------------------------------------------------------------------------------- */

typedef struct stemma_sequences stemma_sequences;
typedef uint64_t stemma_turn; /* 0: no turn. */

/* Assumes that all sequences are empty; one that is not is cleared before its first use. Null
 * options: defaults. Invalid: names the impossible option, or the trait without its function. Out
 * of memory: also if 4,096 caches are alive. The caller ends *out with stemma_sequences_destroy().
 */
STEMMA_API stemma_status stemma_sequences_create(const stemma_engine* engine,
                                                 const stemma_sequence_options* options,
                                                 stemma_sequences** out);
/* Refuse: returns STEMMA_BUSY while turns are alive (the error's value is how many), and changes
 * nothing. Defer: the handle is gone at once, and turns can only end. The engine is not called any
 * more. */
STEMMA_API stemma_status stemma_sequences_destroy(stemma_sequences* cache, uint32_t on_busy);

/* Leases a sequence and plans; calls only held() of the engine. Null options: defaults. End *out
 * with stemma_turn_finish() or _abandon(). Busy (every sequence is leased, or the session is under
 * way), invalid, out of range (more than the context has), out of blocks, out of memory. */
STEMMA_API stemma_status stemma_sequences_begin(stemma_sequences* cache, const stemma_scope* scope,
                                                const stemma_prompt* prompt,
                                                const stemma_turn_options* options,
                                                stemma_turn* out);
/* Reports what begin would plan now. Takes and counts nothing. Any thread. */
STEMMA_API stemma_status stemma_sequences_lookup(stemma_sequences* cache, const stemma_scope* scope,
                                                 const stemma_prompt* prompt,
                                                 const stemma_turn_options* options,
                                                 stemma_sequence_report* out);
/* *admits is 1 if begin would find a sequence. The session may be null with size 0. Any thread. */
STEMMA_API stemma_status stemma_sequences_can_admit(stemma_sequences* cache, const char* session,
                                                    size_t session_size, uint32_t* admits);
/* Saves items that wait to be saved, oldest first, up to `items` items (STEMMA_ALL: all) and
 * `bytes` bytes (UINT64_MAX: all); it finishes an item that it began. For quiet moments. With evict
 * 1 it may evict saved entries; with 0 an item that finds no room waits. *out may be null. */
STEMMA_API stemma_status stemma_sequences_drain(stemma_sequences* cache, uint32_t items,
                                                uint64_t bytes, uint32_t evict,
                                                stemma_drained* out);
/* Any thread. */
STEMMA_API stemma_status stemma_sequences_pending(stemma_sequences* cache, uint32_t* out);
/* Computes the prefix with `compute` and saves it, unless it is there already. *out may be null.
 * Fails as begin or `compute` does. */
STEMMA_API stemma_status stemma_sequences_warm(stemma_sequences* cache, const stemma_scope* scope,
                                               const stemma_prompt* prefix,
                                               const stemma_turn_options* options,
                                               stemma_compute_fn compute, void* user,
                                               stemma_sequence_report* out);

/* Takes in parts that another process, or an earlier one, saved: those that its listener was told
 * of, for this scope and these words, in ascending order of their ends. Only the engine can tell
 * whether their bytes are right, when it loads them. Parts that are there already stay as they are;
 * parts that do not fit are left out. No listener is told of them. *out may be null. Invalid, out
 * of memory. */
STEMMA_API stemma_status stemma_sequences_admit(stemma_sequences* cache, const stemma_scope* scope,
                                                const stemma_prompt* prompt,
                                                const stemma_saved_part* parts, size_t part_count,
                                                const stemma_turn_options* options,
                                                stemma_admitted* out);
/* Offers the listener everything that is saved as if it were being evicted, though it stays: for a
 * process that ends. `from` is 0, or out->next of the last call. A call ends before the listener
 * takes more than `bytes` bytes (UINT64_MAX: no limit), unless a single part is larger. With
 * write-back tiers, flush the stack between two calls, because its queue is bounded. */
STEMMA_API stemma_status stemma_sequences_hand_on(stemma_sequences* cache, uint64_t from,
                                                  uint64_t bytes, stemma_handed_on* out);
/* How many positions from the start of the prompt are saved in segments. Any thread. */
STEMMA_API stemma_status stemma_sequences_saved_tokens(stemma_sequences* cache,
                                                       const stemma_scope* scope,
                                                       const stemma_prompt* prompt, uint32_t* out);
/* The depths of the prompt that have a checkpoint, deepest first, at most `capacity`; *count is how
 * many. Any thread. */
STEMMA_API stemma_status stemma_sequences_saved_checkpoints(stemma_sequences* cache,
                                                            const stemma_scope* scope,
                                                            const stemma_prompt* prompt,
                                                            uint32_t* depths, uint32_t capacity,
                                                            uint32_t* count);

/* Says that the engine made its context anew: no sequence holds anything, and turns under way
 * become stale. What was saved stays. */
STEMMA_API stemma_status stemma_sequences_forget_context(stemma_sequences* cache);
/* Forgets what this scope has, live and saved. Turns under way go on, and leave nothing. */
STEMMA_API stemma_status stemma_sequences_drop_scope(stemma_sequences* cache,
                                                     const stemma_scope* scope);
/* Forgets everything that continues like the prompt after its first `keep` positions; with `keep`
 * at the prompt's end, every continuation, so an empty prompt forgets the whole scope. Idle
 * sequences are cut at `keep`, or emptied if their memory cannot go back. Segments go whole, from
 * the one that holds position `keep` on. Turns under way are not touched; later turns find what
 * they leave. *out may be null. Invalid, out of range (`keep` beyond the prompt, or inside a media
 * item), out of memory; nothing changed. */
STEMMA_API stemma_status stemma_sequences_truncate(stemma_sequences* cache,
                                                   const stemma_scope* scope,
                                                   const stemma_prompt* prompt, uint32_t keep,
                                                   stemma_truncated* out);
/* Forgets everything that was saved, including logits. */
STEMMA_API stemma_status stemma_sequences_drop_saved(stemma_sequences* cache);
/* Ends a conversation, now or when its turn under way ends: its sequence is the next to be emptied,
 * and its saved entries are evicted early. */
STEMMA_API stemma_status stemma_sequences_end_session(stemma_sequences* cache, const char* session,
                                                      size_t session_size);

/* out->struct_size says how much the caller wants. Any thread. */
STEMMA_API stemma_status stemma_sequences_stats(stemma_sequences* cache,
                                                stemma_sequence_stats* out);
/* Any thread. */
STEMMA_API stemma_status stemma_sequences_session(stemma_sequences* cache, const char* session,
                                                  size_t session_size, stemma_session_info* out);
/* Out of range: the engine has no such sequence. Any thread. */
STEMMA_API stemma_status stemma_sequences_sequence(stemma_sequences* cache, uint32_t sequence,
                                                   stemma_sequence_info* out);
/* Calls `each` for everything that can be reused, or not at all without memory. Any thread. */
STEMMA_API stemma_status stemma_sequences_contents(stemma_sequences* cache,
                                                   stemma_sequence_content_fn each, void* user);
/* Stops the process with a description if the books do not balance. For tests. */
STEMMA_API stemma_status stemma_sequences_check_invariants(stemma_sequences* cache);

/* ---- A turn ---------------------------------------------------------------------------------- */
/* Errors of all these calls: invalid (0, or a number that no turn had), stale (the turn ended, its
 * sequence was taken away, or its cache was destroyed), busy (another call is changing the cache),
 * wrong state (a call before execute, or after the sequence was lost). */

/* Never stale while the turn lives: reports STEMMA_NO_SEQUENCE if the sequence was taken away. */
STEMMA_API stemma_status stemma_turn_positions(stemma_turn turn, stemma_turn_place* out);
/* Before execute: the plan. After it: what really happened. */
STEMMA_API stemma_status stemma_turn_report(stemma_turn turn, stemma_sequence_report* out);
/* The indices of the prompt's media items that are not wholly available. */
STEMMA_API stemma_status stemma_turn_media_to_process(stemma_turn turn, uint32_t* out,
                                                      size_t capacity, size_t* count);
/* Logits kept for the whole prompt, if want_logits found them; null and 0 otherwise. Sampling can
 * begin before execute, or without it. *logits is borrowed until the turn is rewound, shifted or
 * over. */
STEMMA_API stemma_status stemma_turn_logits(stemma_turn turn, const float** logits, size_t* count);

/* Carries out the plan, or another plan if something fails. *available (may be null): how many
 * positions the sequence really holds. After an error the turn can only end. */
STEMMA_API stemma_status stemma_turn_execute(stemma_turn turn, uint32_t* available);
/* Says that [0, n) is in the sequence. `spent_ns` is how long computing it took; 0: not known. Out
 * of range (beyond length, or below computed). */
STEMMA_API stemma_status stemma_turn_computed(stemma_turn turn, uint32_t n, uint64_t spent_ns);
/* Adds words: sampled, or speculative. Invalid. */
STEMMA_API stemma_status stemma_turn_extend(stemma_turn turn, const uint32_t* tokens, size_t count);
/* Makes room for `tokens` positions beyond length, at the expense of idle sequences. Out of blocks,
 * out of memory. */
STEMMA_API stemma_status stemma_turn_reserve(stemma_turn turn, uint32_t tokens);
/* Forgets words from n on. Out of range (beyond length, inside a media item), unsupported (the
 * memory cannot go back there). After any other error nothing in the sequence counts. */
STEMMA_API stemma_status stemma_turn_rewind(stemma_turn turn, uint32_t n);
/* Keeps a copy of the logits after exactly the words [0, depth). Unsupported, invalid, out of range
 * (no such depth, more than logits_bytes), out of blocks, out of memory. */
STEMMA_API stemma_status stemma_turn_attach_logits(stemma_turn turn, uint32_t depth,
                                                   const float* logits, size_t count);
/* Makes another turn, on another sequence, over the words [0, computed), already executed. The
 * caller ends it like any other. Fails as begin and execute do. */
STEMMA_API stemma_status stemma_turn_fork(stemma_turn turn, const stemma_turn_options* options,
                                          stemma_turn* out);
/* Forgets [keep, keep + discard) and moves the rest down; only [0, keep) will ever be reused.
 * Unsupported, invalid, out of range, any error of the engine (then nothing in the sequence
 * counts). */
STEMMA_API stemma_status stemma_turn_shift(stemma_turn turn, uint32_t keep, uint32_t discard);

/* Ends a turn whose request is done: what was computed stays, and is saved. Null retain: that of
 * begin. Invalid (retain), out of memory: the turn is still alive. Stale: it ends all the same. */
STEMMA_API stemma_status stemma_turn_finish(stemma_turn turn, const stemma_retain* retain);
/* Ends a turn whose request failed or was cancelled: only boundaries saved while it ran are kept.
 * The prefix it found in its sequence stays there if it can. Stale: the turn ends all the same. */
STEMMA_API stemma_status stemma_turn_abandon(stemma_turn turn);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STEMMA_STEMMA_SEQUENCE_H */
