// Engines that each break the contract in one way, to show that the checks notice. Faults that
// held() reveals are not among them: a cache copes with those.
#pragma once

#include <cstdint>
#include <memory>

#include "sequences/schedule.h"

namespace stemma::schedules {

enum class Plant : uint8_t {
  none,
  load_elsewhere,    // load() adds a word to another sequence.
  load_other_words,  // load() puts other words where the right ones belong, as many.
  copy_other_words,  // copy() does.
  trim_other_words,  // trim() does.
  save_of_another,   // save() writes another sequence's contents.
  clear_nothing,     // clear() does nothing, and held() says that it did.
  window_hidden,     // held() says that a window reaches back to the beginning.
  clear_leaks,       // clear() empties a sequence, and takes a position elsewhere.
  copy_takes,        // copy() empties its source.
};

EngineFactory planted(Plant plant);

}  // namespace stemma::schedules
