#include "stemma/whole_prompt.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "key/words.h"
#include "sequence/lexicon.h"
#include "sequence/state_store.h"

namespace stemma {

using base::Mutex;
using base::MutexLock;
using sequence::Lexicon;
using sequence::StateDraft;
using sequence::StateLease;
using sequence::StateMatch;
using sequence::StateStore;
using sequence::Text;

struct WholePromptCache::Inner {
  uint32_t budget_mib = 0;
  uint32_t min_tokens = 0;
  uint32_t max_entries = 0;

  Mutex mutex;
  bool enabled STEMMA_GUARDED_BY(mutex) = true;
  Lexicon lexicon STEMMA_GUARDED_BY(mutex);  // Has no media, so it stays empty.
  std::unique_ptr<StateStore> store STEMMA_GUARDED_BY(mutex);
  Statistics counted STEMMA_GUARDED_BY(mutex);
  StateStore::Stats before STEMMA_GUARDED_BY(mutex);  // At the time counting began.
};

struct WholePromptCache::Lease::Held {
  std::shared_ptr<Inner> inner;
  StateLease lease;
  sequence::SavedState saved;
  std::vector<Token> key;
  bool exact = false;

  ~Held() { release(); }
  void release() noexcept {
    if (!lease) return;
    const MutexLock lock(inner->mutex);
    lease.release();
  }
};

// ---- Leases -------------------------------------------------------------------------------------

WholePromptCache::Lease::Lease(std::unique_ptr<Held> held) noexcept : held_(std::move(held)) {}
WholePromptCache::Lease::Lease(Lease&&) noexcept = default;
WholePromptCache::Lease& WholePromptCache::Lease::operator=(Lease&&) noexcept = default;
WholePromptCache::Lease::~Lease() = default;

std::span<const Token> WholePromptCache::Lease::key() const noexcept {
  return held_ != nullptr ? std::span<const Token>(held_->key) : std::span<const Token>();
}
bool WholePromptCache::Lease::exact() const noexcept { return held_ != nullptr && held_->exact; }
std::span<const uint8_t> WholePromptCache::Lease::bytes() const noexcept {
  return held_ != nullptr ? held_->saved.state : std::span<const uint8_t>();
}
std::span<const float> WholePromptCache::Lease::logits() const noexcept {
  return held_ != nullptr ? held_->saved.logits : std::span<const float>();
}
void WholePromptCache::Lease::release() noexcept { held_.reset(); }

// ---- The cache ----------------------------------------------------------------------------------

Result<WholePromptCache> WholePromptCache::create(const Config& config) noexcept try {
  auto inner = std::make_shared<Inner>();
  inner->budget_mib = config.budget_mib;
  inner->min_tokens = config.min_tokens;
  inner->max_entries = config.max_entries;
  const uint64_t budget_bytes = uint64_t{config.budget_mib} << 20U;
  const MutexLock lock(inner->mutex);
  inner->enabled = config.enabled;
  STEMMA_TRY(inner->store,
             StateStore::create(
                 {.budget_bytes = budget_bytes,
                  .max_entries = config.max_entries,
                  // About 6 bytes each: a tenth of the budget, where the budget is not very small.
                  .max_positions = std::clamp<uint64_t>(budget_bytes / 64, 1U << 20U, 1U << 31U)},
                 inner->lexicon));
  return WholePromptCache(inner);
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a cache of prompts");
}

WholePromptCache::Config WholePromptCache::config() const noexcept {
  if (inner_ == nullptr) return {0, false, 0, 0};
  const MutexLock lock(inner_->mutex);
  return {inner_->budget_mib, inner_->enabled, inner_->min_tokens, inner_->max_entries};
}

void WholePromptCache::enable(bool on) noexcept {
  if (inner_ == nullptr) return;
  const MutexLock lock(inner_->mutex);
  inner_->enabled = on;
}

std::optional<WholePromptCache::Lease> WholePromptCache::find(
    const Scope& scope, std::span<const Token> prompt) noexcept {
  if (inner_ == nullptr) return std::nullopt;
  Inner& in = *inner_;
  // A prompt that is not valid was never stored.
  const bool possible = prompt.size() <= key::kMaxPromptPositions && key::all_tokens_valid(prompt);
  std::unique_ptr<Lease::Held> held(new (std::nothrow) Lease::Held);
  for (;;) {
    {
      const MutexLock lock(in.mutex);
      if (!in.enabled) {
        ++in.counted.bypassed;
        return std::nullopt;
      }
      if (prompt.size() < in.min_tokens) {
        ++in.counted.short_queries;
        return std::nullopt;
      }
      StateMatch match;
      if (possible && held != nullptr) match = in.store->find_words(scope, prompt);
      if (!match.exact) {
        ++in.counted.misses;
        return std::nullopt;
      }
      held->inner = inner_;
      held->lease = *in.store->lease(match.exact);
    }
    // All bytes are checked before they are used, without the lock.
    const Result<sequence::SavedState> saved = held->lease.read();
    bool remembered = true;
    try {
      held->key.assign(prompt.begin(), prompt.begin() + held->lease.depth());
    } catch (const std::bad_alloc&) {
      remembered = false;
    }
    const MutexLock lock(in.mutex);
    if (!saved) {
      if (in.store->remove(held->lease)) ++in.counted.corrupt;
      held->lease.release();
      continue;  // Try the next best.
    }
    if (!remembered) {
      ++in.counted.misses;
      held->lease.release();
      return std::nullopt;
    }
    held->saved = *saved;
    held->exact = held->key.size() == prompt.size();
    in.store->used(held->lease);
    ++in.counted.hits;
    in.counted.exact_hits += held->exact ? 1 : 0;
    in.counted.reused_tokens += held->key.size();
    return Lease(std::move(held));
  }
}

Result<void> WholePromptCache::store(const Scope& scope, std::span<const Token> prompt,
                                     std::span<const uint8_t> bytes,
                                     std::span<const float> logits) noexcept {
  if (inner_ == nullptr) return Error(Errc::wrong_state, "this WholePromptCache was moved from");
  Inner& in = *inner_;
  if (prompt.size() < in.min_tokens || prompt.empty()) return {};
  if (bytes.empty()) return Error(Errc::invalid_argument, "an entry has bytes");
  if (logits.size() > UINT32_MAX) return Error(Errc::invalid_argument, "too many logits");
  Text text;
  STEMMA_TRY_VOID(Lexicon().read({prompt}, text));
  StateDraft draft;
  {
    const MutexLock lock(in.mutex);
    if (!in.enabled) return {};
    STEMMA_TRY(draft, in.store->reserve(scope, text, text.length(), bytes.size(),
                                        static_cast<uint32_t>(logits.size())));
  }
  std::memcpy(draft.state().data(), bytes.data(), bytes.size());
  std::copy(logits.begin(), logits.end(), draft.logits().begin());
  Result<void> done = draft.seal(bytes.size());
  const MutexLock lock(in.mutex);
  if (done) done = draft.commit(bytes.size());
  draft.abandon();
  // The cache was cleared in the meantime, and that includes this entry.
  if (!done && done.error().code() == Errc::stale) return {};
  return done;
}

bool WholePromptCache::touch(const Scope& scope, std::span<const Token> prompt) noexcept {
  if (inner_ == nullptr) return false;
  if (prompt.size() > key::kMaxPromptPositions || !key::all_tokens_valid(prompt)) return false;
  const MutexLock lock(inner_->mutex);
  StateStore& store = *inner_->store;
  const StateMatch match = store.find_words(scope, prompt);
  if (!match.exact || match.exact.depth != prompt.size()) return false;
  store.used(*store.lease(match.exact));
  return true;
}

uint32_t WholePromptCache::evict(uint32_t n) noexcept {
  if (inner_ == nullptr) return 0;
  const MutexLock lock(inner_->mutex);
  return inner_->store->evict(n);
}

void WholePromptCache::clear() noexcept {
  if (inner_ == nullptr) return;
  const MutexLock lock(inner_->mutex);
  inner_->store->clear();
  inner_->counted = {};
  inner_->before = inner_->store->stats();
}

WholePromptCache::Statistics WholePromptCache::statistics() const noexcept {
  if (inner_ == nullptr) return {};
  const MutexLock lock(inner_->mutex);
  Statistics all = inner_->counted;
  const StateStore::Stats stats = inner_->store->stats();
  all.evictions = stats.evictions - inner_->before.evictions;
  all.refused = stats.refused_too_large - inner_->before.refused_too_large;
  all.entries = stats.entries;
  all.tokens = stats.positions;
  all.bytes = stats.bytes;
  all.index_bytes = stats.index_bytes;
  all.used_mib = stats.bytes >> 20U;
  all.budget_mib = inner_->budget_mib;
  return all;
}

}  // namespace stemma
