#include "replay/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>

namespace stemma::replay {
namespace {

struct Loaded {
  Trace trace;
  LoadReport report;
  std::string problem;
};

Loaded load(std::string text, bool lenient = false, uint32_t block_tokens = 512) {
  Loaded loaded;
  const auto source = ByteSource::of(std::move(text));
  loaded.problem = load_trace(*source, {.lenient = lenient, .block_tokens = block_tokens},
                              loaded.trace, loaded.report);
  return loaded;
}

std::string line(uint64_t timestamp, uint64_t tokens, const std::string& ids) {
  return "{\"timestamp\":" + std::to_string(timestamp) +
         ",\"input_length\":" + std::to_string(tokens) + ",\"hash_ids\":[" + ids + "]}\n";
}

std::vector<Token> words(const Trace& trace, size_t request) {
  const auto blocks = trace.blocks_of(trace.requests[request]);
  return {blocks.begin(), blocks.end()};
}

TEST(TraceFile, IdsBecomeWordsInTheOrderOfAppearance) {
  const Loaded loaded =
      load(line(0, 1536, "700,18446744073709551615,5") + line(3, 1100, "700,9,6"));
  ASSERT_EQ(loaded.problem, "");
  const Trace& trace = loaded.trace;
  EXPECT_EQ(trace.requests.size(), 2U);
  EXPECT_EQ(trace.unique_blocks, 4U) << "the last block of the second is not whole";
  EXPECT_EQ(trace.block_refs, 5U);
  EXPECT_EQ(words(trace, 0), (std::vector<Token>{0, 1, 2}));
  EXPECT_EQ(words(trace, 1), (std::vector<Token>{0, 3}));
  EXPECT_EQ(trace.words[trace.requests[1].first_word + 2], Trace::kEndWord);
  EXPECT_EQ(trace.requests[1].time_ns, 3'000'000U);
  EXPECT_EQ(trace.requests[1].input_tokens, 1100U);
  EXPECT_EQ(trace.requests[1].session, 0U);
  EXPECT_EQ(trace.requests[1].output_tokens, TraceRequest::kUnknown);
}

TEST(TraceFile, OptionalFieldsAreKept) {
  const Loaded loaded = load(
      R"({"timestamp":0,"input_length":5,"hash_ids":[],"session_id":"a","turn":4,"finish_reason":"tool_use"})"
      "\n"
      R"({"timestamp":0,"input_length":5,"hash_ids":[1],"session_id":"b","output_length":9,"subagent":true})"
      "\n"
      R"({"timestamp":0,"input_length":5,"hash_ids":[1],"session_id":"a","finish_reason":"other"})");
  ASSERT_EQ(loaded.problem, "");
  const auto& requests = loaded.trace.requests;
  ASSERT_EQ(requests.size(), 3U) << "the last line needs no newline";
  EXPECT_EQ(loaded.trace.sessions, 2U);
  EXPECT_EQ(requests[0].session, requests[2].session);
  EXPECT_NE(requests[0].session, requests[1].session);
  EXPECT_EQ(requests[0].finish, FinishReason::tool_use);
  EXPECT_EQ(requests[0].turn, 4U);
  EXPECT_EQ(requests[1].output_tokens, 9U);
  EXPECT_TRUE(requests[1].subagent);
  EXPECT_EQ(requests[2].finish, FinishReason::unknown);
}

TEST(TraceFile, BadLinesAreNamedByTheirNumber) {
  const std::string good = line(10, 1024, "1,2");
  const auto second = [&](const std::string& bad) { return load(good + bad + good).problem; };
  EXPECT_EQ(second("{\"input_length\":1,\"hash_ids\":[]}\n"), "line 2: has no 'timestamp'");
  EXPECT_EQ(second("{\"timestamp\":10,\"hash_ids\":[]}\n"), "line 2: has no 'input_length'");
  EXPECT_EQ(second("{\"timestamp\":10,\"input_length\":1}\n"), "line 2: has no 'hash_ids'");
  EXPECT_EQ(second(line(9, 1024, "1,2")),
            "line 2: time goes back: 'timestamp' is less than before");
  EXPECT_EQ(second("hello\n"), "line 2: is no JSON object");
  EXPECT_EQ(second("{\"stemma_trace\":1,\"block_tokens\":4}\n"),
            "line 2: begins a trace of its own: two files in one?");
  EXPECT_EQ(second(line(10, 1024, "1")),
            "line 2: has too few: 1 ids for 1024 tokens in blocks of 512");
  EXPECT_EQ(second(line(10, 1024, "1,2,3,4")),
            "line 2: has too many: 4 ids for 1024 tokens in blocks of 512");
  EXPECT_EQ(load(good + good.substr(0, 20)).problem, "line 2: ends in the middle");
  EXPECT_EQ(load("\n\n" + good + "x\n").problem, "line 4: is no JSON object")
      << "empty lines count";
}

TEST(TraceFile, IdsThatContradictTheChainAreNamed) {
  const std::string good = line(0, 1536, "1,2,3");
  EXPECT_EQ(load(good + line(1, 1024, "1,3")).problem,
            "line 2: id 3 follows 1 here and follows 2 on line 1: an id stands for all before it");
  EXPECT_EQ(load(good + line(1, 512, "2")).problem,
            "line 2: id 2 is first here and follows 1 on line 1: an id stands for all before it");
  EXPECT_EQ(load(line(0, 1536, "7,8,7")).problem,
            "line 1: id 7 follows 8 here and is first on line 1: an id stands for all before it");
  EXPECT_EQ(load(good + line(1, 2048, "5,6,1,9")).problem,
            "line 2: id 1 follows 6 here and is first on line 1: an id stands for all before it");
}

TEST(TraceFile, LenientSkipsAndCounts) {
  const Loaded loaded = load(line(5, 1024, "1,2") + "junk\n" + line(4, 512, "1") +
                                 line(6, 2048, "1,8,9,8") + line(6, 1024, "8,9") + "{\"timesta",
                             true);
  EXPECT_EQ(loaded.problem, "");
  EXPECT_EQ(loaded.report.skipped, 4U);
  EXPECT_EQ(loaded.report.lines, 6U);
  ASSERT_EQ(loaded.report.first_problems.size(), 4U);
  EXPECT_EQ(loaded.report.first_problems[0], "line 2: is no JSON object");
  EXPECT_EQ(loaded.trace.requests.size(), 2U);
  EXPECT_EQ(loaded.trace.unique_blocks, 4U) << "what was skipped left no blocks behind";
  EXPECT_EQ(words(loaded.trace, 1), (std::vector<Token>{2, 3}));
  EXPECT_EQ(load("junk\n", true).problem, "no requests are in it; line 1: is no JSON object");
  EXPECT_EQ(load("").problem, "no requests are in it");
}

TEST(TraceFile, CapacityInPercentIsRoundedDown) {
  Trace trace;
  trace.unique_blocks = 170'899;
  EXPECT_EQ(trace.blocks_at_percent(0.5), 854U);
  EXPECT_EQ(trace.blocks_at_percent(40), 68'359U);
  EXPECT_EQ(trace.blocks_at_percent(100), 170'899U);
  trace.unique_blocks = 1000;
  EXPECT_EQ(trace.blocks_at_percent(0.3), 3U) << "not 2, for 0.3 being a little less";
}

// Random conversations that branch, through both formats.
Trace random_trace(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  std::vector<std::vector<uint64_t>> paths{{}};
  uint64_t now = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<uint64_t> path = paths[random() % paths.size()];
    path.resize(random() % (path.size() + 1));
    for (uint64_t more = random() % 6; more > 0; --more) path.push_back(random());
    std::string ids;
    for (const uint64_t id : path) ids += (ids.empty() ? "" : ",") + std::to_string(id);
    text += line(now += random() % 50, path.size() * 512 + random() % 512, ids);
    if (i % 3 == 0) {
      text.insert(text.size() - 2, ",\"session_id\":" + std::to_string(i % 7) +
                                       ",\"turn\":2,\"finish_reason\":\"end_turn\",\"subagent\":" +
                                       (i % 2 == 0 ? "true" : "false") + ",\"output_length\":70");
    }
    paths.push_back(path);
  }
  Loaded loaded = load(text);
  EXPECT_EQ(loaded.problem, "");
  return loaded.trace;
}

TEST(TraceFile, OurFormatSaysTheSame) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const Trace trace = random_trace(seed);
    const Loaded again = load(write_trace(trace));
    ASSERT_EQ(again.problem, "");
    EXPECT_EQ(again.trace.words, trace.words);
    EXPECT_EQ(again.trace.unique_blocks, trace.unique_blocks);
    EXPECT_EQ(again.trace.block_refs, trace.block_refs);
    ASSERT_EQ(again.trace.requests.size(), trace.requests.size());
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      const TraceRequest& a = trace.requests[i];
      const TraceRequest& b = again.trace.requests[i];
      EXPECT_EQ(a.time_ns, b.time_ns);
      EXPECT_EQ(a.input_tokens, b.input_tokens);
      EXPECT_EQ(a.output_tokens, b.output_tokens);
      EXPECT_EQ(a.session == 0, b.session == 0);
      EXPECT_EQ(a.turn, b.turn);
      EXPECT_EQ(a.finish, b.finish);
      EXPECT_EQ(a.subagent, b.subagent);
    }
  }
}

