#include <string_view>

#include "key/sha256.h"
#include "stemma/version.h"
#include "tree/walk.h"

namespace stemma {

bool has_feature(const char* name) noexcept {
  const std::string_view feature = name == nullptr ? "" : name;
  if (feature == "avx512") return tree::cpu_has_avx512();
  if (feature == "avx2") return tree::cpu_has_avx2();
  if (feature == "sha_ni") return key::sha256_uses_instructions();
  return feature == "content_keys" || feature == "events";
}

}  // namespace stemma
