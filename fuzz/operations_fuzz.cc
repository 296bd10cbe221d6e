// Bytes become calls: any sequence of public calls, sensible or not, on a small cache.
//
// After each call the books must balance. A shadow of the engine's memory holds, for every position
// of every block, a hash of the prompt up to there, so a block that is handed out with somebody
// else's contents is seen at once.
#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "input.h"
#include "stemma/cache.h"

namespace stemma::fuzz {
namespace {

constexpr uint32_t kLeases = 5;
constexpr uint32_t kMaxCalls = 300;
constexpr uint32_t kMaxLength = 4096;  // Of a lease, so that no input is slow.

// With STEMMA_FUZZ_TRACE in the environment every call is printed, to turn an input into a test.
[[gnu::format(printf, 1, 2)]] void tell(const char* format, ...) {
  static const bool on = std::getenv("STEMMA_FUZZ_TRACE") != nullptr;
  if (!on) return;
  va_list args;
  va_start(args, format);
  std::vfprintf(stderr, format, args);
  va_end(args);
}

uint64_t mix(uint64_t seed, uint64_t value) {
  return base::mix((seed ^ value) + base::kRandomStep);
}

GroupOptions full(uint32_t blocks, uint32_t tokens) {
  return {.block_tokens = tokens, .capacity_blocks = blocks, .block_bytes = 10};
}
GroupOptions window(uint32_t reach, uint32_t blocks, uint32_t tokens, uint32_t sinks = 0) {
  return {.attention = Attention::window,
          .block_tokens = tokens,
          .capacity_blocks = blocks,
          .window_tokens = reach,
          .sink_tokens = sinks,
          .block_bytes = 10};
}
GroupOptions recurrent(uint32_t slots) {
  return {.attention = Attention::recurrent, .capacity_blocks = slots, .block_bytes = 10};
}

std::vector<GroupOptions> groups_of(uint32_t shape) {
  switch (shape % 9) {
    case 0: return {full(12, 4)};
    case 1: return {full(24, 1)};
    case 2: return {full(16, 4), window(6, 12, 4)};
    case 3: return {full(16, 2), full(6, 8)};
    case 4: return {window(5, 14, 2, 3)};
    case 5: return {full(16, 4), recurrent(4)};
    case 6: return {recurrent(5)};
    case 7: return {full(6, 8), window(3, 20, 2, 1), recurrent(3)};
    default: return {full(20, 2), window(9, 6, 8), window(2, 12, 4), recurrent(2)};
  }
}

struct PromptData {
  std::vector<Token> tokens;
  std::vector<MediaItem> media;
  std::vector<uint64_t> chain;  // chain[i]: everything up to and including position i.

  Prompt view() const { return {tokens, media}; }
};

class Engine {
 public:
  explicit Engine(const std::vector<GroupOptions>& groups) : groups_(groups) {
    for (const GroupOptions& group : groups) {
      memory_.emplace_back(size_t{group.capacity_blocks} * stride(group));
    }
  }
  static uint32_t stride(const GroupOptions& group) {
    return group.attention == Attention::recurrent ? 1 : group.block_tokens;
  }
  const std::vector<GroupOptions>& groups() const { return groups_; }

