// Writes values as text the way Python does. Bytes from marked strings keep their marks.
// Threading: pure functions.
#pragma once

#include <string>

#include "jinja/text.h"
#include "jinja/value.h"

namespace stemma::jinja {

// str(): strings as they are, undefined as nothing.
void print(Budget& budget, TextBuilder& out, const Value& value);
// repr(): strings in quotes.
void print_quoted(Budget& budget, TextBuilder& out, const Value& value, uint32_t depth = 0);
// 0.1, 1e+16, inf.
std::string print_real(double value);

struct JsonStyle {
  bool ascii = false;   // Writes all else as \uXXXX.
  bool sorted = false;  // By key.
  bool indented = false;
  Text indent;
  Text between = {", ", {}};
  Text after_key = {": ", {}};
};
// json.dumps(). Fails for values that JSON does not have.
void print_json(Budget& budget, TextBuilder& out, const Value& value, const JsonStyle& style,
                uint32_t depth = 0);

}  // namespace stemma::jinja
