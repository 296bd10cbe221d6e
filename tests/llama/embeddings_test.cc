// Vectors of texts, on models of every kind: the same however a text is cut into batches, those of
// llama.cpp's own pooling, and apart from the sequences of the cache.
#include <llama.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "llama/llama_rig.h"

namespace stemma::test::llama_embeddings_test {
namespace {

LlamaOptions with_embeddings(Architecture architecture, const std::string& pooling) {
  LlamaOptions options = options_for(architecture);
  options.embeddings = pooling;
  options.context_tokens = 512;
  options.batch_tokens = 64;
  // Its sums are made in half precision and depend on how a text is cut.
  options.flash_attention = false;
  return options;
}

std::vector<Token> some_text(uint32_t count, uint32_t seed) {
  std::vector<Token> tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back('a' + (i * 7 + i * i * seed) % 26);
  return tokens;
}

double distance(std::span<const float> one, std::span<const float> other) {
  double sum = 0.0;
  for (size_t i = 0; i < one.size(); ++i) {
    sum += (double{one[i]} - other[i]) * (double{one[i]} - other[i]);
  }
  return std::sqrt(sum);
}

// The vector that llama.cpp joins itself, of a text that is one batch.
std::vector<float> judge(Architecture architecture, enum llama_pooling_type pooling,
                         std::span<const Token> text) {
  const std::unique_ptr<llama_model, void (*)(llama_model*)> model(
      llama_model_load_from_file(model_file(architecture).c_str(), llama_model_default_params()),
      llama_model_free);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 512;
  params.embeddings = true;
  params.pooling_type = pooling;
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const std::unique_ptr<llama_context, void (*)(llama_context*)> context(
      llama_init_from_model(model.get(), params), llama_free);
  std::vector<llama_token> tokens(text.begin(), text.end());
  EXPECT_EQ(llama_decode(context.get(),
                         llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))),
            0);
  const float* const raw = llama_get_embeddings_seq(context.get(), 0);
  std::vector<float> vector(raw, raw + llama_model_n_embd_out(model.get()));
  double squares = 0.0;
  for (const float each : vector) squares += double{each} * each;
  for (float& each : vector) each = static_cast<float>(each / std::sqrt(squares));
  return vector;
}

TEST(LlamaEmbeddings, AreLlamaCppsOwnHoweverATextIsCut) {
  for (const Architecture architecture : kArchitectures) {
    for (const auto& [name, pooling] :
         {std::pair("mean", LLAMA_POOLING_TYPE_MEAN), std::pair("last", LLAMA_POOLING_TYPE_LAST)}) {
      const std::unique_ptr<LlamaModel> model = load_model(with_embeddings(architecture, name));
      EXPECT_EQ(model->info().embedding_width, 64U);
      // One batch, exactly one, and several.
      for (const uint32_t count : {1U, 5U, 64U, 65U, 300U}) {
        const std::vector<Token> text = some_text(count, 3);
        const std::vector<float> vector = *model->embed(text);
        EXPECT_LT(distance(vector, judge(architecture, pooling, text)), 2e-3)
            << name << " " << count;
        EXPECT_NEAR(distance(vector, std::vector<float>(vector.size())), 1.0, 1e-5);
        EXPECT_EQ(vector, *model->embed(text));
        EXPECT_GT(distance(vector, *model->embed(some_text(count, 4))), count == 1 ? -1.0 : 1e-3);
      }
    }
  }
}

TEST(LlamaEmbeddings, LeaveTheSequencesAlone) {
  for (const Architecture architecture : kArchitectures) {
    const std::vector<Token> text = some_text(40, 5);
    const std::vector<Token> rest = some_text(10, 6);
    const std::unique_ptr<LlamaModel> alone = load_model(options_for(architecture));
    const std::unique_ptr<LlamaModel> model = load_model([&] {
      LlamaOptions options = options_for(architecture);
      options.embeddings = "on";
      return options;
    }());
    for (const auto* each : {&alone, &model}) {
      ASSERT_TRUE(compute(**each, SequenceId{0}, text));
    }
    ASSERT_TRUE(model->embed(some_text(100, 7)));
    EXPECT_EQ(*compute(*model, SequenceId{0}, rest), *compute(*alone, SequenceId{0}, rest));
  }
}

TEST(LlamaEmbeddings, WhatCannotBeIsSaid) {
  const std::unique_ptr<LlamaModel> model =
      load_model(with_embeddings(Architecture::llama, "mean"));
  EXPECT_EQ(model->embed({}).error().code(), Errc::invalid_argument);
  EXPECT_EQ(model->embed(std::vector<Token>{0xFFFF}).error().code(), Errc::invalid_argument);
  const uint32_t most = model->info().embedding_tokens;
  EXPECT_TRUE(model->embed(some_text(most, 1)));
  const auto longer = model->embed(some_text(most + 1, 1));
  EXPECT_EQ(longer.error().code(), Errc::out_of_range);
  EXPECT_EQ(longer.error().value(), most);
  const std::unique_ptr<LlamaModel> plain = load_model(options_for(Architecture::llama));
  EXPECT_EQ(plain->info().embedding_width, 0U);
  EXPECT_EQ(plain->embed(some_text(3, 1)).error().code(), Errc::unsupported);
  LlamaOptions wrong = with_embeddings(Architecture::llama, "middle");
  std::string why;
  EXPECT_EQ(LlamaModel::load(wrong, why), nullptr);
  EXPECT_NE(why.find("mean or last"), std::string::npos) << why;
}

}  // namespace
}  // namespace stemma::test::llama_embeddings_test
