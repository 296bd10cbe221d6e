// Patterns of `format`. A pattern is narrower than the standard where it cannot express the
// standard: no 29 February, no comments in addresses.
#include <array>
#include <utility>

#include "constrain/schema/schema_compiler.h"

namespace stemma::constrain {
namespace {

#define STEMMA_DATE                                                                       \
  "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)" \
  "|02-(0[1-9]|1[0-9]|2[0-8]))"
#define STEMMA_TIME                                          \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?" \
  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define STEMMA_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define STEMMA_HOST STEMMA_LABEL "(\\." STEMMA_LABEL "){0,6}"
#define STEMMA_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kFormats = {{
    {"date", "^" STEMMA_DATE "$"},
    {"time", "^" STEMMA_TIME "$"},
    {"date-time", "^" STEMMA_DATE "T" STEMMA_TIME "$"},
    {"duration", "^P([0-9]{1,4}W|[0-9]{1,4}D(T[0-9]{1,4}[HMS])?|[0-9]{1,4}[YM]|T[0-9]{1,4}[HMS])$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^[A-Za-z0-9_+-]{1,20}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@" STEMMA_LABEL
              "(\\." STEMMA_LABEL "){1,6}$"},
    {"hostname", "^" STEMMA_HOST "$"},
    {"ipv4", "^" STEMMA_BYTE "(\\." STEMMA_BYTE "){3}$"},
    {"ipv6",
     "^([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$|^([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}$|^::1?$"},
    {"uri", "^[a-z][a-z0-9+.-]{1,20}://" STEMMA_HOST "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~/-]*)?"
            "(\\?[A-Za-z0-9._~/=&-]*)?(#[A-Za-z0-9._~/-]*)?$"},
    {"uri-reference", "^(/[A-Za-z0-9._~-]+)+(\\?[A-Za-z0-9._~/=&-]*)?$"},
    {"json-pointer", "^(/[A-Za-z0-9._-]+)*$"},
    {"byte", "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    {"binary", "any"},  // For people, not for validators.
    {"password", "any"},
    {"markdown", "any"},
}};

}  // namespace

std::string_view pattern_of_format(std::string_view format) {
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  // For numbers: their storage type.
  for (const std::string_view name : {"int32", "int64", "uint32", "uint64", "float", "double"}) {
    if (name == format) return "any";
  }
  return {};
}

}  // namespace stemma::constrain
