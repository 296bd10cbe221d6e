// Mistakes that the types must not allow. A compiler has to refuse each line that ends in
// "refused", and no other; tests/compile/run checks that. This file is never built.
#include <array>
#include <utility>

#include "base/lock.h"
#include "stemma/cache.h"
#include "stemma/lease.h"
#include "stemma/scope.h"
#include "stemma/sequence.h"
#include "stemma/tier/tier_stack.h"

namespace stemma {

// Numbers of different things are different types.
void numbers(BlockId block, SessionId session, TenantId tenant, SequenceId sequence, PinId pin) {
  BlockId from_number = 3;     // refused
  uint32_t to_number = block;  // refused
  session = tenant;            // refused
  sequence = block;            // refused
  block = sequence;            // refused
  pin = session;               // refused
  if (block < 3) return;       // refused
  const BlockId stated{3};
  const uint32_t asked = to_index(stated);
  (void)asked;
}

// A result is looked at before its value is used, and looking is done on purpose.
void results(Lease& lease, PagedCache& cache, Result<int> result) {
  lease.commit(3);       // refused
  cache.lease({}, {});   // refused
  lease.release();       // refused
  bool good = result;    // refused
  int value = result;    // refused
  Error error = result;  // refused
  if (result) value = *result;
  (void)lease.commit(3);
}

// What owns something is moved, never copied.
void owners(Lease& lease, Turn& turn, PagedCache& cache, SequenceCache& sequences) {
  Lease other_lease = lease;         // refused
  Turn other_turn = turn;            // refused
  PagedCache other_cache = cache;    // refused
  SequenceCache others = sequences;  // refused
  lease = other_lease;               // refused
  Lease moved = std::move(lease);
  turn = Turn();
}

// A scope is made from all that it depends on: nobody gets an empty one by accident.
void scopes(const std::array<uint8_t, 32>& digest) {
  Scope empty;                 // refused
  Scope from_bytes{digest};    // refused
  Scope from_text = "tenant";  // refused
  const Scope known = Scope::from_digest(digest);
  (void)known;
}

// Only a cache makes leases and turns.
void makers() {
  Lease lease(nullptr, nullptr);  // refused
  Turn turn(nullptr, nullptr);    // refused
  PagedCache cache;               // refused
  Lease nothing;
  Turn none;
}

// Modes are words, and no mode is another's.
void modes(tier::StackLevel& level, EntryKind kind) {
  level.write = true;                      // refused
  level.write = tier::Sighting::computed;  // refused
  kind = TierOp::put;                      // refused
  level.write = tier::WritePolicy::write_back;
}

// A lock is held by one owner, and is not given away.
void locks(base::WaitMutex& mutex) {
  base::Lock lock(mutex);
  base::Lock other = lock;              // refused
  base::Lock stolen = std::move(lock);  // refused
  base::Lock implied = mutex;           // refused
}

}  // namespace stemma
