#include "bench/sequences/setting.h"

namespace stemma::bench::sequences {

const char* to_string(Model model) {
  switch (model) {
    case Model::full: return "full";
    case Model::window: return "window";
    case Model::hybrid: return "hybrid";
  }
  return "";
}

const char* to_string(Memory memory) {
  switch (memory) {
    case Memory::tight: return "tight";
    case Memory::normal: return "normal";
    case Memory::roomy: return "roomy";
    case Memory::unlimited: return "unlimited";
  }
  return "";
}

uint64_t Setting::total_bytes() const { return context_tokens * kTokenBytes + stored_bytes; }

uint64_t Setting::copies_bytes() const { return total_bytes() - longest_tokens * kTokenBytes; }

Setting setting_of(const Workload& workload, Model model, Memory memory) {
  const uint64_t live_bytes = workload.context_tokens * kTokenBytes;
  uint64_t stored = 0;
  switch (memory) {
    case Memory::tight: stored = live_bytes / 2; break;
    case Memory::normal: stored = live_bytes * 2; break;
    case Memory::roomy: stored = live_bytes * 8; break;
    case Memory::unlimited: stored = live_bytes * 64; break;
  }
  return {.model = model,
          .sequences = workload.sequences,
          .context_tokens = workload.context_tokens,
          .stored_bytes = stored,
          .longest_tokens = workload.longest_tokens()};
}

test::FakeSequences::Options engine_options(const Setting& setting) {
  test::FakeSequences::Options options;
  options.sequences = setting.sequences;
  options.context_tokens = setting.context_tokens;
  options.row_bytes = kTokenBytes - 8;  // The engine adds the position and the word.
  options.costs.save_byte_ps =
      static_cast<uint64_t>(static_cast<double>(options.costs.save_byte_ps) * kByteFactor);
  options.costs.load_byte_ps =
      static_cast<uint64_t>(static_cast<double>(options.costs.load_byte_ps) * kByteFactor);
  switch (setting.model) {
    case Model::full: break;
    case Model::window:
      options.rewind = Rewind::window;
      options.rewind_tokens = kWindowTokens;
      options.window_slack_tokens = kBatchTokens;
      options.checkpoints = true;
      break;
    case Model::hybrid:
      options.rewind = Rewind::exact;
      options.state_bytes = 72 * kTokenBytes;
      options.checkpoints = true;
      break;
  }
  return options;
}

}  // namespace stemma::bench::sequences
