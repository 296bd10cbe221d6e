#include <array>
#include <ctime>
#include <utility>

#include "jinja/renderer.h"

namespace stemma::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // The same limit as Jinja2's sandbox.

}  // namespace

std::string_view Object::type_name() const noexcept {
  switch (kind) {
    case ObjectKind::function: return "function";
    case ObjectKind::joiner: return "Joiner";
    case ObjectKind::loop: return "LoopContext";
    case ObjectKind::macro: return "Macro";
    case ObjectKind::space: return "Namespace";
  }
  return "?";
}

Function* global_function(std::string_view name) noexcept {
  static std::array<Function, 6> functions = {{{FunctionId::dict, "dict"},
                                               {FunctionId::joiner, "joiner"},
                                               {FunctionId::make_namespace, "namespace"},
                                               {FunctionId::raise_exception, "raise_exception"},
                                               {FunctionId::range, "range"},
                                               {FunctionId::strftime_now, "strftime_now"}}};
  for (Function& function : functions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

Value Renderer::call(const Value& callee, Arguments arguments) {
  const Deeper deeper(*this);
  if (callee.is(Kind::undefined)) fail_undefined(callee);
  if (callee.is(Kind::method)) {
    return call_method(*this, callee.as_method().self, callee.as_method().id, arguments);
  }
  if (callee.is(Kind::object)) {
    Object* object = callee.as_object();
    switch (object->kind) {
      case ObjectKind::function:
        return call_function(static_cast<Function*>(object)->id, arguments);
      case ObjectKind::macro: return call_macro(static_cast<Macro&>(*object), std::move(arguments));
      case ObjectKind::joiner: {
        auto& joiner = static_cast<Joiner&>(*object);
        return std::exchange(joiner.used, true) ? joiner.separator : make_text(budget_, "");
      }
      default: break;
    }
  }
  fail("'" + std::string(type_name(callee)) + "' cannot be called");
}

Value Renderer::call_macro(const Macro& macro, Arguments arguments) {
  const Statement& node = *macro.node;
  const size_t count = node.parameters.size();
  const Inner inner(*this, macro.scope);
  if (arguments.values.size() > count && !node.takes_more_values) {
    fail("macro '" + node.text + "' takes at most " + std::to_string(count) + " arguments");
  }
  const size_t first_default = count - node.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = ast_.names[node.parameters[i]];
    const Value* given = arguments.get(i, name);
    if (i < arguments.values.size() && arguments.get(name) != nullptr) {
      fail("macro '" + node.text + "' is given '" + name + "' twice");
    }
    if (given != nullptr) {
      set_variable(node.parameters[i], *given);
    } else if (i >= first_default) {
      set_variable(node.parameters[i], evaluate(*node.defaults[i - first_default]));
    } else {
      set_variable(node.parameters[i], Value::undefined(&name));
    }
  }
  Dict more;
  for (const auto& [name, value] : arguments.named) {
    bool known = false;
    for (const uint32_t parameter : node.parameters) known |= ast_.names[parameter] == name;
    if (known) continue;
    if (name == "caller" && node.takes_caller) {
      set_variable(ast_.caller, value);
    } else if (node.takes_more_keywords) {
      more.set(make_text(budget_, name), value);
    } else {
      fail("macro '" + node.text + "' has no argument '" + std::string(name) + "'");
    }
  }
  if (node.takes_more_values) {
    std::vector<Value> rest;
    for (size_t i = count; i < arguments.values.size(); ++i) rest.push_back(arguments.values[i]);
    set_variable(ast_.varargs, make_list(budget_, std::move(rest), ListKind::tuple));
  }
  if (node.takes_more_keywords) set_variable(ast_.kwargs, make_dict(budget_, std::move(more)));
  const uint32_t line = line_;
  Capture capture(*this);
  execute(node.body());
  line_ = line;
  return own_text(capture.text());
}

Value Renderer::call_function(FunctionId function, const Arguments& arguments) {
  switch (function) {
    case FunctionId::raise_exception: {
      const TextPtr message = text_of(arguments.need(0, "message"));
      fail(ProblemKind::raised, message->bytes);
    }
    case FunctionId::range: return make_range(arguments);
    case FunctionId::make_namespace: return make_namespace(arguments);
    case FunctionId::strftime_now: return strftime_now(arguments);
    case FunctionId::joiner: {
      arguments.only({"sep"});
      auto* joiner = own<Joiner>();
      const Value* separator = arguments.get(0, "sep");
      joiner->separator = separator != nullptr ? *separator : make_text(budget_, ", ");
      return Value::of(joiner);
    }
    case FunctionId::dict: {
      Namespace* space = static_cast<Namespace*>(make_namespace(arguments).as_object());
      return make_dict(budget_, space->values);
    }
  }
  return {};
}

Value Renderer::make_namespace(const Arguments& arguments) {
  auto* space = own<Namespace>();
  if (arguments.values.size() > 1) fail("at most one argument without a name is taken");
  if (!arguments.values.empty()) {
    const Value& from = arguments.values[0];
    if (from.is(Kind::dict)) {
      budget_.bytes(from.as_dict().size() * sizeof(Dict::Entry));
      budget_.steps(from.as_dict().size());
      for (const auto& [key, value] : from.as_dict().entries()) space->values.set(key, value);
    } else {
      for (const Value& pair : items_of(from)) {
        const std::vector<Value> two = items_of(pair);
        if (two.size() != 2 || !Dict::can_be_key(two[0])) fail("a dict is made of pairs");
        space->values.set(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    budget_.bytes(sizeof(Dict::Entry));
    space->values.set(make_text(budget_, name), value);
  }
  return Value::of(space);
}

Value Renderer::make_range(const Arguments& arguments) {
  const std::vector<Value>& values = arguments.values;
  if (values.empty() || values.size() > 3 || !arguments.named.empty()) {
    fail("'range' takes one to three integers");
  }
  const int64_t first = integer_of(values[0], "the bound of a range");
  const int64_t start = values.size() > 1 ? first : 0;
  const int64_t stop = values.size() > 1 ? integer_of(values[1], "the bound of a range") : first;
  const int64_t step = values.size() > 2 ? integer_of(values[2], "the step of a range") : 1;
  if (step == 0) fail("the step of a range is zero");
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (items.size() == kMaxRange) fail(ProblemKind::limit, "a range is too large");
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_list(budget_, std::move(items));
}

Value Renderer::strftime_now(const Arguments& arguments) {
  arguments.only({"format"});
  const TextPtr format = text_of(arguments.need(0, "format"));
  if (!options_.now) fail("'strftime_now' is called and nobody knows the time");
  // One directive at a time, so that the rest of the format keeps its origin.
  TextBuilder out(budget_);
  const std::string& bytes = format->bytes;
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.add(*format, at, percent);
    if (percent + 1 >= bytes.size()) {
      out.add(*format, percent, bytes.size());
      break;
    }
    size_t end = percent + 1;
    if (bytes[end] == '-' && end + 1 < bytes.size()) ++end;
    const std::string directive = bytes.substr(percent, end + 1 - percent);
    static constexpr std::string_view kKnown = "aAbBcdHIjmMpSUwWxXyYeFTDRZGuVn%";
    if (kKnown.find(directive.back()) == std::string_view::npos) {
      out.add(*format, percent, end + 1);
    } else {
      std::array<char, 128> buffer{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      const size_t size =
          std::strftime(buffer.data(), buffer.size(), directive.c_str(), &*options_.now);
#pragma GCC diagnostic pop
      out.add(std::string_view(buffer.data(), size));
    }
    at = end + 1;
  }
  return own_text(out);
}

// --- loop ----------------------------------------------------------------------------------------

Value Renderer::loop_attribute(Loop& loop, std::string_view name) {
  const auto index0 = static_cast<int64_t>(loop.index0);
  const auto length = [&] {
    while (pull(loop)) {
    }
    return static_cast<int64_t>(loop.items.size());
  };
  const auto has_next = [&] { return loop.index0 + 1 < loop.items.size() || pull(loop); };
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(!has_next());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0);
  if (name == "revindex0") return Value::integer(length() - index0 - 1);
  if (name == "previtem") return index0 > 0 ? loop.items[loop.index0 - 1] : Value();
  if (name == "nextitem") {
    return has_next() && loop.index0 + 1 < loop.items.size() ? loop.items[loop.index0 + 1]
                                                             : Value();
  }
  if (name == "depth") return Value::integer(loop.level);
  if (name == "depth0") return Value::integer(loop.level - 1);
  fail(ProblemKind::unsupported, "'loop." + std::string(name) + "' is not supported");
}

Value Renderer::call_loop_method(Loop& loop, std::string_view name, Arguments arguments) {
  if (name == "cycle") {
    if (arguments.values.empty()) fail("'loop.cycle' needs something to cycle through");
    return arguments.values[loop.index0 % arguments.values.size()];
  }
  if (name == "changed") {
    bool same = loop.changed.size() == arguments.values.size();
    for (size_t i = 0; same && i < loop.changed.size(); ++i) {
      same = equal(budget_, loop.changed[i], arguments.values[i]);
    }
    if (same && !loop.changed.empty()) return Value::boolean(false);
    loop.changed = std::move(arguments.values);
    return Value::boolean(true);
  }
  return call(loop_attribute(loop, name), std::move(arguments));
}

}  // namespace stemma::jinja
