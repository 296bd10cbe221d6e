#include <algorithm>
#include <utility>

#include "jinja/print.h"
#include "jinja/renderer.h"

namespace stemma::jinja {

void fail_undefined(const Value& undefined) {
  const std::string* name = undefined.as_undefined().name;
  fail(name == nullptr ? "a value is undefined" : "'" + *name + "' is undefined");
}

Value Renderer::evaluate(const Expr& expr) {
  const Deeper deeper(*this);
  budget_.step();
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::constant: return expr.value;
    case ExprKind::name: return *lookup(expr.name);
    case ExprKind::list:
    case ExprKind::tuple: return evaluate_list(expr);
    case ExprKind::dict: return evaluate_dict(expr);
    case ExprKind::attribute: return attribute(evaluate(*expr.parts[0]), expr.text, expr.method);
    case ExprKind::item: {
      const Value object = evaluate(*expr.parts[0]);
      return item(object, evaluate(*expr.parts[1]));
    }
    case ExprKind::slice: return evaluate_slice(expr);
    case ExprKind::call: return evaluate_call(expr);
    case ExprKind::filter: return evaluate_filter(expr, nullptr);
    case ExprKind::test: return evaluate_test(expr);
    case ExprKind::unary: return evaluate_unary(expr);
    case ExprKind::binary: return evaluate_binary(expr);
    case ExprKind::compare: return evaluate_compare(expr);
    case ExprKind::concat: return evaluate_concat(expr);
    case ExprKind::condition:
      if (is_true(evaluate(*expr.parts[1]))) return evaluate(*expr.parts[0]);
      return expr.parts[2] != nullptr ? evaluate(*expr.parts[2]) : Value();
  }
  return {};
}

Value Renderer::evaluate_list(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.parts.size());
  for (const ExprPtr& part : expr.parts) items.push_back(evaluate(*part));
  return make_list(budget_, std::move(items),
                   expr.kind == ExprKind::tuple ? ListKind::tuple : ListKind::list);
}

Value Renderer::evaluate_dict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    Value key = evaluate(*expr.parts[i]);
    Value value = evaluate(*expr.parts[i + 1]);
    if (!Dict::can_be_key(key)) {
      fail("'" + std::string(type_name(key)) + "' cannot be the key of a dict");
    }
    dict.set(std::move(key), std::move(value));
  }
  return make_dict(budget_, std::move(dict));
}

