// Connection: commands out, replies in, in order, over one Stream.
//
//   opening (connect, TLS) --> entering (AUTH, SELECT, PING) --> ready --> closed
//                 '----------------------'------------------------'
//
// Payloads are sent without copying. At most one is being sent at a time, and only after everything
// else is sent, so that any other item can be detached at its deadline.
//
// Threading:  one thread at a time, the tier's.
// Ownership:  the memory of a command's item is used until the command ends or the item is
//             detached; a closed connection uses none.
// Cost:       one write and one read per some hundred KiB; see stream.h.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "stemma/tier/redis_tier.h"
#include "tier/redis/command.h"
#include "tier/redis/resp.h"
#include "tier/redis/stream.h"
#include "tier/redis/value_reader.h"

namespace stemma::tier::redis {

class Connection;

// Hears what happens on a connection. Inside a call it may send() and detach items, and close() as
// the last thing there.
class ConnectionOwner {
 public:
  // The command is no longer in flight. `value` is the outcome for a GET's value; `pending` for
  // every other reply.
  virtual void answered(Connection& from, Command& command, const Reply& reply,
                        TierOutcome value) = 0;
  virtual void entered(Connection& connection) = 0;

 protected:
  ~ConnectionOwner() = default;
};

// Why a connection ended; this decides what happens to the commands in flight.
enum class Ending : uint8_t {
  none,
  lost,      // The other side closed it: another one may retry.
  broken,    // It could not be opened or log in.
  stalled,   // No answer in time.
  insane,    // Not RESP, or not an answer to the command.
  given_up,  // By us.
};

class Connection {
 public:
  Connection(const RedisOptions& options, const Address& address, std::shared_ptr<TlsContext> tls,
             std::shared_ptr<Wakeup> wakeup, RedisCounters& counters, ConnectionOwner& owner,
             uint64_t now_ns);

  bool ready() const noexcept { return state_ == State::ready; }
  bool closed() const noexcept { return state_ == State::closed; }
  Ending ending() const noexcept { return ending_; }
  // Of an ended connection; for an operator.
  const std::string& problem() const noexcept { return problem_; }

  // From now on, asks for at most this many bytes at once; two gets may always be in flight.
  void limit_gets(uint64_t bytes) noexcept { most_get_bytes_ = bytes; }
  // Whether this command may be sent now: within the limits, and no payload is unsent.
  bool has_room(const Command& command) const;
  // Requires ready() and has_room(). flush() sends the bytes.
  void send(const Command& command, uint64_t now_ns);
  void flush(uint64_t now_ns);

  // The descriptor to watch (it may change while opening), and whether to watch for writing.
  int fd() const noexcept { return stream_.fd(); }
  uint32_t sockets() const noexcept { return stream_.sockets(); }
  bool wants_write() const noexcept;
  // Call when something happened, or may have.
  void work(uint64_t now_ns);
  // Closes a stalled connection.
  void check_time(uint64_t now_ns);
  // There is more to read that no event will announce.
  bool has_more() const noexcept { return !closed() && more_; }

  // Detaches the job's items in flight, and calls `ended(command, sent)` for each, where `sent`
  // says whether all of it was sent. A put that is half sent closes the connection.
  template <class Ended>
  void cut_loose(const Job* job, Ended ended);
  bool idle() const noexcept { return flights_.empty(); }

  // Takes the commands in flight, in order, for the owner to handle, and whether each was sent
  // whole: a server does not carry out half a command. Requires closed().
  template <class Taker>
  void take_flights(Taker taker) {
    while (!flights_.empty()) {
      const Flight flight = flights_.front();
      flights_.pop_front();
      taker(flight.command, flight.end <= written_);
    }
  }
  void close(Ending ending, std::string problem);

  // The descriptor that the owner registered.
  int watched_fd = -1;
  uint32_t watched_socket = 0;
  uint32_t watched_events = 0;
  uint32_t node = 0;
  bool bulk_lane = false;

 private:
  enum class State : uint8_t { opening, entering, ready, closed };
  struct Flight {
    Command command;
    uint64_t end;   // Where its last byte ends in the stream.
    uint64_t cost;  // Of flight_bytes.
  };
  struct Segment {
    const uint8_t* payload;  // nullptr: text_ from `offset` on.
    size_t offset, bytes;
  };

  bool overdue(uint64_t now_ns) const;
  void open_on(uint64_t now_ns);
  void encode(const Command& command);
  void encode_set(const Command& command);
  void text(std::string_view bytes);
  void argument(std::string_view bytes);
  bool read_some(uint64_t now_ns);
  bool parse(uint64_t now_ns);
  void answer(const Reply& reply, TierOutcome value, uint64_t now_ns);
  void enter_answer(const Command& command, const Reply& reply);
  uint64_t cost_of(const Command& command) const;
  uint64_t unsent() const noexcept { return encoded_ - written_; }

  const RedisOptions& options_;
  const Address address_;
  RedisCounters& counters_;
  ConnectionOwner& owner_;
  Stream stream_;
  State state_ = State::opening;
  Ending ending_ = Ending::none;
  std::string problem_;

  std::deque<Flight> flights_;
  uint64_t flight_cost_ = 0;
  uint64_t most_get_bytes_ = ~uint64_t{0};
  std::string text_;  // Unsent text; holds the segments one after another.
  std::deque<Segment> segments_;
  uint64_t encoded_ = 0, written_ = 0;
  bool payload_unsent_ = false;

  std::array<char, 16'384> buffer_;
  size_t begin_ = 0, end_ = 0;  // Received, not yet parsed.
  ReplyParser parser_;
  ValueReader value_;
  bool in_value_ = false;
  TierOutcome judged_ = TierOutcome::pending;
  bool more_ = false;

  uint64_t moved_ns_;  // When bytes last moved.
  uint64_t head_ns_;   // When the first command in flight became first.
};

template <class Ended>
void Connection::cut_loose(const Job* job, Ended ended) {
  bool half_sent = false;
  for (size_t i = 0; i < flights_.size(); ++i) {
    Command& command = flights_[i].command;
    if (command.job != job) continue;
    const bool sent = flights_[i].end <= written_;
    if (command.verb == Verb::set && !sent) half_sent = true;
    if (i == 0 && in_value_) value_.cut_loose();
    const Command was = command;
    command.job = nullptr;
    // Last: it may end the job.
    ended(was, sent);
  }
  if (half_sent) close(Ending::given_up, "a put's time was over while it was being sent");
}

}  // namespace stemma::tier::redis
