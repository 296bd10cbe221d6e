// Decides whether a message that a client sends back means what was sampled.
//
// It does if text and thinking are equal, apart from blanks at their ends (clients and templates
// drop those), and if the calls have equal names and equal arguments. Arguments are compared as
// JSON values: objects with the same members in any order, and numbers of equal value however they
// are written. The returned message may lack the thinking. Arguments that are not JSON must be
// equal byte by byte.
//
// Threading:  pure functions.
// Cost:       O(both messages), and sorting the members of objects.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "dialect/answer_events.h"
#include "json/json.h"
#include "server/api/conversation.h"

namespace stemma::server {

// The text without blanks at its ends.
std::string_view trimmed(std::string_view text);

bool same_value(const Json& one, const Json& other);
// Compares arguments given as text. An empty text is an object without members.
bool same_arguments(std::string_view one, std::string_view other);

// `returned` is the client's message, `sampled` the server's parse of the sampled tokens.
bool same_meaning(const Message& returned, const dialect::ParsedMessage& sampled);
// Compares the calls of two parsed answers. Ids count if both have them.
bool same_calls(const dialect::ParsedMessage& one, const dialect::ParsedMessage& other);

// A digest that is equal for messages that mean the same and answer the same text. It ignores
// thinking.
std::array<uint8_t, 32> digest_of(const Message& returned, std::string_view before);
std::array<uint8_t, 32> digest_of(const dialect::ParsedMessage& sampled, std::string_view before);

}  // namespace stemma::server
