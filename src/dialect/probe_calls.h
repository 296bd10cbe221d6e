// Reads the shape of calls out of a rendered answer, by the words that a probe put into it.
// Threading:  pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dialect/format.h"

namespace stemma::dialect {

// `text` is a rendered answer from where its calls begin: the first call is to kFirstTool, the
// second, if there is one, to kSecondTool, both with ProbeArguments::plain. `tail` is the end of
// the text, which answers without calls also have. `after_calls` is set to the text between the
// calls and the tail. Returns nullopt if the shape is unknown.
std::optional<Calls> read_calls(std::string_view text, std::string_view tail,
                                std::string& after_calls);

// "</think>" for "<think>", "<|END_X|>" for "<|START_X|>" and the like; empty if unknown.
std::string closer_for(std::string_view opener);

// The longest common beginning that ends where a marker may end, and the longest common end that
// begins where a marker may begin: so that "<|" of two different markers is no marker.
std::string_view common_front(std::string_view a, std::string_view b);
std::string_view common_back(std::string_view a, std::string_view b);

}  // namespace stemma::dialect
