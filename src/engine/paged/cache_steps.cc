// Where the engine meets the cache: lease, copy, read tables, commit, save states, release.
#include "engine/paged/engine.h"

namespace stemma::paged {

Result<Lease> Engine::take_lease(const Request& request, const LeaseOptions& options) {
  return cache_.lease(adapter(request).scope, request.text.prompt(), options);
}

Result<void> Engine::carry_out_copies(Request& request) {
  if (request.lease.copies().empty()) return {};
  for (const BlockCopy& copy : request.lease.copies()) {
    if (copy.target == kNoBlock) {
      arena_.load_state(copy.group, copy.source, request.state[copy.group]);
      ++counts_.checkpoints_loaded;
    } else {
      ++counts_.part_copies;
    }
  }
  // Copies the part-blocks through Options::block_io and settles both.
  const Result<void> done = request.lease.run_copies();
  if (done || done.error().code() != Errc::copy_failed) return done;
  ++counts_.copies_failed;
  // The lease has stepped back to where it stands without copies. A state is right at one depth
  // only, so recurrent layers go back to the beginning.
  request.state = fresh_state(arena_.layout());
  return {};
}

void Engine::read_tables(Request& request) {
  request.tables.resize(arena_.layout().groups.size());
  for (GroupIndex g = 0; g < request.tables.size(); ++g) {
    if (arena_.layout().recurrent(g)) continue;
    request.tables[g].resize(request.lease.block_count(g));
    request.lease.block_table(g, request.tables[g], kNoBlock).value();
  }
}

void Engine::commit(Request& request) {
  const Commit done = request.lease.commit(request.computed).value();
  counts_.duplicates += done.duplicates;
  // Another request computed the same and was first. Its blocks are as good as ours.
  if (done.duplicates != 0 && options_.adopt_canonical) request.lease.adopt_canonical();
}

void Engine::save_checkpoint(Request& request) {
  if (!request.spec.lease.lookup.write) return;
  request.checkpoint_slots.resize(arena_.layout().groups.size());
  for (GroupIndex g = 0; g < arena_.layout().groups.size(); ++g) {
    if (!arena_.layout().recurrent(g)) continue;
    std::optional<BlockId>& slot = request.checkpoint_slots[g];
    if (!slot) {
      const Result<BlockId> drafted = request.lease.draft_checkpoint(g);
      if (!drafted) return;  // No slot is free just now: a checkpoint is a favour, not a duty.
      slot = *drafted;
    }
    arena_.save_state(g, *slot, request.state[g]);
    if (!request.lease.commit_checkpoint(g, request.computed)) return;  // Keeps the slot.
    slot.reset();
    ++counts_.checkpoints_saved;
  }
}

void Engine::end_lease(Request& request, const Retain* retain, Fence* fence) {
  request.lease.release({.retain = retain, .fence = fence}).value();
  request.lease = {};
}

}  // namespace stemma::paged
