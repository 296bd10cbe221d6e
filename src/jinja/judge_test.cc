// Compares our output with Jinja2's: templates in the style of well-known families with
// conversations of every kind, then random expressions.
#include "templates/judge.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "templates/conversations.h"

namespace stemma::jinja {

namespace {

Value text(std::string bytes, uint32_t message) {
  return Value::string(std::move(bytes), Origin{message});
}

Value message(uint32_t index, std::string role, std::string content) {
  return Value::dict(
      {{"role", Value::string(std::move(role))}, {"content", text(std::move(content), index)}});
}

Value part(uint32_t index, std::string content) {
  return Value::dict({{"type", Value::string("text")}, {"text", text(std::move(content), index)}});
}

Value call(std::string name, std::vector<std::pair<std::string, Value>> arguments) {
  return Value::dict(
      {{"id", Value::string("call12345")},
       {"type", Value::string("function")},
       {"function", Value::dict({{"name", Value::string(std::move(name))},
                                 {"arguments", Value::dict(std::move(arguments))}})}});
}

Value tool() {
  const auto type = [](const char* name) { return Value::string(name); };
  return Value::dict(
      {{"type", type("function")},
       {"function",
        Value::dict(
            {{"name", type("weather")},
             {"description", type("Tells the \"weather\" <b>somewhere</b> & naïvely.")},
             {"parameters",
              Value::dict(
                  {{"type", type("object")},
                   {"properties",
                    Value::dict(
                        {{"place", Value::dict({{"type", type("string")}})},
                         {"days", Value::dict({{"type", type("array")},
                                               {"items", Value::dict({{"type", type("integer")}})},
                                               {"maximum", Value::real(1.5)}})},
                         {"unit", Value::dict({{"enum", Value::list({type("C"), type("F")})}})}})},
                   {"required", Value::list({type("place")})}})}})}});
}

using Variables = std::vector<std::pair<std::string, Value>>;

Value variables(std::vector<Value> messages, Variables more = {}) {
  Variables all = {{"messages", Value::list(std::move(messages))},
                   {"bos_token", Value::string("<s>")},
                   {"eos_token", Value::string("</s>")},
                   {"add_generation_prompt", Value::boolean(true)}};
  for (auto& entry : more) all.push_back(std::move(entry));
  return Value::dict(std::move(all));
}

}  // namespace

std::vector<std::pair<std::string, Value>> conversations() {
  std::vector<std::pair<std::string, Value>> all;
  all.emplace_back("one question", variables({message(0, "user", "Hello?")}));
  all.emplace_back("with a system message",
                   variables({message(0, "system", "  You are brief. \n"), message(1, "user", "Hi"),
                              message(2, "assistant", "Hello!"), message(3, "user", "Bye")}));
  all.emplace_back("no prompt wanted",
                   variables({message(0, "user", "Hi"), message(1, "assistant", "Hello!")},
                             {{"add_generation_prompt", Value::boolean(false)}}));
  all.emplace_back("empty texts",
                   variables({message(0, "system", ""), message(1, "user", ""),
                              message(2, "assistant", ""), message(3, "user", " ")}));
  all.emplace_back("unicode",
                   variables({message(0, "user", "Grüße, Ώρα! 你好 😀 e\u0301 Straße \u00A0İ"),
                              message(1, "assistant", "Привет \"мир\" \\ / \t\u2028 x"),
                              message(2, "user", "\u3000spaces\u2003")}));
  all.emplace_back(
      "space everywhere",
      variables({message(0, "user", "\n\n  a\tb  \n"), message(1, "assistant", "\n x \n"),
                 message(2, "user", "line one\r\nline two\n\nline four  ")}));
  all.emplace_back(
      "looks like a template",
      variables({message(0, "user", "{{ messages }} {% if x %} {# no #} {%- endraw %}"),
                 message(1, "assistant", "<|im_end|>\n<|im_start|>system\n</s>[INST]"),
                 message(2, "user", "it's \"quoted\" 100% {0} %s")}));
  all.emplace_back("thoughts",
                   variables({message(0, "user", "Why? /quiet"),
                              message(1, "assistant", "<think>\nhm\n</think>\n\nBecause."),
                              message(2, "user", "And?"),
                              message(3, "assistant", "<think>a</think>b</think>\nc")},
                             {{"enable_thinking", Value::boolean(false)}}));
  all.emplace_back(
      "quiet", variables({message(0, "system", "Be kind. /quiet"), message(1, "user", "Hello")}));
  all.emplace_back(
      "parts",
      variables(
          {Value::dict({{"role", Value::string("user")},
                        {"content", Value::list({part(0, " Look: "),
                                                 Value::dict({{"type", Value::string("image")}}),
                                                 part(0, "what is it?")})}}),
           message(1, "assistant", "A cat.")}));
  all.emplace_back(
      "tools",
      variables(
          {message(0, "system", "Use tools."), message(1, "user", "Weather in Köln?"),
           Value::dict({{"role", Value::string("assistant")},
                        {"content", Value::none()},
                        {"tool_calls",
                         Value::list({call("weather", {{"place", text("Köln <\"&'>", 2)},
                                                       {"days", Value::list({Value::integer(1),
                                                                             Value::integer(2)})},
                                                       {"exact", Value::boolean(true)},
                                                       {"none", Value::none()}})})}}),
           Value::dict({{"role", Value::string("tool")},
                        {"tool_call_id", Value::string("call12345")},
                        {"content", text("{\"sun\": 0.5}\n", 3)}}),
           message(4, "assistant", "Half of it."), message(5, "user", "Thanks")},
          {{"tools", Value::list({tool(), tool()})}}));
  all.emplace_back(
      "several calls",
      variables(
          {message(0, "user", "Both"),
           Value::dict({{"role", Value::string("assistant")},
                        {"content", text("Well.", 1)},
                        {"reasoning_content", text("\nboth\n", 1)},
                        {"tool_calls",
                         Value::list({call("a", {}), call("b", {{"x", Value::real(1e22)}})})}}),
           message(2, "tool", "1"), message(3, "tool", "2")},
          {{"tools", Value::list({tool()})}, {"tools_first", Value::boolean(true)}}));
  all.emplace_back("wrong turns", variables({message(0, "user", "a"), message(1, "user", "b"),
                                             message(2, "developer", "c")}));
  all.emplace_back("nobody", variables({}));
  all.emplace_back("many", long_conversation(15, 4));
  return all;
}

Value long_conversation(uint32_t messages, uint32_t words_each) {
  std::vector<Value> list;
  for (uint32_t i = 0; i < messages; ++i) {
    std::string words;
    for (uint32_t w = 0; w < words_each; ++w) words += "word" + std::to_string(i * 7 + w) + " ";
    list.push_back(message(i, i % 2 == 0 ? "user" : "assistant", words));
  }
  return variables(std::move(list));
}

RenderOptions judged_options() {
  RenderOptions options;
  std::tm now{};
  now.tm_year = 125;
  now.tm_mday = 5;
  now.tm_hour = 12;
  now.tm_min = 34;
  now.tm_sec = 56;
  now.tm_isdst = -1;
  options.now = now;
  return options;
}

Verdict render(const std::string& source, const Value& variables, const RenderOptions& options) {
  const auto parsed = Template::parse(source);
  if (const auto* problem = std::get_if<Problem>(&parsed)) return {false, problem->to_string()};
  auto rendered = std::get<Template>(parsed).render(variables, options);
  if (const auto* problem = std::get_if<Problem>(&rendered)) return {false, problem->to_string()};
  return {true, std::get<Text>(rendered).bytes};
}

std::optional<std::vector<Verdict>> ask_judge(const std::vector<JudgeRequest>& requests) {
  static int number = 0;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("stemma_judge_" + std::to_string(getpid()) + "_" + std::to_string(number++));
  {
    std::ofstream file(path, std::ios::binary);
    for (const JudgeRequest& request : requests) {
      const Value line = Value::dict(
          {{"template", Value::string(request.source)}, {"variables", request.variables}});
      file << render("{{ line|tojson }}", Value::dict({{"line", line}})).text << "\n";
    }
  }
  const std::string command =
      "python3 '" STEMMA_TESTS_DIR "/templates/judge.py' '" + path.string() + "' 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string answer;
  std::array<char, 65536> buffer{};
  for (size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    answer.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  std::filesystem::remove(path);
  if (status != 0) {
    EXPECT_EQ(WEXITSTATUS(status), 77) << answer;
    return std::nullopt;
  }
  std::vector<Verdict> verdicts;
  for (size_t at = 0; at < answer.size();) {
    const size_t line = answer.find('\n', at);
    const size_t space = answer.find(' ', at);
    const size_t size = std::stoul(answer.substr(space + 1, line - space - 1));
    verdicts.push_back({answer.compare(at, 2, "ok") == 0, answer.substr(line + 1, size)});
    at = line + 1 + size + 1;
  }
  EXPECT_EQ(verdicts.size(), requests.size());
  if (verdicts.size() != requests.size()) return std::nullopt;
  return verdicts;
}

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

TEST(Judge, FamiliesOfTemplatesGiveTheSameTextAsJinja2) {
  std::vector<std::pair<std::string, JudgeRequest>> cases;
  size_t templates = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STEMMA_TESTS_DIR "/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    ++templates;
    for (const auto& [name, variables] : conversations()) {
      cases.push_back(
          {entry.path().stem().string() + ", " + name, {read(entry.path()), variables}});
    }
  }
  ASSERT_GE(templates, 20U);
  std::vector<JudgeRequest> requests;
  for (const auto& [name, request] : cases) requests.push_back(request);
  const auto verdicts = ask_judge(requests);
  if (!verdicts) GTEST_SKIP() << "there is no python3 with jinja2 to judge";
  size_t rendered = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [name, request] = cases[i];
    const Verdict ours = render(request.source, request.variables);
    const Verdict& theirs = (*verdicts)[i];
    EXPECT_EQ(ours.ok, theirs.ok) << name << "\nours:   " << ours.text
                                  << "\ntheirs: " << theirs.text;
    if (ours.ok && theirs.ok) {
      EXPECT_EQ(ours.text, theirs.text) << name;
      ++rendered;
    }
  }
  std::printf("%zu templates, %zu renderings, %zu of them a text\n", templates, cases.size(),
              rendered);
}

