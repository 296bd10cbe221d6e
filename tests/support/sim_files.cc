#include "support/sim_files.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace stemma::test {

using tier::kPage;

// An I/O happens inside wait(), one at a time, in an order that the file system's seed decides.
class SimQueue final : public IoQueue {
 public:
  explicit SimQueue(SimFiles& files) : files_(files) {}
  ~SimQueue() override {
    const std::lock_guard lock(files_.mutex_);
    for (const Io* io : mine_) std::erase(files_.waiting_, io);
  }
  void start(Io& io) override {
    const std::lock_guard lock(files_.mutex_);
    mine_.push_back(&io);
    files_.waiting_.push_back(&io);
    files_.changed_.notify_all();
  }
  size_t wait(std::span<Io*> ended, uint64_t timeout_ns) override {
    std::unique_lock lock(files_.mutex_);
    const auto ready = [&] { return woken_ || (!mine_.empty() && !files_.held_); };
    const auto time = std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, 3'600'000'000'000));
    files_.changed_.wait_for(lock, time, ready);
    woken_ = false;
    if (mine_.empty() || files_.held_ || ended.empty()) return 0;
    const size_t which = files_.random() % mine_.size();
    Io* io = mine_[which];
    mine_.erase(mine_.begin() + static_cast<std::ptrdiff_t>(which));
    std::erase(files_.waiting_, io);
    io->result = files_.perform(*io);
    ended[0] = io;
    return 1;
  }
  void wake() noexcept override {
    const std::lock_guard lock(files_.mutex_);
    woken_ = true;
    files_.changed_.notify_all();
  }
  std::string_view name() const noexcept override { return "simulated"; }

 private:
  SimFiles& files_;
  std::vector<Io*> mine_;
  bool woken_ = false;
};

// ---- What tests do ------------------------------------------------------------------------------

void SimFiles::on_call(OnCall what) {
  const std::lock_guard lock(mutex_);
  on_call_ = std::move(what);
  calls_.clear();
}

void SimFiles::hold(bool held) {
  const std::lock_guard lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

void SimFiles::wait_for_held(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.size() >= count; });
}

