#include "server/http/cross_site.h"

#include <arpa/inet.h>

#include <algorithm>

namespace stemma::server {
namespace {

// Returns "localhost" for "localhost:8080", "::1" for "[::1]:8080".
std::string_view name_of(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string_view::npos ? host : host.substr(1, end - 1);
  }
  // IPv6 addresses without brackets have more than one colon.
  if (std::ranges::count(host, ':') == 1) host = host.substr(0, host.find(':'));
  return host;
}

bool is_address(std::string_view name) {
  unsigned char bytes[16];
  const std::string text(name);
  return ::inet_pton(AF_INET, text.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

bool is_browser(const HttpRequest& request) {
  return !request.header("origin").empty() || !request.header("sec-fetch-site").empty() ||
         !request.header("referer").empty() || request.header("user-agent").starts_with("Mozilla/");
}

}  // namespace

bool is_own_host(std::string_view host, std::string_view own) {
  const std::string_view name = name_of(host);
  if (name.empty()) return false;
  if (is_address(name) || equal_ignoring_case(name, name_of(own))) return true;
  constexpr std::string_view kLocal = "localhost";
  return equal_ignoring_case(name, kLocal) ||
         (name.size() > kLocal.size() && name[name.size() - kLocal.size() - 1] == '.' &&
          equal_ignoring_case(name.substr(name.size() - kLocal.size()), kLocal));
}

std::string cross_site_problem(const HttpRequest& request, const SiteRules& rules) {
  if (!is_browser(request)) return "";
  const std::string_view host = request.header("host");
  const std::string_view origin = request.header("origin");
  if (!rules.cors_origin.empty() && !origin.empty() &&
      (rules.cors_origin == "*" || equal_ignoring_case(origin, rules.cors_origin))) {
    return "";
  }
  if (!is_own_host(host, rules.host)) {
    return "a browser asks for it under the name '" + std::string(host) +
           "', which is not one of this server's";
  }
  if (!origin.empty()) {
    const size_t slashes = origin.find("://");
    const std::string_view from =
        slashes == std::string_view::npos ? std::string_view() : origin.substr(slashes + 3);
    if (equal_ignoring_case(from, host)) return "";
    return "a page of " + std::string(origin) + " asks for it";
  }
  const std::string_view site = request.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") {
    return "a page of another site asks for it";
  }
  // Older browsers do not name the site of the page that posts. A page of another site cannot post
  // this type without asking first.
  if (!request.reads() && site.empty()) {
    const std::string_view type = request.header("content-type");
    if (!equal_ignoring_case(type.substr(0, type.find(';')), "application/json")) {
      return "a browser posts it as a form";
    }
  }
  return "";
}

}  // namespace stemma::server
