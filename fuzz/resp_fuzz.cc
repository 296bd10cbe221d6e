// Replies as no server should send them: they go through the parser, cut anywhere, with whole
// values taken by the caller as in the tier; then they are read as a slot map.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "input.h"
#include "tier/redis/resp.h"
#include "tier/redis/slots.h"
#include "tier/redis/value_reader.h"

namespace stemma::fuzz {
namespace {

using tier::redis::Reply;
using tier::redis::ReplyLimits;
using tier::redis::ReplyParser;

constexpr ReplyLimits kLimits{
    .line_bytes = 256, .text_bytes = 4'096, .elements = 512, .depth = 4, .bulk_bytes = 8'192};

struct Size {
  size_t elements = 0, text = 0, depth = 0;
};

void measure(const Reply& reply, size_t depth, Size& size) {
  size.text += reply.text.size();
  size.elements += reply.elements.size();
  if (!reply.elements.empty()) size.depth = std::max(size.depth, depth + 1);
  for (const Reply& element : reply.elements) measure(element, depth + 1, size);
}

// The result of a run over the bytes, to compare runs that cut them differently.
std::string read_all(std::string_view bytes, size_t piece, bool want_bulk) {
  std::string said;
  ReplyParser parser(kLimits);
  std::vector<uint8_t> room(4'096);
  while (!bytes.empty()) {
    if (parser.stage() == ReplyParser::Stage::ready || parser.stage() == ReplyParser::Stage::done) {
      parser.want_bulk(want_bulk);
    }
    const size_t took = parser.feed(bytes.substr(0, piece));
    FUZZ_EXPECT(took <= std::min(piece, bytes.size()));
    bytes.remove_prefix(took);
    if (parser.stage() == ReplyParser::Stage::failed) {
      FUZZ_EXPECT(parser.feed("+OK\r\n") == 0);
      return said + "!";
    }
    if (parser.stage() == ReplyParser::Stage::bulk) {
      FUZZ_EXPECT(parser.bulk_bytes() <= kLimits.bulk_bytes);
      TierItem item;
      item.into = room;
      tier::redis::ValueReader reader;
      reader.begin(parser.bulk_bytes(), &item);
      while (!reader.whole() && !bytes.empty()) {
        const std::span<uint8_t> to = reader.room();
        FUZZ_EXPECT(!to.empty());
        const size_t some = std::min({to.size(), bytes.size(), piece});
        std::memcpy(to.data(), bytes.data(), some);
        reader.took(some);
        bytes.remove_prefix(some);
      }
      if (!reader.whole()) return said;
      const TierOutcome outcome = reader.finish();
      FUZZ_EXPECT(outcome != TierOutcome::done || item.info.bytes <= room.size());
      said += "v" + std::to_string(static_cast<int>(outcome));
      parser.end_bulk();
    } else if (parser.stage() == ReplyParser::Stage::done) {
      Size size;
      measure(parser.reply(), 0, size);
      FUZZ_EXPECT(size.elements <= kLimits.elements);
      FUZZ_EXPECT(size.text <= kLimits.text_bytes);
      FUZZ_EXPECT(size.depth <= kLimits.depth);
      said += static_cast<char>('a' + static_cast<int>(parser.reply().type));
      said += std::to_string(size.elements) + "," + std::to_string(size.text) + ";";
      if (const auto ranges = tier::redis::read_slots(parser.reply(), "asked")) {
        for (const auto& range : *ranges) {
          FUZZ_EXPECT(range.first <= range.last && range.last < tier::redis::kSlots);
          FUZZ_EXPECT(range.primary.port != 0 && !range.primary.host.empty());
        }
      }
      if (const auto at = tier::redis::parse_endpoint(parser.reply().text, "asked")) {
        FUZZ_EXPECT(at->port != 0 && !at->host.empty() && at->host.size() <= 255);
      }
    } else {
      FUZZ_EXPECT(took != 0);
    }
  }
  return said;
}

void run(const uint8_t* data, size_t size) {
  if (size < 2) return;
  const size_t piece = 1 + data[0] % 64;
  const bool want_bulk = data[1] % 2 != 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  FUZZ_EXPECT(read_all(bytes, piece, want_bulk) == read_all(bytes, SIZE_MAX, want_bulk));
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::run(data, size);
  return 0;
}
