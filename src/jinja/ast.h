// The parsed template: expressions, and statements that hold them.
//
// Names are numbers into Ast::names. No node is higher than kMaxNodeDepth above its leaves, so
// walking and destroying the tree needs little stack.
// Threading: immutable once parsed.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "jinja/object.h"
#include "jinja/problem.h"
#include "jinja/value.h"

namespace stemma::jinja {

class Renderer;
class Arguments;

inline constexpr uint32_t kMaxNodeDepth = 300;

using FilterFunction = Value (*)(Renderer&, const Value& input, const Arguments&);
using TestFunction = bool (*)(Renderer&, const Value& input, const Arguments&);

enum class Op : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
  negate,
  plus,
  invert,
  all,
  any,
};

enum class ExprKind : uint8_t {
  constant,   // value
  name,       // name
  list,       // parts
  tuple,      // parts
  dict,       // parts: key, value, key, value ...
  attribute,  // parts[0].text
  item,       // parts[0][parts[1]]
  slice,      // parts[0][parts[1]:parts[2]:parts[3]], null where left out
  call,       // parts[0](parts[1], ..., keywords)
  filter,     // parts[0]|text(parts[1], ..., keywords); parts[0] null in a block
  test,       // parts[0] is text(parts[1], ..., keywords); negated
  unary,      // op parts[0]
  binary,     // parts[0] op parts[1]; also `and`, `or`
  compare,    // parts[0] ops[0] parts[1] ops[1] parts[2] ...
  concat,     // parts
  condition,  // parts[0] if parts[1] else parts[2], which may be null
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind;
  Op op = Op::add;
  bool negated = false;
  MethodId method = MethodId::none;  // Of the attribute's name.
  uint32_t line = 0;
  uint32_t depth = 1;
  uint32_t name = 0;
  Value value;
  std::string text;
  std::vector<ExprPtr> parts;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  std::vector<Op> ops;
  FilterFunction filter = nullptr;  // Null: not supported.
  TestFunction test = nullptr;
};

// Where a value goes: a name, an attribute of a namespace, or several of these.
struct Target {
  uint32_t name = 0;
  std::string attribute;  // If not empty: an attribute of the namespace `name`.
  std::vector<Target> parts;
};

enum class StatementKind : uint8_t {
  text,       // text
  print,      // expr
  set,        // target = expr
  set_block,  // target = body, through expr if there is one
  branch,     // conditions[i]: bodies[i]; one body more is the else
  loop,       // target in expr if condition: body; otherwise
  macro,      // target.name, parameters, defaults, body
  call,       // expr with the body, a macro of its own, as caller
  filter,     // expr over body
  with,       // targets = values: body
  scope,      // body, with its own variables
  break_loop,
  continue_loop,
};

using Body = std::vector<Statement>;

struct Statement {
  StatementKind kind;
  uint32_t line = 0;
  std::string text;
  Target target;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<ExprPtr> conditions;  // Of a branch; the values of a `with`.
  std::vector<Target> targets;      // Of a `with`.
  std::vector<Body> bodies;
  std::vector<uint32_t> parameters;
  std::vector<ExprPtr> defaults;     // Of the last parameters.
  bool takes_more_values = false;    // The macro mentions `varargs`,
  bool takes_more_keywords = false;  // `kwargs`,
  bool takes_caller = false;         // `caller`.

  const Body& body() const { return bodies[0]; }
};

struct Ast {
  Body body;
  std::vector<std::string> names;
  std::set<std::string, std::less<>> mentioned;  // Names, attributes, constant subscripts.
  std::vector<Problem> unsupported;
  // Names that statements and macros set by themselves.
  uint32_t loop = 0;
  uint32_t caller = 0;
  uint32_t varargs = 0;
  uint32_t kwargs = 0;
};

// Throws Failure.
Ast parse_template(std::string_view source);

}  // namespace stemma::jinja
