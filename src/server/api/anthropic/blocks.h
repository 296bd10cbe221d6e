// Reads the messages of Anthropic's API from a body: `system` and `messages`.
// Threading: a pure function.
#pragma once

#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/request.h"

namespace stemma::server {

// Reads the cache_control of `owner`; `pins` counts them over a whole request. Names of unknown
// members go to `ignored`.
std::optional<CacheControl> read_cache_control(Fields& owner, const ApiRules& rules,
                                               Failure& failure, uint32_t& pins,
                                               std::vector<std::string>& ignored);

// Reads the fields "system" and "messages" of `request`.
void read_anthropic_messages(Fields& request, const ApiRules& rules, Failure& failure,
                             uint32_t& pins, std::vector<std::string>& ignored,
                             std::vector<Message>& messages);

}  // namespace stemma::server
