// Schemas as an enemy would write them: text before a zero byte is the schema, the bytes after it
// choose an answer.
//
// Every schema is refused or gives a grammar. Every answer that was begun can go on or end, and one
// that ended is JSON, in which a name may come twice.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "constrain/matcher.h"
#include "constrain/schema/json_schema.h"
#include "constrain_walk.h"
#include "input.h"
#include "json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stemma::constrain;  // NOLINT: a test.
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view text = input.substr(0, input.find('\0'));
  const auto made = compile_schema(
      text, {.limits = {.rules = 20'000, .states = 200'000, .depth = 60, .stacks = 256}});
  if (std::holds_alternative<Problem>(made)) {
    FUZZ_EXPECT(!std::get<Problem>(made).message.empty());
    return 0;
  }
  stemma::fuzz::Input choices(data + text.size(), size - text.size());
  const auto answer = stemma::fuzz::walk(std::get<CompiledSchema>(made).grammar, choices, 150);
  if (!answer) return 0;
  const auto parsed = stemma::parse_json(*answer, {.depth = 300});
  const auto* fault = std::get_if<stemma::JsonFault>(&parsed);
  FUZZ_EXPECT(fault == nullptr || fault->message.find("is there twice") != std::string::npos);
  return 0;
}
