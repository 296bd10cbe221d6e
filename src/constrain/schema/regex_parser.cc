#include <array>
#include <optional>

#include "constrain/schema/regex.h"

namespace stemma::constrain {
namespace {

constexpr uint32_t kMaxRegexNesting = 100;
constexpr uint32_t kMaxRegexRepeat = 1'000'000;
using Kind = RegexNode::Kind;

CodePointSet digits() { return CodePointSet::of({{'0', '9'}}); }
CodePointSet word_characters() {
  return CodePointSet::of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
}
CodePointSet spaces() {
  return CodePointSet::of({{0x09, 0x0D},
                           {0x20, 0x20},
                           {0xA0, 0xA0},
                           {0x1680, 0x1680},
                           {0x2000, 0x200A},
                           {0x2028, 0x2029},
                           {0x202F, 0x202F},
                           {0x205F, 0x205F},
                           {0x3000, 0x3000},
                           {0xFEFF, 0xFEFF}});
}
CodePointSet dot() {
  return CodePointSet::of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
}

// Parses a pattern from left to right. After an error every function returns at once.
class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : text_(pattern) {}

  std::variant<Regex, Problem> parse() {
    RegexNode whole = parse_either(0);
    if (!problem_ && at_ < text_.size()) fail("a ')' without its '('");
    Regex regex;
    if (!problem_) split_ways(std::move(whole), regex);
    if (problem_) return *problem_;
    return regex;
  }

 private:
  void fail(std::string message) {
    if (!problem_) problem_ = Problem{std::move(message), "character " + std::to_string(at_ + 1)};
    at_ = text_.size();
  }
  bool done() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }

  RegexNode parse_either(uint32_t depth) {
    RegexNode either{.kind = Kind::either};
    if (depth > kMaxRegexNesting) {
      fail("groups are nested more than " + std::to_string(kMaxRegexNesting) + " deep");
      return either;
    }
    do {
      either.children.push_back(parse_sequence(depth));
    } while (take("|"));
    if (either.children.size() > 1) return either;
    RegexNode only = std::move(either.children[0]);
    return only;
  }

  RegexNode parse_sequence(uint32_t depth) {
    RegexNode sequence{.kind = Kind::sequence};
    while (!done() && peek() != '|' && peek() != ')') {
      RegexNode part = parse_part(depth);
      if (problem_) break;
      sequence.children.push_back(parse_repeat(std::move(part)));
    }
    return sequence;
  }

  RegexNode parse_part(uint32_t depth) {
    if (take("^")) return {.kind = Kind::begin};
    if (take("$")) return {.kind = Kind::end};
    if (take("(")) return parse_group(depth);
    if (take("[")) return {.kind = Kind::set, .set = parse_class()};
    if (take(".")) return {.kind = Kind::set, .set = dot()};
    if (peek() == '*' || peek() == '+' || peek() == '?') {
      fail("nothing before the repetition");
      return {};
    }
    return {.kind = Kind::set, .set = parse_character(false)};
  }

  RegexNode parse_group(uint32_t depth) {
    if (take("?")) {
      if (peek() == '=' || peek() == '!' || (peek() == '<' && (peek(1) == '=' || peek(1) == '!'))) {
        fail("look-around is not supported");
        return {};
      }
      if (take("<") || take("P<")) {
        while (!done() && peek() != '>') ++at_;
        take(">");
      } else if (!take(":")) {
        fail("this kind of group is not supported");
        return {};
      }
    }
    RegexNode inside = parse_either(depth + 1);
    if (!problem_ && !take(")")) fail("a '(' without its ')'");
    return inside;
  }

