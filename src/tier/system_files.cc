// The machine's real files.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "tier/files.h"
#include "tier/system_call.h"

namespace stemma::tier {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

void translate(const struct stat& found, FileStat& out) noexcept {
  out.regular = S_ISREG(found.st_mode);
  out.directory = S_ISDIR(found.st_mode);
  out.device = found.st_dev;
  out.inode = found.st_ino;
  out.bytes = static_cast<uint64_t>(found.st_size);
  const auto seconds = static_cast<uint64_t>(found.st_mtim.tv_sec > 0 ? found.st_mtim.tv_sec : 0);
  out.modified_ns = seconds * kSecond + static_cast<uint64_t>(found.st_mtim.tv_nsec);
}

struct Times {
  explicit Times(uint64_t ns) noexcept {
    both[0].tv_sec = both[1].tv_sec = static_cast<time_t>(ns / kSecond);
    both[0].tv_nsec = both[1].tv_nsec = static_cast<long>(ns % kSecond);
  }
  timespec both[2];
};

int flags_of(OpenAs as) noexcept {
  switch (as) {
    case OpenAs::existing: return O_RDWR;
    case OpenAs::created: return O_RDWR | O_CREAT;
    case OpenAs::made_new: return O_WRONLY | O_CREAT | O_EXCL;
    case OpenAs::created_direct: return O_RDWR | O_CREAT | O_DIRECT;
    case OpenAs::existing_direct: return O_RDWR | O_DIRECT;
    case OpenAs::read_only: break;
  }
  return O_RDONLY | O_NONBLOCK;  // Opening a pipe would block for ever.
}

class SystemFiles final : public Files {
 public:
  explicit SystemFiles(MakeQueue queues) : queues_(std::move(queues)) {}

  int open(const std::string& path, OpenAs as) override {
    const int flags = flags_of(as) | O_CLOEXEC | O_NOFOLLOW;
    const int file = again([&] { return ::open(path.c_str(), flags, 0600); });
    if (file < 0) return file;
    struct stat found = {};
    if (fstat(file, &found) == 0 && S_ISREG(found.st_mode)) return file;
    ::close(file);
    return -ELOOP;
  }
  int close(int file) override { return told(::close(file)); }
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
  int is_at(int file, const std::string& path) override {
    FileStat opened, found;
    if (const int result = stat(file, opened); result < 0) return result;
    const int result = stat(path, found);
    if (result == -ENOENT || result == -ENOTDIR) return 0;
    if (result < 0) return result;
    return opened.device == found.device && opened.inode == found.inode ? 1 : 0;
  }
  int set_time(int file, uint64_t modified_ns) override {
    return told(futimens(file, Times(modified_ns).both));
  }
  int touch(const std::string& path, uint64_t modified_ns) override {
    return told(utimensat(AT_FDCWD, path.c_str(), Times(modified_ns).both, AT_SYMLINK_NOFOLLOW));
  }
  int stat(int file, FileStat& out) override {
    struct stat found = {};
    if (fstat(file, &found) < 0) return -errno;
    translate(found, out);
    return 0;
  }
  int stat(const std::string& path, FileStat& out) override {
    struct stat found = {};
    if (lstat(path.c_str(), &found) < 0) return -errno;
    translate(found, out);
    return 0;
  }
  int link(const std::string& from, const std::string& to) override {
    return told(::link(from.c_str(), to.c_str()));
  }
  int rename(const std::string& from, const std::string& to) override {
    return told(std::rename(from.c_str(), to.c_str()));
  }
  int unlink(const std::string& path) override { return told(::unlink(path.c_str())); }
  int make_directory(const std::string& path) override { return told(mkdir(path.c_str(), 0700)); }
  int remove_directory(const std::string& path) override { return told(rmdir(path.c_str())); }
  int sync_directory(const std::string& path) override {
    return with_directory(path, [](int file) { return fsync(file); });
  }
  int sync_all(const std::string& path) override {
    return with_directory(path, [](int file) { return syncfs(file); });
  }
  int list(const std::string& path, std::vector<std::string>& out) override {
    DIR* directory = opendir(path.c_str());
    if (directory == nullptr) return -errno;
    errno = 0;
    std::vector<std::pair<ino_t, std::string>> found;
    while (const dirent* entry = readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): our own.
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") found.emplace_back(entry->d_ino, name);
      errno = 0;
    }
    const int problem = errno;
    closedir(directory);
    // Inodes lie on the disk in the order of their numbers.
    std::sort(found.begin(), found.end());
    out.reserve(out.size() + found.size());
    for (auto& [inode, name] : found) out.push_back(std::move(name));
    return -problem;
  }
  std::unique_ptr<IoQueue> queue(uint32_t depth) override {
    return queues_ ? queues_(depth) : nullptr;
  }

 private:
  static int fallocate_range(int file, int mode, uint64_t offset, uint64_t bytes) noexcept {
    return again([&] {
      return fallocate(file, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    });
  }
  template <class Call>
  static int with_directory(const std::string& path, Call&& call) noexcept {
    const int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return -errno;
    const int result = again([&] { return call(file); });
    ::close(file);
    return result;
  }

  const MakeQueue queues_;
};

}  // namespace

std::unique_ptr<Files> make_system_files(MakeQueue queues) {
  return std::make_unique<SystemFiles>(std::move(queues));
}

}  // namespace stemma::tier
