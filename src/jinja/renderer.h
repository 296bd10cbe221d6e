// Renderer: one rendering of one template. It walks the tree and owns everything it makes.
//
// statements are in renderer.cc, expressions in evaluate.cc, arithmetic in operators.cc, calls in
// calls.cc; filters, tests and methods are functions over it.
//
// Invariant:  every node and every element costs a step; depth() counts what is on the stack.
// Threading:  one thread at a time.
// Ownership:  objects and scopes live until the rendering ends.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/arguments.h"
#include "jinja/ast.h"
#include "jinja/budget.h"
#include "jinja/object.h"
#include "jinja/template.h"

namespace stemma::jinja {

class Renderer {
 public:
  Renderer(const Ast& ast, const Value& variables, const RenderOptions& options);
  Text run();
  uint32_t line() const noexcept { return line_; }

  // --- what filters, tests and methods use
  Budget& budget() noexcept { return budget_; }
  TextPtr text_of(const Value& value);              // str()
  std::vector<Value> items_of(const Value& value);  // The items that a `for` would visit.
  size_t length_of(const Value& value);
  Value attribute(const Value& object, const std::string& name, MethodId method);
  Value item(const Value& object, const Value& key);
  // A path like 'a.b.0', as in the attribute= of filters.
  Value path(const Value& object, const Value& path);
  bool contains(const Value& container, const Value& item);
  Value call(const Value& callee, Arguments arguments);
  Value own_text(TextBuilder& text);

 private:
  enum class Flow : uint8_t { next, break_loop, continue_loop };
  class Deeper;
  class Inner;
  class Capture;

  // --- statements
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow branch(const Statement& statement);
  Flow loop(const Statement& statement);
  bool pull(Loop& loop);
  Flow set_block(const Statement& statement);
  Flow filter_block(const Statement& statement);
  Flow with(const Statement& statement);
  void call_block(const Statement& statement);
  void define_macro(const Statement& statement);
  void assign(const Target& target, Value value);
  void emit(const Value& value);

  // --- variables
  const Value* lookup(uint32_t name) const noexcept;
  void set_variable(uint32_t name, Value value);
  Scope* new_scope(Scope* parent);
  void leave(Scope* scope) noexcept;
  template <class T, class... A>
  T* own(A&&... arguments);

  // --- expressions
  Value evaluate(const Expr& expr);
  Value evaluate_list(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  Value evaluate_filter(const Expr& expr, const Value* block);
  Value evaluate_test(const Expr& expr);
  Value evaluate_binary(const Expr& expr);
  Value evaluate_unary(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Arguments arguments_of(const Expr& expr);

  // --- calls
  Value call_macro(const Macro& macro, Arguments arguments);
  Value call_function(FunctionId function, const Arguments& arguments);
  Value call_loop_method(Loop& loop, std::string_view name, Arguments arguments);
  Value loop_attribute(Loop& loop, std::string_view name);
  Value make_range(const Arguments& arguments);
  Value make_namespace(const Arguments& arguments);
  Value strftime_now(const Arguments& arguments);

  const Ast& ast_;
  const RenderOptions& options_;
  Budget budget_;
  std::vector<Value> context_;  // By name: a variable of the caller or a global function.
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  std::vector<std::unique_ptr<Object>> objects_;
  Scope* scope_ = nullptr;
  TextBuilder* out_ = nullptr;
  bool at_top_ = true;  // out_ is the output of the whole rendering.
  uint32_t depth_ = 0;
  uint32_t line_ = 0;
};

// --- operators.cc --------------------------------------------------------------------------------

Value calculate(Renderer& renderer, Op op, const Value& a, const Value& b);
Value negate(const Value& value);
Value slice(Renderer& renderer, const Value& object, const Value& start, const Value& stop,
            const Value& step);
// An index or count; fails if it is not an integer.
int64_t integer_of(const Value& value, std::string_view what);

// --- methods.cc ----------------------------------------------------------------------------------

Value call_method(Renderer& renderer, const Value& self, MethodId method,
                  const Arguments& arguments);

// --- format.cc -----------------------------------------------------------------------------------

// 'text' % values, and 'text'|format(values): %s %r %d %i %x %o %f %e %g %c.
Value format_percent(Renderer& renderer, const Text& format, const Value& values);
// 'text'.format(values): {}, {0}, {name}.
Value format_braces(Renderer& renderer, const Text& format, const Arguments& arguments);

class Renderer::Deeper {
 public:
  explicit Deeper(Renderer& renderer) : renderer_(renderer) {
    if (renderer_.depth_ >= renderer_.options_.limits.depth) {
      fail(ProblemKind::limit, "the template goes too deep");
    }
    ++renderer_.depth_;
  }
  ~Deeper() { --renderer_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Renderer& renderer_;
};

// Opens a new scope for its lifetime.
class Renderer::Inner {
 public:
  Inner(Renderer& renderer, Scope* parent)
      : renderer_(renderer), outer_(renderer.scope_), inner_(renderer.new_scope(parent)) {
    renderer_.scope_ = inner_;
  }
  ~Inner() {
    renderer_.scope_ = outer_;
    renderer_.leave(inner_);
  }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

  Scope* scope() const noexcept { return inner_; }
  // Prepares the scope for the next round of a loop.
  void renew() {
    if (inner_->captured) {
      renderer_.scope_ = inner_ = renderer_.new_scope(inner_->parent);
    } else {
      inner_->variables.clear();
    }
  }

 private:
  Renderer& renderer_;
  Scope* outer_;
  Scope* inner_;
};

// Collects what is printed during its lifetime in a separate text.
class Renderer::Capture {
 public:
  explicit Capture(Renderer& renderer)
      : renderer_(renderer),
        outer_(renderer.out_),
        was_top_(renderer.at_top_),
        text_(renderer.budget_) {
    renderer_.out_ = &text_;
    renderer_.at_top_ = false;
  }
  ~Capture() {
    renderer_.out_ = outer_;
    renderer_.at_top_ = was_top_;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  TextBuilder& text() noexcept { return text_; }

 private:
  Renderer& renderer_;
  TextBuilder* outer_;
  bool was_top_;
  TextBuilder text_;
};

}  // namespace stemma::jinja
