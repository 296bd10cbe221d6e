/* A whole conversation through the C ABI, in C99, with an engine whose sequences are opaque: its KV
 * is one number per position, and depends on every word before it. Turns that stay, fork, rewind
 * and shift; saving, losing the context and loading again; logits; calls that must be refused.
 * Prints what it did; exits 1 at the first answer that is not right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stemma/stemma.h>

#define SEQUENCES 3
#define CONTEXT 256
#define VOCABULARY 8

static void die(int line, const char* what) {
  fprintf(stderr, "line %d: %s\n  last error: %s\n", line, what, stemma_last_error_message());
  exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : die(__LINE__, #condition))
#define OK(call) ((call) == STEMMA_OK ? (void)0 : die(__LINE__, #call))
/* The call must be refused with this status, and the message must name the culprit. */
#define REFUSED(status, word, call)                             \
  do {                                                          \
    CHECK((call) == (status));                                  \
    CHECK(strstr(stemma_last_error_message(), (word)) != NULL); \
  } while (0)

/* ---- The engine ------------------------------------------------------------------------------ */

typedef struct engine {
  uint64_t kv[SEQUENCES][CONTEXT];
  uint32_t length[SEQUENCES];
  unsigned long long copied, saved, loaded, computed;
  int loads_fail;
} engine;

static void engine_held(void* user, uint32_t sequence, stemma_held* out) {
  const engine* self = user;
  out->begin = 0;
  out->end = self->length[sequence];
  out->whole = 1;
}

static stemma_status engine_clear(void* user, uint32_t sequence) {
  engine* self = user;
  self->length[sequence] = 0;
  return STEMMA_OK;
}

static stemma_status engine_trim(void* user, uint32_t sequence, uint32_t n) {
  engine* self = user;
  if (n > self->length[sequence]) return STEMMA_OUT_OF_RANGE;
  self->length[sequence] = n;
  return STEMMA_OK;
}

static stemma_status engine_copy(void* user, uint32_t from, uint32_t to,
                                 const stemma_range* range) {
  engine* self = user;
  const size_t count = range->end - range->begin;
  if (range->end > self->length[from] || range->begin != self->length[to]) {
    return STEMMA_OUT_OF_RANGE;
  }
  memcpy(self->kv[to] + range->begin, self->kv[from] + range->begin, count * sizeof(uint64_t));
  self->length[to] = range->end;
  self->copied += count;
  return STEMMA_OK;
}

static stemma_status engine_size(void* user, uint32_t sequence, uint32_t part,
                                 const stemma_range* range, uint64_t* bytes) {
  const engine* self = user;
  if (part != STEMMA_PART_SEGMENT) return STEMMA_UNSUPPORTED;
  if (range->end > self->length[sequence]) return STEMMA_OUT_OF_RANGE;
  *bytes = (range->end - range->begin) * sizeof(uint64_t);
  return STEMMA_OK;
}

static stemma_status engine_save(void* user, uint32_t sequence, uint32_t part,
                                 const stemma_range* range, uint8_t* out, size_t capacity,
                                 uint64_t* written) {
  engine* self = user;
  const stemma_status fits = engine_size(user, sequence, part, range, written);
  if (fits != STEMMA_OK) return fits;
  if (*written > capacity) return STEMMA_OUT_OF_RANGE;
  memcpy(out, self->kv[sequence] + range->begin, (size_t)*written);
  self->saved += *written;
  return STEMMA_OK;
}

static stemma_status engine_load(void* user, uint32_t sequence, uint32_t part,
                                 const stemma_range* saved, const stemma_range* wanted,
                                 const uint8_t* bytes, size_t size) {
  engine* self = user;
  const size_t count = wanted->end - wanted->begin;
  if (self->loads_fail) return STEMMA_CORRUPT;
  if (part != STEMMA_PART_SEGMENT) return STEMMA_UNSUPPORTED;
  if (wanted->begin != self->length[sequence]) return STEMMA_WRONG_STATE;
  if (size != (saved->end - saved->begin) * sizeof(uint64_t)) return STEMMA_CORRUPT;
  memcpy(self->kv[sequence] + wanted->begin,
         bytes + (wanted->begin - saved->begin) * sizeof(uint64_t), count * sizeof(uint64_t));
  self->length[sequence] = wanted->end;
  self->loaded += count * sizeof(uint64_t);
  return STEMMA_OK;
}

static stemma_status engine_shift(void* user, uint32_t sequence, uint32_t keep, uint32_t discard) {
  engine* self = user;
  const uint32_t end = self->length[sequence];
  if (keep + discard > end) return STEMMA_OUT_OF_RANGE;
  memmove(self->kv[sequence] + keep, self->kv[sequence] + keep + discard,
          (end - keep - discard) * sizeof(uint64_t));
  self->length[sequence] = end - discard;
  return STEMMA_OK;
}

