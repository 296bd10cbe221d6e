// What callers may ask for: options of caches and of retention.
#pragma once

#include "stemma/options.h"
#include "stemma/result.h"
#include "stemma/retention.h"

namespace stemma::cache {

// Checks Options and fills in unset values. Error: invalid_argument.
Result<Options> check_options(const Options& options);
// Checks a caller's retention settings. Error: invalid_argument.
Result<void> check_retain(const Retain& retain);

}  // namespace stemma::cache
