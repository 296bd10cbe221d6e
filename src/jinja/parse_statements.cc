#include <algorithm>
#include <utility>

#include "jinja/parser.h"

namespace stemma::jinja {

// --- tokens --------------------------------------------------------------------------------------

std::string Parser::describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::data: return "text";
    case TokenKind::print_begin: return "'{{'";
    case TokenKind::print_end: return "'}}'";
    case TokenKind::tag_begin: return "'{%'";
    case TokenKind::tag_end: return "'%}'";
    case TokenKind::string: return "a string";
    case TokenKind::end: return "end of template";
    default: return "'" + token.text + "'";
  }
}

void Parser::wrong(std::string message) const {
  throw Failure{ProblemKind::syntax, std::move(message), now().line};
}
void Parser::unexpected() const { wrong("unexpected " + describe(now())); }

bool Parser::skip_symbol(std::string_view symbol) {
  if (!now().symbol(symbol)) return false;
  next();
  return true;
}
bool Parser::skip_name(std::string_view name) {
  if (!now().name(name)) return false;
  next();
  return true;
}
void Parser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) {
    wrong("expected '" + std::string(symbol) + "', not " + describe(now()));
  }
}
void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) wrong("expected '" + std::string(name) + "', not " + describe(now()));
}
std::string Parser::expect_any_name(std::string_view what) {
  if (now().kind != TokenKind::name) {
    wrong("expected the name of " + std::string(what) + ", not " + describe(now()));
  }
  std::string name = now().text;
  next();
  return name;
}

uint32_t Parser::intern(std::string_view name) {
  const auto [at, is_new] =
      numbers_.try_emplace(std::string(name), static_cast<uint32_t>(ast_.names.size()));
  if (is_new) ast_.names.emplace_back(name);
  return at->second;
}

void Parser::lacks(std::string_view what, std::string_view name, uint32_t line) {
  ast_.unsupported.push_back({ProblemKind::unsupported, line,
                              std::string(what) + " '" + std::string(name) + "' is not supported"});
}

// --- blocks --------------------------------------------------------------------------------------

Ast Parser::run() {
  ast_.loop = intern("loop");
  ast_.caller = intern("caller");
  ast_.varargs = intern("varargs");
  ast_.kwargs = intern("kwargs");
  ast_.body = statements("", 0, {});
  return std::move(ast_);
}

Statement Parser::make(StatementKind kind) const {
  Statement statement;
  statement.kind = kind;
  statement.line = now().line;
  return statement;
}

void Parser::end_tag() {
  if (now().kind != TokenKind::tag_end) wrong("expected '%}', not " + describe(now()));
  next();
}

// Parses up to a tag that begins with one of `ends`; that name is then the current token.
Body Parser::statements(std::string_view block, uint32_t opened, const Ends& ends) {
  const Nest nest(*this);
  Body body;
  while (true) {
    switch (now().kind) {
      case TokenKind::end:
        if (!ends.empty()) {
          wrong("block '" + std::string(block) + "' of line " + std::to_string(opened) +
                " does not end");
        }
        return body;
      case TokenKind::data:
        body.push_back(make(StatementKind::text));
        body.back().text = now().text;
        next();
        break;
      case TokenKind::print_begin:
        body.push_back(make(StatementKind::print));
        next();
        body.back().expr = tuple(true);
        if (now().kind != TokenKind::print_end) wrong("expected '}}', not " + describe(now()));
        next();
        break;
      case TokenKind::tag_begin:
        next();
        if (now().kind == TokenKind::name &&
            std::find(ends.begin(), ends.end(), now().text) != ends.end()) {
          return body;
        }
        statement(body);
        break;
      default: unexpected();
    }
  }
}

Body Parser::block(std::string_view block, uint32_t opened, std::string_view end) {
  end_tag();
  Body body = statements(block, opened, {end});
  next();
  return body;
}

void Parser::statement(Body& body) {
  const Token token = now();
  if (token.kind != TokenKind::name) wrong("expected the name of a tag, not " + describe(token));
  if (token.text == "set") {
    body.push_back(set());
  } else if (token.text == "if") {
    body.push_back(branch());
  } else if (token.text == "for") {
    body.push_back(loop());
  } else if (token.text == "macro") {
    body.push_back(macro());
  } else if (token.text == "call") {
    body.push_back(call());
  } else if (token.text == "filter") {
    body.push_back(filter_block());
  } else if (token.text == "with") {
    body.push_back(with());
  } else if (token.text == "generation") {
    body.push_back(generation());
  } else if (token.text == "break" || token.text == "continue") {
    if (loops_ == 0) wrong("'" + token.text + "' outside of a loop");
    body.push_back(
        make(token.text == "break" ? StatementKind::break_loop : StatementKind::continue_loop));
    next();
  } else if (token.text == "print") {
    body.push_back(make(StatementKind::print));
    next();
    body.back().expr = tuple(true);
  } else if (token.text.starts_with("end") || token.text == "else" || token.text == "elif") {
    unexpected();
  } else {
    throw Failure{ProblemKind::unsupported, "tag '" + token.text + "' is not supported",
                  token.line};
  }
  end_tag();
}

