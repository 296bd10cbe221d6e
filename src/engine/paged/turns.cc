// The stages of a request: next token, branches, another try, giving way, the end.
#include <algorithm>
#include <utility>

#include "engine/paged/engine.h"
#include "engine/paged/kernels.h"
#include "engine/paged/random.h"

namespace stemma::paged {

uint64_t branch_seed(uint64_t seed, uint32_t branch) noexcept {
  return branch == 0 ? seed : mix(seed, branch) | 1;
}

void Engine::sample_next(Request& request) {
  if (options_.listener != nullptr) options_.listener->on_logits(request);
  ++counts_.sampled_tokens;
  if (request.generated() == 0 && request.spec.retries != 0) request.prompt_logits = request.logits;
  // Guesses that were right are committed before their tokens are sampled: a fork waits for them.
  if (request.spec.best_of > 1 && request.generated() >= request.spec.branch_after &&
      request.text.size() >= request.computed) {
    fork_branches(request);
  }
  if (request.generated() < request.spec.max_new_tokens) {
    request.text.tokens.push_back(
        sample(request.logits, request.spec.sample_seed, request.text.size()));
  }
  request.logits.clear();
  // Room for the new word is requested at the next step, where another request can give way.
  if (request.generated() == request.spec.max_new_tokens && !retry(request)) finish(request);
}

void Engine::fork_branches(Request& request) {
  const uint32_t branches = std::exchange(request.spec.best_of, 1U);
  for (uint32_t i = 1; i < branches; ++i) {
    auto branch = std::make_unique<Request>();
    branch->id = next_id_++;
    branch->spec = request.spec;
    branch->spec.sample_seed = branch_seed(request.spec.sample_seed, i);
    branch->text = request.text;
    branch->prompt_tokens = request.prompt_tokens;
    Result<Lease> lease = request.lease.fork();
    if (!lease) {
      // No room for a branch now: it waits like any other request and will find its prompt cached.
      ++counts_.refusals;
      waiting_.push_back(std::move(branch));
      continue;
    }
    branch->lease = *std::move(lease);
    branch->state = request.state;
    branch->computed = branch->lease.committed();
    branch->logits = request.logits;
    branch->started = ++admissions_;
    if (options_.branch_copy_steps != 0 && !branch->lease.copies().empty()) {
      branch->copies_at = counts_.steps + options_.branch_copy_steps;
      running_.push_back(std::move(branch));
    } else if (Request& started = *branch; start_branch(started)) {
      running_.push_back(std::move(branch));
    } else {
      waiting_.push_back(std::move(branch));
    }
  }
}

Result<void> Engine::start_branch(Request& branch) {
  branch.copies_at = 0;
  if (const Result<void> copied = carry_out_copies(branch); !copied) {
    ++counts_.refusals;
    branch.lease = {};
    branch.logits.clear();
    return copied;
  }
  ++counts_.forks;
  branch.computed = branch.lease.committed();
  counts_.leased_tokens += branch.text.size();
  counts_.reused_tokens += branch.computed;
  counts_.forked_tokens += branch.computed;
  sample_next(branch);
  return {};
}

bool Engine::retry(Request& request) {
  if (request.spec.retries == 0 || request.prompt_logits.empty()) return false;
  --request.spec.retries;
  // Refused if a window or a recurrent group cannot go back this far; then there is no other try.
  if (!request.lease.rewind(request.prompt_tokens)) return false;
  ++counts_.rewinds;
  ++counts_.retries;
  request.text.tokens.resize(request.prompt_tokens);
  if (const Result<void> copied = carry_out_copies(request); !copied) {
    request.lease = {};
    fail(request, copied.error());
    return true;
  }
  request.computed = request.lease.committed();
  request.logits = request.prompt_logits;
  request.spec.sample_seed = mix(request.spec.sample_seed, 77) | 1;
  sample_next(request);
  return true;
}

void Engine::finish(Request& request) {
  // The next turn of this conversation continues exactly here.
  if (arena_.layout().any_recurrent() && request.computed == request.lease.committed()) {
    save_checkpoint(request);
  }
  end_lease(request, nullptr, launch_late_step(request));
  request.finished = true;
  ++counts_.finished;
  if (options_.listener != nullptr) options_.listener->on_finished(request);
}

void Engine::fail(Request& request, const Error& error) {
  if (request.lease.active()) request.lease.abandon().value();
  request.lease = {};
  request.error = error;
  request.finished = true;
  ++counts_.finished;
  ++counts_.failed;
  if (options_.listener != nullptr) options_.listener->on_finished(request);
}

bool Engine::preempt_youngest() {
  const auto youngest = std::max_element(
      running_.begin(), running_.end(),
      [](const RequestPtr& a, const RequestPtr& b) { return a->started < b->started; });
  if (youngest == running_.end() || (*youngest)->finished) return false;
  RequestPtr request = std::move(*youngest);
  running_.erase(youngest);
  if (arena_.layout().any_recurrent()) save_checkpoint(*request);
  Retain back_soon = request->spec.lease.retain;
  back_soon.will_return = true;
  end_lease(*request, &back_soon, launch_late_step(*request));
  request->checkpoint_slots.clear();
  request->copies_at = 0;
  request->waited_steps = 0;
  ++request->preempted;
  ++counts_.preemptions;
  // Behind the request it gave way to, before later ones.
  waiting_.insert(waiting_.begin() + (waiting_.empty() ? 0 : 1), std::move(request));
  return true;
}

Fence* Engine::launch_late_step(Request& request) {
  if (!options_.overlap || request.computed + 1 != request.text.size()) return nullptr;
  const auto last = std::span(request.text.tokens).last(1);
  if (request.lease.length() == request.computed && !request.lease.extend(last)) return nullptr;
  read_tables(request);
  LateStep& late = late_steps_.emplace_back();
  late.text = request.text;
  late.tables = request.tables;
  late.state = request.state;
  late.chunk = {.model = adapter(request).model,
                .text = &late.text,
                .begin = request.computed,
                .end = request.computed + 1,
                .tables = &late.tables,
                .state = &late.state};
  ++counts_.late_steps;
  return &late;
}

}  // namespace stemma::paged
