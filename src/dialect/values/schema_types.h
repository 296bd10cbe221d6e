// What the schema of a tool says about one argument: whether its value is text.
//
// Models that write arguments in tags do not quote strings, so "3" and 3 look the same. The schema
// decides.
//
// Threading:  pure functions.
// Cost:       O(the part of the schema that belongs to the argument).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace stemma::dialect {

// A tool that the request offers.
struct Tool {
  std::string name;
  jinja::Value parameters;  // Its JSON schema; undefined where there is none.
};

enum class ArgumentType : uint8_t {
  unknown,  // The schema does not say, or allows both.
  text,
  other,  // A number, a boolean, null, an object or an array.
};

ArgumentType type_of_argument(const jinja::Value& parameters, std::string_view key);

// The value of an argument as JSON, out of what a model wrote between its tags. What is no JSON of
// the type that the schema wants becomes a string, so that nothing is lost.
std::string argument_as_json(std::string_view written, ArgumentType type);

}  // namespace stemma::dialect
