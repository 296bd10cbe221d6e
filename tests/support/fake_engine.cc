#include "support/fake_engine.h"

#include <algorithm>
#include <cstring>

#include "base/random.h"

namespace stemma::test {
namespace {

constexpr uint64_t kMediaBit = uint64_t{1} << 63;

uint64_t identity_of(std::span<const MediaItem> parts, uint32_t begin) {
  uint64_t hash = parts.size();
  for (const MediaItem& part : parts) {
    uint64_t low, high;
    std::memcpy(&low, part.digest.data(), 8);
    std::memcpy(&high, part.digest.data() + 8, 8);
    for (const uint64_t field :
         {low, high, uint64_t{part.offset - begin}, uint64_t{part.length},
          uint64_t{static_cast<uint8_t>(part.kind)}, uint64_t{part.causal}}) {
      hash = base::mix(hash, field);
    }
  }
  return hash | kMediaBit;
}

std::string place(GroupIndex group, uint32_t position) {
  return "group " + std::to_string(group) + ", position " + std::to_string(position);
}

}  // namespace

// ---- Story --------------------------------------------------------------------------------------

Story::Story(uint64_t scope, const Prompt& prompt) : Story(scope) {
  size_t item = 0;
  for (uint32_t p = 0; p < prompt.tokens.size();) {
    if (item == prompt.media.size() || prompt.media[item].offset != p) {
      push(prompt.tokens[p++], true);
      continue;
    }
    // This item and every later item that overlaps those before it.
    const size_t first = item;
    uint32_t end = p;
    do {
      end = std::max(end, prompt.media[item].offset + prompt.media[item].length);
      ++item;
    } while (item < prompt.media.size() && prompt.media[item].offset < end);
    const uint64_t word = identity_of(prompt.media.subspan(first, item - first), p);
    for (const uint32_t begin = p; p < end; ++p) push(word, p == begin);
  }
}

void Story::append(std::span<const Token> tokens) {
  for (const Token token : tokens) push(token, true);
}

void Story::cut(uint32_t n) {
  if (!is_border(n)) {
    for (uint32_t p = n; begins_unit_[p] == 0; --p) begins_unit_[p] = 1;
  }
  words_.resize(n);
  begins_unit_.resize(n);
  hashes_.resize(n + 1);
}

uint32_t Story::floor(uint32_t n) const {
  n = std::min(n, size());
  while (!is_border(n)) --n;
  return n;
}

bool Story::media_begins(uint32_t n) const {
  return n < size() && (words_[n] & kMediaBit) != 0 && begins_unit_[n] != 0;
}

void Story::push(uint64_t word, bool begins_unit) {
  words_.push_back(word);
  begins_unit_.push_back(begins_unit);
  hashes_.push_back(base::mix(hashes_.back(), word));
}

// ---- FakeEngine ---------------------------------------------------------------------------------

FakeEngine::FakeEngine(std::span<const GroupOptions> groups) {
  for (const GroupOptions& options : groups) {
    Group group{.options = options, .stride = 1, .stamps = nullptr};
    if (options.attention != Attention::recurrent) group.stride = options.block_tokens;
    const size_t stamps = size_t{options.capacity_blocks} * group.stride;
    group.stamps = std::make_unique<std::atomic<uint64_t>[]>(stamps);
    for (size_t i = 0; i < stamps; ++i) group.stamps[i].store(0, std::memory_order_relaxed);
    groups_.push_back(std::move(group));
  }
}

FakeEngine::~FakeEngine() = default;

uint64_t FakeEngine::stamp(const Story& story, GroupIndex group, uint32_t position) {
  return base::mix(story.hash(position + 1), (uint64_t{group} << 32) | position);
}

uint64_t FakeEngine::state(const Story& story, GroupIndex group, uint32_t depth) {
  return base::mix(story.hash(depth), (uint64_t{group + kMaxGroups} << 32) | depth);
}

std::atomic<uint64_t>& FakeEngine::at(GroupIndex group, uint64_t slot) const {
  const Group& g = groups_.at(group);
  if (slot >= uint64_t{g.options.capacity_blocks} * g.stride) {
    fail_unchecked_result(Error(Errc::out_of_range, "a slot outside the engine's memory",
                                static_cast<uint32_t>(slot)));
  }
  return g.stamps[slot];
}

uint64_t FakeEngine::garbage() {
  return base::mix(~garbage_.fetch_add(1, std::memory_order_relaxed));
}

std::vector<int64_t> FakeEngine::slots(const Lease& lease, GroupIndex group, uint32_t begin,
                                       uint32_t end) const {
  std::vector<int64_t> out(end - begin);
  if (!out.empty()) lease.slot_mapping(group, begin, out).value();
  return out;
}

void FakeEngine::poison_block(GroupIndex group, BlockId block) {
  const uint64_t stride = groups_.at(group).stride;
  for (uint32_t p = 0; p < stride; ++p) {
    at(group, to_index(block) * stride + p).store(garbage(), std::memory_order_relaxed);
  }
}

FakeEngine::Tables FakeEngine::tables(const Lease& lease) const {
  Tables tables(groups_.size());
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (groups_[g].options.attention == Attention::recurrent) continue;
    tables[g].resize(lease.block_count(g));
    lease.block_table(g, tables[g], kNoBlock).value();
  }
  return tables;
}

