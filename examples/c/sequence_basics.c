/* A conversation over an engine whose sequences are opaque: begin, execute, compute, finish. */
#include <stdio.h>
#include <stdlib.h>

#include <stemma/stemma.h>

static uint32_t length[2]; /* Stands for the engine: it only knows how much each sequence holds. */

static void held(void* user, uint32_t sequence, stemma_held* out) {
  (void)user;
  out->end = length[sequence];
  out->whole = 1;
}
static stemma_status trim(void* user, uint32_t sequence, uint32_t n) {
  (void)user;
  length[sequence] = n;
  return STEMMA_OK;
}
static stemma_status clear(void* user, uint32_t sequence) { return trim(user, sequence, 0); }

static void must(stemma_status status) {
  if (status == STEMMA_OK) return;
  fprintf(stderr, "%s\n", stemma_last_error_message());
  exit(1);
}

static void serve(stemma_sequences* cache, const stemma_scope* scope, const uint32_t* tokens) {
  stemma_prompt prompt = {tokens, 100, NULL, 0};
  stemma_turn_place at;
  stemma_turn turn;
  must(stemma_sequences_begin(cache, scope, &prompt, NULL, &turn)); /* Plans, leases a sequence. */
  must(stemma_turn_execute(turn, NULL));                            /* The prefix is in it. */
  for (must(stemma_turn_positions(turn, &at)); at.computed < at.length;) {
    length[at.sequence] = at.next_stop; /* The engine computes tokens [computed, next_stop). */
    must(stemma_turn_computed(turn, at.next_stop, 0));
    must(stemma_turn_positions(turn, &at));
  }
  must(stemma_turn_finish(turn, NULL)); /* Stays in its sequence, until that is needed. */
  printf("%u tokens in sequence %u, %u of them reused\n", at.length, at.sequence, at.available);
}

int main(void) {
  stemma_engine_traits traits = STEMMA_ENGINE_TRAITS_INIT;
  stemma_engine engine = STEMMA_ENGINE_INIT;
  stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
  stemma_sequences* cache;
  stemma_scope scope;
  uint32_t tokens[100] = {7};
  traits.sequences = 2, traits.context_tokens = 4096;
  traits.fork = STEMMA_FORK_NONE; /* It can neither copy nor save: those functions stay null. */
  engine.traits = &traits, engine.held = held, engine.clear = clear, engine.trim = trim;
  spec.model.data = "digest of the weights", spec.model.size = 21;
  must(stemma_sequences_create(&engine, NULL, &cache));
  must(stemma_scope_make(&spec, &scope));
  for (int i = 0; i < 2; ++i) serve(cache, &scope, tokens); /* New; then all but one token. */
  tokens[70] = 8, serve(cache, &scope, tokens);             /* The same up to token 70. */
  must(stemma_sequences_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  return 0;
}
