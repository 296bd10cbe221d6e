// The contract of engines with opaque sequences, kept by llama.cpp.
#include "contract/sequence_engine_suite.h"
#include "llama/llama_rig.h"

namespace stemma::test {
namespace {

// What counts as the same logits, in units of their spread. Wrong contents are off by 0.1 and more.
constexpr double kNoise = 0.02;

class LlamaRig final : public Rig {
 public:
  explicit LlamaRig(const LlamaOptions& options)
      : model_(load_model(options)), judge_(load_model(roomier(options))) {}

  SequenceEngine& engine() override { return model_->sequences(); }

  bool slow() const override { return true; }

  Result<void> compute(SequenceId sequence, std::span<const Token> words) override {
    STEMMA_TRY_VOID(test::compute(*model_, sequence, in_vocabulary(words)));
    return {};
  }

  // What is held is moved to a second context, as a state, and goes on there beside the same words
  // computed anew.
  std::string right(SequenceId sequence, std::span<const Token> words) override {
    constexpr SequenceId kMoved{0};
    constexpr SequenceId kAnew{1};
    SequenceEngine& judge = judge_->sequences();
    judge.clear(kMoved).value();
    judge.clear(kAnew).value();
    if (words.empty()) return engine().held(sequence) == Held{} ? "" : "not empty";
    const Range all{0, static_cast<uint32_t>(words.size())};
    const Result<uint64_t> size = engine().size(sequence, Part::state, all);
    if (!size) return size.error().to_string();
    Bytes bytes(*size);
    if (const auto saved = engine().save(sequence, Part::state, all, bytes); !saved) {
      return saved.error().to_string();
    }
    if (const auto loaded = judge.load(kMoved, Part::state, all, all, bytes); !loaded) {
      return loaded.error().to_string();
    }
    std::vector<Token> text = in_vocabulary(words);
    text.push_back('?');
    const auto moved = test::compute(*judge_, kMoved, std::span(text).last(1));
    const auto anew = test::compute(*judge_, kAnew, text);
    if (!moved || !anew) return "cannot go on";
    const double apart = difference(*anew, *moved);
    return apart < kNoise ? "" : "logits are off by " + std::to_string(apart);
  }

 private:
  static LlamaOptions roomier(LlamaOptions options) {
    options.context_tokens = 2 * options.context_tokens + 256;
    return options;
  }

  std::unique_ptr<LlamaModel> model_;
  std::unique_ptr<LlamaModel> judge_;
};

EngineCase llama(const std::string& name, Architecture architecture,
                 const std::function<void(LlamaOptions&)>& change = {}) {
  return {name, [=]() -> std::unique_ptr<Rig> {
            LlamaOptions options = options_for(architecture);
            if (change) change(options);
            return std::make_unique<LlamaRig>(options);
          }};
}

void in_ranges(LlamaOptions& options) { options.range_tokens = 48; }

INSTANTIATE_TEST_SUITE_P(
    Llama, SequenceEngineContract,
    ::testing::Values(llama("full", Architecture::llama),
                      llama("full_ranges", Architecture::llama, in_ranges),
                      llama("full_ranges_no_flash", Architecture::llama,
                            [](LlamaOptions& options) {
                              in_ranges(options);
                              options.flash_attention = false;
                            }),
                      llama("window_ranges", Architecture::window, in_ranges),
                      llama("hybrid_ranges", Architecture::hybrid, in_ranges),
                      llama("full_no_flash", Architecture::llama,
                            [](LlamaOptions& options) { options.flash_attention = false; }),
                      llama("full_q8", Architecture::llama,
                            [](LlamaOptions& options) {
                              options.path = model_file(Architecture::llama, 1, 16, 128);
                              options.k_type = options.v_type = "q8_0";
                            }),
                      llama("full_split", Architecture::llama,
                            [](LlamaOptions& options) { options.unified = false; }),
                      llama("window", Architecture::window),
                      llama("window_no_flash", Architecture::window,
                            [](LlamaOptions& options) { options.flash_attention = false; }),
                      llama("window_split", Architecture::window,
                            [](LlamaOptions& options) { options.unified = false; }),
                      llama("recurrent", Architecture::recurrent),
                      llama("hybrid", Architecture::hybrid),
                      llama("hybrid_split", Architecture::hybrid,
                            [](LlamaOptions& options) { options.unified = false; })),
    [](const auto& engine) { return engine.param.name; });

}  // namespace
}  // namespace stemma::test
