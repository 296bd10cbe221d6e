// A Scheduler's records of a request and of each of its choices. For scheduler*.cc only.
//
// Threading:  one thread at a time: the engine's, once a request is accepted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/lock.h"
#include "server/schedule/answer_rules.h"
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
      0;  // Time it waited for saving. Under the scheduler's mutex until it has begun.
  uint64_t first_token_ns = 0;
  uint32_t open_choices = 0;
  uint32_t next_choice = 0;  // The next to begin. Under the scheduler's mutex while in arrived_.
  uint32_t tries = 0;
  bool over = false;
  bool purged = false;                             // Its salt was purged: it saves nothing.
  std::vector<TokenLogprob> prompt_logprobs = {};  // Of the computed part of the prompt.
  bool prompt_told = false;                        // prompt_logprobs went to the listener.
  Summary summary = {};
  std::shared_ptr<tier::Fetch> fetch = nullptr;  // Until the request has begun.
  // The fetch has parts that were not yet taken in. Shared with the fetch, which may live longer.
  std::shared_ptr<std::atomic<bool>> more_parts = std::make_shared<std::atomic<bool>>(false);
  Admitted taken_in = {};  // What was taken in from the fetch so far.
};

struct Scheduler::Bell {
  base::WaitMutex mutex;
  Scheduler* scheduler STEMMA_GUARDED_BY(mutex) = nullptr;

  void ring() {
    const base::Lock lock(mutex);
    if (scheduler == nullptr) return;
    const base::Lock inner(scheduler->mutex_);
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
        text(stop_texts(request->asked)) {
    sampler.prime(words);
    if (request->asked.rules != nullptr) rules = request->asked.rules->begin();
    if (request->asked.sampling.ignore_eos) {
      for (const Token token : endings) sampler.ban(token);
    }
  }

  // The client's stop texts come first.
  static std::vector<std::string> stop_texts(const Generation& asked) {
    std::vector<std::string> texts = asked.stop;
    texts.insert(texts.end(), asked.end_texts.begin(), asked.end_texts.end());
    return texts;
  }
  uint32_t prompt_tokens() const { return static_cast<uint32_t>(request->asked.prompt.size()); }
  uint32_t generated() const { return static_cast<uint32_t>(words.size()) - prompt_tokens(); }
  // Whether the listener still has to get the prompt's logprobs.
  bool tells_prompt() const {
    return choice == 0 && request->asked.prompt_logprobs && !request->prompt_told;
  }
  uint32_t still_to_come() const { return request->asked.max_tokens - generated(); }

  std::shared_ptr<Request> request;
  uint32_t choice;
  State state = State::waiting;
  Turn turn;
  std::vector<Token> words;  // Prompt and answer.
  uint32_t room = 0;         // Positions reserved beyond the turn's length.
  Sampler sampler;
  TextStream text;
  std::unique_ptr<TokenRules> rules;   // null: any token may follow.
  std::vector<TokenLogprob> logprobs;  // Of tokens whose text is held back.
  uint64_t last_token_ns = 0;
  uint64_t unmeasured_ns = 0;  // Time of passes that the engine may still have been computing.
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
