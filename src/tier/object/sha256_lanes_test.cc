#include "tier/object/sha256_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace stemma::tier::object {
namespace {

// A message of a first block and some bytes after it, and its second block with padding.
struct Message {
  std::vector<uint8_t> bytes;
  std::array<uint8_t, key::kSha256Block> last{};
};

Message message(const std::array<uint8_t, key::kSha256Block>& first, size_t more, uint8_t seed) {
  Message made;
  made.bytes.assign(first.begin(), first.end());
  for (size_t i = 0; i < more; ++i) {
    made.last[i] = static_cast<uint8_t>(seed + 37 * i);
    made.bytes.push_back(made.last[i]);
  }
  made.last[more] = 0x80;
  const size_t bits = 8 * made.bytes.size();
  made.last[62] = static_cast<uint8_t>(bits >> 8U);
  made.last[63] = static_cast<uint8_t>(bits);
  return made;
}

TEST(Sha256Lanes, EachMessageHasTheDigestThatItHasAlone) {
  std::array<uint8_t, key::kSha256Block> first;
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<uint8_t>(200 + 3 * i);
  const ShaState begun = state_after(first);
  for (size_t shift = 0; shift < 56; ++shift) {
    ShaBlocks blocks;
    std::vector<Message> messages;
    for (size_t lane = 0; lane < kShaLanes; ++lane) {
      messages.push_back(
          message(first, (shift + 7 * lane) % 56, static_cast<uint8_t>(shift + lane)));
      blocks[lane] = messages[lane].last;
    }
    ShaDigests digests, plain;
    digest_lanes(begun, blocks, digests);
    digest_lanes_plain(begun, blocks, plain);
    for (size_t lane = 0; lane < kShaLanes; ++lane) {
      EXPECT_EQ(digests[lane], key::sha256(messages[lane].bytes)) << shift << " " << lane;
      EXPECT_EQ(plain[lane], digests[lane]) << shift << " " << lane;
    }
  }
}

}  // namespace
}  // namespace stemma::tier::object