  void copy(const Lease& lease, const std::vector<uint64_t>& chain) {
    for (const BlockCopy& copy : lease.copies()) {
      const uint32_t size = stride(groups_[copy.group]);
      auto& memory = memory_[copy.group];
      const size_t from = size_t{to_index(copy.source)} * size;
      FUZZ_EXPECT(from + size <= memory.size());
      if (copy.target == kNoBlock) {
        FUZZ_EXPECT(groups_[copy.group].attention == Attention::recurrent);
        FUZZ_EXPECT(lease.committed() != 0 && memory[from] == chain[lease.committed() - 1]);
        continue;
      }
      const size_t to = size_t{to_index(copy.target)} * size;
      FUZZ_EXPECT(to + size <= memory.size() && copy.tokens <= size);
      std::copy_n(memory.begin() + static_cast<ptrdiff_t>(from), copy.tokens,
                  memory.begin() + static_cast<ptrdiff_t>(to));
    }
  }
  void write(const Lease& lease, const std::vector<uint64_t>& chain, uint32_t end) {
    const uint32_t begin = lease.committed();
    if (end <= begin) return;
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      if (groups_[g].attention == Attention::recurrent) continue;
      const std::vector<int64_t> slots = slots_of(lease, g, begin, end);
      for (uint32_t i = begin; i < end; ++i) {
        FUZZ_EXPECT(slots[i - begin] >= 0);
        memory_[g][static_cast<size_t>(slots[i - begin])] = chain[i];
      }
    }
  }
  // For a lease that fills: its own blocks, wherever they stand, and nothing else.
  void fill(const Lease& lease, const std::vector<uint64_t>& chain, uint32_t end) {
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      if (groups_[g].attention == Attention::recurrent) continue;
      const uint32_t size = groups_[g].block_tokens;
      std::vector<BlockId> table(lease.block_count(g));
      FUZZ_EXPECT(lease.draft_table(g, table, kNoBlock).has_value());
      for (uint32_t i = 0; i < end; ++i) {
        const BlockId block = table[i / size];
        if (block == kNoBlock) continue;
        memory_[g].at(size_t{to_index(block)} * size + i % size) = chain[i];
      }
    }
  }
  void verify_state(GroupIndex g, const Checkpoint& held, const std::vector<uint64_t>& chain) {
    if (held.depth == 0) return;
    FUZZ_EXPECT(memory_[g].at(to_index(held.slot)) == chain[held.depth - 1]);
  }
  // Everything that a kernel continuing at `committed` reads must be right.
  void verify(const Lease& lease, const std::vector<uint64_t>& chain) const {
    const uint32_t n = lease.committed();
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      const GroupOptions& group = groups_[g];
      if (group.attention == Attention::recurrent || n == 0) continue;
      const std::vector<int64_t> slots = slots_of(lease, g, 0, n);
      for (uint32_t i = 0; i < n; ++i) {
        const bool read = group.attention == Attention::full || i < group.sink_tokens ||
                          i + uint64_t{group.window_tokens} >= n;
        if (!read) continue;
        FUZZ_EXPECT(slots[i] >= 0);
        FUZZ_EXPECT(memory_[g][static_cast<size_t>(slots[i])] == chain[i]);
      }
    }
  }
  void save_state(GroupIndex g, BlockId slot, uint64_t state) {
    memory_[g].at(to_index(slot)) = state;
  }

 private:
  std::vector<int64_t> slots_of(const Lease& lease, GroupIndex g, uint32_t begin,
                                uint32_t end) const {
    std::vector<int64_t> slots(end - begin);
    FUZZ_EXPECT(lease.slot_mapping(g, begin, slots).has_value());
    for (int64_t slot : slots) FUZZ_EXPECT(slot < static_cast<int64_t>(memory_[g].size()));
    return slots;
  }

  std::vector<GroupOptions> groups_;
  std::vector<std::vector<uint64_t>> memory_;
};

class SwitchFence final : public Fence {
 public:
  bool signalled() noexcept override { return open; }
  bool open = false;
};

class Run {
 public:
  explicit Run(Input& in) : in_(in), engine_(groups_of(in.u8())) {
    options_.groups = engine_.groups();
    const uint8_t flags = in.u8();
    options_.enabled = (flags & 7U) != 7;
    options_.logits_bytes = (flags & 8U) != 0 ? 400 : 0;
    options_.content_keys = (flags & 16U) != 0;
    options_.event_capacity = (flags & 32U) != 0 ? 8 : 0;
    if ((flags & 64U) != 0) options_.quotas = {{TenantId{1}, 80}, {TenantId{2}, 150}};
    options_.clock = &clock_;
    cache_.emplace(*PagedCache::create(options_));
    for (uint8_t i = 0; i < 3; ++i) {
      std::array<uint8_t, 32> digest{};
      digest[0] = i;
      scopes_.push_back(Scope::from_digest(digest));
    }
  }

  void go() {
    for (uint32_t calls = 0; calls < kMaxCalls && !in_.empty(); ++calls) {
      call();
      cache_->check_invariants();
      for (const Held& held : held_) check(held);
    }
    for (Held& held : held_) held.lease = Lease();
    for (auto& fence : fences_) fence->open = true;
    cache_->poll();
    cache_->check_invariants();
    const Stats stats = cache_->stats();
    FUZZ_EXPECT(stats.leases == 0);
    for (uint32_t g = 0; g < stats.group_count; ++g) {
      FUZZ_EXPECT(stats.groups[g].draft_blocks == 0);
    }
    FUZZ_EXPECT(cache_->reset().has_value());
    cache_->check_invariants();
    for (uint32_t g = 0; g < stats.group_count; ++g) {
      FUZZ_EXPECT(cache_->stats().groups[g].free_blocks == stats.groups[g].capacity_blocks);
    }
    FUZZ_EXPECT(cache_->stats().scopes == 0);
  }

