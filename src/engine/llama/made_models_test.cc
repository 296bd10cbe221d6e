// The models that stemma::gguf makes, as llama.cpp sees them.
#include <dlfcn.h>
#include <ggml-backend.h>
#include <gtest/gtest.h>
#include <llama.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/gguf/byte_vocabulary.h"
#include "engine/gguf/make_model.h"
#include "engine/paged/random.h"
#include "support/cpu_time.h"

namespace stemma::gguf {
namespace {

using Tokens = std::vector<llama_token>;
using Logits = std::vector<float>;

struct FreeModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};

void load_backends() {
  static const bool done = [] {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    // The plugins lie beside the library.
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(&llama_model_load_from_file), &info) != 0) {
      const auto folder = std::filesystem::path(info.dli_fname).parent_path();
      ggml_backend_load_all_from_path(folder.c_str());
    }
    return true;
  }();
  static_cast<void>(done);
}

// A made model of a shape, loaded, with a context of one sequence.
class Made {
 public:
  explicit Made(const ModelShape& shape, uint32_t context_tokens = 1024) {
    load_backends();
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("stemma-made-" + std::to_string(getpid()) + "-" + std::to_string(count++) + ".gguf");
    write_model(shape, path_).value();
    model_.reset(llama_model_load_from_file(path_.c_str(), llama_model_default_params()));
    if (!model_) return;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = context_tokens;
    params.n_threads = 1;
    params.n_threads_batch = 1;
    // Its sums are made in half precision and depend on how a prompt is cut.
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    context_.reset(llama_init_from_model(model_.get(), params));
  }
  ~Made() { std::filesystem::remove(path_); }

  const llama_model* model() const { return model_.get(); }
  const llama_vocab* vocab() const { return llama_model_get_vocab(model_.get()); }
  bool works() const { return context_ != nullptr; }

  // Tokens at `from` and behind it; the logits after each of them.
  std::vector<Logits> decode(const Tokens& tokens, uint32_t from) {
    std::vector<Logits> out;
    llama_batch batch = llama_batch_init(512, 0, 1);
    for (size_t at = 0; at < tokens.size(); at += 512) {
      batch.n_tokens = static_cast<int32_t>(std::min<size_t>(512, tokens.size() - at));
      for (int32_t i = 0; i < batch.n_tokens; ++i) {
        batch.token[i] = tokens[at + static_cast<size_t>(i)];
        batch.pos[i] = static_cast<llama_pos>(from + at) + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
      }
      EXPECT_EQ(llama_decode(context_.get(), batch), 0);
      for (int32_t i = 0; i < batch.n_tokens; ++i) {
        const float* logits = llama_get_logits_ith(context_.get(), i);
        out.emplace_back(logits, logits + kVocabulary);
      }
    }
    llama_batch_free(batch);
    return out;
  }
  std::vector<Logits> fresh(const Tokens& tokens) {
    llama_memory_clear(llama_get_memory(context_.get()), true);
    return decode(tokens, 0);
  }

  Tokens tokenize(const std::string& text, bool special) const {
    Tokens tokens(text.size() + 8);
    const int32_t count = llama_tokenize(vocab(), text.data(), static_cast<int32_t>(text.size()),
                                         tokens.data(), static_cast<int32_t>(tokens.size()),
                                         /*add_special=*/true, special);
    EXPECT_GE(count, 0);
    tokens.resize(static_cast<size_t>(std::max(count, 0)));
    return tokens;
  }
  std::string text(const Tokens& tokens, bool special = false) const {
    std::string out;
    for (const llama_token token : tokens) {
      char piece[32];
      const int32_t size = llama_token_to_piece(vocab(), token, piece, sizeof piece, 0, special);
      EXPECT_GE(size, 0);
      out.append(piece, static_cast<size_t>(std::max(size, 0)));
    }
    return out;
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<llama_model, FreeModel> model_;
  std::unique_ptr<llama_context, FreeContext> context_;
};

ModelShape small(Architecture architecture) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.window = 32;
  return shape;
}

Tokens some_text(uint64_t seed, size_t count) {
  paged::Random random(seed);
  Tokens tokens(count);
  for (llama_token& token : tokens) {
    token = random.chance(15) ? ' ' : static_cast<llama_token>('a' + random.below(26));
  }
  return tokens;
}

