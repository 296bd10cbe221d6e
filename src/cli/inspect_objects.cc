#ifdef STEMMA_HAS_TIER_DISK

#include "cli/inspect_objects.h"

#include <cinttypes>
#include <cstdio>

#include "tier/object/envelope.h"

namespace stemma::cli {

namespace {

constexpr uint32_t kMostTries = 8;

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

}  // namespace

void ObjectSpaces::add(const tier::EntryHeader& header, const Read& read) {
  if (header.key.kind != EntryKind::object) return;
  Space& space = all_[{owner_of(header.key), header.info.layout}];
  ++space.entries;
  space.bytes += header.info.bytes;
  if (!space.name.empty() || space.tries++ >= kMostTries) return;
  std::vector<uint8_t> payload;
  if (!read(payload) || payload.size() < tier::object::kEnvelopeBytes) return;
  const auto envelope =
      tier::object::read_envelope(std::span(payload).first<tier::object::kEnvelopeBytes>());
  if (!envelope) return;
  space.name = envelope->name;
  space.layout = envelope->layout;
  space.value_bytes = envelope->space_value_bytes;
}

std::string ObjectSpaces::lines() const {
  std::string text;
  for (const auto& [key, space] : all_) {
    text += "  namespace ";
    if (space.name.empty()) {
      text += hex(key.first) + " (its entries are sealed or damaged)";
    } else {
      text += space.name + ", layout " + hex(space.layout) + ", ";
      text += space.value_bytes == 0 ? "values of any size"
                                     : "values of " + std::to_string(space.value_bytes) + " bytes";
    }
    text += ": " + std::to_string(space.entries) + " entries, " + std::to_string(space.bytes) +
            " bytes\n";
  }
  return text;
}

std::string ObjectSpaces::json() const {
  std::string text;
  for (const auto& [key, space] : all_) {
    if (!text.empty()) text += ", ";
    // A name's characters need no escaping (tier/object/space.h).
    text += R"({"name": ")" + space.name + R"(", "owner": ")" + hex(key.first) +
            R"(", "layout": ")" + hex(space.layout) + R"(", "value_bytes": )" +
            std::to_string(space.value_bytes) + R"(, "entries": )" + std::to_string(space.entries) +
            R"(, "bytes": )" + std::to_string(space.bytes) + "}";
  }
  return text;
}

}  // namespace stemma::cli

#endif  // STEMMA_HAS_TIER_DISK
