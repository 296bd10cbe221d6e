// The engine's thread, from what goes into a forward pass to what is said of what came out of it.
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

FinishReason finish_of(StopCause cause) {
  switch (cause) {
    case StopCause::eos:
    case StopCause::stop_text: return FinishReason::end_turn;
    case StopCause::length: return FinishReason::length;
    case StopCause::cancelled:
    case StopCause::failed: return FinishReason::cancelled;
  }
  return FinishReason::unknown;
}

}  // namespace

// ---- A pass --------------------------------------------------------------------------------------------

void Scheduler::fill(std::vector<engine::BatchItem>& batch) {
  batch.clear();
  shares_.clear();
  const uint32_t most = model_.info().batch_tokens;
  // Answers first: their clients are reading.
  for (size_t i = 0; i < active_.size() && batch.size() < most; ++i) {
    Stream& stream = *active_[i];
    if (stream.state != Stream::State::answer || !make_room(stream)) continue;
    const auto position = static_cast<uint32_t>(stream.words.size()) - 1;
    shares_.push_back({&stream, static_cast<uint32_t>(batch.size()), 1, false});
    batch.push_back({stream.words.back(), position, stream.turn.sequence(), true});
  }
  // Making room for one may have suspended another that was in already.
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
  // The token that was chosen last is to be computed; it takes a position.
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
    // What a token takes to compute is what a tier has to beat; a few tell more of a pass than of tokens.
    if (over && prompts_since_ >= 8) {
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
    // A pass that may go on does not tell yet what it took.
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

// The share begins at position `begin`; after each of its tokens it is known how likely the next one was.
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
    // A request that reuses nothing leaves nothing; its choices share what it has just computed.
    options.keep = request->asked.reuse;
    if (!request->asked.reuse) options.reuse = Reuse::live;
    Result<Turn> forked = first.turn.fork(options);
    // No sequence or no room just now; later the prompt is a prefix like any other.
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
  // Nothing was changed, and there is somebody who can wait.
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

// ---- Answering -----------------------------------------------------------------------------------------

void Scheduler::choose(Stream& stream, std::span<const float> logits) {
  Request& request = *stream.request;
  if (request.over) return;
  const uint64_t now = now_ns();
  if (request.asked.max_tokens == 0) {
    end(stream, StopCause::length);
    return;
  }
  const Result<Token> chosen = stream.sampler.sample(logits, workspace_);
  if (!chosen && chosen.error().code() == Errc::out_of_range) {
    fail(request, chosen.error(),
         "no token may follow: logit_bias bans all that the model could say", false);
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
  if (model_.ends_generation(token)) {
    end(stream, StopCause::eos);
    return;
  }
  std::string bytes;
  model_.append_text(token, false, bytes);
  if (request.asked.top_logprobs) {
    stream.logprobs.push_back(logprob_of(token, logits, *request.asked.top_logprobs));
  }
  Piece piece;
  piece.choice = stream.choice;
  const TextStream::Released released = stream.text.add(bytes, piece.text);
  if (request.asked.top_logprobs) {
    const auto count = std::min<size_t>(released.tokens, stream.logprobs.size());
    piece.logprobs.assign(std::make_move_iterator(stream.logprobs.begin()),
                          std::make_move_iterator(stream.logprobs.begin() + count));
    stream.logprobs.erase(stream.logprobs.begin(), stream.logprobs.begin() + count);
  }
  if (!piece.text.empty() || !piece.logprobs.empty()) request.listener->piece(std::move(piece));
  if (released.stop) {
    end(stream, StopCause::stop_text, stream.text.stops()[*released.stop]);
  } else if (stream.still_to_come() == 0) {
    end(stream, StopCause::length);
  }
}

void Scheduler::end(Stream& stream, StopCause cause, std::string stop_text) {
  Request& request = *stream.request;
  if (cause != StopCause::stop_text) {
    Piece piece;
    piece.choice = stream.choice;
    stream.text.finish(piece.text);
    piece.logprobs = std::move(stream.logprobs);
    if (!piece.text.empty() || !piece.logprobs.empty()) request.listener->piece(std::move(piece));
  }
  remember(stream);
  const Retain retain = retain_of(request, finish_of(cause), stream.generated());
  static_cast<void>(stream.turn.finish(&retain));
  can_save_ = true;
  stream.turn = Turn();
  stream.state = Stream::State::over;
  request.listener->ended({.choice = stream.choice,
                           .cause = cause,
                           .stop_text = std::move(stop_text),
                           .generated_tokens = stream.generated()});
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
    const std::lock_guard lock(mutex_);
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
