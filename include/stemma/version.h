// The version of this Stemma, and what it can do on this machine.
#pragma once

#include <cstdint>

namespace stemma {

struct Version {
  uint32_t major, minor, patch;
};

Version version() noexcept;
const char* version_string() noexcept;

// Whether this build, on this machine, has the named feature. Known names: "avx2", "avx512",
// "sha_ni" (the run-time paths in use), "content_keys", "events". False for unknown names.
bool has_feature(const char* name) noexcept;

}  // namespace stemma
