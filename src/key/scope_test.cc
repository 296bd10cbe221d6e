#include "stemma/scope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <unordered_set>
#include <vector>

namespace stemma {
namespace {

Scope scope(const ScopeSpec& spec) { return Scope::make(spec).value(); }

ScopeSpec with_adapter(ScopeAdapter adapter) {
  return {.model = "m", .adapters = {std::move(adapter)}};
}

TEST(Scope, EqualSpecsAreOneScope) {
  const ScopeSpec spec{.model = "m", .adapters = {{"a", 1, 0.5}}, .tenant_salt = "s"};
  const ScopeSpec same = spec;
  EXPECT_EQ(scope(spec), scope(same));
  EXPECT_EQ(std::hash<Scope>{}(scope(spec)), std::hash<Scope>{}(scope(same)));
}

TEST(Scope, AdapterNamedXAndSaltXNeverMeet) {
  const Scope salted = scope({.model = "m", .tenant_salt = "X"});
  EXPECT_NE(salted, scope(with_adapter({"X"})));
  EXPECT_NE(salted, scope({.model = "m", .caller_namespace = "X"}));
}

TEST(Scope, EveryFieldSeparates) {
  const std::vector<ScopeSpec> specs = {
      {.model = "m"},
      {.model = "X"},
      {.model = "mX"},
      {.model = "m", .adapters = {{"X"}}},
      {.model = "m", .adapters = {{""}}},
      {.model = "m", .adapters = {{""}, {""}}},
      {.model = "m", .kv_types = "X"},
      {.model = "m", .layout = "X"},
      {.model = "m", .rope_and_window = "X"},
      {.model = "m", .state_format = 'X'},
      {.model = "m", .tenant_salt = "X"},
      {.model = "m", .caller_namespace = "X"},
  };
  std::unordered_set<Scope> distinct;
  for (const ScopeSpec& spec : specs) distinct.insert(scope(spec));
  EXPECT_EQ(distinct.size(), specs.size());
}

TEST(Scope, GenerationsOfAnAdapterNeverCross) {
  std::unordered_set<Scope> distinct;
  for (uint64_t generation = 0; generation < 1000; ++generation) {
    distinct.insert(scope(with_adapter({"poet", generation})));
    distinct.insert(scope(with_adapter({"poet", generation << 32 | 1U << 31})));
  }
  EXPECT_EQ(distinct.size(), 2000U);
}

TEST(Scope, ScalesOfAnAdapterNeverCross) {
  EXPECT_NE(scope(with_adapter({"a", 1, 1.0})), scope(with_adapter({"a", 1, 0.5})));
  EXPECT_NE(scope(with_adapter({"a", 1, 1.0})),
            scope(with_adapter({"a", 1, std::nextafter(1.0, 2.0)})));
  EXPECT_NE(scope(with_adapter({"a", 1, 1.0})), scope(with_adapter({"a", 1, -1.0})));
  EXPECT_EQ(scope(with_adapter({"a", 1, 0.0})), scope(with_adapter({"a", 1, -0.0})));
}

TEST(Scope, SaltedAndUnsaltedNeverMeet) {
  const Scope open = scope({.model = "m"});
  const Scope first = scope({.model = "m", .tenant_salt = "first"});
  const Scope second = scope({.model = "m", .tenant_salt = "second"});
  EXPECT_NE(open, first);
  EXPECT_NE(open, second);
  EXPECT_NE(first, second);
  EXPECT_NE(open, scope({.model = "m", .tenant_salt = std::string(1, '\0')}));
}

TEST(Scope, AnEmptyStringIsNone) {
  EXPECT_EQ(scope({.model = "m"}),
            scope({.model = "m", .tenant_salt = "", .caller_namespace = ""}));
}

TEST(Scope, NeighbouringFieldsCannotTradeBytes) {
  EXPECT_NE(scope({.model = "m", .kv_types = "ab", .layout = "c"}),
            scope({.model = "m", .kv_types = "a", .layout = "bc"}));
  EXPECT_NE(scope({.model = "m", .adapters = {{"ab"}, {"c"}}}),
            scope({.model = "m", .adapters = {{"a"}, {"bc"}}}));
  // A value that spells another field's header is still a value.
  const std::string salt_header("\x07\0\0\0\x01\0\0\0\0\0\0\0X", 13);
  EXPECT_NE(scope({.model = "m", .rope_and_window = salt_header}),
            scope({.model = "m", .tenant_salt = "X"}));
}

TEST(Scope, TheOrderOfAdaptersCounts) {
  EXPECT_NE(scope({.model = "m", .adapters = {{"a"}, {"b"}}}),
            scope({.model = "m", .adapters = {{"b"}, {"a"}}}));
}

TEST(Scope, RefusesAModelWithoutIdentity) {
  const Result<Scope> result = Scope::make({.model = "", .tenant_salt = "s"});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Errc::invalid_argument);
}

TEST(Scope, RefusesAScaleThatIsNoNumber) {
  for (const double scale :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    const Result<Scope> result =
        Scope::make({.model = "m", .adapters = {{"fine"}, {"broken", 1, scale}}});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Errc::invalid_argument);
    EXPECT_EQ(result.error().value(), 1U);
  }
}

}  // namespace
}  // namespace stemma
