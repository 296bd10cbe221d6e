// Arrays of a JSON schema.
#include <algorithm>

#include "constrain/schema/schema_compiler.h"

namespace stemma::constrain {
namespace {

// The schemas for the first items, under either of the keyword's two names.
const Json* prefix_of(const SchemaPart& part) {
  if (const Json* prefix = part.find("prefixItems")) return prefix;
  const Json* const items = part.find("items");
  return items != nullptr && items->array() != nullptr ? items : nullptr;
}

}  // namespace

// What item `index` must satisfy, from every part; after all prefixes always the same.
Conjunction SchemaCompiler::item_at(const Conjunction& parts, size_t index) {
  Conjunction value;
  for (const SchemaPart& part : parts) {
    const Json* const prefix = prefix_of(part);
    const bool old_names = prefix != nullptr && part.find("prefixItems") == nullptr;
    if (prefix != nullptr && index < prefix->array()->size()) {
      value.push_back(
          {&(*prefix->array())[index],
           pointer_below(pointer_below(part.pointer, old_names ? "items" : "prefixItems"),
                         std::to_string(index)),
           0});
      continue;
    }
    const char* const keyword = old_names ? "additionalItems" : "items";
    if (const Json* rest = part.find(keyword)) {
      value.push_back({rest, pointer_below(part.pointer, keyword), 0});
    }
    const Json* const unevaluated = part.find("unevaluatedItems");
    if (unevaluated != nullptr && part.find(keyword) == nullptr) {
      value.push_back({unevaluated, pointer_below(part.pointer, "unevaluatedItems"), 0});
    }
  }
  return value;
}

Expr SchemaCompiler::array(const Conjunction& parts) {
  uint32_t min = 0;
  uint32_t max = kUnbounded;
  size_t prefix = 0;
  for (const SchemaPart& part : parts) {
    min = std::max(min, count(part, "minItems", 0));
    max = std::min(max, count(part, "maxItems", kUnbounded));
    if (const Json* list = prefix_of(part)) {
      if (list->array() == nullptr) {
        fail("prefixItems is not a list", part.pointer);
        return build_.never();
      }
      prefix = std::max(prefix, list->array()->size());
    }
  }
  if (failed() || min > max) return build_.never();
  prefix = std::min<size_t>(prefix, max);
  for (size_t i = 0; i <= prefix; ++i) {
    if (i < max && impossible(item_at(parts, i))) {
      // No value fits this item, so the array ends before it.
      max = static_cast<uint32_t>(i);
      prefix = std::min(prefix, i);
    }
  }
  if (min > max) return build_.never();
  const Conjunction rest = item_at(parts, prefix);
  if (prefix > 0) return item_chain(parts, prefix, min, max);
  if (rest.empty() && min == 0 && max == kUnbounded) return rules_.any_array();
  const Expr items = max == 0 ? build_.nothing() : rules_.list(value(rest), value(rest), min, max);
  return build_.sequence({build_.text("["), rules_.space(), items, build_.text("]")});
}

// One state before and one after each item with its own schema, then the remaining items.
Expr SchemaCompiler::item_chain(const Conjunction& parts, size_t prefix, uint32_t min,
                                uint32_t max) {
  std::vector<RuleId> behind;
  for (size_t i = 0; i <= prefix; ++i) behind.push_back(build_.rule());
  const auto item = [&](size_t i) {
    return build_.sequence({value(item_at(parts, i)), rules_.space(), build_.call(behind[i + 1])});
  };
  for (size_t i = 1; i < prefix; ++i) {
    const Expr more = build_.sequence({build_.text(","), rules_.space(), item(i)});
    build_.define(behind[i], i >= min ? build_.either({build_.text("]"), more}) : more);
  }
  const auto first = static_cast<uint32_t>(prefix);
  Expr others = build_.nothing();
  if (max > first) {
    const Expr one = build_.sequence(
        {build_.text(","), rules_.space(), value(item_at(parts, prefix)), rules_.space()});
    others = build_.repeat(one, min > first ? min - first : 0,
                           max == kUnbounded ? kUnbounded : max - first);
  }
  build_.define(behind[prefix], build_.sequence({others, build_.text("]")}));
  const Expr some = item(0);
  return build_.sequence({build_.text("["), rules_.space(),
                          min == 0 ? build_.either({build_.text("]"), some}) : some});
}

}  // namespace stemma::constrain
