// A Scheduler runs requests on a LanguageModel: it owns the thread that calls the engine, the
// SequenceCache, and the queue in front of them.
//
//   submit() --> queue --> begin, execute --> prompt, in chunks --> answer, a token a pass --> finish
//                  ^                                                   |
//                  '------ suspended when the context is full ---------'
//
// Every pass computes one token of each running answer and fills the rest of the batch with
// prompts, oldest first. Choices of one request that get no sequence queue again, one at a time,
// behind the requests that came meanwhile, so that nobody waits for all of them. With tiers, the
// scheduler asks them for a prompt as soon as it arrives; the request waits for their answer while
// others go first. When an answer finds no room, the youngest request is suspended: its state is
// kept like any other prefix, and it resumes from there later. A failed forward pass costs each
// request in it one try.
//
// Invariant:  every accepted request gets done() or failed(), exactly once; then its sequences are
//             given back. At most `queue` requests wait.
// Threading:  thread-safe. Listeners are called on the engine's thread.
// Ownership:  the model outlives it. Listeners are held until their request has ended.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/lock.h"
#include "engine/language_model.h"
#include "server/schedule/generation.h"
#include "server/schedule/histogram.h"
#include "server/schedule/purge_log.h"
#include "server/schedule/sampler.h"
#include "stemma/sequence.h"
#include "stemma/tier/sequence_tiers.h"

namespace stemma::server {

struct SchedulerOptions {
  SequenceOptions cache;
  uint32_t queue = 256;  // Requests that may wait, besides the running ones.
  // Prompt tokens per pass while answers are running; 0 = as many as fit the batch.
  uint32_t prompt_tokens = 0;
  // An answer reserves room for this many tokens at a time.
  uint32_t answer_tokens = 64;
  // Tiers to look in before a request begins; null = none. They outlive the scheduler. The caller
  // sets the cache's listener.
  tier::SequenceTiers* tiers = nullptr;
  bool reuse = true;             // false: every prompt is computed from its beginning.
  const Clock* clock = nullptr;  // Outlives the scheduler; null = monotonic.
};

// Sums since the start, and the current state.
struct SchedulerStats {
  uint64_t requests = 0;  // Accepted.
  uint64_t refused = 0;   // The queue was full. A retry is not counted again.
  uint64_t completed = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t passes = 0;
  uint64_t failed_passes = 0;
  uint64_t suspensions = 0;
  uint64_t prompt_tokens = 0;     // Of requests that have begun.
  uint64_t cached_tokens = 0;     // Those of prompt_tokens that were not computed.
  uint64_t evaluated_tokens = 0;  // Prompt tokens computed; a resumed request counts again.
  uint64_t generated_tokens = 0;
  uint64_t retokenised = 0;  // Prompts that differ from an answer in tokens but not in text.
  uint64_t prompt_ns = 0;    // Time in passes: the share of prompt tokens.
  uint64_t answer_ns = 0;    // Time in passes: the share of answer tokens.
  uint32_t waiting = 0;
  uint32_t running = 0;  // Running choices; each choice of a request counts.
  Histogram first_token_seconds = Histogram::latency();
  Histogram request_seconds = Histogram::latency();
  Histogram queue_seconds = Histogram::latency();
  // How long a request that could have begun waited for captures before its prompt began.
  Histogram saving_seconds = Histogram::latency();
  Histogram token_seconds = Histogram::latency();  // Between two tokens of a choice.
};

class Scheduler {
 public:
  // Returns null after writing the reason to `why`.
  static std::unique_ptr<Scheduler> create(engine::LanguageModel& model,
                                           const SchedulerOptions& options, std::string& why);
  ~Scheduler();  // stop().

  // Accepts a request and returns its number. With max_tokens 0 the request only computes and
  // caches the prompt. Error: invalid_argument (an empty prompt, no choices, an unknown token),
  // out_of_range (the prompt does not fit the context; the value is how much would), busy (the
  // queue is full, or the scheduler is ending).
  Result<uint64_t> submit(Generation request, std::shared_ptr<Listener> listener);
  // Ends a request whose client is gone. Ignores unknown numbers. The listener gets failed(),
  // unless the request had ended.
  void cancel(uint64_t request);

  // Runs `work` on the engine's thread between two passes and waits for it. Returns false if the
  // scheduler has stopped.
  bool run(const std::function<void(SequenceCache&)>& work);

