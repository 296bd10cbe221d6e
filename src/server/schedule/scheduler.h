// A Scheduler runs requests on a LanguageModel: it owns the thread that calls the engine, the
// SequenceCache, and the queue in front of them.
//
//   submit() --> queue --> begin, execute --> prompt, in chunks --> answer, a token a pass --> finish
//                  ^                                                   |
//                  '------ suspended when the context is full ---------'
//
// Every pass takes one token of each answer under way and fills the rest of the batch with prompts, oldest
// first. Choices of one request that find no sequence queue again behind the requests that came meanwhile, one after
// the other, so that nobody waits for all of them. Where there are tiers, they are asked for a prompt as soon as it arrives, and it waits, while others
// go first, until they have answered. When an answer finds no room, the youngest request gives way: what it has is kept like any other
// prefix, and it goes on from there later. A forward pass that fails costs the requests in it one more try.
//
// Invariant:  every request that submit() took hears done or failed, once; then its sequences are given
//             back. At most `queue` wait.
// Threading:  thread-safe. Listeners are called on the engine's thread.
// Ownership:  the model outlives it. Listeners are held until their request has ended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/language_model.h"
#include "server/schedule/generation.h"
#include "server/schedule/histogram.h"
#include "server/schedule/sampler.h"
#include "stemma/sequence.h"
#include "stemma/sequence_tiers.h"

namespace stemma::server {

struct SchedulerOptions {
  SequenceOptions cache;
  uint32_t queue = 256;  // Requests that may wait, beside those under way.
  // Tokens of prompts in one pass, while answers are under way; 0 = as many as the batch has.
  uint32_t prompt_tokens = 0;
  // Room that an answer gets at a time.
  uint32_t answer_tokens = 64;
  // What is looked in before a request begins, and outlives it; null = none. The cache's listener is the
  // caller's to set.
  tier::SequenceTiers* tiers = nullptr;
  bool reuse = true;             // false: every prompt is computed from its beginning.
  const Clock* clock = nullptr;  // Outlives it; null = monotonic.
};

// Sums since the start, and how things are now.
struct SchedulerStats {
  uint64_t requests = 0;  // Taken.
  uint64_t refused = 0;   // The queue was full. A request that is tried again counts once.
  uint64_t completed = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t passes = 0;
  uint64_t failed_passes = 0;
  uint64_t suspensions = 0;
  uint64_t prompt_tokens = 0;     // Of requests that have begun.
  uint64_t cached_tokens = 0;     // Of these, not computed.
  uint64_t evaluated_tokens = 0;  // Of prompts, in passes; again where a request was suspended.
  uint64_t generated_tokens = 0;
  uint64_t retokenised = 0;  // Prompts that part from an answer in tokens and not in text.
  uint64_t prompt_ns = 0;    // In passes, prompts' and answers' share of their tokens.
  uint64_t answer_ns = 0;
  uint32_t waiting = 0;
  uint32_t running = 0;  // Requests; a choice each counts once.
  Histogram first_token_seconds = Histogram::latency();
  Histogram request_seconds = Histogram::latency();
  Histogram queue_seconds = Histogram::latency();
  // That a request waited for captures before its prompt began, when there was a place for it.
  Histogram saving_seconds = Histogram::latency();
  Histogram token_seconds = Histogram::latency();  // Between two tokens of a choice.
};

class Scheduler {
 public:
  // null: `why`.
  static std::unique_ptr<Scheduler> create(engine::LanguageModel& model,
                                           const SchedulerOptions& options, std::string& why);
  ~Scheduler();  // stop().

  // Takes a request; one of 0 tokens computes the prompt and keeps it. Its number. Error: invalid_argument (an empty prompt, no choices, a token there is
  // not), out_of_range (the prompt does not fit the context; the value is how much would), busy (the queue
  // is full, or it is ending).
  Result<uint64_t> submit(Generation request, std::shared_ptr<Listener> listener);
  // The client is gone. Unknown numbers are ignored. The listener hears failed(), unless it was done.
  void cancel(uint64_t request);

