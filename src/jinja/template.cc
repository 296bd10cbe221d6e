#include "jinja/template.h"

#include <new>

#include "jinja/ast.h"
#include "jinja/budget.h"
#include "jinja/renderer.h"

namespace stemma::jinja {

std::string Problem::to_string() const {
  return line == 0 ? message : "line " + std::to_string(line) + ": " + message;
}

std::variant<Template, Problem> Template::parse(std::string_view source) {
  try {
    return Template(std::make_shared<const Ast>(parse_template(source)));
  } catch (Failure& failure) {
    return Problem{failure.kind, failure.line, std::move(failure.message)};
  } catch (const std::bad_alloc&) {
    return Problem{ProblemKind::limit, 0, "out of memory"};
  }
}

std::variant<Text, Problem> Template::render(const Value& variables,
                                             const RenderOptions& options) const {
  try {
    Renderer renderer(*ast_, variables, options);
    try {
      return renderer.run();
    } catch (Failure& failure) {
      const uint32_t line = failure.line != 0 ? failure.line : renderer.line();
      return Problem{failure.kind, line, std::move(failure.message)};
    }
  } catch (Failure& failure) {
    return Problem{failure.kind, failure.line, std::move(failure.message)};
  } catch (const std::bad_alloc&) {
    return Problem{ProblemKind::limit, 0, "out of memory"};
  }
}

bool Template::mentions(std::string_view name) const { return ast_->mentioned.contains(name); }

const std::vector<Problem>& Template::unsupported() const noexcept { return ast_->unsupported; }

}  // namespace stemma::jinja
