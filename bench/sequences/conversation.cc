#include "bench/sequences/conversation.h"

#include <algorithm>
#include <deque>

#include "base/random.h"

namespace stemma::bench::sequences {
namespace {

constexpr uint32_t kVocabulary = 128'000;
constexpr uint32_t kFirstWord = 100;  // Below it are the headers' tokens.

Tokens header(Role role) { return {1, 10 + static_cast<Token>(role), 2}; }

void append(Tokens& to, const Tokens& words) { to.insert(to.end(), words.begin(), words.end()); }

}  // namespace

uint64_t Random::next() {
  state_ += 0x9E37'79B9'7F4A'7C15U;
  return base::mix(state_);
}

uint32_t Random::between(uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(next() % (uint64_t{high} - low + 1));
}

Tokens Random::words(uint32_t count) {
  Tokens words(count);
  for (Token& word : words) word = between(kFirstWord, kVocabulary - 1);
  return words;
}

void Conversation::say(Role role, const Tokens& words) {
  append(words_, header(role));
  append(words_, words);
  messages_.push_back({length(), role});
}

Request Conversation::ask(uint32_t answer_tokens, uint32_t attempt) const {
  Request request{.session = session_, .prompt = words_, .answer = {}, .messages = messages_};
  append(request.prompt, header(Role::assistant));
  uint64_t seed = attempt;
  for (const Token word : request.prompt) seed = base::mix(seed, word);
  request.answer = Random(seed).words(answer_tokens);
  return request;
}

void Conversation::hear(const Request& request) { say(Role::assistant, request.answer); }

Request Conversation::turn(uint32_t answer_tokens) {
  Request request = ask(answer_tokens);
  hear(request);
  return request;
}

void Conversation::back_to(size_t count) {
  messages_.resize(count);
  words_.resize(messages_.empty() ? 0 : messages_.back().end);
}

Queue interleave(std::vector<Queue> queues, uint32_t active, Random& random) {
  Queue merged;
  std::deque<size_t> waiting;
  std::vector<size_t> running;
  std::vector<size_t> next(queues.size(), 0);
  for (size_t i = 0; i < queues.size(); ++i) waiting.push_back(i);
  while (true) {
    std::erase_if(running, [&](size_t i) { return next[i] == queues[i].size(); });
    while (running.size() < active && !waiting.empty()) {
      running.push_back(waiting.front());
      waiting.pop_front();
    }
    if (running.empty()) return merged;
    const size_t chosen = running[random.between(0, static_cast<uint32_t>(running.size()) - 1)];
    if (next[chosen] < queues[chosen].size()) {
      merged.push_back(std::move(queues[chosen][next[chosen]++]));
    }
  }
}

}  // namespace stemma::bench::sequences