uint64_t SimFiles::calls(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

std::map<std::string, uint64_t> SimFiles::all_calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::unique_ptr<SimFiles> SimFiles::after_power_loss(uint64_t seed) const {
  const std::lock_guard lock(mutex_);
  auto later = std::make_unique<SimFiles>(seed);
  later->supports_direct = supports_direct;
  later->supports_zero = supports_zero;
  later->directories_ = directories_;
  for (const auto& [name, file] : names_) {
    auto copy = std::make_shared<File>();
    copy->bytes = file->durable;
    copy->bytes.resize(file->bytes.size());
    copy->taken = file->taken;
    copy->bad_from = file->bad_from;
    copy->bad_to = file->bad_to;
    copy->bad_writes = file->bad_writes;
    std::vector<Unsynced> lost = file->since;
    for (const Io* io : waiting_) {
      const auto opened = open_.find(io->file);
      if (io->kind != Io::Kind::write || opened == open_.end() || opened->second.file != file) {
        continue;
      }
      Unsynced one = {.offset = io->offset, .bytes = {}};
      for (uint32_t i = 0; i < io->part_count; ++i) {
        const auto* from = static_cast<const uint8_t*>(io->parts[i].iov_base);
        one.bytes.insert(one.bytes.end(), from, from + io->parts[i].iov_len);
      }
      lost.push_back(std::move(one));
    }
    // Writes to different places reach a disk in any order.
    for (size_t i = lost.size(); i > 1; --i) std::swap(lost[i - 1], lost[later->random() % i]);
    for (const Unsynced& one : lost) {
      size_t kept = one.bytes.size();
      const uint64_t dice = later->random() % 3;
      if (dice == 0) kept = 0;
      if (dice == 1) kept = later->random() % (one.bytes.size() + 1);
      if (one.offset + kept > copy->bytes.size()) continue;
      std::copy_n(one.bytes.begin(), kept,
                  copy->bytes.begin() + static_cast<std::ptrdiff_t>(one.offset));
    }
    copy->durable = copy->bytes;
    later->names_[name] = copy;
  }
  return later;
}

uint64_t SimFiles::taken_bytes(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto& taken = names_.at(path)->taken;
  return static_cast<uint64_t>(std::count(taken.begin(), taken.end(), true)) * kPage;
}

void SimFiles::make_bad(const std::string& path, uint64_t offset, uint64_t bytes, bool writes) {
  const std::lock_guard lock(mutex_);
  File& file = *names_.at(path);
  file.bad_from = offset;
  file.bad_to = offset + bytes;
  file.bad_writes = writes;
}

void SimFiles::make_good(const std::string& path) { make_bad(path, 0, 0); }

void SimFiles::remove_all(const std::string& path) {
  const std::lock_guard lock(mutex_);
  directories_.erase(path);
  std::erase_if(names_, [&](const auto& one) { return one.first.starts_with(path + "/"); });
}

std::vector<uint8_t>& SimFiles::bytes_of(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return names_.at(path)->bytes;
}

// ---- Files --------------------------------------------------------------------------------------

std::optional<int64_t> SimFiles::fate(const char* name) {
  const uint64_t nth = calls_[name]++;
  return on_call_ ? on_call_(name, nth) : std::nullopt;
}

uint64_t SimFiles::random() {
  random_ ^= random_ << 13U;
  random_ ^= random_ >> 7U;
  random_ ^= random_ << 17U;
  return random_ >> 11U;
}

SimFiles::File* SimFiles::find(int file) {
  const auto found = open_.find(file);
  return found == open_.end() ? nullptr : found->second.file.get();
}

void SimFiles::resize(File& file, uint64_t bytes) {
  file.bytes.resize(bytes);
  file.durable.resize(bytes);
  file.taken.resize((bytes + kPage - 1) / kPage);
}

void SimFiles::put(File& file, uint64_t offset, std::span<const uint8_t> from) {
  if (from.empty()) return;
  if (offset + from.size() > file.bytes.size()) resize(file, offset + from.size());
  std::copy(from.begin(), from.end(), file.bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  file.since.push_back({offset, {from.begin(), from.end()}});
  for (uint64_t page = offset / kPage; page <= (offset + from.size() - 1) / kPage; ++page) {
    file.taken[page] = true;
  }
}

bool SimFiles::is_bad(const File& file, uint64_t offset, uint64_t bytes, bool writes) {
  return offset < file.bad_to && offset + bytes > file.bad_from && (!writes || file.bad_writes);
}

int64_t SimFiles::sync(File& file, std::optional<int64_t> said) {
  std::vector<Unsynced> since;
  since.swap(file.since);
  if (said && *said < 0) return *said;
  for (const Unsynced& one : since) {
    if (one.offset >= file.durable.size()) continue;
    std::copy_n(one.bytes.begin(),
                std::min<uint64_t>(one.bytes.size(), file.durable.size() - one.offset),
                file.durable.begin() + static_cast<std::ptrdiff_t>(one.offset));
  }
  return 0;
}

int64_t SimFiles::perform(const Io& io) {
  const char* name = io.kind == Io::Kind::read    ? "io.read"
                     : io.kind == Io::Kind::write ? "io.write"
                                                  : "io.sync";
  const auto said = fate(name);
  File* file = find(io.file);
  if (file == nullptr) return -EBADF;
  if (said && *said < 0 && io.kind != Io::Kind::sync) return *said;
  if (io.kind == Io::Kind::sync) {
    return sync(*file, said);
  }
  const bool writes = io.kind == Io::Kind::write;
  if (is_bad(*file, io.offset, io.bytes(), writes)) return -EIO;
  auto most = said ? static_cast<uint64_t>(*said) : ~uint64_t{0};
  int64_t moved = 0;
  uint64_t offset = io.offset;
  for (uint32_t i = 0; i < io.part_count; ++i) {
    auto* memory = static_cast<uint8_t*>(io.parts[i].iov_base);
    size_t count = std::min<uint64_t>(io.parts[i].iov_len, most);
    if (io.kind == Io::Kind::read) {
      const uint64_t left = offset < file->bytes.size() ? file->bytes.size() - offset : 0;
      count = std::min<uint64_t>(count, left);
      std::copy_n(file->bytes.begin() + static_cast<std::ptrdiff_t>(offset), count, memory);
    } else {
      put(*file, offset, {memory, count});
    }
    moved += static_cast<int64_t>(count);
    offset += count;
    most -= count;
    if (count < io.parts[i].iov_len) break;
  }
  return moved;
}

int SimFiles::open(const std::string& path, OpenAs as) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("open"); said && *said < 0) return static_cast<int>(*said);
  const bool direct = as == OpenAs::created_direct || as == OpenAs::existing_direct;
  const bool creates =
      as == OpenAs::created || as == OpenAs::created_direct || as == OpenAs::made_new;
  if (direct && !supports_direct) return -EINVAL;
  auto found = names_.find(path);
  if (found == names_.end()) {
    if (!creates) return -ENOENT;
    found = names_.emplace(path, std::make_shared<File>()).first;
  } else if (as == OpenAs::made_new) {
    return -EEXIST;
  }
  open_[next_file_] = {.file = found->second, .locks = false};
  return next_file_++;
}

