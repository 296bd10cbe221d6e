// Template: a chat template as models bring it, parsed once and rendered often.
//
// The language is the part of Jinja2 that chat templates use, with the settings of Hugging Face's
// apply_chat_template: trim_blocks, lstrip_blocks, break and continue, an immutable sandbox,
// raise_exception(), strftime_now(), `generation` blocks, and a tojson that does not escape HTML.
// Expected is the same text, byte by byte; docs/ARCHITECTURE.md lists what differs.
//
// Templates come out of model files and are not trusted: whatever one does, rendering ends within its
// limits with a text or a Problem.
//
// Strings of the variables may have an origin (value.h). The text says which of its bytes came from
// them, so that a caller can see to it that what a user wrote is never read as a special token: what a
// template copies, cuts, joins, replaces in, quotes or changes the case of keeps its mark, and what it
// adds has none.
//
// Threading:  immutable; any number of threads may render at once.
// Ownership:  the text and the marks are the caller's.
// Cost:       about 50 ns a node of the template that is reached, plus the bytes that are moved.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/limits.h"
#include "jinja/problem.h"
#include "jinja/text.h"
#include "jinja/value.h"

namespace stemma::jinja {

struct Ast;

struct RenderOptions {
  Limits limits;
  std::optional<std::tm> now;  // What strftime_now() tells; without it, it fails.
};

class Template {
 public:
  // Problem: syntax, unsupported (a tag), limit.
  static std::variant<Template, Problem> parse(std::string_view source);

  // `variables` is a dict: messages, add_generation_prompt, bos_token, tools ...
  // Problem: runtime, raised, unsupported, limit.
  std::variant<Text, Problem> render(const Value& variables,
                                     const RenderOptions& options = {}) const;

  // If the name occurs as a variable, an attribute, or a constant subscript or argument: `tools`,
  // `reasoning_content`. It does not say that the place is ever reached.
  bool mentions(std::string_view name) const;

  // Filters and tests that we lack. A rendering that meets one fails; others do not.
  const std::vector<Problem>& unsupported() const noexcept;

 private:
  explicit Template(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}
  std::shared_ptr<const Ast> ast_;
};

}  // namespace stemma::jinja
