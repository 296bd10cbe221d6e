#include "jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "jinja/budget.h"
#include "jinja/object.h"

namespace stemma::jinja {
namespace {

constexpr size_t kIndexFrom = 16;

uint32_t depth_over(const std::vector<Value>& items) noexcept {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

Value list_of(std::vector<Value> items, ListKind kind) {
  auto list = std::make_shared<List>();
  list->depth = depth_over(items);
  list->items = std::move(items);
  list->kind = kind;
  return Value::of(ListPtr(std::move(list)));
}

size_t hash_key(const Value& key) noexcept {
  if (key.is(Kind::string)) return std::hash<std::string_view>{}(key.as_text().view());
  return is_number(key) ? std::hash<double>{}(real(key)) : 1;
}

// Exact, because long double has at least 64 bits of precision on our platforms.
int compare_numbers(const Value& a, const Value& b) noexcept {
  const auto wide = [](const Value& v) -> long double {
    return v.is(Kind::real) ? static_cast<long double>(v.as_real())
                            : static_cast<long double>(integral(v));
  };
  const long double x = wide(a);
  const long double y = wide(b);
  if (std::isnan(x) || std::isnan(y)) return kUnordered;
  return x < y ? -1 : x > y ? 1 : 0;
}

bool same_key(const Value& a, const Value& b) noexcept {
  if (a.is(Kind::string)) return b.is(Kind::string) && a.as_text().bytes == b.as_text().bytes;
  if (a.is(Kind::none)) return b.is(Kind::none);
  return is_number(b) && compare_numbers(a, b) == 0;
}

}  // namespace

Value Value::string(std::string bytes, Origin origin) {
  Text text{std::move(bytes), {}};
  if (origin != kNoOrigin && !text.bytes.empty()) {
    text.marks.push_back({0, text.bytes.size(), origin});
  }
  return Value::of(std::move(text));
}

Value Value::list(std::vector<Value> items) { return list_of(std::move(items), ListKind::list); }
Value Value::tuple(std::vector<Value> items) { return list_of(std::move(items), ListKind::tuple); }

Value Value::dict(std::vector<std::pair<std::string, Value>> entries) {
  auto dict = std::make_shared<Dict>();
  for (auto& [key, value] : entries) dict->set(Value::string(std::move(key)), std::move(value));
  return Value::of(DictPtr(std::move(dict)));
}

uint32_t Value::depth() const noexcept {
  if (is(Kind::list)) return as_list().depth;
  if (is(Kind::dict)) return as_dict().depth();
  return is(Kind::method) ? as_method().self.depth() + 1 : 0;
}

bool Dict::can_be_key(const Value& key) noexcept {
  return key.is(Kind::string) || key.is(Kind::none) || is_number(key);
}

const Value* Dict::find(std::string_view key) const noexcept {
  if (index_.empty()) {
    for (const auto& [name, value] : entries_) {
      if (name.is(Kind::string) && name.as_text().view() == key) return &value;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto at = begin; at != end; ++at) {
    const auto& [name, value] = entries_[at->second];
    if (name.is(Kind::string) && name.as_text().view() == key) return &value;
  }
  return nullptr;
}

size_t Dict::place(const Value& key) const noexcept {
  if (index_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (same_key(entries_[i].first, key)) return i;
    }
    return kNowhere;
  }
  const auto [begin, end] = index_.equal_range(hash_key(key));
  for (auto at = begin; at != end; ++at) {
    if (same_key(entries_[at->second].first, key)) return at->second;
  }
  return kNowhere;
}

const Value* Dict::find(const Value& key) const noexcept {
  if (!can_be_key(key)) return nullptr;
  const size_t at = place(key);
  return at == kNowhere ? nullptr : &entries_[at].second;
}

void Dict::set(Value key, Value value) {
  depth_ = std::max(depth_, value.depth() + 1);
  if (const size_t at = place(key); at != kNowhere) {
    entries_[at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() < kIndexFrom) return;
  for (size_t i = index_.empty() ? 0 : entries_.size() - 1; i < entries_.size(); ++i) {
    index_.emplace(hash_key(entries_[i].first), static_cast<uint32_t>(i));
  }
}

std::string_view type_name(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::list:
      return value.as_list().kind == ListKind::list    ? "list"
             : value.as_list().kind == ListKind::tuple ? "tuple"
                                                       : "generator";
    case Kind::dict: return "dict";
    case Kind::method: return "builtin_function_or_method";
    case Kind::object: return value.as_object()->type_name();
  }
  return "?";
}

bool is_true(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return value.as_boolean();
    case Kind::integer: return value.as_integer() != 0;
    case Kind::real: return value.as_real() != 0.0;
    case Kind::string: return !value.as_text().bytes.empty();
    case Kind::list:
      return value.as_list().kind == ListKind::generator || !value.as_list().items.empty();
    case Kind::dict: return value.as_dict().size() != 0;
    case Kind::method:
    case Kind::object: return true;
  }
  return false;
}

bool is_integral(const Value& value) noexcept {
  return value.is(Kind::integer) || value.is(Kind::boolean);
}
bool is_number(const Value& value) noexcept { return is_integral(value) || value.is(Kind::real); }

int64_t integral(const Value& value) noexcept {
  return value.is(Kind::boolean) ? static_cast<int64_t>(value.as_boolean()) : value.as_integer();
}
double real(const Value& value) noexcept {
  return value.is(Kind::real) ? value.as_real() : static_cast<double>(integral(value));
}

bool can_be_hashed(Budget& budget, const Value& value) {
  budget.step();
  if (!value.is(Kind::list)) return !value.is(Kind::dict);
  if (value.as_list().kind != ListKind::tuple) return value.as_list().kind != ListKind::list;
  const std::vector<Value>& items = value.as_list().items;
  return std::all_of(items.begin(), items.end(),
                     [&](const Value& item) { return can_be_hashed(budget, item); });
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string: {
      const std::string_view x = a.as_text().view();
      const std::string_view y = b.as_text().view();
      if (x.size() != y.size()) return false;
      budget.look(x.size());
      return x == y;
    }
    case Kind::list: {
      const List& x = a.as_list();
      const List& y = b.as_list();
      if (&x == &y) return true;
      if (x.kind != y.kind || x.kind == ListKind::generator) return false;
      if (x.items.size() != y.items.size()) return false;
      for (size_t i = 0; i < x.items.size(); ++i) {
        budget.step();
        if (!equal(budget, x.items[i], y.items[i])) return false;
      }
      return true;
    }
    case Kind::dict: {
      const Dict& x = a.as_dict();
      const Dict& y = b.as_dict();
      if (&x == &y) return true;
      if (x.size() != y.size()) return false;
      for (const auto& [key, value] : x.entries()) {
        budget.step();
        const Value* other = y.find(key);
        if (other == nullptr || !equal(budget, value, *other)) return false;
      }
      return true;
    }
    case Kind::method: return &a.as_method() == &b.as_method();
    case Kind::object: return a.as_object() == b.as_object();
    default: return true;  // None, or both undefined.
  }
}

