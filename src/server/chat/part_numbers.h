// PartNumbers: the marks that clients' text carries through a template.
//
// Each part of each message has a number. A message without parts has one, too. Calls and thinking
// carry the number of their message's first part. Tools have their own numbers.
//
// Threading:  immutable.
// Ownership:  borrows nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "jinja/text.h"
#include "server/api/conversation.h"

namespace stemma::server {

// Marks clients' text that belongs to no message: names, arguments of the template.
inline constexpr jinja::Origin kNoMessage{0xFFFF'FFFEU};

class PartNumbers {
 public:
  explicit PartNumbers(std::span<const Message> messages);

  struct Place {
    uint32_t message;
    uint32_t part;
  };
  jinja::Origin of(size_t message, size_t part = 0) const {
    return jinja::Origin{first_[message] + static_cast<uint32_t>(part)};
  }
  std::optional<Place> place(jinja::Origin origin) const;

  static jinja::Origin of_tool(size_t tool) {
    return jinja::Origin{kTools + static_cast<uint32_t>(tool)};
  }
  static std::optional<uint32_t> tool(jinja::Origin origin) {
    const auto number = static_cast<uint32_t>(origin);
    if (number < kTools || origin == kNoMessage || origin == jinja::kNoOrigin) return {};
    return number - kTools;
  }

 private:
  static constexpr uint32_t kTools = 0x8000'0000U;
  std::vector<uint32_t> first_;  // By message: the number of its first part.
  std::vector<Place> places_;    // By number.
};

}  // namespace stemma::server
