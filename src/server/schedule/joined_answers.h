// JoinedAnswers: joins the answers to several prompts of one request. Each prompt is a Generation
// of its own; the scheduler's events for all of them go to one Listener, as if they were choices of
// one request.
//
//   prompt p, choice c of n  ──▶  choice p * n + c;  summaries are added up;  the last one to end ends all
//
// If one prompt fails, or is refused when it is submitted, all fail: the others are cancelled, and
// the listener is told once they have ended.
//
// Invariant:  the listener gets done() or failed() once, after every member has ended.
// Threading:  members are called on the engine's thread, like every Listener; submitted(),
//             refused() and cancel() may be called on any thread.
// Ownership:  members share it; it shares the listener.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/lock.h"
#include "server/schedule/generation.h"

namespace stemma::server {

class JoinedAnswers : public std::enable_shared_from_this<JoinedAnswers> {
 public:
  // `echoes`: the text of each prompt, to put before its answers if the client wants that.
  struct Options {
    uint32_t prompts = 1;
    uint32_t choices = 1;  // Of each prompt.
    std::vector<std::string> echoes;
    std::function<void(uint64_t number)> cancel;  // Cancels a request of the scheduler.
  };
  JoinedAnswers(std::shared_ptr<Listener> listener, Options options);

  // The listener for one prompt's generation.
  std::shared_ptr<Listener> member(uint32_t prompt);
  // The scheduler took the prompt under this number.
  void submitted(uint64_t number);
  // The scheduler refused a prompt. That prompt and the following ones, `prompts` in all, will not
  // be submitted.
  void refused(uint32_t prompts, const Error& why, bool overloaded);
  void cancel();

 private:
  class Member;
  struct Failure {
    Error error;
    std::string message;
    bool overloaded;
  };
  void fail(Failure failure);
  void end(uint32_t members);  // This many members have ended.
  void add(const Summary& summary);

  const std::shared_ptr<Listener> listener_;
  const Options options_;
  bool begun_ = false;  // The engine's thread only.

  base::WaitMutex mutex_;
  uint32_t left_ STEMMA_GUARDED_BY(mutex_);  // Members that have not ended.
  bool cancelled_ STEMMA_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> numbers_ STEMMA_GUARDED_BY(mutex_);
  std::unique_ptr<Failure> failure_ STEMMA_GUARDED_BY(mutex_);
  Summary summary_ STEMMA_GUARDED_BY(mutex_);
  bool has_summary_ STEMMA_GUARDED_BY(mutex_) = false;
};

}  // namespace stemma::server
