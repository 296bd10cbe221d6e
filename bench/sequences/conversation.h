// Writes conversations: messages with headers, prompts that end where an answer begins, answers
// that follow from the prompt. And mixes the requests of several into one queue.
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/sequences/workloads.h"

namespace stemma::bench::sequences {

// The same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // From [low, high].
  uint32_t between(uint32_t low, uint32_t high);
  bool one_in(uint32_t count) { return between(1, count) == 1; }
  Tokens words(uint32_t count);

 private:
  uint64_t state_;
};

// What has been said so far. Copies go their own ways from there.
class Conversation {
 public:
  explicit Conversation(std::string session) : session_(std::move(session)) {}

  void say(Role role, const Tokens& words);
  // The request for the next answer. Attempts at the same answer differ.
  Request ask(uint32_t answer_tokens, uint32_t attempt = 0) const;
  // As if the answer had been given.
  void hear(const Request& request);
  // ask() and hear().
  Request turn(uint32_t answer_tokens);

  void rename(std::string session) { session_ = std::move(session); }
  size_t messages() const { return messages_.size(); }
  // Forgets all messages but the first `count`.
  void back_to(size_t count);
  uint32_t length() const { return static_cast<uint32_t>(words_.size()); }

 private:
  std::string session_;
  Tokens words_;
  std::vector<Message> messages_;
};

using Queue = std::vector<Request>;

// The next request is that of any of the first `active` queues that are not done, which keeps the
// order within each.
Queue interleave(std::vector<Queue> queues, uint32_t active, Random& random);

}  // namespace stemma::bench::sequences
