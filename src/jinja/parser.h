// The parser, as one class over two files: expressions (parse_expressions.cc) and statements
// (parse_statements.cc). It descends like Jinja2's parser, so that the same texts mean the same.
// Threading: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jinja/ast.h"
#include "jinja/budget.h"
#include "jinja/lexer.h"

namespace stemma::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Ast run();

 private:
  // Nested brackets, blocks and prefix operators.
  static constexpr uint32_t kMaxNesting = 100;
  class Nest;

  // --- tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void next() {
    if (now().kind != TokenKind::end) ++at_;
  }
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);
  std::string expect_any_name(std::string_view what);
  [[noreturn]] void wrong(std::string message) const;
  [[noreturn]] void unexpected() const;
  std::string describe(const Token& token) const;

  // --- expressions
  ExprPtr make(ExprKind kind, uint32_t line, std::vector<ExprPtr> parts = {});
  void measure(Expr& expr) const;
  ExprPtr expression();  // With `if ... else`.
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter);
  ExprPtr primary();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr filter(ExprPtr input);
  ExprPtr test(ExprPtr input);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr number(const Token& token);
  // a, b, c without brackets; a single one is no tuple. `conditional`: `if ... else` may be inside.
  ExprPtr tuple(bool conditional, bool in_brackets = false);
  void arguments(Expr& call);
  bool ends_tuple(bool in_brackets) const;

  // --- statements
  using Ends = std::vector<std::string_view>;
  Body statements(std::string_view block, uint32_t opened, const Ends& ends);
  void statement(Body& body);
  Statement make(StatementKind kind) const;
  void end_tag();
  Body block(std::string_view block, uint32_t opened, std::string_view end);
  Statement set();
  Statement branch();
  Statement loop();
  Statement macro();
  Statement call();
  Statement filter_block();
  Statement with();
  Statement generation();
  void signature(Statement& macro);
  Body macro_body(Statement& macro, std::string_view block, std::string_view end);
  Target target(bool with_namespace, bool in_brackets = false);
  Target one_target(bool with_namespace);

  uint32_t intern(std::string_view name);
  void mention(std::string_view name) { ast_.mentioned.emplace(name); }
  void lacks(std::string_view what, std::string_view name, uint32_t line);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t nesting_ = 0;
  uint32_t loops_ = 0;  // Around the statement, within its macro.
  Ast ast_;
  std::unordered_map<std::string, uint32_t> numbers_;
  // What the macro being parsed mentions.
  bool saw_varargs_ = false;
  bool saw_kwargs_ = false;
  bool saw_caller_ = false;
};

class Parser::Nest {
 public:
  explicit Nest(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNesting) {
      throw Failure{ProblemKind::limit, "the template is nested too deep", parser_.now().line};
    }
  }
  ~Nest() { --parser_.nesting_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  Parser& parser_;
};

}  // namespace stemma::jinja
