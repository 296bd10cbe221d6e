// A ByteSource reads a file, or standard input, piece by piece. It decompresses zstd (windows up to
// 128 MiB, `zstd --long=27`).
//
// It recognizes compressed files by their first bytes, not by name.
// Threading:  one thread at a time.
// Ownership:  owns the open file and its memory.
// Cost:       one buffer of 1 MiB, two for compressed files, and zstd's window.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace stemma::replay {

class ByteSource {
 public:
  // "-" is standard input. Returns null, with the reason in `problem`, if it cannot be opened or
  // this build does not know its compression.
  static std::unique_ptr<ByteSource> open(const std::string& path, std::string& problem);
  // Reads from memory, uncompressed; for tests and fuzzing.
  static std::unique_ptr<ByteSource> of(std::string bytes);
  virtual ~ByteSource() = default;

  // Appends the next piece to `out`. Returns false at the end, or on an error: then problem() has
  // the reason.
  virtual bool read(std::string& out) = 0;
  const std::string& problem() const noexcept { return problem_; }

 protected:
  ByteSource() = default;
  std::string problem_;
};

}  // namespace stemma::replay
