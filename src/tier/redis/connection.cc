#include "tier/redis/connection.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <ctime>

#include "tier/redis/key_name.h"

namespace stemma::tier::redis {

namespace {

// Bytes that one connection reads or writes before others have their turn.
constexpr size_t kTurnBytes = size_t{1} << 20;
// Small commands are encoded ahead up to this many bytes.
constexpr size_t kAheadBytes = size_t{1} << 20;
// Read after a value: its end, the head of the next reply and that entry's header. More would have
// to be copied.
constexpr size_t kBehindValueBytes = 64 + kHeaderBytes;
// Copying values up to this size costs no more than reading them separately.
constexpr size_t kSmallValueBytes = 8'192;
constexpr size_t kMostParts = 64;
// Names that a server looks at in one SCAN: about a millisecond of its time.
constexpr uint32_t kScanCount = 2'000;

// The first word of an error, if it is safe to show: servers put our names into the rest.
std::string_view error_word(std::string_view text) {
  text = text.substr(0, text.find(' '));
  if (text.empty() || text.size() > 24) return "an error";
  for (const char c : text) {
    if ((c < 'A' || c > 'Z') && c != '_') return "an error";
  }
  return text;
}

}  // namespace

Connection::Connection(const RedisOptions& options, const Address& address,
                       std::shared_ptr<TlsContext> tls, std::shared_ptr<Wakeup> wakeup,
                       RedisCounters& counters, ConnectionOwner& owner, uint64_t now_ns)
    : options_(options),
      address_(address),
      counters_(counters),
      owner_(owner),
      stream_(address, std::move(tls), options.place, std::move(wakeup)),
      moved_ns_(now_ns),
      head_ns_(now_ns) {}

void Connection::close(Ending ending, std::string problem) {
  if (closed()) return;
  // A server that closes before we were let in has refused us; no answer was lost.
  ending_ = ending == Ending::lost && state_ != State::ready ? Ending::broken : ending;
  state_ = State::closed;
  problem_ = std::move(problem);
  const auto is_put = [](const Flight& flight) { return flight.command.verb == Verb::set; };
  if (std::any_of(flights_.begin(), flights_.end(), is_put)) stream_.discard_unsent();
  // The owner stops watching this connection and frees it; nothing is read or written any more.
  segments_.clear();
  text_.clear();
}

bool Connection::wants_write() const noexcept {
  return state_ == State::opening ? stream_.wants_write() : unsent() != 0 || stream_.wants_write();
}

// What a command counts against the limit: its payload, in whichever direction it goes.
uint64_t Connection::cost_of(const Command& command) const {
  if (command.job == nullptr) return 128;
  if (command.verb == Verb::set) return 256 + command.of_item().info.bytes;
  if (command.verb == Verb::get) {
    return 256 + std::min<uint64_t>(command.of_item().into.size(), options_.max_entry_bytes);
  }
  return 128;
}

bool Connection::has_room(const Command& command) const {
  if (payload_unsent_ || flights_.size() >= options_.flight_commands) return false;
  if (unsent() >= kAheadBytes || (command.verb == Verb::set && unsent() != 0)) return false;
  const bool get = command.verb == Verb::get;
  if (flights_.size() < (get ? 2U : 1U)) return true;
  const uint64_t most =
      get ? std::min({options_.get_flight_bytes, options_.flight_bytes, most_get_bytes_})
          : options_.flight_bytes;
  return flight_cost_ + cost_of(command) <= most;
}

void Connection::text(std::string_view bytes) {
  if (segments_.empty() || segments_.back().payload != nullptr) {
    segments_.push_back({nullptr, text_.size(), 0});
  }
  text_.append(bytes);
  segments_.back().bytes += bytes.size();
  encoded_ += bytes.size();
}

void Connection::argument(std::string_view bytes) {
  char head[24] = "$";
  char* end = std::to_chars(head + 1, head + sizeof head - 2, bytes.size()).ptr;
  *end++ = '\r';
  *end++ = '\n';
  text({head, static_cast<size_t>(end - head)});
  text(bytes);
  text("\r\n");
}

void Connection::encode_set(const Command& command) {
  TierItem& item = command.of_item();
  EntryHeader header;
  header.key = item.key;
  header.info = item.info;
  header.sum = sum(item.words, item.source);
  header.written = static_cast<uint64_t>(std::time(nullptr));
  std::array<uint8_t, kHeaderBytes> bytes;
  write_header(header, bytes);

  text(options_.place.ttl_s == 0 ? "*3\r\n$3\r\nSET\r\n" : "*5\r\n$3\r\nSET\r\n");
  argument(KeyName(item.key).text());
  text("$" + std::to_string(kHeaderBytes + header.body_bytes()) + "\r\n");
  text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  text({reinterpret_cast<const char*>(item.words.data()), item.words.size_bytes()});
  segments_.push_back({item.source.data(), 0, item.source.size()});
  encoded_ += item.source.size();
  payload_unsent_ = true;
  text("\r\n");
  if (options_.place.ttl_s != 0) {
    argument("EX");
    argument(std::to_string(options_.place.ttl_s));
  }
}

void Connection::encode(const Command& command) {
  switch (command.verb) {
    case Verb::set: return encode_set(command);
    case Verb::get: text("*2\r\n$3\r\nGET\r\n"); return argument(KeyName(command.key).text());
    case Verb::probe:
      text("*4\r\n$8\r\nGETRANGE\r\n");
      argument(KeyName(command.key).text());
      argument("0");
      return argument(std::to_string(kHeaderBytes - 1));
    case Verb::contains:
      text("*2\r\n$6\r\nSTRLEN\r\n");
      return argument(KeyName(command.key).text());
    case Verb::touch: text("*2\r\n$5\r\nTOUCH\r\n"); return argument(KeyName(command.key).text());
    case Verb::remove:
    case Verb::sweep:
      text("*2\r\n$6\r\nUNLINK\r\n");
      return argument(KeyName(command.key, command.old ? kOldKeyPrefix : kKeyPrefix).text());
    case Verb::renew:
      text("*3\r\n$6\r\nEXPIRE\r\n");
      argument(KeyName(command.key).text());
      return argument(std::to_string(options_.place.ttl_s));
    case Verb::scan:
      text("*6\r\n$4\r\nSCAN\r\n");
      argument(std::to_string(command.cursor));
      argument("MATCH");
      argument(command.key.group != 0
                   ? owner_pattern(command.key)
                   : std::string(command.old ? kOldKeyPrefix : kKeyPrefix) + "*");
      argument("COUNT");
      return argument(std::to_string(kScanCount));
    case Verb::asking: return text("*1\r\n$6\r\nASKING\r\n");
    case Verb::slots: return text("*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n");
    case Verb::ping: return text("*1\r\n$4\r\nPING\r\n");
    case Verb::memory: return text("*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n");
    case Verb::select:
      text("*2\r\n$6\r\nSELECT\r\n");
      return argument(std::to_string(options_.place.db));
    case Verb::auth:
      text(options_.place.user.empty() ? "*2\r\n$4\r\nAUTH\r\n" : "*3\r\n$4\r\nAUTH\r\n");
      if (!options_.place.user.empty()) argument(options_.place.user);
      return argument(options_.place.password);
  }
}

void Connection::send(const Command& command, uint64_t now_ns) {
  if (command.asking) {
    Command asking;
    asking.verb = Verb::asking;
    send(asking, now_ns);
  }
  if (flights_.empty()) {
    count(counters_.round_trips);
    head_ns_ = moved_ns_ = now_ns;
  }
  count(counters_.commands);
  encode(command);
  const uint64_t cost = cost_of(command);
  flight_cost_ += cost;
  flights_.push_back({command, encoded_, cost});
}

void Connection::flush(uint64_t now_ns) {
  while (!closed() && unsent() != 0) {
    std::array<iovec, kMostParts> parts;
    size_t used = 0;
    size_t offered = 0;
    for (auto at = segments_.begin(); at != segments_.end() && used < kMostParts; ++at, ++used) {
      const auto* from = at->payload != nullptr
                             ? at->payload
                             : reinterpret_cast<const uint8_t*>(text_.data() + at->offset);
      parts[used] = {const_cast<uint8_t*>(from), at->bytes};
      offered += at->bytes;
    }
    const Stream::Moved moved = stream_.write(std::span(parts).first(used));
    if (moved.io == Stream::Io::blocked) return;
    if (moved.io != Stream::Io::some) {
      return close(Ending::lost, "the connection was lost: " + stream_.problem());
    }
    // Progress ends when the first command is sent: the socket of a server that sleeps takes more.
    if (flights_.front().end > written_) moved_ns_ = now_ns;
    written_ += moved.bytes;
    count(counters_.sent_bytes, moved.bytes);
    size_t left = moved.bytes;
    while (!segments_.empty() && left >= segments_.front().bytes) {
      left -= segments_.front().bytes;
      if (segments_.front().payload != nullptr) payload_unsent_ = false;
      segments_.pop_front();
    }
    if (left != 0) {
      Segment& first = segments_.front();
      if (first.payload != nullptr) {
        first.payload += left;
      } else {
        first.offset += left;
      }
      first.bytes -= left;
    }
    if (segments_.empty()) text_.clear();
    if (moved.bytes < offered) return;
  }
}

void Connection::open_on(uint64_t now_ns) {
  const Stream::Stage stage = stream_.advance();
  if (stage == Stream::Stage::failed) return close(Ending::broken, stream_.problem());
  if (stage != Stream::Stage::open) return;
  state_ = State::entering;
  moved_ns_ = now_ns;
  Command command;
  if (!options_.place.password.empty()) {
    command.verb = Verb::auth;
    send(command, now_ns);
  }
  if (options_.place.db != 0) {
    command.verb = Verb::select;
    send(command, now_ns);
  }
  command.verb = Verb::ping;
  send(command, now_ns);
  flush(now_ns);
}

void Connection::enter_answer(const Command& command, const Reply& reply) {
  const bool error = reply.type == Reply::Type::error;
  const std::string_view word = error ? error_word(reply.text) : "";
  const bool let_in = command.verb == Verb::ping ? reply.is_text("PONG") : reply.is_text("OK");
  if (let_in) {
    if (command.verb != Verb::ping) return;
    state_ = State::ready;
    count(counters_.connects);
    return owner_.entered(*this);
  }
  if (!error) return close(Ending::insane, "what answers there is no Redis");
  const std::string said = " (it said " + std::string(word) + ")";
  if (command.verb == Verb::auth) {
    return close(Ending::broken, "the server refused the user or the password" + said);
  }
  if (command.verb == Verb::select) {
    return close(Ending::broken, "the server has no such database, or is a cluster" + said);
  }
  // A user without the right to PING is let in: what counts is what else it may do.
  if (word == "NOPERM") {
    state_ = State::ready;
    count(counters_.connects);
    return owner_.entered(*this);
  }
  if (word == "NOAUTH") return close(Ending::broken, "the server wants a password" + said);
  if (word == "LOADING") return close(Ending::broken, "the server is still loading its data");
  // A replica that lost its primary, for example, can still report the slot map.
  if (word == "MASTERDOWN") {
    state_ = State::ready;
    count(counters_.connects);
    return owner_.entered(*this);
  }
  close(Ending::broken, "the server lets nobody in" + said);
}

void Connection::answer(const Reply& reply, TierOutcome value, uint64_t now_ns) {
  Flight flight = flights_.front();
  flights_.pop_front();
  flight_cost_ -= flight.cost;
  head_ns_ = now_ns;
  if (state_ == State::entering) return enter_answer(flight.command, reply);
  owner_.answered(*this, flight.command, reply, value);
}

// Parses the received bytes. Returns false if the connection is closed.
bool Connection::parse(uint64_t now_ns) {
  while (!closed()) {
    if (in_value_) {
      while (begin_ < end_ && !value_.whole()) {
        const std::span<uint8_t> room = value_.room();
        const size_t some = std::min(room.size(), end_ - begin_);
        std::memcpy(room.data(), buffer_.data() + begin_, some);
        value_.took(some);
        begin_ += some;
      }
      if (!value_.whole()) return true;
      // Check it now, while its bytes are in the processor's caches.
      judged_ = value_.finish();
      in_value_ = false;
      parser_.end_bulk();
    }
    if (begin_ == end_) return true;
    if (flights_.empty()) {
      close(Ending::insane, "the server sent something that nothing had asked for");
      return false;
    }
    const Command& first = flights_.front().command;
    if (parser_.stage() == ReplyParser::Stage::ready ||
        parser_.stage() == ReplyParser::Stage::done) {
      parser_.want_bulk(first.verb == Verb::get);
      judged_ = TierOutcome::pending;
    }
    begin_ += parser_.feed({buffer_.data() + begin_, end_ - begin_});
    switch (parser_.stage()) {
      case ReplyParser::Stage::failed:
        close(Ending::insane, std::string("the reply is not RESP: ") + parser_.problem());
        return false;
      case ReplyParser::Stage::bulk:
        value_.begin(parser_.bulk_bytes(), first.job == nullptr ? nullptr : &first.of_item());
        in_value_ = true;
        break;
      case ReplyParser::Stage::done: answer(parser_.reply(), judged_, now_ns); break;
      case ReplyParser::Stage::ready:
      case ReplyParser::Stage::inside: break;
    }
  }
  return false;
}

// Returns false if there is nothing more for now.
bool Connection::read_some(uint64_t now_ns) {
  begin_ = end_ = 0;
  std::array<iovec, 2> parts;
  size_t used = 0;
  size_t direct = 0;
  size_t behind = buffer_.size();
  if (in_value_) {
    const std::span<uint8_t> room = value_.room();
    parts[used++] = {room.data(), room.size()};
    direct = room.size();
    behind = kBehindValueBytes;
  } else if (!flights_.empty() && flights_.front().cost > kSmallValueBytes) {
    behind = kBehindValueBytes;
  }
  parts[used++] = {buffer_.data(), behind};
  const Stream::Moved moved = stream_.read(std::span(parts).first(used));
  if (moved.io == Stream::Io::blocked) return false;
  if (moved.io != Stream::Io::some) {
    close(Ending::lost, moved.io == Stream::Io::closed
                            ? "the server closed the connection"
                            : "the connection was lost: " + stream_.problem());
    return false;
  }
  moved_ns_ = now_ns;
  count(counters_.received_bytes, moved.bytes);
  const size_t straight = std::min(direct, moved.bytes);
  if (straight != 0) value_.took(straight);
  end_ = moved.bytes - straight;
  // A plain socket that gave less than asked is empty; TLS returns one record at a time.
  return parse(now_ns) && (options_.place.tls || moved.bytes == direct + behind);
}

void Connection::work(uint64_t now_ns) {
  if (state_ == State::opening) {
    open_on(now_ns);
    if (state_ == State::opening) return;
  }
  if (closed()) return;
  flush(now_ns);
  const uint64_t until = counters_.received_bytes + kTurnBytes;
  more_ = false;
  while (!closed() && read_some(now_ns)) {
    if (counters_.received_bytes >= until) {
      more_ = stream_.pending();
      break;
    }
  }
}

bool Connection::overdue(uint64_t now_ns) const {
  const bool waiting = state_ != State::ready || !flights_.empty();
  if (closed() || !waiting) return false;
  // A trickle is progress, but not for ever.
  const bool still = now_ns >= moved_ns_ + options_.stall_ns;
  const bool slow = now_ns >= head_ns_ + 4 * options_.stall_ns;
  return still || slow;
}

void Connection::check_time(uint64_t now_ns) {
  if (!overdue(now_ns)) return;
  // Perhaps this process was asleep: read what has arrived before blaming the server.
  work(now_ns);
  if (!overdue(now_ns)) return;
  if (state_ != State::opening) {
    close(Ending::stalled, "the server does not answer in time");
  } else if (stream_.stage() == Stream::Stage::securing) {
    close(Ending::stalled, "no TLS in time (is it the server's port for TLS?)");
  } else {
    close(Ending::stalled, "no connection in time");
  }
}

}  // namespace stemma::tier::redis