TEST(TraceFile, OurFormatIsChecked) {
  const std::string head = "{\"stemma_trace\":1,\"block_tokens\":16}\n";
  const auto request = [](const char* path, int tokens) {
    return "{\"timestamp\":0,\"input_length\":" + std::to_string(tokens) + ",\"path\":[" + path +
           "]}\n";
  };
  const std::string good = head + request("0,2", 35) + request("1,1", 32);
  const Loaded loaded = load(good + "{\"end\":2}\n");
  ASSERT_EQ(loaded.problem, "");
  EXPECT_EQ(loaded.trace.block_tokens, 16U);
  EXPECT_EQ(words(loaded.trace, 1), (std::vector<Token>{0, 2}));
  EXPECT_EQ(load(good).problem,
            "after line 3: the file has no last line with \"end\": it was cut off");
  EXPECT_EQ(load(good + "{\"end\":3}\n").problem,
            "line 4: ends a trace of 3 requests, and there were 2: some were lost");
  EXPECT_EQ(load(good + "{\"end\":2}\n" + request("0,1", 16)).problem,
            "line 5: comes after the line that ends the trace: two files in one?");
  EXPECT_EQ(load(head + request("4,0", 16)).problem,
            "line 2: path names block 4, and there are 0 so far");
  EXPECT_EQ(load(head + request("0,3", 35)).problem,
            "line 2: 'path' has another number of blocks than 'input_length' says");
  EXPECT_EQ(load(head + request("0", 35)).problem, "line 2: 'path' is not two numbers");
  EXPECT_EQ(load(head + line(0, 35, "1,2")).problem, "line 2: has no 'path'");
  EXPECT_EQ(load("{\"stemma_trace\":2,\"block_tokens\":16}\n").problem,
            "line 1: is of version 2 of the format; this build reads 1");
  EXPECT_EQ(load("{\"stemma_trace\":1}\n").problem,
            "line 1: \"block_tokens\" is missing, or not from 1 to 2147483647");
}

