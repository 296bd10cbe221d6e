// The contract of engines with opaque sequences, kept by the fakes.
#include "contract/sequence_engine_suite.h"

namespace stemma::test {
namespace {

class FakeRig final : public Rig {
 public:
  explicit FakeRig(const FakeSequences::Options& options) : fake_(options) {}
  SequenceEngine& engine() override { return fake_; }
  Result<void> compute(SequenceId sequence, std::span<const Token> words) override {
    return fake_.compute(sequence, words);
  }
  std::string right(SequenceId sequence, std::span<const Token> words) override {
    return fake_.right(sequence, words);
  }
  bool fail_next(Call call, Fault fault) override {
    fake_.faults.next(call, fault);
    return true;
  }

 private:
  FakeSequences fake_;
};

EngineCase fake(const std::string& name, const FakeSequences::Options& options) {
  return {name, [options] { return std::make_unique<FakeRig>(options); }};
}

TEST(CanResume, IsTheRuleOfEachRewind) {
  const auto at = [](Rewind rewind, Held held) {
    std::vector<uint32_t> depths;
    for (uint32_t n = 0; n <= 12; ++n) {
      if (can_resume({.rewind = rewind, .rewind_tokens = 4}, held, n)) depths.push_back(n);
    }
    return depths;
  };
  using Depths = std::vector<uint32_t>;
  EXPECT_EQ(at(Rewind::any, {0, 5}), (Depths{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(at(Rewind::window, {0, 5}), (Depths{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(at(Rewind::window, {5, 10}), (Depths{0, 9, 10}));
  EXPECT_EQ(at(Rewind::window, {7, 10}), (Depths{0}));
  EXPECT_EQ(at(Rewind::bounded, {7, 10}), (Depths{0, 8, 9, 10}));
  EXPECT_EQ(at(Rewind::exact, {9, 10}), (Depths{0, 10}));
  for (const Rewind rewind : {Rewind::any, Rewind::window, Rewind::bounded, Rewind::exact}) {
    EXPECT_EQ(at(rewind, {}), (Depths{0}));
  }
}

using Options = FakeSequences::Options;

INSTANTIATE_TEST_SUITE_P(
    Fakes, SequenceEngineContract,
    ::testing::Values(
        fake("full", Options{.shift = true}), fake("full_ranges", Options{.range_tokens = 48}),
        fake("window_ranges",
             Options{.rewind = Rewind::window, .checkpoints = true, .range_tokens = 48}),
        fake("full_split", Options{.unified = false, .fork = Fork::copy, .segments = false}),
        fake("full_split_segments", Options{.unified = false, .fork = Fork::copy}),
        fake("full_restore", Options{.fork = Fork::restore, .segments = false, .shift = true}),
        fake("full_none", Options{.fork = Fork::none, .segments = false}),
        fake("window", Options{.rewind = Rewind::window, .checkpoints = true}),
        fake("window_shift", Options{.unified = false,
                                     .rewind = Rewind::window,
                                     .fork = Fork::restore,
                                     .checkpoints = true,
                                     .shift = true}),
        fake("window_states", Options{.rewind = Rewind::window, .segments = false}),
        fake("window_no_checkpoints", Options{.rewind = Rewind::window}),
        fake("window_split", Options{.unified = false,
                                     .rewind = Rewind::window,
                                     .fork = Fork::copy,
                                     .segments = false,
                                     .checkpoints = true}),
        fake("window_tight", Options{.rewind = Rewind::window,
                                     .rewind_tokens = 5,
                                     .checkpoints = true,
                                     .window_slack_tokens = 0}),
        fake("hybrid", Options{.rewind = Rewind::exact, .checkpoints = true}),
        fake("hybrid_states", Options{.rewind = Rewind::exact, .segments = false}),
        fake("hybrid_bounded",
             Options{.rewind = Rewind::bounded, .rewind_tokens = 4, .checkpoints = true}),
        fake("recurrent",
             Options{.rewind = Rewind::exact, .segments = false, .full_attention = false}),
        fake("recurrent_checkpoints", Options{.rewind = Rewind::exact,
                                              .fork = Fork::restore,
                                              .segments = false,
                                              .checkpoints = true,
                                              .full_attention = false}),
        fake("recurrent_bounded", Options{.rewind = Rewind::bounded,
                                          .rewind_tokens = 4,
                                          .fork = Fork::none,
                                          .segments = false,
                                          .full_attention = false})),
    [](const auto& engine) { return engine.param.name; });

}  // namespace
}  // namespace stemma::test
