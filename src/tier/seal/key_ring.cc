#include "stemma/tier/key_ring.h"

#include <algorithm>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "stemma/log.h"
#include "tier/seal/key_directory.h"
#include "tier/seal/scope_key.h"

namespace stemma::tier {

namespace {

using base::MutexLock;
using seal::FileIdentity;
using seal::KeyDirectory;
using seal::StoredKey;

class DirectoryKeyRing final : public KeyRing {
 public:
  DirectoryKeyRing(const KeyRingOptions& options, std::unique_ptr<KeyDirectory> directory)
      : check_ns_(options.check_ns),
        most_(std::max(options.keys_in_memory, 1U)),
        clock_(options.clock != nullptr ? *options.clock : Clock::monotonic()),
        directory_(std::move(directory)) {}

  Key held(uint64_t owner) const override {
    const uint64_t now_ns = clock_.now_ns();
    const MutexLock lock(mutex_);
    const auto found = held_.find(owner);
    return found != held_.end() && is_fresh(found->second, now_ns) ? found->second.key : nullptr;
  }

  Result<Key> find(uint64_t owner) override {
    for (;;) {
      const uint64_t now_ns = clock_.now_ns();
      Held known;
      uint64_t drops = 0;
      {
        const MutexLock lock(mutex_);
        drops = drops_;
        if (const auto found = held_.find(owner); found != held_.end()) {
          if (is_fresh(found->second, now_ns)) return found->second.key;
          known = found->second;
        }
      }
      Result<Held> now = look(owner, known);
      const MutexLock lock(mutex_);
      // A key was dropped in the meantime: what was read no longer counts.
      if (drops != drops_) continue;
      if (!now) {
        held_.erase(owner);
        return now.error();
      }
      if (now->key == nullptr) {
        held_.erase(owner);
        return Key();
      }
      now->checked_ns = now_ns;
      keep(owner, *now);
      return now->key;
    }
  }

  Result<Key> make(uint64_t owner) override {
    // Another process may drop the key just after it was made: then it is made again.
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      STEMMA_TRY(Key found, find(owner));
      if (found != nullptr) return found;
      std::string why;
      if (const Result<void> made = directory_->make(owner, why); !made) {
        tell(owner, why);
        return made.error();
      }
    }
    return Error(Errc::busy, "the key of this scope is dropped as soon as it is made");
  }

  Result<bool> drop(uint64_t owner) override {
    std::string why;
    const Result<bool> hidden = directory_->hide(owner, why);
    {
      const MutexLock lock(mutex_);
      ++drops_;
      held_.erase(owner);
    }
    // Also erases keys that an interrupted drop has left hidden.
    Result<void> erased;
    if (hidden) erased = directory_->erase_hidden(owner, why);
    if (hidden && erased) return hidden;
    tell(owner, why);
    return hidden ? erased.error() : hidden.error();
  }

  std::string problem() const override {
    const MutexLock lock(mutex_);
    return problem_;
  }

  const std::string& path() const noexcept override { return directory_->path(); }

 private:
  static constexpr int kMostAttempts = 16;
  static constexpr size_t kMostTold = 1024;

  struct Held {
    Key key;
    FileIdentity identity;
    uint64_t checked_ns = 0;
  };

  bool is_fresh(const Held& held, uint64_t now_ns) const noexcept {
    return elapsed_ns(held.checked_ns, now_ns) < check_ns_;
  }

  // The key's current state; `known` is its last known state.
  Result<Held> look(uint64_t owner, const Held& known) try {
    std::string why;
    if (known.key != nullptr) {
      const Result<FileIdentity> now = directory_->identity(owner, why);
      if (now && *now == known.identity) return known;
      if (!now) {
        tell(owner, why);
        return now.error();
      }
    }
    Result<std::unique_ptr<StoredKey>> stored = directory_->read(owner, why);
    if (!stored) {
      tell(owner, why);
      return stored.error();
    }
    if (*stored == nullptr) return Held();
    Held held;
    held.key = std::make_shared<const ScopeKey>((*stored)->file);
    held.identity = (*stored)->identity;
    return held;
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a key");
  }

  void keep(uint64_t owner, const Held& held) STEMMA_REQUIRES(mutex_) try {
    // Evicts any other key: it is read again when it is needed.
    if (held_.size() >= most_ && !held_.contains(owner)) held_.erase(held_.begin());
    held_[owner] = held;
    told_.erase(owner);
  } catch (const std::bad_alloc&) {
    held_.erase(owner);
  }

  // Logs each problem once, however often it occurs.
  void tell(uint64_t owner, const std::string& why) try {
    {
      const MutexLock lock(mutex_);
      problem_ = why;
      std::string& last = told_[owner];
      if (last == why) return;
      last = why;
      if (told_.size() > kMostTold) told_.clear();
    }
    log(LogLevel::error, "key ring: " + why);
  } catch (const std::bad_alloc&) {
    // There is no memory to log it; the caller gets the error.
  }

  const uint64_t check_ns_;
  const size_t most_;
  const Clock& clock_;
  const std::unique_ptr<KeyDirectory> directory_;
  mutable base::Mutex mutex_;
  std::unordered_map<uint64_t, Held> held_ STEMMA_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::string> told_ STEMMA_GUARDED_BY(mutex_);
  std::string problem_ STEMMA_GUARDED_BY(mutex_);
  uint64_t drops_ STEMMA_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Result<std::shared_ptr<KeyRing>> KeyRing::open(const KeyRingOptions& options,
                                               std::string& why) try {
  STEMMA_TRY(std::unique_ptr<KeyDirectory> directory, KeyDirectory::open(options.path, why));
  return std::shared_ptr<KeyRing>(
      std::make_shared<DirectoryKeyRing>(options, std::move(directory)));
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a key ring");
}

}  // namespace stemma::tier
