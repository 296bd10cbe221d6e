// The tiers that were given to `stemma serve`, one above the other: a directory, shared stores.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/config.h"
#include "stemma/sequence_engine.h"
#include "stemma/tier/sequence_tiers.h"

namespace stemma::cli {

struct ServeTiers {
  std::unique_ptr<tier::TierStack> stack;  // Null: no tiers were configured.
  std::unique_ptr<tier::SequenceTiers> tiers;
};

// Logs a warning where --saved-bytes is too small for the model's states, so that nothing, or not
// every prompt, can be saved.
void warn_of_small_budget(const server::Config& config, const EngineTraits& traits,
                          const std::function<void(std::string_view line)>& log);

// Opens the tiers. Returns false after writing the reason, for the operator, to `why`. Logs notable
// findings. `model` separates this model's entries from others' (SequenceTiers::Options).
bool open_tiers(const server::Config& config, const EngineTraits& traits, uint32_t model,
                const std::function<void(std::string_view line)>& log, ServeTiers& out,
                std::string& why);

}  // namespace stemma::cli
