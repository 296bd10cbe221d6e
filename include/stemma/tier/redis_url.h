// The address of a Redis or Valkey, and how to log in, in one line:
//
//   redis://[[user]:password@]host[:port][,host[:port]...][/db][?option=value[&...]]
//   rediss://...                                            the same through TLS
//
// Several hosts belong to one cluster. Write an IPv6 address in brackets. User, password and
// options are percent-decoded. Options:
//
//   ttl=SECONDS       entries expire this long after their last put (otherwise the server decides)
//   ca=FILE           trusted signers of the server's certificate (otherwise the system's list)
//   cert=FILE, key=FILE   our own certificate, if the server asks for one
//   tls-name=NAME     the name in the certificate, if it is not the host's
//   verify=no         accept any certificate; a man in the middle can read and change everything
//
// Threading: pure functions. Their error messages never hold the password.
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
