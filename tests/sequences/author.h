// An Author writes the requests of a schedule: a forest of conversations that grows while answers
// come back. Conversations share system prompts, go on, are edited, regenerated, branched and
// repeated; some requests are of no conversation, and some are too long for the engine.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "sequences/dice.h"
#include "sequences/situation.h"
#include "sequences/words.h"

namespace stemma::schedules {

struct Request {
  Text text;
  std::vector<uint32_t> message_ends;  // Ascending.
  uint32_t scope = 0;
  std::string session;  // "": the conversation has no name.
  uint64_t conversation = 0;
  bool unique = false;  // No other request has its first word.
  const char* kind = "";
};

class Author {
 public:
  Author(const Situation& situation, Dice& dice);

  Request next();
  // Sets the conversation to the prompt and its answer.
  void answered(uint64_t conversation, const Text& text);
  std::vector<Token> answer(uint32_t count);

 private:
  struct Conversation {
    uint64_t number = 0;
    uint32_t scope = 0;
    std::string session;
    Text text;                   // All that was said.
    std::vector<uint32_t> ends;  // Of its messages.
    uint32_t asked = 0;          // Where the last prompt ended.
  };

  void say(Conversation& conversation);  // One more message.
  void cut(Conversation& conversation, uint32_t n);
  Conversation start();
  Request request(const Conversation& conversation, const char* kind);
  Text message();
  Token word() { return dice_.below(40); }

  const Situation& situation_;
  Dice& dice_;
  std::vector<Text> systems_;
  std::deque<Conversation> conversations_;
  std::deque<Request> past_;
  uint64_t next_number_ = 1;
  Token next_unique_ = 1'000'000;
};

}  // namespace stemma::schedules