llama_token best_of(const Logits& logits) {
  return static_cast<llama_token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float gap_of(Logits logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return *std::max_element(logits.begin(), logits.begin() + 1) - logits[1];
}

float distance(const Logits& a, const Logits& b) {
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

class MadeModels : public testing::TestWithParam<Architecture> {};
INSTANTIATE_TEST_SUITE_P(All, MadeModels,
                         testing::Values(Architecture::llama, Architecture::window,
                                         Architecture::recurrent, Architecture::hybrid),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(MadeModels, AreOfTheirKind) {
  for (const TensorType type : {TensorType::f32, TensorType::f16}) {
    ModelShape shape = small(GetParam());
    shape.type = type;
    Made made(shape);
    ASSERT_TRUE(made.works());
    EXPECT_EQ(llama_model_is_recurrent(made.model()), GetParam() == Architecture::recurrent);
    EXPECT_EQ(llama_model_is_hybrid(made.model()), GetParam() == Architecture::hybrid);
    EXPECT_EQ(llama_model_n_swa(made.model()), GetParam() == Architecture::window ? 32 : 0);
    EXPECT_EQ(llama_model_n_ctx_train(made.model()), 8192);
    EXPECT_EQ(llama_model_n_layer(made.model()), 4);
    EXPECT_EQ(llama_model_n_params(made.model()), size_of(shape).value().parameters);
    EXPECT_EQ(llama_vocab_n_tokens(made.vocab()), static_cast<int32_t>(kVocabulary));
    const char* chat = llama_model_chat_template(made.model(), nullptr);
    ASSERT_NE(chat, nullptr);
    EXPECT_EQ(chat, chat_template());
    for (const Logits& logits : made.fresh(some_text(1, 20))) {
      for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
    }
  }
}

TEST_P(MadeModels, AnyBytesComeBackOneTokenEach) {
  Made made(small(GetParam()));
  ASSERT_TRUE(made.works());
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<char>(byte));
    EXPECT_EQ(made.tokenize({static_cast<char>(byte)}, false), Tokens{byte});
  }
  std::vector<std::string> texts = {all,
                                    "",
                                    "  two  spaces ",
                                    "\xE2\x96\x81",
                                    "na\xC3\xAFve \xF0\x9F\x8C\xB3",
                                    "\xFF\xFE\x80",
                                    "\\x41\\n",
                                    "<|im_",
                                    "<|im_end|",
                                    "<<|bos"};
  paged::Random random(5);
  for (int i = 0; i < 200; ++i) {
    std::string text(random.below(300), '\0');
    for (char& c : text) c = static_cast<char>(random.below(256));
    texts.push_back(std::move(text));
  }
  for (const std::string& text : texts) {
    for (const bool special : {false, true}) {
      const Tokens tokens = made.tokenize(text, special);
      EXPECT_EQ(tokens.size(), text.size());
      EXPECT_EQ(made.text(tokens), text);
    }
  }
}

TEST(MadeVocabulary, LongTextsTakeLinearTime) {
  Made made(small(Architecture::llama));
  ASSERT_TRUE(made.works());
  const auto seconds = [&](size_t size) {
    std::string text(size, '\0');
    paged::Random random(size);
    for (char& c : text) c = static_cast<char>(random.chance(20) ? '<' : random.below(256));
    const uint64_t begin = test::cpu_ns();
    EXPECT_EQ(made.tokenize(text, true).size(), size);
    return static_cast<double>(test::cpu_ns() - begin) / 1e9;
  };
  seconds(1 << 16);
  EXPECT_LT(seconds(1 << 20), 5.0);  // Takes 0.1 s; quadratic would be minutes.
}

TEST(MadeVocabulary, SpecialTokensAreSpecialOnlyWhenParsed) {
  Made made(small(Architecture::llama));
  ASSERT_TRUE(made.works());
  const std::string text = "<|bos|><|im_start|>user\nhi<|im_end|>\n<|eos|><|pad|>";
  const Tokens parsed = made.tokenize(text, true);
  EXPECT_EQ(parsed,
            (Tokens{kBos, kImStart, 'u', 's', 'e', 'r', '\n', 'h', 'i', kImEnd, '\n', kEos, kPad}));
  EXPECT_EQ(made.text(parsed, true), text);
  EXPECT_EQ(made.text(parsed, false), "user\nhi\n");
  const Tokens plain = made.tokenize(text, false);
  EXPECT_EQ(made.text(plain), text);
  for (const llama_token token : plain) {
    EXPECT_FALSE(llama_vocab_is_control(made.vocab(), token)) << token;
    EXPECT_FALSE(llama_vocab_is_eog(made.vocab(), token)) << token;
  }
  for (uint32_t token = 0; token < kVocabulary; ++token) {
    const auto id = static_cast<llama_token>(token);
    EXPECT_EQ(llama_vocab_is_eog(made.vocab(), id), token == kEos || token == kImEnd) << token;
    EXPECT_EQ(llama_vocab_is_control(made.vocab(), id), token >= kBos && token < kFirstMention);
  }
  EXPECT_EQ(llama_vocab_bos(made.vocab()), static_cast<llama_token>(kBos));
  EXPECT_EQ(llama_vocab_eos(made.vocab()), static_cast<llama_token>(kEos));
  EXPECT_EQ(llama_vocab_eot(made.vocab()), static_cast<llama_token>(kImEnd));
  EXPECT_EQ(llama_vocab_pad(made.vocab()), static_cast<llama_token>(kPad));
  EXPECT_FALSE(llama_vocab_get_add_bos(made.vocab()));
}

TEST_P(MadeModels, HearTheWholeContext) {
  Made made(small(GetParam()), 2048);
  ASSERT_TRUE(made.works());
  Tokens text = some_text(3, 1500);
  const Logits before = made.fresh(text).back();
  for (size_t i = 0; i < 100; ++i) text[i] = 'a' + (text[i] + 9) % 26;
  EXPECT_GT(distance(before, made.fresh(text).back()), 0.1F);
}

TEST_P(MadeModels, AreCalmAtTheEndOfTheContext) {
  ModelShape shape = small(GetParam());
  shape.layers = 2;
  shape.dim = 64;
  Made made(shape, 8192);
  ASSERT_TRUE(made.works());
  float largest = 0;
  for (const Logits& logits : made.fresh(some_text(4, 8192))) {
    for (const float logit : logits) {
      ASSERT_TRUE(std::isfinite(logit));
      largest = std::max(largest, std::abs(logit));
    }
  }
  EXPECT_LT(largest, 2000.0F);
}

TEST_P(MadeModels, SpeakInTextWithoutNearTies) {
  Made made(small(GetParam()), 1024);
  ASSERT_TRUE(made.works());
  uint32_t steps = 0;
  uint32_t close = 0;
  uint32_t ends = 0;
  uint32_t text_bytes = 0;
  uint32_t turns = 0;  // Tokens unlike the one two before.
  for (uint64_t prompt = 0; prompt < 10; ++prompt) {
    Tokens said = some_text(100 + prompt, 50);
    Logits logits = made.fresh(said).back();
    for (int i = 0; i < 200; ++i) {
      ++steps;
      close += gap_of(logits) < 5e-3F ? 1 : 0;
      const llama_token best = best_of(logits);
      if (llama_vocab_is_eog(made.vocab(), best)) {
        ++ends;
        break;
      }
      text_bytes += best == '\n' || (best >= 0x20 && best < 0x7F) ? 1 : 0;
      turns += best != said[said.size() - 2] ? 1 : 0;
      said.push_back(best);
      logits = made.decode({best}, static_cast<uint32_t>(said.size() - 1)).front();
    }
  }
  EXPECT_LE(close, 4U) << steps;  // 0.05 % would be one.
  EXPECT_EQ(text_bytes + ends, steps);
  EXPECT_GT(steps, 400U);
  EXPECT_GT(turns, steps / 3) << "it says one thing over and over";
}

TEST_P(MadeModels, SayTheSameHoweverAPromptIsCut) {
  Made made(small(GetParam()), 1024);
  ASSERT_TRUE(made.works());
  const Tokens text = some_text(6, 300);
  const Logits whole = made.fresh(text).back();
  made.fresh(Tokens(text.begin(), text.begin() + 97));
  const Logits cut = made.decode(Tokens(text.begin() + 97, text.end()), 97).back();
  EXPECT_LT(distance(whole, cut), 0.2F);  // Of logits whose deviation is 40.
}

TEST(MadeModelsOfSize, LoadForBenchmarks) {
  ModelShape shape;
  shape.layers = 12;
  shape.dim = 768;
  shape.heads = 12;
  shape.kv_heads = 4;
  shape.type = TensorType::f16;
  Made made(shape, 256);
  ASSERT_TRUE(made.works());
  const auto logits = made.fresh(some_text(7, 64));
  for (const float logit : logits.back()) ASSERT_TRUE(std::isfinite(logit));
}

}  // namespace
}  // namespace stemma::gguf
