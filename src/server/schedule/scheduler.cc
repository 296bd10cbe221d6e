#include "server/schedule/scheduler.h"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <utility>

#include "server/schedule/scheduler_stream.h"

namespace stemma::server {

namespace {

// How much is remembered of what was answered lately.
constexpr size_t kAnswered = 64;
constexpr uint64_t kAnsweredTokens = 1U << 20U;

// A call to save ends with the step of a capture that is under way after so long.
constexpr uint64_t kBitNs = 300'000;
// While answers are computed, each of their tokens waits for a step. So steps are shorter.
constexpr uint64_t kShortStepNs = 3'000'000;
// Quiet for so long before anything is saved; and while threads are at work on what was.
constexpr auto kBeforeSaving = std::chrono::microseconds(5'000);
constexpr auto kForThreads = std::chrono::microseconds(500);
// While answers are computed, a fourth of the time is for saving, as long as there is anything to save. While
// prompts are computed, saving gets as much time as they take. Time that was not used adds up to this.
constexpr uint64_t kPartForSaving = 4;
constexpr uint64_t kMostToSave = 100'000'000;

uint64_t lost_by(const tier::StackStats& stats) {
  uint64_t lost = 0;
  for (const tier::LevelStats& level : stats.levels) lost += level.lost + level.dropped;
  return lost;
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

// ---- Any thread ----------------------------------------------------------------------------------------

Result<uint64_t> Scheduler::submit(Generation asked, std::shared_ptr<Listener> listener) {
  if (asked.prompt.empty()) return Error(Errc::invalid_argument, "the prompt is empty");
  if (asked.choices == 0) return Error(Errc::invalid_argument, "no choices are asked for");
  for (const Token token : asked.prompt) {
    if (token >= model_.info().vocabulary) {
      return Error(Errc::invalid_argument, "no such token", token);
    }
  }
  // One position is for the answer.
  const uint32_t most = traits_.context_tokens - (asked.max_tokens == 0 ? 0 : 1);
  if (asked.prompt.size() > most) {
    return Error(Errc::out_of_range, "the prompt is longer than the context", most);
  }
  const auto length = static_cast<uint32_t>(asked.prompt.size());
  asked.max_tokens = std::min(asked.max_tokens, traits_.context_tokens - length);
  STEMMA_TRY(const Scope in, scope(asked.salt));
  auto request = std::make_shared<Request>(
      Request{.asked = std::move(asked), .listener = std::move(listener), .scope = in});
  request->submitted_ns = now_ns();
  request->open_choices = request->asked.choices;
  request->summary.prompt_tokens = length;
  request->fetch = look_in_tiers(*request);
  const std::lock_guard lock(mutex_);
  if (closing_ || stopping_ || unbegun() + next_up_ >= options_.queue) {
    if (request->fetch != nullptr) request->fetch->cancel();
    if (!request->asked.retry) ++stats_.refused;
    return Error(Errc::busy,
                 closing_ || stopping_ ? "the server is ending" : "too many requests wait");
  }
  ++stats_.requests;
  request->number = next_++;
  requests_.emplace(request->number, request);
  arrived_.push_back(request);
  wake_.notify_one();
  return request->number;
}

std::shared_ptr<tier::Fetch> Scheduler::look_in_tiers(const Request& request) {
  if (options_.tiers == nullptr || !request.asked.reuse || !options_.reuse) return nullptr;
  const Prompt prompt{.tokens = request.asked.prompt};
  TurnOptions options;
  options.message_ends = request.asked.message_ends;
  tier::FetchOptions how;
  how.message_ends = request.asked.message_ends;
  if (const Result<SequenceReport> here = cache_->lookup(request.scope, prompt, options)) {
    how.have = here->reused_tokens;
  }
  how.saved_here = cache_->saved_tokens(request.scope, prompt);
  uint32_t checkpoints[16];  // The deepest ones: others win less.
  how.checkpoints_here =
      std::span(checkpoints).first(cache_->saved_checkpoints(request.scope, prompt, checkpoints));
  how.on_over = [bell = bell_] { bell->ring(); };
  return options_.tiers->fetch(request.scope, prompt, how);
}

uint32_t Scheduler::unbegun() const {
  return static_cast<uint32_t>(std::ranges::count_if(
      arrived_, [](const std::shared_ptr<Request>& each) { return each->next_choice == 0; }));
}

bool Scheduler::is_ready(const std::shared_ptr<Request>& request) {
  return request->fetch == nullptr || request->fetch->over();
}

void Scheduler::cancel(uint64_t request) {
  const std::lock_guard lock(mutex_);
  if (!requests_.contains(request)) return;
  cancelled_.push_back(request);
  wake_.notify_one();
}

bool Scheduler::run(const std::function<void(SequenceCache&)>& work) {
  Errand errand{.work = &work};
  std::unique_lock lock(mutex_);
  if (stopping_) return false;
  errands_.push_back(&errand);
  wake_.notify_one();
  idle_.wait(lock, [&] { return errand.done || errand.dropped; });
  return errand.done;
}

Scheduler::Kept Scheduler::keep_everything(uint64_t until_ns) {
  // Less than a tier's queue takes, so that nothing is dropped.
  constexpr uint64_t kPartBytes = 32U << 20U;
  Kept kept;
  tier::SequenceTiers* const tiers = options_.tiers;
  const uint64_t lost_before = tiers == nullptr ? 0 : lost_by(tiers->stack().stats());
  kept.ran = run([&](SequenceCache& cache) { kept.drained = cache.drain({.evict = true}); });
  if (!kept.ran || tiers == nullptr) return kept;
  // What was evicted for it is on its way already. A tier that loses something keeps nothing from the others.
  bool in_time = tiers->stack().flush(until_ns);
  bool makes_good = false;
  {
    const std::lock_guard lock(mutex_);
    makes_good = made_good_ != lost_before;
  }
  bool over = !tiers->writes_back() && !makes_good;
  while (!over && in_time) {
    HandedOn& all = kept.written_back;
    const bool ran = run([&](SequenceCache& cache) {
      tiers->offer_lost(makes_good);
      // What a tier cannot keep beside what is used most is not written.
      if (all.next == 0) all.next = cache.hand_on_from(tiers->hand_on_bytes());
      const HandedOn part = cache.hand_on(all.next, kPartBytes);
      tiers->offer_lost(false);
      all = {all.parts + part.parts, all.bytes + part.bytes, part.next, part.over};
    });
    over = !ran || all.over;
    in_time = ran && tiers->stack().flush(until_ns);
  }
  kept.in_tiers = in_time && lost_by(tiers->stack().stats()) == lost_before;
  for (const tier::LevelStats& level : tiers->stack().stats().levels) {
    const uint64_t asked = level.stored + level.promoted;
    kept.tiers.push_back({.name = level.name,
                          .stored = asked - std::min(asked, level.waiting + level.lost),
                          .waiting = level.waiting,
                          .lost = level.lost + level.dropped,
                          .too_large = level.too_large});
  }
  const std::lock_guard lock(mutex_);
  if (kept.in_tiers) made_good_ = lost_before;
  return kept;
}

SchedulerStats Scheduler::stats() const {
  const std::lock_guard lock(mutex_);
  SchedulerStats now = stats_;
  now.waiting = unbegun() + stats_.waiting;
  return now;
}

std::vector<Scheduler::Running> Scheduler::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

bool Scheduler::drain(uint64_t limit_ns) {
  std::unique_lock lock(mutex_);
  closing_ = true;
  const auto limit = std::chrono::nanoseconds(std::min<uint64_t>(limit_ns, uint64_t{1} << 60U));
  return idle_.wait_for(lock, limit, [&] { return requests_.empty() || stopping_; }) &&
         requests_.empty();
}

void Scheduler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  // Fetches may end after it.
  const std::lock_guard lock(bell_->mutex);
  bell_->scheduler = nullptr;
}

// ---- The engine's thread -------------------------------------------------------------------------------

void Scheduler::work() {
  for (;;) {
    std::vector<Errand*> errands;
    {
      std::unique_lock lock(mutex_);
      const auto called = [&] {
        return stopping_ || std::ranges::any_of(arrived_, is_ready) || !cancelled_.empty() ||
               !errands_.empty();
      };
      // Quiet: what waits to be saved is saved, bit by bit, so that nobody waits for it long; and not at once, for
      // whoever asks again at once.
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
      const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    for (const auto& [number, request] : requests_) left.push_back(request);
    arrived_.clear();
  }
  for (const std::shared_ptr<Request>& request : left)
    fail(*request, ending, ending.message(), true);
  sweep();
  waiting_.clear();
  publish();
  forget_ended();
  const std::lock_guard lock(mutex_);
  for (Errand* errand : errands_) errand->dropped = true;
  errands_.clear();
  idle_.notify_all();
}

bool Scheduler::pass() {
  take_cancelled();
  admit();
  fill(batch_);
  sweep();
  if (batch_.empty()) return false;
  const uint64_t begin = now_ns();
  const Result<void> done = model_.decode(batch_);
  // Where somebody waits for it anyway, the pass ends here, and is measured whole.
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

// What is left over until it is quiet does not count, unless a turn has ended since.
bool Scheduler::something_to_save() { return can_save_ && cache_->pending() != 0; }

// Passes follow each other: a part of the time is for saving. Who waits to begin waits for one bit of it at most.
void Scheduler::save_between_passes() {
  const uint64_t now = now_ns();
  // Beside a prompt that is computed, what is idle and not saved yet costs more time than saving it.
  const bool prompts = std::ranges::any_of(
      active_, [](const StreamPtr& stream) { return stream->state == Stream::State::prompt; });
  const uint64_t gone = now - std::min(now, saved_until_ns_);
  time_to_save_ns_ =
      std::min(time_to_save_ns_ + (prompts ? gone : gone / kPartForSaving), kMostToSave);
  saved_until_ns_ = now;
  if (active_.empty()) {
    // Nothing follows: it is quiet. Otherwise whoever asks again at once does not wait, but the one after does: with
    // short requests that follow each other it would never be quiet.
    passed_by_ = !passed_by_;
    const std::lock_guard lock(mutex_);
    if (passed_by_ || std::ranges::none_of(arrived_, is_ready)) return;
  }
  while (something_to_save() && time_to_save_ns_ >= saving_takes_ns_) {
    const Drained drained = save_a_bit(false);
    const uint64_t end = now_ns();
    saving_takes_ns_ = std::clamp<uint64_t>(end - saved_until_ns_, 1, kMostToSave);
    time_to_save_ns_ -= std::min(time_to_save_ns_, saving_takes_ns_);
    saved_until_ns_ = end;
    if (!drained.more) can_save_ = false;
    // The next token of an answer waits for one bit at most.
    if (!drained.more || drained.waits || answering()) return;
    const std::lock_guard lock(mutex_);
    if (std::ranges::any_of(arrived_, is_ready)) return;
  }
}

bool Scheduler::answering() const {
  return std::ranges::any_of(
      active_, [](const StreamPtr& stream) { return stream->state == Stream::State::answer; });
}

Drained Scheduler::save_a_bit(bool quiet) {
  // Whoever finds no place does not wait for this.
  uint64_t places = traits_.sequences - std::min<uint64_t>(traits_.sequences, active_.size());
  if (!active_.empty() && blocked_) places = 0;
  const uint64_t begin = now_ns();
  DrainLimits limits{.ns = kBitNs, .evict = true, .dear = quiet};
  if (answering()) limits.step_ns = kShortStepNs;
  const Drained drained = cache_->drain(limits);
  const uint64_t end = now_ns() - drained.moving_ns;
  const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
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
    --sums_.failed;  // fail() counts it.
    fail(*request, Error(Errc::stale, "cancelled"), "cancelled", false);
  }
  if (!gone.empty()) sweep();
}

// ---- Beginning -----------------------------------------------------------------------------------------

void Scheduler::admit() {
  if (crowded_ && !active_.empty()) return;
  for (;;) {
    // Room comes when somebody ends.
    if (!active_.empty() && (blocked_ || !cache_->can_admit())) return;
    if (waiting_.empty()) {
      const std::lock_guard lock(mutex_);
      const auto next = std::ranges::find_if(arrived_, is_ready);
      if (next == arrived_.end()) return;
      const std::shared_ptr<Request> request = *next;
      arrived_.erase(next);
      const uint32_t choice = request->next_choice++;
      waiting_.push_back(
          std::make_unique<Stream>(request, choice, model_.info().vocabulary, endings_));
      next_up_ = choice == 0 ? 1 : 0;
      // The others wait until there is a prompt that they can share.
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
      const std::lock_guard lock(mutex_);
      next_up_ = 0;
    }
    // All that can be said of it was said before.
    Stream& begun = *active_.back();
    if (begun.turn.computed() == begun.turn.length()) answer_first(begun, begun.turn.logits());
  }
}

void Scheduler::queue_choice(const std::shared_ptr<Request>& request) {
  const std::lock_guard lock(mutex_);
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
  if (request.fetch != nullptr) take_in(request, options);
  Result<Turn> begun = cache_->begin(request.scope, {.tokens = stream.words}, options);
  if (!begun) return begun.error();
  if (first) {
    request.begun_ns = now_ns();
    request.summary.timings.queued_ns = request.begun_ns - request.submitted_ns;
    sums_.queue_seconds.add(seconds(request.summary.timings.queued_ns));
  }
  Result<uint32_t> available = begun->execute();
  can_save_ = true;  // It may have read what another sequence held, which is to be committed.
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
  }
  return {};
}

void Scheduler::take_in(Request& request, const TurnOptions& options) {
  const std::shared_ptr<tier::Fetch> fetch = std::move(request.fetch);
  request.fetch = nullptr;
  if (fetch->parts().empty()) return;
  const Result<Admitted> taken =
      cache_->admit(request.scope, {.tokens = request.asked.prompt}, fetch->parts(), options);
  if (!taken || taken->taken == 0) return;
  request.summary.tier_tokens = fetch->loaded_tokens();
  request.summary.tier_bytes = taken->bytes;
  request.summary.tier_ns = fetch->spent_ns();
  request.summary.tier = options_.tiers->stack().tier(fetch->level()).traits().name;
}

// ---- Between passes ------------------------------------------------------------------------------------

void Scheduler::sweep() {
  for (StreamPtr& stream : std::views::reverse(active_)) {
    if (stream->request->over) {
      // A turn that was about to be computed when its request failed.
      if (stream->turn.active()) static_cast<void>(stream->turn.abandon());
      stream->turn = Turn();
      stream->state = Stream::State::over;
    }
    // First come, first served, also of those who gave way.
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
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  std::erase_if(requests_, [](const auto& each) { return each.second->over; });
  if (requests_.empty()) idle_.notify_all();
}

// ---- Why a prompt parts from what was answered ---------------------------------------------------------

void Scheduler::remember(const Stream& stream) {
  if (stream.generated() == 0) return;
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
    // Before `matched` it kept nobody from finding what comes behind.
    if (at < answer.prompt_tokens || at < matched || in_prompt == prompt.end() ||
        in_answer == answer.tokens.end()) {
      continue;
    }
    // Different tokens: is it the same text, beyond the first of them?
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
