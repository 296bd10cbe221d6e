// `$ref` of a JSON schema.
#include <utility>

#include "constrain/schema/schema_compiler.h"

namespace stemma::constrain {
namespace {

// `~1` is a slash, `~0` a tilde, `%41` a byte.
std::string decode_token(std::string_view token) {
  std::string out;
  const auto hex = [](char c) {
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
  };
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '%' && i + 2 < token.size() && hex(token[i + 1]) >= 0 &&
        hex(token[i + 2]) >= 0) {
      out += static_cast<char>(hex(token[i + 1]) * 16 + hex(token[i + 2]));
      i += 2;
    } else if (token[i] == '~' && i + 1 < token.size()) {
      out += token[++i] == '1' ? '/' : '~';
    } else {
      out += token[i];
    }
  }
  return out;
}

}  // namespace

bool SchemaCompiler::add_reference(const SchemaPart& part, Conjunction& parts) {
  const Json* const reference = part.find("$ref");
  if (reference == nullptr) return true;
  if (reference->string() == nullptr) {
    fail("$ref is not a string", part.pointer);
    return false;
  }
  std::optional<SchemaPart> target = resolve(*reference->string(), part.pointer);
  if (!target) return false;
  if (target->schema == part.schema) {
    fail("$ref refers to itself", part.pointer);
    return false;
  }
  parts.push_back(*std::move(target));
  return true;
}

std::optional<SchemaPart> SchemaCompiler::resolve(const std::string& reference,
                                                  const std::string& pointer) {
  if (const auto at = references_.find(reference); at != references_.end()) return at->second;
  if (!reference.starts_with("#/")) {
    fail("only references within the schema are known, not '" + reference.substr(0, 200) + "'",
         pointer);
    return std::nullopt;
  }
  SchemaPart part{&root_, "", 0};
  std::string_view left = std::string_view(reference).substr(2);
  for (bool more = true; more;) {
    const size_t slash = left.find('/');
    const std::string token = decode_token(left.substr(0, slash));
    more = slash != std::string_view::npos;
    if (more) left.remove_prefix(slash + 1);
    const Json* next = part.schema->find(token);
    if (const Json::Array* array = part.schema->array()) {
      const bool number = !token.empty() && token.size() < 7 &&
                          token.find_first_not_of("0123456789") == std::string::npos;
      const size_t index = number ? std::stoul(token) : array->size();
      next = index < array->size() ? &(*array)[index] : nullptr;
    }
    if (next == nullptr) {
      fail("the reference '" + reference.substr(0, 200) + "' leads nowhere", pointer);
      return std::nullopt;
    }
    part.schema = next;
    part.pointer = pointer_below(part.pointer, token);
  }
  references_[reference] = part;
  return part;
}

}  // namespace stemma::constrain
