#include "stemma/version.h"

namespace stemma {

Version version() noexcept { return {0, 2, 0}; }
const char* version_string() noexcept { return "0.2.0"; }

}  // namespace stemma
