#include "constrain/grammar_compiler.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace stemma::constrain {

std::variant<GrammarPtr, Problem> GrammarBuilder::finish(RuleId root,
                                                         std::optional<RuleId>* culprit) {
  if (failed()) return Problem{failure_, ""};
  GrammarCompiler compiler(*this);
  auto made = compiler.run(root);
  if (culprit != nullptr) *culprit = compiler.culprit();
  return made;
}

uint64_t Grammar::memory_bytes() const {
  return code_.size() * (sizeof(Instruction) + sizeof(uint16_t)) + loops_.size() * sizeof(Loop) +
         sets_.size() * sizeof(ByteSet) + targets_.size() * sizeof(uint32_t);
}

std::variant<GrammarPtr, Problem> GrammarCompiler::run(RuleId root_id) {
  const auto root = static_cast<uint32_t>(root_id);
  out_.reset(new Grammar());
  out_->limits_ = from_.limits_;
  rules_.resize(from_.rules_.size());
  mark_nullable();
  if (auto problem = check_left_recursion(root)) return *std::move(problem);
  emit_rules(root);
  if (!failure_.empty()) return Problem{failure_, ""};
  for (Grammar::Instruction& made : out_->code_) {
    if (made.op == Op::call || made.op == Op::jump) made.a = rules_[made.a].entry;
  }
  out_->entry_ = rules_[root].entry;
  out_->sets_ = from_.sets_;
  if (!find_needs() || !find_least_bytes()) {
    return Problem{"the rules are too entangled to be checked", ""};
  }
  if (out_->needs_[out_->entry_] > out_->limits_.depth) {
    return Problem{"no text can be completed within " + std::to_string(out_->limits_.depth) +
                       " levels of nesting",
                   ""};
  }
  number_bytes();
  return GrammarPtr(std::move(out_));
}

std::string GrammarCompiler::name_of(uint32_t rule) const {
  const std::string& name = from_.rules_[rule].name;
  return name.empty() ? "number " + std::to_string(rule) : "'" + name + "'";
}

// --- nullable nodes ------------------------------------------------------------------------------

void GrammarCompiler::mark_nullable() {
  std::vector<std::vector<uint32_t>> calls(from_.rules_.size());
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < from_.nodes_.size(); ++i) {
    const Node& node = from_.nodes_[i];
    if (node.kind == Kind::call) calls[node.a].push_back(i);
    if (node.kind == Kind::nothing || (node.kind == Kind::repeat && node.a == 0)) {
      ready.push_back(i);
    }
  }
  while (!ready.empty()) {
    Node& node = from_.nodes_[ready.back()];
    ready.pop_back();
    if (node.nullable) continue;
    node.nullable = true;
    if (node.parent == kNone) continue;
    if (node.is_root) {
      GrammarBuilder::Rule& rule = from_.rules_[node.parent];
      rule.nullable = true;
      ready.insert(ready.end(), calls[node.parent].begin(), calls[node.parent].end());
      continue;
    }
    Node& parent = from_.nodes_[node.parent];
    // For a sequence, `b` counts the parts that are not known to be nullable yet.
    if (parent.kind != Kind::sequence || --parent.b == 0) ready.push_back(node.parent);
  }
}

// --- left recursion ------------------------------------------------------------------------------

// Collects the rules that `node` may call before it reads a byte.
void GrammarCompiler::left_calls(uint32_t index, std::vector<uint32_t>& calls) const {
  const Node& node = from_.nodes_[index];
  if (node.kind == Kind::call) calls.push_back(node.a);
  for (uint32_t child = node.first; child != kNone; child = from_.nodes_[child].next) {
    left_calls(child, calls);
    if (node.kind == Kind::sequence && !from_.nodes_[child].nullable) break;
  }
}

