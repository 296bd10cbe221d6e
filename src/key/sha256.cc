#include "key/sha256.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "key/sha256_compress.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stemma::key {

alignas(64) extern const uint32_t kSha256Rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

namespace {

uint32_t get_be32(const uint8_t* from) noexcept {
  return uint32_t{from[0]} << 24 | uint32_t{from[1]} << 16 | uint32_t{from[2]} << 8 | from[3];
}

void put_be32(uint8_t* to, uint32_t value) noexcept {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

void portable_compress(uint32_t* state, const uint8_t* blocks, size_t count) noexcept {
  for (; count != 0; --count, blocks += kSha256Block) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = get_be32(blocks + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t x = w[i - 15], y = w[i - 2];
      const uint32_t s0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
      const uint32_t s1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Rounds[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

bool cpu_has_sha() noexcept {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
  const bool ssse3 = (c & (1U << 9)) != 0;
  const bool sse41 = (c & (1U << 19)) != 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool sha = (b & (1U << 29)) != 0;
  return ssse3 && sse41 && sha;
#else
  return false;
#endif
}

// Undecided until the first use has asked the CPU.
enum Path : int { kUndecided = 0, kPortable, kInstructions };
std::atomic<int> chosen_path{kUndecided};

bool use_instructions() noexcept {
  int path = chosen_path.load(std::memory_order_relaxed);
  if (path == kUndecided) [[unlikely]] {
    // Threads that race here agree on the answer.
    path = cpu_has_sha() ? kInstructions : kPortable;
    chosen_path.store(path, std::memory_order_relaxed);
  }
  return path == kInstructions;
}

void compress(uint32_t* state, const uint8_t* blocks, size_t count) noexcept {
  if (use_instructions()) {
    sha256_ni_compress(state, blocks, count);
  } else {
    portable_compress(state, blocks, count);
  }
}

void write_digest(const uint32_t* state, const uint8_t* blocks, size_t count,
                  uint8_t* digest) noexcept {
  if (use_instructions()) {
    sha256_ni_digest(state, blocks, count, digest);
    return;
  }
  uint32_t copy[8];
  std::copy_n(state, 8, copy);
  portable_compress(copy, blocks, count);
  for (int i = 0; i < 8; ++i) put_be32(digest + 4 * i, copy[i]);
}

// Writes the end of a message: the mark, zeros, and the length in bits. `tail` holds the last
// `used` bytes of a message of `total` bytes, starting at a block border.
size_t pad(uint8_t* tail, size_t used, uint64_t total) noexcept {
  const size_t count = (used + 9 + kSha256Block - 1) / kSha256Block;
  const size_t end = count * kSha256Block;
  std::memset(tail + used, 0, end - used);
  tail[used] = 0x80;
  put_be32(tail + end - 8, static_cast<uint32_t>(total >> 29));
  put_be32(tail + end - 4, static_cast<uint32_t>(total << 3));
  return count;
}

}  // namespace

size_t sha256_pad(uint8_t* message, size_t size) noexcept { return pad(message, size, size); }

void sha256_padded(const uint8_t* blocks, size_t count, uint8_t* digest) noexcept {
  write_digest(kSha256Initial.data(), blocks, count, digest);
}

Digest sha256(std::span<const uint8_t> message) noexcept {
  Digest digest;
  if (message.size() <= kShortMessage) {
    alignas(16) uint8_t blocks[2 * kSha256Block];
    if (!message.empty()) std::memcpy(blocks, message.data(), message.size());
    sha256_padded(blocks, sha256_pad(blocks, message.size()), digest.data());
    return digest;
  }
  Sha256 hash;
  hash.update(message);
  return hash.finish();
}

void Sha256::update(std::span<const uint8_t> bytes) noexcept {
  if (bytes.empty()) return;
  const size_t held = total_bytes_ % kSha256Block;
  total_bytes_ += bytes.size();
  if (held != 0) {
    const size_t take = std::min(kSha256Block - held, bytes.size());
    std::memcpy(pending_.data() + held, bytes.data(), take);
    bytes = bytes.subspan(take);
    if (held + take < kSha256Block) return;
    compress(state_.data(), pending_.data(), 1);
  }
  const size_t whole = bytes.size() / kSha256Block;
  if (whole != 0) compress(state_.data(), bytes.data(), whole);
  bytes = bytes.subspan(whole * kSha256Block);
  if (!bytes.empty()) std::memcpy(pending_.data(), bytes.data(), bytes.size());
}

Digest Sha256::finish() noexcept {
  const size_t count = pad(pending_.data(), total_bytes_ % kSha256Block, total_bytes_);
  Digest digest;
  write_digest(state_.data(), pending_.data(), count, digest.data());
  return digest;
}

bool sha256_uses_instructions() noexcept { return use_instructions(); }

void force_portable_sha256(bool portable) noexcept {
  chosen_path.store(portable ? kPortable : kUndecided, std::memory_order_relaxed);
}

}  // namespace stemma::key
