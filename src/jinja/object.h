// Things that only a rendering uses: bound methods, namespaces, macros, loops, functions.
//
// Only namespaces can change. A namespace may hold itself, so the rendering owns the objects and
// values point to them.
// Threading: one thread at a time, the rendering's; functions are immutable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace stemma::jinja {

struct Statement;

enum class MethodId : uint8_t {
  none,
  // Of strings.
  capitalize,
  center,
  count,
  endswith,
  find,
  format,
  index,
  isalnum,
  isalpha,
  isdigit,
  islower,
  isspace,
  isupper,
  join,
  ljust,
  lower,
  lstrip,
  partition,
  removeprefix,
  removesuffix,
  replace,
  rfind,
  rjust,
  rpartition,
  rsplit,
  rstrip,
  split,
  splitlines,
  startswith,
  strip,
  swapcase,
  title,
  upper,
  zfill,
  // Of dicts.
  copy,
  get,
  items,
  keys,
  values,
  // Methods that would change a value.
  append,
  clear,
  extend,
  insert,
  pop,
  popitem,
  remove,
  reverse,
  setdefault,
  sort,
  update,
};

// MethodId::none: nothing has a method of this name.
MethodId method_of(std::string_view name) noexcept;
std::string_view name_of(MethodId method) noexcept;
// Whether values of this kind have the method.
bool has_method(const Value& self, MethodId method) noexcept;

struct Method {
  Value self;
  MethodId id;
};

enum class ObjectKind : uint8_t { function, joiner, loop, macro, space };
enum class FunctionId : uint8_t {
  dict,
  joiner,
  make_namespace,
  raise_exception,
  range,
  strftime_now
};

struct Object {
  explicit Object(ObjectKind k) : kind(k) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  std::string_view type_name() const noexcept;

  const ObjectKind kind;
};

struct Function : Object {
  Function(FunctionId i, std::string_view n) : Object(ObjectKind::function), id(i), name(n) {}
  const FunctionId id;
  const std::string_view name;
};
// Null: no global has this name.
Function* global_function(std::string_view name) noexcept;

struct Namespace : Object {
  Namespace() : Object(ObjectKind::space) {}
  Dict values;
};

struct Joiner : Object {
  Joiner() : Object(ObjectKind::joiner) {}
  Value separator;
  bool used = false;
};

// The variables of a block. A macro keeps the scope it was defined in.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<uint32_t, Value>> variables;
  bool captured = false;
};

struct Macro : Object {
  Macro(const Statement* n, Scope* s) : Object(ObjectKind::macro), node(n), scope(s) {}
  const Statement* node;
  Scope* scope;
};

// A running `for`. It takes each item only when needed, because its condition may depend on earlier
// rounds.
struct Loop : Object {
  Loop() : Object(ObjectKind::loop) {}
  const Statement* node = nullptr;
  Scope* scope = nullptr;     // Around it.
  std::vector<Value> source;  // All items.
  size_t next_source = 0;     // The first one not yet looked at.
  std::vector<Value> items;   // Items that passed the condition.
  size_t index0 = 0;
  uint32_t level = 1;
  std::vector<Value> changed;  // The last arguments of loop.changed().
};

[[noreturn]] void fail_undefined(const Value& undefined);

}  // namespace stemma::jinja
