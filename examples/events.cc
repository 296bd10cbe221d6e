// A router follows cache events to know which machine has the longest prefix.
#include <cstdio>
#include <unordered_set>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

namespace {

// What one machine has cached, as seen from outside.
struct Mirror {
  std::unordered_set<ContentKey> keys;
  uint64_t next = 0;

  void take(const Event& event) {
    if (event.group != 0 || event.tail) return;  // There is one group here; skip tails.
    if (event.kind == EventKind::stored) keys.insert(event.keys.begin(), event.keys.end());
    if (event.kind == EventKind::removed) {
      for (const ContentKey& key : event.keys) keys.erase(key);
    }
    if (event.kind == EventKind::cleared) keys.clear();
  }
  void follow(const PagedCache& cache) {
    std::vector<Event> events;
    const uint64_t wanted = next;
    next = cache.events(wanted, 100, events);
    if (!events.empty() && events.front().sequence != wanted) {  // We were too slow: start anew.
      EventDump dump = cache.event_dump();
      keys.clear();
      events = std::move(dump.events);
      next = dump.next_sequence;
    }
    for (const Event& event : events) take(event);
    std::printf("%zu events: %zu blocks known\n", events.size(), keys.size());
  }
};

}  // namespace

int main() {
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 16}};
  options.event_capacity = 8;
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});
  const auto run = [&](Token seed) {
    const std::vector<Token> prompt(128, seed);
    cache.lease(scope, {.tokens = prompt})->commit(128).value();
  };
  Mirror mirror;
  run(1);
  mirror.follow(cache);
  run(2);
  run(3);  // Evicts the first prompt.
  mirror.follow(cache);
  for (Token seed = 4; seed < 12; ++seed) run(seed);
  mirror.follow(cache);
}
