// Removes entries from a Redis server or cluster: SCAN for their names on every primary, the header
// of each (GETRANGE), and UNLINK of those that the purge takes.
//
// It has connections of its own, one a primary, so that nothing else waits for it. A cluster is
// scanned until a pass finds nothing, because a key may move to a node that was scanned already.
// Entries of the version before go with every purge: their keys do not tell whose they are. Where names
// tell all, entries of a newer version go as well; otherwise they stay, and the answer is not complete.
//
// Threading:  works on the calling thread, which waits until `until_ns` at most.
// Errors:     in the answer: it is complete only if every primary was scanned to the end and
//             removed all that it was told.
// Cost:       two SCANs for 2,000 names, two small commands for each entry that is looked at.
#pragma once

#include <memory>

#include "stemma/redis_tier.h"
#include "tier/redis/stream.h"

namespace stemma::tier::redis {

Purged purge(const RedisOptions& options, const std::shared_ptr<TlsContext>& tls, const Purge& what,
             uint64_t until_ns);

}  // namespace stemma::tier::redis
