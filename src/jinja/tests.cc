#include "jinja/tests.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "jinja/filters.h"
#include "jinja/letter_case.h"
#include "jinja/renderer.h"

namespace stemma::jinja {
namespace {

using R = Renderer;
using V = Value;
using A = Arguments;

template <Op op>
bool comparison(R& renderer, const V& input, const A& arguments) {
  arguments.only({"other"});
  return is_true(calculate(renderer, op, input, arguments.need(0, "other")));
}

template <Kind kind>
bool is_kind(R& /*renderer*/, const V& input, const A& /*arguments*/) {
  return input.is(kind);
}

bool is_mapping_or_sequence(const V& input) {
  return input.is(Kind::string) || input.is(Kind::dict) || input.is(Kind::undefined) ||
         (input.is(Kind::list) && input.as_list().kind != ListKind::generator);
}

template <bool value>
bool is_boolean(R& /*renderer*/, const V& input, const A& /*arguments*/) {
  return input.is(Kind::boolean) && input.as_boolean() == value;
}

bool divisible(R& renderer, const V& input, const V& by) {
  return !is_true(calculate(renderer, Op::modulo, input, by));
}

template <MethodId method>
bool cased(R& renderer, const V& input, const A& /*arguments*/) {
  const V text = V::of(renderer.text_of(input));
  return is_true(call_method(renderer, text, method, {}));
}

// Whether both are the same object, as far as we can tell.
bool same(R& renderer, const V& a, const V& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::list)) return &a.as_list() == &b.as_list();
  if (a.is(Kind::dict)) return &a.as_dict() == &b.as_dict();
  return equal(renderer.budget(), a, b);
}

struct Entry {
  std::string_view name;
  TestFunction function;
};

constexpr std::array kTests = {
    Entry{"!=", comparison<Op::unequal>},
    Entry{"<", comparison<Op::less>},
    Entry{"<=", comparison<Op::less_equal>},
    Entry{"==", comparison<Op::equal>},
    Entry{">", comparison<Op::greater>},
    Entry{">=", comparison<Op::greater_equal>},
    Entry{"boolean", is_kind<Kind::boolean>},
    Entry{"callable",
          [](R&, const V& input, const A&) {
            return input.is(Kind::method) || input.is(Kind::undefined) ||
                   (input.is(Kind::object) && input.as_object()->kind != ObjectKind::space);
          }},
    Entry{"defined", [](R&, const V& input, const A&) { return !input.is(Kind::undefined); }},
    Entry{"divisibleby",
          [](R& renderer, const V& input, const A& arguments) {
            return divisible(renderer, input, arguments.need(0, "num"));
          }},
    Entry{"eq", comparison<Op::equal>},
    Entry{"equalto", comparison<Op::equal>},
    Entry{"escaped", [](R&, const V&, const A&) { return false; }},
    Entry{"even", [](R& renderer, const V& input,
                     const A&) { return divisible(renderer, input, V::integer(2)); }},
    Entry{"false", is_boolean<false>},
    Entry{"filter",
          [](R&, const V& input, const A&) {
            return input.is(Kind::string) && find_filter(input.as_text().view()) != nullptr;
          }},
    Entry{"float", is_kind<Kind::real>},
    Entry{"ge", comparison<Op::greater_equal>},
    Entry{"greaterthan", comparison<Op::greater>},
    Entry{"gt", comparison<Op::greater>},
    Entry{"in",
          [](R& renderer, const V& input, const A& arguments) {
            return renderer.contains(arguments.need(0, "seq"), input);
          }},
    Entry{"integer", is_kind<Kind::integer>},
    Entry{"iterable",
          [](R&, const V& input, const A&) {
            return input.is(Kind::list) || is_mapping_or_sequence(input);
          }},
    Entry{"le", comparison<Op::less_equal>},
    Entry{"lessthan", comparison<Op::less>},
    Entry{"lower", cased<MethodId::islower>},
    Entry{"lt", comparison<Op::less>},
    Entry{"mapping", is_kind<Kind::dict>},
    Entry{"ne", comparison<Op::unequal>},
    Entry{"none", is_kind<Kind::none>},
    Entry{"number", [](R&, const V& input, const A&) { return is_number(input); }},
    Entry{"odd",
          [](R& renderer, const V& input, const A&) {
            const V rest = calculate(renderer, Op::modulo, input, V::integer(2));
            return equal(renderer.budget(), rest, V::integer(1));
          }},
    Entry{"sameas",
          [](R& renderer, const V& input, const A& arguments) {
            return same(renderer, input, arguments.need(0, "other"));
          }},
    Entry{"sequence", [](R&, const V& input, const A&) { return is_mapping_or_sequence(input); }},
    Entry{"string", is_kind<Kind::string>},
    Entry{"test",
          [](R&, const V& input, const A&) {
            return input.is(Kind::string) && find_test(input.as_text().view()) != nullptr;
          }},
    Entry{"true", is_boolean<true>},
    Entry{"undefined", is_kind<Kind::undefined>},
    Entry{"upper", cased<MethodId::isupper>},
};
static_assert(std::is_sorted(kTests.begin(), kTests.end(),
                             [](const Entry& a, const Entry& b) { return a.name < b.name; }));

}  // namespace

TestFunction find_test(std::string_view name) noexcept {
  const auto at = std::lower_bound(kTests.begin(), kTests.end(), name,
                                   [](const Entry& e, std::string_view n) { return e.name < n; });
  return at != kTests.end() && at->name == name ? at->function : nullptr;
}

}  // namespace stemma::jinja