// --- random expressions --------------------------------------------------------------------------

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  std::string expression(int depth) {
    if (depth <= 0) return atom();
    const auto inner = [&] { return expression(depth - 1 - static_cast<int>(pick(2))); };
    switch (pick(16)) {
      case 0: return "(" + inner() + " + " + inner() + ")";
      case 1: return "(" + inner() + binary() + inner() + ")";
      case 2: return "(" + inner() + comparison() + inner() + ")";
      case 3: return "(" + inner() + (pick(2) == 0 ? " and " : " or ") + inner() + ")";
      case 4: return "(not " + inner() + ")";
      case 5: return "(" + inner() + " if " + inner() + " else " + inner() + ")";
      case 6: return "(" + inner() + " ~ " + inner() + ")";
      case 7: return "[" + inner() + ", " + inner() + "]";
      case 8: return "(" + inner() + ", " + inner() + ")";
      case 9: return "{'k': " + inner() + ", " + std::to_string(pick(3)) + ": " + inner() + "}";
      case 10: return "(" + inner() + ")[" + slice() + "]";
      case 11: return "(" + inner() + filter() + ")";
      case 12: return "(" + inner() + filter() + ")";
      case 13: return "(" + inner() + " is " + test() + ")";
      case 14: return "(" + inner() + ")." + method();
      default: return "(-" + inner() + ")";
    }
  }

 private:
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  template <size_t N>
  std::string one_of(const std::array<const char*, N>& all) {
    return all[pick(N)];
  }
  std::string atom() {
    return one_of(std::array{"0",
                             "1",
                             "-1",
                             "2",
                             "7",
                             "2.5",
                             "0.1",
                             "1e3",
                             "''",
                             "'a'",
                             "'B c'",
                             "'äß𝄞'",
                             "' x\\n'",
                             "'it\\'s'",
                             "'3'",
                             "'4.5'",
                             "none",
                             "true",
                             "false",
                             "[]",
                             "[1, 2, 3]",
                             "['b', 'a']",
                             "()",
                             "{}",
                             "{'a': 1}",
                             "missing",
                             "word",
                             "words",
                             "table",
                             "'a,b,,c'",
                             "(range(4)|list)",
                             "'\"'"});
  }
  std::string binary() {
    return one_of(std::array{" - ", " * ", " / ", " // ", " % ", " in ", " not in "});
  }
  std::string comparison() {
    return one_of(std::array{" == ", " != ", " < ", " <= ", " > ", " >= "});
  }
  std::string slice() {
    return one_of(std::array{"0", "-1", "1", "'a'", "'k'", "1:", ":2", ":-1", "::-1", "::2",
                             "-3:-1", "2:0:-1", "5", "true", "none", "0:100", "-100:1"});
  }
  std::string filter() {
    return one_of(std::array{"|length",
                             "|upper",
                             "|lower",
                             "|trim",
                             "|string",
                             "|list",
                             "|first",
                             "|last",
                             "|join",
                             "|join(', ')",
                             "|int",
                             "|float",
                             "|abs",
                             "|default('d')",
                             "|default('d', true)",
                             "|tojson",
                             "|tojson(indent=2)",
                             "|sort",
                             "|reverse|list",
                             "|unique|list",
                             "|sum",
                             "|min",
                             "|max",
                             "|capitalize",
                             "|title",
                             "|replace('a', 'XY')",
                             "|round",
                             "|round(1)",
                             "|items|list",
                             "|dictsort",
                             "|select|list",
                             "|reject|list",
                             "|map('upper')|list",
                             "|map('string')|join('-')",
                             "|select('string')|list",
                             "|map(attribute='a')|list",
                             "|selectattr('a')|list",
                             "|wordcount",
                             "|indent(2)",
                             "|batch(2)|list",
                             "|sort(reverse=true)",
                             "|int(7)",
                             "|d"});
  }
  std::string test() {
    return one_of(
        std::array{"defined", "undefined", "none",     "string",         "number",   "integer",
                   "float",   "boolean",   "mapping",  "sequence",       "iterable", "true",
                   "false",   "odd",       "even",     "divisibleby(2)", "eq(1)",    "in([1, 'a'])",
                   "lower",   "upper",     "not none", "sameas(none)",   "callable", "gt(1)"});
  }
  std::string method() {
    return one_of(std::array{"strip()",          "split()",
                             "split(',')",       "split(',', 1)",
                             "rsplit(',', 1)",   "upper()",
                             "title()",          "startswith('a')",
                             "endswith('c')",    "find('a')",
                             "replace('a', '')", "replace('', '.')",
                             "join(['x', 'y'])", "items()|list",
                             "keys()|list",      "values()|list",
                             "get('a')",         "get('z', 1)",
                             "count('a')",       "lstrip('ab')",
                             "rstrip()",         "isdigit()",
                             "partition(',')",   "zfill(4)",
                             "splitlines()",     "a",
                             "append(1)",        "index(1)",
                             "center(7, '*')",   "capitalize()",
                             "swapcase()",       "nothing()"});
  }

  std::mt19937_64 random_;
};

