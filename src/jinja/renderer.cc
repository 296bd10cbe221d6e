#include "jinja/renderer.h"

#include <utility>

#include "jinja/print.h"

namespace stemma::jinja {

Renderer::Renderer(const Ast& ast, const Value& variables, const RenderOptions& options)
    : ast_(ast), options_(options), budget_(options.limits) {
  if (!variables.is(Kind::dict)) fail("the variables of a template are a dict");
  if (variables.depth() > kMaxValueDepth) {
    fail(ProblemKind::limit, "the variables are nested too deep");
  }
  context_.reserve(ast.names.size());
  for (const std::string& name : ast.names) {
    if (const Value* given = variables.as_dict().find(name)) {
      context_.push_back(*given);
    } else if (Function* function = global_function(name)) {
      context_.push_back(Value::of(function));
    } else {
      context_.push_back(Value::undefined(&name));
    }
  }
  scope_ = new_scope(nullptr);
}

Text Renderer::run() {
  TextBuilder out(budget_);
  out_ = &out;
  execute(ast_.body);
  return out.take();
}

// --- variables -----------------------------------------------------------------------------------

Scope* Renderer::new_scope(Scope* parent) {
  Scope* scope = nullptr;
  if (free_scopes_.empty()) {
    budget_.bytes(sizeof(Scope));
    scope = &scopes_.emplace_back();
    free_scopes_.reserve(scopes_.size());  // leave() cannot fail.
  } else {
    scope = free_scopes_.back();
    free_scopes_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void Renderer::leave(Scope* scope) noexcept {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

template <class T, class... A>
T* Renderer::own(A&&... arguments) {
  budget_.bytes(sizeof(T) + sizeof(void*));
  auto object = std::make_unique<T>(std::forward<A>(arguments)...);
  T* raw = object.get();
  objects_.push_back(std::move(object));
  return raw;
}
template Namespace* Renderer::own<Namespace>();
template Joiner* Renderer::own<Joiner>();

const Value* Renderer::lookup(uint32_t name) const noexcept {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return &context_[name];
}

void Renderer::set_variable(uint32_t name, Value value) {
  for (auto& [key, old] : scope_->variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(name, std::move(value));
}

void Renderer::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) {
    const Value* space = lookup(target.name);
    if (!space->is(Kind::object) || space->as_object()->kind != ObjectKind::space) {
      fail("'" + ast_.names[target.name] + "' is no namespace, its attribute cannot be set");
    }
    budget_.bytes(sizeof(Dict::Entry));
    static_cast<Namespace*>(space->as_object())
        ->values.set(Value::string(target.attribute), std::move(value));
    return;
  }
  if (target.parts.empty()) return set_variable(target.name, std::move(value));
  const std::vector<Value> items = items_of(value);
  if (items.size() != target.parts.size()) {
    fail(std::to_string(items.size()) + " values cannot be unpacked into " +
         std::to_string(target.parts.size()) + " variables");
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

// --- output --------------------------------------------------------------------------------------

TextPtr Renderer::text_of(const Value& value) {
  if (value.is(Kind::string)) return value.text_ptr();
  TextBuilder out(budget_);
  print(budget_, out, value);
  return std::make_shared<const Text>(out.take());
}

Value Renderer::own_text(TextBuilder& text) {
  budget_.bytes(sizeof(Text));
  return Value::of(text.take());
}

void Renderer::emit(const Value& value) {
  print(budget_, *out_, value);
  if (at_top_ && out_->size() > options_.limits.output_bytes) {
    fail(ProblemKind::limit, "the text is too long");
  }
}

// --- statements ----------------------------------------------------------------------------------

Renderer::Flow Renderer::execute(const Body& body) {
  const Deeper deeper(*this);
  for (const Statement& statement : body) {
    const Flow flow = execute(statement);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Renderer::Flow Renderer::execute(const Statement& statement) {
  budget_.step();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::text:
      out_->add(statement.text);
      if (at_top_ && out_->size() > options_.limits.output_bytes) {
        fail(ProblemKind::limit, "the text is too long");
      }
      break;
    case StatementKind::print: emit(evaluate(*statement.expr)); break;
    case StatementKind::set: {
      Value value = evaluate(*statement.expr);
      line_ = statement.line;
      assign(statement.target, std::move(value));
      break;
    }
    case StatementKind::set_block: return set_block(statement);
    case StatementKind::branch: return branch(statement);
    case StatementKind::loop: return loop(statement);
    case StatementKind::macro: define_macro(statement); break;
    case StatementKind::call: call_block(statement); break;
    case StatementKind::filter: return filter_block(statement);
    case StatementKind::with: return with(statement);
    case StatementKind::scope: {
      const Inner inner(*this, scope_);
      return execute(statement.body());
    }
    case StatementKind::break_loop: return Flow::break_loop;
    case StatementKind::continue_loop: return Flow::continue_loop;
  }
  return Flow::next;
}

Renderer::Flow Renderer::branch(const Statement& statement) {
  for (size_t i = 0; i < statement.conditions.size(); ++i) {
    if (is_true(evaluate(*statement.conditions[i]))) return execute(statement.bodies[i]);
  }
  if (statement.bodies.size() > statement.conditions.size())
    return execute(statement.bodies.back());
  return Flow::next;
}

// Fetches the loop's next item, if there is one.
bool Renderer::pull(Loop& loop) {
  while (loop.next_source < loop.source.size()) {
    budget_.step();
    const Value& item = loop.source[loop.next_source++];
    if (loop.node->condition != nullptr) {
      const Deeper deeper(*this);
      const Inner inner(*this, loop.scope);
      assign(loop.node->target, item);
      if (!is_true(evaluate(*loop.node->condition))) continue;
    }
    loop.items.push_back(item);
    return true;
  }
  return false;
}

Renderer::Flow Renderer::loop(const Statement& statement) {
  const Value over = evaluate(*statement.expr);
  line_ = statement.line;
  Loop* loop = own<Loop>();
  loop->node = &statement;
  loop->scope = scope_;
  loop->source = items_of(over);
  budget_.bytes(loop->source.size() * 2 * sizeof(Value));
  const Value* outer = lookup(ast_.loop);
  if (outer->is(Kind::object) && outer->as_object()->kind == ObjectKind::loop) {
    loop->level = static_cast<Loop*>(outer->as_object())->level + 1;
  }
  Flow flow = Flow::next;
  bool any = false;
  {
    Inner inner(*this, scope_);
    for (; loop->index0 < loop->items.size() || pull(*loop); ++loop->index0) {
      if (any) inner.renew();
      any = true;
      line_ = statement.line;
      set_variable(ast_.loop, Value::of(loop));
      assign(statement.target, loop->items[loop->index0]);
      flow = execute(statement.body());
      if (flow == Flow::break_loop) break;
    }
  }
  if (any || statement.bodies.size() < 2) return Flow::next;
  const Inner inner(*this, scope_);
  return execute(statement.bodies[1]);
}

Renderer::Flow Renderer::set_block(const Statement& statement) {
  Value value;
  {
    Capture capture(*this);
    const Inner inner(*this, scope_);
    const Flow flow = execute(statement.body());
    if (flow != Flow::next) return flow;
    value = own_text(capture.text());
  }
  if (statement.expr != nullptr) value = evaluate_filter(*statement.expr, &value);
  line_ = statement.line;
  assign(statement.target, std::move(value));
  return Flow::next;
}

Renderer::Flow Renderer::filter_block(const Statement& statement) {
  Value value;
  {
    Capture capture(*this);
    const Inner inner(*this, scope_);
    const Flow flow = execute(statement.body());
    if (flow != Flow::next) return flow;
    value = own_text(capture.text());
  }
  emit(evaluate_filter(*statement.expr, &value));
  return Flow::next;
}

Renderer::Flow Renderer::with(const Statement& statement) {
  std::vector<Value> values;
  for (const ExprPtr& expr : statement.conditions) values.push_back(evaluate(*expr));
  const Inner inner(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], std::move(values[i]));
  return execute(statement.body());
}

void Renderer::define_macro(const Statement& statement) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
  }
  set_variable(statement.target.name, Value::of(own<Macro>(&statement, scope_)));
}

void Renderer::call_block(const Statement& statement) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
  }
  const Value caller = Value::of(own<Macro>(&statement, scope_));
  const Value callee = evaluate(*statement.expr->parts[0]);
  Arguments arguments = arguments_of(*statement.expr);
  arguments.named.emplace_back("caller", caller);
  emit(call(callee, std::move(arguments)));
}

}  // namespace stemma::jinja
