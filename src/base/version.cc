#include "stemma/version.h"

namespace stemma {

Version version() noexcept { return {0, 1, 0}; }
const char* version_string() noexcept { return "0.1.0"; }

}  // namespace stemma
