// Tests /v1/embeddings over a whole server.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/server_rig.h"

namespace stemma::test::app_embeddings_test {
namespace {

constexpr const char* kEmbeddings = "/v1/embeddings";

TEST(Embeddings, AreThoseOfEachInputAndCounted) {
  ServerRig rig;
  rig.model.change_info().embedding_width = 8;
  rig.model.change_info().embedding_tokens = 16;
  const std::vector<std::string> inputs = {"abc", "b", "<|im_end|>"};
  const HttpAnswer answer = rig.post(kEmbeddings, {{"input", inputs}, {"user", "u"}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.header("x-stemma-ignored"), "user");
  const Json body = json(answer);
  ASSERT_EQ(body["data"].size(), 3U);
  uint64_t tokens = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    // A user's text is no special token.
    const std::vector<Token> text = *rig.model.tokenize(inputs[i], true, false);
    EXPECT_EQ(body["data"][i]["embedding"].get<std::vector<float>>(), *rig.model.embed(text)) << i;
    EXPECT_EQ(body["data"][i]["index"], i);
    tokens += text.size();
  }
  EXPECT_EQ(body["usage"]["total_tokens"], tokens);
  // The scheduler has nothing to do with it.
  EXPECT_EQ(rig.scheduler->stats().requests, 0U);
  EXPECT_EQ(json(rig.post(kEmbeddings, {{"input", {256, 97}}}))["usage"]["prompt_tokens"], 2);
}

TEST(Embeddings, OneWrongInputIsNamedBeforeAnyIsComputed) {
  ServerRig rig;
  rig.model.change_info().embedding_width = 8;
  rig.model.change_info().embedding_tokens = 16;
  EXPECT_EQ(error_code(rig.post(kEmbeddings, {{"input", {"a", letters(17, 1)}}}), 400),
            "context_length_exceeded");
  EXPECT_EQ(rig.post(kEmbeddings, {{"input", Json::array({Json::array({5, 99999})})}}).status, 400);
  EXPECT_EQ(error_code(rig.post(kEmbeddings, {{"input", "a"}, {"model", "gpt"}}), 404),
            "model_not_found");
}

TEST(Embeddings, AServerWithoutThemSaysHowToGetThem) {
  ServerRig rig;
  const HttpAnswer answer = rig.post(kEmbeddings, {{"input", "a"}});
  EXPECT_EQ(error_code(answer, 400), "embeddings_disabled");
  EXPECT_NE(answer.body.find("--embeddings"), std::string::npos) << answer.body;
}

TEST(Embeddings, AnAnswerThatWouldBeTooLargeIsRefused) {
  ServerRigOptions options;
  options.app.answer_bytes = 4096;
  ServerRig rig(options);
  rig.model.change_info().embedding_width = 256;
  rig.model.change_info().embedding_tokens = 16;
  const std::vector<std::string> inputs(20, "abc");
  EXPECT_EQ(error_code(rig.post(kEmbeddings, {{"input", inputs}}), 400), "answer_too_large");
}

}  // namespace
}  // namespace stemma::test::app_embeddings_test
