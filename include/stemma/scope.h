// A Scope is everything that must be equal before the words of two prompts are even compared: the
// model, its adapters, how its KV is laid out, and who may share with whom.
//
// It is a 256-bit digest of a ScopeSpec. Every field is hashed behind its own tag and length, so an
// adapter called "X" and a salt "X" never meet, and no two fields can trade bytes. Different scopes
// share nothing: not in memory, not on disk, not on the wire.
//
// Who pays for cached bytes (TenantId) is no part of it. All requests of one scope share its
// blocks, whoever sent them, and each can tell by lookup() or by the time to the first token
// whether somebody sent a prompt that begins like its own: guess by guess, to the token. Nothing
// but a scope of its own, by a salt that nobody guesses, keeps a tenant's prompts from the others.
// A scope has one payer: while anything of it is cached or leased, a lease of it for another
// TenantId is refused as invalid_argument. So tenants with ids of their own need salts as well.
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

// An adapter as it is loaded now. Reload different weights under the same name, and the generation
// must change. Scales are compared bit by bit as doubles, except that -0 is 0.
struct ScopeAdapter {
  std::string name;
  uint64_t generation = 0;
  double scale = 1.0;
};

// Strings may hold any bytes. An empty string means "none": there is no second way to be absent.
struct ScopeSpec {
  // Required. Identifies the weights by content (a digest of the file), never by path.
  std::string model;
  // In the order they are applied: sums of rounded numbers depend on it, so the order counts.
  std::vector<ScopeAdapter> adapters = {};
  std::string kv_types = {};         // Element types of K and V: "f16/f16", "q8_0/f16".
  std::string layout = {};           // Fingerprint of how a block's bytes are arranged.
  std::string rope_and_window = {};  // Rope base, scaling, window: whatever changes K and V.
  uint32_t state_format = 0;         // Version of the engine's opaque state bytes.
  // Keeps a tenant's cache to itself. Random bytes, 16 or more: a salt that can be guessed lets
  // others find out what is cached.
  std::string tenant_salt = {};
  std::string caller_namespace = {};  // For the caller's own separations: "staging", "eval-7".
};

class Scope {
 public:
  // Error: invalid_argument if `model` is empty or a scale is not finite (the error's value is the
  // adapter's index).
  static Result<Scope> make(const ScopeSpec& spec) noexcept;

  // A scope known only by its digest, as stored data names it.
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