 private:
  struct Held {
    Lease lease;
    std::vector<uint64_t> chain;
    uint64_t start = 0;  // The chain before position 0.
    uint32_t fill = 0;   // Not committed yet.
  };
  static uint64_t start_of(uint32_t scope) { return mix(scope, 1); }

  // Few different prompts, with long common prefixes; now and then a broken one.
  PromptData read_prompt(uint32_t scope) {
    PromptData prompt;
    const uint32_t length = in_.below(60);
    const uint32_t family = in_.below(3);
    const uint32_t parts_at = in_.below(60);
    const uint32_t branch = in_.below(4);
    for (uint32_t i = 0; i < length; ++i) {
      prompt.tokens.push_back(i < parts_at ? family * 7 + i % 5 : branch * 11 + i % 3);
    }
    const uint32_t items = in_.below(8);
    if (items >= 6) {
      uint32_t at = 0;
      for (uint32_t i = 0; i + 5 < items; ++i) {
        MediaItem item;
        at += in_.below(12);
        item.kind = MediaKind{static_cast<uint8_t>(1 + in_.below(2))};
        item.digest.fill(static_cast<uint8_t>(in_.below(2)));
        item.offset = at;
        item.length = in_.below(9);
        item.causal = in_.below(2) != 0;
        prompt.media.push_back(item);
      }
    }
    if (in_.below(64) == 63 && length != 0) prompt.tokens[length / 2] = in_.u32();
    uint64_t state = start_of(scope);
    for (uint32_t i = 0; i < length; ++i) {
      uint64_t unit = prompt.tokens[i];
      for (const MediaItem& item : prompt.media) {
        if (i < item.offset || i - item.offset >= item.length) continue;
        if (unit == prompt.tokens[i]) unit = 1U << 31U;
        unit = mix(unit, mix(static_cast<uint64_t>(item.kind), item.digest[0]));
        unit = mix(unit, mix(item.length, (i - item.offset) * 2 + (item.causal ? 1 : 0)));
      }
      state = mix(state, unit);
      prompt.chain.push_back(state);
    }
    return prompt;
  }
  LookupOptions read_lookup() {
    LookupOptions options;
    const uint8_t flags = in_.u8();
    if (flags < 128) return options;
    options.read = (flags & 1U) == 0;
    options.write = (flags & 2U) == 0;
    options.allow_copy = (flags & 4U) == 0;
    options.want_logits = (flags & 8U) != 0;
    if ((flags & 16U) != 0) options.at_most = in_.number();
    if ((flags & 32U) != 0) options.evaluate_at_least = in_.number();
    return options;
  }
  Retain read_retain() {
    Retain retain;
    const uint8_t flags = in_.u8();
    if (flags < 128) return retain;
    retain.priority = static_cast<Priority>(in_.below(110));
    if ((flags & 1U) != 0) retain.ttl_ns = in_.number();
    if ((flags & 2U) != 0) retain.session = SessionId{in_.below(3)};
    retain.phase = SessionPhase{static_cast<uint8_t>(in_.below(4))};
    if ((flags & 4U) != 0) retain.session_ttl_ns = in_.number();
    retain.will_return = (flags & 8U) != 0;
    if ((flags & 16U) != 0) {
      ranges_.clear();
      for (uint32_t i = 0; i < 2; ++i) {
        ranges_.push_back({.begin = in_.number(),
                           .end = in_.number(),
                           .priority = static_cast<Priority>(in_.below(102)),
                           .ttl_ns = in_.number()});
      }
      retain.ranges = ranges_;
    }
    return retain;
  }

  void check(const Held& held) const {
    const Lease& lease = held.lease;
    if (!lease.active()) return;
    FUZZ_EXPECT(lease.reused() <= lease.committed());
    FUZZ_EXPECT(lease.committed() <= lease.length());
    FUZZ_EXPECT(lease.length() == held.chain.size());
    if (lease.copies().empty() && held.fill == 0) engine_.verify(lease, held.chain);
  }