int SimFiles::close(int file) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(file);
  if (found == open_.end()) return -EBADF;
  if (found->second.locks) found->second.file->locked = false;
  open_.erase(found);
  return 0;
}

int SimFiles::lock(int file) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("lock"); said && *said < 0) return static_cast<int>(*said);
  Open& opened = open_.at(file);
  if (opened.file->locked) return -EWOULDBLOCK;
  opened.file->locked = opened.locks = true;
  return 0;
}

int64_t SimFiles::size(int file) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("size"); said && *said < 0) return *said;
  return static_cast<int64_t>(find(file)->bytes.size());
}

int SimFiles::truncate(int file, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("truncate"); said && *said < 0) return static_cast<int>(*said);
  resize(*find(file), bytes);
  return 0;
}

int SimFiles::allocate(int file, uint64_t offset, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("allocate"); said && *said < 0) return static_cast<int>(*said);
  File& one = *find(file);
  if (offset + bytes > one.bytes.size()) resize(one, offset + bytes);
  for (uint64_t page = offset / kPage; page < (offset + bytes) / kPage; ++page) {
    one.taken[page] = true;
  }
  return 0;
}

int SimFiles::zero(int file, uint64_t offset, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!supports_zero) return -EOPNOTSUPP;
  if (const auto said = fate("zero"); said && *said < 0) return static_cast<int>(*said);
  put(*find(file), offset, std::vector<uint8_t>(bytes));
  return 0;
}

int SimFiles::punch(int file, uint64_t offset, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("punch"); said && *said < 0) return static_cast<int>(*said);
  File& one = *find(file);
  if (offset >= one.bytes.size()) return 0;
  bytes = std::min<uint64_t>(bytes, one.bytes.size() - offset);
  put(one, offset, std::vector<uint8_t>(bytes));
  for (uint64_t page = offset / kPage; page < (offset + bytes) / kPage; ++page) {
    one.taken[page] = false;
  }
  return 0;
}

int64_t SimFiles::read(int file, uint64_t offset, std::span<uint8_t> into) {
  const std::lock_guard lock(mutex_);
  const auto said = fate("read");
  if (said && *said < 0) return *said;
  const File& one = *find(file);
  if (is_bad(one, offset, into.size(), false)) return -EIO;
  uint64_t count = offset < one.bytes.size() ? one.bytes.size() - offset : 0;
  count =
      std::min<uint64_t>({count, into.size(), said ? static_cast<uint64_t>(*said) : ~uint64_t{0}});
  std::copy_n(one.bytes.begin() + static_cast<std::ptrdiff_t>(offset), count, into.begin());
  return static_cast<int64_t>(count);
}

