#include "constrain/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "constrain/code_points.h"
#include "constrain/grammar_builder.h"

namespace stemma::constrain {
namespace {

constexpr uint32_t kMaxGbnfNesting = 200;
constexpr uint64_t kMaxGbnfRepeat = 10'000'000;

class GbnfParser {
 public:
  GbnfParser(std::string_view text, GrammarBuilder& build) : text_(text), build_(build) {}

  // Adds the rule `root` to the builder's grammar.
  std::variant<RuleId, Problem> add() {
    skip(true);
    if (done()) fail("there is no rule");
    while (!done() && !problem_) parse_rule();
    const auto root = rules_.find("root");
    if (!problem_ && root == rules_.end()) fail("there is no rule called 'root'");
    if (problem_) return *problem_;
    return root->second.id;
  }

  std::variant<GrammarPtr, Problem> parse() {
    const auto root = add();
    if (const auto* problem = std::get_if<Problem>(&root)) return *problem;
    std::optional<RuleId> culprit;
    auto made = build_.finish(std::get<RuleId>(root), &culprit);
    if (auto* problem = std::get_if<Problem>(&made); problem != nullptr && culprit) {
      for (const auto& [name, rule] : rules_) {
        if (rule.id == *culprit) problem->where = place(rule.at);
      }
    }
    return made;
  }

 private:
  struct Rule {
    RuleId id{};
    size_t at = 0;  // Where the rule is defined, or first used.
    bool defined = false;
  };

