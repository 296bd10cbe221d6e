// Bytes where a sealed entry or a key file should be: through both decoders. They accept only what
// they would have written, and only sealed entries open.
#include <algorithm>
#include <array>
#include <vector>

#include "input.h"
#include "tier/seal/key_file.h"
#include "tier/seal/sealed_entry.h"

namespace stemma::fuzz {
namespace {

using namespace tier::seal;  // NOLINT(google-build-using-namespace): what is fuzzed.

void read_key(std::span<const uint8_t> bytes) {
  const Result<KeyFile> read = read_key_file(bytes);
  if (!read) return;
  const auto again = write_key_file(*read);
  FUZZ_EXPECT(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
}

void read_sealed(std::span<const uint8_t> bytes) {
  if (bytes.size() < tier::kSealBytes) return;
  const auto head = bytes.first<tier::kSealBytes>();
  if (const auto header = read_seal_header(head)) {
    std::array<uint8_t, tier::kSealBytes> again;
    write_seal_header(*header, again);
    FUZZ_EXPECT(std::equal(again.begin(), again.end(), head.begin()));
  }
  static const auto cipher = Cipher::create();
  static const tier::ScopeKey scope{KeyFile{}};
  std::vector<uint8_t> out(bytes.size());
  const EntryInfo info{
      .begin = 0, .end = 16, .layout = 1, .bytes = bytes.size() - tier::kSealBytes};
  FUZZ_EXPECT(!open_entry(*cipher, scope, EntryKey{}, info, bytes, out.data()));
}

// A good one with one byte changed, if the input says so.
void change_sealed(Input input) {
  static const auto cipher = Cipher::create();
  static const tier::ScopeKey scope{KeyFile{}};
  const uint32_t at = input.u8();
  const uint8_t with = input.u8();
  const std::span<const uint8_t> plain = input.rest();
  const EntryInfo info{.begin = 0, .end = 16, .layout = 1, .bytes = plain.size()};
  std::vector<uint8_t> sealed(plain.size() + tier::kSealBytes), out(plain.size() + 1);
  // A nonce that repeats is no secret here.
  FUZZ_EXPECT(seal_entry(*cipher, scope, EntryKey{}, info, {}, plain, sealed));
  sealed[at % sealed.size()] = static_cast<uint8_t>(sealed[at % sealed.size()] ^ with);
  const bool opened = open_entry(*cipher, scope, EntryKey{}, info, sealed, out.data());
  FUZZ_EXPECT(opened == (with == 0));
  if (opened) FUZZ_EXPECT(std::equal(plain.begin(), plain.end(), out.begin()));
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::read_key({data, size});
  stemma::fuzz::read_sealed({data, size});
  stemma::fuzz::change_sealed({data, size});
  return 0;
}
