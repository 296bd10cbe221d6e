// Values as text, the way Python writes them; marks stay on what came from marked strings.
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
  bool ascii = false;   // All else as \uXXXX.
  bool sorted = false;  // Keys.
  bool indented = false;
  Text indent;
  Text between = {", ", {}};
  Text after_key = {": ", {}};
};
// json.dumps(). Fails for what JSON has not.
void print_json(Budget& budget, TextBuilder& out, const Value& value, const JsonStyle& style,
                uint32_t depth = 0);

}  // namespace stemma::jinja
