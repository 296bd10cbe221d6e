// Files as the machine has them.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>

#include "tier/disk/files.h"
#include "tier/disk/thread_queue.h"
#include "tier/disk/uring_queue.h"
#include "tier/system_call.h"

namespace stemma::tier::disk {

namespace {

class SystemFiles final : public Files {
 public:
  explicit SystemFiles(IoWay way) : way_(way) {}

  int open(const std::string& path, OpenAs as) override {
    int flags = O_CLOEXEC | O_NOFOLLOW;
    switch (as) {
      case OpenAs::existing: flags |= O_RDWR; break;
      case OpenAs::created: flags |= O_RDWR | O_CREAT; break;
      case OpenAs::created_direct: flags |= O_RDWR | O_CREAT | O_DIRECT; break;
      case OpenAs::existing_direct: flags |= O_RDWR | O_DIRECT; break;
      case OpenAs::read_only: flags |= O_RDONLY | O_NONBLOCK; break;  // A pipe would wait for ever.
    }
    const int file = again([&] { return ::open(path.c_str(), flags, 0600); });
    if (file < 0) return file;
    struct stat found = {};
    if (fstat(file, &found) == 0 && S_ISREG(found.st_mode)) return file;
    ::close(file);
    return -ELOOP;
  }
  int close(int file) override { return told(::close(file)); }
  int lock(int file) override { return told(flock(file, LOCK_EX | LOCK_NB)); }
  int64_t size(int file) override {
    struct stat found = {};
    return fstat(file, &found) < 0 ? -errno : static_cast<int64_t>(found.st_size);
  }
  int truncate(int file, uint64_t bytes) override {
    return again([&] { return ftruncate(file, static_cast<off_t>(bytes)); });
  }
  int allocate(int file, uint64_t offset, uint64_t bytes) override {
    return fallocate_range(file, 0, offset, bytes);
  }
  int zero(int file, uint64_t offset, uint64_t bytes) override {
    return fallocate_range(file, FALLOC_FL_ZERO_RANGE, offset, bytes);
  }
  int punch(int file, uint64_t offset, uint64_t bytes) override {
    return fallocate_range(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  }
  int64_t read(int file, uint64_t offset, std::span<uint8_t> into) override {
    return again([&] { return pread(file, into.data(), into.size(), static_cast<off_t>(offset)); });
  }
  int64_t write(int file, uint64_t offset, std::span<const uint8_t> from) override {
    return again(
        [&] { return pwrite(file, from.data(), from.size(), static_cast<off_t>(offset)); });
  }
  int datasync(int file) override {
    return again([&] { return fdatasync(file); });
  }
  int rename(const std::string& from, const std::string& to) override {
    return told(std::rename(from.c_str(), to.c_str()));
  }
  int unlink(const std::string& path) override { return told(::unlink(path.c_str())); }
  int make_directory(const std::string& path) override { return told(mkdir(path.c_str(), 0700)); }
  int is_at(int file, const std::string& path) override {
    struct stat opened = {};
    struct stat found = {};
    if (fstat(file, &opened) < 0) return -errno;
    if (lstat(path.c_str(), &found) < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
    return opened.st_dev == found.st_dev && opened.st_ino == found.st_ino ? 1 : 0;
  }
  int sync_directory(const std::string& path) override {
    const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return -errno;
    const int result = told(fsync(directory));
    ::close(directory);
    return result;
  }
  int list(const std::string& path, std::vector<std::string>& out) override {
    DIR* directory = opendir(path.c_str());
    if (directory == nullptr) return -errno;
    while (const dirent* entry = readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): our own.
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") out.emplace_back(name);
    }
    closedir(directory);
    return 0;
  }
  std::unique_ptr<IoQueue> queue(uint32_t depth) override {
    if (way_ != IoWay::threads) {
      if (auto ring = make_uring_queue(depth)) return ring;
      if (way_ == IoWay::uring) return nullptr;
    }
    constexpr uint32_t kThreads = 8;  // Enough to keep a local disk busy with 64 KiB reads.
    return std::make_unique<ThreadQueue>(
        depth, kThreads, [](void*, const Io& io) { return perform_io(io); }, nullptr);
  }

 private:
  static int fallocate_range(int file, int mode, uint64_t offset, uint64_t bytes) noexcept {
    return again([&] {
      return fallocate(file, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    });
  }

  const IoWay way_;
};

}  // namespace

std::unique_ptr<Files> make_system_files(IoWay way) { return std::make_unique<SystemFiles>(way); }

}  // namespace stemma::tier::disk
