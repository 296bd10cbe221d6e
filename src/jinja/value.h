// Value: a value that templates compute with, as in Python: undefined, None, bool, int, float, str,
// list, tuple, dict; also things that only a rendering can make (methods, namespaces, macros).
//
// Values share their contents, which never change once they are inside a Value. So copies are cheap
// and there are no cycles. Integers have 64 bits.
//
// Threading:  immutable values.
// Ownership:  shared; the rendering that made them owns objects and the names of undefined values,
//             and no value of a rendering leaves it.
// Cost:       24 bytes, and one allocation for a string, list or dict.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/text.h"

namespace stemma::jinja {

class Dict;
class Value;
struct List;
struct Method;
struct Object;

using TextPtr = std::shared_ptr<const Text>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;

struct Undefined {
  const std::string* name = nullptr;
};
struct None {};

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  dict,
  method,
  object
};

class Value {
 public:
  Value() noexcept = default;  // Undefined.
  static Value none() { return Value(None{}); }
  static Value boolean(bool value) { return Value(value); }
  static Value integer(int64_t value) { return Value(value); }
  static Value real(double value) { return Value(value); }
  static Value string(std::string bytes, Origin origin = kNoOrigin);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  // A later entry replaces an earlier one of the same name.
  static Value dict(std::vector<std::pair<std::string, Value>> entries);

  // For the interpreter itself.
  static Value undefined(const std::string* name) { return Value(Undefined{name}); }
  static Value of(Text text) { return Value(std::make_shared<const Text>(std::move(text))); }
  static Value of(TextPtr text) { return Value(std::move(text)); }
  static Value of(ListPtr list) { return Value(std::move(list)); }
  static Value of(DictPtr dict) { return Value(std::move(dict)); }
  static Value of(std::shared_ptr<const Method> method) { return Value(std::move(method)); }
  static Value of(Object* object) { return Value(object); }

  Kind kind() const noexcept { return static_cast<Kind>(what_.index()); }
  bool is(Kind kind) const noexcept { return this->kind() == kind; }
  // Each requires its kind.
  const Undefined& as_undefined() const { return std::get<Undefined>(what_); }
  bool as_boolean() const { return std::get<bool>(what_); }
  int64_t as_integer() const { return std::get<int64_t>(what_); }
  double as_real() const { return std::get<double>(what_); }
  const Text& as_text() const { return *std::get<TextPtr>(what_); }
  const TextPtr& text_ptr() const { return std::get<TextPtr>(what_); }
  const List& as_list() const { return *std::get<ListPtr>(what_); }
  const Dict& as_dict() const { return *std::get<DictPtr>(what_); }
  const Method& as_method() const { return *std::get<std::shared_ptr<const Method>>(what_); }
  Object* as_object() const { return std::get<Object*>(what_); }

  // How deeply lists and dicts are nested; 0 for all else.
  uint32_t depth() const noexcept;

 private:
  using What = std::variant<Undefined, None, bool, int64_t, double, TextPtr, ListPtr, DictPtr,
                            std::shared_ptr<const Method>, Object*>;
  template <class T>
  explicit Value(T what) : what_(std::move(what)) {}

  What what_;
};

// Filters like `map` return generators: a generator is true, has no length, and can be walked once.
enum class ListKind : uint8_t { list, tuple, generator };

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::list;
  uint32_t depth = 1;
  mutable bool spent = false;  // For a generator, which never leaves its rendering.
};

// Keeps the order of insertion. Keys are strings, numbers, booleans or None.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  static bool can_be_key(const Value& key) noexcept;
  const Value* find(std::string_view key) const noexcept;
  const Value* find(const Value& key) const noexcept;
  // Requires: can_be_key(key).
  void set(Value key, Value value);

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  size_t size() const noexcept { return entries_.size(); }
  uint32_t depth() const noexcept { return depth_; }

 private:
  static constexpr size_t kNowhere = ~size_t{0};
  size_t place(const Value& key) const noexcept;

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, uint32_t> index_;  // Used once there are many entries.
  uint32_t depth_ = 1;
};

// --- as Python has it ----------------------------------------------------------------------------

std::string_view type_name(const Value& value) noexcept;  // 'str', 'NoneType'.
bool is_true(const Value& value) noexcept;
// Integers and booleans.
bool is_integral(const Value& value) noexcept;
bool is_number(const Value& value) noexcept;
// Requires: is_integral.
int64_t integral(const Value& value) noexcept;
// Requires: is_number.
double real(const Value& value) noexcept;

// False for lists, dicts and tuples of them.
bool can_be_hashed(Budget& budget, const Value& value);
bool equal(Budget& budget, const Value& a, const Value& b);
// Less than 0, 0, more than 0; kUnordered beside a NaN. Fails if they cannot be compared.
inline constexpr int kUnordered = 2;
int compare(Budget& budget, const Value& a, const Value& b);

// Values made in a rendering: charged to the budget; lists and dicts fail if nested too deeply.
Value make_list(Budget& budget, std::vector<Value> items, ListKind kind = ListKind::list);
Value make_dict(Budget& budget, Dict dict);
Value make_text(Budget& budget, std::string_view bytes);
// text[begin, end).
Value cut(Budget& budget, const TextPtr& text, size_t begin, size_t end);

}  // namespace stemma::jinja
