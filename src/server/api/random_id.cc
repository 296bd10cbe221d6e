#include "server/api/random_id.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <system_error>

namespace stemma::server {

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::array<uint64_t, 2> random{};
  if (getentropy(random.data(), sizeof random) != 0) {
    throw std::system_error(errno, std::generic_category(), "no random bits");
  }
  std::string id(prefix);
  for (uint64_t bits : random) {
    // 62^11 > 2^64.
    for (uint32_t i = 0; i < 11; ++i, bits /= kLetters.size())
      id += kLetters[bits % kLetters.size()];
  }
  return id;
}

}  // namespace stemma::server
