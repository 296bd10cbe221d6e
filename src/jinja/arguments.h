// The arguments of a call, filter or test, by position or by name.
// Threading: immutable values.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace stemma::jinja {

class Arguments {
 public:
  std::vector<Value> values;
  std::vector<std::pair<std::string_view, Value>> named;

  // The argument at `index` or with this name; null if it was not given.
  const Value* get(size_t index, std::string_view name) const {
    return index < values.size() ? &values[index] : get(name);
  }
  const Value* get(std::string_view name) const {
    for (const auto& [key, value] : named) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  const Value& need(size_t index, std::string_view name) const {
    const Value* value = get(index, name);
    if (value == nullptr) fail("argument '" + std::string(name) + "' is missing");
    return *value;
  }
  // Fails if there are arguments other than these.
  void only(std::initializer_list<std::string_view> names) const {
    if (values.size() > names.size()) {
      fail("at most " + std::to_string(names.size()) + " arguments are taken, not " +
           std::to_string(values.size()));
    }
    for (const auto& [key, value] : named) {
      bool known = false;
      for (const std::string_view name : names) known |= name == key;
      if (!known) fail("there is no argument '" + std::string(key) + "'");
    }
  }
};

}  // namespace stemma::jinja
