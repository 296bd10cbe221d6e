// stemma_sequences_*: each is a few lines around the C++ call of the same name.
#include <utility>
#include <vector>

#include "base/invalid.h"
#include "capi/last_error.h"
#include "capi/sequence_handles.h"

using namespace stemma;
using namespace stemma::capi;

namespace {

using base::invalid;

// Runs `body` with the cache behind the handle; other calls may run meanwhile.
template <class Body>
stemma_status look_at(const char* call, stemma_sequences* handle, Body&& body) noexcept {
  const Result<SequenceHome*> home = sequence_caches().find(handle);
  if (!home) [[unlikely]] {
    return fail(call, home.error());
  }
  return end(call, caught([&] { return body(**home); }));
}

// The same, with the right to change the cache.
template <class Body>
stemma_status change(const char* call, stemma_sequences* handle, Body&& body) noexcept {
  return look_at(call, handle, [&](SequenceHome& home) -> Result<void> {
    const Change right(home);
    if (!right) return Change::kBusy;
    return body(home);
  });
}

// The start of every call about a prompt.
struct Request {
  Result<void> read(const stemma_scope* in, const stemma_prompt* words,
                    const stemma_turn_options* said) {
    STEMMA_TRY(scope, decode(in));
    STEMMA_TRY(prompt, decode(words, room));
    return decode(said, options);
  }
  Scope scope = Scope::from_digest({});
  Prompt prompt;
  TurnOptions options;
  MediaRoom room;
};

struct Computer {
  stemma_compute_fn compute;
  void* user;
  static Result<void> call(void* user, SequenceId sequence, std::span<const Token> tokens,
                           uint32_t begin) {
    const auto* to = static_cast<const Computer*>(user);
    return from_status(
        to->compute(to->user, to_index(sequence), tokens.data(), tokens.size(), begin),
        "the caller's compute failed");
  }
};

}  // namespace

stemma_status stemma_sequences_create(const stemma_engine* engine,
                                      const stemma_sequence_options* options,
                                      stemma_sequences** out) {
  return end(__func__, caught([&]() -> Result<void> {
               if (out == nullptr) return invalid("out is null");
               STEMMA_TRY(SequenceHome * home, SequenceHome::create(engine, options));
               stemma_sequences* handle = sequence_caches().make(home);
               if (handle == nullptr) {
                 home->forget_closed();
                 home->let_go();
                 return Error(Errc::out_of_memory, "4,096 caches are alive; destroy one");
               }
               *out = handle;
               return {};
             }));
}

stemma_status stemma_sequences_destroy(stemma_sequences* cache, uint32_t on_busy) {
  const Result<SequenceHome*> home = sequence_caches().find(cache);
  if (!home) return fail(__func__, home.error());
  const Result<OnBusy> decoded = decode_on_busy(on_busy);
  if (!decoded) return fail(__func__, decoded.error());
  {
    const Change right(**home);
    if (!right) return fail(__func__, Change::kBusy);
    if (const uint32_t live = (*home)->holders() - 1; live != 0 && *decoded == OnBusy::refuse) {
      return fail(__func__, {Errc::busy, "turns of this cache are alive, this many", live});
    }
    if (!sequence_caches().forget(cache, *home)) return fail(__func__, sequence_caches().stale());
    (*home)->end_cache();
  }
  (*home)->let_go();
  return STEMMA_OK;
}

stemma_status stemma_sequences_begin(stemma_sequences* cache, const stemma_scope* scope,
                                     const stemma_prompt* prompt,
                                     const stemma_turn_options* options, stemma_turn* out) {
  return change(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, options));
    Result<Turn> turn = home.cache().begin(request.scope, request.prompt, request.options);
    return hand_out(turn, home, *out);
  });
}

stemma_status stemma_sequences_lookup(stemma_sequences* cache, const stemma_scope* scope,
                                      const stemma_prompt* prompt,
                                      const stemma_turn_options* options,
                                      stemma_sequence_report* out) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, options));
    STEMMA_TRY(const SequenceReport report,
               home.cache().lookup(request.scope, request.prompt, request.options));
    encode(report, out);
    return {};
  });
}

stemma_status stemma_sequences_can_admit(stemma_sequences* cache, const char* session,
                                         size_t session_size, uint32_t* admits) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (admits == nullptr) return invalid("admits is null");
    STEMMA_TRY(const std::string_view name, decode_session(session, session_size));
    *admits = home.cache().can_admit(name) ? 1 : 0;
    return {};
  });
}

stemma_status stemma_sequences_drain(stemma_sequences* cache, uint32_t items, uint64_t bytes,
                                     uint32_t evict, stemma_drained* out) {
  return change(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    const Drained drained =
        home.cache().drain({.items = items, .bytes = bytes, .evict = evict != 0});
    if (out != nullptr) *out = {drained.items, drained.saved, drained.bytes};
    return {};
  });
}

stemma_status stemma_sequences_pending(stemma_sequences* cache, uint32_t* out) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    *out = home.cache().pending();
    return {};
  });
}

