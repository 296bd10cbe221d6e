// RedisTier: entries in a Redis or Valkey, one server or a cluster, shared by all who know its URL.
//
// Each entry is one key; its value is the entry as docs/formats/tier-entry.md draws it. Names and
// commands are in docs/formats/redis-tier.md. The server owns eviction and durability: `durable`
// promises no more than its acknowledged write. Every reply is untrusted: a value that is not an
// entry with the right key and checksum is a miss, and is removed. A good entry of another layout
// is a miss, and stays.
//
// One thread serves all sockets. A batch's commands are pipelined, per node, on connections of two
// lanes, so that a short question does not queue behind megabytes:
//
//   submit() --> inbox --> per node and lane: queue --> in flight, in order --> reply --> item ends
//                             ^                              |
//                             '-- MOVED, ASK, TRYAGAIN, connection lost: again, a few times
//
// A value goes from the caller's memory to the socket and from the socket to the caller's memory;
// only the first bytes of a reply pass through a buffer of ours. A get past its deadline is
// detached, and the rest of its reply is thrown away; a put past its deadline that is half sent
// closes its connection.
//
// Each node has a circuit breaker: when the node cannot be reached, refuses the login, stalls or
// sends nonsense, all items for it end as failed, waiting or new, until a probe (connect, log in,
// ask for the slots) succeeds. Probes come at growing, jittered intervals. So a dead node costs one
// bounded wait, then nothing.
//
// A purge waits for puts that passed their deadlines and have no answer yet. After a put's
// connection broke, a purge of its scope is not complete for `settle_ns`: the server may still
// carry the put out. The tier cannot see puts under way in other processes: stop the tenant's
// requests there first, or purge again. Entries of earlier versions go with every purge, whatever
// their scope.
//
// Threading:  thread-safe. on_done runs on the tier's own thread.
// Ownership:  a batch's bytes are used until it is finished, as tier.h says.
// Cost:       a contains of any number of keys is one round trip per node; a put first asks whether
//             the entry is there (docs/decisions/0018-redis-asks-before-it-writes.md); a checksum
//             takes one pass over the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/result.h"
#include "stemma/tier/redis_url.h"
#include "stemma/tier/tier.h"

namespace stemma::tier::redis {

struct RedisOptions {
  Place place;  // parse_url() makes one.

  // Larger values cost a server several times the CPU.
  uint64_t max_entry_bytes = uint64_t{4} << 20;
  // Connections for gets and puts, per node. Each node has one more, for all other commands.
  uint32_t bulk_connections = 1;
  // How long to wait for a connection, and for a server that owes an answer and sends nothing.
  uint64_t stall_ns = 1'000'000'000;
  // The breaker's first and longest interval; each wait is drawn between half of it and all of it.
  uint64_t probe_first_ns = 100'000'000;
  uint64_t probe_longest_ns = 5'000'000'000;
  // Limits in flight on one connection; one command and two gets are always allowed, however large.
  // A server copies replies before they are read: with many of them it is several times slower.
  uint64_t flight_bytes = uint64_t{32} << 20;
  uint64_t get_flight_bytes = uint64_t{4} << 20;
  uint32_t flight_commands = 8'192;
  // How many submitted items may be under way; further items fail.
  size_t most_items = size_t{1} << 18;
  // How long a server may take to carry out a put after its connection broke. A purge waits for
  // that.
  uint64_t settle_ns = 5'000'000'000;
  uint64_t seed = 0;  // The seed of the jitter; 0: a different one each time.
};

// Since the tier was made.
struct RedisCounters {
  uint64_t connects = 0;     // Connections that logged in.
  uint64_t drops = 0;        // Connections lost or given up.
  uint64_t breaks = 0;       // Times that a breaker opened.
  uint64_t redirects = 0;    // MOVED and ASK that were followed.
  uint64_t map_reads = 0;    // Slot maps read.
  uint64_t commands = 0;     // Sent, of any kind.
  uint64_t round_trips = 0;  // Sends on a connection with nothing in flight.
  uint64_t sent_bytes = 0, received_bytes = 0;
};

class RedisTier : public Tier {
 public:
  // Does not wait for the server: if it is away, the tier fails fast until it comes.
  // Error: invalid_argument (an option, a certificate that cannot be read), unsupported (rediss://
  // in a build without TLS), out_of_memory.
  static Result<std::unique_ptr<RedisTier>> create(const RedisOptions& options);

  // Waits until the slot map is known or every host has failed once. Returns whether the tier is
  // usable.
  virtual bool wait_ready(uint64_t until_ns) = 0;
  // For an operator: why nodes cannot be asked now, one line per node; empty if all can. Never
  // holds a password.
  virtual std::string problem() const = 0;
  virtual RedisCounters counters() const = 0;
};

// Whether this build supports rediss://.
bool has_tls() noexcept;

}  // namespace stemma::tier::redis
