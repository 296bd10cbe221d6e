// The obvious model of a StateStore: all states with their words, and a queue of who goes next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace stemma::test {

using Words = std::vector<uint64_t>;

struct State {
  uint32_t scope = 0;
  Words words;
  uint64_t bytes = 0;
  uint64_t stamp = 0;  // The number in its bytes.
  uint32_t leases = 0;
  bool draft = true;
  bool kept = false;
  bool replaces = false;
  bool dropped = false;  // A draft whose scope was dropped.
  bool held() const { return draft || leases != 0; }
};

struct StatesModel {
  uint64_t budget = 0;
  uint32_t most = 0;
  std::map<uint64_t, State> states;  // By stamp: drafts, kept ones, and leased ones out of sight.
  std::deque<uint64_t> queue;        // Next to go first.
  uint64_t evictions = 0, replaced = 0, refused = 0;

  uint64_t bytes(bool only_held = false) const {
    uint64_t sum = 0;
    for (const auto& [stamp, state] : states) sum += !only_held || state.held() ? state.bytes : 0;
    return sum;
  }
  uint64_t kept() const {
    return static_cast<uint64_t>(
        std::ranges::count_if(states, [](const auto& one) { return one.second.kept; }));
  }
  uint64_t held() const {
    return static_cast<uint64_t>(
        std::ranges::count_if(states, [](const auto& one) { return one.second.held(); }));
  }
  uint64_t at(uint32_t scope, const Words& words) const {
    for (const auto& [stamp, state] : states) {
      if (state.kept && state.scope == scope && state.words == words) return stamp;
    }
    return 0;
  }
  void unqueue(uint64_t stamp) { std::erase(queue, stamp); }
  void use(uint64_t stamp) {
    unqueue(stamp);
    queue.push_back(stamp);
  }
  void put_away(uint64_t stamp) {
    unqueue(stamp);
    State& state = states.at(stamp);
    state.kept = false;
    if (state.leases == 0) states.erase(stamp);
  }
  bool evict() {
    while (!queue.empty()) {
      const uint64_t first = queue.front();
      queue.pop_front();
      if (states.at(first).leases != 0) continue;
      put_away(first);
      ++evictions;
      return true;
    }
    return false;
  }
  // Whether it could be placed; then it is drafted.
  bool reserve(uint64_t stamp, State state) {
    if (state.bytes > budget || state.bytes > budget - bytes(true) || held() == most) {
      ++refused;
      return false;
    }
    const uint64_t old = at(state.scope, state.words);
    while (state.bytes > budget - bytes() || states.size() == most) {
      if (old != 0 && !state.replaces && states.at(old).leases == 0) {
        state.replaces = true;
        put_away(old);
      } else if (!evict()) {
        return false;
      }
    }
    states[stamp] = std::move(state);
    return true;
  }
  void commit(uint64_t stamp) {
    State& state = states.at(stamp);
    const uint64_t old = at(state.scope, state.words);
    if (old != 0 || state.replaces) ++replaced;
    if (old != 0) put_away(old);
    state.draft = false;
    state.kept = true;
    queue.push_back(stamp);
  }
  void abandon(uint64_t stamp) {
    if (states.at(stamp).replaces) ++evictions;
    states.erase(stamp);
  }
  void end_lease(uint64_t stamp) {
    State& state = states.at(stamp);
    if (--state.leases != 0) return;
    if (!state.kept) {
      states.erase(stamp);
    } else if (std::ranges::find(queue, stamp) == queue.end()) {
      queue.push_back(stamp);
    }
  }
};

}  // namespace stemma::test
