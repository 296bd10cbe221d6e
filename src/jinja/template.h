// Template: a model's chat template, parsed once and rendered often.
//
// The language is the part of Jinja2 that chat templates use, with the settings of Hugging Face's
// apply_chat_template: trim_blocks, lstrip_blocks, break and continue, an immutable sandbox,
// raise_exception(), strftime_now(), `generation` blocks, and a tojson that does not escape HTML.
// The goal is the same text, byte by byte; docs/ARCHITECTURE.md lists the differences.
//
// Templates come from model files and are not trusted: whatever a template does, rendering ends
// within its limits with a text or a Problem.
//
// Strings of the variables may have an origin (value.h). The rendered text marks which of its bytes
// came from them, so that a caller can make sure that a user's text is never read as a special
// token. Bytes keep their marks when a template copies, cuts, joins, quotes, replaces in or changes
// the case of a string. Bytes that the template adds have no mark.
//
// Threading:  immutable; any number of threads may render at once.
// Ownership:  the caller owns the text and the marks.
// Cost:       about 50 ns for each visited node of the template, plus moving the bytes.
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
  std::optional<std::tm> now;  // The time for strftime_now(), which fails without it.
};

class Template {
 public:
  // Problem: syntax, unsupported (a tag), limit.
  static std::variant<Template, Problem> parse(std::string_view source);

  // `variables` is a dict: messages, add_generation_prompt, bos_token, tools ...
  // Problem: runtime, raised, unsupported, limit.
  std::variant<Text, Problem> render(const Value& variables,
                                     const RenderOptions& options = {}) const;

  // Whether the name (`tools`, `reasoning_content`) occurs as a variable, an attribute, or a
  // constant subscript or argument. The place may never be reached.
  bool mentions(std::string_view name) const;

  // Filters and tests that we lack. Only a rendering that reaches one fails.
  const std::vector<Problem>& unsupported() const noexcept;

 private:
  explicit Template(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}
  std::shared_ptr<const Ast> ast_;
};

}  // namespace stemma::jinja
