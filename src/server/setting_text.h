// Small functions over the texts of settings: reading, showing and comparing values, and printing
// their explanations. Config uses them; each is pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stemma::server {

// The number of letters to insert, remove or change to get from one text to the other.
size_t edits_between(std::string_view from, std::string_view to);

// Returns nothing if the text is not a decimal number of 64 bits.
std::optional<uint64_t> parse_number(std::string_view text);

// Formats a size, for example as "64MiB".
std::string show_size(uint64_t bytes);

// Returns "live, saved or disabled" if `word` is none of them; otherwise "".
std::string unless_among(std::string_view choices, std::string_view word);

// Appends `line`, which names a setting, and its explanation. Explanations begin in one column;
// those that are too long for a line of 100 columns go on in the next one.
void append_setting(std::string& out, std::string line, std::string_view explanation);

}  // namespace stemma::server
