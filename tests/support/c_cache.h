// The vocabulary in which tests speak about the C ABI.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"
#include "stemma/stemma.h"
#include "support/text.h"

namespace stemma::test {

// How a call ended, in C and in C++: equal texts for equal outcomes.
inline std::string answer(stemma_status status) { return stemma_status_name(status); }
template <class T>
std::string answer(const Result<T>& result) {
  return result ? "ok" : std::string(to_string(result.error().code()));
}

inline stemma_prompt c_prompt(const std::vector<uint32_t>& tokens) {
  return {tokens.data(), tokens.size(), nullptr, 0};
}

inline stemma_group_options c_group(uint32_t capacity_blocks, uint32_t block_tokens = 16) {
  stemma_group_options group = STEMMA_GROUP_OPTIONS_INIT;
  group.capacity_blocks = capacity_blocks;
  group.block_tokens = block_tokens;
  group.block_bytes = 64 * uint64_t{block_tokens};
  return group;
}

inline stemma_scope c_scope(std::string_view model = "model") {
  stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
  spec.model = {model.data(), model.size()};
  stemma_scope scope{};
  EXPECT_EQ(stemma_scope_make(&spec, &scope), STEMMA_OK);
  return scope;
}

// The call was refused with this status, and its message names the call and the culprit.
inline ::testing::AssertionResult refused(stemma_status got, stemma_status wanted,
                                          std::string_view call, std::string_view culprit) {
  const std::string_view message = stemma_last_error_message();
  if (got != wanted) {
    return ::testing::AssertionFailure() << "status " << stemma_status_name(got) << ", not "
                                         << stemma_status_name(wanted) << ": " << message;
  }
  const std::string start = std::string(call) + ": " + stemma_status_name(wanted) + ": ";
  if (!message.starts_with(start) || message.find(culprit) == std::string_view::npos) {
    return ::testing::AssertionFailure() << "'" << message << "' does not begin with '" << start
                                         << "' and name '" << culprit << "'";
  }
  return ::testing::AssertionSuccess();
}
#define EXPECT_REFUSED(status, culprit, call, ...) \
  EXPECT_TRUE(::stemma::test::refused(call(__VA_ARGS__), status, #call, culprit))
#define ASSERT_OK(...) ASSERT_EQ(__VA_ARGS__, STEMMA_OK) << stemma_last_error_message()
#define EXPECT_OK(...) EXPECT_EQ(__VA_ARGS__, STEMMA_OK) << stemma_last_error_message()

// One cache of one group, destroyed when the test is over: no lease may be alive then.
class CapiFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    options.groups = &group;
    options.group_count = 1;
  }
  void TearDown() override {
    if (cache == nullptr) return;
    EXPECT_OK(stemma_cache_check_invariants(cache));
    EXPECT_OK(stemma_cache_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  }
  void create() { ASSERT_OK(stemma_cache_create(&options, &cache)); }

  stemma_lease take(const std::vector<uint32_t>& tokens) {
    const stemma_prompt prompt = c_prompt(tokens);
    stemma_lease lease = 0;
    EXPECT_OK(stemma_cache_lease(cache, &scope, &prompt, nullptr, &lease));
    return lease;
  }
  // A whole request.
  void fill(const std::vector<uint32_t>& tokens) {
    const stemma_lease lease = take(tokens);
    size_t copies = 0;
    EXPECT_OK(stemma_lease_copies(lease, nullptr, 0, &copies));
    if (copies != 0) {
      EXPECT_OK(stemma_lease_copies_done(lease));
    }
    EXPECT_OK(stemma_lease_commit(lease, static_cast<uint32_t>(tokens.size()), nullptr));
    EXPECT_OK(stemma_lease_release(lease, nullptr));
  }
  stemma_stats stats() {
    stemma_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_OK(stemma_cache_stats(cache, &stats));
    return stats;
  }

  stemma_group_options group = c_group(64);
  stemma_options options = STEMMA_OPTIONS_INIT;
  stemma_scope scope = c_scope();
  stemma_cache* cache = nullptr;
};

}  // namespace stemma::test
