// Bytes where the entry of a transcript should be. An accepted entry equals the one we would have
// written.
#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "input.h"
#include "server/chat/meaning.h"
#include "server/chat/transcript_entry.h"

namespace stemma::fuzz {
namespace {

void read(std::span<const uint8_t> bytes) {
  const auto entry = server::decode_transcript(bytes);
  if (!entry) return;
  std::vector<uint8_t> again;
  if (const auto* pointer = std::get_if<server::TranscriptPointer>(&*entry)) {
    again = server::encode_pointer(pointer->to);
  } else {
    const auto& stored = std::get<server::StoredTranscript>(*entry);
    again = server::encode_transcript(stored.by_id, stored.by_digest, stored.transcript);
    // A digest of whatever was read, and an answer means what it says itself.
    static_cast<void>(server::digest_of(stored.transcript.message, ""));
    FUZZ_EXPECT(server::same_calls(stored.transcript.message, stored.transcript.message));
  }
  FUZZ_EXPECT(std::ranges::equal(again, bytes));
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::read({data, size});
  return 0;
}
