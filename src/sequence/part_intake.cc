#include "sequence/part_intake.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "sequence/segment_writer.h"

namespace stemma::sequence {

namespace {

// Saves segments that a caller brought.
class PartsSaver final : public Saver {
 public:
  PartsSaver(Books& books, Notifier& notifier, std::span<const SavedPart> parts, const Text& text,
             key::KeyChain* chain, Priority priority, UseMoments& use)
      : books_(books),
        notifier_(notifier),
        parts_(parts),
        text_(text),
        chain_(chain),
        priority_(priority),
        use_(use) {}
  Result<uint64_t> size(Range range) override {
    const SavedPart* part = find(range);
    if (part == nullptr) return Error(Errc::out_of_range, "nobody brought it", range.begin);
    return part->bytes.size();
  }
  Result<uint64_t> save(Range range, std::span<uint8_t> out) override {
    const SavedPart* part = find(range);
    if (part == nullptr || part->bytes.size() > out.size()) {
      return Error(Errc::out_of_range, "nobody brought it", range.begin);
    }
    const Books::Unlocked unlocked(books_);
    std::memcpy(out.data(), part->bytes.data(), part->bytes.size());
    return part->bytes.size();
  }
  std::span<const uint8_t> bytes_of(Range range) override {
    const SavedPart* part = find(range);
    return part == nullptr ? std::span<const uint8_t>() : part->bytes;
  }
  void wait_for(SegmentWriter& writer) override {
    const Books::Unlocked unlocked(books_);
    writer.wait();
  }
  void prepared(std::span<const BlockId> there) override {
    notifier_.tell_of_evicted();
    // The new parts continue these, so these must not rank lower.
    if (chain_ == nullptr) return;
    for (const BlockId block : there) notifier_.mark_used(to_index(block), use_);
  }
  PartLabel saved(Range range, std::span<const uint8_t> written) override {
    ++taken;
    bytes += written.size();
    if (chain_ == nullptr) return {};
    return notifier_.label_of(*chain_, text_, range, priority_, use_);
  }
  uint32_t taken = 0;
  uint64_t bytes = 0;

 private:
  // Ranges come in ascending order, and so do parts.
  const SavedPart* find(Range range) noexcept {
    while (!parts_.empty() && parts_.front().range.end < range.end) parts_ = parts_.subspan(1);
    for (const SavedPart& part : parts_) {
      if (part.range.end != range.end) break;
      if (part.kind == EntryKind::segment && part.range == range && !part.bytes.empty())
        return &part;
    }
    return nullptr;
  }

