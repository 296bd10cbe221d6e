// A ByteSource gives the bytes of a file, or of standard input, one piece after another; what zstd
// compressed comes out as it went in (windows up to 128 MiB, `zstd --long=27`).
//
// Whether a file is compressed is seen by its first bytes, whatever its name is.
// Threading:  one thread at a time.
// Ownership:  owns the open file; memory is its own.
// Cost:       one buffer of 1 MiB, two for compressed files, and zstd's window.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace stemma::replay {

class ByteSource {
 public:
  // "-" is standard input. Null, with `problem` saying why in words, when it cannot be opened or is
  // compressed in a way that this build does not know.
  static std::unique_ptr<ByteSource> open(const std::string& path, std::string& problem);
  // From memory, plain; for tests and fuzzing.
  static std::unique_ptr<ByteSource> of(std::string bytes);
  virtual ~ByteSource() = default;

  // Appends the next piece to `out`. False at the end, and when something is wrong: then problem()
  // says what.
  virtual bool read(std::string& out) = 0;
  const std::string& problem() const noexcept { return problem_; }

 protected:
  ByteSource() = default;
  std::string problem_;
};

}  // namespace stemma::replay