std::vector<uint32_t> GrammarCompiler::reachable_rules(uint32_t root) const {
  std::vector<uint32_t> rules = {root};
  std::vector<bool> met(from_.rules_.size(), false);
  met[root] = true;
  std::vector<uint32_t> waiting;
  for (size_t i = 0; i < rules.size(); ++i) {
    if (from_.rules_[rules[i]].body != kNone) waiting.push_back(from_.rules_[rules[i]].body);
    while (!waiting.empty()) {
      const Node& node = from_.nodes_[waiting.back()];
      waiting.pop_back();
      if (node.kind == Kind::call && !met[node.a]) {
        met[node.a] = true;
        rules.push_back(node.a);
      }
      for (uint32_t child = node.first; child != kNone; child = from_.nodes_[child].next) {
        waiting.push_back(child);
      }
    }
  }
  return rules;
}

std::optional<Problem> GrammarCompiler::check_left_recursion(uint32_t root) {
  enum class Colour : uint8_t { white, open, done };
  struct Visit {
    uint32_t rule;
    std::vector<uint32_t> calls;
  };
  std::vector<Colour> colours(from_.rules_.size(), Colour::white);
  const std::vector<uint32_t> all = reachable_rules(root);
  for (const uint32_t start : all) {
    if (from_.rules_[start].body == kNone) {
      culprit_ = RuleId{start};
      return Problem{"the rule " + name_of(start) + " is not defined", ""};
    }
  }
  std::vector<Visit> path;
  for (const uint32_t start : all) {
    if (colours[start] != Colour::white) continue;
    const auto enter = [&](uint32_t rule) {
      colours[rule] = Colour::open;
      path.push_back({rule, {}});
      left_calls(from_.rules_[rule].body, path.back().calls);
    };
    enter(start);
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.calls.empty()) {
        colours[visit.rule] = Colour::done;
        path.pop_back();
        continue;
      }
      const uint32_t next = visit.calls.back();
      visit.calls.pop_back();
      if (colours[next] == Colour::open) {
        culprit_ = RuleId{next};
        return Problem{"the rule " + name_of(next) + " calls itself before it reads anything", ""};
      }
      if (colours[next] == Colour::white) enter(next);
    }
  }
  return std::nullopt;
}

// --- instructions --------------------------------------------------------------------------------

uint32_t GrammarCompiler::put(Grammar::Instruction instruction) {
  if (out_->code_.size() >= out_->limits_.states) {
    failure_ = "the grammar has more than " + std::to_string(out_->limits_.states) + " states";
    return kBack;
  }
  out_->code_.push_back(instruction);
  return static_cast<uint32_t>(out_->code_.size() - 1);
}

void GrammarCompiler::emit_rules(uint32_t root) {
  put({.op = Op::back});
  std::vector<bool> met(rules_.size(), false);
  met[root] = true;
  order_.push_back(root);
  for (size_t i = 0; i < order_.size() && failure_.empty(); ++i) {
    current_ = order_[i];
    CompiledRule& rule = rules_[current_];
    rule.begin = out_->states();
    rule.entry = emit(from_.rules_[current_].body, kBack);
    rule.end = out_->states();
    for (uint32_t at = rule.begin; at < rule.end; ++at) {
      const Grammar::Instruction& made = out_->code_[at];
      if (made.op != Op::call && made.op != Op::jump) continue;
      std::vector<uint32_t>& callers = rules_[made.a].callers;
      if (callers.empty() || callers.back() != current_) callers.push_back(current_);
      if (met[made.a]) continue;
      met[made.a] = true;
      order_.push_back(made.a);
    }
  }
}

// Emits instructions that match `node` and continue at `next`; returns the first of them.
uint32_t GrammarCompiler::emit(uint32_t index, uint32_t next) {
  if (!failure_.empty()) return kBack;
  const Node& node = from_.nodes_[index];
  switch (node.kind) {
    case Kind::nothing: return next;
    case Kind::never: return put({.op = Op::split});
    case Kind::text: return emit_text(node, next);
    case Kind::byte: return put({.op = Op::set, .a = next, .b = node.a});
    case Kind::repeat: return emit_repeat(node, next);
    case Kind::call: return emit_call(node.a, next);
    case Kind::sequence: {
      std::vector<uint32_t> children;
      for (uint32_t at = node.first; at != kNone; at = from_.nodes_[at].next)
        children.push_back(at);
      for (auto at = children.rbegin(); at != children.rend(); ++at) next = emit(*at, next);
      return next;
    }
    case Kind::either: break;
  }
  std::vector<uint32_t> targets;
  for (uint32_t at = node.first; at != kNone; at = from_.nodes_[at].next) {
    targets.push_back(emit(at, next));
  }
  const auto first = static_cast<uint32_t>(out_->targets_.size());
  out_->targets_.insert(out_->targets_.end(), targets.begin(), targets.end());
  return put({.op = Op::split, .a = first, .b = static_cast<uint32_t>(targets.size())});
}

