// RedisTier: entries in a Redis or Valkey, one server or a cluster, shared by whoever knows its URL.
//
// One key per entry, its value the entry as docs/formats/tier-entry.md draws it; names and commands are
// in docs/formats/redis-tier.md. The server owns eviction and durability: `durable` promises no more than
// an acknowledged write does there. Every reply is untrusted; what is not an entry with the right key and
// checksum is a miss, and removed. A good entry of another layout is a miss, and stays.
//
// All sockets are served by one thread. Commands of a batch are pipelined, per node, on connections of
// two lanes, so that a question does not stand behind megabytes:
//
//   submit() --> inbox --> per node and lane: queue --> in flight, in order --> reply --> item ends
//                             ^                              |
//                             '-- MOVED, ASK, TRYAGAIN, connection lost: again, a few times
//
// A value goes from the caller's memory to the socket and from the socket to the caller's memory; only
// the first bytes of a reply pass through a buffer of ours. A get whose time is over is cut loose, and
// the rest of its reply is thrown away; a put that is half on its way takes its connection with it.
//
// Each node has a circuit breaker: when it cannot be reached, lets nobody in, stalls or talks nonsense,
// whatever waits for it ends as failed, and so does everything new, until a probe (connect, log in, ask
// for the slots) succeeds; probes come at growing, jittered intervals. So a dead node costs one bounded
// wait, then nothing.
//
// A purge waits for puts that were cut off by their deadlines and are still without an answer. After a put's
// connection broke, a purge of its scope is not complete for `settle_ns`: the server may still carry the put out. Of
// puts that other processes have under way nobody here knows: stop the tenant's requests there first, or purge
// again. Entries of earlier versions go with every purge, whosever they are.
//
// Threading:  thread-safe. on_done runs on the tier's own thread.
// Ownership:  of a batch as tier.h says: until it is finished its bytes are used.
// Cost:       a contains of any number of keys is one round trip per node; a put first asks whether the
//             entry is there (docs/decisions/0018-redis-asks-before-it-writes.md); a checksum is a pass over the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/redis_url.h"
#include "stemma/result.h"
#include "stemma/tier.h"

namespace stemma::tier::redis {

struct RedisOptions {
  Place place;  // parse_url() makes one.

  // Larger values cost a server several times the CPU.
  uint64_t max_entry_bytes = uint64_t{4} << 20;
  uint32_t bulk_connections = 1;  // Per node, for gets and puts; one more for the rest.
  // How long to wait for a connection, and for a server that has something to answer and sends nothing.
  uint64_t stall_ns = 1'000'000'000;
  // The breaker's first interval and its longest; each is drawn between a half and all of it.
  uint64_t probe_first_ns = 100'000'000;
  uint64_t probe_longest_ns = 5'000'000'000;
  // In flight on one connection; at least one command is, and two gets, however large. A server copies what
  // is asked for ahead of being read: with much of it, it is several times slower.
  uint64_t flight_bytes = uint64_t{32} << 20;
  uint64_t get_flight_bytes = uint64_t{4} << 20;
  uint32_t flight_commands = 8'192;
  // Items that were submitted and have not ended; further ones end as failed.
  size_t most_items = size_t{1} << 18;
  // A put that was sent on a connection that broke may be carried out by the server up to so much
  // later. A purge waits for that.
  uint64_t settle_ns = 5'000'000'000;
  uint64_t seed = 0;  // Of the jitter; 0: another one each time.
};

// Since the tier was made.
struct RedisCounters {
  uint64_t connects = 0;     // Connections that got as far as being let in.
  uint64_t drops = 0;        // Connections lost or given up.
  uint64_t breaks = 0;       // Times that a breaker opened.
  uint64_t redirects = 0;    // MOVED and ASK that were followed.
  uint64_t map_reads = 0;    // Slot maps read.
  uint64_t commands = 0;     // Sent, of any kind.
  uint64_t round_trips = 0;  // Times that a connection with nothing in flight was sent something.
  uint64_t sent_bytes = 0, received_bytes = 0;
};

class RedisTier : public Tier {
 public:
  // Does not wait for the server: a tier whose server is away is one that fails fast until it comes.
  // Error: invalid_argument (an option, a certificate that cannot be read), unsupported (rediss:// in a
  // build without TLS), out_of_memory.
  static Result<std::unique_ptr<RedisTier>> create(const RedisOptions& options);

  // Until the slot map is known or every way in has failed once; says whether the tier can be asked.
  virtual bool wait_ready(uint64_t until_ns) = 0;
  // What keeps a node from being asked now, for an operator, one line per node; empty when nothing does. Never
  // holds a password.
  virtual std::string problem() const = 0;
  virtual RedisCounters counters() const = 0;
};

// Whether this build has rediss://.
bool has_tls() noexcept;

}  // namespace stemma::tier::redis
