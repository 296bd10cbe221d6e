// The judge of our templates: Jinja2 itself, by way of judge.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jinja/template.h"

namespace stemma::jinja {

struct JudgeRequest {
  std::string source;
  Value variables;
};
struct Verdict {
  bool ok = false;
  std::string text;  // Or the error.
};

// One verdict per request; nullopt if there is no Python with Jinja2.
std::optional<std::vector<Verdict>> ask_judge(const std::vector<JudgeRequest>& requests);

// The judge's current time: 12:34:56 on Sunday, the 5th of January 2025.
RenderOptions judged_options();

// Renders, whatever goes wrong.
Verdict render(const std::string& source, const Value& variables,
               const RenderOptions& options = judged_options());

}  // namespace stemma::jinja
