// Facts about the policies that make_policy() makes. Threading: immutable.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stemma::retain {

std::vector<std::string_view> policy_names();
// The most memory that a policy of this name uses, for budgets; zeros for an unknown name.
struct PolicyBytes {
  uint32_t per_cell = 0;
  uint32_t fixed = 0;  // Beyond 128 KiB, whatever the number of cells.
};
PolicyBytes most_bytes(std::string_view name) noexcept;

}  // namespace stemma::retain
