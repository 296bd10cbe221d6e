#include "server/rules/free_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace stemma::server {

using constrain::ByteSet;
using constrain::Expr;
using constrain::GrammarBuilder;
using constrain::RuleId;

namespace {

// The automaton of Aho and Corasick.
class MarkerStates {
 public:
  static constexpr uint32_t kWhole = 0xFFFF'FFFFU;  // A marker was read.

  explicit MarkerStates(std::span<const std::string> markers) {
    states_.emplace_back();
    for (const std::string& marker : markers) {
      if (!marker.empty()) add(marker);
    }
    link();
  }
  size_t size() const { return states_.size(); }
  // The next state for each byte.
  const std::array<uint32_t, 256>& next(size_t state) const { return states_[state].next; }

 private:
  struct State {
    std::array<uint32_t, 256> next{};  // 0, the beginning, while unknown.
    uint32_t fallback = 0;
    bool whole = false;
  };

  void add(const std::string& marker) {
    uint32_t at = 0;
    for (const char c : marker) {
      uint32_t& next = states_[at].next[static_cast<uint8_t>(c)];
      if (next == 0) {
        next = static_cast<uint32_t>(states_.size());
        at = next;
        states_.emplace_back();  // This invalidates `next`.
      } else {
        at = next;
      }
    }
    states_[at].whole = true;
  }

  // Goes by depth, and fills each state's missing transitions from its fallback.
  void link() {
    std::vector<uint32_t> order = {0};
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t at = order[i];
      State& state = states_[at];
      state.whole = state.whole || states_[state.fallback].whole;
      for (size_t byte = 0; byte < 256; ++byte) {
        const uint32_t below = at == 0 ? 0 : states_[state.fallback].next[byte];
        uint32_t& next = state.next[byte];
        if (next == 0) {
          next = below;
        } else {
          states_[next].fallback = below;
          order.push_back(next);
        }
      }
    }
    for (State& state : states_) {
      for (uint32_t& next : state.next) {
        if (states_[next].whole) next = kWhole;
      }
    }
  }

  std::vector<State> states_;
};

}  // namespace

RuleId text_without(GrammarBuilder& build, std::span<const std::string> markers) {
  const MarkerStates states(markers);
  std::vector<RuleId> rules;
  for (size_t i = 0; i < states.size(); ++i) rules.push_back(build.rule("text"));
  for (size_t i = 0; i < states.size(); ++i) {
    std::map<uint32_t, ByteSet> targets;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      targets[states.next(i)[byte]].add(static_cast<uint8_t>(byte));
    }
    std::vector<Expr> ways = {build.nothing()};
    for (const auto& [target, bytes] : targets) {
      if (target == MarkerStates::kWhole) continue;
      ways.push_back(build.sequence({build.byte(bytes), build.call(rules[target])}));
    }
    build.define(rules[i], build.either(ways));
  }
  return rules.front();
}

}  // namespace stemma::server
