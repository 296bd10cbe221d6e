#include "constrain/matcher.h"

#include <utility>

namespace stemma::constrain {
namespace {

// Memory that calls need while they run; matchers of one thread share it.
struct Workspace {
  Stepper stepper;
  Stacks stacks[2];
};

Workspace& workspace() {
  thread_local Workspace space;
  return space;
}

// Reads `bytes`; the stacks behind them are in `space`, at the index that is returned. Not for no bytes.
StepOutcome read_all(const Grammar& grammar, const Stacks& from, std::string_view bytes,
                     Workspace& space, uint32_t& at) {
  const Stacks* now = &from;
  at = 0;
  for (const char byte : bytes) {
    at ^= 1U;
    const StepOutcome outcome =
        space.stepper.read(grammar, *now, static_cast<uint8_t>(byte), space.stacks[at]);
    if (outcome != StepOutcome::read) return outcome;
    now = &space.stacks[at];
  }
  return StepOutcome::read;
}

}  // namespace

Matcher::Matcher(GrammarPtr grammar) : grammar_(std::move(grammar)) {
  passed_limit_ = workspace().stepper.start(*grammar_, stacks_) == StepOutcome::limit;
}

bool Matcher::accept(std::string_view bytes) {
  if (bytes.empty()) return true;
  Workspace& space = workspace();
  uint32_t at = 0;
  const StepOutcome outcome = read_all(*grammar_, stacks_, bytes, space, at);
  if (outcome == StepOutcome::limit) passed_limit_ = true;
  if (outcome != StepOutcome::read) return false;
  stacks_ = space.stacks[at];
  return true;
}

bool Matcher::allows(std::string_view bytes) const {
  uint32_t at = 0;
  return read_all(*grammar_, stacks_, bytes, workspace(), at) == StepOutcome::read;
}

}  // namespace stemma::constrain
