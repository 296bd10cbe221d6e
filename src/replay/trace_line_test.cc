#include "replay/trace_line.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma::replay {
namespace {

TraceLine good(std::string_view text) {
  TraceLine line;
  EXPECT_EQ(parse_trace_line(text, line), "") << text;
  return line;
}

std::string problem(std::string_view text) {
  TraceLine line;
  return parse_trace_line(text, line);
}

TEST(TraceLine, HasWhatMooncakeWrites) {
  const TraceLine line = good(
      R"({"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]})");
  EXPECT_EQ(line.timestamp_ns, 27'482'000'000U);
  EXPECT_EQ(line.input_length, 6955U);
  EXPECT_EQ(line.output_length, 52U);
  EXPECT_EQ(line.ids, (std::vector<uint64_t>{46, 47, 2353}));
  EXPECT_FALSE(line.has(TraceLine::kSessionId));
}

TEST(TraceLine, HasTheOptionalFields) {
  const TraceLine line =
      good(R"({"session_id":"s\"1","turn":3,"finish_reason":"tool_use","subagent":true})");
  EXPECT_EQ(line.session_id, R"(s\"1)");
  EXPECT_EQ(line.turn, 3U);
  EXPECT_EQ(line.finish_reason, "tool_use");
  EXPECT_TRUE(line.subagent);
  EXPECT_EQ(good(R"({"session_id":17})").session_id, "17");
}

TEST(TraceLine, PassesOverWhatItDoesNotKnow) {
  const TraceLine line = good(
      R"( { "a":{"b":[1,{"timestamp":9},"]}"],"c":-1.5e3} , "turn":null, "d":[], "e":{}, "f":true,)"
      R"("timestamp":1.25} )");
  EXPECT_EQ(line.fields, TraceLine::kTimestamp);
  EXPECT_EQ(line.timestamp_ns, 1'250'000U);
}

TEST(TraceLine, IdsMayHave64Bits) {
  EXPECT_EQ(good(R"({"hash_ids":[18446744073709551615]})").ids.front(), ~uint64_t{0});
  EXPECT_EQ(problem(R"({"hash_ids":[18446744073709551616]})"),
            "'hash_ids' is not a list of whole numbers of at most 64 bits");
}

TEST(TraceLine, SaysWhatIsWrong) {
  EXPECT_EQ(problem(""), "is no JSON object");
  EXPECT_EQ(problem("[1]"), "is no JSON object");
  EXPECT_EQ(problem(R"({"timestamp":1}{)"), "something follows the object");
  EXPECT_EQ(problem(R"({"timestamp":1 "turn":2})"), "',' or '}' is missing behind a value");
  EXPECT_EQ(problem(R"({"timestamp":1,})"), "a field's name is missing");
  EXPECT_EQ(problem(R"({"timestamp" 1})"), "':' is missing behind a field's name");
  EXPECT_EQ(problem(R"({"timestamp":1,"timestamp":1})"), "'timestamp' is there twice");
  EXPECT_EQ(problem(R"({"timestamp":-1})"),
            "'timestamp' is not a time in milliseconds, from 0 to 1e13");
  EXPECT_EQ(problem(R"({"timestamp":"1"})"),
            "'timestamp' is not a time in milliseconds, from 0 to 1e13");
  EXPECT_EQ(problem(R"({"input_length":1.5})"),
            "'input_length' is not a whole number of at most 64 bits");
  EXPECT_EQ(problem(R"({"hash_ids":[1,-2]})"),
            "'hash_ids' is not a list of whole numbers of at most 64 bits");
  EXPECT_EQ(problem(R"({"subagent":1})"), "'subagent' is not true or false");
  EXPECT_EQ(problem(R"({"finish_reason":7})"), "'finish_reason' is not a string");
  EXPECT_EQ(problem(R"({"session_id":[]})"), "'session_id' is not a string or a whole number");
  EXPECT_EQ(problem(R"({"else":nothing})"), "the value of 'else' is no JSON");
  EXPECT_NE(problem(std::string(R"({"else":)") + std::string(1000, '[')), "");
}

TEST(TraceLine, EveryCutIsNoticed) {
  const std::string whole =
      R"({"timestamp":12,"else":{"a":[true,"x\\"]},"input_length":600,"session_id":"s","hash_ids":[1,2]})";
  ASSERT_EQ(problem(whole), "");
  for (size_t n = 1; n < whole.size(); ++n) {
    EXPECT_NE(problem(whole.substr(0, n)), "") << whole.substr(0, n);
  }
  EXPECT_EQ(problem(whole.substr(0, whole.size() - 4)), "ends in the middle");
}

}  // namespace
}  // namespace stemma::replay
