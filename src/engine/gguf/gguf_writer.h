// Writes GGUF files, version 3: keys with values, descriptions of tensors, then the tensors'
// numbers.
//
// A GgufHeader is what comes before the numbers, put together in memory. A GgufWriter takes a
// header and a path, then the numbers in the tensors' order, in pieces of any size: no tensor is
// ever in memory as a whole. The file gets its name only when it is complete and on the disk. Until
// then it has another name beside that path, and the writer removes it if it ends early.
//
//   magic, version, counts | keys and values | tensors: name, dims, type, offset | padding | numbers
//
// Threading:  one thread at a time.
// Cost:       a megabyte of buffer. Everything is little-endian, as the format is.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma::gguf {

inline constexpr uint32_t kGgufVersion = 3;
inline constexpr uint64_t kAlignment = 32;

// The values are those of the format.
enum class TensorType : uint32_t { f32 = 0, f16 = 1 };

constexpr uint64_t bytes_of(TensorType type) noexcept { return type == TensorType::f32 ? 4 : 2; }

struct TensorInfo {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<uint64_t> dims;  // The contiguous dimension first: {columns, rows}.
  uint64_t elements() const noexcept;
  uint64_t bytes() const noexcept { return elements() * bytes_of(type); }
};

class GgufHeader {
 public:
  // Set each key only once; readers differ in how they treat a second one.
  void set_u32(std::string_view key, uint32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_u32s(std::string_view key, std::span<const uint32_t> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void add_tensor(TensorInfo tensor) { tensors_.push_back(std::move(tensor)); }

  const std::vector<TensorInfo>& tensors() const noexcept { return tensors_; }
  // All that stands before the first tensor's numbers, padding included.
  std::string bytes() const;
  uint64_t file_bytes() const;

 private:
  void put_key(std::string_view key, uint32_t type);
  uint32_t key_count_ = 0;
  std::string keys_;
  std::vector<TensorInfo> tensors_;
};

enum class OnExisting : uint8_t { refuse, replace };

class GgufWriter {
 public:
  // Creates the file and writes the header. An existing path that is not a plain file (a pipe, a
  // device) is written in place.
  // Error: wrong_state (the file exists and may not be replaced), copy_failed (the reason in words,
  // errno as value).
  static Result<GgufWriter> create(const std::string& path, const GgufHeader& header,
                                   OnExisting on_existing);
  GgufWriter(GgufWriter&& other) noexcept;
  GgufWriter& operator=(GgufWriter&&) = delete;
  ~GgufWriter();  // Leaves no file if the writer is not finished.

  // Writes the next numbers, in the order of the tensors. A piece must not go beyond its tensor.
  // Error: invalid_argument (more than the tensor has), copy_failed.
  Result<void> write(std::span<const float> values);
  // Error: wrong_state (numbers are missing, or somebody else wrote the file meanwhile),
  // copy_failed.
  Result<void> finish();

  uint64_t written_bytes() const noexcept { return written_bytes_; }

 private:
  GgufWriter() = default;
  Result<void> put(std::span<const uint8_t> bytes);
  Result<void> flush();
  Result<void> give_name();

  std::string path_;
  std::string temporary_;  // Empty when written in place.
  OnExisting on_existing_ = OnExisting::refuse;
  int file_ = -1;
  std::vector<TensorInfo> tensors_;
  size_t tensor_ = 0;           // The tensor being written.
  uint64_t elements_ = 0;       // How many of its elements were written.
  uint64_t written_bytes_ = 0;  // Including buffered ones.
  std::vector<uint8_t> buffer_;
};

}  // namespace stemma::gguf
