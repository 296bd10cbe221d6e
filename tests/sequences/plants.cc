#include "sequences/plants.h"

#include <vector>

namespace stemma::schedules {
namespace {

class PlantedEngine final : public ScheduleEngine {
 public:
  PlantedEngine(const FakeSequences::Options& options, Plant plant)
      : ScheduleEngine(options), plant_(plant), hidden_(options.sequences, false) {}

  Held held(SequenceId sequence) override {
    Held held = ScheduleEngine::held(sequence);
    if (plant_ == Plant::clear_nothing && hidden_[to_index(sequence)]) return {};
    if (plant_ == Plant::window_hidden && held.end > 0) held.begin = 0;
    return held;
  }
  Result<void> compute(SequenceId sequence, std::span<const Token> words) override {
    hidden_[to_index(sequence)] = false;
    return ScheduleEngine::compute(sequence, words);
  }
  Result<void> clear(SequenceId sequence) override {
    if (plant_ == Plant::clear_nothing) {
      hidden_[to_index(sequence)] = true;
      return {};
    }
    const Result<void> result = ScheduleEngine::clear(sequence);
    if (plant_ == Plant::clear_leaks) add_elsewhere(sequence, true);
    return result;
  }
  Result<void> trim(SequenceId sequence, uint32_t n) override {
    const Result<void> result = ScheduleEngine::trim(sequence, n);
    if (plant_ == Plant::trim_other_words && result) replace(sequence);
    return result;
  }
  Result<void> copy(SequenceId from, SequenceId to, Range range) override {
    const Result<void> result = ScheduleEngine::copy(from, to, range);
    if (plant_ == Plant::copy_other_words && result) replace(to);
    if (plant_ == Plant::copy_takes && result) (void)fake().clear(from);
    return result;
  }
  Result<uint64_t> save(SequenceId sequence, Part part, Range range,
                        std::span<uint8_t> out) override {
    if (plant_ == Plant::save_of_another) {
      for (uint32_t s = 0; s < traits().sequences; ++s) {
        if (s == to_index(sequence) || fake().held(SequenceId{s}).end < range.end) continue;
        const Result<uint64_t> bytes = ScheduleEngine::save(SequenceId{s}, part, range, out);
        if (bytes) return bytes;
      }
    }
    return ScheduleEngine::save(sequence, part, range, out);
  }
  Result<void> load(SequenceId sequence, Part part, Range saved, Range wanted,
                    std::span<const uint8_t> bytes) override {
    const Result<void> result = ScheduleEngine::load(sequence, part, saved, wanted, bytes);
    if (plant_ == Plant::load_other_words && result) replace(sequence);
    if (plant_ == Plant::load_elsewhere && result) add_elsewhere(sequence, false);
    return result;
  }

 private:
  // Other words, as many as there are.
  void replace(SequenceId sequence) {
    const Held held = fake().held(sequence);
    if (!held.whole || held.end == 0) return;
    (void)fake().clear(sequence);
    (void)fake().compute(sequence, std::vector<Token>(held.end, 999'999));
  }
  void add_elsewhere(SequenceId sequence, bool to_empty_ones) {
    for (uint32_t s = 0; s < traits().sequences; ++s) {
      const bool empty = fake().held(SequenceId{s}) == Held{};
      if (s == to_index(sequence) || empty != to_empty_ones) continue;
      (void)fake().compute(SequenceId{s}, std::vector<Token>{999'999});
    }
  }

  const Plant plant_;
  std::vector<bool> hidden_;
};

}  // namespace

EngineFactory planted(Plant plant) {
  return [plant](const FakeSequences::Options& options) -> std::unique_ptr<ScheduleEngine> {
    if (plant == Plant::none) return std::make_unique<ScheduleEngine>(options);
    return std::make_unique<PlantedEngine>(options, plant);
  };
}

}  // namespace stemma::schedules
