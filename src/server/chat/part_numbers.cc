#include "server/chat/part_numbers.h"

#include <algorithm>

namespace stemma::server {

PartNumbers::PartNumbers(std::span<const Message> messages) {
  for (uint32_t m = 0; m < messages.size(); ++m) {
    first_.push_back(static_cast<uint32_t>(places_.size()));
    const auto parts = static_cast<uint32_t>(std::max<size_t>(1, messages[m].parts.size()));
    for (uint32_t p = 0; p < parts; ++p) places_.push_back({m, p});
  }
}

std::optional<PartNumbers::Place> PartNumbers::place(jinja::Origin origin) const {
  const auto number = static_cast<uint32_t>(origin);
  if (number >= places_.size()) return {};
  return places_[number];
}

}  // namespace stemma::server
