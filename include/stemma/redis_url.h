// Where a Redis or Valkey is, and how to be let in, in one line:
//
//   redis://[[user]:password@]host[:port][,host[:port]...][/db][?option=value[&...]]
//   rediss://...                                            the same through TLS
//
// Several hosts are ways into one cluster. An IPv6 address stands in brackets. User, password and
// options are percent-decoded. Options:
//
//   ttl=SECONDS       entries go away so long after they were last put (otherwise the server decides)
//   ca=FILE           who is trusted to sign the server's certificate (otherwise the system's list)
//   cert=FILE, key=FILE   our own certificate, where the server asks for one
//   tls-name=NAME     the name in the certificate, where it is not the host's
//   verify=no         any certificate will do; whoever is in between can read and change everything
//
// Threading: pure functions. What they say of a wrong line never holds the password.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma::tier::redis {

struct Address {
  std::string host;  // A name, or an address without brackets.
  uint16_t port = 6379;

  friend bool operator==(const Address&, const Address&) = default;
  std::string text() const;  // "host:port", "[::1]:6379".
};

struct Place {
  std::vector<Address> hosts;  // At least one, at most 64.
  std::string user;            // Empty: the default user.
  std::string password;        // Empty: none.
  uint32_t db = 0;
  uint32_t ttl_s = 0;
  bool tls = false;
  bool tls_verify = true;
  std::string tls_ca, tls_cert, tls_key, tls_name;

  // For logs and reports: scheme, hosts and db, nothing else.
  std::string text() const;
};

// Error: invalid_argument, and its message says what is wrong.
Result<Place> parse_url(std::string_view url);

}  // namespace stemma::tier::redis
