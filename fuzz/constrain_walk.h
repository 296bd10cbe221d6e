// A walk through a grammar that the input chooses, and what must hold at every step of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/matcher.h"
#include "input.h"

namespace stemma::fuzz {

// The answer if it ended within `steps`.
inline std::optional<std::string> walk(const constrain::GrammarPtr& grammar, Input& choices,
                                       int steps) {
  constrain::Matcher matcher(grammar);
  if (matcher.passed_limit()) return std::nullopt;
  std::string answer;
  for (int step = 0; step < steps; ++step) {
    std::vector<char> allowed;
    bool limit = false;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const char value = static_cast<char>(byte);
      constrain::Matcher next = matcher;
      const bool accepted = next.accept(std::string_view(&value, 1));
      limit |= next.passed_limit();
      FUZZ_EXPECT(accepted == matcher.allows(std::string_view(&value, 1)));
      if (accepted) allowed.push_back(value);
    }
    FUZZ_EXPECT(matcher.must_end() == (allowed.empty() && !limit) || limit);
    if (allowed.empty()) {
      FUZZ_EXPECT(matcher.may_end() || limit);
      return matcher.may_end() ? std::optional(answer) : std::nullopt;
    }
    if (matcher.may_end() && choices.u8() % 4 == 0) return answer;
    const char chosen = allowed[choices.u8() % allowed.size()];
    FUZZ_EXPECT(matcher.accept(std::string_view(&chosen, 1)));
    answer += chosen;
  }
  // All at once is the same.
  constrain::Matcher at_once(grammar);
  FUZZ_EXPECT(at_once.accept(answer) && at_once.stacks() == matcher.stacks());
  return std::nullopt;
}

}  // namespace stemma::fuzz
