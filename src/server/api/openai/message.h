// The messages of a chat, out of the body that holds them.
// Threading: a pure function.
#pragma once

#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/request.h"

namespace stemma::server {

// Reads the field "messages" of `request`. What is wrong goes to `failure`, names of fields that were
// passed over to `ignored`.
void read_messages(Fields& request, const ApiRules& rules, Failure& failure,
                   std::vector<std::string>& ignored, std::vector<Message>& messages);

}  // namespace stemma::server
