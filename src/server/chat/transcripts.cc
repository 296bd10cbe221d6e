#include "server/chat/transcripts.h"

#include <algorithm>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/lock.h"
#include "key/content_key.h"
#include "key/sha256.h"
#include "server/chat/meaning.h"
#include "server/chat/transcript_tiers.h"

namespace stemma::server {

namespace {

// The kind of a name, so that an id never matches a digest.
enum class NameKind : uint8_t { id = 'i', call = 'c', digest = 'd' };

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

uint64_t size_of(const Transcript& transcript) {
  constexpr uint64_t kBooks = 512;
  uint64_t bytes = kBooks + transcript.tokens.size() * sizeof(Token) +
                   transcript.message.content.size() + transcript.message.reasoning.size();
  for (const dialect::ParsedCall& call : transcript.message.calls) {
    bytes += 256 + call.name.size() + call.arguments.size() + call.id.size();
  }
  return bytes;
}

// Returns the text that a message answers.
std::string before(std::span<const Message> messages, size_t which) {
  return which == 0 ? std::string() : messages[which - 1].text();
}

}  // namespace

class Transcripts::Store {
 public:
  explicit Store(const TranscriptOptions& options)
      : options_(options), tiers_(options.stack, options.layout, options.tier_ns) {}

  void remember(const std::string& salt, std::string_view id, Transcript transcript,
                const std::function<bool()>& may_save);
  std::vector<Found> find(const std::string& salt, std::span<const Message> messages);
  void count(bool spliced) {
    const base::Lock lock(mutex_);
    ++(spliced ? stats_.spliced : stats_.unfit);
  }
  void forget(const std::optional<ContentKey>& home);
  // Returns the common beginning of all names of a salt.
  std::optional<ContentKey> home(const std::string& salt) const;
  TranscriptStats stats() const {
    const base::Lock lock(mutex_);
    TranscriptStats stats = stats_;
    stats.entries = entries_.size();
    stats.bytes = bytes_;
    return stats;
  }

 private:
  struct Entry {
    ContentKey home;
    std::vector<ContentKey> names;  // The first comes from its id, the second from its digest.
    std::shared_ptr<const Transcript> transcript;
    uint64_t bytes = 0;
  };
  using Entries = std::list<Entry>;  // Most recently used first.
  // A message that find() looks for.
  struct Wanted {
    size_t message = 0;
    std::vector<ContentKey> names;
    bool has_id = false;  // All names but the last come from ids.
  };

  static ContentKey name(const ContentKey& home, NameKind kind, std::span<const uint8_t> value);
  static std::vector<ContentKey> names_of(const ContentKey& home, const ContentKey& by_id,
                                          const ContentKey& by_digest,
                                          const Transcript& transcript);
  Wanted wanted_of(const ContentKey& home, std::span<const Message> messages, size_t which) const;
  void insert(const ContentKey& home, std::vector<ContentKey> names,
              std::shared_ptr<const Transcript> transcript) STEMMA_REQUIRES(mutex_);
  void erase(Entries::iterator entry) STEMMA_REQUIRES(mutex_);
  void find_in_tiers(const ContentKey& home, std::span<const Message> messages,
                     std::span<const Wanted> missing, std::vector<Found>& found);
  void keep(std::span<const ContentKey> names, const Transcript& transcript,
            tier::Sighting sighting) STEMMA_REQUIRES(storing_) {
    if (tiers_.exist()) tiers_.keep(names, transcript, sighting);
  }
  // Tells the tiers of a use, unless something was forgotten since `forgotten_` had this value.
  void keep_used(std::span<const ContentKey> names, const Transcript& transcript,
                 uint64_t forgotten);

  const TranscriptOptions options_;
  const TranscriptTiers tiers_;

