#include "engine/gguf/gguf_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "engine/gguf/half.h"

namespace stemma::gguf {
namespace {

// Kinds of values, numbered by the format.
constexpr uint32_t kU32 = 4;
constexpr uint32_t kI32 = 5;
constexpr uint32_t kF32 = 6;
constexpr uint32_t kBool = 7;
constexpr uint32_t kString = 8;
constexpr uint32_t kArray = 9;

constexpr size_t kBufferBytes = 1 << 20;

template <class T>
void put_number(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void put_string(std::string& out, std::string_view text) {
  put_number<uint64_t>(out, text.size());
  out.append(text);
}

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Error io_error(int reason) {
  const auto code = static_cast<uint32_t>(reason);
  switch (reason) {
    case ENOSPC: return {Errc::copy_failed, "the disk is full", code};
    case EDQUOT: return {Errc::copy_failed, "the disk quota is used up", code};
    case EFBIG: return {Errc::copy_failed, "the file would be larger than is allowed here", code};
    case EACCES:
    case EPERM: return {Errc::copy_failed, "no permission to write there", code};
    case EROFS: return {Errc::copy_failed, "the file system is read-only", code};
    case ENOENT: return {Errc::copy_failed, "there is no such folder", code};
    case ENOTDIR: return {Errc::copy_failed, "a part of the path is no folder", code};
    case EISDIR: return {Errc::copy_failed, "that is a folder", code};
    case ENAMETOOLONG: return {Errc::copy_failed, "the name is too long", code};
    case EPIPE: return {Errc::copy_failed, "nobody reads any more", code};
    default: return {Errc::copy_failed, "the file could not be written", code};
  }
}

Error already_there() { return {Errc::wrong_state, "there is such a file already"}; }

// fsync(), but not an error if the file does not support it.
bool sync_fails(int file) { return fsync(file) != 0 && errno != EINVAL && errno != EROFS; }

}  // namespace

uint64_t TensorInfo::elements() const noexcept {
  uint64_t count = 1;
  for (const uint64_t dim : dims) count *= dim;
  return count;
}

void GgufHeader::put_key(std::string_view key, uint32_t type) {
  put_string(keys_, key);
  put_number(keys_, type);
  ++key_count_;
}

void GgufHeader::set_u32(std::string_view key, uint32_t value) {
  put_key(key, kU32);
  put_number(keys_, value);
}

void GgufHeader::set_f32(std::string_view key, float value) {
  put_key(key, kF32);
  put_number(keys_, std::bit_cast<uint32_t>(value));
}

void GgufHeader::set_bool(std::string_view key, bool value) {
  put_key(key, kBool);
  keys_.push_back(value ? 1 : 0);
}

void GgufHeader::set_string(std::string_view key, std::string_view value) {
  put_key(key, kString);
  put_string(keys_, value);
}

void GgufHeader::set_u32s(std::string_view key, std::span<const uint32_t> values) {
  put_key(key, kArray);
  put_number(keys_, kU32);
  put_number<uint64_t>(keys_, values.size());
  for (const uint32_t value : values) put_number(keys_, value);
}

void GgufHeader::set_i32s(std::string_view key, std::span<const int32_t> values) {
  put_key(key, kArray);
  put_number(keys_, kI32);
  put_number<uint64_t>(keys_, values.size());
  for (const int32_t value : values) put_number(keys_, static_cast<uint32_t>(value));
}

void GgufHeader::set_strings(std::string_view key, std::span<const std::string> values) {
  put_key(key, kArray);
  put_number(keys_, kString);
  put_number<uint64_t>(keys_, values.size());
  for (const std::string& value : values) put_string(keys_, value);
}

std::string GgufHeader::bytes() const {
  std::string out = "GGUF";
  put_number(out, kGgufVersion);
  put_number<uint64_t>(out, tensors_.size());
  put_number<uint64_t>(out, key_count_);
  out += keys_;
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors_) {
    put_string(out, tensor.name);
    put_number(out, static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) put_number(out, dim);
    put_number(out, static_cast<uint32_t>(tensor.type));
    put_number(out, offset);
    offset += aligned(tensor.bytes());
  }
  out.resize(aligned(out.size()), '\0');
  return out;
}

uint64_t GgufHeader::file_bytes() const {
  uint64_t total = bytes().size();
  for (const TensorInfo& tensor : tensors_) total += aligned(tensor.bytes());
  return total;
}

GgufWriter::GgufWriter(GgufWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      on_existing_(other.on_existing_),
      file_(std::exchange(other.file_, -1)),
      tensors_(std::move(other.tensors_)),
      tensor_(other.tensor_),
      elements_(other.elements_),
      written_bytes_(other.written_bytes_),
      buffer_(std::move(other.buffer_)) {}

GgufWriter::~GgufWriter() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Result<GgufWriter> GgufWriter::create(const std::string& path, const GgufHeader& header,
                                      OnExisting on_existing) {
  GgufWriter writer;
  writer.path_ = path;
  writer.on_existing_ = on_existing;
  writer.tensors_ = header.tensors();
  writer.buffer_.reserve(kBufferBytes);

  struct stat status{};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return io_error(EISDIR);
  if (exists && on_existing == OnExisting::refuse) return already_there();
  if (exists && !S_ISREG(status.st_mode)) {
    writer.file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (writer.file_ < 0) return io_error(errno);
  } else {
    for (uint32_t attempt = 0; writer.file_ < 0; ++attempt) {
      const std::string name =
          path + ".part-" + std::to_string(getpid()) + "-" + std::to_string(attempt);
      writer.file_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (writer.file_ >= 0) {
        writer.temporary_ = name;
      } else if (errno != EEXIST || attempt == 1000) {
        return io_error(errno);
      }
    }
  }
  const std::string bytes = header.bytes();
  STEMMA_TRY_VOID(writer.put({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  return writer;
}

Result<void> GgufWriter::put(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(part));
    written_bytes_ += part;
    bytes = bytes.subspan(part);
    if (buffer_.size() == kBufferBytes) STEMMA_TRY_VOID(flush());
  }
  return {};
}

Result<void> GgufWriter::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t count = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    if (count < 0) {
      if (errno == EINTR) continue;
      return io_error(errno);
    }
    done += static_cast<size_t>(count);
  }
  buffer_.clear();
  return {};
}

Result<void> GgufWriter::write(std::span<const float> values) {
  if (tensor_ == tensors_.size() || values.size() > tensors_[tensor_].elements() - elements_) {
    return Error(Errc::invalid_argument, "more numbers than the tensor has",
                 static_cast<uint32_t>(tensor_));
  }
  const TensorType type = tensors_[tensor_].type;
  std::array<uint8_t, 4096> bytes;
  while (!values.empty()) {
    const size_t count = std::min(values.size(), bytes.size() / bytes_of(type));
    uint8_t* out = bytes.data();
    for (const float value : values.first(count)) {
      const uint32_t bits =
          type == TensorType::f32 ? std::bit_cast<uint32_t>(value) : uint32_t{to_half(value)};
      for (uint64_t i = 0; i < bytes_of(type); ++i) *out++ = static_cast<uint8_t>(bits >> (8 * i));
    }
    STEMMA_TRY_VOID(put(std::span(bytes).first(count * bytes_of(type))));
    values = values.subspan(count);
    elements_ += count;
  }
  if (elements_ == tensors_[tensor_].elements()) {
    constexpr std::array<uint8_t, kAlignment> kZeros{};
    const uint64_t size = tensors_[tensor_].bytes();
    STEMMA_TRY_VOID(put(std::span(kZeros).first(aligned(size) - size)));
    ++tensor_;
    elements_ = 0;
  }
  return {};
}

Result<void> GgufWriter::finish() {
  if (tensor_ != tensors_.size()) {
    return Error(Errc::wrong_state, "numbers of a tensor are missing",
                 static_cast<uint32_t>(tensor_));
  }
  STEMMA_TRY_VOID(flush());
  if (sync_fails(file_)) return io_error(errno);
  if (close(std::exchange(file_, -1)) != 0) return io_error(errno);
  return temporary_.empty() ? Result<void>() : give_name();
}

Result<void> GgufWriter::give_name() {
  if (on_existing_ == OnExisting::replace) {
    if (rename(temporary_.c_str(), path_.c_str()) != 0) return io_error(errno);
    temporary_.clear();
  } else if (link(temporary_.c_str(), path_.c_str()) != 0) {
    // A link never replaces a file that appeared in the meantime. Not every file system has links.
    if (errno == EEXIST) return already_there();
    if (rename(temporary_.c_str(), path_.c_str()) != 0) return io_error(errno);
    temporary_.clear();
  } else {
    unlink(std::exchange(temporary_, {}).c_str());
  }
  // The new name is on the disk only after a sync of its folder.
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const int handle = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle >= 0) {
    const bool fails = sync_fails(handle);
    close(handle);
    if (fails) return Error(Errc::copy_failed, "the folder could not be brought to the disk");
  }
  return {};
}

}  // namespace stemma::gguf
