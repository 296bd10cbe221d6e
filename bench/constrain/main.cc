// Question: what does a constrained answer cost a server per token, and a schema per request? And
// what can a client make it cost that means harm?
//
//   constrain_bench [TOKENS] [ANSWERS]      default: 150000 12
//
// The vocabulary is made up in the manner of real ones: bytes, words with and without a space in
// front, pieces, numbers, runs of punctuation and blanks, parts of characters. Answers are random
// walks, cut into the longest tokens. Every hundredth mask is compared with the matcher, token by
// token. Seeds are fixed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "constrain/gbnf.h"
#include "constrain/schema/json_schema.h"
#include "constrain/token_masks.h"
#include "support/answer_walker.h"

namespace {

using namespace stemma::constrain;  // NOLINT: a program.

// CPU time of this thread, so that other programs on the machine do not count. Reading it takes
// about 0.2 us.
struct Clock {
  using time_point = double;
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  }
};

double microseconds_since(Clock::time_point begin) { return Clock::now() - begin; }

struct Times {
  std::vector<double> all;

  void print(const char* what) {
    std::sort(all.begin(), all.end());
    const auto at = [&](double part) {
      return all[static_cast<size_t>(part * static_cast<double>(all.size() - 1))];
    };
    std::printf("  %-44s n %7zu   p50 %9.2f   p99 %9.2f   max %9.2f us\n", what, all.size(),
                at(0.5), at(0.99), at(1));
  }
};

std::vector<std::string> make_vocabulary(size_t size, std::mt19937_64& random) {
  std::vector<std::string> tokens;
  std::set<std::string> known;
  const auto add = [&](const std::string& token) {
    if (tokens.size() < size && known.insert(token).second) tokens.push_back(token);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (int i = 0; i < 1000; ++i) add(std::to_string(i));
  for (size_t i = 1; i <= 96; ++i) {
    add(std::string(i, ' '));
    add("\n" + std::string(i, ' '));
    if (i <= 16) add(std::string(i, '\t'));
    if (i <= 32) add(std::string(i, "-=*#"[i % 4]));
  }
  for (int i = 0; i < 6000; ++i) {
    std::string run;
    for (uint64_t left = 2 + random() % 4; left > 0; --left)
      run += "\"\"{}[]:,, \n\\()<>/.;'=-_"[random() % 24];
    add(run);
  }
  for (int i = 0; i < 20'000; ++i) {  // Letters of other alphabets, and parts of them.
    std::string text;
    for (uint64_t left = 1 + random() % 2; left > 0; --left) {
      const auto code = static_cast<uint32_t>(0x400 + random() % 0x9000);
      if (code < 0x800) {
        text += {static_cast<char>(0xC0 | code >> 6U), static_cast<char>(0x80 | (code & 63U))};
      } else {
        text +=
            {static_cast<char>(0xE0 | code >> 12U), static_cast<char>(0x80 | (code >> 6U & 63U)),
             static_cast<char>(0x80 | (code & 63U))};
      }
    }
    if (random() % 8 == 0) text.pop_back();
    add(text);
  }
  const char* const syllables[] = {"al", "ba", "con", "de", "er",  "fi",   "ga", "ho", "in", "jo",
                                   "ka", "lu", "me",  "na", "or",  "pre",  "qu", "re", "st", "ti",
                                   "un", "ve", "wa",  "xy", "ing", "tion", "ed", "ly", "s",  "er"};
  while (tokens.size() < size) {
    std::string word;
    for (uint64_t left = 1 + random() % 4; left > 0; --left) word += syllables[random() % 30];
    if (random() % 4 == 0) word[0] = static_cast<char>(word[0] - 32);
    if (random() % 8 == 0) word += "_" + std::string(syllables[random() % 30]);
    add(random() % 2 == 0 ? " " + word : word);
  }
  std::shuffle(tokens.begin() + 256, tokens.end(), random);
  return tokens;
}

std::string many_tools(int tools, int parameters) {
  std::string all;
  for (int i = 0; i < tools; ++i) {
    all += (i == 0 ? "" : ",") +
           (R"({"type":"object","properties":{"name":{"const":"tool_)" + std::to_string(i)) +
           R"("},"arguments":{"type":"object","properties":{)";
    for (int p = 0; p < parameters; ++p) {
      all +=
          (p == 0 ? "\"" : ",\"") + ("parameter_" + std::to_string(p)) +
          (p % 3 == 0 ? R"(":{"type":"string","maxLength":65536,"description":")"
           : p % 3 == 1
               ? R"(":{"type":"array","items":{"type":"integer","minimum":0},"maxItems":100,"description":")"
               : R"(":{"type":"string","enum":["one","two","three"],"description":")") +
          std::string(120, 'd') + "\"}";
    }
    all +=
        R"(},"required":["parameter_1"],"additionalProperties":false}},"required":["name","arguments"]})";
  }
  return R"({"anyOf":[)" + all + "]}";
}

struct Named {
  const char* name;
  std::string schema;
};

std::vector<Named> schemas() {
  return {
      {"any JSON", "{}"},
      {"a shell tool",
       R"({"type":"object","properties":{"command":{"type":"string"},"timeout":{"type":"number","minimum":0,"maximum":600000},
           "description":{"type":"string"},"background":{"type":"boolean"}},"required":["command"],"additionalProperties":false})"},
      {"an edit tool, strings of up to 65,536",
       R"({"type":"object","properties":{"path":{"type":"string","minLength":1,"maxLength":4096},"edits":{"type":"array","minItems":1,
           "items":{"type":"object","properties":{"old":{"type":"string","maxLength":65536},"new":{"type":"string","maxLength":65536},
           "all":{"type":"boolean"}},"required":["old","new"],"additionalProperties":false}}},"required":["path","edits"],
           "additionalProperties":false})"},
      {"a list with patterns and formats",
       R"({"type":"array","items":{"type":"object","properties":{"id":{"type":"string","pattern":"^[A-Z]{2,4}-\\d{1,6}$"},
           "when":{"type":"string","format":"date-time"},"mail":{"type":"string","format":"email"},
           "state":{"enum":["open","closed","waiting"]},"n":{"type":"integer","minimum":1,"maximum":500}},
           "required":["id","when","state"],"additionalProperties":false},"maxItems":50})"},
      {"a recursive tree",
       R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"kind":{"type":"string"},"children":{"type":"array",
           "items":{"$ref":"#/$defs/n"}},"value":{"anyOf":[{"type":"number"},{"type":"string"},{"type":"null"}]}},"required":["kind"],
           "additionalProperties":true}}})"},
      {"200 tools", many_tools(200, 9)},
  };
}