static uint64_t after(uint64_t state, uint32_t token) { return state * 31 + token + 1; }

/* A forward pass: appends words behind what is held. */
static stemma_status engine_compute(void* user, uint32_t sequence, const uint32_t* tokens,
                                    size_t count, uint32_t begin) {
  engine* self = user;
  size_t i;
  if (self->length[sequence] != begin || begin + count > CONTEXT) return STEMMA_OUT_OF_RANGE;
  for (i = 0; i < count; ++i) {
    const uint64_t state = begin + i == 0 ? 0 : self->kv[sequence][begin + i - 1];
    self->kv[sequence][begin + i] = after(state, tokens[i]);
  }
  self->length[sequence] += (uint32_t)count;
  self->computed += count;
  return STEMMA_OK;
}

/* ---- The conversation ------------------------------------------------------------------------ */

static engine the_engine;
static uint32_t words[CONTEXT];
static stemma_scope scope;
static unsigned long long closed_calls, lines_shown;

static void on_closed(void* user) { ++*(unsigned long long*)user; }

static stemma_bytes text(const char* name) {
  stemma_bytes bytes;
  bytes.data = name;
  bytes.size = strlen(name);
  return bytes;
}

static stemma_prompt prompt_of(size_t count) {
  stemma_prompt prompt = {words, 0, NULL, 0};
  prompt.token_count = count;
  return prompt;
}

static stemma_sequences* make_cache(void) {
  stemma_engine_traits traits = STEMMA_ENGINE_TRAITS_INIT;
  stemma_engine functions = STEMMA_ENGINE_INIT;
  stemma_sequence_options options = STEMMA_SEQUENCE_OPTIONS_INIT;
  stemma_sequences* cache = NULL;
  traits.sequences = SEQUENCES;
  traits.context_tokens = CONTEXT;
  traits.unified = 0;
  traits.fork = STEMMA_FORK_COPY;
  traits.segments = 1;
  traits.shift = 1;
  traits.bytes_per_token = sizeof(uint64_t);
  functions.user = &the_engine;
  functions.traits = &traits;
  functions.held = engine_held;
  functions.clear = engine_clear;
  functions.trim = engine_trim;
  functions.copy = engine_copy;
  functions.size = engine_size;
  functions.save = engine_save;
  functions.load = engine_load;
  functions.shift = engine_shift;
  options.segment_tokens = 16;
  options.saved_bytes = 1 << 20;
  options.logits_bytes = 4096;
  options.closed = on_closed;
  options.closed_user = &closed_calls;
  OK(stemma_sequences_create(&functions, &options, &cache));
  return cache;
}

/* Computes what is missing up to the turn's length, and checks all that the sequence holds. */
static void compute(stemma_turn turn) {
  stemma_turn_place at;
  uint64_t state = 0;
  uint32_t i;
  OK(stemma_turn_positions(turn, &at));
  while (at.computed < at.length) {
    OK(engine_compute(&the_engine, at.sequence, words + at.computed, at.next_stop - at.computed,
                      at.computed));
    OK(stemma_turn_computed(turn, at.next_stop, 0));
    OK(stemma_turn_positions(turn, &at));
  }
  CHECK(the_engine.length[at.sequence] == at.length);
  for (i = 0; i < at.length; ++i) {
    state = after(state, words[i]);
    CHECK(the_engine.kv[at.sequence][i] == state);
  }
}