  std::string place(size_t at) const {
    const std::string_view before = text_.substr(0, at);
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return "line " + std::to_string(line + 1) + ", column " + std::to_string(at - begin + 1);
  }
  void fail(std::string message) { fail_at(std::move(message), at_); }
  void fail_at(std::string message, size_t at) {
    if (!problem_) problem_ = Problem{std::move(message), place(std::min(at, text_.size()))};
    at_ = text_.size();
  }
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  bool take(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  // Skips blanks and comments; with `lines` also line ends.
  void skip(bool lines) {
    while (!done()) {
      const char c = peek();
      if (c == '#') {
        while (!done() && peek() != '\n' && peek() != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  std::string name() {
    const size_t begin = at_;
    while (!done() && is_name(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  Rule& rule(const std::string& called, size_t at) {
    const auto [found, made] = rules_.try_emplace(called);
    if (made) found->second = {build_.rule(called.substr(0, 100)), at, false};
    return found->second;
  }

  void parse_rule() {
    const size_t begin = at_;
    const std::string called = name();
    if (called.empty()) return fail("a rule begins with its name");
    skip(false);
    if (!take("::=")) return fail("'::=' is missing after the name of a rule");
    Rule& defined = rule(called, begin);
    if (defined.defined) return fail_at("the rule '" + called + "' is defined twice", begin);
    defined.defined = true;
    defined.at = begin;
    const RuleId id = defined.id;
    skip(true);
    const Expr body = parse_either(0);
    if (problem_) return;
    build_.define(id, body);
    if (!done() && peek() != '\n' && peek() != '\r') return fail("this is not expected here");
    skip(true);
  }

  Expr parse_either(uint32_t depth) {
    std::vector<Expr> ways;
    while (true) {
      ways.push_back(parse_sequence(depth));
      if (problem_ || !take("|")) break;
      skip(true);
    }
    return build_.either(ways);
  }

  Expr parse_sequence(uint32_t depth) {
    std::vector<Expr> parts;
    while (!problem_ && !done()) {
      const std::optional<Expr> part = parse_part(depth);
      if (!part) break;
      skip(depth > 0);
      Expr whole = *part;
      while (!problem_) {
        const std::optional<Expr> more = parse_repeat(whole);
        if (!more) break;
        whole = *more;
        skip(depth > 0);
      }
      parts.push_back(whole);
    }
    return build_.sequence(parts);
  }

  // Reads a literal, a class, a group, any character, or a call; nothing if something else follows.
  std::optional<Expr> parse_part(uint32_t depth) {
    if (take("\"")) return parse_literal();
    if (take("[")) return one_of(build_, parse_class());
    if (take(".")) return one_of(build_, CodePointSet::all());
    if (peek() == '<' || peek() == '!') {
      fail("tokens are not supported: a grammar knows bytes only");
      return std::nullopt;
    }
    if (peek() == '(') {
      if (depth >= kMaxGbnfNesting) {
        fail("groups are nested more than " + std::to_string(kMaxGbnfNesting) + " deep");
        return std::nullopt;
      }
      ++at_;
      skip(true);
      const Expr inside = parse_either(depth + 1);
      skip(true);
      if (!problem_ && !take(")")) fail("a '(' without its ')'");
      return inside;
    }
    if (!is_name(peek())) return std::nullopt;
    const size_t begin = at_;
    return build_.call(rule(name(), begin).id);
  }

  std::optional<Expr> parse_repeat(Expr part) {
    if (take("*")) return build_.repeat(part, 0, kUnbounded);
    if (take("+")) return build_.repeat(part, 1, kUnbounded);
    if (take("?")) return build_.repeat(part, 0, 1);
    if (!take("{")) return std::nullopt;
    const auto blank = [&] {
      while (peek() == ' ' || peek() == '\t') ++at_;
    };
    blank();
    const std::optional<uint32_t> min = number();
    blank();
    std::optional<uint32_t> max = min;
    if (take(",")) {
      blank();
      max = number();
      if (!max) max = kUnbounded;
      blank();
    }
    if (!problem_ && (!max || !take("}"))) fail("a repetition is {m}, {m,} or {m,n}");
    if (!problem_ && min.value_or(0) > *max)
      fail("a repetition has its bounds the wrong way round");
    if (problem_) return std::nullopt;
    return build_.repeat(part, min.value_or(0), *max);
  }

  std::optional<uint32_t> number() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    uint64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), kUnbounded);
    }
    if (value > kMaxGbnfRepeat) fail("a repetition of more than " + std::to_string(kMaxGbnfRepeat));
    return static_cast<uint32_t>(value);
  }

  Expr parse_literal() {
    const size_t begin = at_;
    std::string bytes;
    while (!problem_ && !done() && peek() != '"') {
      if (peek() == '\n') break;
      append_utf8(bytes, character());
    }
    if (!problem_ && !take("\"")) fail_at("a literal without its end", begin - 1);
    return build_.text(bytes);
  }

  CodePointSet parse_class() {
    const size_t begin = at_;
    CodePointSet set;
    const bool opposite = take("^");
    while (!problem_ && !done() && peek() != ']') {
      const uint32_t first = character();
      uint32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
      }
      if (!problem_ && last < first) fail("a range with its ends the wrong way round");
      set.add(first, last);
    }
    if (!problem_ && !take("]")) fail_at("a '[' without its ']'", begin - 1);
    return opposite ? set.complement() : set;
  }

  // One character of a literal or a class, which may be an escape.
  uint32_t character() {
    const size_t begin = at_;
    uint32_t value = 0;
    if (!take("\\")) {
      value = next_code_point(text_, at_);
      if (value > CodePointSet::kLast) fail("this is not UTF-8");
      return value;
    }
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case '\\':
      case '"':
      case '[':
      case ']': return static_cast<uint8_t>(c);
      case 'x': value = hex(2); break;
      case 'u': value = hex(4); break;
      case 'U': value = hex(8); break;
      default: fail_at("this escape is not known", begin); return 0;
    }
    if (CodePointSet::of({{value, value}}).empty()) fail_at("this escape is no character", begin);
    return value;
  }

  uint32_t hex(uint32_t digits) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      const bool digit = c >= '0' && c <= '9';
      if (!digit && (lower < 'a' || lower > 'f')) {
        fail("an escape without its hexadecimal digits");
        return 0;
      }
      value = value << 4U | static_cast<uint32_t>(digit ? c - '0' : lower - 'a' + 10);
    }
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  GrammarBuilder& build_;
  std::map<std::string, Rule> rules_;
  std::optional<Problem> problem_;
};

}  // namespace

std::variant<GrammarPtr, Problem> compile_gbnf(std::string_view text, const GbnfOptions& options) {
  if (text.size() > options.max_bytes) {
    return Problem{"the grammar has more than " + std::to_string(options.max_bytes) + " bytes", ""};
  }
  GrammarBuilder build(options.limits);
  return GbnfParser(text, build).parse();
}

std::variant<RuleId, Problem> add_gbnf(GrammarBuilder& build, std::string_view text,
                                       const GbnfOptions& options) {
  // Compile it alone first: then its errors have a line and a column.
  auto alone = compile_gbnf(text, options);
  if (auto* problem = std::get_if<Problem>(&alone)) return std::move(*problem);
  return GbnfParser(text, build).add();
}

}  // namespace stemma::constrain
