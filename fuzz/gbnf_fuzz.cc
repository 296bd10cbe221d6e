// Grammars in GBNF as an enemy would write them: text before a zero byte is the grammar, the bytes
// after it choose an answer. Every grammar is refused or can be followed: an answer that was begun
// can go on or end.
#include <cstdint>
#include <string_view>
#include <variant>

#include "constrain/gbnf.h"
#include "constrain_walk.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stemma::constrain;  // NOLINT: a test.
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view text = input.substr(0, input.find('\0'));
  const auto made = compile_gbnf(
      text, {.limits = {.rules = 20'000, .states = 200'000, .depth = 60, .stacks = 256}});
  if (std::holds_alternative<Problem>(made)) {
    FUZZ_EXPECT(!std::get<Problem>(made).message.empty());
    return 0;
  }
  stemma::fuzz::Input choices(data + text.size(), size - text.size());
  stemma::fuzz::walk(std::get<GrammarPtr>(made), choices, 150);
  return 0;
}
