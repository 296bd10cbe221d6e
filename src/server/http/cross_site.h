// Detects requests that a foreign web page may have sent.
//
// Every page that the operator's browser opens can make the browser send requests to a server on
// the operator's machine. Without a key there are two attacks. A page posts blindly across sites;
// browsers report that in Origin or Sec-Fetch-Site. Or a page's own name is made to point to this
// machine (DNS rebinding), so that the page seems to be ours; then Host has the page's name.
// Requests without the headers of a browser are let in.
//
// Threading:  pure functions.
#pragma once

#include <string>
#include <string_view>

#include "server/http/message.h"

namespace stemma::server {

struct SiteRules {
  std::string cors_origin = {};  // Pages of this origin may call; "*": all pages may.
  std::string host = {};         // The name or address that the server was told to listen on.
};

// Returns a sentence that says why the request is refused, or "" if it is let in.
std::string cross_site_problem(const HttpRequest& request, const SiteRules& rules);

// Whether Host is an address, localhost, or `own`: no foreign page can have such a name.
bool is_own_host(std::string_view host, std::string_view own);

}  // namespace stemma::server
