// Into the tiers: stores what a lease has committed.
#include <algorithm>
#include <new>

#include "tier/block_tiers.h"
#include "tier/transfers.h"

namespace stemma::tier {

struct BlockTiers::Capture {
  GroupIndex group = 0;
  BlockId block = kNoBlock;
  StoreItem item;
  LevelMask levels = 0;
  std::shared_ptr<Payload> room;
};

Result<std::vector<BlockTiers::Capture>> BlockTiers::captures(const Prompt& prompt,
                                                              PromptKeys& keys,
                                                              const LeasePort& lease, uint32_t from,
                                                              uint32_t end, Priority priority) {
  std::vector<Capture> captures;
  for (GroupIndex g = 0; g < grid_.groups.size(); ++g) {
    if (grid_.reaches[g].kind == tree::Reach::recurrent) continue;
    const uint32_t tokens = grid_.block_tokens(g);
    const std::vector<BlockId> table = lease.blocks(g);
    const auto blocks = std::min(end / tokens, static_cast<uint32_t>(table.size()));
    const std::span<const ContentKey> chain = keys.chain(tokens, blocks);
    for (uint32_t b = (from + tokens - 1) / tokens; b < blocks; ++b) {
      if (table[b] == kNoBlock) continue;  // Behind the window: no longer the lease's.
      Capture one;
      one.item.key = grid_.key(g, chain[b]);
      one.item.info = grid_.info(g, b);
      const bool again = one.item.info.end <= lease.reused();
      one.levels = stack_.wanting(one.item.key, again ? Sighting::used_again : Sighting::computed);
      if (one.levels == 0) continue;
      one.group = g;
      one.block = table[b];
      // Positions of media have no words that others could read.
      if (options_.keep_words && prompt.media.empty()) {
        const auto words = prompt.tokens.subspan(one.item.info.begin, tokens);
        one.item.words.assign(words.begin(), words.end());
        one.item.info.words = tokens;
      }
      one.item.priority = priority;
      one.room = stack_.make_payload(one.item.info.bytes);
      if (one.room == nullptr) return Error(Errc::out_of_memory, "no memory to store a block");
      one.item.payload = one.room;
      captures.push_back(std::move(one));
    }
  }
  return captures;
}

Result<uint32_t> BlockTiers::store_checkpoints(GroupIndex group, PromptKeys& keys,
                                               const LeasePort& lease, uint32_t from, uint32_t end,
                                               Priority priority) {
  uint32_t stored = 0;
  for (uint32_t at_most = end; at_most > from;) {
    STEMMA_TRY(const Checkpoint held, lease.hold_checkpoint(group, at_most));
    if (held.depth <= from) break;
    at_most = held.depth - 1;
    // At other depths, no other group has a block that ends there.
    if (held.depth % grid_.unit_tokens != 0) continue;
    const uint32_t unit = held.depth / grid_.unit_tokens - 1;
    StoreItem item;
    item.key = grid_.key(group, keys.chain(grid_.unit_tokens, unit + 1)[unit]);
    item.info = grid_.info(group, unit);
    item.priority = priority;
    const bool again = held.depth <= lease.reused();
    const LevelMask levels =
        stack_.wanting(item.key, again ? Sighting::used_again : Sighting::computed);
    if (levels == 0) continue;
    const std::shared_ptr<Payload> room = stack_.make_payload(item.info.bytes);
    if (room == nullptr) return Error(Errc::out_of_memory, "no memory to store a checkpoint");
    // One at a time: a lease holds one checkpoint of a group at a time.
    Transfers read(1);
    options_.io->read(group, std::span(&held.slot, 1), room->span(), &Transfers::done, read.one(0));
    read.wait();
    if (!read.good(0)) {
      return Error(Errc::copy_failed, "the engine could not read a checkpoint to be stored",
                   held.depth);
    }
    item.payload = room;
    stack_.store(item, levels);
    ++stored;
  }
  return stored;
}

uint32_t BlockTiers::hand_over(std::span<const Capture> captures, size_t& bad) {
  Transfers transfers(captures.size());
  for (size_t i = 0; i < captures.size(); ++i) {
    options_.io->read(captures[i].group, std::span(&captures[i].block, 1), captures[i].room->span(),
                      &Transfers::done, transfers.one(i));
  }
  transfers.wait();
  uint32_t stored = 0;
  bad = captures.size();
  for (size_t i = captures.size(); i-- > 0;) {
    if (!transfers.good(i)) bad = i;
  }
  for (size_t i = 0; i < captures.size(); ++i) {
    if (!transfers.good(i)) continue;
    stack_.store(captures[i].item, captures[i].levels);
    ++stored;
  }
  return stored;
}

Result<uint32_t> BlockTiers::store(const Scope& scope, const Prompt& prompt, const LeasePort& lease,
                                   uint32_t from, Priority priority) try {
  const Passage passage(*this);
  if (is_forgetting(owner_of(scope))) return 0U;
  const uint32_t end = std::min(lease.committed(), static_cast<uint32_t>(prompt.tokens.size()));
  STEMMA_TRY(PromptKeys keys, PromptKeys::of(scope, prompt));
  STEMMA_TRY(std::vector<Capture> captures,
             this->captures(prompt, keys, lease, from, end, priority));
  size_t bad = 0;
  uint32_t stored = hand_over(captures, bad);
  if (bad < captures.size()) {
    return Error(Errc::copy_failed, "the engine could not read a block that was to be stored",
                 captures[bad].item.info.begin / grid_.block_tokens(captures[bad].group));
  }
  for (GroupIndex g = 0; g < grid_.groups.size(); ++g) {
    if (grid_.reaches[g].kind != tree::Reach::recurrent) continue;
    const Result<uint32_t> checkpoints = store_checkpoints(g, keys, lease, from, end, priority);
    static_cast<void>(lease.hold_checkpoint(g, 0));  // Lets go of the last one.
    if (!checkpoints) return checkpoints.error();
    stored += *checkpoints;
  }
  return stored;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to store blocks");
}

// ---- What goes to make room --------------------------------------------------------------------

Result<uint32_t> BlockTiers::make_room(CachePort& cache, uint32_t positions) try {
  // A block is not free while it is read, and its copy takes memory: a little at a time.
  constexpr uint64_t kMostBytes = 16U << 20U;
  constexpr uint64_t kMostBlocks = 64;
  if (!writes_back_) return 0U;
  const Passage passage(*this);
  uint64_t bytes = 1;
  for (const GroupOptions& group : grid_.groups) bytes = std::max(bytes, group.block_bytes);
  const auto most = static_cast<uint32_t>(std::clamp<uint64_t>(kMostBytes / bytes, 1, kMostBlocks));
  uint32_t wanted = 0, stored = 0;
  const CachePort::Save save = [&](std::span<const Outgoing> blocks) {
    std::vector<Capture> captures;
    for (const Outgoing& from : blocks) {
      Capture one;
      one.group = from.group;
      one.block = from.block;
      one.item.key = grid_.key(from.group, from.key);
      one.item.info = grid_.info(from.group, from.end / grid_.block_tokens(from.group) - 1);
      one.item.sighting = Sighting::evicted;
      if (is_forgetting(owner_of(one.item.key))) continue;
      one.levels = stack_.wanting(one.item.key, one.item.sighting);
      if (one.levels == 0) continue;
      if (options_.keep_words && !from.words.empty()) {
        one.item.words.assign(from.words.begin(), from.words.end());
        one.item.info.words = static_cast<uint32_t>(from.words.size());
      }
      ++wanted;
      one.room = stack_.make_payload(one.item.info.bytes);
      if (one.room == nullptr) continue;
      one.item.payload = one.room;
      captures.push_back(std::move(one));
    }
    size_t bad = 0;
    stored += hand_over(captures, bad);
  };
  for (uint32_t went = 1; went != 0;) {
    STEMMA_TRY(went, cache.reclaim(positions, most, save));
  }
  if (stored < wanted) {
    return Error(Errc::copy_failed, "blocks that had to go could not be read, and are lost",
                 wanted - stored);
  }
  return stored;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to write blocks back");
}

}  // namespace stemma::tier
