// CallbackEngine: makes an engine given as C functions into the SequenceEngine that the cache
// calls.
//
// The status that a function returns becomes the error; a number that is no status is a failure
// like any other. Its other answers are believed only if they can be true: SequenceCache calls
// held() anyway.
//
// Invariant:  a trait that needs a function has it, see create().
// Threading:  one thread at a time, as SequenceEngine.
// Ownership:  `user` and the functions belong to the caller; their structs were copied.
#pragma once

#include "capi/decode.h"
#include "stemma/sequence_engine.h"
#include "stemma/stemma.h"

namespace stemma::capi {

STEMMA_SIZED(stemma_engine_traits, STEMMA_ENGINE_TRAITS_INIT);
STEMMA_SIZED(stemma_engine, STEMMA_ENGINE_INIT);

// Error: invalid_argument (null, a value that no trait can have).
Result<EngineTraits> decode_traits(const stemma_engine_traits* given) noexcept;

class CallbackEngine final : public SequenceEngine {
 public:
  // Error: invalid_argument naming what is missing or impossible.
  static Result<CallbackEngine> create(const stemma_engine* given) noexcept;

  // Whether the engine has functions to save and load.
  bool saves() const noexcept { return engine_.save != nullptr; }

  EngineTraits traits() const override { return traits_; }
  Held held(SequenceId sequence) override;
  Result<void> clear(SequenceId sequence) override;
  Result<void> trim(SequenceId sequence, uint32_t n) override;
  Result<void> copy(SequenceId from, SequenceId to, Range range) override;
  Result<uint64_t> size(SequenceId sequence, Part part, Range range) override;
  Result<uint64_t> save(SequenceId sequence, Part part, Range range,
                        std::span<uint8_t> out) override;
  Result<void> load(SequenceId sequence, Part part, Range saved, Range wanted,
                    std::span<const uint8_t> bytes) override;
  Result<void> shift(SequenceId sequence, uint32_t keep, uint32_t discard) override;

 private:
  CallbackEngine(const stemma_engine& engine, const EngineTraits& traits) noexcept
      : engine_(engine), traits_(traits) {}

  stemma_engine engine_;
  EngineTraits traits_;
};

// What a caller's function returned, as a Result. `failed` is a literal.
Result<void> from_status(stemma_status status, const char* failed) noexcept;

}  // namespace stemma::capi