  // Saves everything that waits to be saved, then hands tiers what they lack: write-back tiers all
  // of it, other tiers what they lost before. It works in parts, so that requests go on meanwhile.
  // Then waits until everything is durable, at most until `until_ns` on Clock::monotonic().
  struct KeptTier {
    std::string name;
    uint64_t stored = 0;   // Entries that the tier took since the start.
    uint64_t waiting = 0;  // Entries that wait for it now.
    uint64_t lost = 0;     // Entries that it refused, failed to store or was too late for.
    // Entries since the start that exceed the tier's size limit. `lost` does not count them.
    uint64_t too_large = 0;
  };
  struct Kept {
    bool ran = false;  // false: the scheduler has stopped.
    // The tiers took everything in time, except entries that are too large for them. If false, the
    // rest may be lost with the process.
    bool in_tiers = true;
    Drained drained;
    HandedOn written_back;
    std::vector<KeptTier> tiers;
  };
  Kept keep_everything(uint64_t until_ns);

  // Calls `drop` on the engine's thread, which forgets in the cache, and makes the tiers forget the
  // scope's entries that follow the prefix; without a scope, everything of this model. Requests go
  // on meanwhile. Waits for the tiers, at most until `until_ns` on Clock::monotonic().
  struct Forgotten {
    bool ran = false;                      // false: the scheduler has stopped.
    std::vector<tier::LevelPurged> tiers;  // What each tier removed.
  };
  Forgotten forget(const Scope* scope, const Prompt& prefix, uint64_t until_ns,
                   const std::function<void(SequenceCache&)>& drop);
  // Makes the cache and the tiers forget all of a scope; without one, everything of this model.
  // Requests under way go on and save nothing. Add to purges() first: then requests that have
  // arrived but were not submitted yet save nothing either.
  Forgotten purge(const Scope* scope, uint64_t until_ns);
  PurgeLog& purges() noexcept { return purges_; }

  // For the cache's calls that are safe on any thread.
  const SequenceCache& cache() const noexcept { return *cache_; }
  tier::SequenceTiers* tiers() const noexcept { return options_.tiers; }
  SchedulerStats stats() const;
  // One sequence in use, for /slots.
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
  // The scope of this model with the salt.
  Result<Scope> scope(const std::string& salt) const;

  // Accepts no more requests and waits until the accepted ones have ended, for at most `limit_ns`.
  // Returns whether all ended.
  bool drain(uint64_t limit_ns);
  // Cancels everything and ends the thread.
  void stop();

 private:
  struct Request;
  struct Stream;
  struct Share;
  using StreamPtr = std::unique_ptr<Stream>;
  // A recent answer, to tell why a prompt differs from it.
  struct Answered {
    Scope scope;
    uint32_t prompt_tokens;
    std::vector<Token> tokens;
  };

  Scheduler(engine::LanguageModel& model, const SchedulerOptions& options,
            std::unique_ptr<SequenceCache> cache, Scope scope);
  uint64_t now_ns() const noexcept;
  void work();
  // One round. Returns false if there was nothing to do.
  bool pass();
  // Whether an answer is running.
  bool answering() const;
  // One step of saving. Its time counts as waiting for the requests that could have begun.
  Drained save_a_bit(bool quiet);
  bool something_to_save();
  void save_between_passes();
  void take_cancelled();
  void admit();
  // busy or out_of_blocks: try again later. Any other error: the request has failed.
  Result<void> start(Stream& stream);
  // Asks the tiers. Any thread.
  std::shared_ptr<tier::Fetch> look_in_tiers(const Request& request);
  // Takes in what has arrived for requests whose fetches are still running.
  void take_in_parts();
  void take_in_rest(Request& request, const TurnOptions& options);
  void take_in(Request& request, std::span<const SavedPart> parts, const TurnOptions& options);
  static bool is_ready(const std::shared_ptr<Request>& request);
  static bool has_parts(const std::shared_ptr<Request>& request);
  uint32_t unbegun() const STEMMA_REQUIRES(mutex_);  // Requests in arrived_ that have not begun.
  // Queues the request's next choice.
  void queue_choice(const std::shared_ptr<Request>& request);
  // Chooses the first token of a stream. For the first choice, begins the other choices too.
  void answer_first(Stream& stream, std::span<const float> logits);
  void fork_choices(Stream& first, std::span<const float> logits);
  void fill(std::vector<engine::BatchItem>& batch);
  void settle(std::span<const engine::BatchItem> batch, uint64_t spent_ns);
  void lose(const Error& error);
  TokenLogprob logprob_of(Token token, std::span<const float> logits, uint32_t others);
  void collect_prompt(Stream& stream, const Share& share, uint32_t begin);
  // Draws a token that the stream's rules allow.
  Result<Token> pick(Stream& stream, std::span<const float> logits);
  // Chooses the next token of a stream.
  void choose(Stream& stream, std::span<const float> logits);
  // Returns false if the stream has been suspended or ended.
  bool make_room(Stream& stream);
  void suspend(Stream& stream);
  void end(Stream& stream, StopCause cause, std::string stop_text = {});
  bool ends_answer(const Request& request, Token token) const;
  void fail(Request& request, const Error& error, const std::string& message, bool overloaded);
  void finish_if_done(Request& request);
  void sweep();
  uint32_t retokenised_at(const Scope& scope, std::span<const Token> prompt,
                          uint32_t matched) const;
  void remember(const Stream& stream);
  static void save_nothing(Request& request);
  // Makes requests under way save nothing: those of the scope, or all. Adds their scopes to
  // `scopes`.
  void keep_nothing(const Scope* scope, std::vector<Scope>& scopes);
  void publish();
  // Forgets requests whose listeners have been told of the end.
  void forget_ended();
  // What the policy learns about a request when it begins, and again when it has ended. The cache
  // adds the session.
  static Retain retain_of(const Request& request, FinishReason finish = FinishReason::unknown,
                          uint32_t output_tokens = 0);

