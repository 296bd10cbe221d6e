// What a Scheduler keeps of a request and of each of its choices. For scheduler*.cc only.
//
// Threading:  the engine's thread, once a request was taken.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "server/schedule/scheduler.h"
#include "server/schedule/stop.h"

namespace stemma::server {

struct Scheduler::Request {
  uint64_t number = 0;
  Generation asked;
  std::shared_ptr<Listener> listener;
  Scope scope;
  uint64_t submitted_ns = 0;
  uint64_t begun_ns = 0;
  uint64_t saving_ns =
      0;  // It waited while something was saved. Under the scheduler's mutex until it has begun.
  uint64_t first_token_ns = 0;
  uint32_t open_choices = 0;
  uint32_t next_choice = 0;  // To begin. Under the scheduler's mutex while it is in arrived_.
  uint32_t tries = 0;
  bool over = false;
  std::vector<TokenLogprob> prompt_logprobs = {};  // As far as it was computed.
  bool prompt_told = false;                        // They were given to the listener.
  Summary summary = {};
  std::shared_ptr<tier::Fetch> fetch = nullptr;  // Until it has begun.
};

struct Scheduler::Bell {
  std::mutex mutex;
  Scheduler* scheduler = nullptr;

  void ring() {
    const std::lock_guard lock(mutex);
    if (scheduler == nullptr) return;
    const std::lock_guard inner(scheduler->mutex_);
    scheduler->wake_.notify_one();
  }
};

// One choice of a request.
struct Scheduler::Stream {
  enum class State : uint8_t { waiting, prompt, answer, over };

  Stream(std::shared_ptr<Request> of, uint32_t which, uint32_t vocabulary,
         std::span<const Token> endings)
      : request(std::move(of)),
        choice(which),
        words(request->asked.prompt),
        sampler(request->asked.sampling, which, vocabulary),
        text(request->asked.stop) {
    sampler.prime(words);
    if (request->asked.sampling.ignore_eos) {
      for (const Token token : endings) sampler.ban(token);
    }
  }

  uint32_t prompt_tokens() const { return static_cast<uint32_t>(request->asked.prompt.size()); }
  uint32_t generated() const { return static_cast<uint32_t>(words.size()) - prompt_tokens(); }
  // Whether logprobs of its prompt are still to be told.
  bool tells_prompt() const {
    return choice == 0 && request->asked.prompt_logprobs && !request->prompt_told;
  }
  uint32_t still_to_come() const { return request->asked.max_tokens - generated(); }

  std::shared_ptr<Request> request;
  uint32_t choice;
  State state = State::waiting;
  Turn turn;
  std::vector<Token> words;  // Prompt and answer.
  uint32_t room = 0;         // Positions beyond the turn's length that are kept for it.
  Sampler sampler;
  TextStream text;
  std::vector<TokenLogprob> logprobs;  // Of tokens whose text is held back.
  uint64_t last_token_ns = 0;
  uint64_t unmeasured_ns = 0;  // Of passes that may not have been over.
};

// Items [begin, begin + count) of the batch.
struct Scheduler::Share {
  Stream* stream;
  uint32_t begin;
  uint32_t count;
  bool prompt;
};

inline double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace stemma::server
