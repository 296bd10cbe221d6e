// The parts of a Stream that use OpenSSL; without it they report that there is no TLS.
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "stemma/tier/redis_tier.h"
#include "tier/redis/stream.h"

#ifdef STEMMA_HAS_TLS
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#endif

namespace stemma::tier::redis {

#ifdef STEMMA_HAS_TLS

namespace {

std::string say_openssl() {
  char text[256] = "";
  const unsigned long code = ERR_peek_last_error();
  if (code == 0) return "the connection ended";
  ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

}  // namespace

bool has_tls() noexcept { return true; }

Result<std::shared_ptr<TlsContext>> TlsContext::create(const Place& place) {
  SSL_CTX* raw = SSL_CTX_new(TLS_client_method());
  if (raw == nullptr) return Error(Errc::out_of_memory, "no memory for TLS");
  auto context = std::make_shared<TlsContext>(raw);
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  // A write may be accepted in part; the next one continues from there.
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A server that closes without a TLS farewell counts as closed.
  SSL_CTX_set_options(raw, SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_verify(raw, place.tls_verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (!place.tls_ca.empty()) {
    if (SSL_CTX_load_verify_locations(raw, place.tls_ca.c_str(), nullptr) != 1) {
      ERR_clear_error();
      return Error(Errc::invalid_argument,
                   "rediss: the file given as ca cannot be read as certificates");
    }
  } else if (SSL_CTX_set_default_verify_paths(raw) != 1) {
    ERR_clear_error();
    return Error(Errc::invalid_argument,
                 "rediss: the system's list of certificates cannot be read");
  }
  if (!place.tls_cert.empty() &&
      (SSL_CTX_use_certificate_chain_file(raw, place.tls_cert.c_str()) != 1 ||
       SSL_CTX_use_PrivateKey_file(raw, place.tls_key.c_str(), SSL_FILETYPE_PEM) != 1 ||
       SSL_CTX_check_private_key(raw) != 1)) {
    ERR_clear_error();
    return Error(Errc::invalid_argument,
                 "rediss: the files given as cert and key are not a certificate and its key");
  }
  return context;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Stream::~Stream() {
  if (ssl_ != nullptr) SSL_free(ssl_);
  if (fd_ >= 0) close(fd_);
}

void Stream::secure() {
  wants_write_ = false;
  if (!tls_) {
    stage_ = Stage::open;
    return;
  }
  if (ssl_ == nullptr) {
    ERR_clear_error();
    ssl_ = SSL_new(tls_->get());
    if (ssl_ == nullptr || SSL_set_fd(ssl_, fd_) != 1) {
      fail(say_openssl());
      return;
    }
    const std::string& name = tls_name_.empty() ? address_.host : tls_name_;
    unsigned char address[16];
    const bool numeric = inet_pton(AF_INET, name.c_str(), address) == 1 ||
                         inet_pton(AF_INET6, name.c_str(), address) == 1;
    bool set = true;
    if (numeric) {
      set = !tls_verify_ || X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), name.c_str()) == 1;
    } else {
      set = SSL_set_tlsext_host_name(ssl_, name.c_str()) == 1 &&
            (!tls_verify_ || SSL_set1_host(ssl_, name.c_str()) == 1);
    }
    if (!set) {
      fail(say_openssl());
      return;
    }
    stage_ = Stage::securing;
  }
  ERR_clear_error();
  const int code = SSL_connect(ssl_);
  if (code == 1) {
    stage_ = Stage::open;
    return;
  }
  const Moved moved = tls_result(code, false);
  if (moved.io == Io::blocked) return;
  const long verified = SSL_get_verify_result(ssl_);
  if (tls_verify_ && verified != X509_V_OK) {
    fail(std::string("its certificate is not trusted (") + X509_verify_cert_error_string(verified) +
         ")");
  } else {
    fail("TLS failed: " + (problem_.empty() ? "the connection ended" : problem_));
  }
}

Stream::Moved Stream::tls_result(int code, bool writing) {
  switch (SSL_get_error(ssl_, code)) {
    case SSL_ERROR_WANT_READ: wants_write_ = false; return {Io::blocked, 0};
    case SSL_ERROR_WANT_WRITE: wants_write_ = !writing; return {Io::blocked, 0};
    case SSL_ERROR_ZERO_RETURN: return {Io::closed, 0};
    default: problem_ = say_openssl(); return {Io::failed, 0};
  }
}

Stream::Moved Stream::tls_read(uint8_t* into, size_t bytes) {
  ERR_clear_error();
  const int got = SSL_read(ssl_, into, static_cast<int>(std::min<size_t>(bytes, INT_MAX)));
  return got > 0 ? Moved{Io::some, static_cast<size_t>(got)} : tls_result(got, false);
}

Stream::Moved Stream::tls_write(const uint8_t* from, size_t bytes) {
  if (bytes == 0) return {Io::some, 0};
  ERR_clear_error();
  const int sent = SSL_write(ssl_, from, static_cast<int>(std::min<size_t>(bytes, INT_MAX)));
  return sent > 0 ? Moved{Io::some, static_cast<size_t>(sent)} : tls_result(sent, true);
}

bool Stream::pending() const noexcept { return ssl_ != nullptr && SSL_pending(ssl_) > 0; }

#else

bool has_tls() noexcept { return false; }

Result<std::shared_ptr<TlsContext>> TlsContext::create(const Place&) {
  return Error(Errc::unsupported, "rediss: this build has no TLS (it was made without OpenSSL)");
}

TlsContext::~TlsContext() = default;

Stream::~Stream() {
  if (fd_ >= 0) close(fd_);
}

void Stream::secure() {
  wants_write_ = false;
  stage_ = Stage::open;
}

Stream::Moved Stream::tls_result(int, bool) { return {Io::failed, 0}; }
Stream::Moved Stream::tls_read(uint8_t*, size_t) { return {Io::failed, 0}; }
Stream::Moved Stream::tls_write(const uint8_t*, size_t) { return {Io::failed, 0}; }
bool Stream::pending() const noexcept { return false; }

#endif

}  // namespace stemma::tier::redis