  // Runs `work` on the engine's thread between two passes, and waits for it. false: it has stopped.
  bool run(const std::function<void(SequenceCache&)>& work);

  // Saves what waits to be saved. Has tiers take what they lack: write-back tiers all of it, others what they lost
  // before. That happens a part at a time, so that requests go on meanwhile. Then waits until everything is durable,
  // at most until `until_ns` on Clock::monotonic().
  struct KeptTier {
    std::string name;
    uint64_t stored = 0;   // Entries since the start that it took,
    uint64_t waiting = 0;  // that wait to be taken now,
    uint64_t lost = 0;     // and that it refused, failed or was too late to take.
    // Entries since the start that are larger than it ever takes. They are not among those lost.
    uint64_t too_large = 0;
  };
  struct Kept {
    bool ran = false;  // false: it has stopped.
    // Everything that was to be taken by tiers was, in time, but for what is too large for them. Otherwise the rest
    // may be lost with the process.
    bool in_tiers = true;
    Drained drained;
    HandedOn written_back;
    std::vector<KeptTier> tiers;
  };
  Kept keep_everything(uint64_t until_ns);

  // Forgets in the cache, by `drop` on the engine's thread, and in the tiers: what they have of the
  // scope and follows the prefix; without a scope, everything of this model. Requests go on
  // meanwhile. Waits for the tiers, at most until `until_ns` on Clock::monotonic().
  struct Forgotten {
    bool ran = false;                      // false: it has stopped.
    std::vector<tier::LevelPurged> tiers;  // What went from each.
  };
  Forgotten forget(const Scope* scope, const Prompt& prefix, uint64_t until_ns,
                   const std::function<void(SequenceCache&)>& drop);

  // What the cache can say on any thread.
  const SequenceCache& cache() const noexcept { return *cache_; }
  tier::SequenceTiers* tiers() const noexcept { return options_.tiers; }
  SchedulerStats stats() const;
  // One line for each sequence under way: for /slots.
  struct Running {
    uint64_t request = 0;
    SequenceId sequence{};
    uint32_t choice = 0;
    uint32_t prompt_tokens = 0;
    uint32_t computed_tokens = 0;
    uint32_t generated_tokens = 0;
    uint32_t cached_tokens = 0;
  };
  std::vector<Running> running() const;
  // Of a scope with the salt; what the model says is in it.
  Result<Scope> scope(const std::string& salt) const;

  // Takes no more requests, and waits until those it has have ended, or until the deadline. true: all did.
  bool drain(uint64_t limit_ns);
  // Cancels everything and ends the thread.
  void stop();

 private:
  struct Request;
  struct Stream;
  struct Share;
  using StreamPtr = std::unique_ptr<Stream>;
  // What was answered lately, to tell why a prompt parts from it.
  struct Answered {
    Scope scope;
    uint32_t prompt_tokens;
    std::vector<Token> tokens;
  };