static uint32_t first_turn(stemma_sequences* cache) {
  const stemma_prompt prompt = prompt_of(100);
  stemma_turn_options options = STEMMA_TURN_OPTIONS_INIT;
  float logits[VOCABULARY] = {0};
  stemma_turn turn = 0;
  stemma_turn fork = 0;
  stemma_turn_place at;
  uint32_t available = 7;
  uint32_t sequence;

  options.session = text("a talk");
  OK(stemma_sequences_begin(cache, &scope, &prompt, &options, &turn));
  REFUSED(STEMMA_BUSY, "session", stemma_sequences_begin(cache, &scope, &prompt, &options, &fork));
  REFUSED(STEMMA_WRONG_STATE, "execute", stemma_turn_computed(turn, 1, 0));
  OK(stemma_turn_execute(turn, &available));
  CHECK(available == 0);
  compute(turn);
  logits[3] = 1.5f;
  OK(stemma_turn_attach_logits(turn, 100, logits, VOCABULARY));

  /* Four tokens are tried, two of them are taken back. */
  OK(stemma_turn_extend(turn, words + 100, 4));
  OK(stemma_turn_reserve(turn, 20));
  compute(turn);
  OK(stemma_turn_rewind(turn, 102));
  OK(stemma_turn_positions(turn, &at));
  CHECK(at.computed == 102 && at.length == 102);
  sequence = at.sequence;

  /* A second answer grows from the same place. */
  OK(stemma_turn_fork(turn, NULL, &fork));
  OK(stemma_turn_positions(fork, &at));
  CHECK(fork != 0 && fork != turn && at.sequence != sequence && at.available == 102);
  CHECK(the_engine.copied == 102);
  compute(fork);
  OK(stemma_turn_abandon(fork));
  REFUSED(STEMMA_STALE, "ended", stemma_turn_computed(fork, 1, 0));

  REFUSED(STEMMA_BUSY, "1", stemma_sequences_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  OK(stemma_turn_finish(turn, NULL));
  REFUSED(STEMMA_STALE, "ended", stemma_turn_finish(turn, NULL));
  printf("first turn: 100 tokens, 4 sampled, 2 taken back, one fork\n");
  return sequence;
}

/* The conversation goes on where it was. */
static void second_turn(stemma_sequences* cache, uint32_t sequence) {
  const stemma_prompt prompt = prompt_of(120);
  stemma_turn_options options = STEMMA_TURN_OPTIONS_INIT;
  stemma_retain retain = STEMMA_RETAIN_INIT;
  stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
  stemma_session_info session = STEMMA_SESSION_INFO_INIT;
  stemma_drained drained;
  stemma_turn turn = 0;
  stemma_turn_place at;
  uint32_t pending = 0;

  options.session = text("a talk");
  OK(stemma_sequences_lookup(cache, &scope, &prompt, &options, &report));
  CHECK(report.reused_tokens == 102 && report.steps[STEMMA_STEP_STAY] == 102);
  OK(stemma_sequences_begin(cache, &scope, &prompt, &options, &turn));
  OK(stemma_turn_execute(turn, NULL));
  OK(stemma_turn_positions(turn, &at));
  CHECK(at.available == 102 && at.sequence == sequence);
  compute(turn);
  retain.priority = 80;
  OK(stemma_turn_finish(turn, &retain));
  OK(stemma_sequences_session(cache, "a talk", 6, &session));
  CHECK(session.known && session.resident && session.turns == 2 && session.sequence == sequence);
  OK(stemma_sequences_pending(cache, &pending));
  CHECK(pending == 1);
  OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 0, &drained));
  CHECK(drained.items == 1 && drained.bytes == the_engine.saved && drained.bytes != 0);
  printf("second turn: %u of %u tokens reused, %llu bytes saved\n", (unsigned)report.reused_tokens,
         (unsigned)report.prompt_tokens, (unsigned long long)drained.bytes);
}

/* The engine starts over: what was saved is loaded; where that fails, it is computed. */
static void after_a_restart(stemma_sequences* cache) {
  const stemma_prompt prompt = prompt_of(120);
  stemma_turn turn = 0;
  stemma_turn lost = 0;
  uint32_t available = 0;

  OK(stemma_sequences_begin(cache, &scope, &prompt, NULL, &lost));
  memset(the_engine.length, 0, sizeof the_engine.length);
  OK(stemma_sequences_forget_context(cache));
  REFUSED(STEMMA_STALE, "context", stemma_turn_execute(lost, NULL));
  REFUSED(STEMMA_STALE, "context", stemma_turn_abandon(lost));

  OK(stemma_sequences_begin(cache, &scope, &prompt, NULL, &turn));
  OK(stemma_turn_execute(turn, &available));
  CHECK(available == 119 && the_engine.loaded != 0);
  compute(turn);
  OK(stemma_turn_shift(turn, 10, 20));
  OK(stemma_turn_abandon(turn));
  printf("after a restart: %u tokens restored\n", (unsigned)available);

  memset(the_engine.length, 0, sizeof the_engine.length);
  OK(stemma_sequences_forget_context(cache));
  the_engine.loads_fail = 1;
  OK(stemma_sequences_begin(cache, &scope, &prompt, NULL, &turn));
  OK(stemma_turn_execute(turn, &available));
  CHECK(available == 0);
  compute(turn);
  OK(stemma_turn_finish(turn, NULL));
  the_engine.loads_fail = 0;
}

/* The prompt of the first turn again: its logits are still there, so nothing is computed. */
static void only_logits(stemma_sequences* cache) {
  const stemma_prompt prompt = prompt_of(100);
  stemma_turn_options options = STEMMA_TURN_OPTIONS_INIT;
  stemma_turn turn = 0;
  const float* logits = NULL;
  size_t count = 0;
  options.want_logits = 1;
  OK(stemma_sequences_begin(cache, &scope, &prompt, &options, &turn));
  OK(stemma_turn_logits(turn, &logits, &count));
  CHECK(count == VOCABULARY && logits[3] == 1.5f);
  OK(stemma_turn_finish(turn, NULL));
}

