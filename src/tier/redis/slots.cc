#include "tier/redis/slots.h"

#include <bitset>
#include <charconv>

namespace stemma::tier::redis {

namespace {

constexpr std::array<uint16_t, 256> kCrcTable = [] {
  std::array<uint16_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte << 8U;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000U) != 0 ? crc << 1U ^ 0x1021U : crc << 1U;
    table[byte] = static_cast<uint16_t>(crc);
  }
  return table;
}();

constexpr size_t kMostHostBytes = 255;  // Of a DNS name.

bool good_host(std::string_view host) {
  if (host.empty() || host.size() > kMostHostBytes) return false;
  for (const char c : host) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

}  // namespace

uint16_t crc16(std::string_view bytes) noexcept {
  uint32_t crc = 0;
  for (const char c : bytes) {
    crc = (crc << 8U & 0xFFFFU) ^ kCrcTable[(crc >> 8U) ^ static_cast<uint8_t>(c)];
  }
  return static_cast<uint16_t>(crc);
}

std::string Address::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::optional<Address> parse_endpoint(std::string_view text, std::string_view asked_host) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  std::string_view port = text.substr(colon + 1);
  port = port.substr(0, port.find('@'));  // The port of the cluster bus may follow.
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty() || host == "?") host = asked_host;
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number == 0 || !good_host(host)) {
    return std::nullopt;
  }
  return Address{std::string(host), number};
}

std::optional<std::vector<SlotRange>> read_slots(const Reply& reply, std::string_view asked_host) {
  if (reply.type != Reply::Type::array) return std::nullopt;
  std::vector<SlotRange> ranges;
  std::bitset<kSlots> seen;
  for (const Reply& range : reply.elements) {
    if (range.type != Reply::Type::array || range.elements.size() < 3) return std::nullopt;
    const Reply& first = range.elements[0];
    const Reply& last = range.elements[1];
    const Reply& primary = range.elements[2];
    if (first.type != Reply::Type::integer || last.type != Reply::Type::integer ||
        first.integer < 0 || first.integer > last.integer || last.integer >= kSlots ||
        primary.type != Reply::Type::array || primary.elements.size() < 2) {
      return std::nullopt;
    }
    const Reply& host = primary.elements[0];
    const Reply& port = primary.elements[1];
    if ((host.type != Reply::Type::text && host.type != Reply::Type::null) ||
        port.type != Reply::Type::integer || port.integer < 1 || port.integer > 65'535) {
      return std::nullopt;
    }
    const bool unknown = host.text.empty() || host.text == "?";
    const std::string_view name = unknown ? asked_host : std::string_view(host.text);
    if (!good_host(name)) return std::nullopt;
    for (int64_t slot = first.integer; slot <= last.integer; ++slot) {
      if (seen.test(static_cast<size_t>(slot))) return std::nullopt;
      seen.set(static_cast<size_t>(slot));
    }
    ranges.push_back({static_cast<uint16_t>(first.integer), static_cast<uint16_t>(last.integer),
                      Address{std::string(name), static_cast<uint16_t>(port.integer)}});
  }
  return ranges;
}

}  // namespace stemma::tier::redis
