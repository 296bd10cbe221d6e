// One step: land, grow, admit, evaluate, settle.
#include "engine/paged/engine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "engine/paged/kernels.h"

namespace stemma::paged {
namespace {

// Room comes and goes; any other error of a request stays.
bool worth_waiting(const Error& error) {
  return error.code() == Errc::out_of_blocks || error.code() == Errc::over_quota ||
         error.code() == Errc::out_of_memory;
}

}  // namespace

EngineCounts& EngineCounts::operator+=(const EngineCounts& other) noexcept {
  // All fields are of one type.
  using Fields = std::array<uint64_t, sizeof(EngineCounts) / sizeof(uint64_t)>;
  auto sum = std::bit_cast<Fields>(*this);
  const auto more = std::bit_cast<Fields>(other);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return *this = std::bit_cast<EngineCounts>(sum);
}

Engine::Engine(PagedCache& cache, KvArena& arena, std::span<const Adapter> adapters,
               const EngineOptions& options)
    : cache_(cache),
      arena_(arena),
      adapters_(adapters.begin(), adapters.end()),
      options_(options) {}

Engine::~Engine() {
  land_late_steps();
  running_.clear();  // Leases end with their requests.
  waiting_.clear();
  cache_.poll();
}

Result<uint64_t> Engine::submit(const RequestSpec& spec) {
  if (spec.adapter >= adapters_.size()) {
    return Error(Errc::invalid_argument, "no such adapter", spec.adapter);
  }
  const uint64_t longest = uint64_t{spec.prompt.size()} + spec.max_new_tokens;
  if (spec.prompt.size() == 0 || longest > adapters_[spec.adapter].model->config.max_positions) {
    return Error(Errc::invalid_argument, "a prompt is 1 to max_positions long, answer included",
                 spec.prompt.size());
  }
  auto request = std::make_unique<Request>();
  request->id = next_id_++;
  request->spec = spec;
  request->text = spec.prompt;
  request->prompt_tokens = spec.prompt.size();
  counts_.prompt_tokens += request->prompt_tokens;
  waiting_.push_back(std::move(request));
  return waiting_.back()->id;
}

bool Engine::cancel(uint64_t id) {
  for (RequestPtr& request : running_) {
    if (request->id != id) continue;
    request->lease.abandon().value();  // No tail: nobody is expected to continue it.
    request->finished = true;
    sweep();
    return true;
  }
  return std::erase_if(waiting_, [&](const RequestPtr& r) { return r->id == id; }) != 0;
}

bool Engine::step() {
  ++counts_.steps;
  land_late_steps();
  cache_.poll();  // Settles releases whose fences have signalled, those just landed included.
  start_branches();
  grow_running();
  admit_waiting();

  std::vector<Work> works;
  std::vector<Chunk> chunks;
  plan(works, chunks);
  for (Chunk& chunk : chunks) embed_chunk(chunk);
  if (const Result<void> done = run_layers(arena_, chunks); !done) {
    // The block tables are not what the cache promised, so nothing of this batch is committed.
    for (Work& work : works) fail(*work.request, done.error());
  } else {
    for (size_t i = 0; i < works.size(); ++i) settle(works[i], chunks[i]);
  }
  sweep();
  return !waiting_.empty() || !running_.empty() || landed_ != late_steps_.size();
}

void Engine::land_late_steps() {
  for (; landed_ < late_steps_.size(); ++landed_) {
    LateStep& late = late_steps_[landed_];
    embed_chunk(late.chunk);
    (void)run_layers(arena_, {&late.chunk, 1});
    late.landed.store(true, std::memory_order_release);
    late.text = {};
    late.tables.clear();
    late.state.clear();
    late.chunk = {};
  }
}

void Engine::start_branches() {
  std::vector<RequestPtr> refused;
  for (RequestPtr& branch : running_) {
    if (branch->copies_at == 0 || branch->copies_at > counts_.steps) continue;
    if (!start_branch(*branch)) refused.push_back(std::move(branch));
  }
  std::erase(running_, nullptr);
  for (RequestPtr& branch : refused) waiting_.push_back(std::move(branch));
  sweep();
}

void Engine::grow_running() {
  std::vector<Request*> order;
  for (const RequestPtr& request : running_) order.push_back(request.get());
  for (Request* request : order) {
    // A request before it may have preempted this one. A branch grows after its copies.
    if (!request->lease.active() || request->copies_at != 0) continue;
    const auto grow = [&] {
      return request->lease.extend(
          std::span(request->text.tokens).subspan(request->lease.length()));
    };
    if (request->lease.length() == request->text.size() || grow()) continue;
    ++counts_.refusals;
    // Some request must give way, perhaps this one. If the victim's blocks are still being written,
    // they come free at the next step, and this request grows then.
    preempt_youngest();
    if (request->lease.active() && !grow()) ++counts_.refusals;
  }
}

void Engine::admit_waiting() {
  bool preempted = false;
  while (!waiting_.empty() && running_.size() < options_.max_running && !preempted) {
    Request& request = *waiting_.front();
    Result<void> started = start(request);
    if (!started && !worth_waiting(started.error())) {
      RequestPtr lost = std::move(waiting_.front());
      waiting_.pop_front();
      fail(*lost, started.error());
      continue;
    }
    if (!started && request.waited_steps++ >= patience(request)) {
      if (!running_.empty()) {
        // Its victim waits behind it and must not take the room back in the same step.
        preempted = preempt_youngest();
        if (preempted) started = start(request);
      } else if (request.waited_steps > options_.give_up_steps) {
        RequestPtr lost = std::move(waiting_.front());
        waiting_.pop_front();
        fail(*lost, started.error());
        continue;
      }
    }
    if (!started) return;  // First come, first served: the others wait too.
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    // Everything was known, logits too: the first token needs no forward pass.
    if (!request.logits.empty()) sample_next(request);
  }
}

uint32_t Engine::patience(const Request& request) const {
  // A request that gave way waits twice as long the next time. Otherwise two requests that do not
  // fit together could take the room from each other for ever, before either is done.
  return options_.patience_steps << std::min(request.preempted, 16U);
}

Result<void> Engine::start(Request& request) {
  LeaseOptions options = request.spec.lease;
  options.lookup.want_logits = request.spec.want_logits;
  Result<Lease> lease = take_lease(request, options);
  if (!lease) {
    if (worth_waiting(lease.error())) ++counts_.refusals;
    return lease.error();
  }
  request.lease = *std::move(lease);
  request.state = fresh_state(arena_.layout());
  if (const Result<void> copied = carry_out_copies(request); !copied) {
    ++counts_.refusals;
    request.lease = {};
    return copied.error();
  }
  const Report report = request.lease.report();
  counts_.leased_tokens += report.prompt_tokens;
  counts_.reused_tokens += report.reused_tokens;
  request.checkpoint_depth = report.checkpoint_would_help_at;
  request.computed = request.lease.committed();
  const std::span<const float> anchored = request.lease.logits();
  request.logits.assign(anchored.begin(), anchored.end());
  if (!anchored.empty()) ++counts_.logits_hits;
  request.started = ++admissions_;
  request.waited_steps = 0;
  return {};
}

uint32_t Engine::chunk_end(const Request& request, uint32_t budget) const {
  const uint32_t begin = request.computed;
  uint32_t end = std::min(request.text.size(), begin + std::min(options_.chunk_tokens, budget));
  const auto stop_at = [&](uint32_t depth) {
    if (depth > begin) end = std::min(end, depth);
  };
  stop_at(request.prompt_tokens);  // Its logits are kept.
  if (arena_.layout().any_recurrent()) {
    // A state can be saved only when the chunk ends where it is wanted.
    stop_at((begin / options_.checkpoint_tokens + 1) * options_.checkpoint_tokens);
    stop_at(request.checkpoint_depth);
  }
  return unit_ceiling(request.text, end);
}

bool Engine::checkpoint_due(const Request& request) const {
  const uint32_t n = request.computed;
  return arena_.layout().any_recurrent() &&
         (n == request.prompt_tokens || n == request.checkpoint_depth ||
          n % options_.checkpoint_tokens == 0);
}

void Engine::plan(std::vector<Work>& works, std::vector<Chunk>& chunks) {
  uint32_t budget = options_.batch_tokens;
  for (const RequestPtr& pointer : running_) {
    Request& request = *pointer;
    // Finished at admission, a branch before its copies, or without room for its next token.
    if (request.finished || request.copies_at != 0) continue;
    if (request.lease.length() < request.text.size()) continue;
    if (budget == 0) break;
    works.push_back({.request = &request});
    add_guesses(works.back());
    read_tables(request);
    Chunk chunk{
        .model = adapter(request).model,
        .text = &request.text,
        .begin = request.computed,
        .end = works.back().guesses.empty() ? chunk_end(request, budget) : request.text.size(),
        .tables = &request.tables,
        .state = &request.state};
    const uint32_t size = chunk.end - chunk.begin;
    counts_.computed_tokens += size;
    budget -= std::min(budget, size);
    chunks.push_back(std::move(chunk));
  }
  for (size_t i = 0; i < works.size(); ++i) {
    if (!works[i].guesses.empty()) chunks[i].states_after = &works[i].states_after;
  }
}

void Engine::add_guesses(Work& work) {
  Request& request = *work.request;
  const uint32_t left = request.spec.max_new_tokens - request.generated();
  const bool decoding = request.generated() != 0 && request.computed + 1 == request.text.size();
  if (options_.draft == nullptr || !decoding || left < 2) return;
  Text guessed = request.text;
  for (uint32_t i = 0; i < std::min(request.spec.guess_tokens, left - 1); ++i) {
    guessed.tokens.push_back(options_.draft->guess(request, guessed));
  }
  const auto guesses = std::span(guessed.tokens).subspan(request.text.size());
  // Guesses are words of the lease like any others; without room for them, make none.
  if (guesses.empty() || !request.lease.extend(guesses)) return;
  work.guesses.assign(guesses.begin(), guesses.end());
  request.text = std::move(guessed);  // Until settle_guesses() has judged them.
}

void Engine::settle(Work& work, const Chunk& chunk) {
  Request& request = *work.request;
  if (!work.guesses.empty()) return settle_guesses(work, chunk);
  request.computed = chunk.end;
  commit(request);
  if (checkpoint_due(request)) save_checkpoint(request);
  if (request.computed < request.text.size()) return;
  request.logits = logits_after(chunk, chunk.end - 1);
  if (request.generated() == 0) finish_prompt(request);
  sample_next(request);
}

void Engine::finish_prompt(Request& request) {
  // The next request for exactly this prompt then starts sampling at once. This may be refused (no
  // budget for logits, writing off).
  (void)request.lease.attach_logits(request.prompt_tokens, request.logits);
}

void Engine::settle_guesses(Work& work, const Chunk& chunk) {
  Request& request = *work.request;
  const auto guesses = static_cast<uint32_t>(work.guesses.size());
  const uint32_t known = chunk.begin + 1;  // The text without guesses.
  request.text.tokens.resize(known);
  // A guess is right when it is what would have been sampled in its place.
  uint32_t accepted = 0;
  while (accepted < guesses &&
         sample(logits_after(chunk, chunk.begin + accepted), request.spec.sample_seed,
                known + accepted) == work.guesses[accepted]) {
    ++accepted;
  }
  counts_.guesses_accepted += accepted;
  counts_.guesses_rejected += guesses - accepted;
  request.computed = known + accepted;
  commit(request);
  if (accepted < guesses) {
    // Remove their words and what they wrote, which was never committed.
    request.lease.rewind(request.computed).value();
    ++counts_.rewinds;
    request.state = work.states_after[accepted];
  }
  if (checkpoint_due(request)) save_checkpoint(request);
  for (uint32_t i = 0; i <= accepted; ++i) {
    request.logits = logits_after(chunk, chunk.begin + i);
    sample_next(request);
  }
}

void Engine::sweep() {
  std::erase_if(running_, [](const RequestPtr& request) { return request->finished; });
}

}  // namespace stemma::paged