Value Renderer::evaluate_slice(const Expr& expr) {
  const Value object = evaluate(*expr.parts[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    bounds[i] = expr.parts[i + 1] == nullptr ? Value::none() : evaluate(*expr.parts[i + 1]);
  }
  line_ = expr.line;
  return slice(*this, object, bounds[0], bounds[1], bounds[2]);
}

Arguments Renderer::arguments_of(const Expr& expr) {
  Arguments arguments;
  arguments.values.reserve(expr.parts.size() - 1);
  for (size_t i = 1; i < expr.parts.size(); ++i) {
    arguments.values.push_back(evaluate(*expr.parts[i]));
  }
  for (const auto& [name, part] : expr.keywords) {
    arguments.named.emplace_back(name, evaluate(*part));
  }
  return arguments;
}

// A method that is called directly needs no value of its own.
Value Renderer::evaluate_call(const Expr& expr) {
  const Expr& callee = *expr.parts[0];
  if (callee.kind == ExprKind::attribute) {
    const Value self = evaluate(*callee.parts[0]);
    if (callee.method != MethodId::none && has_method(self, callee.method)) {
      const Arguments arguments = arguments_of(expr);
      line_ = expr.line;
      return call_method(*this, self, callee.method, arguments);
    }
    if (self.is(Kind::object) && self.as_object()->kind == ObjectKind::loop) {
      Arguments arguments = arguments_of(expr);
      line_ = expr.line;
      return call_loop_method(static_cast<Loop&>(*self.as_object()), callee.text,
                              std::move(arguments));
    }
    const Value function = attribute(self, callee.text, callee.method);
    if (function.is(Kind::undefined)) {
      fail(ProblemKind::unsupported, "'" + std::string(type_name(self)) + "' has no method '" +
                                         callee.text + "', or it is not supported");
    }
    Arguments arguments = arguments_of(expr);
    line_ = expr.line;
    return call(function, std::move(arguments));
  }
  const Value function = evaluate(callee);
  Arguments arguments = arguments_of(expr);
  line_ = expr.line;
  return call(function, std::move(arguments));
}

Value Renderer::evaluate_filter(const Expr& expr, const Value* block) {
  const Deeper deeper(*this);
  const Value input =
      expr.parts[0] != nullptr
          ? (block != nullptr ? evaluate_filter(*expr.parts[0], block) : evaluate(*expr.parts[0]))
          : *block;
  if (expr.filter == nullptr) {
    line_ = expr.line;
    fail(ProblemKind::unsupported, "filter '" + expr.text + "' is not supported");
  }
  const Arguments arguments = arguments_of(expr);
  line_ = expr.line;
  return expr.filter(*this, input, arguments);
}

Value Renderer::evaluate_test(const Expr& expr) {
  const Value input = evaluate(*expr.parts[0]);
  if (expr.test == nullptr) {
    line_ = expr.line;
    fail(ProblemKind::unsupported, "test '" + expr.text + "' is not supported");
  }
  const Arguments arguments = arguments_of(expr);
  line_ = expr.line;
  return Value::boolean(expr.test(*this, input, arguments) != expr.negated);
}

Value Renderer::evaluate_unary(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  line_ = expr.line;
  if (expr.op == Op::invert) return Value::boolean(!is_true(value));
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (!is_number(value)) fail("'" + std::string(type_name(value)) + "' has no sign");
  if (expr.op == Op::negate) return negate(value);
  return value.is(Kind::real) ? value : Value::integer(integral(value));
}

Value Renderer::evaluate_binary(const Expr& expr) {
  Value left = evaluate(*expr.parts[0]);
  if (expr.op == Op::any) return is_true(left) ? left : evaluate(*expr.parts[1]);
  if (expr.op == Op::all) return is_true(left) ? evaluate(*expr.parts[1]) : left;
  const Value right = evaluate(*expr.parts[1]);
  line_ = expr.line;
  return calculate(*this, expr.op, left, right);
}

Value Renderer::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.parts[i + 1]);
    line_ = expr.line;
    if (!is_true(calculate(*this, expr.ops[i], left, right))) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Renderer::evaluate_concat(const Expr& expr) {
  TextBuilder out(budget_);
  for (const ExprPtr& part : expr.parts) print(budget_, out, evaluate(*part));
  return own_text(out);
}

// --- access --------------------------------------------------------------------------------------

Value Renderer::attribute(const Value& object, const std::string& name, MethodId method) {
  if (object.is(Kind::undefined)) fail_undefined(object);
  if (method != MethodId::none && has_method(object, method)) {
    budget_.bytes(sizeof(Method));
    return Value::of(std::make_shared<const Method>(Method{object, method}));
  }
  if (object.is(Kind::dict)) {
    const Value* value = object.as_dict().find(name);
    return value != nullptr ? *value : Value::undefined(&name);
  }
  if (object.is(Kind::object)) {
    if (object.as_object()->kind == ObjectKind::space) {
      const Value* value = static_cast<Namespace*>(object.as_object())->values.find(name);
      return value != nullptr ? *value : Value::undefined(&name);
    }
    if (object.as_object()->kind == ObjectKind::loop) {
      return loop_attribute(static_cast<Loop&>(*object.as_object()), name);
    }
  }
  return Value::undefined(&name);
}