static void show(void* user, const stemma_sequence_content* content) {
  CHECK(content->struct_size >= sizeof *content);
  printf("  %s, %u tokens\n", stemma_content_kind_name(content->kind), (unsigned)content->depth);
  ++*(unsigned long long*)user;
}

static void bad_calls(stemma_sequences* cache) {
  stemma_prompt prompt = prompt_of(10);
  stemma_turn_options options = STEMMA_TURN_OPTIONS_INIT;
  stemma_engine functions = STEMMA_ENGINE_INIT;
  stemma_sequences* other = NULL;
  stemma_turn turn = 7;
  REFUSED(STEMMA_INVALID_ARGUMENT, "cache is null",
          stemma_sequences_begin(NULL, &scope, &prompt, NULL, &turn));
  REFUSED(STEMMA_INVALID_ARGUMENT, "no stemma_sequences",
          stemma_sequences_begin((stemma_sequences*)(void*)&prompt, &scope, &prompt, NULL, &turn));
  REFUSED(STEMMA_INVALID_ARGUMENT, "turn is 0", stemma_turn_execute(0, NULL));
  REFUSED(STEMMA_INVALID_ARGUMENT, "no turn", stemma_turn_execute(UINT64_MAX, NULL));
  REFUSED(STEMMA_INVALID_ARGUMENT, "engine.traits",
          stemma_sequences_create(&functions, NULL, &other));
  options.struct_size = 4;
  REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size of stemma_turn_options",
          stemma_sequences_begin(cache, &scope, &prompt, &options, &turn));
  prompt = prompt_of(CONTEXT);
  options.struct_size = sizeof options;
  options.reserve_tokens = 1;
  REFUSED(STEMMA_OUT_OF_RANGE, "context",
          stemma_sequences_begin(cache, &scope, &prompt, &options, &turn));
  CHECK(turn == 7 && other == NULL);
  printf("bad calls: refused, the last with \"%s\"\n", stemma_last_error_message());
}

int main(void) {
  stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
  stemma_sequence_stats stats;
  stemma_sequences* cache = make_cache();
  stemma_truncated cut;
  stemma_prompt prompt;
  stemma_turn turn = 0;
  uint32_t i;

  spec.model = text("digest of the weights");
  OK(stemma_scope_make(&spec, &scope));
  for (i = 0; i < CONTEXT; ++i) words[i] = i * 7 % 50;

  second_turn(cache, first_turn(cache));
  after_a_restart(cache);
  only_logits(cache);
  bad_calls(cache);
  words[0] = 49;
  prompt = prompt_of(64);
  OK(stemma_sequences_warm(cache, &scope, &prompt, NULL, engine_compute, &the_engine, NULL));
  printf("what can be reused:\n");
  OK(stemma_sequences_contents(cache, show, &lines_shown));
  CHECK(lines_shown >= 4);
  OK(stemma_sequences_end_session(cache, "a talk", 6));
  OK(stemma_sequences_truncate(cache, &scope, &prompt, 16, &cut));
  CHECK(cut.sequences == 1 && cut.live_tokens == 48 && cut.segments > 0 && cut.in_use == 0);
  OK(stemma_sequences_drop_scope(cache, &scope));
  OK(stemma_sequences_drop_saved(cache));
  stats.struct_size = sizeof stats;
  OK(stemma_sequences_stats(cache, &stats));
  CHECK(stats.leased_sequences == 0 && stats.used_tokens == 0 && stats.sessions == 0);
  CHECK(stats.captures[STEMMA_CAPTURE_SAVED] >= 2 && stats.steps[STEMMA_STEP_SEGMENTS] == 1);
  OK(stemma_sequences_check_invariants(cache));

  /* A turn may outlive its cache, and can only end. */
  OK(stemma_sequences_begin(cache, &scope, &prompt, NULL, &turn));
  OK(stemma_sequences_destroy(cache, STEMMA_ON_BUSY_DEFER));
  REFUSED(STEMMA_STALE, "destroyed", stemma_sequences_drop_saved(cache));
  REFUSED(STEMMA_STALE, "gone", stemma_turn_execute(turn, NULL));
  CHECK(closed_calls == 0);
  REFUSED(STEMMA_STALE, "gone", stemma_turn_abandon(turn));
  CHECK(closed_calls == 1);
  printf("%llu turns, %llu of %llu tokens reused, %llu computed; libstemma %s\n",
         (unsigned long long)stats.turns, (unsigned long long)stats.reused_tokens,
         (unsigned long long)stats.prompt_tokens, the_engine.computed, stemma_version_string());
  return 0;
}
