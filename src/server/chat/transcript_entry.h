// The format of a transcript in a tier: its entry, or a small entry that points to it.
//
//   transcript  kind 'T', the names it is found by, tokens, text, thinking, calls, ids of calls
//   pointer     kind 'P', the name of the transcript
//
// Numbers are little-endian. docs/formats/transcript-entry.md draws every byte. Decoding trusts no
// byte; its result is always consistent.
//
// Threading:  pure functions.
// Cost:       O(bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "server/chat/transcripts.h"
#include "stemma/key.h"

namespace stemma::server {

// A transcript whose entry would be larger stays in memory only.
inline constexpr uint64_t kMostTranscriptBytes = uint64_t{1} << 20U;

struct StoredTranscript {
  ContentKey by_id;      // Of its own id.
  ContentKey by_digest;  // Of what it says.
  Transcript transcript;
};
struct TranscriptPointer {
  ContentKey to;
};

// Returns no bytes if the transcript is too large.
std::vector<uint8_t> encode_transcript(const ContentKey& by_id, const ContentKey& by_digest,
                                       const Transcript& transcript);
std::vector<uint8_t> encode_pointer(const ContentKey& to);
// Returns nothing for invalid bytes.
std::optional<std::variant<StoredTranscript, TranscriptPointer>> decode_transcript(
    std::span<const uint8_t> bytes);

}  // namespace stemma::server