  void take() {
    const uint32_t scope = in_.below(3);
    const PromptData prompt = read_prompt(scope);
    LeaseOptions options;
    options.lookup = read_lookup();
    options.retain = read_retain();
    options.tenant = TenantId{scope};
    const uint32_t how = in_.below(8);
    if (how == 7) options.draft_tokens = in_.number();
    if (how == 6) options.fill_to = in_.below(6) * 8;
    if (in_.below(32) == 31) options.tenant = TenantId{in_.u32()};
    const Result<Report> report = cache_->lookup(scopes_[scope], prompt.view(), options.lookup);
    // When room is short a lease may do without the part-block whose source it needs as room.
    LookupOptions in_place = options.lookup;
    in_place.allow_copy = false;
    const Result<Report> whole = cache_->lookup(scopes_[scope], prompt.view(), in_place);
    const uint32_t without_copy = whole ? whole->reused_tokens : 0;
    tell("lease scope %u, tokens", scope);
    for (Token token : prompt.tokens) tell(" %u", token);
    for (const MediaItem& item : prompt.media) {
      tell(", item %u at %u+%u", item.digest[0], item.offset, item.length);
    }
    tell(", read %d, write %d, copy %d, at_most %u, draft %u, fill %u", options.lookup.read,
         options.lookup.write, options.lookup.allow_copy, options.lookup.at_most,
         options.draft_tokens, options.fill_to);
    Result<Lease> lease = cache_->lease(scopes_[scope], prompt.view(), options);
    tell(" -> %s\n", lease ? "ok" : lease.error().to_string().c_str());
    if (!lease) return;
    tell("  reused %u, %zu copies\n", lease->reused(), lease->copies().size());
    FUZZ_EXPECT(report.has_value());
    if (options.fill_to != 0) {
      FUZZ_EXPECT(lease->copies().empty() && lease->capacity() == options.fill_to);
    } else if (prompt.media.empty() || engine_.groups().size() == 1) {
      FUZZ_EXPECT(lease->reused() <= report->reused_tokens && lease->reused() >= without_copy);
    }
    FUZZ_EXPECT(lease->reused() <= prompt.tokens.size());
    for (uint32_t item : lease->media_to_process()) FUZZ_EXPECT(item < prompt.media.size());
    const uint32_t place = in_.below(kLeases);
    tell("  it is lease %u\n", place);
    held_[place] = {*std::move(lease), prompt.chain, start_of(scope), options.fill_to};
  }

  void commit(Held& held) {
    Lease& lease = held.lease;
    if (!lease.active()) return;
    uint32_t n = in_.below(2) == 0 ? lease.length() : in_.number();
    if (n >= lease.committed() && n <= lease.length() && lease.copies().empty() &&
        n <= lease.capacity() && n >= held.fill) {
      if (held.fill != 0) {
        engine_.fill(lease, held.chain, n);
      } else {
        engine_.write(lease, held.chain, n);
      }
      held.fill = 0;
      const Result<Commit> commit = lease.commit(n);
      FUZZ_EXPECT(commit.has_value() && commit->committed == n && lease.committed() == n);
    } else {
      FUZZ_EXPECT(!lease.commit(n));
    }
  }

  void checkpoint(Held& held) {
    Lease& lease = held.lease;
    const GroupIndex g = in_.below(4);
    const Result<BlockId> slot = lease.draft_checkpoint(g);
    if (!slot) return;
    const uint32_t depth = in_.below(2) == 0 ? lease.committed() : in_.number();
    if (depth != 0 && depth <= held.chain.size()) {
      engine_.save_state(g, *slot, held.chain[depth - 1]);
    }
    (void)lease.commit_checkpoint(g, depth);
    if (const auto kept = lease.hold_checkpoint(g, depth)) {
      engine_.verify_state(g, *kept, held.chain);
    }
    if (depth % 2 == 0) (void)lease.hold_checkpoint(g, 0);
  }

