// A Files that forwards every call to the machine's own. Tests override the calls they need.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tier/files.h"

namespace stemma::test {

class ForwardingFiles : public tier::Files {
 public:
  explicit ForwardingFiles(std::unique_ptr<tier::Files> real = tier::make_system_files())
      : real_(std::move(real)) {}

  int open(const std::string& path, tier::OpenAs as) override { return real_->open(path, as); }
  int close(int file) override { return real_->close(file); }
  int64_t read(int file, uint64_t at, std::span<uint8_t> into) override {
    return real_->read(file, at, into);
  }
  int64_t write(int file, uint64_t at, std::span<const uint8_t> from) override {
    return real_->write(file, at, from);
  }
  int datasync(int file) override { return real_->datasync(file); }
  int stat(int file, tier::FileStat& out) override { return real_->stat(file, out); }
  int set_time(int file, uint64_t ns) override { return real_->set_time(file, ns); }
  int lock(int file) override { return real_->lock(file); }
  int64_t size(int file) override { return real_->size(file); }
  int truncate(int file, uint64_t bytes) override { return real_->truncate(file, bytes); }
  int allocate(int file, uint64_t at, uint64_t bytes) override {
    return real_->allocate(file, at, bytes);
  }
  int zero(int file, uint64_t at, uint64_t bytes) override { return real_->zero(file, at, bytes); }
  int punch(int file, uint64_t at, uint64_t bytes) override {
    return real_->punch(file, at, bytes);
  }
  int is_at(int file, const std::string& path) override { return real_->is_at(file, path); }
  int stat(const std::string& path, tier::FileStat& out) override { return real_->stat(path, out); }
  int touch(const std::string& path, uint64_t ns) override { return real_->touch(path, ns); }
  int link(const std::string& from, const std::string& to) override {
    return real_->link(from, to);
  }
  int rename(const std::string& from, const std::string& to) override {
    return real_->rename(from, to);
  }
  int unlink(const std::string& path) override { return real_->unlink(path); }
  int make_directory(const std::string& path) override { return real_->make_directory(path); }
  int remove_directory(const std::string& path) override { return real_->remove_directory(path); }
  int sync_directory(const std::string& path) override { return real_->sync_directory(path); }
  int sync_all(const std::string& path) override { return real_->sync_all(path); }
  int list(const std::string& path, std::vector<std::string>& out) override {
    return real_->list(path, out);
  }
  std::unique_ptr<tier::IoQueue> queue(uint32_t depth) override { return real_->queue(depth); }

 protected:
  const std::unique_ptr<tier::Files> real_;
};

}  // namespace stemma::test
