#include "engine/llama/file_id.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "key/sha256.h"

namespace stemma::engine {

namespace {

constexpr size_t kPieceBytes = 4U << 20U;
constexpr size_t kRemembered = 256;
constexpr std::string_view kDigits = "0123456789abcdef";
// The parts read of a known file: its head, and blocks spread evenly over the rest.
constexpr uint64_t kHeadBytes = 1U << 20U;
constexpr uint64_t kBlockBytes = 16U << 10U;
constexpr uint64_t kBlocks = 64;

// What the system reports about a file. ctime changes even if somebody restores mtime, as `cp -p`
// does.
std::string facts_of(const struct stat& facts) {
  std::ostringstream text;
  text << facts.st_size << ' ' << facts.st_mtim.tv_sec << '.' << facts.st_mtim.tv_nsec << ' '
       << facts.st_ctim.tv_sec << '.' << facts.st_ctim.tv_nsec << ' ' << facts.st_ino << ' '
       << facts.st_dev;
  return std::move(text).str();
}

std::string hexadecimal(const auto& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

// Hashes [begin, begin + bytes) of the file, or up to its end.
bool hash_range(int fd, uint64_t begin, uint64_t bytes, std::span<uint8_t> piece,
                key::Sha256& hash) {
  for (uint64_t done = 0; done < bytes;) {
    const size_t wanted = std::min<uint64_t>(piece.size(), bytes - done);
    const ssize_t got = pread(fd, piece.data(), wanted, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    hash.update(piece.first(static_cast<size_t>(got)));
    done += static_cast<uint64_t>(got);
  }
  return true;
}

// A digest of a sample of the content; empty if it cannot be read.
std::string sample_of(int fd, uint64_t size, std::span<uint8_t> piece) {
  key::Sha256 hash;
  if (!hash_range(fd, 0, kHeadBytes, piece, hash)) return "";
  if (size > kHeadBytes) {
    const uint64_t last = std::max(kHeadBytes, size - std::min(size, kBlockBytes));
    for (uint64_t i = 0; i < kBlocks; ++i) {
      const uint64_t begin = kHeadBytes + (last - kHeadBytes) / (kBlocks - 1) * i;
      if (!hash_range(fd, i + 1 == kBlocks ? last : begin, kBlockBytes, piece, hash)) return "";
    }
  }
  return hexadecimal(hash.finish());
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; lines.size() < kRemembered && std::getline(in, line);) {
    if (line.size() > 65 && line.find_first_not_of(kDigits) == 64 && line[64] == ' ') {
      lines.push_back(line);
    }
  }
  return lines;
}

void remember(const std::string& path, const std::string& line) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  std::vector<std::string> lines = lines_of(path);
  lines.insert(lines.begin(), line);
  if (lines.size() > kRemembered) lines.resize(kRemembered);
  const std::string draft = path + "." + std::to_string(getpid());
  {
    std::ofstream out(draft);
    for (const std::string& each : lines) out << each << '\n';
    if (!out.flush()) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(draft, path, error);
  if (error) std::filesystem::remove(draft, error);
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

FileId file_id(const std::string& path, const std::string& memory,
               const std::function<bool(uint64_t, uint64_t)>& progress) {
  FileId answer;
  // Without O_NONBLOCK, opening a pipe without a writer would block.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat facts{};
  if (file.fd < 0 || fstat(file.fd, &facts) != 0) {
    answer.why = "cannot open " + path + ": " + std::strerror(errno);
    return answer;
  }
  if (!S_ISREG(facts.st_mode)) {
    answer.why = path + " is not a file";
    return answer;
  }
  const auto buffer = std::make_unique<uint8_t[]>(kPieceBytes);
  const std::span piece(buffer.get(), kPieceBytes);
  const auto size = static_cast<uint64_t>(facts.st_size);
  const std::string sample = memory.empty() ? "" : sample_of(file.fd, size, piece);
  const std::string tag = facts_of(facts) + ' ' + sample;
  if (!sample.empty()) {
    for (const std::string& line : lines_of(memory)) {
      if (line.substr(65) == tag) {
        answer.sha256 = line.substr(0, 64);
        answer.remembered = true;
        return answer;
      }
    }
  }
  key::Sha256 hash;
  for (uint64_t done = 0;;) {
    const ssize_t got = read(file.fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      answer.why = "cannot read " + path + ": " + std::strerror(errno);
      return answer;
    }
    if (got == 0) break;
    hash.update(piece.first(static_cast<size_t>(got)));
    done += static_cast<uint64_t>(got);
    if (progress && !progress(done, size)) {
      answer.why = "stopped while reading " + path;
      return answer;
    }
  }
  answer.sha256 = hexadecimal(hash.finish());
  // Not if the file was written in the meantime.
  struct stat after{};
  if (!sample.empty() && fstat(file.fd, &after) == 0 && facts_of(after) == facts_of(facts)) {
    remember(memory, answer.sha256 + ' ' + tag);
  }
  return answer;
}

std::vector<std::string> model_parts(const std::string& path) {
  // ...-00001-of-00003.gguf
  constexpr size_t kTail = 20;
  if (path.size() <= kTail) return {path};
  const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
  const auto number = [](std::string_view digits) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? value : 0;
  };
  const uint32_t count = number(tail.substr(10, 5));
  const bool first = tail[0] == '-' && number(tail.substr(1, 5)) == 1 &&
                     tail.substr(6, 4) == "-of-" && tail.substr(15) == ".gguf";
  if (!first || count < 2) return {path};
  std::vector<std::string> parts;
  for (uint32_t part = 1; part <= count; ++part) {
    const std::string digits = std::to_string(part);
    std::string one = path;
    one.replace(path.size() - kTail + 6 - digits.size(), digits.size(), digits);
    parts.push_back(std::move(one));
  }
  return parts;
}

std::string usual_file_memory() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::string(cache) + "/stemma/file-ids";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::string(home) + "/.cache/stemma/file-ids";
  }
  return "";
}

}  // namespace stemma::engine
