// A schedule's operations on one turn.
#include <algorithm>

#include "sequences/schedule.h"

namespace stemma::schedules {
namespace {

std::string outcome(const Result<void>& result) {
  return result ? " -> ok" : " -> " + result.error().to_string();
}

}  // namespace

void Schedule::judge_contents(const Live& live, const char* after) {
  if (!live.usable() || live.approximate()) return;
  const std::string bad =
      engine_->fake().right(live.turn.sequence(), std::span(live.words).first(live.there()));
  if (bad.empty()) return;
  wrong("wrong contents: turn " + std::to_string(live.number) + " after " + after + ", sequence " +
        std::to_string(to_index(live.turn.sequence())) + ", [0, " + std::to_string(live.there()) +
        "): " + bad);
}

void Schedule::lost(Live& live, const char* call) {
  expect(live.turn.available() == 0 && live.turn.computed() == 0,
         std::string("something counts after a failed ") + call);
  live.failed = true;
}

void Schedule::advance(size_t i) {
  Live& live = live_[i];
  if (live.stale) {
    if (dice_.chance(50)) return call_stale(live);
    return end(i, End::destroy);
  }
  if (live.failed || live.dirty) return end(i, dice_.chance(50) ? End::abandon : End::destroy);
  if (!live.executed) return execute(live, false);
  if (live.turn.computed() < live.turn.length()) return compute(i);
  if (dice_.chance(50)) return extend(live);
  end(i, End::finish);
}

void Schedule::execute(Live& live, bool just_begun) {
  say(" execute");
  acts(live);
  const Result<uint32_t> available = live.turn.execute();
  const SequenceReport report = live.turn.report();
  live.executed = true;
  if (!available) {
    say(" -> " + available.error().to_string());
    live.failed = true;
    expect(!faultless(), "execute answered " + available.error().to_string());
    return expect(live.turn.available() == 0, "something is available after a failure");
  }
  say(" -> " + to_text(report));
  expect(*available == live.turn.available(), "two answers to what is available");
  expect(*available == live.turn.computed(), "more is computed than is available");
  expect(report.reused_tokens == *available, "another reuse is reported than there is");
  if (const std::string bad = judge_report(report, live.prompt, live.options, situation_);
      !bad.empty()) {
    wrong("the report: " + bad);
  }
  // Words in a sequence that cannot be copied may be saved first, and then all is planned anew.
  const bool copies =
      situation_.engine.fork == Fork::shared || situation_.engine.fork == Fork::copy;
  if (faultless() && report.failures == 0 && just_begun && copies) {
    const std::string bad = judge_same_plan(live.plan, report);
    if (!bad.empty()) wrong("nothing failed, but: " + bad);
  }
  expect(live.turn.media_to_process().size() == report.media_to_process,
         "two numbers of media items");
  for (const uint32_t item : live.turn.media_to_process()) {
    if (item >= live.prompt.media.size()) return wrong("no such media item");
    const MediaItem& one = live.prompt.media[item];
    expect(one.offset + one.length > *available, "a media item is there already");
  }
  count("media to process", report.media_to_process);
  if (situation_.reuses() && report.outcome != Outcome::bypassed) {
    Tally::Able& able = tally_.able[static_cast<uint32_t>(situation_.engine.rewind)];
    able.prompt_tokens += report.prompt_tokens;
    able.reused_tokens += report.reused_tokens;
  }
  judge_contents(live, "execute");
}

// ---- Computing ----------------------------------------------------------------------------------

void Schedule::compute(size_t i) {
  Live& live = live_[i];
  const uint32_t from = live.turn.computed();
  const uint32_t stop = live.turn.next_stop();
  if (stop <= from || stop > live.turn.length()) return wrong("next_stop is nowhere ahead");
  uint32_t to = stop;
  if (dice_.chance(15)) to = dice_.between(from + 1, stop);
  if (dice_.chance(12)) to = dice_.between(from + 1, live.turn.length());
  // Pictures are computed whole, mostly.
  if (dice_.chance(80)) {
    while (inside_unit(live.text, to)) ++to;
  }
  if (to > stop) count("stops passed");
  say(" compute [" + std::to_string(from) + ", " + std::to_string(to) + ")");
  judge_contents(live, "whatever was last");
  acts(live);
  const uint64_t begin_ns = engine_->now_ns();
  const uint64_t print = engine_->fake().fingerprint(live.turn.sequence());
  const Result<void> pass =
      engine_->compute(live.turn.sequence(), std::span(live.words).subspan(from, to - from));
  if (!pass) {
    say(" -> " + pass.error().to_string());
    // A window that cannot be recycled stops decoding; and others may have taken the promised room.
    // Turns that have begun but were not executed still hold what they will give back.
    const bool waiting = std::ranges::any_of(
        live_, [](const Live& other) { return !other.stale && !other.executed; });
    const bool innocent = situation_.engine.shares_window || crowded_ || waiting;
    expect(!faultless() || innocent || to > live.promised,
           "the room that was promised is not there");
    live.dirty = engine_->fake().fingerprint(live.turn.sequence()) != print;
    return after_failed_pass(i);
  }
  const uint64_t spent = dice_.chance(70) ? engine_->now_ns() - begin_ns : 0;
  const Result<void> told = live.turn.computed(to, spent);
  expect(told.has_value(), "computed answered " + (told ? "" : told.error().to_string()));
  expect(live.turn.computed() == to, "computed is not what it was told");
  judge_contents(live, "compute");
}

void Schedule::after_failed_pass(size_t i) {
  count("failed passes");
  switch (dice_.below(6)) {
    case 0:
    case 1: return end(i, End::abandon);
    case 2: return end(i, End::destroy);
    case 3: return end(i, End::finish);  // Reported words stay, though more is held by now.
    default: break;                      // Later; or, if nothing was done, the pass is tried again.
  }
}

void Schedule::extend(Live& live) {
  const uint32_t count = dice_.between(1, 12);
  const uint32_t length = live.turn.length();
  if (length + count > live.promised && !(situation_.careless && dice_.chance(50))) {
    reserve(live, count + dice_.below(8));
    if (length + count > live.promised) return;
  }
  const std::vector<Token> tokens = author_.answer(count);
  const Result<void> result = live.turn.extend(tokens);
  say(" extend by " + std::to_string(count) + outcome(result));
  if (!result) return wrong("extend answered " + result.error().to_string());
  live.text = live.text + test::of(tokens);
  if (live.text.size() > live.promised) crowded_ = true;
  for (const Token token : tokens) live.words.push_back(engine_word(live.scope_salt, token));
}

void Schedule::reserve(Live& live, uint32_t tokens) {
  const uint32_t length = live.turn.length();
  const Result<void> result = live.turn.reserve(tokens);
  say(" reserve " + std::to_string(tokens) + outcome(result));
  if (result) {
    expect(uint64_t{length} + tokens <= situation_.engine.context_tokens,
           "more was promised than the context has");
    live.promise(length + tokens);
    return promised();
  }
  const Errc code = result.error().code();
  expect(code == Errc::out_of_blocks || code == Errc::out_of_range || !faultless(),
         "reserve answered " + result.error().to_string());
  expect(situation_.engine.unified ||
             uint64_t{length} + tokens > situation_.engine.context_tokens || !faultless(),
         "reserve found no room in a context of its own");
}

// ---- Changing what is there ---------------------------------------------------------------------

void Schedule::rewind(Live& live) {
  const uint32_t length = live.turn.length();
  const uint32_t computed = live.turn.computed();
  uint32_t n = dice_.below(length + 1);
  if (dice_.chance(50)) n = length - std::min(length, dice_.below(8));
  if (dice_.chance(5)) n = length + 1 + dice_.below(9);
  const bool nowhere = n > length || inside_unit(live.text, n);
  acts(live);
  const bool possible =
      faultless() && can_resume(engine_->traits(), engine_->held(live.turn.sequence()), n);
  const uint64_t print = engine_->fake().fingerprint(live.turn.sequence());
  const Result<void> result = live.turn.rewind(n);
  say(" rewind from " + std::to_string(length) + "/" + std::to_string(computed) + " to " +
      std::to_string(n) + outcome(result));
  const bool unchanged = live.turn.length() == length && live.turn.computed() == computed &&
                         engine_->fake().fingerprint(live.turn.sequence()) == print;
  if (nowhere) {
    expect(unchanged, "a refused rewind has changed something");
    return expect_code(result, Errc::out_of_range, "rewind to nowhere");
  }
  if (result) {
    live.cut(n);
    live.promised = n;
    expect(live.turn.length() == n, "a rewind leads elsewhere");
    expect(live.turn.computed() == std::min(n, computed), "a rewind has computed something");
    if (n < computed) count("rewinds");
    return judge_contents(live, "rewind");
  }
  if (result.error().code() == Errc::unsupported) {
    count("rewind refused");
    expect(unchanged, "a refused rewind has changed something");
    expect(n < computed, "a rewind over nothing was refused");
    return expect(!possible, "a rewind was refused that the engine can do");
  }
  expect(!faultless() || situation_.engine.shares_window,
         "rewind answered " + result.error().to_string());
  lost(live, "rewind");
}

void Schedule::fork(Live& live) {
  if (inside_unit(live.text, live.there()) || live.there() == 0) return;
  TurnOptions options = choose_options({});
  options.session = {};
  options.bypass = false;
  options.at_most = 0xFFFF'FFFFU;
  options.evaluate_at_least = 1;
  options.reuse = Reuse::everything;
  const uint32_t there = live.there();
  const Text text = live.text.first(there);
  Result<Turn> turn = live.turn.fork(options);
  if (!turn) {
    say(" -> " + turn.error().to_string());
    if ((live.shifted || live.dropped || live.options.bypass) &&
        turn.error().code() == Errc::unsupported)
      return;
    Request request;
    request.text = text;
    if (faultless()) judge_refusal(request, options, turn.error());
    return;
  }
  Live child;
  child.number = next_number_++;
  child.turn = *std::move(turn);
  child.scope = live.scope;
  child.scope_salt = live.scope_salt;
  child.conversation = live.conversation;
  child.text = child.prompt = text;
  child.words = child.prompt_words = {live.words.begin(), live.words.begin() + there};
  child.options = options;
  child.options.message_ends = {};
  child.options.retain.ranges = {};
  child.plan = child.turn.report();
  child.forked = child.executed = true;
  child.held_before = child.plan.steps[static_cast<uint32_t>(Step::stay)] +
                      child.plan.steps[static_cast<uint32_t>(Step::trim)];
  child.promise(there + options.reserve_tokens);
  if (child.turn.available() > live.exact) child.exact = live.exact;
  acts(child);
  say(" -> turn " + std::to_string(child.number) + ", sequence " +
      std::to_string(to_index(child.turn.sequence())) + " " + to_text(child.plan));
  expect(child.turn.length() == there, "a fork has other words");
  expect(child.turn.available() <= there, "a fork has more than there was");
  expect(child.plan.reused_tokens == child.turn.available() && child.plan.prompt_tokens == there &&
             child.plan.reused_tokens + child.plan.evaluated_tokens == there,
         "the report of a fork does not add up " + to_text(child.plan));
  expect(child.turn.sequence() != live.turn.sequence(), "a fork is no other sequence");
  live.unique = false;  // Two have its words now.
  count("forks");
  if (child.plan.steps[static_cast<uint32_t>(Step::fork)] > 0) count("shared forks");
  judge_contents(live, "being forked");
  judge_contents(child, "fork");
  live_.push_back(std::move(child));
  promised();
}

void Schedule::shift(Live& live) {
  const uint32_t computed = live.there();
  const uint32_t length = live.turn.length();
  if (computed < 2) return;
  uint32_t keep = dice_.below(computed);
  uint32_t discard = dice_.between(1, computed - keep);
  if (discard == computed) --discard;
  if (dice_.chance(5)) discard = length + 1;
  const bool beyond = keep + discard > computed;
  if (inside_unit(live.text, keep) || (!beyond && inside_unit(live.text, keep + discard))) return;
  acts(live);
  const uint64_t print = engine_->fake().fingerprint(live.turn.sequence());
  const Result<void> result = live.turn.shift(keep, discard);
  say(" shift at " + std::to_string(keep) + " by " + std::to_string(discard) + outcome(result));
  if (!situation_.engine.shift || beyond) {
    expect(engine_->fake().fingerprint(live.turn.sequence()) == print &&
               live.turn.computed() == computed && live.turn.length() == length,
           "a refused shift has changed something");
    return expect_code(result, situation_.engine.shift ? Errc::out_of_range : Errc::unsupported,
                       "an impossible shift");
  }
  const bool moves_media = !live.text.media.empty() &&
                           live.text.media.back().offset + live.text.media.back().length > keep;
  if (moves_media && !result && result.error().code() == Errc::unsupported) {
    return expect(engine_->fake().fingerprint(live.turn.sequence()) == print &&
                      live.turn.computed() == computed && live.turn.length() == length,
                  "a refused shift has changed something");
  }
  if (!result) {
    // Positions that others share have to be had twice.
    const bool no_room = result.error().code() == Errc::out_of_blocks;
    // Without a rest it is a rewind, of which not every memory is capable.
    const bool incapable = keep + discard == computed && situation_.engine.rewind != Rewind::any;
    const bool twice = situation_.engine.unified || situation_.engine.shares_window;
    expect(!faultless() || (no_room && twice) || incapable,
           "shift answered " + result.error().to_string());
    return lost(live, "shift");
  }
  count("shifts");
  live.shifted = true;
  const Text tail = test::of({live.text.tokens.begin() + keep + discard, live.text.tokens.end()});
  Text shifted = live.text.first(keep) + tail;
  for (MediaItem item : live.text.media) {
    if (item.offset < keep + discard) continue;
    item.offset -= discard;
    shifted.media.push_back(item);
  }
  live.text = std::move(shifted);
  live.words.erase(live.words.begin() + keep, live.words.begin() + keep + discard);
  live.exact = std::min(live.exact, keep);
  live.promised -= std::min(live.promised, discard);
  expect(live.turn.length() == length - discard, "a shift has another length");
  expect(live.there() == computed - discard, "a shift has computed something");
  expect(cache_->sequence(live.turn.sequence()).approximate || live.there() <= live.exact,
         "a shifted sequence is not called approximate");
  judge_contents(live, "shift");
}

void Schedule::attach_logits(Live& live) {
  if (live.there() == 0) return;
  const uint32_t depth = dice_.chance(70) ? live.there() : dice_.between(1, live.there());
  if (inside_unit(live.text, depth)) return;
  // Logits of approximate contents belong to no other turn: none of our texts has such logits.
  auto logits = logits_after(std::span(live.words).first(depth));
  if (depth > live.exact || live.options.bypass) logits.fill(-1.0F);
  const Result<void> result = live.turn.attach_logits(depth, logits);
  say(" logits at " + std::to_string(depth) + outcome(result));
  if (situation_.cache.logits_bytes == 0) return expect_code(result, Errc::unsupported, "logits");
  expect(result || result.error().code() == Errc::unsupported ||
             result.error().code() == Errc::out_of_blocks,
         "logits answered " + (result ? "" : result.error().to_string()));
  if (cache_->stats().logits_bytes > 0) count("logits kept");
}

// ---- Misuse -------------------------------------------------------------------------------------

void Schedule::misuse(Live& live) {
  const uint32_t length = live.turn.length();
  const uint32_t computed = live.turn.computed();
  const uint64_t print = engine_->fake().fingerprint(live.turn.sequence());
  const std::vector<Token> bad = {3, kTokenLimit + 5};
  switch (dice_.below(6)) {
    case 0: {
      const Result<uint32_t> again = live.turn.execute();
      expect(!again && again.error().code() == Errc::wrong_state, "execute twice is accepted");
      break;
    }
    case 1: expect_code(live.turn.computed(length + 1), Errc::out_of_range, "computed"); break;
    case 2:
      if (computed == 0) break;
      expect_code(live.turn.computed(computed - 1), Errc::out_of_range, "computed");
      break;
    case 3: expect_code(live.turn.extend(bad), Errc::invalid_argument, "extend"); break;
    case 4: bad_begin(); break;
    default:
      for (Live& other : live_) {
        if (other.executed || other.stale) continue;
        expect_code(other.turn.computed(0), Errc::wrong_state, "computed before execute");
        expect_code(other.turn.rewind(0), Errc::wrong_state, "rewind before execute");
        expect_code(other.turn.shift(0, 1), Errc::wrong_state, "shift before execute");
      }
  }
  expect(live.turn.length() == length && live.turn.computed() == computed &&
             engine_->fake().fingerprint(live.turn.sequence()) == print,
         "a refused call has changed something");
}

void Schedule::call_stale(Live& live) {
  const std::vector<Token> tokens = {1};
  const auto nothing = [](const auto& result) {
    return result ? Result<void>() : Result<void>(result.error());
  };
  switch (dice_.below(7)) {
    case 0: return expect_code(nothing(live.turn.execute()), Errc::stale, "execute");
    case 1: return expect_code(live.turn.computed(live.turn.computed()), Errc::stale, "computed");
    case 2: return expect_code(live.turn.extend(tokens), Errc::stale, "extend");
    case 3: return expect_code(live.turn.reserve(1), Errc::stale, "reserve");
    case 4: return expect_code(live.turn.rewind(0), Errc::stale, "rewind");
    case 5: return expect_code(nothing(live.turn.fork()), Errc::stale, "fork");
    default: return expect_code(live.turn.shift(0, 1), Errc::stale, "shift");
  }
}

// ---- The end ------------------------------------------------------------------------------------

void Schedule::end(size_t i, End how) {
  Live live = std::move(live_[i]);
  live_.erase(live_.begin() + static_cast<ptrdiff_t>(i));
  const bool holds = !live.stale;
  if (holds) acts(live);
  if (live.dirty && how == End::finish) books_differ_ = true;
  const SequenceId sequence = live.turn.sequence();
  Result<void> result;
  if (how == End::finish) {
    const Retain retain = choose_retain();
    result = live.turn.finish(dice_.chance(30) ? &retain : nullptr);
    say(" finish" + outcome(result));
  } else if (how == End::abandon) {
    result = live.turn.abandon();
    say(" abandon" + outcome(result));
  } else {
    say(" destroy");
  }
  if (!holds) {
    if (how != End::destroy) expect_code(result, Errc::stale, "the end of a stale turn");
    return;
  }
  // A turn that was never executed cannot be finished, or can: it ends all the same.
  const bool strange = !result && (result.error().code() != Errc::wrong_state || live.executed);
  expect(!strange || !faultless(),
         "the end answered " + (result ? "" : result.error().to_string()));
  live.turn = Turn();
  const SequenceInfo info = cache_->sequence(sequence);
  expect(info.state != SequenceState::leased, "a sequence is leased to a turn that has ended");
  judge_ended(live.session);

  const bool kept = how == End::finish && live.executed && !live.failed && live.options.keep &&
                    !live.options.bypass && !live.dropped;
  // Earlier contents may stay, except those of a bypassed turn, whose words mean nothing.
  const bool secret = live.options.bypass || live.dropped;
  const bool empty = info.state != SequenceState::idle;
  if (!kept) {
    expect(empty || !live.executed || (!secret && info.length <= live.held_before),
           "a turn left something that it should not");
  }
  if (kept && !live.approximate()) author_.answered(live.conversation, live.text);
  if (kept || !live.unique) return;
  // No other turn has these words, so now nothing of them is left. (Of a capture that failed midway
  // some may be saved.)
  const bool saved = cache_->stats().captured_bytes != live.saved_before;
  if (saved && live.options.keep && !live.options.bypass && !live.dropped) return;
  const Result<SequenceReport> left = cache_->lookup(scope(live.scope), shown(live.prompt));
  if (left) expect(left->matched_tokens == 0, "a turn left words that it should not");
}

}  // namespace stemma::schedules
