// FileSystem as the machine has it.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "tier/shared/file_system.h"
#include "tier/system_call.h"

namespace stemma::tier::shared {

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

class System final : public FileSystem {
 public:
  int open(const std::string& path) override {
    return again(
        [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  }
  int create(const std::string& path) override {
    return again(
        [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); });
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

 private:
  template <class Call>
  static int with_directory(const std::string& path, Call&& call) noexcept {
    const int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return -errno;
    const int result = again([&] { return call(file); });
    ::close(file);
    return result;
  }
};

}  // namespace

std::shared_ptr<FileSystem> make_system() { return std::make_shared<System>(); }

}  // namespace stemma::tier::shared
