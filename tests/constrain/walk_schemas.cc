// Usage: walk_schemas SEED ANSWERS < schemas.jsonl
//
// For each line, a JSON schema, prints a line with random answers of its grammar:
//   {"unenforced":["/a/not"],"answers":["{\"a\":1}", ...]}    or    {"problem":"..."}
// An answer that could not be ended is null. tests/constrain/ajv_check.mjs reads them.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "constrain/schema/json_schema.h"
#include "json/json.h"
#include "support/answer_walker.h"

namespace {

using namespace stemma;             // NOLINT: a program of tests.
using namespace stemma::constrain;  // NOLINT

std::string answers_for(const std::string& text, std::mt19937_64& random, int answers) {
  auto made = compile_schema(
      text, {.whitespace = random() % 2 == 0 ? Whitespace::none : Whitespace::bounded});
  std::string out;
  if (const auto* problem = std::get_if<Problem>(&made)) {
    out = "{\"problem\":";
    append_json_string(out, problem->text());
    return out + "}";
  }
  const auto& compiled = std::get<CompiledSchema>(made);
  out = "{\"unenforced\":[";
  for (const Unenforced& one : compiled.unenforced) {
    if (out.back() != '[') out += ',';
    append_json_string(out, one.pointer);
  }
  out += "],\"answers\":[";
  const test::AnswerWalker walker(compiled.grammar);
  for (int i = 0; i < answers; ++i) {
    if (i != 0) out += ',';
    const auto answer = walker.walk(random, random() % 300);
    if (answer) {
      append_json_string(out, *answer);
    } else {
      out += "null";
    }
  }
  return out + "]}";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: walk_schemas SEED ANSWERS < schemas.jsonl\n");
    return 2;
  }
  std::mt19937_64 random(std::strtoull(argv[1], nullptr, 10));
  const int answers = std::atoi(argv[2]);
  std::string line;
  while (std::getline(std::cin, line)) std::cout << answers_for(line, random, answers) << "\n";
  return std::cin.eof() && std::cout.flush() ? 0 : 1;
}