void FakeEngine::poison(const Lease& lease, uint32_t begin) {
  const Tables now = tables(lease);
  for (GroupIndex g = 0; g < now.size(); ++g) {
    const uint32_t stride = groups_[g].stride;
    for (size_t i = begin / stride; i < now[g].size(); ++i) {
      const BlockId block = now[g][i];
      if (block == kNoBlock) continue;
      const bool copied = std::ranges::any_of(lease.copies(), [&](const BlockCopy& copy) {
        return copy.group == g && copy.target == block;
      });
      // A block that was taken over already has its first positions.
      const bool first = i == begin / stride && !copied;
      for (uint32_t p = first ? begin % stride : 0; p < stride; ++p) {
        at(g, to_index(block) * uint64_t{stride} + p).store(garbage(), std::memory_order_relaxed);
      }
    }
  }
}

void FakeEngine::poison_new(const Lease& lease, const Tables& before) {
  const Tables now = tables(lease);
  for (GroupIndex g = 0; g < now.size(); ++g) {
    for (size_t i = lease.committed() / groups_[g].stride; i < now[g].size(); ++i) {
      const BlockId block = now[g][i];
      if (block != kNoBlock && std::ranges::count(before[g], block) == 0) poison_block(g, block);
    }
  }
}

void FakeEngine::write(const Lease& lease, GroupIndex group, uint32_t begin, uint32_t end,
                       const Story& story) {
  const std::vector<int64_t> places = slots(lease, group, begin, end);
  for (uint32_t p = begin; p < end; ++p) {
    const int64_t slot = places[p - begin];
    if (slot < 0)
      continue;  // Already out of a window's reach: verify() knows whether that is right.
    at(group, static_cast<uint64_t>(slot)).store(stamp(story, group, p), std::memory_order_relaxed);
  }
}

void FakeEngine::compute(const Lease& lease, uint32_t begin, uint32_t end, const Story& story) {
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (groups_[g].options.attention != Attention::recurrent) write(lease, g, begin, end, story);
  }
}

void FakeEngine::copy(const BlockCopy& copy) {
  if (copy.target == kNoBlock) return;
  const uint64_t stride = groups_.at(copy.group).stride;
  for (uint32_t p = 0; p < copy.tokens; ++p) {
    const uint64_t value =
        at(copy.group, to_index(copy.source) * stride + p).load(std::memory_order_relaxed);
    at(copy.group, to_index(copy.target) * stride + p).store(value, std::memory_order_relaxed);
  }
}

