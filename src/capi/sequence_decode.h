// Converts what C callers pass to what SequenceCache takes, and back, as decode.h for PagedCache.
//
// Threading:  pure functions, except that ranges are put into memory of the calling thread.
// Ownership:  results borrow from the arguments and from that memory; use them at once, in one
// call.
#pragma once

#include <string_view>
#include <vector>

#include "capi/decode.h"
#include "stemma/sequence.h"

namespace stemma::capi {

// Has grown twice: by the listener, and by what the listener hears later.
template <>
struct Sized<stemma_sequence_options> {
  static constexpr uint32_t kSizes[] = {offsetof(stemma_sequence_options, listener),
                                        offsetof(stemma_sequence_options, listener.wants),
                                        sizeof(stemma_sequence_options)};
  static constexpr const char* kWrong =
      "struct_size of stemma_sequence_options is of no known version, or what lies beyond it is "
      "not 0";
  static stemma_sequence_options initial() noexcept { return STEMMA_SEQUENCE_OPTIONS_INIT; }
};
STEMMA_SIZED(stemma_turn_options, STEMMA_TURN_OPTIONS_INIT);
STEMMA_SIZED(stemma_sequence_report, STEMMA_SEQUENCE_REPORT_INIT);
STEMMA_SIZED(stemma_sequence_info, STEMMA_SEQUENCE_INFO_INIT);
STEMMA_SIZED(stemma_session_info, STEMMA_SESSION_INFO_INIT);
STEMMA_SIZED(stemma_sequence_stats, {});

// Without the clock and the listener, which are objects here. Of the result of read_sized().
Result<SequenceOptions> decode(const stemma_sequence_options& options);
// For null options it leaves `out` as it is: it already has the defaults.
Result<void> decode(const stemma_turn_options* options, TurnOptions& out);
// A session's name: may be empty.
Result<std::string_view> decode_session(const char* session, size_t size) noexcept;

// Of parts that somebody else saved; the result borrows their bytes.
Result<std::vector<SavedPart>> decode_parts(const stemma_saved_part* parts, size_t count);

void encode(const SequenceReport& report, stemma_sequence_report* out) noexcept;
void encode(const SequenceStats& stats, stemma_sequence_stats* out) noexcept;
void encode(const SequenceInfo& info, stemma_sequence_info* out) noexcept;
void encode(const SessionInfo& info, stemma_session_info* out) noexcept;
stemma_sequence_content encode(const SequenceContent& content) noexcept;

}  // namespace stemma::capi