// Cuts `answer` into the longest tokens.
std::vector<uint32_t> tokenize(const std::string& answer,
                               const std::unordered_map<std::string, uint32_t>& ids) {
  std::vector<uint32_t> out;
  for (size_t at = 0; at < answer.size();) {
    for (size_t bytes = std::min<size_t>(24, answer.size() - at); bytes > 0; --bytes) {
      const auto found = ids.find(answer.substr(at, bytes));
      if (found == ids.end()) continue;
      out.push_back(found->second);
      at += bytes;
      break;
    }
  }
  return out;
}

bool same(const TokenMask& mask, const Matcher& matcher, const std::vector<std::string>& tokens) {
  for (uint32_t token = 0; token < tokens.size(); ++token) {
    if (mask.allows(token) != matcher.allows(tokens[token])) return false;
  }
  return true;
}

int measure(const Named& named, const std::vector<std::string>& tokens, const TokenTable& table,
            const std::unordered_map<std::string, uint32_t>& ids, int answers) {
  const Clock::time_point begin = Clock::now();
  auto made = compile_schema(named.schema);
  const double compiling = microseconds_since(begin);
  if (auto* problem = std::get_if<Problem>(&made)) {
    std::printf("%s: %s\n", named.name, problem->text().c_str());
    return 1;
  }
  const GrammarPtr grammar = std::get<CompiledSchema>(made).grammar;
  std::printf("%s: %zu bytes of schema, compiled in %.2f ms, %u states, %.1f KB\n", named.name,
              named.schema.size(), compiling / 1000, grammar->states(),
              static_cast<double>(grammar->memory_bytes()) / 1024);
  const stemma::test::AnswerWalker walker(grammar);
  std::mt19937_64 random(7);
  Times check;
  Times fresh;
  Times kept;
  TokenMasks masks(table, grammar);
  int step = 0;
  for (int i = 0; i < answers; ++i) {
    const auto answer = walker.walk(random, 200 + random() % 400);
    if (!answer) return 1;
    TokenMasks own(table, grammar);  // As in the first request with this schema.
    Matcher matcher(grammar);
    for (const uint32_t token : tokenize(*answer, ids)) {
      for (const uint32_t tried : {token, static_cast<uint32_t>(random() % tokens.size())}) {
        const Clock::time_point start = Clock::now();
        const bool allowed = matcher.allows(tokens[tried]);
        check.all.push_back(microseconds_since(start));
        if (tried == token && !allowed) return 1;
      }
      Clock::time_point start = Clock::now();
      const auto mask = masks.mask(matcher);
      kept.all.push_back(microseconds_since(start));
      if (i < 8) {
        start = Clock::now();
        const auto again = own.mask(matcher);
        fresh.all.push_back(microseconds_since(start));
        if (again->bits != mask->bits) return 1;
      }
      if (++step % 100 == 0 && !same(*mask, matcher, tokens)) return 1;
      if (!mask->allows(token) || !matcher.accept(tokens[token])) return 1;
    }
  }
  if (masks.cut_short() != 0) return 1;
  std::printf("  %zu tokens in %d answers\n", kept.all.size(), answers);
  check.print("check of one token");
  fresh.print("whole mask, nothing known before the answer");
  kept.print("whole mask, answers before it known");
  std::fflush(stdout);
  return 0;
}