  // Reads a number of a repetition in braces.
  std::optional<uint32_t> number() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    uint64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), kUnbounded);
    }
    if (value > kMaxRegexRepeat)
      fail("a repetition of more than " + std::to_string(kMaxRegexRepeat));
    return static_cast<uint32_t>(value);
  }

  // Reads the bounds of a repetition in braces; if there is no repetition, it does not move on.
  bool braces(uint32_t& min, uint32_t& max) {
    const size_t before = at_;
    take("{");
    const std::optional<uint32_t> least = number();
    const bool open = take(",");
    const std::optional<uint32_t> most = open ? number() : least;
    if (!least || !take("}")) {
      if (!problem_) at_ = before;  // A brace that begins no repetition stands for itself.
      return false;
    }
    min = *least;
    max = most ? *most : kUnbounded;
    if (min > max) fail("a repetition with its bounds the wrong way round");
    return !problem_;
  }

  RegexNode parse_repeat(RegexNode part) {
    uint32_t min = 0;
    uint32_t max = kUnbounded;
    if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!take("*") && (peek() != '{' || !braces(min, max))) {
      return part;
    }
    if (part.kind == Kind::begin || part.kind == Kind::end) {
      fail("a repeated anchor is not supported");
      return part;
    }
    take("?");  // Lazy and greedy repetitions match the same texts.
    RegexNode repeat{.kind = Kind::repeat, .min = min, .max = max};
    repeat.children.push_back(std::move(part));
    return repeat;
  }

  uint32_t hex(size_t count) {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i, ++at_) {
      const char c = peek();
      const bool digit = c >= '0' && c <= '9';
      const char lower = static_cast<char>(c | 0x20);
      if (!digit && (lower < 'a' || lower > 'f')) {
        fail("an escape without its hexadecimal digits");
        return 0;
      }
      value = value << 4U | static_cast<uint32_t>(digit ? c - '0' : lower - 'a' + 10);
    }
    return value;
  }

  uint32_t unicode_escape() {
    if (take("{")) {
      uint32_t value = 0;
      while (!done() && peek() != '}' && value <= CodePointSet::kLast) value = value << 4U | hex(1);
      if (!take("}")) fail("an escape without its '}'");
      return value;
    }
    const uint32_t high = hex(4);
    if (high < 0xD800 || high > 0xDBFF || !text_.substr(at_).starts_with("\\u")) return high;
    at_ += 2;
    const uint32_t low = hex(4);
    return 0x10000 + ((high - 0xD800) << 10U) + (low - 0xDC00);
  }

  CodePointSet one(uint32_t code_point) {
    CodePointSet set = CodePointSet::of({{code_point, code_point}});
    if (set.empty()) fail("an escape that is no character");
    return set;
  }

  // Reads one character, or the class that an escape stands for.
  CodePointSet parse_character(bool in_class) {
    if (!take("\\")) {
      const uint32_t code_point = next_code_point(text_, at_);
      return one(code_point);
    }
    if (done()) {
      fail("a '\\' at the end");
      return {};
    }
    const char c = text_[at_++];
    constexpr std::array<std::pair<char, char>, 6> kControls = {
        {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'0', '\0'}}};
    for (const auto& [letter, value] : kControls) {
      if (c == letter) return one(static_cast<uint8_t>(value));
    }
    switch (c) {
      case 'd': return digits();
      case 'D': return digits().complement();
      case 'w': return word_characters();
      case 'W': return word_characters().complement();
      case 's': return spaces();
      case 'S': return spaces().complement();
      case 'x': return one(hex(2));
      case 'u': return one(unicode_escape());
      case 'c': return one(static_cast<uint32_t>(done() ? 0 : text_[at_++]) & 31U);
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B': fail("word borders are not supported"); return {};
      case 'p':
      case 'P': fail("classes by Unicode property are not supported"); return {};
      case 'k': fail("back references are not supported"); return {};
      default: break;
    }
    if (c >= '1' && c <= '9') {
      fail("back references are not supported");
      return {};
    }
    --at_;
    return one(next_code_point(text_, at_));
  }

  CodePointSet parse_class() {
    CodePointSet set;
    const bool opposite = take("^");
    while (!problem_ && !done() && peek() != ']') {
      const CodePointSet first = parse_character(true);
      const bool single =
          first.ranges().size() == 1 && first.ranges()[0].first == first.ranges()[0].last;
      if (single && peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
        ++at_;
        const CodePointSet last = parse_character(true);
        if (problem_) break;
        const CodePointSet::Range end = last.ranges()[0];
        if (last.ranges().size() != 1 || end.first != end.last ||
            end.first < first.ranges()[0].first) {
          fail("a range with its ends the wrong way round");
          break;
        }
        set.add(first.ranges()[0].first, end.first);
      } else {
        set.add(first);
      }
    }
    if (!problem_ && !take("]")) fail("a '[' without its ']'");
    return opposite ? set.complement() : set;
  }

  // Splits the whole pattern into alternatives and removes their anchors.
  void split_ways(RegexNode whole, Regex& regex) {
    while (whole.kind == Kind::sequence && whole.children.size() == 1) {
      RegexNode only = std::move(whole.children[0]);
      whole = std::move(only);
    }
    if (whole.kind == Kind::either) {
      for (RegexNode& child : whole.children) split_ways(std::move(child), regex);
      return;
    }
    RegexWay way;
    if (whole.kind != Kind::sequence) {
      RegexNode around{.kind = Kind::sequence};
      around.children.push_back(std::move(whole));
      whole = std::move(around);
    }
    std::vector<RegexNode>& parts = whole.children;
    while (!parts.empty() && parts.front().kind == Kind::begin) {
      way.from_begin = true;
      parts.erase(parts.begin());
    }
    while (!parts.empty() && parts.back().kind == Kind::end) {
      way.to_end = true;
      parts.pop_back();
    }
    if (has_anchor(whole)) fail("an anchor inside the pattern is not supported");
    way.body = std::move(whole);
    regex.ways.push_back(std::move(way));
  }

  static bool has_anchor(const RegexNode& node) {
    if (node.kind == Kind::begin || node.kind == Kind::end) return true;
    for (const RegexNode& child : node.children) {
      if (has_anchor(child)) return true;
    }
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::optional<Problem> problem_;
};

}  // namespace

std::variant<Regex, Problem> parse_regex(std::string_view pattern) {
  return RegexParser(pattern).parse();
}

}  // namespace stemma::constrain
