// SavedListener: a SequenceCache tells it of everything that the cache saves, so that it can be
// kept elsewhere too. SequenceTiers (stemma/tier/sequence_tiers.h) is one.
#pragma once

#include <cstdint>
#include <span>

#include "stemma/ids.h"
#include "stemma/key.h"
#include "stemma/prompt.h"
#include "stemma/retention.h"
#include "stemma/scope.h"
#include "stemma/sequence_engine.h"

namespace stemma {

// Something saved, on its way out of the cache or back into it.
struct SavedPart {
  EntryKind kind = EntryKind::segment;  // A segment, a state, a checkpoint or logits.
  Range range;                          // The words it covers; only a segment begins above 0.
  std::span<const uint8_t> bytes;
  // Set when the part leaves the cache: link_of() of the content key of the prefix that ends at the
  // last multiple of segment_tokens before range.end.
  uint64_t parent = 0;
};

// Why the cache tells the listener again of a part that was saved or admitted earlier.
enum class SeenAgain : uint8_t {
  used,     // Another capture found it there, or an engine loaded it.
  leaving,  // It was evicted to make room, or hand_on() says that it may be lost.
};

// A part that was saved earlier. Its prompt is long gone: only `chain` identifies its words.
struct KeptPart {
  EntryKind kind = EntryKind::segment;
  Range range;
  std::span<const uint8_t> bytes;
  ContentKey chain;
  Priority priority = kDefaultPriority;  // As its turn set it.
  std::span<const uint32_t> words;  // Of the range, if keeps_words(); empty for prompts with media.
  uint64_t parent = 0;              // As in SavedPart.
};

// The cache calls these functions on the engine's thread, with no lock held. Their arguments are
// valid only during the call. They must be quick, and must not call the cache.
class SavedListener {
 public:
  virtual ~SavedListener() = default;
  // `part` was saved for the prompt's first part.range.end words. `chain` is their content key on
  // the grid of segment_tokens (docs/formats/content-key.md).
  virtual void saved(const Scope& scope, const Prompt& prompt, const SavedPart& part,
                     const ContentKey& chain, const Retain& retain) noexcept = 0;

  // ---- Parts saved earlier; optional ----
  // Whether the listener wants the part's bytes now. 0 means no; take() gets any other value back.
  virtual uint32_t wants(EntryKind /*kind*/, const ContentKey& /*chain*/,
                         SeenAgain /*seen*/) noexcept {
    return 0;
  }
  // Delivers the bytes, checked: exactly what was saved. Never called for logits, nor for anything
  // invalid (dropped, truncated, quarantined, damaged). (A segment that begin() evicted is
  // delivered by the next capture, admit(), drain() or hand_on().) Returns whether the part is now
  // kept anywhere.
  virtual bool take(const KeptPart& /*part*/, uint32_t /*wanted*/) noexcept { return false; }
  // Whether the cache keeps words for take(), at 4 more bytes a position. Asked once.
  virtual bool keeps_words() const noexcept { return false; }
};

}  // namespace stemma
