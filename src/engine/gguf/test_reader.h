// For tests: a reader of GGUF files that shares no code with the writer, and temporary folders.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace stemma::gguf {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "stemma-gguf-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const char* name) const { return (path_ / name).string(); }
  size_t files() const {
    const std::filesystem::directory_iterator begin(path_);
    return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline float from_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                   : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

// A parsed GGUF file. Throws if it is not one.
struct ReadFile {
  struct Tensor {
    std::vector<uint64_t> dims;
    uint32_t type = 0;
    uint64_t offset = 0;
    std::vector<float> values;
  };
  size_t bytes = 0;
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> strings;
  std::map<std::string, std::vector<double>> arrays;
  std::map<std::string, std::vector<std::string>> string_arrays;
  std::map<std::string, Tensor> tensors;

  explicit ReadFile(std::string text) : bytes(text.size()), text_(std::move(text)) {
    if (take(4) != "GGUF" || number<uint32_t>() != 3) throw std::runtime_error("no GGUF 3");
    const auto tensor_count = number<uint64_t>();
    const auto key_count = number<uint64_t>();
    for (uint64_t i = 0; i < key_count; ++i) read_key();
    for (uint64_t i = 0; i < tensor_count; ++i) read_tensor();
    at_ = (at_ + 31) / 32 * 32;
    for (auto& [name, tensor] : tensors) read_values(tensor);
  }

 private:
  std::string take(size_t count) {
    if (count > text_.size() - at_) throw std::runtime_error("the file is too short");
    at_ += count;
    return text_.substr(at_ - count, count);
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string string() { return take(number<uint64_t>()); }
  double value(uint32_t type) {
    switch (type) {
      case 4: return number<uint32_t>();
      case 5: return number<int32_t>();
      case 6: return number<float>();
      case 7: return number<uint8_t>();
      default: throw std::runtime_error("a kind of value nobody writes");
    }
  }
  void read_key() {
    const std::string key = string();
    EXPECT_FALSE(numbers.contains(key) || strings.contains(key) || arrays.contains(key) ||
                 string_arrays.contains(key))
        << key << " twice";
    const auto type = number<uint32_t>();
    if (type == 8) {
      strings[key] = string();
    } else if (type == 9) {
      const auto inner = number<uint32_t>();
      const auto count = number<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) {
        if (inner == 8) {
          string_arrays[key].push_back(string());
        } else {
          arrays[key].push_back(value(inner));
        }
      }
    } else {
      numbers[key] = value(type);
    }
  }
  void read_tensor() {
    const std::string name = string();
    EXPECT_FALSE(tensors.contains(name)) << name << " twice";
    Tensor& tensor = tensors[name];
    tensor.dims.resize(number<uint32_t>());
    for (uint64_t& dim : tensor.dims) dim = number<uint64_t>();
    tensor.type = number<uint32_t>();
    tensor.offset = number<uint64_t>();
    EXPECT_EQ(tensor.offset % 32, 0U) << name;
  }
  void read_values(Tensor& tensor) {
    uint64_t count = 1;
    for (const uint64_t dim : tensor.dims) count *= dim;
    const size_t begin = at_;
    at_ += tensor.offset;
    for (uint64_t i = 0; i < count; ++i) {
      tensor.values.push_back(tensor.type == 0 ? number<float>() : from_half(number<uint16_t>()));
    }
    at_ = begin;
  }

  std::string text_;
  size_t at_ = 0;
};

}  // namespace stemma::gguf
