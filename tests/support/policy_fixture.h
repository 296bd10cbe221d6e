// What tests of retention policies share: a policy made by name, a clock, short ways to ask.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stemma/retention.h"

namespace stemma::test {

inline std::string policy_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

// The parameter is the policy's name.
class PolicyTest : public ::testing::TestWithParam<std::string> {
 protected:
  void make(uint32_t cells) {
    policy = make_policy(GetParam(), cells);
    ASSERT_NE(policy, nullptr);
  }
  void touch(CellIndex cell, Touch how = {}) {
    how.now_ns = now_ns;
    policy->touch(cell, how);
  }
  CellIndex next() { return policy->victim(now_ns, false, kNoTenant).cell; }
  CellIndex next_of(TenantId tenant) { return policy->victim(now_ns, true, tenant).cell; }
  CellIndex pop() {
    const CellIndex cell = next();
    if (cell != kNoCell) policy->remove(cell);
    return cell;
  }
  std::vector<CellIndex> drain() {
    std::vector<CellIndex> order;
    for (CellIndex cell = pop(); cell != kNoCell; cell = pop()) order.push_back(cell);
    return order;
  }
  void TearDown() override {
    if (policy != nullptr) policy->check_invariants();
  }

  static Touch priority(Priority value, uint64_t deadline_ns = kNever) {
    return {.priority = value, .deadline_ns = deadline_ns};
  }
  static Touch phase(SessionPhase value, uint64_t deadline_ns = kNever) {
    return {.deadline_ns = deadline_ns, .phase = value};
  }

  std::unique_ptr<RetentionPolicy> policy;
  uint64_t now_ns = 1;
};

using Order = std::vector<CellIndex>;

}  // namespace stemma::test
