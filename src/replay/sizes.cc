#include "replay/sizes.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace stemma::replay {

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  if (!std::isfinite(value) || value < 0) return {};
  return value;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kLetters = "KMGT";
  if (text.empty() || text.back() != 'B') return {};
  text.remove_suffix(1);
  double unit = 1;
  const bool binary = !text.empty() && text.back() == 'i';
  if (binary) text.remove_suffix(1);
  const size_t power = text.empty() ? std::string_view::npos : kLetters.find(text.back());
  if (power != std::string_view::npos) {
    unit = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
    text.remove_suffix(1);
  } else if (binary) {
    return {};
  }
  const auto number = parse_number(text);
  if (!number || *number * unit >= 9e18) return {};
  return static_cast<uint64_t>(*number * unit);
}

std::string format_count(uint64_t count) {
  std::string out = std::to_string(count);
  for (size_t at = out.size(); at > 3; at -= 3) out.insert(at - 3, ",");
  return out;
}

std::string format_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s",
                unit == 0 || value >= 99.95 ? 0
                : value >= 9.995            ? 1
                                            : 2,
                value, kUnits[unit]);
  return text;
}

}  // namespace stemma::replay
