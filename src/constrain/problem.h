// What is wrong with a schema or a grammar, for the person who wrote it.
#pragma once

#include <string>

namespace stemma::constrain {

struct Problem {
  std::string message;  // A sentence without a full stop: "the pattern uses look-around".
  std::string where;    // A JSON pointer or "line 3, column 7"; empty if it concerns the whole.

  std::string text() const { return where.empty() ? message : where + ": " + message; }
};

}  // namespace stemma::constrain
