// Which Stemma this is and what it can do here.
#pragma once

#include <cstdint>

namespace stemma {

struct Version {
  uint32_t major, minor, patch;
};

Version version() noexcept;
const char* version_string() noexcept;

// True when this build, on this machine, has the named feature. Known names: "avx2", "avx512",
// "sha_ni" (the run-time paths in use), "content_keys", "events". Unknown names are false.
bool has_feature(const char* name) noexcept;

}  // namespace stemma