  Books& books_;
  Notifier& notifier_;
  std::span<const SavedPart> parts_;  // Those that have not been passed.
  const Text& text_;
  key::KeyChain* chain_;  // Null without a listener.
  Priority priority_;
  UseMoments& use_;
};

}  // namespace

Result<Admitted> PartIntake::admit(const Scope& scope, const Prompt& prompt,
                                   std::span<const SavedPart> parts, const TurnOptions& options) {
  Admitted admitted;
  Text text;
  STEMMA_TRY_VOID(books_.lexicon.read(prompt, text));
  Result<Admitted> answer = admitted;
  try {
    // The chain names the part for other stores, so that it can leave again under that name.
    std::optional<key::KeyChain> chain;
    if (books_.heard()) chain.emplace(scope, text.all(), text.spans, books_.options.segment_tokens);
    UseMoments anchors = notifier_.moments(static_cast<uint32_t>(parts.size()));
    UseMoments segments = notifier_.moments(text.length() / books_.options.segment_tokens + 1);
    const Source source{scope, text, options, chain ? &*chain : nullptr, segments, anchors};
    admit_segments(source, parts, admitted);
    for (const SavedPart& part : parts) {
      if (part.kind != EntryKind::segment) admit_state(source, part, admitted);
    }
    answer = admitted;
  } catch (const std::bad_alloc&) {
    answer = Error(Errc::out_of_memory, "no memory to take in what was saved");
  }
  books_.lexicon.release(text);
  books_.changed();
  return answer;
}

void PartIntake::admit_segments(const Source& source, std::span<const SavedPart> parts,
                                Admitted& admitted) {
  const Text& text = source.text;
  const Retain& retain = source.options.retain;
  uint32_t count = 0;
  uint32_t end = 0;
  for (const SavedPart& part : parts) {
    if (part.kind != EntryKind::segment) continue;
    ++count;
    if (part.range.end <= text.length()) end = std::max(end, part.range.end);
  }
  if (count == 0) return;
  PartsSaver saver(books_, notifier_, parts, text, source.chain, retain.priority, source.segments);
  if (books_.segments != nullptr && end != 0) {
    // The prompt goes on to the end of a unit. If there is no segment for that, the prompt ends
    // before the unit.
    uint32_t whole = end;
    for (const key::MediaSpan& span : text.spans) {
      if (span.begin < end && end < span.end) whole = span.end;
    }
    whole = text.floor(
        static_cast<uint32_t>(std::min<uint64_t>(whole, books_.segments->capacity_tokens())));
    (void)books_.segments->capture(source.scope, text.prompt(whole), source.options.tenant, retain,
                                   saver);
  }
  // A segment that a longer one covers is not needed: its words are already there.
  const uint32_t reach = books_.segments == nullptr
                             ? 0
                             : books_.segments->reach(source.scope, text.prompt(), end).usable;
  const auto there = static_cast<uint32_t>(std::ranges::count_if(parts, [&](const SavedPart& part) {
    return part.kind == EntryKind::segment && part.range.end <= reach;
  }));
  admitted.taken += saver.taken;
  admitted.bytes += saver.bytes;
  admitted.present += there - std::min(there, saver.taken);
  admitted.refused += count - std::max(there, std::min(count, saver.taken));
}

void PartIntake::admit_state(const Source& source, const SavedPart& part, Admitted& admitted) {
  const Scope& scope = source.scope;
  const Text& text = source.text;
  key::KeyChain* const chain = source.chain;
  StateStore* store = part.kind == EntryKind::state        ? books_.states.get()
                      : part.kind == EntryKind::checkpoint ? books_.checkpoints.get()
                      : part.kind == EntryKind::logits     ? books_.logits.get()
                                                           : nullptr;
  const uint32_t depth = part.range.end;
  if (store == nullptr || part.range.begin != 0 || depth == 0 || depth > text.length() ||
      text.floor(depth) != depth || part.bytes.empty()) {
    ++admitted.refused;
    return;
  }
  if (const StateCandidate there = store->find(scope, text, depth).exact;
      there && there.depth == depth) {
    ++admitted.present;
    return;
  }
  // Logits are kept only here.
  const bool named = chain != nullptr && part.kind != EntryKind::logits;
  if (named) notifier_.make_way(*store, part.kind, scope, depth, part.bytes.size());
  Result<StateDraft> draft = store->reserve(scope, text, depth, part.bytes.size());
  if (!draft) {
    ++admitted.refused;
    return;
  }
  bool sealed = false;
  PartLabel label;
  {
    const Books::Unlocked unlocked(books_);
    const Priority priority = source.options.retain.priority;
    if (named) label = notifier_.label_of(*chain, text, {0, depth}, priority, source.anchors);
    std::memcpy(draft->state().data(), part.bytes.data(), part.bytes.size());
    sealed = draft->seal(part.bytes.size()).has_value();
  }
  OwnRetain retain;
  retain.assign(source.options.retain);
  if (!sealed ||
      !draft->commit(part.bytes.size(), books_.touch_of(retain, depth), std::move(label))) {
    ++admitted.refused;
    return;
  }
  ++admitted.taken;
  admitted.bytes += part.bytes.size();
}

uint32_t PartIntake::saved_tokens(const Scope& scope, const Prompt& prompt) const try {
  if (books_.segments == nullptr) return 0;
  return books_.segments->reach(scope, prompt, static_cast<uint32_t>(prompt.tokens.size())).usable;
} catch (const std::bad_alloc&) {
  return 0;
}

uint32_t PartIntake::saved_checkpoints(const Scope& scope, const Prompt& prompt,
                                       std::span<uint32_t> out) {
  Text text;
  if (books_.checkpoints == nullptr || !books_.lexicon.read(prompt, text)) return 0;
  uint32_t count = 0;
  for (uint32_t depth = text.length(); depth != 0 && count < out.size(); --depth) {
    depth = books_.checkpoints->find(scope, text, depth).exact.depth;
    if (depth == 0) break;
    out[count++] = depth;
  }
  books_.lexicon.release(text);
  return count;
}

}  // namespace stemma::sequence