  engine::LanguageModel& model_;
  SchedulerOptions options_;
  const Clock* clock_;
  std::unique_ptr<SequenceCache> cache_;
  EngineTraits traits_;
  Scope scope_;                 // Without a salt.
  std::vector<Token> endings_;  // Tokens that end an answer.
  PurgeLog purges_;

  // Used on the engine's thread only.
  std::vector<StreamPtr> active_;
  std::deque<StreamPtr> waiting_;  // Suspended streams, then the stream that begins next.
  std::vector<engine::BatchItem> batch_;
  std::vector<Share> shares_;  // Which part of the batch is whose.
  Workspace workspace_;
  std::vector<TokenChance> top_;
  std::vector<float> allowed_logits_;  // For a draw among the tokens that rules allow.
  std::deque<Answered> answered_;
  uint64_t answered_tokens_ = 0;
  // The last pass found no room. Suspended streams wait until a pass succeeds; otherwise no stream
  // would make progress.
  bool crowded_ = false;
  // The next stream found no room, and no stream has ended since: planning it again is useless.
  bool blocked_ = false;
  bool can_save_ = true;          // Some captures need not wait for a quiet moment.
  uint64_t time_to_save_ns_ = 0;  // What passes have left for saving.
  uint64_t saving_takes_ns_ = 0;  // How long the last step of saving took.
  uint64_t saved_until_ns_ = 0;   // When it ended.
  bool passed_by_ = false;        // The last request that came at once did not wait for saving.
  bool pass_over_ = true;         // The engine has finished the last pass.
  // Prompt tokens, and time, of passes that the engine may still have been computing.
  uint64_t prompts_since_ = 0;
  uint64_t prompts_since_ns_ = 0;
  SchedulerStats sums_;

  mutable base::WaitMutex mutex_;
  base::Condition wake_;
  base::Condition idle_;
  // Requests with a choice to begin, each once.
  std::deque<std::shared_ptr<Request>> arrived_ STEMMA_GUARDED_BY(mutex_);
  uint32_t next_up_ STEMMA_GUARDED_BY(mutex_) =
      0;  // 1: a request that has not begun is in waiting_.
  uint64_t made_good_ STEMMA_GUARDED_BY(mutex_) =
      0;  // How many of the entries that tiers lost were offered to them again.
  // The last call that kept everything could not flush: tiers may have given up entries.
  bool flush_failed_ STEMMA_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> cancelled_ STEMMA_GUARDED_BY(mutex_);
  struct Errand {
    const std::function<void(SequenceCache&)>* work;
    bool done = false;
    bool dropped = false;
  };
  std::vector<Errand*> errands_ STEMMA_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<Request>> requests_ STEMMA_GUARDED_BY(mutex_);
  SchedulerStats stats_ STEMMA_GUARDED_BY(mutex_);  // As of the last pass.
  std::vector<Running> running_ STEMMA_GUARDED_BY(mutex_);
  uint64_t next_ STEMMA_GUARDED_BY(mutex_) = 1;
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  bool stopping_ STEMMA_GUARDED_BY(mutex_) = false;
  // Wakes the engine's thread, if it still runs.
  struct Bell;
  std::shared_ptr<Bell> bell_;
  std::thread thread_;
};

}  // namespace stemma::server
