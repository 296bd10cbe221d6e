#include "support/engine_kinds.h"

namespace stemma::test {

EngineOptions full_engine() { return {}; }

EngineOptions full_split_engine() { return {.unified = false, .fork = Fork::copy}; }

EngineOptions full_state_engine() {
  return {.unified = false, .fork = Fork::restore, .segments = false};
}

EngineOptions live_engine() { return {.fork = Fork::none, .segments = false}; }

EngineOptions window_engine() { return {.rewind = Rewind::window, .checkpoints = true}; }

EngineOptions window_state_engine() {
  return {.unified = false, .rewind = Rewind::window, .fork = Fork::copy, .segments = false};
}

EngineOptions hybrid_engine() { return {.rewind = Rewind::exact, .checkpoints = true}; }

EngineOptions hybrid_state_engine() {
  return {.unified = false, .rewind = Rewind::exact, .fork = Fork::restore, .segments = false};
}

EngineOptions mamba_engine() {
  return {.rewind = Rewind::exact,
          .fork = Fork::copy,
          .segments = false,
          .checkpoints = true,
          .full_attention = false};
}

EngineOptions bounded_engine() {
  return {.rewind = Rewind::bounded, .rewind_tokens = 4, .checkpoints = true};
}

std::vector<EngineKind> every_engine(const std::function<void(EngineOptions&)>& change) {
  std::vector<EngineKind> kinds = {{"full", full_engine()},
                                   {"full_split", full_split_engine()},
                                   {"full_state", full_state_engine()},
                                   {"live", live_engine()},
                                   {"window", window_engine()},
                                   {"window_state", window_state_engine()},
                                   {"hybrid", hybrid_engine()},
                                   {"hybrid_state", hybrid_state_engine()},
                                   {"mamba", mamba_engine()},
                                   {"bounded", bounded_engine()}};
  for (EngineKind& kind : kinds) {
    if (change) change(kind.options);
  }
  return kinds;
}

}  // namespace stemma::test
