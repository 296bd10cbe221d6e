#include "server/api/custom_format.h"

#include <string>

namespace stemma::server {

void read_custom_format(Fields& fields, Failure& failure, ToolSpec& tool) {
  tool.strict = fields.boolean("strict").value_or(false);
  const Json* const format = fields.take("format");
  if (format == nullptr) return;
  if (format->object() == nullptr) return fields.fail_type("format", "an object", *format);
  Fields inner(*format->object(), fields.path("format") + ".", failure);
  const std::string type = inner.string("type", 64).value_or("");
  if (type == "text" || failure) return;
  if (type != "grammar") return inner.fail_value("type", "expected 'text' or 'grammar'");
  if (tool.strict) {
    return inner.fail_unsupported("type",
                                  "a grammar for the input of a custom tool cannot be enforced "
                                  "here; offer the tool without 'strict', or as a function with a "
                                  "schema");
  }
  tool.unenforced = fields.path("format");
}

}  // namespace stemma::server
