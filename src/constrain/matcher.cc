#include "constrain/matcher.h"

#include <utility>

namespace stemma::constrain {
namespace {

// Limit on Stepper::work() for one token: about 2 ms, and a little more for each byte, so that a
// long text can be read at once.
constexpr uint64_t kMostTokenWork = 500'000;
constexpr uint64_t kMoreWorkPerByte = 500;

// Working memory of a call; the matchers of a thread share it.
struct Workspace {
  Stepper stepper;
  Stacks stacks[2];
};

Workspace& workspace() {
  thread_local Workspace space;
  return space;
}

// Reads `bytes`, which must not be empty. The resulting stacks are in `space`, at the returned
// index.
StepOutcome read_all(const Grammar& grammar, const Stacks& from, std::string_view bytes,
                     Workspace& space, uint32_t& at) {
  const Stacks* now = &from;
  at = 0;
  uint64_t work = 0;
  const uint64_t most = kMostTokenWork + kMoreWorkPerByte * bytes.size();
  for (const char byte : bytes) {
    at ^= 1U;
    const StepOutcome outcome =
        space.stepper.read(grammar, *now, static_cast<uint8_t>(byte), space.stacks[at]);
    if (outcome != StepOutcome::read) return outcome;
    work += space.stepper.work();
    if (work > most && bytes.size() > 1) return StepOutcome::limit;
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
