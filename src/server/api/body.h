// Parses the body of a request into the fields of a JSON object.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "json/json.h"
#include "server/api/fields.h"
#include "server/api/request.h"

namespace stemma::server {

// Parses the body and passes its fields to `read`, which takes all that it knows.
template <class Read>
Failure decode_body(std::string_view body, const ApiRules& rules, Read&& read) {
  const std::variant<Json, JsonFault> parsed = parse_json(body, rules.json);
  if (const auto* fault = std::get_if<JsonFault>(&parsed)) {
    return ApiError{.message = "The body is not valid JSON: " + fault->message,
                    .code = "invalid_json"};
  }
  const Json& value = std::get<Json>(parsed);
  Failure failure;
  if (value.object() == nullptr) {
    return ApiError{
        .message = std::string("The body must be a JSON object, but it is ") + value.kind() + ".",
        .code = "invalid_type"};
  }
  Fields fields(*value.object(), "", failure);
  read(fields, failure);
  fields.finish();
  return failure;
}

}  // namespace stemma::server
