#include "server/api/responses/store.h"

#include <algorithm>

namespace stemma::server {
namespace {

constexpr uint64_t kBooks = 256;  // Estimated bytes for the nodes of the map and the list.

}  // namespace

uint64_t StoredResponse::bytes() const noexcept {
  return head.size() + output.size() + tail.size() + input.size() + previous_id.size();
}

void ResponseStore::put(const std::string& salt, const std::string& id, StoredResponse response,
                        const std::function<bool()>& may_save) {
  const uint64_t bytes = response.bytes() + 2 * (salt.size() + id.size()) + kBooks;
  if (bytes > options_.bytes) return;
  auto entry = std::make_shared<const StoredResponse>(std::move(response));
  const base::Lock lock(mutex_);
  if (may_save && !may_save()) return;
  const Key key{salt, id};
  if (const auto old = entries_.find(key); old != entries_.end()) drop(old);
  while (bytes_ + bytes > options_.bytes) {
    drop(entries_.find(order_.front()));
    ++evicted_;
  }
  const auto place = order_.insert(order_.end(), key);
  entries_.emplace(key, Held{std::move(entry), bytes, place});
  bytes_ += bytes;
}

ResponseStore::Entry ResponseStore::use(const Key& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  order_.splice(order_.end(), order_, found->second.place);
  return found->second.response;
}

ResponseStore::Entry ResponseStore::find(const std::string& salt, const std::string& id) {
  const base::Lock lock(mutex_);
  return use({salt, id});
}

std::vector<ResponseStore::Entry> ResponseStore::chain(const std::string& salt,
                                                       const std::string& id) {
  std::vector<Entry> turns;
  const base::Lock lock(mutex_);
  // An id is made after the ids that it refers to, at random, so this loop ends.
  for (std::string next = id; !next.empty(); next = turns.back()->previous_id) {
    Entry turn = use({salt, next});
    if (turn == nullptr) return {};
    turns.push_back(std::move(turn));
  }
  std::ranges::reverse(turns);
  return turns;
}

std::string ResponseStore::response_of_item(std::string_view item_id) {
  const size_t first = item_id.find('_');
  const size_t last = item_id.rfind('_');
  if (first == std::string_view::npos || last == first) return {};
  return std::string(kResponsePrefix) + std::string(item_id.substr(first + 1, last - first - 1));
}

void ResponseStore::drop(Entries::iterator entry) {
  bytes_ -= entry->second.bytes;
  order_.erase(entry->second.place);
  entries_.erase(entry);
}

bool ResponseStore::erase(const std::string& salt, const std::string& id) {
  const base::Lock lock(mutex_);
  const auto found = entries_.find({salt, id});
  if (found == entries_.end()) return false;
  drop(found);
  return true;
}

void ResponseStore::forget(std::string_view salt) {
  const base::Lock lock(mutex_);
  for (auto entry = entries_.lower_bound({std::string(salt), {}});
       entry != entries_.end() && entry->first.first == salt;) {
    drop(entry++);
  }
}

void ResponseStore::forget_all() {
  const base::Lock lock(mutex_);
  entries_.clear();
  order_.clear();
  bytes_ = 0;
}

ResponseStore::Stats ResponseStore::stats() const {
  const base::Lock lock(mutex_);
  return {.entries = entries_.size(), .bytes = bytes_, .evicted = evicted_};
}

}  // namespace stemma::server