uint32_t GrammarCompiler::emit_text(const Node& node, uint32_t next) {
  for (uint32_t i = node.b; i > 0; --i) {
    const auto byte = static_cast<uint8_t>(from_.texts_[node.a + i - 1]);
    next = put({.op = Op::byte, .small = byte, .a = next});
  }
  return next;
}

uint32_t GrammarCompiler::emit_call(uint32_t rule, uint32_t next) {
  if (next == kBack) return put({.op = Op::jump, .a = rule});
  return put({.op = Op::call, .a = rule, .b = next});
}

uint32_t GrammarCompiler::emit_repeat(const Node& node, uint32_t next) {
  const bool nullable = from_.nodes_[node.first].nullable;
  const uint32_t min = nullable ? 0 : node.a;
  const uint32_t max = node.b > Grammar::kMaxCount ? kUnbounded : node.b;
  if (min > Grammar::kMaxCount) failure_ = "a repetition has a minimum above 2^31";
  if (max == 1 || (min <= 1 && max == kUnbounded)) {
    // A way around it, or through it and back, without counting. The targets are filled in when the
    // body is known.
    const auto first = static_cast<uint32_t>(out_->targets_.size());
    out_->targets_.resize(first + 2, next);
    if (max == 1) {
      const uint32_t body = emit(node.first, next);
      out_->targets_[first] = body;
      return put({.op = Op::split, .a = first, .b = 2});
    }
    const uint32_t split = put({.op = Op::split, .a = first, .b = 2});
    const uint32_t body = emit(node.first, split);
    out_->targets_[first] = body;
    return min == 0 ? split : body;
  }
  const auto index = static_cast<uint32_t>(out_->loops_.size());
  out_->loops_.push_back({.min = min, .max = max, .exit = next, .may_read_nothing = nullable});
  const uint32_t again = put({.op = Op::again, .a = index});
  const uint32_t body = emit(node.first, again);
  out_->loops_[index].again = again;
  out_->loops_[index].body = body;
  return put({.op = Op::repeat, .a = index});
}

// --- depth ---------------------------------------------------------------------------------------

uint32_t GrammarCompiler::need_of(const Grammar::Instruction& made) const {
  const std::vector<uint16_t>& needs = out_->needs_;
  const auto exit_need = [&](const Grammar::Loop& loop) -> uint32_t {
    const uint32_t need = needs[loop.exit];
    return need == Grammar::kHopeless || need == 0 ? need : need - 1;
  };
  switch (made.op) {
    case Op::back: return 0;
    case Op::byte:
    case Op::set:
    case Op::jump: return needs[made.a];
    case Op::call: return std::max<uint32_t>(needs[made.a] + 1U, needs[made.b]);
    case Op::again: return exit_need(out_->loops_[made.a]);
    case Op::repeat: {
      const Grammar::Loop& loop = out_->loops_[made.a];
      return 1U + std::max(exit_need(loop), loop.min == 0 ? 0U : uint32_t{needs[loop.body]});
    }
    case Op::split: break;
  }
  uint32_t least = Grammar::kHopeless;
  for (uint32_t i = 0; i < made.b; ++i) {
    least = std::min<uint32_t>(least, needs[out_->targets_[made.a + i]]);
  }
  return least;
}

// Judges rules until nothing changes: judge(rule) returns whether its entry changed. Most need one
// visit, because the rules that they call come first. Returns false if it takes too long.
template <class Judge>
bool GrammarCompiler::settle_rules(Judge judge) {
  constexpr uint64_t kMaxWork = 400'000'000;
  uint64_t work = 0;
  std::deque<uint32_t> waiting(order_.rbegin(), order_.rend());
  std::vector<bool> waits(rules_.size(), true);
  while (!waiting.empty()) {
    const uint32_t index = waiting.front();
    waiting.pop_front();
    waits[index] = false;
    const CompiledRule& rule = rules_[index];
    work += rule.end - rule.begin + 1;
    if (work > kMaxWork) return false;
    if (!judge(rule)) continue;
    for (const uint32_t caller : rule.callers) {
      if (waits[caller]) continue;
      waits[caller] = true;
      waiting.push_back(caller);
    }
  }
  return true;
}