std::string FakeEngine::load(std::span<const BlockCopy> copies, const Story& story,
                             uint32_t depth) {
  for (const BlockCopy& c : copies) {
    copy(c);
    if (c.target != kNoBlock) continue;
    const uint64_t loaded = at(c.group, to_index(c.source)).load(std::memory_order_relaxed);
    if (loaded != state(story, c.group, depth)) return "wrong state in " + place(c.group, depth);
  }
  return "";
}

void FakeEngine::save_state(GroupIndex group, BlockId slot, const Story& story, uint32_t depth) {
  at(group, to_index(slot)).store(state(story, group, depth), std::memory_order_relaxed);
}

std::string FakeEngine::verify(const Lease& lease, const Story& story, uint32_t n) const {
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const GroupOptions& options = groups_[g].options;
    if (options.attention == Attention::recurrent) continue;
    const bool all = options.attention == Attention::full;
    const uint32_t reach = all ? 0 : n - std::min(n, options.window_tokens);
    const std::vector<int64_t> places = slots(lease, g, 0, n);
    for (uint32_t p = 0; p < n; ++p) {
      if (p < reach && p >= options.sink_tokens) continue;
      if (places[p] < 0) return "no block for " + place(g, p) + " of " + std::to_string(n);
      const uint64_t found =
          at(g, static_cast<uint64_t>(places[p])).load(std::memory_order_relaxed);
      if (found != stamp(story, g, p)) {
        return "wrong contents at " + place(g, p) + " of " + std::to_string(n) + ", slot " +
               std::to_string(places[p]);
      }
    }
  }
  return "";
}

// ---- BlockIo ------------------------------------------------------------------------------------

void FakeEngine::finish(bool ok, Done done, void* user) {
  done(user,
       ok ? Result<void>() : Result<void>(Error(Errc::copy_failed, "the engine was told to")));
}

void FakeEngine::copy(std::span<const BlockCopy> copies, Done done, void* user) {
  const Mode mode = mode_.load();
  if (mode == Mode::deferred) {
    std::vector<BlockCopy> later(copies.begin(), copies.end());
    const std::lock_guard lock(mutex_);
    if (deferred_.size() >= 16) deferred_.clear();  // Joins.
    deferred_.emplace_back([this, later = std::move(later), done, user] {
      std::this_thread::yield();
      for (const BlockCopy& c : later) copy(c);
      finish(true, done, user);
    });
    return;
  }
  for (const BlockCopy& c : copies) {
    if (mode == Mode::at_once) copy(c);
  }
  finish(mode == Mode::at_once, done, user);
}

void FakeEngine::read(GroupIndex group, std::span<const BlockId> blocks, std::span<uint8_t> bytes,
                      Done done, void* user) {
  if (watch) watch(bytes);
  const Group& g = groups_.at(group);
  const size_t each = g.options.block_bytes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t p = 0; p < g.stride && (p + 1) * 8 <= each; ++p) {
      const uint64_t value =
          at(group, to_index(blocks[i]) * uint64_t{g.stride} + p).load(std::memory_order_relaxed);
      std::memcpy(bytes.data() + i * each + p * 8, &value, 8);
    }
  }
  finish(mode_.load() != Mode::failing, done, user);
}

void FakeEngine::write(GroupIndex group, std::span<const BlockId> blocks,
                       std::span<const uint8_t> bytes, Done done, void* user) {
  if (watch) watch(bytes);
  const Group& g = groups_.at(group);
  const size_t each = g.options.block_bytes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t p = 0; p < g.stride && (p + 1) * 8 <= each; ++p) {
      uint64_t value;
      std::memcpy(&value, bytes.data() + i * each + p * 8, 8);
      at(group, to_index(blocks[i]) * uint64_t{g.stride} + p)
          .store(value, std::memory_order_relaxed);
    }
  }
  finish(mode_.load() != Mode::failing, done, user);
}

}  // namespace stemma::test