Value Renderer::item(const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::undefined: fail_undefined(object);
    case Kind::dict: {
      const Value* value = object.as_dict().find(key);
      if (value != nullptr) return *value;
      break;
    }
    case Kind::list: {
      const List& list = object.as_list();
      if (!is_integral(key) || list.kind == ListKind::generator) break;
      int64_t index = integral(key);
      const auto size = static_cast<int64_t>(list.items.size());
      if (index < 0) index += size;
      return index >= 0 && index < size ? list.items[static_cast<size_t>(index)] : Value();
    }
    case Kind::string:
      if (is_integral(key)) {
        const int64_t index = integral(key);
        const Value end = index == -1 ? Value::none() : Value::integer(index + 1);
        const Value one = slice(*this, object, key, end, Value::none());
        return one.as_text().bytes.empty() ? Value() : one;
      }
      break;
    default: break;
  }
  if (!key.is(Kind::string)) return {};
  // x['strip'] means x.strip if nothing else matches.
  const std::string& name = key.as_text().bytes;
  const MethodId method = method_of(name);
  if (object.is(Kind::dict) && !has_method(object, method)) return {};
  Value value = attribute(object, name, method);
  return value.is(Kind::undefined) ? Value() : value;
}

Value Renderer::path(const Value& object, const Value& path) {
  if (!path.is(Kind::string)) return item(object, path);
  Value value = object;
  const std::string& names = path.as_text().bytes;
  for (size_t begin = 0; begin <= names.size();) {
    budget_.step();
    const size_t end = std::min(names.find('.', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const bool number =
        !name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    value = item(value, number ? Value::integer(std::stoll(name)) : make_text(budget_, name));
    begin = end + 1;
  }
  return value;
}

std::vector<Value> Renderer::items_of(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::undefined: return items;
    case Kind::list: {
      const List& list = value.as_list();
      budget_.steps(list.items.size());
      budget_.bytes(list.items.size() * sizeof(Value));
      if (list.kind == ListKind::generator && std::exchange(list.spent, true)) return items;
      return list.items;
    }
    case Kind::dict:
      budget_.steps(value.as_dict().size());
      budget_.bytes(value.as_dict().size() * sizeof(Value));
      for (const auto& [key, entry] : value.as_dict().entries()) items.push_back(key);
      return items;
    case Kind::string: {
      const TextPtr& text = value.text_ptr();
      for (size_t at = 0; at < text->bytes.size();) {
        const size_t end = at + character_at(text->bytes, at).bytes;
        budget_.step();
        budget_.bytes(sizeof(Value));
        items.push_back(cut(budget_, text, at, end));
        at = end;
      }
      return items;
    }
    default: fail("'" + std::string(type_name(value)) + "' cannot be iterated over");
  }
}

size_t Renderer::length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::dict: return value.as_dict().size();
    case Kind::string:
      budget_.read(value.as_text().bytes.size());
      return count_characters(value.as_text().bytes);
    case Kind::list:
      if (value.as_list().kind != ListKind::generator) return value.as_list().items.size();
      break;
    default: break;
  }
  fail("'" + std::string(type_name(value)) + "' has no length");
}

bool Renderer::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (item.is(Kind::undefined)) fail_undefined(item);
      if (!item.is(Kind::string)) {
        fail("'" + std::string(type_name(item)) + "' cannot be looked for in a string");
      }
      return find(budget_, container.as_text().view(), item.as_text().view()) !=
             std::string_view::npos;
    case Kind::dict:
      if (!can_be_hashed(budget_, item)) {
        fail("'" + std::string(type_name(item)) + "' cannot be the key of a dict");
      }
      return container.as_dict().find(item) != nullptr;
    case Kind::undefined: return false;
    case Kind::list: {
      const List& list = container.as_list();
      if (list.kind == ListKind::generator && std::exchange(list.spent, true)) return false;
      return std::any_of(list.items.begin(), list.items.end(), [&](const Value& one) {
        budget_.step();
        return equal(budget_, one, item);
      });
    }
    default: fail("'" + std::string(type_name(container)) + "' contains nothing");
  }
}

}  // namespace stemma::jinja
