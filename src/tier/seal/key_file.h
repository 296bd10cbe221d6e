// The bytes of a key file: docs/formats/key-ring.md draws them.
//
// Threading: pure functions. A KeyFile wipes its key when it is destroyed.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "stemma/result.h"

namespace stemma::tier::seal {

inline constexpr size_t kKeyFileBytes = 72;
inline constexpr size_t kKeyBytes = 32;

using KeyId = std::array<uint8_t, 8>;

struct KeyFile {
  KeyFile() = default;
  ~KeyFile();
  KeyFile(const KeyFile&) = default;
  KeyFile& operator=(const KeyFile&) = default;

  uint64_t owner =
      0;       // The scope it is for, so that a renamed file does not pass for another scope's.
  KeyId id{};  // Random. Entries name it.
  std::array<uint8_t, kKeyBytes> key{};  // Random.
};

std::array<uint8_t, kKeyFileBytes> write_key_file(const KeyFile& file) noexcept;

// Error: unsupported (a newer version; the value says which), corrupt (anything else that
//        write_key_file() would not
// have written).
Result<KeyFile> read_key_file(std::span<const uint8_t> bytes) noexcept;

}  // namespace stemma::tier::seal
