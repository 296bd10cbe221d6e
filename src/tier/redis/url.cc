#include "stemma/tier/redis_url.h"

#include <charconv>

namespace stemma::tier::redis {

namespace {

constexpr size_t kMostHosts = 64;

Error wrong(const char* message) { return {Errc::invalid_argument, message}; }

template <class Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

bool decode(std::string_view text, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    uint8_t byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) return false;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out.find('\0') == std::string::npos;
}

Result<Address> read_host(std::string_view text) {
  Address address;
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return wrong("redis URL: a '[' without its ']'");
    host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') {
      return wrong("redis URL: between ']' and the port stands a ':'");
    }
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
    if (host.find(':') == std::string_view::npos) {
      return wrong("redis URL: only an IPv6 address stands in brackets");
    }
  } else if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
    if (port.find(':') != std::string_view::npos) {
      return wrong("redis URL: an IPv6 address must stand in brackets, as in [::1]:6379");
    }
  }
  if (host.empty()) return wrong("redis URL: a host is missing, as in redis://localhost:6379");
  for (const char c : host) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_' || c == ':';
    if (!good) return wrong("redis URL: a host's name has a character that no name may have");
  }
  if (has_port && (!read_number(port, address.port) || address.port == 0)) {
    return wrong("redis URL: a port is a number from 1 to 65535");
  }
  address.host = host;
  return address;
}

Result<void> read_option(std::string_view name, std::string value, Place& place) {
  if (name == "ttl") {
    // Nobody keeps a cache for more than a year of seconds, and servers accept that.
    if (!read_number(std::string_view(value), place.ttl_s) || place.ttl_s == 0 ||
        place.ttl_s > 366U * 86'400) {
      return wrong("redis URL: ttl is a number of seconds, at least 1 and at most a year");
    }
    return {};
  }
  if (!place.tls &&
      (name == "ca" || name == "cert" || name == "key" || name == "tls-name" || name == "verify")) {
    return wrong("redis URL: ca, cert, key, tls-name and verify are for rediss://");
  }
  if (name == "verify") {
    if (value != "yes" && value != "no") return wrong("redis URL: verify is 'yes' or 'no'");
    place.tls_verify = value == "yes";
    return {};
  }
  if (value.empty()) return wrong("redis URL: an option needs a value, as in ca=FILE");
  if (name == "ca") return place.tls_ca = std::move(value), Result<void>();
  if (name == "cert") return place.tls_cert = std::move(value), Result<void>();
  if (name == "key") return place.tls_key = std::move(value), Result<void>();
  if (name == "tls-name") return place.tls_name = std::move(value), Result<void>();
  return wrong("redis URL: the options are ttl, ca, cert, key, tls-name and verify");
}

}  // namespace

std::string Place::text() const {
  std::string out = tls ? "rediss://" : "redis://";
  for (size_t i = 0; i < hosts.size(); ++i) out += (i == 0 ? "" : ",") + hosts[i].text();
  if (db != 0) out += "/" + std::to_string(db);
  return out;
}

Result<Place> parse_url(std::string_view url) {
  Place place;
  if (url.starts_with("rediss://")) {
    place.tls = true;
    url.remove_prefix(9);
  } else if (url.starts_with("redis://")) {
    url.remove_prefix(8);
  } else {
    return wrong("redis URL: it begins with redis:// or rediss://");
  }
  std::string_view options;
  bool has_options = false;
  // The password may contain '@', so look for the last one, before the hosts.
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    const std::string_view who = url.substr(0, at);
    url.remove_prefix(at + 1);
    const size_t colon = who.find(':');
    if (colon == std::string_view::npos) {
      return wrong("redis URL: before '@' stands user:password, or :password");
    }
    if (!decode(who.substr(0, colon), place.user) ||
        !decode(who.substr(colon + 1), place.password)) {
      return wrong("redis URL: in user and password '%' is followed by two hexadecimal digits");
    }
    if (place.password.empty()) return wrong("redis URL: the password is empty");
  }
  if (const size_t mark = url.find('?'); mark != std::string_view::npos) {
    options = url.substr(mark + 1);
    has_options = true;
    url = url.substr(0, mark);
  }
  if (const size_t slash = url.find('/'); slash != std::string_view::npos) {
    const std::string_view db = url.substr(slash + 1);
    if (!db.empty() && (!read_number(db, place.db) || place.db > 65'535)) {
      return wrong("redis URL: behind '/' stands the number of a database");
    }
    url = url.substr(0, slash);
  }
  for (;;) {
    const size_t comma = url.find(',');
    STEMMA_TRY(Address address, read_host(url.substr(0, comma)));
    if (place.hosts.size() == kMostHosts) return wrong("redis URL: more than 64 hosts");
    place.hosts.push_back(std::move(address));
    if (comma == std::string_view::npos) break;
    url.remove_prefix(comma + 1);
  }
  if (place.hosts.size() > 1 && place.db != 0) {
    return wrong("redis URL: a cluster has database 0 only");
  }
  while (has_options) {
    const size_t end = options.find('&');
    const std::string_view option = options.substr(0, end);
    const size_t equals = option.find('=');
    std::string value;
    if (equals == std::string_view::npos || !decode(option.substr(equals + 1), value)) {
      return wrong("redis URL: behind '?' stands option=value, several joined by '&'");
    }
    STEMMA_TRY_VOID(read_option(option.substr(0, equals), std::move(value), place));
    if (end == std::string_view::npos) break;
    options.remove_prefix(end + 1);
  }
  if (place.tls_cert.empty() != place.tls_key.empty()) {
    return wrong("redis URL: cert and key go together");
  }
  return place;
}

}  // namespace stemma::tier::redis