// Grammars that a client could send to keep the engine's thread busy, and the text of an answer
// that makes each of them slow.
struct Hostile {
  const char* name;
  std::string grammar;
  size_t answer_bytes;
};

std::vector<Hostile> hostile_grammars() {
  std::string letters;
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    letters += (letters.empty() ? "" : " | ") + std::string("w* \"") + letter + "\" w{3000}";
  }
  return {
      {"a letter, and 3,000 more", "root ::= [a-z ]* [a-m] [a-z ]{3000}", 3000},
      {"each letter, and 3,000 more", "root ::= " + letters + "\nw ::= [a-z ]", 3000},
      {"choices of counts",
       "root ::= (([a-f ]{1,9} | [d-m]{1,7} | [g-z ]{2,8}){3,30} | [a-z ]{2,40}){20,90}", 90},
  };
}

int measure_hostile(const Hostile& hostile, const std::vector<std::string>& tokens,
                    const TokenTable& table) {
  auto made = compile_gbnf(hostile.grammar);
  if (auto* problem = std::get_if<Problem>(&made)) {
    std::printf("%s: %s\n", hostile.name, problem->text().c_str());
    return 1;
  }
  const GrammarPtr grammar = std::get<GrammarPtr>(made);
  std::printf("hostile: %s\n", hostile.name);
  Times check;
  Times fresh;
  TokenMasks masks(table, grammar);
  Matcher matcher(grammar);
  std::mt19937_64 random(3);
  uint32_t most = 0;
  for (size_t byte = 0; byte <= hostile.answer_bytes; ++byte) {
    if (byte == 0 || byte == hostile.answer_bytes / 2 || byte == hostile.answer_bytes) {
      const Clock::time_point start = Clock::now();
      masks.mask(matcher);
      fresh.all.push_back(microseconds_since(start));
    }
    for (int i = 0; i < 3; ++i) {
      const std::string& token = tokens[random() % tokens.size()];
      const Clock::time_point start = Clock::now();
      static_cast<void>(matcher.allows(token));
      check.all.push_back(microseconds_since(start));
    }
    most = std::max(most, matcher.stacks().count);
    const char letter = static_cast<char>('a' + random() % 26);
    if (!matcher.accept(std::string_view(&letter, 1))) {
      std::printf("  ends after %zu bytes\n", byte);
      break;
    }
  }
  std::printf("  %u stacks, %llu of %zu masks cut short\n", most,
              static_cast<unsigned long long>(masks.cut_short()), fresh.all.size());
  check.print("check of one token");
  fresh.print("whole mask, at three places of the answer");
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 150'000;
  const int answers = argc > 2 ? std::atoi(argv[2]) : 12;
  std::mt19937_64 random(1);
  const std::vector<std::string> tokens = make_vocabulary(size, random);
  std::unordered_map<std::string, uint32_t> ids;
  for (uint32_t i = 0; i < tokens.size(); ++i) ids.emplace(tokens[i], i);
  Clock::time_point begin = Clock::now();
  const TokenTable table(tokens);
  std::printf("%u tokens, longest %u bytes, %zu nodes, table made in %.1f ms\n", table.size(),
              table.longest_bytes(), table.nodes().size() - 1, microseconds_since(begin) / 1000);
  for (const Named& named : schemas()) {
    if (const int failed = measure(named, tokens, table, ids, answers)) {
      std::printf("%s: a mask and the matcher differ\n", named.name);
      return failed;
    }
  }
  for (const Hostile& hostile : hostile_grammars()) {
    if (measure_hostile(hostile, tokens, table) != 0) return 1;
  }
  const std::string large = many_tools(200, 12);
  begin = Clock::now();
  auto made = compile_schema(large);
  std::printf("200 tools, %zu bytes: %s in %.1f ms\n", large.size(),
              std::holds_alternative<CompiledSchema>(made) ? "compiled" : "refused",
              microseconds_since(begin) / 1000);
  return 0;
}
