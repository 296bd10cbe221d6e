#include <algorithm>
#include <array>
#include <string>

#include "jinja/filters.h"
#include "jinja/letter_case.h"
#include "jinja/print.h"
#include "jinja/renderer.h"
#include "jinja/strings.h"
#include "jinja/tests.h"

namespace stemma::jinja {
namespace {

using R = Renderer;
using V = Value;
using A = Arguments;

V generator(R& renderer, std::vector<V> items) {
  return make_list(renderer.budget(), std::move(items), ListKind::generator);
}

// The key that filters compare: the item or its attribute, perhaps in lower case.
class Key {
 public:
  Key(R& renderer, const V* attribute, const V* case_sensitive)
      : renderer_(renderer),
        attribute_(attribute != nullptr && attribute->is(Kind::none) ? nullptr : attribute),
        fold_(case_sensitive == nullptr || !is_true(*case_sensitive)) {}

  V of(const V& item) const {
    const V value = attribute_ != nullptr ? renderer_.path(item, *attribute_) : item;
    return fold_ && value.is(Kind::string)
               ? change_case(renderer_.budget(), value.text_ptr(), Casing::lower)
               : value;
  }

 private:
  R& renderer_;
  const V* attribute_;
  bool fold_;
};

// Stable merge sort that can stop in the middle, and tolerates an inconsistent order.
void sort_by(R& renderer, std::vector<std::pair<V, V>>& keyed, bool reverse) {
  std::vector<std::pair<V, V>> other(keyed.size());
  for (size_t width = 1; width < keyed.size(); width *= 2) {
    for (size_t begin = 0; begin < keyed.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, keyed.size());
      const size_t end = std::min(begin + 2 * width, keyed.size());
      size_t a = begin;
      size_t b = middle;
      for (size_t to = begin; to < end; ++to) {
        bool second = a == middle;
        if (!second && b < end) {
          renderer.budget().step();
          second = compare(renderer.budget(), keyed[b].first, keyed[a].first) == (reverse ? 1 : -1);
        }
        other[to] = std::move(second ? keyed[b++] : keyed[a++]);
      }
    }
    keyed.swap(other);
  }
}

std::vector<V> sorted(R& renderer, std::vector<V> items, const Key& key, bool reverse) {
  std::vector<std::pair<V, V>> keyed;
  renderer.budget().bytes(items.size() * sizeof(std::pair<V, V>) * 2);
  for (V& item : items) {
    V by = key.of(item);
    keyed.emplace_back(std::move(by), std::move(item));
  }
  sort_by(renderer, keyed, reverse);
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return items;
}

V sort(R& renderer, const V& input, const A& arguments) {
  arguments.only({"reverse", "case_sensitive", "attribute"});
  const V* reverse = arguments.get(0, "reverse");
  const Key key(renderer, arguments.get(2, "attribute"), arguments.get(1, "case_sensitive"));
  return make_list(renderer.budget(), sorted(renderer, renderer.items_of(input), key,
                                             reverse != nullptr && is_true(*reverse)));
}

V dictsort(R& renderer, const V& input, const A& arguments) {
  arguments.only({"case_sensitive", "by", "reverse"});
  if (!input.is(Kind::dict)) fail("'dictsort' sorts dicts");
  const V* by = arguments.get(1, "by");
  const V* reverse = arguments.get(2, "reverse");
  const bool by_value = by != nullptr && by->is(Kind::string) && by->as_text().bytes == "value";
  const V place = V::integer(by_value ? 1 : 0);
  const Key key(renderer, &place, arguments.get(0, "case_sensitive"));
  std::vector<V> pairs;
  for (const auto& [name, value] : input.as_dict().entries()) {
    pairs.push_back(make_list(renderer.budget(), {name, value}, ListKind::tuple));
  }
  return make_list(renderer.budget(), sorted(renderer, std::move(pairs), key,
                                             reverse != nullptr && is_true(*reverse)));
}

template <int wanted>
V extreme(R& renderer, const V& input, const A& arguments) {
  arguments.only({"case_sensitive", "attribute"});
  const Key key(renderer, arguments.get(1, "attribute"), arguments.get(0, "case_sensitive"));
  V best;
  V best_key;
  bool any = false;
  for (const V& item : renderer.items_of(input)) {
    V by = key.of(item);
    if (any && compare(renderer.budget(), by, best_key) != wanted) continue;
    any = true;
    best = item;
    best_key = std::move(by);
  }
  return best;
}

V unique(R& renderer, const V& input, const A& arguments) {
  arguments.only({"case_sensitive", "attribute"});
  const Key key(renderer, arguments.get(1, "attribute"), arguments.get(0, "case_sensitive"));
  std::vector<V> seen;
  std::vector<V> items;
  for (const V& item : renderer.items_of(input)) {
    V by = key.of(item);
    if (!can_be_hashed(renderer.budget(), by)) {
      fail("'" + std::string(type_name(by)) + "' cannot be told from others by 'unique'");
    }
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const V& other) {
      renderer.budget().step();
      return equal(renderer.budget(), by, other);
    });
    if (known) continue;
    seen.push_back(std::move(by));
    items.push_back(item);
  }
  return generator(renderer, std::move(items));
}

