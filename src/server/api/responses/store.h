// ResponseStore: the responses that clients asked to store, so that they can continue with
// previous_response_id, name an item by its id (item_reference), and fetch or delete a response.
//
// A response is only found under the salt it was made with, and its id is 128 random bits. Each
// response holds the items of its own turn and the id of the response before it; a conversation is
// read by following these ids back. The least recently used response is dropped first; reading a
// conversation uses all its responses.
//
// Invariant:  at most `bytes` are held; a response counts with its contents, its key and 256 bytes
//             of bookkeeping.
// Threading:  thread-safe.
// Cost:       O(log n) a response; chain(): that for each turn.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/lock.h"

namespace stemma::server {

struct StoredResponse {
  // The response that clients get is head + output + tail; `output` is a JSON array.
  std::string head;
  std::string output;
  std::string tail;
  std::string input;        // The items of its own turn, a JSON array.
  std::string previous_id;  // Empty: the conversation began with it.

  std::string text() const { return head + output + tail; }
  uint64_t bytes() const noexcept;
};

class ResponseStore {
 public:
  struct Options {
    uint64_t bytes = uint64_t{64} << 20U;  // 0: nothing is stored.
  };
  struct Stats {
    uint64_t entries = 0;
    uint64_t bytes = 0;
    uint64_t evicted = 0;
  };
  using Entry = std::shared_ptr<const StoredResponse>;

  explicit ResponseStore(const Options& options) : options_(options) {}

  // A response larger than the store is not kept. `may_save` is asked under the store's lock; if it
  // says false, nothing is kept. So what becomes false before forget() is called stays forgotten.
  void put(const std::string& salt, const std::string& id, StoredResponse response,
           const std::function<bool()>& may_save = {});
  // Returns null if the id is not known under this salt.
  Entry find(const std::string& salt, const std::string& id);
  // Returns all turns up to and including this one, oldest first; empty if one of them is not
  // known.
  std::vector<Entry> chain(const std::string& salt, const std::string& id);
  // The response that an output item's id belongs to.
  static std::string response_of_item(std::string_view item_id);

  // Returns false if the id was not known.
  bool erase(const std::string& salt, const std::string& id);
  void forget(std::string_view salt);
  void forget_all();
  Stats stats() const;

 private:
  using Key = std::pair<std::string, std::string>;  // Salt, id.
  struct Held {
    Entry response;
    uint64_t bytes = 0;
    std::list<Key>::iterator place;
  };
  using Entries = std::map<Key, Held>;

  Entry use(const Key& key) STEMMA_REQUIRES(mutex_);
  void drop(Entries::iterator entry) STEMMA_REQUIRES(mutex_);

  const Options options_;
  mutable base::WaitMutex mutex_;
  Entries entries_ STEMMA_GUARDED_BY(mutex_);
  std::list<Key> order_ STEMMA_GUARDED_BY(mutex_);  // Most recently used last.
  uint64_t bytes_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t evicted_ STEMMA_GUARDED_BY(mutex_) = 0;
};

// Ids of a response and of its items share these letters: "resp_" + key, "msg_" + key + "_0".
inline constexpr std::string_view kResponsePrefix = "resp_";

}  // namespace stemma::server
