// Probes the chat template of the models in models/ for the format of its calls.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "dialect/probe.h"

namespace stemma::dialect {
namespace {

TEST(OwnTemplate, ItsFormatIsFound) {
  std::ifstream file(STEMMA_MODELS_DIR "/train/chat.jinja", std::ios::binary);
  ASSERT_TRUE(file) << "there is no " STEMMA_MODELS_DIR "/train/chat.jinja";
  std::ostringstream source;
  source << file.rdbuf();
  const auto parsed = jinja::Template::parse(source.str());
  const auto* chat = std::get_if<jinja::Template>(&parsed);
  ASSERT_NE(chat, nullptr);
  const Format format = probe(*chat, source.str());
  EXPECT_EQ(format.source, "difference");
  EXPECT_TRUE(format.lists_tools);
  EXPECT_EQ(format.calls.shape, CallShape::json);
  EXPECT_EQ(format.calls.name_key, "name");
  EXPECT_EQ(format.calls.arguments_key, "arguments");
  EXPECT_TRUE(format.calls.parallel);
  EXPECT_NE(format.calls.call_open.find("<tool_call>"), std::string::npos);
  EXPECT_NE(format.calls.call_close.find("</tool_call>"), std::string::npos);
  EXPECT_EQ(format.history.results, ResultsAs::tool_messages);
  EXPECT_TRUE(format.history.renders_calls);
}

}  // namespace
}  // namespace stemma::dialect
