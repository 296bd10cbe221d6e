// The engine's thread: from filling a forward pass to reporting its results.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "server/schedule/chunk.h"
#include "server/schedule/scheduler_stream.h"

namespace stemma::server {

namespace {

// A forward pass that fails is tried again this often.
constexpr uint32_t kTries = 2;

FinishReason finish_of(StopCause cause, bool calls_tools) {
  switch (cause) {
    case StopCause::eos: return calls_tools ? FinishReason::tool_use : FinishReason::end_turn;
    case StopCause::stop_text: return FinishReason::end_turn;
    case StopCause::length: return FinishReason::length;
    case StopCause::cancelled:
    case StopCause::failed: return FinishReason::cancelled;
  }
  return FinishReason::unknown;
}

const char* nothing_possible(const Generation& asked) {
  const bool banned = !asked.sampling.bias.empty() || asked.sampling.ignore_eos;
  if (asked.rules == nullptr) {
    return "no token may follow: logit_bias bans all that the model could say";
  }
  return banned ? "no token may follow: logit_bias or ignore_eos bans all that the form of the "
                  "answer allows"
                : "no token may follow: the model's vocabulary cannot express the form of the "
                  "answer";
}

}  // namespace

// ---- A pass -------------------------------------------------------------------------------------

void Scheduler::fill(std::vector<engine::BatchItem>& batch) {
  batch.clear();
  shares_.clear();
  const uint32_t most = model_.info().batch_tokens;
  // Answers first, because clients are reading them.
  for (size_t i = 0; i < active_.size() && batch.size() < most; ++i) {
    Stream& stream = *active_[i];
    if (stream.state != Stream::State::answer || !make_room(stream)) continue;
    const auto position = static_cast<uint32_t>(stream.words.size()) - 1;
    shares_.push_back({&stream, static_cast<uint32_t>(batch.size()), 1, false});
    batch.push_back({stream.words.back(), position, stream.turn.sequence(), true});
  }
  // Making room for one stream may have suspended another that was already in the batch.
  std::erase_if(shares_,
                [&](const Share& share) { return share.stream->state != Stream::State::answer; });
  if (shares_.size() != batch.size()) {
    std::vector<engine::BatchItem> kept;
    for (Share& share : shares_) {
      kept.push_back(batch[share.begin]);
      share.begin = static_cast<uint32_t>(kept.size()) - 1;
    }
    batch = std::move(kept);
  }
  uint32_t prompts = most - static_cast<uint32_t>(batch.size());
  if (!batch.empty() && options_.prompt_tokens != 0) {
    prompts = std::min(prompts, options_.prompt_tokens);
  }
  for (size_t i = 0; i < active_.size() && prompts != 0; ++i) {
    Stream& stream = *active_[i];
    if (stream.state != Stream::State::prompt) continue;
    const uint32_t begin = stream.turn.computed();
    const uint32_t end = end_of_chunk(begin, stream.turn.next_stop(), prompts);
    shares_.push_back({&stream, static_cast<uint32_t>(batch.size()), end - begin, true});
    for (uint32_t n = begin; n < end; ++n) {
      const bool last = n + 1 == stream.turn.length();
      batch.push_back({stream.words[n], n, stream.turn.sequence(), last || stream.tells_prompt()});
    }
    prompts -= end - begin;
  }
}

bool Scheduler::make_room(Stream& stream) {
  // The last chosen token is computed next; it takes a position.
  const std::span<const Token> token(&stream.words.back(), 1);
  if (stream.turn.length() == stream.words.size()) return true;
  while (stream.room == 0) {
    const uint32_t wanted =
        std::max(1U, std::min(stream.still_to_come() + 1, options_.answer_tokens));
    if (stream.turn.reserve(wanted)) {
      stream.room = wanted;
    } else if (stream.turn.reserve(1)) {
      stream.room = 1;
    } else {
      Stream* youngest = nullptr;
      for (const StreamPtr& other : active_) {
        if (other->state == Stream::State::over || other->state == Stream::State::waiting) continue;
        if (youngest == nullptr || other->request->number > youngest->request->number ||
            (other->request == youngest->request && other->choice > youngest->choice)) {
          youngest = other.get();
        }
      }
      if (youngest == &stream && active_.size() == 1) {
        end(stream, StopCause::length);
        return false;
      }
      suspend(*youngest);
      if (youngest == &stream) return false;
    }
  }
  if (const Result<void> extended = stream.turn.extend(token); !extended) {
    fail(*stream.request, extended.error(), extended.error().to_string(), false);
    return false;
  }
  --stream.room;
  return true;
}

void Scheduler::suspend(Stream& stream) {
  ++sums_.suspensions;
  Retain retain = retain_of(*stream.request);
  retain.will_return = true;
  static_cast<void>(stream.turn.finish(&retain));
  can_save_ = true;
  stream.turn = Turn();
  stream.state = Stream::State::waiting;
}

void Scheduler::settle(std::span<const engine::BatchItem> batch, uint64_t spent_ns) {
  const std::vector<Share> shares = shares_;
  const bool over = pass_over_;
  if (options_.tiers != nullptr) {
    for (const Share& share : shares) prompts_since_ += share.prompt ? share.count : 0;
    prompts_since_ns_ += spent_ns;
    // A tier must be faster than computing these tokens. A few tokens measure the pass more than
    // the tokens. Where the cache has a clock of its own, these times are not what things cost.
    if (over && prompts_since_ >= 8 && options_.cache.clock == nullptr) {
      options_.tiers->stack().prefilled(
          prompts_since_,
          prompts_since_ns_ * prompts_since_ / std::max<uint64_t>(prompts_since_, batch.size()));
    }
    if (over) prompts_since_ = prompts_since_ns_ = 0;
  }
  for (const Share& share : shares) {
    Stream& stream = *share.stream;
    const uint64_t spent = spent_ns * share.count / batch.size();
    (share.prompt ? sums_.prompt_ns : sums_.answer_ns) += spent;
    if (share.prompt) sums_.evaluated_tokens += share.count;
    if (stream.state == Stream::State::over) continue;
    const uint32_t end = batch[share.begin + share.count - 1].position + 1;
    if (share.prompt && stream.tells_prompt()) {
      collect_prompt(stream, share, batch[share.begin].position);
    }
    // The time of a pass that may still run is not known yet.
    stream.unmeasured_ns += spent;
    const uint64_t measured = over ? std::exchange(stream.unmeasured_ns, 0) : kMeasuredLater;
    if (const Result<void> computed = stream.turn.computed(end, measured); !computed) {
      fail(*stream.request, computed.error(), computed.error().to_string(), false);
      continue;
    }
    if (end != stream.turn.length()) continue;
    const std::span<const float> last = model_.logits(share.begin + share.count - 1);
    if (share.prompt && stream.generated() == 0) {
      if (options_.cache.logits_bytes != 0 && !last.empty()) {
        static_cast<void>(stream.turn.attach_logits(end, last));
      }
      answer_first(stream, last);
    } else {
      choose(stream, last);
    }
  }
}

TokenLogprob Scheduler::logprob_of(Token token, std::span<const float> logits, uint32_t others) {
  TokenLogprob entry;
  const Result<TokenChance> chance = chances(logits, token, others, workspace_, top_);
  if (!chance) return entry;
  entry.chosen = *chance;
  model_.append_text(token, true, entry.bytes);
  for (const TokenChance& other : top_) {
    entry.others.emplace_back(other, "");
    model_.append_text(other.token, true, entry.others.back().second);
  }
  return entry;
}

// The share begins at position `begin`. After each of its tokens the probability of the next one is
// known.
void Scheduler::collect_prompt(Stream& stream, const Share& share, uint32_t begin) {
  Request& request = *stream.request;
  std::vector<TokenLogprob>& told = request.prompt_logprobs;
  if (begin == 0) {
    told.assign(1, {});
    told.front().chosen = {stream.words.front(), std::numeric_limits<float>::quiet_NaN()};
    model_.append_text(stream.words.front(), true, told.front().bytes);
  }
  for (uint32_t i = 0; i < share.count && told.size() < stream.prompt_tokens(); ++i) {
    told.push_back(logprob_of(stream.words[begin + i + 1], model_.logits(share.begin + i),
                              request.asked.top_logprobs.value_or(0)));
  }
  if (begin + share.count < stream.prompt_tokens()) return;
  request.prompt_told = true;
  request.listener->prompt(std::move(told));
}

void Scheduler::answer_first(Stream& stream, std::span<const float> logits) {
  if (stream.choice != 0 || stream.request->asked.choices == 1) {
    choose(stream, logits);
    return;
  }
  const std::vector<float> copy(logits.begin(), logits.end());
  fork_choices(stream, copy);
  choose(stream, copy);
}

void Scheduler::fork_choices(Stream& first, std::span<const float> logits) {
  const std::shared_ptr<Request> request = first.request;
  while (request->next_choice < request->asked.choices && !request->over) {
    const uint32_t choice = request->next_choice;
    auto stream = std::make_unique<Stream>(request, choice, model_.info().vocabulary, endings_);
    TurnOptions options;
    options.reserve_tokens = std::min(stream->still_to_come(), options_.answer_tokens);
    options.exclusive = false;
    options.session = request->asked.session;
    options.retain = retain_of(*request);
    // A request without reuse keeps nothing; its choices share only what it just computed.
    options.keep = request->asked.reuse;
    if (!request->asked.reuse) options.reuse = Reuse::live;
    Result<Turn> forked = first.turn.fork(options);
    // No sequence or no room now; later the choice finds the prompt like any other prefix.
    if (!forked) return queue_choice(request);
    ++request->next_choice;
    stream->turn = *std::move(forked);
    stream->room = options.reserve_tokens;
    stream->state = Stream::State::prompt;
    Stream& begun = *stream;
    active_.push_back(std::move(stream));
    if (begun.turn.computed() == begun.turn.length()) choose(begun, logits);
  }
}

void Scheduler::lose(const Error& error) {
  // The engine changed nothing, and one of several requests can wait.
  if (error.code() == Errc::out_of_blocks && shares_.size() > 1) {
    Stream* youngest = shares_.front().stream;
    for (const Share& share : shares_) {
      if (share.stream->request->number >= youngest->request->number) youngest = share.stream;
    }
    suspend(*youngest);
    crowded_ = true;
    return;
  }
  for (const Share& share : shares_) {
    Stream& stream = *share.stream;
    if (stream.state == Stream::State::over) continue;
    static_cast<void>(stream.turn.abandon());
    stream.turn = Turn();
    if (++stream.request->tries >= kTries * stream.request->asked.choices) {
      fail(*stream.request, error, "the model failed: " + error.to_string(), false);
    } else {
      stream.state = Stream::State::waiting;
    }
  }
}

// ---- Answering ----------------------------------------------------------------------------------

// Most tokens that a good model draws are allowed. If this one is forbidden, draw again among the
// allowed ones.
Result<Token> Scheduler::pick(Stream& stream, std::span<const float> logits) {
  // A mask may allow a token too many near a limit of its grammar, so try this often.
  constexpr uint32_t kMostDraws = 64;
  const Request& request = *stream.request;
  Result<Token> token = stream.sampler.sample(logits, workspace_);
  if (stream.rules == nullptr || !token) return token;
  TokenRules& rules = *stream.rules;
  const auto allowed = [&](Token which) {
    return ends_answer(request, which) ? rules.may_end() : rules.allows(which);
  };
  if (allowed(*token)) return token;
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::vector<float>& left = allowed_logits_;
  left.assign(logits.begin(), logits.end());
  if (const auto mask = rules.mask(); mask != nullptr) {
    for (Token which = 0; which < left.size(); ++which) {
      if (!mask->allows(which)) left[which] = kNever;
    }
  }
  const auto end_with = [&](Token which) {
    if (which < left.size()) left[which] = rules.may_end() ? logits[which] : kNever;
  };
  for (const Token which : endings_) end_with(which);
  for (const Token which : request.asked.end_tokens) end_with(which);
  for (uint32_t draw = 0; draw < kMostDraws; ++draw) {
    token = stream.sampler.sample(left, workspace_);
    if (!token || allowed(*token)) return token;
    left[*token] = kNever;
  }
  return Error(Errc::out_of_range, "no token is possible");
}

void Scheduler::choose(Stream& stream, std::span<const float> logits) {
  Request& request = *stream.request;
  if (request.over) return;
  const uint64_t now = now_ns();
  if (request.asked.max_tokens == 0) {
    end(stream, StopCause::length);
    return;
  }
  const Result<Token> chosen = pick(stream, logits);
  if (!chosen && chosen.error().code() == Errc::out_of_range) {
    fail(request, chosen.error(), nothing_possible(request.asked), false);
    return;
  }
  if (!chosen) {
    fail(request, chosen.error(), "the model gave no usable logits: " + chosen.error().to_string(),
         false);
    return;
  }
  const Token token = *chosen;
  stream.state = Stream::State::answer;
  if (request.first_token_ns == 0) {
    request.first_token_ns = now;
    request.summary.timings.prompt_ns = now - request.begun_ns;
    sums_.first_token_seconds.add(seconds(now - request.submitted_ns));
  }
  if (stream.last_token_ns != 0) sums_.token_seconds.add(seconds(now - stream.last_token_ns));
  stream.last_token_ns = now;
  ++sums_.generated_tokens;
  ++request.summary.generated_tokens;
  stream.sampler.accept(token);
  stream.words.push_back(token);
  if (stream.rules != nullptr) stream.rules->accept(token);
  if (ends_answer(request, token)) {
    end(stream, StopCause::eos);
    return;
  }
  std::string bytes;
  const std::vector<Token>* const printed = request.asked.printed.get();
  model_.append_text(token, printed != nullptr && std::ranges::binary_search(*printed, token),
                     bytes);
  if (request.asked.top_logprobs) {
    stream.logprobs.push_back(logprob_of(token, logits, *request.asked.top_logprobs));
  }
  Piece piece;
  piece.choice = stream.choice;
  const TextStream::Released released = stream.text.add(bytes, piece.text);
  piece.tokens = released.tokens;
  if (request.asked.top_logprobs) {
    const auto count = std::min<size_t>(released.tokens, stream.logprobs.size());
    piece.logprobs.assign(std::make_move_iterator(stream.logprobs.begin()),
                          std::make_move_iterator(stream.logprobs.begin() + count));
    stream.logprobs.erase(stream.logprobs.begin(), stream.logprobs.begin() + count);
  }
  if (!piece.text.empty() || !piece.logprobs.empty()) request.listener->piece(std::move(piece));
  if (released.stop && *released.stop >= request.asked.stop.size()) {
    end(stream, StopCause::eos);
  } else if (released.stop) {
    end(stream, StopCause::stop_text, stream.text.stops()[*released.stop]);
  } else if (stream.rules != nullptr && stream.rules->must_end()) {
    end(stream, StopCause::eos);
  } else if (stream.still_to_come() == 0) {
    end(stream, StopCause::length);
  }
}

bool Scheduler::ends_answer(const Request& request, Token token) const {
  return model_.ends_generation(token) ||
         std::ranges::find(request.asked.end_tokens, token) != request.asked.end_tokens.end();
}

void Scheduler::end(Stream& stream, StopCause cause, std::string stop_text) {
  Request& request = *stream.request;
  if (!stream.text.stopped()) {
    Piece piece;
    piece.choice = stream.choice;
    stream.text.finish(piece.text);
    piece.logprobs = std::move(stream.logprobs);
    if (!piece.text.empty() || !piece.logprobs.empty()) request.listener->piece(std::move(piece));
  }
  remember(stream);
  std::vector<Token> answer(stream.words.begin() + stream.prompt_tokens(), stream.words.end());
  if (cause == StopCause::eos && !answer.empty() && ends_answer(request, answer.back())) {
    answer.pop_back();
  }
  request.listener->ended({.choice = stream.choice,
                           .cause = cause,
                           .stop_text = std::move(stop_text),
                           .generated_tokens = stream.generated(),
                           .tokens = std::move(answer)});
  // Some calls are known only once the answer is over.
  const bool calls = request.listener->calls_tools(stream.choice);
  const Retain retain = retain_of(request, finish_of(cause, calls), stream.generated());
  static_cast<void>(stream.turn.finish(&retain));
  can_save_ = true;
  stream.turn = Turn();
  stream.state = Stream::State::over;
  --request.open_choices;
  finish_if_done(request);
}

void Scheduler::finish_if_done(Request& request) {
  if (request.over || request.open_choices != 0) return;
  request.over = true;
  const uint64_t now = now_ns();
  if (request.first_token_ns == 0) request.summary.timings.prompt_ns = now - request.begun_ns;
  request.summary.timings.generated_ns =
      request.first_token_ns == 0 ? 0 : now - request.first_token_ns;
  sums_.request_seconds.add(seconds(now - request.submitted_ns));
  ++sums_.completed;
  publish();
  request.listener->done(request.summary);
}

void Scheduler::fail(Request& request, const Error& error, const std::string& message,
                     bool overloaded) {
  if (request.over) return;
  request.over = true;
  ++sums_.failed;
  {
    const base::Lock lock(mutex_);
    std::erase_if(arrived_, [&](const auto& each) { return each.get() == &request; });
  }
  for (const StreamPtr& stream : active_) {
    if (stream->request.get() != &request || stream->state == Stream::State::over) continue;
    const Retain retain = retain_of(request, FinishReason::cancelled, stream->generated());
    if (stream->turn.active()) static_cast<void>(stream->turn.finish(&retain));
    can_save_ = true;
    stream->turn = Turn();
    stream->state = Stream::State::over;
  }
  publish();
  request.listener->cut_off(request.summary.generated_tokens);
  request.listener->failed(error, message, overloaded);
}

}  // namespace stemma::server