  Scheduler(engine::LanguageModel& model, const SchedulerOptions& options,
            std::unique_ptr<SequenceCache> cache, Scope scope);
  uint64_t now_ns() const noexcept;
  void work();
  // One round; false: there was nothing to do.
  bool pass();
  // Whether an answer is under way.
  bool answering() const;
  // A step of what waits to be saved; who waits meanwhile has it counted.
  Drained save_a_bit(bool quiet);
  bool something_to_save();
  void save_between_passes();
  void take_cancelled();
  void admit();
  // busy: later. Any other error: the request has failed.
  Result<void> start(Stream& stream);
  // Asks the tiers. Any thread.
  std::shared_ptr<tier::Fetch> look_in_tiers(const Request& request);
  // Takes in what the tiers had.
  void take_in(Request& request, const TurnOptions& options);
  static bool is_ready(const std::shared_ptr<Request>& request);
  uint32_t unbegun() const;  // Requests in arrived_ that have not begun. Under mutex_.
  // Has the request's next choice begin when its turn comes.
  void queue_choice(const std::shared_ptr<Request>& request);
  // The first token of a stream, and with the first choice's those of the others.
  void answer_first(Stream& stream, std::span<const float> logits);
  void fork_choices(Stream& first, std::span<const float> logits);
  void fill(std::vector<engine::BatchItem>& batch);
  void settle(std::span<const engine::BatchItem> batch, uint64_t spent_ns);
  void lose(const Error& error);
  TokenLogprob logprob_of(Token token, std::span<const float> logits, uint32_t others);
  void collect_prompt(Stream& stream, const Share& share, uint32_t begin);
  // The next token of a stream, from logits.
  void choose(Stream& stream, std::span<const float> logits);
  // false: the stream has been suspended or ended.
  bool make_room(Stream& stream);
  void suspend(Stream& stream);
  void end(Stream& stream, StopCause cause, std::string stop_text = {});
  void fail(Request& request, const Error& error, const std::string& message, bool overloaded);
  void finish_if_done(Request& request);
  void sweep();
  uint32_t retokenised_at(const Scope& scope, std::span<const Token> prompt,
                          uint32_t matched) const;
  void remember(const Stream& stream);
  void publish();
  // Requests whose listeners have heard the end.
  void forget_ended();
  // What the policy is told of a request: as it begins, and when it is known how it ended. Its session is the
  // cache's to add.
  static Retain retain_of(const Request& request, FinishReason finish = FinishReason::unknown,
                          uint32_t output_tokens = 0);

  engine::LanguageModel& model_;
  SchedulerOptions options_;
  const Clock* clock_;
  std::unique_ptr<SequenceCache> cache_;
  EngineTraits traits_;
  Scope scope_;                 // Without a salt.
  std::vector<Token> endings_;  // Tokens that end an answer.

  // The engine's thread alone.
  std::vector<StreamPtr> active_;
  std::deque<StreamPtr> waiting_;  // Suspended ones, then the one that is next.
  std::vector<engine::BatchItem> batch_;
  std::vector<Share> shares_;  // Which part of the batch is whose.
  Workspace workspace_;
  std::vector<TokenChance> top_;
  std::deque<Answered> answered_;
  uint64_t answered_tokens_ = 0;
  // The last pass found no room: those who gave way wait until one has succeeded, or nobody would go on.
  bool crowded_ = false;
  // The one that is next found no room, and nobody has ended since: it is not planned again before.
  bool blocked_ = false;
  bool can_save_ = true;          // Not all that waits to be saved waits until it is quiet.
  uint64_t time_to_save_ns_ = 0;  // Left from passes, and
  uint64_t saving_takes_ns_ = 0;  // what the last bit took;
  uint64_t saved_until_ns_ = 0;   // when that was.
  bool passed_by_ =
      false;               // The last request that followed another at once did not wait for a bit.
  bool pass_over_ = true;  // The last pass does not go on in the engine.
  // Of prompts in passes that may not have been over.
  uint64_t prompts_since_ = 0;
  uint64_t prompts_since_ns_ = 0;
  SchedulerStats sums_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  // Requests with a choice to begin, each once.
  std::deque<std::shared_ptr<Request>> arrived_;
  uint32_t next_up_ = 0;    // 1: the one that arrived first is in waiting_, and has not begun.
  uint64_t made_good_ = 0;  // Of what tiers lost, so much was offered to them again.
  std::vector<uint64_t> cancelled_;
  struct Errand {
    const std::function<void(SequenceCache&)>* work;
    bool done = false;
    bool dropped = false;
  };
  std::vector<Errand*> errands_;
  std::unordered_map<uint64_t, std::shared_ptr<Request>> requests_;
  SchedulerStats stats_;  // As of the last pass.
  std::vector<Running> running_;
  uint64_t next_ = 1;
  bool closing_ = false;
  bool stopping_ = false;
  // Wakes the engine's thread for as long as there is one.
  struct Bell;
  std::shared_ptr<Bell> bell_;
  std::thread thread_;
};

}  // namespace stemma::server
