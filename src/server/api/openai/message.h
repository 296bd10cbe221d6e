// Reads the messages of a chat from a body.
// Threading: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/request.h"

namespace stemma::server {

// Reads the field "messages" of `request`. Errors go to `failure`, names of skipped fields to
// `ignored`. A tool result that belongs to no call of the answer before it is an error.
void read_messages(Fields& request, const ApiRules& rules, Failure& failure,
                   std::vector<std::string>& ignored, std::vector<Message>& messages);

// Reads the field "cache_control" of an object that may have one. Names of unknown members go to
// `ignored`.
std::optional<CacheControl> read_cache_control(Fields& owner, std::vector<std::string>& ignored,
                                               Failure& failure);

}  // namespace stemma::server