int64_t SimFiles::write(int file, uint64_t offset, std::span<const uint8_t> from) {
  const std::lock_guard lock(mutex_);
  const auto said = fate("write");
  if (said && *said < 0) return *said;
  if (said) from = from.first(std::min<uint64_t>(from.size(), static_cast<uint64_t>(*said)));
  if (is_bad(*find(file), offset, from.size(), true)) return -EIO;
  put(*find(file), offset, from);
  return static_cast<int64_t>(from.size());
}

int SimFiles::datasync(int file) {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(sync(*find(file), fate("datasync")));
}

int SimFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("rename"); said && *said < 0) return static_cast<int>(*said);
  const auto found = names_.find(from);
  if (found == names_.end()) return -ENOENT;
  names_[to] = found->second;
  names_.erase(from);
  return 0;
}

int SimFiles::unlink(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("unlink"); said && *said < 0) return static_cast<int>(*said);
  return names_.erase(path) != 0 ? 0 : -ENOENT;
}

int SimFiles::make_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("make_directory"); said && *said < 0) return static_cast<int>(*said);
  return directories_.emplace(path, true).second ? 0 : -EEXIST;
}

int SimFiles::is_at(int file, const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("is_at"); said && *said < 0) return static_cast<int>(*said);
  const auto named = names_.find(path);
  return named != names_.end() && named->second.get() == find(file) ? 1 : 0;
}

void SimFiles::describe(const File& file, FileStat& out) {
  out = {.regular = true,
         .device = 1,
         .inode = reinterpret_cast<uintptr_t>(&file),
         .bytes = file.bytes.size(),
         .modified_ns = file.modified_ns};
}

int SimFiles::stat(int file, FileStat& out) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("fstat"); said && *said < 0) return static_cast<int>(*said);
  describe(*find(file), out);
  return 0;
}

int SimFiles::stat(const std::string& path, FileStat& out) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("stat"); said && *said < 0) return static_cast<int>(*said);
  if (const auto named = names_.find(path); named != names_.end()) {
    describe(*named->second, out);
    return 0;
  }
  if (!directories_.contains(path)) return -ENOENT;
  out = {.directory = true, .device = 1};
  return 0;
}

int SimFiles::set_time(int file, uint64_t modified_ns) {
  const std::lock_guard lock(mutex_);
  find(file)->modified_ns = modified_ns;
  return 0;
}

int SimFiles::touch(const std::string& path, uint64_t modified_ns) {
  const std::lock_guard lock(mutex_);
  const auto named = names_.find(path);
  if (named == names_.end()) return -ENOENT;
  named->second->modified_ns = modified_ns;
  return 0;
}

int SimFiles::link(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("link"); said && *said < 0) return static_cast<int>(*said);
  const auto found = names_.find(from);
  if (found == names_.end()) return -ENOENT;
  return names_.emplace(to, found->second).second ? 0 : -EEXIST;
}

int SimFiles::remove_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("remove_directory"); said && *said < 0) return static_cast<int>(*said);
  for (const auto& [name, file] : names_) {
    if (name.starts_with(path + "/")) return -ENOTEMPTY;
  }
  return directories_.erase(path) != 0 ? 0 : -ENOENT;
}

int SimFiles::sync_all(const std::string&) {
  const std::lock_guard lock(mutex_);
  const auto said = fate("sync_all");
  for (const auto& [name, file] : names_) {
    if (const int64_t result = sync(*file, said); result < 0) return static_cast<int>(result);
  }
  return 0;
}

int SimFiles::sync_directory(const std::string&) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("sync_directory"); said && *said < 0) return static_cast<int>(*said);
  return 0;
}

int SimFiles::list(const std::string& path, std::vector<std::string>& out) {
  const std::lock_guard lock(mutex_);
  if (const auto said = fate("list"); said && *said < 0) return static_cast<int>(*said);
  if (!directories_.contains(path)) return -ENOENT;
  for (const auto& [name, file] : names_) {
    if (name.starts_with(path + "/")) out.push_back(name.substr(path.size() + 1));
  }
  return 0;
}

std::unique_ptr<IoQueue> SimFiles::queue(uint32_t) { return std::make_unique<SimQueue>(*this); }

}  // namespace stemma::test