// Lines count the blocks of the lines before. Without one of them, no block must be taken for
// another.
TEST(TraceFile, LenientTakesNoBlockOfOurFormatForAnother) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Trace trace = random_trace(seed);
    for (uint32_t i = 0; i < trace.requests.size(); ++i) trace.requests[i].turn = i;
    const bool readable = seed % 2 == 0;
    std::vector<bool> broken(trace.requests.size());
    std::istringstream lines(write_trace(trace));
    std::string text;
    uint32_t number = 0;
    for (std::string one; std::getline(lines, one); ++number) {
      if (readable ? number % 90 == 20 : number == 200) {
        broken[number - 1] = true;
        one = readable ? "{\"timestamp\":0" + one.substr(one.find(',')) : one.substr(0, 30);
      }
      text += one + "\n";
    }
    const Loaded loaded = load(text, true);
    ASSERT_EQ(loaded.problem, "");
    std::map<Token, Token> same;
    std::set<Token> taken;
    std::set<uint32_t> there;
    for (size_t i = 0; i < loaded.trace.requests.size(); ++i) {
      const uint32_t original = loaded.trace.requests[i].turn;
      there.insert(original);
      const std::vector<Token> was = words(trace, original);
      const std::vector<Token> is = words(loaded.trace, i);
      ASSERT_EQ(was.size(), is.size());
      for (size_t b = 0; b < was.size(); ++b) {
        const auto [it, first] = same.try_emplace(was[b], is[b]);
        ASSERT_EQ(it->second, is[b]) << "request " << original;
        if (first) {
          ASSERT_TRUE(taken.insert(is[b]).second) << "request " << original;
        }
      }
    }
    // A missing block was broken, or continues from a block that came with a missing one.
    std::set<Token> lost;
    Token known = 0;
    for (uint32_t i = 0; i < trace.requests.size(); ++i) {
      const std::vector<Token> blocks = words(trace, i);
      const bool goes_on = std::any_of(blocks.begin(), blocks.end(),
                                       [&](Token word) { return lost.contains(word); });
      if (readable) {
        ASSERT_EQ(there.contains(i), !broken[i] && !goes_on) << "request " << i;
      }
      for (const Token word : blocks) {
        if (word >= known && (broken[i] || goes_on)) lost.insert(word);
      }
      for (const Token word : blocks) known = std::max(known, word + 1);
    }
    EXPECT_GT(there.size(), 200U) << "what goes on from what was known is still used";
  }
  // Another trace behind one that was cut off has its own numbers.
  const std::string head = "{\"stemma_trace\":1,\"block_tokens\":16}\n";
  const std::string request = "{\"timestamp\":0,\"input_length\":16,\"path\":[0,1]}\n";
  EXPECT_EQ(load(head + request + head + request + request, true).trace.requests.size(), 1U);
}

