#include "sequences/author.h"

#include <algorithm>

namespace stemma::schedules {
namespace {

constexpr size_t kConversations = 10;
constexpr size_t kPastRequests = 24;
constexpr Token kPlaceholder = 7;  // Also a word that plain text has.

}  // namespace

Author::Author(const Situation& situation, Dice& dice) : situation_(situation), dice_(dice) {
  // Each begins like the one before it, and parts from it somewhere.
  for (uint32_t i = 0; i < 3; ++i) {
    Text text;
    if (i > 0) text = systems_.back().first(dice_.below(systems_.back().size() + 1));
    text = text + test::of(answer(dice_.between(1, situation_.longest_tokens / 3 + 1)));
    systems_.push_back(std::move(text));
  }
}

Request Author::next() {
  if (conversations_.empty() || dice_.chance(8)) {
    conversations_.push_back(start());
    if (conversations_.size() > kConversations) conversations_.pop_front();
    return request(conversations_.back(), "new");
  }
  if (dice_.chance(situation_.fresh_percent)) {
    Request fresh;
    fresh.text = test::of({next_unique_++}) + message();
    if (dice_.chance(30)) {
      fresh.text = fresh.text + test::of(answer(dice_.between(1, situation_.longest_tokens)));
    }
    if (fresh.text.size() > situation_.longest_tokens)
      fresh.text = fresh.text.first(situation_.longest_tokens);
    fresh.scope = dice_.below(situation_.scopes);
    fresh.unique = true;
    fresh.kind = "one-shot";
    return fresh;
  }
  Conversation& one = dice_.pick(conversations_);
  switch (dice_.below(22)) {
    case 0:
    case 1: {  // The same again, to be answered otherwise.
      Conversation again = one;
      cut(again, one.asked);
      return request(again, "regenerate");
    }
    case 2:
    case 3: {  // An earlier message is put otherwise; what followed is gone.
      cut(one, one.ends.empty() ? 0 : dice_.pick(one.ends));
      say(one);
      return request(one, "edit");
    }
    case 4: {  // Or from anywhere.
      cut(one, dice_.below(one.text.size() + 1));
      if (dice_.chance(50) || one.text.tokens.empty()) say(one);
      return request(one, "cut");
    }
    case 5:
    case 6: {  // Two ways on from here.
      Conversation branch = one;
      branch.number = next_number_++;
      if (dice_.chance(50))
        branch.session = "s" + std::to_string(dice_.below(situation_.session_names));
      if (!branch.ends.empty()) cut(branch, dice_.pick(branch.ends));
      say(branch);
      conversations_.push_back(branch);
      if (conversations_.size() > kConversations) conversations_.pop_front();
      return request(conversations_.back(), "branch");
    }
    case 7: {
      if (past_.empty()) break;
      Request same = dice_.pick(past_);
      same.kind = "repeat";
      if (dice_.chance(20)) same.scope = dice_.below(situation_.scopes);
      return same;
    }
    case 8: {
      if (!dice_.chance(30)) break;
      Request large = request(one, "too long");
      while (large.text.size() <= situation_.engine.context_tokens) {
        large.text = large.text + test::of(answer(50));
      }
      return large;
    }
    case 9:
    case 10: {  // The same words around another picture.
      Request other = request(one, "other picture");
      if (other.text.media.empty()) break;
      dice_.pick(other.text.media).digest.fill(static_cast<uint8_t>(dice_.below(3)));
      return other;
    }
    default: break;
  }
  say(one);
  return request(one, "continue");
}

void Author::answered(uint64_t number, const Text& text) {
  for (Conversation& one : conversations_) {
    if (one.number != number || dice_.chance(10)) continue;
    std::erase_if(one.ends, [&](uint32_t end) { return end > text.size(); });
    one.text = text;
    one.asked = std::min(one.asked, text.size());
    if (one.ends.empty() || one.ends.back() < text.size()) one.ends.push_back(text.size());
  }
}

std::vector<Token> Author::answer(uint32_t count) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = word();
  return tokens;
}

void Author::say(Conversation& one) {
  // A conversation that has become too long is cut somewhere in its first half: it goes on.
  if (one.text.size() + situation_.message_tokens > situation_.longest_tokens) {
    cut(one, dice_.below(situation_.longest_tokens / 2 + 1));
  }
  one.text = one.text + message();
  one.asked = one.text.size();
  one.ends.push_back(one.text.size());
}

void Author::cut(Conversation& one, uint32_t n) {
  n = std::min(n, one.text.size());
  one.text = one.text.first(n);
  one.asked = std::min(one.asked, n);
  std::erase_if(one.ends, [&](uint32_t end) { return end > n; });
}

Author::Conversation Author::start() {
  Conversation one;
  one.number = next_number_++;
  one.scope = dice_.below(situation_.scopes);
  if (dice_.chance(70)) one.session = "s" + std::to_string(dice_.below(situation_.session_names));
  one.text = dice_.pick(systems_);
  one.ends.push_back(one.text.size());
  say(one);
  return one;
}

Request Author::request(const Conversation& one, const char* kind) {
  Request request;
  request.text = one.text;
  if (request.text.tokens.empty()) request.text = test::of({word()});
  request.message_ends = one.ends;
  request.scope = one.scope;
  request.session = one.session;
  request.conversation = one.number;
  request.kind = kind;
  past_.push_back(request);
  if (past_.size() > kPastRequests) past_.pop_front();
  return request;
}

Text Author::message() {
  Text text = test::of(answer(dice_.between(1, situation_.message_tokens)));
  if (!dice_.chance(situation_.media_percent)) return text;
  const uint32_t length = dice_.between(1, std::min(12U, situation_.message_tokens));
  const auto kind = static_cast<MediaKind>(1 + dice_.below(2));
  const auto content = static_cast<uint8_t>(dice_.below(3));
  Text item = test::of(std::vector<Token>(length, kPlaceholder));
  item = item.with(test::media(kind, content, 0, length, dice_.chance(10)));
  if (length > 1 && dice_.chance(20)) {  // Another over its end: both are one unit.
    item = item.with(test::media(MediaKind::audio, content, length - 1, 1));
  }
  text = text + item;
  return dice_.chance(70) ? text + test::of(answer(dice_.between(1, 4))) : text;
}

}  // namespace stemma::schedules
