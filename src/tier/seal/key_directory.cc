#include "tier/seal/key_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>
#include <vector>

#include "key/little_endian.h"
#include "stemma/log.h"
#include "tier/seal/cipher.h"
#include "tier/system_call.h"

namespace stemma::tier::seal {

namespace {

constexpr std::string_view kKey = ".key";
constexpr std::string_view kHidden = ".dropped";
constexpr std::string_view kTemporary = ".tmp";
constexpr time_t kLeftoverSeconds = 3600;

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }

 private:
  const int fd_;
};

FileIdentity identity_of(const struct stat& file) noexcept {
  return {.device = file.st_dev,
          .inode = file.st_ino,
          .changed_ns = static_cast<uint64_t>(file.st_ctim.tv_sec) * 1'000'000'000 +
                        static_cast<uint64_t>(file.st_ctim.tv_nsec)};
}

bool only_ours(const struct stat& file) noexcept {
  return (file.st_mode & 077U) == 0 && (file.st_uid == geteuid() || file.st_uid == 0);
}

bool write_all(int fd, std::span<const uint8_t> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = again([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

// A unique name beside the key's.
std::string name_beside(uint64_t owner, std::string_view ending) {
  std::array<uint8_t, 8> number{};
  (void)random_bytes(number);  // If this fails, the name may be taken, and the call fails.
  uint64_t value = 0;
  std::memcpy(&value, number.data(), sizeof value);
  return hex_of(owner) + "." + hex_of(value) + std::string(ending);
}

// Whether name_beside() made this name: other files in the directory are left alone.
bool is_beside(std::string_view name, std::string_view ending) noexcept {
  constexpr size_t kDigits = 16;
  if (name.size() != 2 * kDigits + 1 + ending.size() || !name.ends_with(ending)) return false;
  for (size_t i = 0; i < 2 * kDigits + 1; ++i) {
    const char c = name[i];
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (i == kDigits ? c != '.' : !hex) return false;
  }
  return true;
}

}  // namespace

std::string hex_of(uint64_t owner) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[i] = kDigits[owner >> (60 - 4 * i) & 15U];
  return text;
}

std::string KeyDirectory::path_of(uint64_t owner) const {
  return path_ + "/" + hex_of(owner) + std::string(kKey);
}

Error KeyDirectory::refused(const char* what, const std::string& name, int error,
                            std::string& why) const {
  why = path_ + (name.empty() ? "" : "/" + name) + ": " + what + " (" + std::strerror(error) + ")";
  return {Errc::copy_failed, what, static_cast<uint32_t>(error)};
}

Result<std::unique_ptr<KeyDirectory>> KeyDirectory::open(const std::string& path,
                                                         std::string& why) {
  const auto failed = [&](const char* what) {
    const int error = errno;
    why = path + ": " + what + " (" + std::strerror(error) + ")";
    return Error(Errc::copy_failed, what, static_cast<uint32_t>(error));
  };
  if (path.empty()) {
    why = "the key directory needs a path";
    return Error(Errc::invalid_argument, "the key directory needs a path");
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return failed("the key directory cannot be made; the directory above it must exist");
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failed("the key directory cannot be opened");
  std::unique_ptr<KeyDirectory> made(new KeyDirectory(path, fd));
  struct stat file = {};
  if (fstat(fd, &file) != 0) return failed("the key directory cannot be looked at");
  if (!only_ours(file)) {
    why = path +
          ": other users can reach the keys in this directory; make it yours alone (chown, chmod "
          "0700)";
    return Error(Errc::invalid_argument, "other users can reach the keys in this directory");
  }
  made->remove_leftovers();
  // The caller of the failed drop was told. This is no reason not to start.
  if (!made->erase_all_hidden(why)) log(LogLevel::error, "key ring: " + why);
  why.clear();
  return made;
}

KeyDirectory::~KeyDirectory() { close(directory_); }

Result<FileIdentity> KeyDirectory::identity(uint64_t owner, std::string& why) const {
  const std::string name = hex_of(owner) + std::string(kKey);
  struct stat file = {};
  if (fstatat(directory_, name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return FileIdentity{};
    return refused("the key file cannot be looked at", name, errno, why);
  }
  return identity_of(file);
}

Result<std::unique_ptr<StoredKey>> KeyDirectory::read(uint64_t owner, std::string& why) const {
  const std::string name = hex_of(owner) + std::string(kKey);
  const Descriptor fd(
      openat(directory_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    if (errno == ENOENT) return std::unique_ptr<StoredKey>();
    return refused("the key file cannot be opened", name, errno, why);
  }
  const auto bad = [&](Errc code, const char* what, const char* advice) {
    why = path_ + "/" + name + ": " + what + "; " + advice;
    return Error(code, what);
  };
  static constexpr const char* kRestore =
      "restore it from a backup, or remove it to give up the entries that were sealed with it";
  struct stat file = {};
  if (fstat(fd.get(), &file) != 0) {
    return refused("the key file cannot be looked at", name, errno, why);
  }
  if (!S_ISREG(file.st_mode)) return bad(Errc::corrupt, "this is not a regular file", kRestore);
  if (!only_ours(file)) {
    return bad(
        Errc::invalid_argument, "other users can read this key, or it is another user's",
        "make it yours alone (chown, chmod 0600) if nobody has copied it; otherwise remove it");
  }
  // One byte more than a key file has, to notice a longer file.
  std::array<uint8_t, kKeyFileBytes + 1> bytes{};
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got =
        again([&] { return ::read(fd.get(), bytes.data() + size, bytes.size() - size); });
    if (got < 0) return refused("the key file cannot be read", name, static_cast<int>(-got), why);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  Result<KeyFile> key = read_key_file(std::span(bytes).first(size));
  OPENSSL_cleanse(bytes.data(), bytes.size());
  if (!key) {
    return bad(
        key.error().code(), key.error().message(),
        key.error().code() == Errc::unsupported ? "a newer version of Stemma made it" : kRestore);
  }
  if (key->owner != owner) {
    return bad(Errc::corrupt, "this key was made for another scope",
               "give the file back its name, or remove it");
  }
  auto stored = std::make_unique<StoredKey>();
  stored->file = *key;
  stored->identity = identity_of(file);
  return stored;
}

Result<void> KeyDirectory::write_temporary(const std::string& name, uint64_t owner,
                                           std::string& why) const {
  KeyFile key;
  key.owner = owner;
  if (!random_bytes(key.id) || !random_bytes(key.key)) {
    return refused("the system has no randomness for a key", name, errno, why);
  }
  const Descriptor fd(
      openat(directory_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd.get() < 0) return refused("a key file cannot be made", name, errno, why);
  std::array<uint8_t, kKeyFileBytes> bytes = write_key_file(key);
  const bool written = write_all(fd.get(), bytes) && fsync(fd.get()) == 0;
  const int error = errno;
  OPENSSL_cleanse(bytes.data(), bytes.size());
  if (!written) return refused("a key file cannot be written", name, error, why);
  return {};
}

Result<void> KeyDirectory::make(uint64_t owner, std::string& why) const {
  const std::string name = hex_of(owner) + std::string(kKey);
  const std::string temporary = name_beside(owner, kTemporary);
  const Result<void> written = write_temporary(temporary, owner, why);
  int error = 0;
  if (written && linkat(directory_, temporary.c_str(), directory_, name.c_str(), 0) != 0) {
    error = errno;
  }
  unlinkat(directory_, temporary.c_str(), 0);
  if (!written) return written.error();
  // Another process was faster: its key counts.
  if (error != 0 && error != EEXIST) {
    return refused("a key file cannot be given its name; the file system must have hard links",
                   name, error, why);
  }
  if (fsync(directory_) != 0) return refused("the key directory cannot be synced", "", errno, why);
  return {};
}

Result<bool> KeyDirectory::hide(uint64_t owner, std::string& why) const {
  const std::string name = hex_of(owner) + std::string(kKey);
  const std::string hidden = name_beside(owner, kHidden);
  if (renameat(directory_, name.c_str(), directory_, hidden.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  return refused("the key file cannot be dropped", name, errno, why);
}

// Opens the file even if it is read-only: it is ours.
int KeyDirectory::open_to_wipe(const std::string& name) const {
  constexpr int kHow = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  const int fd = openat(directory_, name.c_str(), kHow);
  struct stat file = {};
  if (fd >= 0 || errno != EACCES) return fd;
  if (fstatat(directory_, name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) return -1;
  if (!S_ISREG(file.st_mode) || fchmodat(directory_, name.c_str(), 0600, 0) != 0) {
    errno = EACCES;
    return -1;
  }
  return openat(directory_, name.c_str(), kHow);
}

Result<void> KeyDirectory::wipe(const std::string& name, std::string& why) const {
  struct stat found = {};
  const bool is_file =
      fstatat(directory_, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 || S_ISREG(found.st_mode);
  // Something that is not a file was never used as a key: remove only its name.
  if (is_file) {
    const Descriptor fd(open_to_wipe(name));
    if (fd.get() < 0) {
      if (errno == ENOENT) return {};  // Another process erased it.
      return refused("a dropped key cannot be opened to be overwritten", name, errno, why);
    }
    static constexpr std::array<uint8_t, kKeyFileBytes> kZeros{};
    if (!write_all(fd.get(), kZeros) || fsync(fd.get()) != 0) {
      return refused("a dropped key cannot be overwritten", name, errno, why);
    }
  }
  if (unlinkat(directory_, name.c_str(), 0) != 0 && errno != ENOENT) {
    return refused("a dropped key cannot be removed", name, errno, why);
  }
  return {};
}

Result<void> KeyDirectory::erase(const std::string& prefix, std::string& why) const {
  const int copy = openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = copy < 0 ? nullptr : fdopendir(copy);
  if (listing == nullptr) {
    const int error = errno;
    if (copy >= 0) close(copy);
    return refused("the key directory cannot be listed", "", error, why);
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && is_beside(name, kHidden)) names.emplace_back(name);
  }
  closedir(listing);
  // If one cannot be erased, the others still are.
  Result<void> all;
  for (const std::string& name : names) {
    std::string reason;
    const Result<void> wiped = wipe(name, reason);
    if (wiped || !all) continue;
    all = wiped;
    why = reason;
  }
  if (!all) {
    fsync(directory_);
    return all;
  }
  if (!names.empty() && fsync(directory_) != 0) {
    return refused("the key directory cannot be synced", "", errno, why);
  }
  return {};
}

Result<void> KeyDirectory::erase_hidden(uint64_t owner, std::string& why) const {
  return erase(hex_of(owner), why);
}

Result<void> KeyDirectory::erase_all_hidden(std::string& why) const { return erase("", why); }

// Removes temporaries of processes that ended while making a key. They may be second names of keys
// in use, so they are not overwritten.
void KeyDirectory::remove_leftovers() const {
  const int copy = openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = copy < 0 ? nullptr : fdopendir(copy);
  if (listing == nullptr) {
    if (copy >= 0) close(copy);
    return;
  }
  while (const dirent* entry = readdir(listing)) {
    struct stat file = {};
    if (!is_beside(entry->d_name, kTemporary) ||
        fstatat(directory_, entry->d_name, &file, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (file.st_mtim.tv_sec + kLeftoverSeconds < std::time(nullptr)) {
      unlinkat(directory_, entry->d_name, 0);
    }
  }
  closedir(listing);
}

}  // namespace stemma::tier::seal