stemma_status stemma_sequences_warm(stemma_sequences* cache, const stemma_scope* scope,
                                    const stemma_prompt* prefix, const stemma_turn_options* options,
                                    stemma_compute_fn compute, void* user,
                                    stemma_sequence_report* out) {
  return change(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (compute == nullptr) return invalid("compute is null");
    if (out != nullptr) STEMMA_TRY_VOID(check_room(*out));
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prefix, options));
    Computer computer{compute, user};
    STEMMA_TRY(const SequenceReport report,
               home.cache().warm(request.scope, request.prompt, Computer::call, &computer,
                                 request.options));
    if (out != nullptr) encode(report, out);
    return {};
  });
}

stemma_status stemma_sequences_admit(stemma_sequences* cache, const stemma_scope* scope,
                                     const stemma_prompt* prompt, const stemma_saved_part* parts,
                                     size_t part_count, const stemma_turn_options* options,
                                     stemma_admitted* out) {
  return change(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, options));
    STEMMA_TRY(const std::vector<SavedPart> given, decode_parts(parts, part_count));
    STEMMA_TRY(const Admitted admitted,
               home.cache().admit(request.scope, request.prompt, given, request.options));
    if (out != nullptr) {
      *out = {admitted.taken, admitted.present, admitted.refused, 0, admitted.bytes};
    }
    return {};
  });
}

stemma_status stemma_sequences_hand_on(stemma_sequences* cache, uint64_t from, uint64_t bytes,
                                       stemma_handed_on* out) {
  return change(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    const HandedOn done = home.cache().hand_on(from, bytes);
    *out = {done.parts, done.over ? 1U : 0U, done.bytes, done.next};
    return {};
  });
}

stemma_status stemma_sequences_saved_tokens(stemma_sequences* cache, const stemma_scope* scope,
                                            const stemma_prompt* prompt, uint32_t* out) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, nullptr));
    *out = home.cache().saved_tokens(request.scope, request.prompt);
    return {};
  });
}

stemma_status stemma_sequences_saved_checkpoints(stemma_sequences* cache, const stemma_scope* scope,
                                                 const stemma_prompt* prompt, uint32_t* depths,
                                                 uint32_t capacity, uint32_t* count) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (count == nullptr) return invalid("count is null");
    if (depths == nullptr && capacity != 0) return invalid("depths is null");
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, nullptr));
    *count = home.cache().saved_checkpoints(request.scope, request.prompt, {depths, capacity});
    return {};
  });
}

stemma_status stemma_sequences_forget_context(stemma_sequences* cache) {
  return change(__func__, cache, [](SequenceHome& home) -> Result<void> {
    home.cache().forget_context();
    return {};
  });
}

stemma_status stemma_sequences_drop_scope(stemma_sequences* cache, const stemma_scope* scope) {
  return change(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    STEMMA_TRY(const Scope in, decode(scope));
    home.cache().drop_scope(in);
    return {};
  });
}

stemma_status stemma_sequences_truncate(stemma_sequences* cache, const stemma_scope* scope,
                                        const stemma_prompt* prompt, uint32_t keep,
                                        stemma_truncated* out) {
  return change(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, nullptr));
    STEMMA_TRY(const Truncated cut, home.cache().truncate(request.scope, request.prompt, keep));
    if (out != nullptr) {
      *out = {cut.live_tokens, cut.sequences, cut.segments, cut.states,
              cut.checkpoints, cut.logits,    cut.in_use};
    }
    return {};
  });
}

stemma_status stemma_sequences_drop_saved(stemma_sequences* cache) {
  return change(__func__, cache, [](SequenceHome& home) -> Result<void> {
    home.cache().drop_saved();
    return {};
  });
}

stemma_status stemma_sequences_end_session(stemma_sequences* cache, const char* session,
                                           size_t session_size) {
  return change(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    STEMMA_TRY(const std::string_view name, decode_session(session, session_size));
    home.cache().end_session(name);
    return {};
  });
}

stemma_status stemma_sequences_stats(stemma_sequences* cache, stemma_sequence_stats* out) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    encode(home.cache().stats(), out);
    return {};
  });
}

stemma_status stemma_sequences_session(stemma_sequences* cache, const char* session,
                                       size_t session_size, stemma_session_info* out) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    STEMMA_TRY(const std::string_view name, decode_session(session, session_size));
    encode(home.cache().session(name), out);
    return {};
  });
}

stemma_status stemma_sequences_sequence(stemma_sequences* cache, uint32_t sequence,
                                        stemma_sequence_info* out) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    if (sequence >= home.sequences()) {
      return Error(Errc::out_of_range, "the engine has no such sequence", sequence);
    }
    encode(home.cache().sequence(SequenceId{sequence}), out);
    return {};
  });
}

stemma_status stemma_sequences_contents(stemma_sequences* cache, stemma_sequence_content_fn each,
                                        void* user) {
  return look_at(__func__, cache, [&](SequenceHome& home) -> Result<void> {
    if (each == nullptr) return invalid("each is null");
    STEMMA_TRY(const std::vector<SequenceContent> contents, home.cache().contents());
    for (const SequenceContent& content : contents) {
      const stemma_sequence_content shown = encode(content);
      each(user, &shown);
    }
    return {};
  });
}

stemma_status stemma_sequences_check_invariants(stemma_sequences* cache) {
  return change(__func__, cache, [](SequenceHome& home) -> Result<void> {
    home.cache().check_invariants();
    return {};
  });
}
