// Bytes where an object's envelope should be. An accepted envelope equals the one we would have
// written, and belongs only to the namespace and key that it names.
#include <algorithm>
#include <array>

#include "input.h"
#include "tier/entry.h"
#include "tier/object/envelope.h"

namespace stemma::fuzz {
namespace {

using namespace tier::object;  // NOLINT(google-build-using-namespace): what is fuzzed.

void read(std::span<const uint8_t, kEnvelopeBytes> bytes) {
  const Result<Envelope> envelope = read_envelope(bytes);
  if (!envelope) return;
  std::array<uint8_t, kEnvelopeBytes> again;
  write_envelope(*envelope, again);
  FUZZ_EXPECT(std::equal(again.begin(), again.end(), bytes.begin()));
  FUZZ_EXPECT(is_name(envelope->name));
  const Result<Space> space =
      Space::make(envelope->name, envelope->layout, envelope->space_value_bytes);
  if (!space) return;  // A size that no namespace has.
  FUZZ_EXPECT(envelope->is_of(*space, envelope->key));
  FUZZ_EXPECT(owner_of(space->entry_key(envelope->key)) == space->owner());
  FUZZ_EXPECT(!envelope->is_of(*space, envelope->key.first(envelope->key.size() - 1)));
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stemma;
  std::array<uint8_t, tier::object::kEnvelopeBytes> bytes{};
  std::copy_n(data, std::min(size, bytes.size()), bytes.begin());
  fuzz::read(bytes);
  // With a right checksum and a right beginning, more of the input is parsed.
  constexpr char kMagic[] = "STEMMAOB\x01\0\0";
  std::copy_n(kMagic, 12, bytes.begin());
  uint64_t sum = tier::sum(std::span(bytes).first(bytes.size() - 8));
  for (size_t i = 0; i < 8; ++i, sum >>= 8U)
    bytes[bytes.size() - 8 + i] = static_cast<uint8_t>(sum);
  fuzz::read(bytes);
  return 0;
}
