// What clients and operators see while a model loads.
#include "server/front_door.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "support/server_rig.h"

namespace stemma::server {
namespace {

TEST(FrontDoor, AnswersWhileLoadingAreLoggedAndCounted) {
  std::mutex mutex;
  std::vector<std::string> lines;
  const auto logged = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    return std::ranges::count_if(lines, [&](const std::string& line) {
      return line.find(text) != std::string::npos && line.find("status=503") != std::string::npos;
    });
  };
  test::ServerRig rig;
  FrontDoor door;
  HttpOptions options;
  options.log = [](std::string_view) {};
  door.connect(options, [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  });
  std::string why;
  auto http = HttpServer::create(
      options,
      [&](HttpRequest request, std::shared_ptr<HttpReply> reply) {
        door.handle(std::move(request), std::move(reply));
      },
      &why);
  ASSERT_TRUE(http) << why;
  ASSERT_TRUE((*http)->start());
  const auto client = [&] { return test::HttpClient((*http)->port()); };
  EXPECT_EQ(client().get("/health").status, 200);
  EXPECT_EQ(client().get("/ready").status, 503);
  EXPECT_EQ(client().get("/v1/models").status, 503);
  EXPECT_EQ(client().post("/v1/completions", R"({"prompt":"a"})").status, 503);
  EXPECT_EQ(client().get("/nowhere").status, 503);
  EXPECT_TRUE(test::becomes_true([&] { return logged("") == 3; }));
  EXPECT_EQ(logged("path=/v1/completions method=POST"), 1);
  EXPECT_EQ(logged("path=/ready"), 0) << "probes come every few seconds";

  door.open(*rig.app);
  EXPECT_EQ(client().get("/v1/models").status, 200);
  const std::string metrics = client().get("/metrics").body;
  for (const char* line : {R"(stemma_http_responses_total{route="/v1/models",status="503"} 1)",
                           R"(stemma_http_responses_total{route="/v1/models",status="200"} 1)",
                           R"(stemma_http_responses_total{route="/v1/completions",status="503"} 1)",
                           R"(stemma_http_responses_total{route="/ready",status="503"} 1)",
                           R"(stemma_http_responses_total{route="other",status="503"} 1)"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line;
  }
  (*http)->stop();
}

}  // namespace
}  // namespace stemma::server