V sum(R& renderer, const V& input, const A& arguments) {
  arguments.only({"attribute", "start"});
  const V* attribute = arguments.get(0, "attribute");
  const V* start = arguments.get(1, "start");
  V total = start != nullptr ? *start : V::integer(0);
  for (const V& item : renderer.items_of(input)) {
    const bool whole = attribute == nullptr || attribute->is(Kind::none);
    total = calculate(renderer, Op::add, total, whole ? item : renderer.path(item, *attribute));
  }
  return total;
}

V first(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  if (input.is(Kind::list)) {
    return input.as_list().items.empty() ? V() : input.as_list().items.front();
  }
  if (input.is(Kind::string)) return renderer.item(input, V::integer(0));
  const std::vector<V> items = renderer.items_of(input);
  return items.empty() ? V() : items.front();
}

V last(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  if (input.is(Kind::list)) {
    if (input.as_list().kind == ListKind::generator) fail("a generator has no last item");
    return input.as_list().items.empty() ? V() : input.as_list().items.back();
  }
  if (input.is(Kind::string)) return renderer.item(input, V::integer(-1));
  const std::vector<V> items = renderer.items_of(input);
  return items.empty() ? V() : items.back();
}

V length(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  return V::integer(static_cast<int64_t>(renderer.length_of(input)));
}

V list(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  return make_list(renderer.budget(), renderer.items_of(input));
}

V reverse(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  if (input.is(Kind::string)) {
    return slice(renderer, input, V::none(), V::none(), V::integer(-1));
  }
  std::vector<V> items = renderer.items_of(input);
  std::reverse(items.begin(), items.end());
  return generator(renderer, std::move(items));
}

V join(R& renderer, const V& input, const A& arguments) {
  arguments.only({"d", "attribute"});
  const V* between = arguments.get(0, "d");
  const V* attribute = arguments.get(1, "attribute");
  const TextPtr separator = between != nullptr ? renderer.text_of(*between) : nullptr;
  TextBuilder out(renderer.budget());
  bool is_first = true;
  for (const V& item : renderer.items_of(input)) {
    if (!is_first && separator != nullptr) out.add(*separator);
    is_first = false;
    const bool whole = attribute == nullptr || attribute->is(Kind::none);
    print(renderer.budget(), out, whole ? item : renderer.path(item, *attribute));
  }
  return renderer.own_text(out);
}

V items(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  if (input.is(Kind::undefined)) return generator(renderer, {});
  if (!input.is(Kind::dict))
    fail("'items' is for dicts, not '" + std::string(type_name(input)) + "'");
  return generator(renderer, renderer.items_of(call_method(renderer, input, MethodId::items, {})));
}

// --- one by one ----------------------------------------------------------------------------------

const std::string& name_argument(const V& value, std::string_view what) {
  if (!value.is(Kind::string)) fail("the name of a " + std::string(what) + " is a string");
  return value.as_text().bytes;
}

A rest_of(const A& arguments, size_t from) {
  A rest;
  for (size_t i = from; i < arguments.values.size(); ++i)
    rest.values.push_back(arguments.values[i]);
  rest.named = arguments.named;
  return rest;
}

