// What is known of the policies that make_policy() makes. Threading: immutable.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stemma::retain {

std::vector<std::string_view> policy_names();
// The most that a policy of this name holds per cell, in bytes; for budgets. 0 for one that is not known.
uint32_t most_bytes_per_cell(std::string_view name) noexcept;

}  // namespace stemma::retain