  // Held from the decision that something may be stored until the stack has it, and by forget(), so
  // that nothing is stored after it. Taken before mutex_.
  base::WaitMutex storing_;
  mutable base::WaitMutex mutex_;
  Entries entries_ STEMMA_GUARDED_BY(mutex_);
  std::unordered_map<ContentKey, Entries::iterator> index_ STEMMA_GUARDED_BY(mutex_);
  uint64_t bytes_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t forgotten_ STEMMA_GUARDED_BY(mutex_) = 0;  // How many calls of forget there were.
  TranscriptStats stats_ STEMMA_GUARDED_BY(mutex_);
};

std::optional<ContentKey> Transcripts::Store::home(const std::string& salt) const {
  if (options_.scope) {
    const Result<Scope> scope = options_.scope(salt);
    if (!scope) return {};
    return key::root_key(*scope);
  }
  return ContentKey{key::sha256(bytes_of(salt))};
}

ContentKey Transcripts::Store::name(const ContentKey& home, NameKind kind,
                                    std::span<const uint8_t> value) {
  constexpr std::string_view kWhat = "stemma transcript 1";
  key::Sha256 hash;
  hash.update(bytes_of(kWhat));
  hash.update(home.bytes);
  const std::array<uint8_t, 1> letter = {static_cast<uint8_t>(kind)};
  hash.update(letter);
  hash.update(value);
  const key::Digest digest = hash.finish();
  // The end names the owner, as in all keys of a scope.
  ContentKey name = home;
  std::copy_n(digest.begin(), name.bytes.size() - key::kOwnerBytes, name.bytes.begin());
  return name;
}

std::vector<ContentKey> Transcripts::Store::names_of(const ContentKey& home,
                                                     const ContentKey& by_id,
                                                     const ContentKey& by_digest,
                                                     const Transcript& transcript) {
  std::vector<ContentKey> names = {by_id, by_digest};
  // Clients that return one call return all of them.
  if (!transcript.call_ids.empty() && !transcript.call_ids.front().empty()) {
    names.push_back(name(home, NameKind::call, bytes_of(transcript.call_ids.front())));
  }
  return names;
}

void Transcripts::Store::insert(const ContentKey& home, std::vector<ContentKey> names,
                                std::shared_ptr<const Transcript> transcript) {
  const uint64_t bytes = size_of(*transcript);
  if (bytes > options_.bytes) return;
  // Replace the transcript with the same id; a digest leads to the latest one.
  if (const auto same = index_.find(names.front()); same != index_.end()) erase(same->second);
  entries_.push_front({home, std::move(names), std::move(transcript), bytes});
  bytes_ += bytes;
  for (const ContentKey& each : entries_.front().names) index_[each] = entries_.begin();
  while (bytes_ > options_.bytes) {
    erase(std::prev(entries_.end()));
    ++stats_.evicted;
  }
}

void Transcripts::Store::erase(Entries::iterator entry) {
  for (const ContentKey& each : entry->names) {
    const auto at = index_.find(each);
    if (at != index_.end() && at->second == entry) index_.erase(at);
  }
  bytes_ -= entry->bytes;
  entries_.erase(entry);
}

void Transcripts::Store::remember(const std::string& salt, std::string_view id,
                                  Transcript transcript, const std::function<bool()>& may_save) {
  const bool whole = std::ranges::all_of(transcript.message.calls, &dialect::ParsedCall::complete);
  if (options_.bytes == 0 || id.empty() || transcript.tokens.empty() || !whole) return;
  const std::optional<ContentKey> home = this->home(salt);
  if (!home) return;
  StoredTranscript stored;
  stored.by_id = name(*home, NameKind::id, bytes_of(id));
  stored.by_digest = name(*home, NameKind::digest,
                          digest_of(transcript.message, std::exchange(transcript.before, {})));
  stored.transcript = std::move(transcript);
  std::vector<ContentKey> names =
      names_of(*home, stored.by_id, stored.by_digest, stored.transcript);
  const base::Lock storing(storing_);
  if (may_save && !may_save()) return;
  keep(names, stored.transcript, tier::Sighting::computed);
  auto shared = std::make_shared<const Transcript>(std::move(stored.transcript));
  const base::Lock lock(mutex_);
  ++stats_.remembered;
  insert(*home, std::move(names), std::move(shared));
}

Transcripts::Store::Wanted Transcripts::Store::wanted_of(const ContentKey& home,
                                                         std::span<const Message> messages,
                                                         size_t which) const {
  const Message& message = messages[which];
  Wanted wanted{.message = which, .names = {}, .has_id = false};
  if (!message.transcript_id.empty()) {
    wanted.names.push_back(name(home, NameKind::id, bytes_of(message.transcript_id)));
  }
  if (!message.calls.empty() && !message.calls.front().id.empty()) {
    wanted.names.push_back(name(home, NameKind::call, bytes_of(message.calls.front().id)));
  }
  wanted.has_id = !wanted.names.empty();
  wanted.names.push_back(name(home, NameKind::digest, digest_of(message, before(messages, which))));
  return wanted;
}

std::vector<Transcripts::Found> Transcripts::Store::find(const std::string& salt,
                                                         std::span<const Message> messages) {
  std::vector<Found> found(messages.size());
  const std::optional<ContentKey> home = this->home(salt);
  if (options_.bytes == 0 || !home) return found;
  std::vector<Wanted> missing;
  for (size_t m = 0; m < messages.size(); ++m) {
    if (messages[m].role != "assistant") continue;
    Wanted wanted = wanted_of(*home, messages, m);
    std::shared_ptr<const Transcript> known;
    std::vector<ContentKey> names;
    bool by_id = false;
    uint64_t forgotten = 0;
    {
      const base::Lock lock(mutex_);
      forgotten = forgotten_;
      for (size_t n = 0; n < wanted.names.size() && known == nullptr; ++n) {
        const auto at = index_.find(wanted.names[n]);
        if (at == index_.end()) continue;
        entries_.splice(entries_.begin(), entries_, at->second);
        known = at->second->transcript;
        names = at->second->names;
        by_id = n + 1 != wanted.names.size();
      }
    }
    if (known == nullptr) {
      missing.push_back(std::move(wanted));
    } else if (same_meaning(messages[m], known->message)) {
      keep_used(names, *known, forgotten);
      found[m] = {std::move(known), by_id};
    } else {
      const base::Lock lock(mutex_);
      ++stats_.different;
    }
  }
  if (missing.empty()) return found;
  if (tiers_.exist()) find_in_tiers(*home, messages, missing, found);
  const base::Lock lock(mutex_);
  for (const Wanted& each : missing) {
    if (found[each.message].transcript == nullptr) ++stats_.unknown;
  }
  return found;
}

void Transcripts::Store::keep_used(std::span<const ContentKey> names, const Transcript& transcript,
                                   uint64_t forgotten) {
  const base::Lock storing(storing_);
  {
    const base::Lock lock(mutex_);
    if (forgotten != forgotten_) return;
  }
  keep(names, transcript, tier::Sighting::used_again);
}

void Transcripts::Store::find_in_tiers(const ContentKey& home, std::span<const Message> messages,
                                       std::span<const Wanted> missing, std::vector<Found>& found) {
  uint64_t forgotten = 0;
  {
    const base::Lock lock(mutex_);
    forgotten = forgotten_;
  }
  std::vector<std::vector<ContentKey>> names;
  for (const Wanted& each : missing) names.push_back(each.names);
  auto loaded = tiers_.load(names);
  for (size_t i = 0; i < missing.size(); ++i) {
    const size_t m = missing[i].message;
    // Whatever a tier returned, accept only a transcript with the same meaning.
    if (!loaded[i] || !same_meaning(messages[m], loaded[i]->transcript.message)) continue;
    std::vector<ContentKey> all =
        names_of(home, loaded[i]->by_id, loaded[i]->by_digest, loaded[i]->transcript);
    const bool by_id =
        missing[i].has_id && std::ranges::any_of(missing[i].names, [&](const ContentKey& each) {
          return each != loaded[i]->by_digest && std::ranges::count(all, each) != 0;
        });
    auto shared = std::make_shared<const Transcript>(std::move(loaded[i]->transcript));
    found[m] = {shared, by_id};
    const base::Lock lock(mutex_);
    ++stats_.from_tiers;
    if (forgotten == forgotten_) insert(home, std::move(all), std::move(shared));
  }
}

void Transcripts::Store::forget(const std::optional<ContentKey>& home) {
  const base::Lock storing(storing_);
  const base::Lock lock(mutex_);
  ++forgotten_;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (!home || entry->home == *home) erase(entry);
    entry = next;
  }
}

Transcripts::Transcripts(const TranscriptOptions& options)
    : store_(std::make_unique<Store>(options)) {}
Transcripts::~Transcripts() = default;

void Transcripts::remember(const std::string& salt, std::string_view id, Transcript transcript,
                           const std::function<bool()>& may_save) {
  store_->remember(salt, id, std::move(transcript), may_save);
}
std::vector<Transcripts::Found> Transcripts::find(const std::string& salt,
                                                  std::span<const Message> messages) {
  return store_->find(salt, messages);
}
void Transcripts::count(bool spliced) { store_->count(spliced); }
void Transcripts::forget(const std::string& salt) {
  if (const auto home = store_->home(salt)) store_->forget(home);
}
void Transcripts::forget_all() { store_->forget({}); }
TranscriptStats Transcripts::stats() const { return store_->stats(); }

}  // namespace stemma::server