V map(R& renderer, const V& input, const A& arguments) {
  if (!is_true(input)) return generator(renderer, {});
  std::vector<V> results;
  if (const V* attribute = arguments.get("attribute")) {
    const V* otherwise = arguments.get("default");
    for (const V& item : renderer.items_of(input)) {
      V value = renderer.path(item, *attribute);
      const bool lacking = value.is(Kind::undefined) && otherwise != nullptr;
      results.push_back(lacking ? *otherwise : std::move(value));
    }
    return generator(renderer, std::move(results));
  }
  const std::string& name = name_argument(arguments.need(0, "filter"), "filter");
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) {
    fail(ProblemKind::unsupported, "filter '" + name + "' is not supported");
  }
  const A rest = rest_of(arguments, 1);
  for (const V& item : renderer.items_of(input)) {
    renderer.budget().step();
    results.push_back(filter(renderer, item, rest));
  }
  return generator(renderer, std::move(results));
}

template <bool by_attribute, bool wanted>
V choose(R& renderer, const V& input, const A& arguments) {
  if (!is_true(input)) return generator(renderer, {});
  const size_t at = by_attribute ? 1 : 0;
  const V* attribute = by_attribute ? &arguments.need(0, "attribute") : nullptr;
  TestFunction test = nullptr;
  if (arguments.values.size() > at) {
    const std::string& name = name_argument(arguments.values[at], "test");
    test = find_test(name);
    if (test == nullptr) fail(ProblemKind::unsupported, "test '" + name + "' is not supported");
  }
  const A rest = rest_of(arguments, at + 1);
  std::vector<V> kept;
  for (const V& item : renderer.items_of(input)) {
    renderer.budget().step();
    const V value = by_attribute ? renderer.path(item, *attribute) : item;
    const bool holds = test != nullptr ? test(renderer, value, rest) : is_true(value);
    if (holds == wanted) kept.push_back(item);
  }
  return generator(renderer, std::move(kept));
}

V batch(R& renderer, const V& input, const A& arguments) {
  arguments.only({"linecount", "fill_with"});
  const int64_t size = integer_of(arguments.need(0, "linecount"), "'linecount'");
  const V* fill = arguments.get(1, "fill_with");
  if (size < 1) fail("'linecount' is at least 1");
  std::vector<V> rows;
  std::vector<V> row;
  for (const V& item : renderer.items_of(input)) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(make_list(renderer.budget(), std::exchange(row, {})));
    }
    row.push_back(item);
  }
  while (!row.empty() && fill != nullptr && !fill->is(Kind::none) &&
         static_cast<int64_t>(row.size()) < size) {
    renderer.budget().step();
    row.push_back(*fill);
  }
  if (!row.empty()) rows.push_back(make_list(renderer.budget(), std::move(row)));
  return generator(renderer, std::move(rows));
}

V attr(R& renderer, const V& input, const A& arguments) {
  // Attributes only: entries of a dict do not count.
  const std::string& name = name_argument(arguments.need(0, "name"), "attribute");
  const MethodId method = method_of(name);
  if (input.is(Kind::dict) && !has_method(input, method)) return {};
  V value = renderer.attribute(input, name, method);
  return value.is(Kind::undefined) ? V() : value;
}

constexpr std::array kListFilters = {
    FilterEntry{"attr", attr},
    FilterEntry{"batch", batch},
    FilterEntry{"count", length},
    FilterEntry{"dictsort", dictsort},
    FilterEntry{"first", first},
    FilterEntry{"items", items},
    FilterEntry{"join", join},
    FilterEntry{"last", last},
    FilterEntry{"length", length},
    FilterEntry{"list", list},
    FilterEntry{"map", map},
    FilterEntry{"max", extreme<1>},
    FilterEntry{"min", extreme<-1>},
    FilterEntry{"reject", choose<false, false>},
    FilterEntry{"rejectattr", choose<true, false>},
    FilterEntry{"reverse", reverse},
    FilterEntry{"select", choose<false, true>},
    FilterEntry{"selectattr", choose<true, true>},
    FilterEntry{"sort", sort},
    FilterEntry{"sum", sum},
    FilterEntry{"unique", unique},
};

}  // namespace

std::span<const FilterEntry> list_filters() noexcept { return kListFilters; }

}  // namespace stemma::jinja
