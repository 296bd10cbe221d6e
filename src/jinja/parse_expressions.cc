#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "jinja/filters.h"
#include "jinja/parser.h"
#include "jinja/tests.h"

namespace stemma::jinja {
namespace {

std::vector<ExprPtr> pack(ExprPtr a, ExprPtr b = nullptr) {
  std::vector<ExprPtr> parts;
  parts.push_back(std::move(a));
  if (b != nullptr) parts.push_back(std::move(b));
  return parts;
}

struct Named {
  std::string_view symbol;
  Op op;
};

const Op* find_op(std::span<const Named> ops, const Token& token) {
  if (token.kind != TokenKind::symbol) return nullptr;
  for (const Named& named : ops) {
    if (named.symbol == token.text) return &named.op;
  }
  return nullptr;
}

constexpr Named kComparisons[] = {{"==", Op::equal},  {"!=", Op::unequal},
                                  {"<", Op::less},    {"<=", Op::less_equal},
                                  {">", Op::greater}, {">=", Op::greater_equal}};
constexpr Named kSums[] = {{"+", Op::add}, {"-", Op::subtract}};
constexpr Named kProducts[] = {
    {"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}};

}  // namespace

void Parser::measure(Expr& expr) const {
  uint32_t depth = 0;
  for (const ExprPtr& part : expr.parts) {
    if (part != nullptr) depth = std::max(depth, part->depth);
  }
  for (const auto& [name, part] : expr.keywords) depth = std::max(depth, part->depth);
  expr.depth = depth + 1;
  if (expr.depth > kMaxNodeDepth) {
    throw Failure{ProblemKind::limit, "an expression is nested too deep", expr.line};
  }
}

ExprPtr Parser::make(ExprKind kind, uint32_t line, std::vector<ExprPtr> parts) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  expr->parts = std::move(parts);
  measure(*expr);
  return expr;
}

ExprPtr Parser::expression() {
  const Nest nest(*this);
  ExprPtr value = disjunction();
  while (now().name("if")) {
    const uint32_t line = now().line;
    next();
    auto parts = pack(std::move(value), disjunction());
    parts.push_back(skip_name("else") ? expression() : nullptr);
    value = make(ExprKind::condition, line, std::move(parts));
  }
  return value;
}

ExprPtr Parser::disjunction() {
  ExprPtr left = conjunction();
  while (now().name("or")) {
    const uint32_t line = now().line;
    next();
    left = make(ExprKind::binary, line, pack(std::move(left), conjunction()));
    left->op = Op::any;
  }
  return left;
}

ExprPtr Parser::conjunction() {
  ExprPtr left = negation();
  while (now().name("and")) {
    const uint32_t line = now().line;
    next();
    left = make(ExprKind::binary, line, pack(std::move(left), negation()));
    left->op = Op::all;
  }
  return left;
}

ExprPtr Parser::negation() {
  if (!now().name("not")) return comparison();
  const Nest nest(*this);
  const uint32_t line = now().line;
  next();
  ExprPtr node = make(ExprKind::unary, line, pack(negation()));
  node->op = Op::invert;
  return node;
}

ExprPtr Parser::comparison() {
  const uint32_t line = now().line;
  ExprPtr first = sum();
  std::vector<ExprPtr> parts;
  std::vector<Op> ops;
  while (true) {
    if (const Op* op = find_op(kComparisons, now())) {
      ops.push_back(*op);
      next();
    } else if (skip_name("in")) {
      ops.push_back(Op::in);
    } else if (now().name("not") && ahead().name("in")) {
      next();
      next();
      ops.push_back(Op::not_in);
    } else {
      break;
    }
    if (parts.empty()) parts.push_back(std::move(first));
    parts.push_back(sum());
  }
  if (ops.empty()) return first;
  ExprPtr node = make(ExprKind::compare, line, std::move(parts));
  node->ops = std::move(ops);
  return node;
}

ExprPtr Parser::sum() {
  ExprPtr left = concatenation();
  while (const Op* op = find_op(kSums, now())) {
    const uint32_t line = now().line;
    next();
    left = make(ExprKind::binary, line, pack(std::move(left), concatenation()));
    left->op = *op;
  }
  return left;
}

ExprPtr Parser::concatenation() {
  const uint32_t line = now().line;
  ExprPtr first = product();
  if (!now().symbol("~")) return first;
  auto parts = pack(std::move(first));
  while (skip_symbol("~")) parts.push_back(product());
  return make(ExprKind::concat, line, std::move(parts));
}

ExprPtr Parser::product() {
  ExprPtr left = power();
  while (const Op* op = find_op(kProducts, now())) {
    const uint32_t line = now().line;
    next();
    left = make(ExprKind::binary, line, pack(std::move(left), power()));
    left->op = *op;
  }
  return left;
}

ExprPtr Parser::power() {
  ExprPtr left = unary(true);
  while (now().symbol("**")) {
    const uint32_t line = now().line;
    next();
    left = make(ExprKind::binary, line, pack(std::move(left), unary(true)));
    left->op = Op::power;
  }
  return left;
}

ExprPtr Parser::unary(bool with_filter) {
  const Nest nest(*this);
  const uint32_t line = now().line;
  ExprPtr node;
  if (now().symbol("-") || now().symbol("+")) {
    const Op op = now().symbol("-") ? Op::negate : Op::plus;
    next();
    node = make(ExprKind::unary, line, pack(unary(false)));
    node->op = op;
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::number(const Token& token) {
  ExprPtr node = make(ExprKind::constant, token.line);
  if (token.kind == TokenKind::real) {
    node->value = Value::real(std::strtod(token.text.c_str(), nullptr));
    return node;
  }
  std::string digits = token.text;
  std::erase(digits, '_');
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (base != 10) digits.erase(0, 2);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error == std::errc::result_out_of_range) wrong("integer " + token.text + " is too large");
  if (error != std::errc() || end != digits.data() + digits.size()) {
    wrong("'" + token.text + "' is no number");
  }
  node->value = Value::integer(value);
  return node;
}

ExprPtr Parser::primary() {
  const Token token = now();
  switch (token.kind) {
    case TokenKind::name: {
      next();
      if (token.text == "true" || token.text == "True" || token.text == "false" ||
          token.text == "False") {
        ExprPtr node = make(ExprKind::constant, token.line);
        node->value = Value::boolean(token.text == "true" || token.text == "True");
        return node;
      }
      if (token.text == "none" || token.text == "None") {
        ExprPtr node = make(ExprKind::constant, token.line);
        node->value = Value::none();
        return node;
      }
      ExprPtr node = make(ExprKind::name, token.line);
      node->name = intern(token.text);
      mention(token.text);
      saw_varargs_ |= token.text == "varargs";
      saw_kwargs_ |= token.text == "kwargs";
      saw_caller_ |= token.text == "caller";
      return node;
    }
    case TokenKind::string: {
      std::string text;
      for (; now().kind == TokenKind::string; next()) text += now().text;
      ExprPtr node = make(ExprKind::constant, token.line);
      node->value = Value::string(std::move(text));
      return node;
    }
    case TokenKind::integer:
    case TokenKind::real: next(); return number(token);
    default: break;
  }
  if (skip_symbol("(")) {
    ExprPtr node = tuple(true, true);
    expect_symbol(")");
    return node;
  }
  if (token.symbol("[")) return list();
  if (token.symbol("{")) return dict();
  unexpected();
}

ExprPtr Parser::list() {
  const uint32_t line = now().line;
  expect_symbol("[");
  std::vector<ExprPtr> items;
  while (!now().symbol("]")) {
    if (!items.empty()) expect_symbol(",");
    if (now().symbol("]")) break;
    items.push_back(expression());
  }
  expect_symbol("]");
  return make(ExprKind::list, line, std::move(items));
}

ExprPtr Parser::dict() {
  const uint32_t line = now().line;
  expect_symbol("{");
  std::vector<ExprPtr> items;
  while (!now().symbol("}")) {
    if (!items.empty()) expect_symbol(",");
    if (now().symbol("}")) break;
    items.push_back(expression());
    expect_symbol(":");
    items.push_back(expression());
  }
  expect_symbol("}");
  return make(ExprKind::dict, line, std::move(items));
}

bool Parser::ends_tuple(bool in_brackets) const {
  return now().kind == TokenKind::print_end || now().kind == TokenKind::tag_end ||
         (in_brackets && now().symbol(")"));
}

ExprPtr Parser::tuple(bool conditional, bool in_brackets) {
  const uint32_t line = now().line;
  std::vector<ExprPtr> items;
  bool comma = false;
  while (true) {
    if (!items.empty()) {
      if (!skip_symbol(",")) break;
      comma = true;
    }
    if (ends_tuple(in_brackets)) break;
    items.push_back(conditional ? expression() : disjunction());
  }
  if (items.size() == 1 && !comma) return std::move(items[0]);
  if (items.empty() && !in_brackets) unexpected();
  return make(ExprKind::tuple, line, std::move(items));
}

ExprPtr Parser::postfix(ExprPtr node) {
  while (true) {
    if (now().symbol(".") || now().symbol("[")) {
      node = subscript(std::move(node));
    } else if (now().symbol("(")) {
      ExprPtr call = make(ExprKind::call, now().line, pack(std::move(node)));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr node) {
  while (true) {
    if (now().symbol("|")) {
      next();
      node = filter(std::move(node));
    } else if (now().name("is")) {
      next();
      node = test(std::move(node));
    } else if (now().symbol("(")) {
      ExprPtr call = make(ExprKind::call, now().line, pack(std::move(node)));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr node) {
  const uint32_t line = now().line;
  if (skip_symbol(".")) {
    const Token token = now();
    if (token.kind == TokenKind::integer) {
      next();
      return make(ExprKind::item, line, pack(std::move(node), number(token)));
    }
    ExprPtr attribute = make(ExprKind::attribute, line, pack(std::move(node)));
    attribute->text = expect_any_name("an attribute");
    attribute->method = method_of(attribute->text);
    mention(attribute->text);
    return attribute;
  }
  expect_symbol("[");
  auto parts = pack(std::move(node));
  const bool leading_colon = now().symbol(":");
  parts.push_back(leading_colon ? nullptr : tuple(true));
  if (!leading_colon && !now().symbol(":")) {
    expect_symbol("]");
    const Value& key = parts[1]->value;
    if (parts[1]->kind == ExprKind::constant && key.is(Kind::string)) mention(key.as_text().view());
    return make(ExprKind::item, line, std::move(parts));
  }
  while (parts.size() < 4 && skip_symbol(":")) {
    const bool empty = now().symbol(":") || now().symbol("]");
    parts.push_back(empty ? nullptr : expression());
  }
  expect_symbol("]");
  parts.resize(4);
  return make(ExprKind::slice, line, std::move(parts));
}

void Parser::arguments(Expr& call) {
  expect_symbol("(");
  bool first = true;
  while (!now().symbol(")")) {
    if (!first) expect_symbol(",");
    if (now().symbol(")")) break;
    first = false;
    if (now().symbol("*") || now().symbol("**")) {
      throw Failure{ProblemKind::unsupported,
                    "'" + now().text + "' before an argument is not supported", now().line};
    }
    if (now().kind == TokenKind::name && ahead().symbol("=")) {
      std::string name = now().text;
      next();
      next();
      call.keywords.emplace_back(std::move(name), expression());
    } else {
      if (!call.keywords.empty()) wrong("an argument without a name follows one with a name");
      call.parts.push_back(expression());
      const Value& value = call.parts.back()->value;
      if (call.parts.back()->kind == ExprKind::constant && value.is(Kind::string) &&
          value.as_text().bytes.size() < 64) {
        mention(value.as_text().view());  // message.get('tool_calls')
      }
    }
  }
  expect_symbol(")");
  measure(call);
}

ExprPtr Parser::filter(ExprPtr input) {
  std::vector<ExprPtr> parts;
  parts.push_back(std::move(input));
  ExprPtr node = make(ExprKind::filter, now().line, std::move(parts));
  node->text = expect_any_name("a filter");
  while (skip_symbol(".")) node->text += "." + expect_any_name("a filter");
  if (now().symbol("(")) arguments(*node);
  node->filter = find_filter(node->text);
  if (node->filter == nullptr) lacks("filter", node->text, node->line);
  return node;
}

ExprPtr Parser::test(ExprPtr input) {
  ExprPtr node = make(ExprKind::test, now().line, pack(std::move(input)));
  node->negated = skip_name("not");
  node->text = expect_any_name("a test");
  while (skip_symbol(".")) node->text += "." + expect_any_name("a test");
  const Token& token = now();
  const bool keyword = token.name("else") || token.name("or") || token.name("and") ||
                       token.name("if") || token.name("is") || token.name("in") ||
                       token.name("not");
  if (token.symbol("(")) {
    arguments(*node);
  } else if (!keyword && (token.kind == TokenKind::name || token.kind == TokenKind::string ||
                          token.kind == TokenKind::integer || token.kind == TokenKind::real ||
                          token.symbol("[") || token.symbol("{"))) {
    const Nest nest(*this);
    node->parts.push_back(postfix(primary()));
    measure(*node);
  }
  node->test = find_test(node->text);
  if (node->test == nullptr) lacks("test", node->text, node->line);
  return node;
}

}  // namespace stemma::jinja