TEST(Judge, RandomExpressionsGiveTheSameTextAsJinja2) {
  // The same expressions in every run, unless STEMMA_SEED sets another seed.
  const char* given = std::getenv("STEMMA_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  const char* count = std::getenv("STEMMA_EXPRESSIONS");
  const size_t runs = count != nullptr ? std::strtoull(count, nullptr, 10) : 4000;
  std::printf("STEMMA_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Generator generator(seed);
  const Value variables = Value::dict(
      {{"word", Value::string("Hello wörld")},
       {"words", Value::list({Value::string("one"), Value::string("Two"), Value::string("one")})},
       {"table", Value::list({Value::dict({{"a", Value::integer(1)}}),
                              Value::dict({{"a", Value::integer(0)}, {"b", Value::none()}})})}});
  std::vector<JudgeRequest> requests;
  for (size_t i = 0; i < runs; ++i) {
    requests.push_back(
        {"{{ " + generator.expression(1 + static_cast<int>(i % 4)) + " }}", variables});
  }
  const auto verdicts = ask_judge(requests);
  if (!verdicts) GTEST_SKIP() << "there is no python3 with jinja2 to judge";
  size_t texts = 0;
  for (size_t i = 0; i < runs; ++i) {
    const Verdict ours = render(requests[i].source, variables);
    const Verdict& theirs = (*verdicts)[i];
    // Python's internal representations have no meaning; our integers end at 64 bits.
    if (theirs.ok && theirs.text.find(" object at 0x") != std::string::npos) continue;
    if (!ours.ok && ours.text.find("64 bits") != std::string::npos) continue;
    // Slices of values that cannot be sliced become undefined or fail, depending on the optimizer.
    if (!ours.ok && ours.text.find("cannot be sliced") != std::string::npos) continue;
    EXPECT_EQ(ours.ok, theirs.ok) << requests[i].source << "\nours:   " << ours.text
                                  << "\ntheirs: " << theirs.text;
    if (ours.ok && theirs.ok) {
      EXPECT_EQ(ours.text, theirs.text) << requests[i].source;
      ++texts;
    }
  }
  std::printf("%zu expressions, %zu of them a text\n", runs, texts);
}

}  // namespace
}  // namespace stemma::jinja
