#include "constrain/schema/pattern_product.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace stemma::constrain {
namespace {

constexpr size_t kMaxPlaces = 400;
constexpr size_t kMaxSteps = 50'000;
using Kind = RegexNode::Kind;

// A pattern as an automaton without empty steps. Its states are the beginning, 0, and the places of
// the pattern that read a character. The automaton is at a place when it has just read that place's
// character.
class PlaceAutomaton {
 public:
  explicit PlaceAutomaton(const Regex& regex) {
    sets_.emplace_back();
    follow_.emplace_back();
    Part whole{.nullable = false};
    for (const RegexWay& way : regex.ways) {
      Part part{.nullable = true};
      if (!way.from_begin) part = in_sequence(part, anything());
      part = in_sequence(part, add(way.body));
      if (!way.to_end) part = in_sequence(part, anything());
      whole = either(whole, part);
    }
    follow_[0] = whole.first;
    last_.assign(sets_.size(), false);
    for (const size_t place : whole.last) last_[place] = true;
    last_[0] = whole.nullable;
    for (std::vector<size_t>& next : follow_) {
      std::sort(next.begin(), next.end());
      next.erase(std::unique(next.begin(), next.end()), next.end());
    }
  }

  bool too_large() const { return sets_.size() > kMaxPlaces; }
  const std::vector<size_t>& follow(size_t state) const { return follow_[state]; }
  const CodePointSet& set(size_t state) const { return sets_[state]; }
  bool may_end(size_t state) const { return last_[state]; }

 private:
  struct Part {
    bool nullable = false;
    std::vector<size_t> first{};
    std::vector<size_t> last{};
  };

  static void append(std::vector<size_t>& to, const std::vector<size_t>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  void connect(const Part& before, const Part& after) {
    for (const size_t place : before.last) append(follow_[place], after.first);
  }
  Part in_sequence(const Part& before, const Part& after) {
    connect(before, after);
    Part both{.nullable = before.nullable && after.nullable};
    both.first = before.first;
    if (before.nullable) append(both.first, after.first);
    both.last = after.last;
    if (after.nullable) append(both.last, before.last);
    return both;
  }
  static Part either(const Part& one, const Part& other) {
    Part both{.nullable = one.nullable || other.nullable, .first = one.first, .last = one.last};
    append(both.first, other.first);
    append(both.last, other.last);
    return both;
  }
  Part place(const CodePointSet& set) {
    if (too_large()) return {.nullable = true};
    sets_.push_back(set);
    follow_.emplace_back();
    const size_t index = sets_.size() - 1;
    return {.nullable = false, .first = {index}, .last = {index}};
  }
  Part star(Part part) {
    connect(part, part);
    part.nullable = true;
    return part;
  }
  Part anything() { return star(place(CodePointSet::all())); }

  Part add(const RegexNode& node) {
    switch (node.kind) {
      case Kind::set: return place(node.set);
      case Kind::begin:
      case Kind::end: return {.nullable = true};
      case Kind::sequence: {
        Part whole{.nullable = true};
        for (const RegexNode& child : node.children) whole = in_sequence(whole, add(child));
        return whole;
      }
      case Kind::either: {
        Part whole{.nullable = false};
        for (const RegexNode& child : node.children) whole = either(whole, add(child));
        return whole;
      }
      case Kind::repeat: break;
    }
    // Written out once for each time that it may occur.
    Part whole{.nullable = true};
    const RegexNode& child = node.children[0];
    for (uint32_t i = 0; i < node.min && !too_large(); ++i) whole = in_sequence(whole, add(child));
    if (node.max == kUnbounded) return in_sequence(whole, star(add(child)));
    for (uint32_t i = node.min; i < node.max && !too_large(); ++i) {
      Part more = add(child);
      more.nullable = true;
      whole = in_sequence(whole, more);
    }
    return whole;
  }

  std::vector<CodePointSet> sets_;
  std::vector<std::vector<size_t>> follow_;
  std::vector<bool> last_;
};

class Product {
 public:
  Product(GrammarBuilder& build, std::span<const Regex> patterns, uint32_t min, uint32_t max)
      : build_(build), min_(min), max_(max) {
    for (const Regex& regex : patterns) automata_.emplace_back(regex);
  }

  std::optional<Expr> expression() {
    for (const PlaceAutomaton& automaton : automata_) {
      if (automaton.too_large()) return std::nullopt;
    }
    const RuleId start = rule_of({std::vector<size_t>(automata_.size(), 0), 0});
    while (!waiting_.empty()) {
      const State state = std::move(waiting_.back());
      waiting_.pop_back();
      if (!define(state)) return std::nullopt;
    }
    return build_.call(start);
  }

 private:
  using State = std::pair<std::vector<size_t>, uint32_t>;  // A state of each automaton; the length.

  RuleId rule_of(const State& state) {
    const auto [at, made] = rules_.try_emplace(state, RuleId{});
    if (made) {
      at->second = build_.rule();
      waiting_.push_back(state);
    }
    return at->second;
  }

  bool define(const State& state) {
    const auto& [places, length] = state;
    std::vector<Expr> ways;
    bool may_end = length >= min_;
    for (size_t i = 0; i < places.size(); ++i) may_end &= automata_[i].may_end(places[i]);
    if (may_end) ways.push_back(build_.nothing());
    if (max_ == kUnbounded || length < max_) {
      // With no upper bound, lengths above the minimum need not be told apart.
      const uint32_t next = max_ == kUnbounded ? std::min(length + 1, min_) : length + 1;
      add_steps(places, {}, CodePointSet::all(), next, ways);
    }
    build_.define(rules_.at(state), build_.either(ways));
    return steps_ <= kMaxSteps && !build_.failed();
  }

  // Adds all combinations of a next place in each automaton that share a character.
  void add_steps(const std::vector<size_t>& from, const std::vector<size_t>& to,
                 const CodePointSet& set, uint32_t length, std::vector<Expr>& ways) {
    if (steps_ > kMaxSteps || set.empty()) return;
    if (to.size() == from.size()) {
      ++steps_;
      ways.push_back(
          build_.sequence({build_.call(set_rule(set)), build_.call(rule_of({to, length}))}));
      return;
    }
    const PlaceAutomaton& automaton = automata_[to.size()];
    for (const size_t place : automaton.follow(from[to.size()])) {
      ++steps_;
      std::vector<size_t> more = to;
      more.push_back(place);
      add_steps(from, more,
                to.empty() ? automaton.set(place) : set.intersection(automaton.set(place)), length,
                ways);
    }
  }

  RuleId set_rule(const CodePointSet& set) {
    std::vector<std::pair<uint32_t, uint32_t>> key;
    for (const CodePointSet::Range& range : set.ranges()) key.emplace_back(range.first, range.last);
    const auto [at, made] = sets_.try_emplace(std::move(key), RuleId{});
    if (made) at->second = build_.rule_of(one_of_json(build_, set));
    return at->second;
  }

  GrammarBuilder& build_;
  uint32_t min_;
  uint32_t max_;
  std::vector<PlaceAutomaton> automata_;
  std::map<State, RuleId> rules_;
  std::vector<State> waiting_;
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, RuleId> sets_;
  size_t steps_ = 0;
};

}  // namespace

std::optional<Expr> patterns_in_json(GrammarBuilder& build, std::span<const Regex> patterns,
                                     uint32_t min_length, uint32_t max_length) {
  return Product(build, patterns, min_length, max_length).expression();
}

}  // namespace stemma::constrain
