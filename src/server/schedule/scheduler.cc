#include "server/schedule/scheduler.h"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <utility>

#include "server/schedule/scheduler_stream.h"

namespace stemma::server {

namespace {

// How many recent answers, and tokens of them, are remembered.
constexpr size_t kAnswered = 64;
constexpr uint64_t kAnsweredTokens = 1U << 20U;

// After this time, a call to save ends with the current step of a capture.
constexpr uint64_t kBitNs = 300'000;
// Each answer token waits for one step, so steps are shorter while answers are computed.
constexpr uint64_t kShortStepNs = 3'000'000;
// The quiet time before saving begins, and the pause while threads work on saved state.
constexpr auto kBeforeSaving = std::chrono::microseconds(5'000);
constexpr auto kForThreads = std::chrono::microseconds(500);
// While answers are computed, a fourth of the time is for saving, if there is anything to save.
// While prompts are computed, saving gets as much time as they take. Unused time adds up to at most
// kMostToSave.
constexpr uint64_t kPartForSaving = 4;
constexpr uint64_t kMostToSave = 100'000'000;

// Returns the part that contains token `depth` or follows it; empty if there is no such token.
std::string part_at(const std::vector<PromptPart>& parts, uint32_t depth, uint32_t prompt_tokens) {
  // The last token of a prompt is always computed.
  if (parts.empty() || depth + 1 >= prompt_tokens) return {};
  const auto part = std::ranges::find_if(parts, [&](const auto& each) { return each.end > depth; });
  return part == parts.end() ? "template" : part->name;
}

}  // namespace

std::unique_ptr<Scheduler> Scheduler::create(engine::LanguageModel& model,
                                             const SchedulerOptions& options, std::string& why) {
  const Result<Scope> scope = Scope::make(model.info().scope);
  if (!scope) {
    why = scope.error().to_string();
    return nullptr;
  }
  SequenceOptions cache_options = options.cache;
  if (cache_options.clock == nullptr) cache_options.clock = options.clock;
  Result<SequenceCache> cache = SequenceCache::create(model.sequences(), cache_options);
  if (!cache) {
    why = cache.error().to_string();
    return nullptr;
  }
  std::unique_ptr<Scheduler> made(
      new Scheduler(model, options, std::make_unique<SequenceCache>(*std::move(cache)), *scope));
  made->thread_ = std::thread([scheduler = made.get()] { scheduler->work(); });
  return made;
}

Scheduler::Scheduler(engine::LanguageModel& model, const SchedulerOptions& options,
                     std::unique_ptr<SequenceCache> cache, Scope scope)
    : model_(model),
      options_(options),
      clock_(options.clock != nullptr ? options.clock : &Clock::monotonic()),
      cache_(std::move(cache)),
      traits_(model.sequences().traits()),
      scope_(scope),
      bell_(std::make_shared<Bell>()) {
  bell_->scheduler = this;
  for (Token token = 0; token < model_.info().vocabulary; ++token) {
    if (model_.ends_generation(token)) endings_.push_back(token);
  }
}

Scheduler::~Scheduler() { stop(); }

uint64_t Scheduler::now_ns() const noexcept { return clock_->now_ns(); }

Result<Scope> Scheduler::scope(const std::string& salt) const {
  if (salt.empty()) return scope_;
  ScopeSpec spec = model_.info().scope;
  spec.tenant_salt = salt;
  return Scope::make(spec);
}

// ---- Any thread ---------------------------------------------------------------------------------

Result<uint64_t> Scheduler::submit(Generation asked, std::shared_ptr<Listener> listener) {
  if (asked.prompt.empty()) return Error(Errc::invalid_argument, "the prompt is empty");
  if (asked.choices == 0) return Error(Errc::invalid_argument, "no choices are asked for");
  for (const Token token : asked.prompt) {
    if (token >= model_.info().vocabulary) {
      return Error(Errc::invalid_argument, "no such token", token);
    }
  }
  // Keep one position for the answer.
  const uint32_t most = traits_.context_tokens - (asked.max_tokens == 0 ? 0 : 1);
  if (asked.prompt.size() > most) {
    return Error(Errc::out_of_range, "the prompt is longer than the context", most);
  }
  const auto length = static_cast<uint32_t>(asked.prompt.size());
  asked.max_tokens = std::min(asked.max_tokens, traits_.context_tokens - length);
  STEMMA_TRY(const Scope in, scope(asked.salt));
  if (!asked.purges) asked.purges = purges_.count();
  auto request = std::make_shared<Request>(
      Request{.asked = std::move(asked), .listener = std::move(listener), .scope = in});
  request->submitted_ns = now_ns();
  request->open_choices = request->asked.choices;
  request->summary.prompt_tokens = length;
  for (const PriorityRange& pin : request->asked.pinned) {
    request->summary.pinned_tokens =
        std::max(request->summary.pinned_tokens, std::min(pin.end, length));
  }
  request->fetch = look_in_tiers(*request);
  const base::Lock lock(mutex_);
  if (closing_ || stopping_ || unbegun() + next_up_ >= options_.queue) {
    if (request->fetch != nullptr) request->fetch->cancel();
    if (!request->asked.retry) ++stats_.refused;
    return Error(Errc::busy,
                 closing_ || stopping_ ? "the server is ending" : "too many requests wait");
  }
  // keep_nothing() finds the request from here on.
  if (purges_.purged_since(*request->asked.purges, request->asked.salt)) save_nothing(*request);
  ++stats_.requests;
  request->number = next_++;
  requests_.emplace(request->number, request);
  arrived_.push_back(request);
  wake_.notify_one();
  return request->number;
}

uint32_t Scheduler::unbegun() const {
  return static_cast<uint32_t>(std::ranges::count_if(
      arrived_, [](const std::shared_ptr<Request>& each) { return each->next_choice == 0; }));
}

bool Scheduler::is_ready(const std::shared_ptr<Request>& request) {
  return request->fetch == nullptr || request->fetch->over();
}

void Scheduler::cancel(uint64_t request) {
  const base::Lock lock(mutex_);
  if (!requests_.contains(request)) return;
  cancelled_.push_back(request);
  wake_.notify_one();
}

bool Scheduler::run(const std::function<void(SequenceCache&)>& work) {
  Errand errand{.work = &work};
  base::Lock lock(mutex_);
  if (stopping_) return false;
  errands_.push_back(&errand);
  wake_.notify_one();
  idle_.wait(lock, [&] { return errand.done || errand.dropped; });
  return errand.done;
}

SchedulerStats Scheduler::stats() const {
  const base::Lock lock(mutex_);
  SchedulerStats now = stats_;
  now.waiting = unbegun() + stats_.waiting;
  return now;
}

std::vector<Scheduler::Running> Scheduler::running() const {
  const base::Lock lock(mutex_);
  return running_;
}

bool Scheduler::drain(uint64_t limit_ns) {
  base::Lock lock(mutex_);
  closing_ = true;
  const auto limit = std::chrono::nanoseconds(std::min<uint64_t>(limit_ns, uint64_t{1} << 60U));
  return idle_.wait_for(lock, limit, [&]() STEMMA_REQUIRES(mutex_) {
    return requests_.empty() || stopping_;
  }) && requests_.empty();
}

void Scheduler::stop() {
  {
    const base::Lock lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  // Fetches may end after the scheduler.
  const base::Lock lock(bell_->mutex);
  bell_->scheduler = nullptr;
}

// ---- The engine's thread ------------------------------------------------------------------------

void Scheduler::work() {
  for (;;) {
    std::vector<Errand*> errands;
    {
      base::Lock lock(mutex_);
      const auto called = [&]() STEMMA_REQUIRES(mutex_) {
        return stopping_ || std::ranges::any_of(arrived_, is_ready) ||
               std::ranges::any_of(arrived_, has_parts) || !cancelled_.empty() || !errands_.empty();
      };
      // Quiet: save in small steps, so that no request waits long for it. Do not begin at once,
      // because a client may send its next request at once.
      bool more = true;
      auto pause = kBeforeSaving;
      while (active_.empty() && waiting_.empty() && !called()) {
        if (!more || cache_->pending() == 0) {
          wake_.wait(lock, called);
        } else if (!wake_.wait_for(lock, pause, called)) {
          lock.unlock();
          const Drained drained = save_a_bit(true);
          lock.lock();
          more = drained.more;
          pause = drained.waits ? kForThreads : std::chrono::microseconds(0);
        }
      }
      if (stopping_) break;
      errands.swap(errands_);
    }
    for (Errand* errand : errands) {
      (*errand->work)(*cache_);
      const base::Lock lock(mutex_);
      errand->done = true;
    }
    if (!errands.empty()) idle_.notify_all();
    pass();
    publish();
    forget_ended();
  }
  const Error ending(Errc::busy, "the server is ending");
  std::vector<std::shared_ptr<Request>> left;
  {
    const base::Lock lock(mutex_);
    for (const auto& [number, request] : requests_) left.push_back(request);
    arrived_.clear();
  }
  for (const std::shared_ptr<Request>& request : left)
    fail(*request, ending, ending.message(), true);
  sweep();
  waiting_.clear();
  publish();
  forget_ended();
  const base::Lock lock(mutex_);
  for (Errand* errand : errands_) errand->dropped = true;
  errands_.clear();
  idle_.notify_all();
}

bool Scheduler::pass() {
  take_cancelled();
  take_in_parts();
  admit();
  fill(batch_);
  sweep();
  if (batch_.empty()) return false;
  const uint64_t begin = now_ns();
  const Result<void> done = model_.decode(batch_);
  // If someone waits for the result anyway, the pass ends here, and all of it is measured.
  pass_over_ = !model_.info().passes_overlap || something_to_save() ||
               std::ranges::any_of(batch_, &engine::BatchItem::logits);
  if (pass_over_ && model_.info().passes_overlap) model_.sequences().settle();
  const uint64_t spent = now_ns() - begin;
  ++sums_.passes;
  if (done) {
    crowded_ = false;
    settle(batch_, spent);
  } else {
    ++sums_.failed_passes;
    lose(done.error());
  }
  sweep();
  save_between_passes();
  return true;
}

// State that waits for a quiet time does not count, unless a turn has ended since.
bool Scheduler::something_to_save() { return can_save_ && cache_->pending() != 0; }

// When passes follow each other, a part of the time is for saving. A request that waits to begin
// waits for one saving step at most.
void Scheduler::save_between_passes() {
  const uint64_t now = now_ns();
  // While a prompt is computed, idle state that is not saved yet costs more time than saving it.
  const bool prompts = std::ranges::any_of(
      active_, [](const StreamPtr& stream) { return stream->state == Stream::State::prompt; });
  const uint64_t gone = now - std::min(now, saved_until_ns_);
  time_to_save_ns_ =
      std::min(time_to_save_ns_ + (prompts ? gone : gone / kPartForSaving), kMostToSave);
  saved_until_ns_ = now;
  if (active_.empty()) {
    // If no request follows, it is quiet. Otherwise a request that follows at once does not wait,
    // but the one after it does: short requests in a row would leave no quiet time.
    passed_by_ = !passed_by_;
    const base::Lock lock(mutex_);
    if (passed_by_ || std::ranges::none_of(arrived_, is_ready)) return;
  }
  while (something_to_save() && time_to_save_ns_ >= saving_takes_ns_) {
    const Drained drained = save_a_bit(false);
    const uint64_t end = now_ns();
    saving_takes_ns_ = std::clamp<uint64_t>(end - saved_until_ns_, 1, kMostToSave);
    time_to_save_ns_ -= std::min(time_to_save_ns_, saving_takes_ns_);
    saved_until_ns_ = end;
    if (!drained.more) can_save_ = false;
    // The next token of an answer waits for one saving step at most.
    if (!drained.more || drained.waits || answering()) return;
    const base::Lock lock(mutex_);
    if (std::ranges::any_of(arrived_, is_ready)) return;
  }
}

bool Scheduler::answering() const {
  return std::ranges::any_of(
      active_, [](const StreamPtr& stream) { return stream->state == Stream::State::answer; });
}

Drained Scheduler::save_a_bit(bool quiet) {
  // Requests that find no free sequence do not wait for saving.
  uint64_t places = traits_.sequences - std::min<uint64_t>(traits_.sequences, active_.size());
  if (!active_.empty() && blocked_) places = 0;
  const uint64_t begin = now_ns();
  DrainLimits limits{.ns = kBitNs, .evict = true, .dear = quiet};
  if (answering()) limits.step_ns = kShortStepNs;
  const Drained drained = cache_->drain(limits);
  const uint64_t end = now_ns() - drained.moving_ns;
  const base::Lock lock(mutex_);
  for (const std::shared_ptr<Request>& request : arrived_) {
    if (request->begun_ns != 0 || places == 0) continue;
    --places;
    request->saving_ns += end - std::min(end, std::max(begin, request->submitted_ns));
  }
  return drained;
}

void Scheduler::take_cancelled() {
  std::vector<std::shared_ptr<Request>> gone;
  {
    const base::Lock lock(mutex_);
    for (const uint64_t number : cancelled_) {
      if (const auto found = requests_.find(number); found != requests_.end()) {
        gone.push_back(found->second);
      }
    }
    cancelled_.clear();
    for (const std::shared_ptr<Request>& request : gone) std::erase(arrived_, request);
  }
  for (const std::shared_ptr<Request>& request : gone) {
    if (request->over) continue;
    ++sums_.cancelled;
    --sums_.failed;  // fail() counts it, but it did not fail.
    fail(*request, Error(Errc::stale, "cancelled"), "cancelled", false);
  }
  if (!gone.empty()) sweep();
}

// ---- Beginning ----------------------------------------------------------------------------------

void Scheduler::admit() {
  if (crowded_ && !active_.empty()) return;
  for (;;) {
    // Room becomes free when a request ends.
    if (!active_.empty() && (blocked_ || !cache_->can_admit())) return;
    if (waiting_.empty()) {
      const base::Lock lock(mutex_);
      const auto next = std::ranges::find_if(arrived_, is_ready);
      if (next == arrived_.end()) return;
      const std::shared_ptr<Request> request = *next;
      arrived_.erase(next);
      const uint32_t choice = request->next_choice++;
      waiting_.push_back(
          std::make_unique<Stream>(request, choice, model_.info().vocabulary, endings_));
      next_up_ = choice == 0 ? 1 : 0;
      // The other choices wait until they can share a computed prompt.
      if (choice != 0 && request->next_choice < request->asked.choices && !request->over) {
        arrived_.push_back(request);
      }
    }
    Stream& stream = *waiting_.front();
    if (stream.request->over) {
      waiting_.pop_front();
      continue;
    }
    const Result<void> started = start(stream);
    if (!started) {
      const Errc code = started.error().code();
      blocked_ = (code == Errc::busy || code == Errc::out_of_blocks) && !active_.empty();
      if (blocked_) return;
      fail(*stream.request, started.error(), started.error().to_string(),
           code == Errc::busy || code == Errc::out_of_blocks);
      waiting_.pop_front();
      continue;
    }
    active_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    {
      const base::Lock lock(mutex_);
      next_up_ = 0;
    }
    // The whole prompt was known: the answer begins at once.
    Stream& begun = *active_.back();
    if (begun.turn.computed() == begun.turn.length()) answer_first(begun, begun.turn.logits());
  }
}

void Scheduler::queue_choice(const std::shared_ptr<Request>& request) {
  const base::Lock lock(mutex_);
  arrived_.push_back(request);
}

Retain Scheduler::retain_of(const Request& request, FinishReason finish, uint32_t output_tokens) {
  Retain retain;
  retain.priority = request.asked.priority;
  retain.ttl_ns = request.asked.priority_ns;
  retain.ranges = request.asked.pinned;
  retain.phase = request.asked.session.empty() ? SessionPhase::unknown : SessionPhase::active;
  retain.finish = finish;
  retain.output_tokens = output_tokens;
  return retain;
}

Result<void> Scheduler::start(Stream& stream) {
  Request& request = *stream.request;
  const bool first = request.begun_ns == 0;
  TurnOptions options;
  options.session = request.asked.session;
  options.exclusive = false;
  options.reuse = request.asked.reuse && options_.reuse ? Reuse::everything : Reuse::disabled;
  options.reserve_tokens = std::min(stream.still_to_come(), options_.answer_tokens);
  options.want_logits = options_.cache.logits_bytes != 0 && stream.generated() == 0 &&
                        request.asked.max_tokens != 0 && !stream.tells_prompt();
  if (stream.tells_prompt()) options.evaluate_at_least = stream.prompt_tokens();
  options.message_ends = request.asked.message_ends;
  options.retain = retain_of(request);
  if (request.fetch != nullptr) take_in_rest(request, options);
  Result<Turn> begun = cache_->begin(request.scope, {.tokens = stream.words}, options);
  if (!begun) return begun.error();
  if (first) {
    request.begun_ns = now_ns();
    request.summary.timings.queued_ns = request.begun_ns - request.submitted_ns;
    sums_.queue_seconds.add(seconds(request.summary.timings.queued_ns));
  }
  Result<uint32_t> available = begun->execute();
  can_save_ = true;  // It may have captured another sequence's state, which is to be committed.
  if (!available) return available.error();
  stream.turn = *std::move(begun);
  stream.room = options.reserve_tokens;
  stream.state = Stream::State::prompt;
  if (first) {
    const SequenceReport report = stream.turn.report();
    sums_.saving_seconds.add(seconds(request.saving_ns + report.capture_ns));
    request.summary.report = report;
    request.summary.cached_tokens = report.reused_tokens;
    request.summary.sequence = stream.turn.sequence();
    request.summary.retokenised_at =
        retokenised_at(request.scope, stream.words, report.matched_tokens);
    sums_.prompt_tokens += report.prompt_tokens;
    sums_.cached_tokens += report.reused_tokens;
    if (request.summary.retokenised_at != 0) ++sums_.retokenised;
    request.summary.parted_in =
        part_at(request.asked.parts, report.matched_tokens, report.prompt_tokens);
    request.listener->begun({.prompt_tokens = report.prompt_tokens,
                             .cached_tokens = report.reused_tokens,
                             .pinned_tokens = request.summary.pinned_tokens});
  }
  return {};
}

// ---- Between passes -----------------------------------------------------------------------------

void Scheduler::sweep() {
  for (StreamPtr& stream : std::views::reverse(active_)) {
    if (stream->request->over) {
      // The turn was about to be computed when its request failed.
      if (stream->turn.active()) static_cast<void>(stream->turn.abandon());
      stream->turn = Turn();
      stream->state = Stream::State::over;
    }
    // First come, first served, even for requests that gave up their place.
    if (stream->state == Stream::State::waiting) waiting_.push_front(std::move(stream));
  }
  const size_t gone = std::erase_if(active_, [](const StreamPtr& stream) {
    return stream == nullptr || stream->state == Stream::State::over;
  });
  const size_t over =
      std::erase_if(waiting_, [](const StreamPtr& stream) { return stream->request->over; });
  if (gone + over != 0) blocked_ = false;
}

void Scheduler::publish() {
  const base::Lock lock(mutex_);
  std::vector<Running> running;
  for (const StreamPtr& stream : active_) {
    if (stream == nullptr || !stream->turn.active()) continue;
    running.push_back({.request = stream->request->number,
                       .sequence = stream->turn.sequence(),
                       .choice = stream->choice,
                       .prompt_tokens = stream->prompt_tokens(),
                       .computed_tokens = stream->turn.computed(),
                       .generated_tokens = stream->generated(),
                       .cached_tokens = stream->request->summary.cached_tokens});
  }
  sums_.requests = stats_.requests;
  sums_.refused = stats_.refused;
  sums_.waiting = static_cast<uint32_t>(waiting_.size());
  next_up_ = std::ranges::any_of(waiting_, [](const StreamPtr& stream) {
    return stream->request->begun_ns == 0 && !stream->request->over;
  });
  sums_.running = static_cast<uint32_t>(running.size());
  stats_ = sums_;
  running_ = std::move(running);
}

void Scheduler::forget_ended() {
  const base::Lock lock(mutex_);
  std::erase_if(requests_, [](const auto& each) { return each.second->over; });
  if (requests_.empty()) idle_.notify_all();
}

// ---- Why a prompt differs from an earlier answer ------------------------------------------------

void Scheduler::remember(const Stream& stream) {
  if (stream.generated() == 0 || stream.request->purged) return;
  answered_.push_front({stream.request->scope, stream.prompt_tokens(), stream.words});
  answered_tokens_ += stream.words.size();
  while (answered_.size() > kAnswered || answered_tokens_ > kAnsweredTokens) {
    answered_tokens_ -= answered_.back().tokens.size();
    answered_.pop_back();
  }
}

uint32_t Scheduler::retokenised_at(const Scope& scope, std::span<const Token> prompt,
                                   uint32_t matched) const {
  if (matched + 1 >= prompt.size()) return 0;
  for (const Answered& answer : answered_) {
    if (answer.scope != scope || answer.prompt_tokens > prompt.size()) continue;
    const auto [in_prompt, in_answer] = std::ranges::mismatch(prompt, answer.tokens);
    const auto at = static_cast<uint32_t>(in_prompt - prompt.begin());
    // A difference before `matched` did not prevent a match beyond it.
    if (at < answer.prompt_tokens || at < matched || in_prompt == prompt.end() ||
        in_answer == answer.tokens.end()) {
      continue;
    }
    // The tokens differ: is the text the same, beyond the first of them?
    std::string here;
    std::string there;
    model_.append_text(*in_prompt, true, here);
    model_.append_text(*in_answer, true, there);
    const size_t first = std::max(here.size(), there.size());
    for (auto next = in_prompt + 1; next != prompt.end() && here.size() <= first; ++next) {
      model_.append_text(*next, true, here);
    }
    for (auto next = in_answer + 1; next != answer.tokens.end() && there.size() <= first; ++next) {
      model_.append_text(*next, true, there);
    }
    if (here.size() >= first && there.size() >= first &&
        here.compare(0, first, there, 0, first) == 0) {
      return at;
    }
  }
  return 0;
}

}  // namespace stemma::server
