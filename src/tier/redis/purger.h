// Removes entries from a Redis server or cluster: SCAN for their names on every primary, the header
// of each (GETRANGE), and UNLINK of those that the purge takes.
//
// It has its own connections, one a primary, so that nothing else waits for it. A cluster is
// scanned until a pass finds nothing, because a key may move to a node that was already scanned.
// Every purge removes entries of the previous version: their keys do not tell their scope. If names
// alone decide, entries of a newer version go too; otherwise they stay, and the answer is not
// complete.
//
// Threading:  works on the calling thread, until `until_ns` at most.
// Errors:     in the answer: it is complete only if every primary was scanned to the end and
//             removed all it was told to.
// Cost:       two SCANs for 2,000 names, two small commands for each entry examined.
#pragma once

#include <memory>

#include "stemma/tier/redis_tier.h"
#include "tier/redis/stream.h"

namespace stemma::tier::redis {

Purged purge(const RedisOptions& options, const std::shared_ptr<TlsContext>& tls, const Purge& what,
             uint64_t until_ns);

}  // namespace stemma::tier::redis
