// NaiveSequences manages an engine's sequences the obvious way, with every mistake that earlier
// systems made (W codes of tests/COVERAGE.md). Tests show the mistake here, and its absence in
// SequenceCache.
//
// It remembers the words of each sequence ("mirror"), whole states, and snapshots of recurrent
// layers; it trusts the results of calls and its own mirrors.
// Threading: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/fake_sequences.h"
#include "support/text.h"

namespace stemma::test {

class NaiveSequences {
 public:
  struct Slot {
    enum class State : uint8_t { free, idle, leased };
    State state = State::free;
    uint64_t generation = 0;
    std::string session;
    Text mirror;
  };
  struct Statistics {
    uint64_t lookups = 0;
    uint64_t hits = 0;
    uint64_t restored_tokens = 0;
  };

  explicit NaiveSequences(FakeSequences& engine)
      : engine_(engine), slots_(engine.traits().sequences) {}

  const Slot& slot(SequenceId id) const { return slots_[to_index(id)]; }
  const Statistics& statistics() const { return statistics_; }
  // Compares placeholder tokens as they are, and media by counting equal leading items.
  uint32_t media_to_process = 0;

  // Leases the sequence for a prompt. Returns how much of the prompt it believes to be in it.
  uint32_t begin(SequenceId id, const std::string& session, const Text& prompt) {
    Slot& it = slots_[to_index(id)];
    it.state = Slot::State::leased;
    it.session = session;
    uint32_t match = same_media(it.mirror, prompt) ? common(it.mirror, prompt) : 0;
    if (match == prompt.size()) match = 0;  // W0.6: something must be evaluated.
    match = restore_best(id, prompt, match);
    if (match == 0) {
      static_cast<void>(engine_.clear(id));
    } else if (!load_snapshot(id, prompt)) {
      static_cast<void>(
          engine_.trim(id, match));  // W0.4: assumes that every word of the mirror has a row.
    }
    it.mirror = prompt.first(match);
    return match;
  }

  // W1.13: checks the generation, but neither the owner nor whether the sequence is leased.
  void finish(const std::string& session, SequenceId id, uint64_t generation, const Text& words,
              bool completed) {
    Slot& it = slots_[to_index(id)];
    if (it.generation != generation) return;
    if (!completed) {
      static_cast<void>(engine_.clear(id));
      it = {.generation = generation + 1, .session = {}, .mirror = {}};
      return;
    }
    it.state = Slot::State::idle;
    it.session = session;
    it.mirror = words;
  }

  // Saves the state for the first `count` words, whatever the sequence holds now.
  void capture(SequenceId id, const Text& words, uint32_t count) {
    // W1.14: no check that the sequence still holds these words.
    const Range range{0, engine_.held(id).end};
    const Result<uint64_t> size = engine_.size(id, Part::state, range);
    if (!size) return;
    Saved saved{words.first(count), range, std::vector<uint8_t>(*size)};
    if (engine_.save(id, Part::state, range, saved.bytes)) saved_.push_back(std::move(saved));
  }
  // Keeps the recurrent state with the words it was found with.
  void keep_snapshot(SequenceId id, const Text& words) {
    const Range range{0, engine_.held(id).end};
    const Result<uint64_t> size = engine_.size(id, Part::checkpoint, range);
    if (!size) return;
    Saved saved{words, range, std::vector<uint8_t>(*size)};
    if (engine_.save(id, Part::checkpoint, range, saved.bytes)) {
      snapshots_.push_back(std::move(saved));
    }
  }

  // W1.10: the mirror has head and tail as if they had been computed together.
  bool shift(SequenceId id, uint32_t keep, uint32_t discard) {
    if (!engine_.shift(id, keep, discard)) return false;
    std::vector<Token>& tokens = slots_[to_index(id)].mirror.tokens;
    tokens.erase(tokens.begin() + keep, tokens.begin() + keep + discard);
    return true;
  }

  void forget_context() {
    for (Slot& it : slots_) it = {.generation = it.generation + 1, .session = {}, .mirror = {}};
  }

 private:
  struct Saved {
    Text text;
    Range range;
    std::vector<uint8_t> bytes;
  };

  static uint32_t common(const Text& a, const Text& b) {
    const auto [end, other] = std::ranges::mismatch(a.tokens, b.tokens);
    return static_cast<uint32_t>(end - a.tokens.begin());
  }
  // W0.7: nothing is compared when one side has no items, and no item has a place.
  bool same_media(const Text& known, const Text& prompt) {
    const size_t both = std::min(known.media.size(), prompt.media.size());
    size_t equal = 0;
    while (equal < both && known.media[equal].digest == prompt.media[equal].digest) ++equal;
    media_to_process = static_cast<uint32_t>(prompt.media.size() - equal);
    return equal == both;
  }

  uint32_t restore_best(SequenceId id, const Text& prompt, uint32_t live) {
    ++statistics_.lookups;
    const Saved* best = nullptr;
    for (const Saved& saved : saved_) {
      if (saved.text.size() >= prompt.size()) continue;
      if (common(saved.text, prompt) != saved.text.size()) continue;
      if (best == nullptr || saved.text.size() > best->text.size()) best = &saved;
    }
    if (best == nullptr) return live;
    ++statistics_.hits;  // W1.4: counted before it is known whether the hit helps, or works.
    statistics_.restored_tokens += best->text.size();
    if (best->text.size() <= live) return live;
    if (!engine_.load(id, Part::state, best->range, best->range, best->bytes)) {
      return live;  // W1.5: but the sequence is empty now.
    }
    // W1.3: a later save holds more words; this assumes that a trim undoes that.
    static_cast<void>(engine_.trim(id, best->text.size()));
    return best->text.size();
  }
  // W0.5: loads the state of its own depth, whatever depth was requested.
  bool load_snapshot(SequenceId id, const Text& prompt) {
    for (const Saved& saved : snapshots_) {
      if (common(saved.text, prompt) == 0) continue;
      return engine_.load(id, Part::checkpoint, saved.range, saved.range, saved.bytes).has_value();
    }
    return false;
  }

  FakeSequences& engine_;
  std::vector<Slot> slots_;
  std::vector<Saved> saved_;
  std::vector<Saved> snapshots_;
  Statistics statistics_;
};

}  // namespace stemma::test
