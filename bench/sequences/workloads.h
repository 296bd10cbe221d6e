// The requests to a server of conversations, as lists made from a seed.
//
// A request is a prompt and the answer that is sampled behind it. The answer belongs to the
// request, so every policy continues with the same words, whatever it had cached. A message begins
// with a header of its role, as chat templates write it, and a prompt ends with the header of the
// answer. Sizes are those of chats and agents of today, shrunk eight times (kShrink), so that a run
// is short.
//
// Threading: immutable values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stemma/ids.h"

namespace stemma::bench::sequences {

using Tokens = std::vector<Token>;

inline constexpr uint32_t kShrink = 8;

enum class Role : uint8_t { system, user, assistant, tool };
inline constexpr uint32_t kHeaderTokens = 3;

struct Message {
  uint32_t end = 0;
  Role role = Role::user;
};

struct Request {
  std::string session;
  Tokens prompt;
  Tokens answer;
  // The messages of the prompt, in order; the last one ends before the header of the answer.
  std::vector<Message> messages = {};

  Tokens whole() const;                        // Prompt and answer.
  std::vector<uint32_t> message_ends() const;  // Ascending, below the prompt's size.
};

struct Workload {
  std::string name;
  std::string about;         // One line.
  bool much_shared = false;  // Many requests share a long prefix: whole states store it many times.
  uint32_t sequences = 4;
  // The engine's context for all sequences together. With several sequences it is more than twice
  // the longest request, so a state can be loaded beside another one.
  uint32_t context_tokens = 8192;
  std::vector<Request> requests;

  uint64_t prompt_tokens() const;
  uint64_t answer_tokens() const;
  uint32_t longest_tokens() const;  // Prompt with answer.
};

// 100 users behind one system prompt, up to 16 of them in the middle of their conversation.
Workload shared_prompt(uint64_t seed);
// Agents that call tools, hand parts of their task to sub-agents that know all they know, and try
// two answers at once.
Workload agent_turns(uint64_t seed);
// The user has the last answer written again, once or twice.
Workload regenerate(uint64_t seed);
// The user changes an earlier message and continues from there, and now and then returns to the old
// branch.
Workload edit_earlier(uint64_t seed);
// Three long documents, each with many questions that do not know of each other.
Workload long_document(uint64_t seed);
// Prompts that have nothing in common and never come again, with three conversations among them.
Workload one_shot(uint64_t seed);
// Two conversations that take turns on an engine with one sequence.
Workload two_on_one(uint64_t seed);

// All seven, in this order.
std::vector<Workload> all_workloads(uint64_t seed);

}  // namespace stemma::bench::sequences
