// A paged engine's main loop: admit requests, evaluate a chunk of each, commit, grow, preempt.
#include <algorithm>
#include <cstdio>
#include <list>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

struct Request {
  std::vector<Token> text;
  size_t wanted = 0;  // Length of the text when the answer is complete.
  Lease lease = {};
};

int main() {
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 20}};
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});
  std::list<Request> waiting, running;
  for (Token i = 0; i < 6; ++i) {  // One system prompt, six questions.
    std::vector<Token> prompt(64, 7);
    for (Token t = 0; t < 20; ++t) prompt.push_back(100 * i + t);
    waiting.push_back({.text = prompt, .wanted = prompt.size() + 40});
  }
  uint32_t computed = 0, preempted = 0;
  while (!waiting.empty() || !running.empty()) {
    while (!waiting.empty() && running.size() < 4) {
      Result<Lease> lease = cache.lease(scope, {.tokens = waiting.front().text});
      if (!lease && lease.error().never_fits()) return 1;  // Really: refuse this one request.
      if (!lease) break;  // No room now; try again when a request finishes.
      // Here the engine carries out lease->copies().
      lease->copies_done().value();
      waiting.front().lease = *std::move(lease);
      running.splice(running.end(), waiting, waiting.begin());
    }
    for (auto at = running.begin(); at != running.end();) {
      Request& r = *at;
      const uint32_t end = std::min(r.lease.length(), r.lease.committed() + 32);
      computed += end - r.lease.committed();  // Here the model writes KV, by r.lease.block_table().
      r.lease.commit(end).value();
      if (end == r.text.size()) r.text.push_back(end % 50);  // Really: sampled.
      const bool done = r.text.size() > r.wanted;
      if (!done && r.lease.extend(std::span(r.text).subspan(r.lease.length()))) {
        ++at;
        continue;
      }
      // Finished, or no room for its next token: then it waits, and most of it stays cached.
      const Retain retain{.will_return = !done};
      r.lease.release({.retain = &retain}).value();
      preempted += done ? 0 : 1;
      const auto ended = at++;
      done ? void(running.erase(ended)) : waiting.splice(waiting.end(), running, ended);
    }
  }
  std::printf("%u positions computed, %u times a request gave way\n", computed, preempted);
}
