// Parses and formats amounts as people write and read them: "40GB", "5%", "50GB/s"; "1,234", "36.7
// GB".
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stemma::replay {

// A number followed by B, KB, MB, GB, TB (powers of 1000) or KiB ... TiB (powers of 1024).
std::optional<uint64_t> parse_bytes(std::string_view text);
// A number that is finite and not negative.
std::optional<double> parse_number(std::string_view text);
std::string format_count(uint64_t count);
std::string format_bytes(uint64_t bytes);

}  // namespace stemma::replay