Target Parser::one_target(bool with_namespace) {
  const Nest nest(*this);
  if (skip_symbol("(")) {
    Target inner = target(with_namespace, true);
    expect_symbol(")");
    return inner;
  }
  if (skip_symbol("[")) {
    Target inner = target(with_namespace, true);
    expect_symbol("]");
    return inner;
  }
  Target one;
  const std::string name = expect_any_name("a variable");
  for (const std::string_view taken : {"true", "false", "none", "True", "False", "None"}) {
    if (name == taken) wrong("cannot assign to '" + name + "'");
  }
  one.name = intern(name);
  if (with_namespace && skip_symbol(".")) {
    one.attribute = expect_any_name("an attribute");
    mention(name);
  }
  return one;
}

Target Parser::target(bool with_namespace, bool in_brackets) {
  Target first = one_target(with_namespace);
  if (!now().symbol(",")) return first;
  Target several;
  several.parts.push_back(std::move(first));
  while (skip_symbol(",")) {
    const bool ends = now().symbol("=") || now().name("in") || now().kind == TokenKind::tag_end ||
                      (in_brackets && (now().symbol(")") || now().symbol("]")));
    if (ends) break;
    several.parts.push_back(one_target(with_namespace));
  }
  return several;
}

Statement Parser::set() {
  Statement node = make(StatementKind::set);
  next();
  node.target = target(true);
  if (skip_symbol("=")) {
    node.expr = tuple(true);
    return node;
  }
  node.kind = StatementKind::set_block;
  if (skip_symbol("|")) {
    node.expr = filter(nullptr);
    while (skip_symbol("|")) node.expr = filter(std::move(node.expr));
  }
  node.bodies.push_back(block("set", node.line, "endset"));
  return node;
}

Statement Parser::branch() {
  Statement node = make(StatementKind::branch);
  while (true) {
    next();  // Skip `if` or `elif`.
    node.conditions.push_back(tuple(true));
    end_tag();
    node.bodies.push_back(statements("if", node.line, {"elif", "else", "endif"}));
    if (now().name("elif")) continue;
    if (skip_name("else")) {
      node.bodies.push_back(block("if", node.line, "endif"));
    } else {
      next();
    }
    return node;
  }
}

Statement Parser::loop() {
  Statement node = make(StatementKind::loop);
  next();
  node.target = target(false);
  expect_name("in");
  node.expr = tuple(false);
  if (skip_name("if")) node.condition = expression();
  if (now().name("recursive")) {
    throw Failure{ProblemKind::unsupported, "'recursive' loops are not supported", now().line};
  }
  end_tag();
  ++loops_;
  node.bodies.push_back(statements("for", node.line, {"else", "endfor"}));
  --loops_;
  if (skip_name("else")) {
    node.bodies.push_back(block("for", node.line, "endfor"));
  } else {
    next();
  }
  return node;
}

void Parser::signature(Statement& macro) {
  expect_symbol("(");
  while (!now().symbol(")")) {
    if (!macro.parameters.empty()) expect_symbol(",");
    if (now().symbol(")")) break;
    macro.parameters.push_back(intern(expect_any_name("a parameter")));
    if (skip_symbol("=")) {
      macro.defaults.push_back(expression());
    } else if (!macro.defaults.empty()) {
      wrong("a parameter without a default follows one with a default");
    }
  }
  expect_symbol(")");
}

Body Parser::macro_body(Statement& macro, std::string_view block_name, std::string_view end) {
  const bool varargs = std::exchange(saw_varargs_, false);
  const bool kwargs = std::exchange(saw_kwargs_, false);
  const bool caller = std::exchange(saw_caller_, false);
  const uint32_t loops = std::exchange(loops_, 0);
  Body body = block(block_name, macro.line, end);
  macro.takes_more_values = std::exchange(saw_varargs_, varargs);
  macro.takes_more_keywords = std::exchange(saw_kwargs_, kwargs);
  macro.takes_caller = std::exchange(saw_caller_, caller);
  loops_ = loops;
  return body;
}

Statement Parser::macro() {
  Statement node = make(StatementKind::macro);
  next();
  node.text = expect_any_name("a macro");
  node.target.name = intern(node.text);
  signature(node);
  node.bodies.push_back(macro_body(node, "macro", "endmacro"));
  return node;
}

Statement Parser::call() {
  Statement node = make(StatementKind::call);
  next();
  node.text = "caller";
  if (now().symbol("(")) signature(node);
  node.expr = expression();
  if (node.expr->kind != ExprKind::call) wrong("'call' needs a call");
  // The statement is the macro that the called macro knows as `caller`.
  node.bodies.push_back(macro_body(node, "call", "endcall"));
  return node;
}

Statement Parser::filter_block() {
  Statement node = make(StatementKind::filter);
  next();
  node.expr = filter(nullptr);
  while (skip_symbol("|")) node.expr = filter(std::move(node.expr));
  node.bodies.push_back(block("filter", node.line, "endfilter"));
  return node;
}

Statement Parser::with() {
  Statement node = make(StatementKind::with);
  next();
  while (now().kind != TokenKind::tag_end) {
    if (!node.targets.empty()) expect_symbol(",");
    node.targets.push_back(one_target(false));
    expect_symbol("=");
    node.conditions.push_back(expression());
  }
  node.bodies.push_back(block("with", node.line, "endwith"));
  return node;
}

// Marks text that an assistant generates, for training. The text is unchanged.
Statement Parser::generation() {
  Statement node = make(StatementKind::scope);
  next();
  node.bodies.push_back(block("generation", node.line, "endgeneration"));
  return node;
}

Ast parse_template(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace stemma::jinja