int compare(Budget& budget, const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) return compare_numbers(a, b);
  if (a.is(Kind::string) && b.is(Kind::string)) {
    const std::string_view x = a.as_text().view();
    const std::string_view y = b.as_text().view();
    budget.look(std::min(x.size(), y.size()));
    const int order = x.compare(y);
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is(Kind::list) && b.is(Kind::list) && a.as_list().kind == b.as_list().kind &&
      a.as_list().kind != ListKind::generator) {
    const auto& x = a.as_list().items;
    const auto& y = b.as_list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      budget.step();
      if (!equal(budget, x[i], y[i])) return compare(budget, x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  for (const Value* side : {&a, &b}) {
    if (side->is(Kind::undefined)) fail_undefined(*side);
  }
  fail("'" + std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "' have no order");
}

Value make_list(Budget& budget, std::vector<Value> items, ListKind kind) {
  budget.bytes(sizeof(List) + items.size() * sizeof(Value));
  budget.steps(items.size());
  Value list = list_of(std::move(items), kind);
  if (list.depth() > kMaxValueDepth) fail(ProblemKind::limit, "lists are nested too deep");
  return list;
}

Value make_dict(Budget& budget, Dict dict) {
  budget.bytes(sizeof(Dict) + dict.size() * (sizeof(Dict::Entry) + 32));
  budget.steps(dict.size());
  if (dict.depth() > kMaxValueDepth) fail(ProblemKind::limit, "dicts are nested too deep");
  return Value::of(DictPtr(std::make_shared<const Dict>(std::move(dict))));
}

Value make_text(Budget& budget, std::string_view bytes) {
  budget.bytes(sizeof(Text) + bytes.size());
  return Value::of(Text{std::string(bytes), {}});
}

Value cut(Budget& budget, const TextPtr& text, size_t begin, size_t end) {
  if (begin == 0 && end == text->bytes.size()) return Value::of(text);
  budget.bytes(sizeof(Text));
  TextBuilder part(budget);
  part.add(*text, begin, end);
  return Value::of(part.take());
}

}  // namespace stemma::jinja
