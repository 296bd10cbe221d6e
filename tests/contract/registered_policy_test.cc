// Policies that a program registers.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "retain/policies.h"
#include "stemma/cache.h"
#include "stemma/retention.h"

namespace stemma::test {
namespace {

std::unique_ptr<RetentionPolicy> make_lru(uint32_t cells) { return make_policy("lru", cells); }
std::unique_ptr<RetentionPolicy> make_none(uint32_t) { return nullptr; }
std::unique_ptr<RetentionPolicy> throw_bad_alloc(uint32_t) { throw std::bad_alloc(); }

TEST(RegisteredPolicies, AreKnownByName) {
  EXPECT_FALSE(knows_policy("of_a_test"));
  {
    std::string name = "of_a_test";
    ASSERT_TRUE(register_policy(
        {.name = name, .make = make_lru, .bytes_per_cell = 44, .fixed_bytes = 1 << 20U}));
    name = "overwritten";  // It was copied.
  }
  EXPECT_TRUE(knows_policy("of_a_test"));
  EXPECT_NE(make_policy("of_a_test", 8), nullptr);
  EXPECT_EQ(retain::most_bytes("of_a_test").per_cell, 44U);
  EXPECT_EQ(retain::most_bytes("of_a_test").fixed, 1U << 20U);
  const std::vector<std::string_view> names = retain::policy_names();
  EXPECT_EQ(std::ranges::count(names, "of_a_test"), 1);

  stemma::Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 4}};
  options.policy = "of_a_test";
  EXPECT_TRUE(PagedCache::create(options));
  // A second policy of this name would change what the first user gets.
  EXPECT_EQ(register_policy({.name = "of_a_test", .make = make_lru}).error().code(),
            Errc::invalid_argument);
}

TEST(RegisteredPolicies, WithoutMemoryThereIsNone) {
  ASSERT_TRUE(register_policy({.name = "makes_none", .make = make_none}));
  ASSERT_TRUE(register_policy({.name = "throws", .make = throw_bad_alloc}));
  stemma::Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 4}};
  for (const char* name : {"makes_none", "throws"}) {
    EXPECT_EQ(make_policy(name, 8), nullptr);
    options.policy = name;
    EXPECT_EQ(PagedCache::create(options).error().code(), Errc::out_of_memory) << name;
  }
}

TEST(RegisteredPolicies, WhatCannotBeRegisteredIsRefused) {
  const std::string longest(31, 'a');
  for (const std::string& name : {std::string(), std::string("Mine"), std::string("a b"),
                                  std::string("a\0b", 3), longest + "a"}) {
    EXPECT_EQ(register_policy({.name = name, .make = make_lru}).error().code(),
              Errc::invalid_argument)
        << name;
  }
  for (const char* name : {"lru", "adaptive", "default"}) {
    EXPECT_EQ(register_policy({.name = name, .make = make_lru}).error().to_string(),
              "invalid_argument: a policy of this name is known already");
  }
  EXPECT_EQ(register_policy({.name = "no_make"}).error().code(), Errc::invalid_argument);
  EXPECT_FALSE(knows_policy("no_make"));
  EXPECT_TRUE(register_policy({.name = longest, .make = make_lru}));
  // Until there is no room for more.
  uint32_t count = 0;
  while (register_policy({.name = "filler_" + std::to_string(count), .make = make_lru})) ++count;
  EXPECT_GE(count, 28U);
  EXPECT_LE(count, 31U);
  EXPECT_EQ(register_policy({.name = "one_more", .make = make_lru}).error().to_string(),
            "invalid_argument: 32 policies are registered already");
  EXPECT_TRUE(knows_policy("filler_0"));
}

}  // namespace
}  // namespace stemma::test
