// A Scope is everything that must be equal before the words of two prompts are even compared: the
// model, its adapters, how its KV is laid out, and who may share with whom.
//
// It is a 256-bit digest of a ScopeSpec. Each field is hashed with its own tag and length, so an
// adapter "X" never equals a salt "X", and bytes cannot move from one field to the next. Different
// scopes share nothing: not in memory, not on disk, not on the wire.
//
// The tenant that pays for cached bytes (TenantId) is not part of the scope. All requests of one
// scope share its blocks, whoever sent them. By lookup(), or by the time to the first token, a
// client can tell whether another client sent a prompt that begins like its own, and can guess that
// prompt token by token. To hide a tenant's prompts from others, give the tenant a scope of its
// own, made with a salt that cannot be guessed. A scope has one payer: while anything of it is
// cached or leased, leasing it for another TenantId fails with invalid_argument. So tenants with
// their own ids need salts as well.
// Threading:  immutable value.
// Cost:       make() hashes the spec once; copies and comparisons are 32 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "stemma/result.h"

namespace stemma {

// An adapter as it is loaded now. If you load different weights under the same name, change the
// generation. Scales are compared bit by bit as doubles, except that -0 equals 0.
struct ScopeAdapter {
  std::string name;
  uint64_t generation = 0;
  double scale = 1.0;
};

// Strings may hold any bytes. An empty string means "none", and is the only way to say so.
struct ScopeSpec {
  // Required. Identifies the weights by content (a digest of the file), never by path.
  std::string model;
  // In the order they are applied. The order counts, because sums of rounded numbers depend on it.
  std::vector<ScopeAdapter> adapters = {};
  std::string kv_types = {};         // Element types of K and V: "f16/f16", "q8_0/f16".
  std::string layout = {};           // Fingerprint of how a block's bytes are arranged.
  std::string rope_and_window = {};  // Rope base, scaling, window: whatever changes K and V.
  uint32_t state_format = 0;         // Version of the engine's opaque state bytes.
  // Keeps a tenant's cache private. Use 16 or more random bytes: a salt that can be guessed lets
  // others find out what is cached.
  std::string tenant_salt = {};
  std::string caller_namespace = {};  // Separates the caller's own uses: "staging", "eval-7".
};

class Scope {
 public:
  // Error: invalid_argument if `model` is empty or a scale is not finite (the error's value is the
  // adapter's index).
  static Result<Scope> make(const ScopeSpec& spec) noexcept;

  // A scope known only by its digest, as in stored data.
  static Scope from_digest(const std::array<uint8_t, 32>& digest) noexcept { return Scope(digest); }

  const std::array<uint8_t, 32>& digest() const noexcept { return digest_; }

  friend bool operator==(const Scope&, const Scope&) = default;

 private:
  explicit Scope(const std::array<uint8_t, 32>& digest) noexcept : digest_(digest) {}
  std::array<uint8_t, 32> digest_;
};

}  // namespace stemma

template <>
struct std::hash<stemma::Scope> {
  size_t operator()(const stemma::Scope& scope) const noexcept {
    size_t value;
    std::memcpy(&value, scope.digest().data(), sizeof value);
    return value;
  }
};
