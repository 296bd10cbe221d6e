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

struct Test {
  std::string_view name;
  TestFunction function;
};

constexpr std::array kTests = {
    Test{"!=", comparison<Op::unequal>},
    Test{"<", comparison<Op::less>},
    Test{"<=", comparison<Op::less_equal>},
    Test{"==", comparison<Op::equal>},
    Test{">", comparison<Op::greater>},
    Test{">=", comparison<Op::greater_equal>},
    Test{"boolean", is_kind<Kind::boolean>},
    Test{"callable",
         [](R&, const V& input, const A&) {
           return input.is(Kind::method) || input.is(Kind::undefined) ||
                  (input.is(Kind::object) && input.as_object()->kind != ObjectKind::space);
         }},
    Test{"defined", [](R&, const V& input, const A&) { return !input.is(Kind::undefined); }},
    Test{"divisibleby",
         [](R& renderer, const V& input, const A& arguments) {
           return divisible(renderer, input, arguments.need(0, "num"));
         }},
    Test{"eq", comparison<Op::equal>},
    Test{"equalto", comparison<Op::equal>},
    Test{"escaped", [](R&, const V&, const A&) { return false; }},
    Test{"even", [](R& renderer, const V& input,
                    const A&) { return divisible(renderer, input, V::integer(2)); }},
    Test{"false", is_boolean<false>},
    Test{"filter",
         [](R&, const V& input, const A&) {
           return input.is(Kind::string) && find_filter(input.as_text().view()) != nullptr;
         }},
    Test{"float", is_kind<Kind::real>},
    Test{"ge", comparison<Op::greater_equal>},
    Test{"greaterthan", comparison<Op::greater>},
    Test{"gt", comparison<Op::greater>},
    Test{"in",
         [](R& renderer, const V& input, const A& arguments) {
           return renderer.contains(arguments.need(0, "seq"), input);
         }},
    Test{"integer", is_kind<Kind::integer>},
    Test{"iterable",
         [](R&, const V& input, const A&) {
           return input.is(Kind::list) || is_mapping_or_sequence(input);
         }},
    Test{"le", comparison<Op::less_equal>},
    Test{"lessthan", comparison<Op::less>},
    Test{"lower", cased<MethodId::islower>},
    Test{"lt", comparison<Op::less>},
    Test{"mapping", is_kind<Kind::dict>},
    Test{"ne", comparison<Op::unequal>},
    Test{"none", is_kind<Kind::none>},
    Test{"number", [](R&, const V& input, const A&) { return is_number(input); }},
    Test{"odd",
         [](R& renderer, const V& input, const A&) {
           const V rest = calculate(renderer, Op::modulo, input, V::integer(2));
           return equal(renderer.budget(), rest, V::integer(1));
         }},
    Test{"sameas",
         [](R& renderer, const V& input, const A& arguments) {
           return same(renderer, input, arguments.need(0, "other"));
         }},
    Test{"sequence", [](R&, const V& input, const A&) { return is_mapping_or_sequence(input); }},
    Test{"string", is_kind<Kind::string>},
    Test{"test",
         [](R&, const V& input, const A&) {
           return input.is(Kind::string) && find_test(input.as_text().view()) != nullptr;
         }},
    Test{"true", is_boolean<true>},
    Test{"undefined", is_kind<Kind::undefined>},
    Test{"upper", cased<MethodId::isupper>},
};
static_assert(std::is_sorted(kTests.begin(), kTests.end(),
                             [](const Test& a, const Test& b) { return a.name < b.name; }));

}  // namespace

TestFunction find_test(std::string_view name) noexcept {
  const auto at = std::lower_bound(kTests.begin(), kTests.end(), name,
                                   [](const Test& e, std::string_view n) { return e.name < n; });
  return at != kTests.end() && at->name == name ? at->function : nullptr;
}

}  // namespace stemma::jinja
