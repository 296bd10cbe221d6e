// What is wrong with a template or its rendering, for the person who must act.
// Threading: immutable values.
#pragma once

#include <cstdint>
#include <string>

namespace stemma::jinja {

enum class ProblemKind : uint8_t {
  syntax,       // Not a valid template: fix the text.
  unsupported,  // A Jinja2 feature that we lack; the message names it.
  runtime,      // The template does something its values do not allow.
  raised,       // The template called raise_exception(); the message is its own.
  limit,        // More steps, bytes or nesting than allowed.
};

struct Problem {
  ProblemKind kind = ProblemKind::runtime;
  uint32_t line = 0;  // Of the template, from 1; 0 = nowhere in particular.
  std::string message;

  // "line 12: filter 'groupby' is not supported".
  std::string to_string() const;
};

}  // namespace stemma::jinja
