// Conversations for testing templates. Text that people wrote carries the number of its message as
// origin.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace stemma::jinja {

// Name, and the variables of a template.
std::vector<std::pair<std::string, Value>> conversations();
// A long one, with as many messages.
Value long_conversation(uint32_t messages, uint32_t words_each);

}  // namespace stemma::jinja
