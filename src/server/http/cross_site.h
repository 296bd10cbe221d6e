// Whether a web page of somebody else's may be behind a request.
//
// A server on the operator's machine is reached by every page that the operator's browser opens, and a browser
// sends what a page asks it to. Two ways lead here without a key: a page posts blindly across sites, which
// browsers say in Origin or Sec-Fetch-Site; or its own name is made to point to this machine (DNS rebinding), so that
// the page seems to be ours, but its name is in Host. Programs that are no browsers send none of this, and are let in.
//
// Threading:  pure functions.
#pragma once

#include <string>
#include <string_view>

#include "server/http/message.h"

namespace stemma::server {

struct SiteRules {
  std::string cors_origin = {};  // Pages of this origin may call; "*": all may.
  std::string host = {};         // The name or address that the server was told to listen on.
};

// "" or, in a sentence, why the request is not let in.
std::string cross_site_problem(const HttpRequest& request, const SiteRules& rules);

// Whether no page can get here by this Host: it is an address, localhost, or `own`.
bool is_own_host(std::string_view host, std::string_view own);

}  // namespace stemma::server