// Files, which may be compressed.
class TraceOnDisk : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = ::testing::TempDir() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string problem_of(const std::string& path) { return load_trace(path, {}, trace_, report_); }
  Trace trace_;
  LoadReport report_;
};

TEST_F(TraceOnDisk, FilesAreNamedInMessages) {
  EXPECT_EQ(problem_of("/nowhere/trace"),
            "/nowhere/trace: cannot be opened: No such file or directory");
  const std::string path = write("bad.jsonl", "x\n");
  EXPECT_EQ(problem_of(path), path + ": line 1: is no JSON object");
  const std::string gzip = write("trace.gz", "\x1F\x8B\x08 and so on");
  EXPECT_EQ(problem_of(gzip), gzip + ": is compressed with gzip: gzip -dc FILE | stemma replay -");
  EXPECT_EQ(problem_of(write("good.jsonl", line(0, 512, "1"))), "");
  EXPECT_EQ(trace_.name, "good.jsonl");
  EXPECT_NE(problem_of(::testing::TempDir()).find("cannot be read"), std::string::npos);
}

// Compressed by the program zstd; empty if there is none.
std::string compressed(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/to_compress";
  std::ofstream(path, std::ios::binary) << text;
  std::string bytes;
  FILE* pipe = popen(("zstd -qc --long=27 " + path).c_str(), "r");  // NOLINT: a test's own file
  if (pipe == nullptr) return {};
  char piece[4096];
  for (size_t got; (got = fread(piece, 1, sizeof piece, pipe)) > 0;) bytes.append(piece, got);
  return pclose(pipe) == 0 ? bytes : std::string();
}

TEST_F(TraceOnDisk, ZstdIsReadAndCutsAreNoticed) {
  std::string text;
  for (int i = 0; i < 30'000; ++i)
    text += line(i, 1024, "1," + std::to_string(i * 7919 % 30'011 + 2));
  const std::string bytes = compressed(text);
  if (bytes.empty()) GTEST_SKIP() << "there is no program zstd here";
  const std::string problem = problem_of(write("trace.zst", bytes));
  if (problem.find("this build cannot read") != std::string::npos) {
    GTEST_SKIP() << "built without libzstd";
  }
  ASSERT_EQ(problem, "");
  EXPECT_EQ(trace_.requests.size(), 30'000U);
  EXPECT_EQ(trace_.unique_blocks, 30'001U);
  const std::string cut = problem_of(write("cut.zst", bytes.substr(0, bytes.size() * 2 / 3)));
  EXPECT_NE(cut.find(": after line "), std::string::npos) << cut;
  EXPECT_NE(cut.find("ends in the middle of its compressed data: it was cut off"),
            std::string::npos);
  std::string torn = bytes;
  for (size_t i = torn.size() / 2; i < torn.size() / 2 + 50; ++i) torn[i] = '\x55';
  EXPECT_NE(problem_of(write("torn.zst", torn)), "");
}

}  // namespace
}  // namespace stemma::replay
