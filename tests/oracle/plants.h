// Engines with one known bug each, to see that the oracle sees. Each takes one of the reference
// engine's steps and does it wrong, as engines and caches have done it wrong before.
#pragma once

#include <memory>

#include "oracle/world.h"

namespace stemma::oracle {

enum class Plant : uint8_t {
  none,
  written_in_place,  // No copy-on-write: a part-block is not copied but written on where it lies.
  wrong_position,    // Two blocks are filled in each other's place and registered as they lie.
  state_elsewhere,   // A recurrent state is registered at another depth than it was saved at.
  window_hole,       // A window block that is gone is read anyway: as block 0, the padding.
  media_ignored,     // Placeholders are compared instead of pictures.
  published_unwritten,  // Everything is committed at admission and written later.
  fence_ignored,        // Blocks of a request are given back while its last step is in flight.
  scope_ignored,        // All adapters share what their prompts share.
};

// An engine factory for run_world().
EngineFactory planted(Plant plant);

}  // namespace stemma::oracle