bool GrammarCompiler::find_needs() {
  std::vector<uint16_t>& needs = out_->needs_;
  needs.assign(out_->code_.size(), Grammar::kHopeless);
  needs[kBack] = 0;
  return settle_rules([&](const CompiledRule& rule) {
    const uint16_t before = needs[rule.entry];
    for (uint32_t at = rule.begin; at < rule.end; ++at) {
      const uint32_t need = need_of(out_->code_[at]);
      const bool fits = need <= out_->limits_.depth;
      needs[at] = fits ? static_cast<uint16_t>(need) : Grammar::kHopeless;
    }
    return needs[rule.entry] != before;
  });
}

// --- length of rounds ----------------------------------------------------------------------------

namespace {
constexpr uint64_t kManyBytes = 1'000'000;  // Larger lengths are not told apart.
}  // namespace

uint32_t GrammarCompiler::least_bytes_of(const Grammar::Instruction& made,
                                         const std::vector<uint32_t>& least) const {
  uint64_t bytes = kManyBytes;
  switch (made.op) {
    case Op::back:
    case Op::again: return 0;  // The end of a rule, or of a round.
    case Op::byte:
    case Op::set: bytes = uint64_t{least[made.a]} + 1; break;
    case Op::jump: bytes = least[made.a]; break;
    case Op::call: bytes = uint64_t{least[made.a]} + least[made.b]; break;
    case Op::repeat: {
      const Grammar::Loop& loop = out_->loops_[made.a];
      bytes = uint64_t{loop.min} * least[loop.body] + least[loop.exit];
      break;
    }
    case Op::split:
      for (uint32_t i = 0; i < made.b; ++i) {
        bytes = std::min<uint64_t>(bytes, least[out_->targets_[made.a + i]]);
      }
      break;
  }
  return static_cast<uint32_t>(std::min(bytes, kManyBytes));
}

bool GrammarCompiler::find_least_bytes() {
  if (out_->loops_.empty()) return true;
  std::vector<uint32_t> least(out_->code_.size(), kManyBytes);
  least[kBack] = 0;
  const bool settled = settle_rules([&](const CompiledRule& rule) {
    const uint32_t before = least[rule.entry];
    for (uint32_t at = rule.begin; at < rule.end; ++at) {
      least[at] = least_bytes_of(out_->code_[at], least);
    }
    return least[rule.entry] != before;
  });
  for (Grammar::Loop& loop : out_->loops_) loop.least_bytes = std::max(1U, least[loop.body]);
  return settled;
}

// --- bytes ---------------------------------------------------------------------------------------

void GrammarCompiler::number_bytes() {
  std::array<uint32_t, 256> kinds{};
  uint32_t count = 1;
  const auto refine = [&](const ByteSet& set) {
    std::map<std::pair<uint32_t, bool>, uint32_t> numbers;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const auto key = std::pair(kinds[byte], set.has(static_cast<uint8_t>(byte)));
      kinds[byte] = numbers.try_emplace(key, static_cast<uint32_t>(numbers.size())).first->second;
    }
    count = static_cast<uint32_t>(numbers.size());
  };
  ByteSet literal;
  std::vector<bool> used(out_->sets_.size(), false);
  for (const Grammar::Instruction& made : out_->code_) {
    if (made.op == Op::byte) literal.add(made.small);
    if (made.op == Op::set) used[made.b] = true;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<uint8_t>(byte);
    if (literal.has(value)) refine(ByteSet::range(value, value));
  }
  for (size_t i = 0; i < used.size() && count < 256; ++i) {
    if (used[i]) refine(out_->sets_[i]);
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    out_->kind_of_[byte] = static_cast<uint8_t>(kinds[byte]);
  }
  out_->byte_kinds_ = count;
}

}  // namespace stemma::constrain
