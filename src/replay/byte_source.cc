#include "replay/byte_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#ifdef STEMMA_HAS_ZSTD
#include <zstd.h>
#endif

namespace stemma::replay {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20U;

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(int file) : file_(file) {}
  PlainSource(const PlainSource&) = delete;
  PlainSource& operator=(const PlainSource&) = delete;
  ~PlainSource() override {
    if (file_ > STDIN_FILENO) close(file_);
  }
  // These come before what the file still has.
  void put_back(std::string bytes) { begun_ = std::move(bytes); }
  bool read(std::string& out) override {
    if (!begun_.empty()) {
      out += begun_;
      begun_.clear();
      return true;
    }
    if (file_ < 0) return false;
    const size_t before = out.size();
    out.resize(before + kPieceBytes);
    ssize_t got;
    do {
      got = ::read(file_, out.data() + before, kPieceBytes);
    } while (got < 0 && errno == EINTR);
    if (got < 0) problem_ = std::string("cannot be read: ") + std::strerror(errno);
    out.resize(before + static_cast<size_t>(got > 0 ? got : 0));
    return got > 0;
  }

 private:
  int file_;
  std::string begun_;
};

#ifdef STEMMA_HAS_ZSTD

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> compressed)
      : compressed_(std::move(compressed)), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (stream_ != nullptr) ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, 27);
  }
  bool read(std::string& out) override {
    if (stream_ == nullptr) {
      problem_ = "cannot be decompressed: no memory";
      return false;
    }
    for (;;) {
      if (at_ == in_.size()) {
        in_.clear();
        at_ = 0;
        if (!compressed_->read(in_)) {
          problem_ = compressed_->problem();
          if (problem_.empty() && in_a_frame_) {
            problem_ = "ends in the middle of its compressed data: it was cut off";
          }
          return false;
        }
      }
      const size_t before = out.size();
      out.resize(before + kPieceBytes);
      ZSTD_inBuffer input{in_.data(), in_.size(), at_};
      ZSTD_outBuffer output{out.data() + before, kPieceBytes, 0};
      const size_t left = ZSTD_decompressStream(stream_.get(), &output, &input);
      at_ = input.pos;
      out.resize(before + output.pos);
      if (ZSTD_isError(left) != 0U) {
        problem_ = std::string("cannot be decompressed: ") + ZSTD_getErrorName(left);
        return false;
      }
      in_a_frame_ = left != 0;
      if (output.pos != 0) return true;
    }
  }

 private:
  std::unique_ptr<ByteSource> compressed_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  std::string in_;
  size_t at_ = 0;
  bool in_a_frame_ = false;
};

#endif

bool starts_with(const std::string& bytes, std::initializer_list<unsigned char> magic) {
  if (bytes.size() < magic.size()) return false;
  return std::memcmp(bytes.data(), std::data(magic), magic.size()) == 0;
}

}  // namespace

std::unique_ptr<ByteSource> ByteSource::open(const std::string& path, std::string& problem) {
  const int file = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    problem = std::string("cannot be opened: ") + std::strerror(errno);
    return nullptr;
  }
  auto plain = std::make_unique<PlainSource>(file);
  std::string begun;
  while (begun.size() < 4 && plain->read(begun)) {
  }
  if (!plain->problem().empty()) {
    problem = plain->problem();
    return nullptr;
  }
  const bool zstd = starts_with(begun, {0x28, 0xB5, 0x2F, 0xFD});
  const bool gzip = starts_with(begun, {0x1F, 0x8B});
  plain->put_back(std::move(begun));
  if (gzip) {
    problem = "is compressed with gzip: gzip -dc FILE | stemma replay -";
    return nullptr;
  }
  if (!zstd) return plain;
#ifdef STEMMA_HAS_ZSTD
  return std::make_unique<ZstdSource>(std::move(plain));
#else
  problem =
      "is compressed with zstd, which this build cannot read (libzstd-dev was missing when it was "
      "built): zstd -dc --long=27 FILE | stemma replay -";
  return nullptr;
#endif
}

std::unique_ptr<ByteSource> ByteSource::of(std::string bytes) {
  auto source = std::make_unique<PlainSource>(-1);
  source->put_back(std::move(bytes));
  return source;
}

}  // namespace stemma::replay