  void lease_call(Held& held) {
    Lease& lease = held.lease;
    const uint32_t what = in_.below(18);
    if (lease.active()) {
      tell("lease %td: call %u (reused %u, committed %u, length %u, capacity %u)\n",
           &held - held_.data(), what, lease.reused(), lease.committed(), lease.length(),
           lease.capacity());
    }
    switch (what) {
      case 0:
      case 1:  // Do the copies.
        engine_.copy(lease, held.chain);
        if (lease.copies_done()) engine_.verify(lease, held.chain);
        break;
      case 2: (void)lease.copies_failed(); break;
      case 3: FUZZ_EXPECT(!lease.run_copies()); break;
      case 4: (void)lease.shrink_to(in_.number()); break;
      case 5: {
        std::vector<Token> tokens(in_.below(20), in_.below(3));
        if (in_.below(32) == 31) tokens.push_back(in_.u32());
        if (!lease.active() || lease.length() > kMaxLength || !lease.extend(tokens)) break;
        for (Token token : tokens) {
          held.chain.push_back(mix(held.chain.empty() ? held.start : held.chain.back(), token));
        }
        break;
      }
      case 6: (void)lease.reserve(in_.number()); break;
      case 7:
      case 8:
      case 9:
      case 10: commit(held); break;
      case 11: (void)lease.adopt_canonical(); break;
      case 12: {
        Result<Lease> twin = lease.fork();
        if (!twin) break;
        const uint64_t start = held.start;
        std::vector<uint64_t> chain = held.chain;
        chain.resize(twin->length());
        FUZZ_EXPECT(held.fill == 0);
        held_[in_.below(kLeases)] = {*std::move(twin), std::move(chain), start, 0};
        break;
      }
      case 13: {
        const uint32_t n = in_.number();
        if (!lease.rewind(n)) break;
        held.chain.resize(lease.length());
        break;
      }
      case 14: checkpoint(held); break;
      case 15: {
        const std::vector<float> logits(in_.below(40), 1.5F);
        (void)lease.attach_logits(in_.below(2) == 0 ? lease.committed() : in_.number(), logits);
        break;
      }
      case 16: {
        const Retain retain = read_retain();
        ReleaseOptions options;
        if (in_.below(2) != 0) options.retain = &retain;
        if (in_.below(4) == 3) options.fence = fences_.emplace_back(new SwitchFence).get();
        (void)lease.release(options);
        break;
      }
      default:
        (void)lease.abandon(in_.below(4) == 3 ? fences_.emplace_back(new SwitchFence).get()
                                              : nullptr);
        break;
    }
  }

  void call() {
    const uint32_t what = in_.below(32);
    if (what < 8) return take();
    if (what < 22) return lease_call(held_[in_.below(kLeases)]);
    const uint32_t scope = in_.below(3);
    tell("cache call %u, scope %u\n", what, scope);
    switch (what) {
      case 22:
        (void)cache_->lookup(scopes_[scope], read_prompt(scope).view(), read_lookup());
        break;
      case 23: {
        const auto pin = cache_->pin(scopes_[scope], read_prompt(scope).view(), in_.number());
        if (pin) pins_.push_back(pin->id);
        break;
      }
      case 24:
        (void)cache_->unpin(pins_.empty() ? PinId{in_.u32()} : pins_[in_.u8() % pins_.size()]);
        break;
      case 25: cache_->end_session(SessionId{in_.below(3)}); break;
      case 26: (void)cache_->set_quota(TenantId{scope}, in_.number()); break;
      case 27:
        (void)cache_->truncate(scopes_[scope], read_prompt(scope).view(), in_.number());
        break;
      case 28:
        if (in_.below(4) == 0) cache_->drop_scope(scopes_[scope]);
        if (in_.below(16) == 0) (void)cache_->reset(OnBusy{static_cast<uint8_t>(scope & 1U)});
        break;
      case 29: cache_->evict(in_.below(6)); break;
      case 30:
        if (!fences_.empty()) fences_[in_.u8() % fences_.size()]->open = true;
        cache_->poll();
        clock_.advance_ns(in_.number());
        break;
      default: watch(scope); break;
    }
  }

  void watch(uint32_t scope) {
    std::vector<Event> events;
    cache_->events(in_.number(), in_.below(8), events);
    (void)cache_->event_dump();
    const PromptData prompt = read_prompt(scope);
    const auto depths = cache_->branch_points(scopes_[scope], prompt.view());
    if (depths) FUZZ_EXPECT(std::ranges::is_sorted(*depths));
    PagedCache twin = *PagedCache::create(options_);
    const Result<void> loaded = twin.load(cache_->dump());
    FUZZ_EXPECT(loaded.has_value());
    twin.check_invariants();
    const auto here = cache_->lookup(scopes_[scope], prompt.view());
    const auto there = twin.lookup(scopes_[scope], prompt.view());
    FUZZ_EXPECT(here.has_value() == there.has_value());
    // Words are found alike. With more groups, another of several equal part-blocks may serve.
    if (here) {
      FUZZ_EXPECT(here->matched_tokens == there->matched_tokens);
      const bool alone =
          options_.groups.size() == 1 && options_.groups[0].attention == Attention::full;
      FUZZ_EXPECT(!alone || here->reused_tokens == there->reused_tokens);
    }
  }

  Input& in_;
  ManualClock clock_;
  Engine engine_;
  Options options_;
  std::vector<Scope> scopes_;
  std::vector<PriorityRange> ranges_;
  std::vector<std::unique_ptr<SwitchFence>> fences_;  // Outlive the cache.
  std::optional<PagedCache> cache_;
  std::array<Held, kLeases> held_;
  std::vector<PinId> pins_;
};

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::Input in(data, size);
  stemma::fuzz::Run(in).go();
  return 0;
}
