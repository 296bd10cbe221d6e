// The obvious cache: a list of cells that is searched from front to back for everything.
//
// It follows docs/semantics.md for caches with one full-attention group, where every decision of
// PagedCache is determined, and shares no code with it. Where the library may choose among equals
// (which free block, which of several equally good copy sources), the model is told the choice and
// checks that it was legal. A cell's index is its block's id, so it is noticed at once if a block
// is handed out that the model has in use (for example a wrong victim).
//
// The calls mirror the library's. They take its arguments and its choices, and return the answer it
// must have given, or a complaint about an illegal choice ("" = none).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stemma/cache.h"
#include "support/fake_engine.h"

namespace stemma::test {

class Model {
 public:
  using Id = uint32_t;  // A cell, and the block it lives in.
  static constexpr Id kNone = ~Id{0};

  struct Config {
    uint32_t block_tokens = 4;
    uint32_t capacity_blocks = 8;
    uint64_t block_bytes = 1;
    double pin_share = 0.5;
    std::map<TenantId, uint64_t> quotas = {};
  };

  // The class and the instant of a touch, which counts for a cell and perhaps for those above it. A
  // touch marks the cell where the path ends; when the last cell below goes, its mark passes to the
  // parent if it is the better one.
  struct Class {
    uint32_t priority = kDefaultPriority;
    SessionPhase phase = SessionPhase::unknown;
    friend auto operator<=>(const Class&, const Class&) = default;
  };
  struct Mark {
    Class now;
    Class later;  // From the deadline on.
    uint64_t deadline_ns = kNever;
    uint64_t instant = 0;
  };

  struct Cell {
    bool live = false;
    bool findable = false;  // An orphan is live and not findable.
    bool cut = false;       // The top of what was cut off: no longer its parent's child.
    uint32_t root = 0;
    TenantId tenant = kNoTenant;
    Id parent = kNone;
    uint32_t begin = 0;           // Position of its first word.
    std::vector<uint64_t> words;  // Fewer than block_tokens: a tail.
    uint64_t born = 0;            // Tells it from others that live here before or after.
    uint64_t covered = 0;         // Instant of the latest touch of it or of cells below it.
    std::optional<Mark> mark;
    SessionId user = kNoSession;  // The session that used it last.
    uint32_t text = 0;            // The caller's text that leads here.
  };

  struct Keep {  // A Retain that owns its ranges.
    Retain retain = {};
    std::vector<PriorityRange> ranges = {};
    Keep() = default;
    explicit Keep(const Retain& r) : retain(r), ranges(r.ranges.begin(), r.ranges.end()) {}
  };

  struct Lease {
    uint32_t root = 0;
    TenantId tenant = kNoTenant;
    Story story;
    uint32_t text = 0;
    bool write = true;
    Keep keep;
    Report report;
    uint32_t reused = 0;
    uint32_t committed = 0;
    Id tip = kNone;  // The deepest findable cell of its path: held.
    std::vector<Id> table;
    std::vector<bool> own;          // Whether the block at that index is this lease's alone.
    std::vector<BlockCopy> copies;  // Pending. Their sources are held.
    bool counted = false;
  };

  explicit Model(const Config& config) : config_(config), cells_(config.capacity_blocks) {}
  void set_now(uint64_t now_ns) { now_ns_ = now_ns; }
  // Pins whose deadline has come end, the earliest first. For calls that look at pins.
  void expire_pins();

  // ---- Asking ----------------------------------------------------------------------------------

  Report lookup(uint32_t scope, const Story& story, const LookupOptions& options) const;
  uint32_t free_blocks() const;
  uint32_t cached_blocks() const;
  uint32_t evictable_blocks() const;
  uint64_t tenant_bytes(TenantId tenant) const;
  const std::vector<Cell>& cells() const { return cells_; }
  const std::map<uint32_t, Lease>& leases() const { return leases_; }

  // ---- Leasing ---------------------------------------------------------------------------------

  struct Request {
    uint32_t scope = 0;
    TenantId tenant = kNoTenant;
    Story story;
    uint32_t text = 0;
    LookupOptions lookup;
    Retain retain;
    uint32_t draft_tokens = LeaseOptions::kWholePrompt;
  };
  // The library's result: an error, or these blocks and copies.
  struct Done {
    std::optional<Errc> error;
    std::vector<Id> table;
    std::vector<BlockCopy> copies;
    uint32_t reused = 0;
  };

  std::string lease(uint32_t id, const Request& request, const Done& done);
  std::string extend(uint32_t id, std::span<const Token> tokens, uint32_t text, const Done& done);
  std::string reserve(uint32_t id, uint32_t positions, const Done& done);
  std::string fork(uint32_t from, uint32_t id, const Done& done);
  std::string rewind(uint32_t id, uint32_t n, uint32_t text, const Done& done);
  std::string shrink(uint32_t id, uint32_t n, const Done& done);
  std::string copies_failed(uint32_t id, const Done& done);
  void copies_done(uint32_t id);
  Commit commit(uint32_t id, uint32_t n);
  uint32_t adopt_canonical(uint32_t id);
  void end(uint32_t id, bool with_tail);
  void set_keep(uint32_t id, const Retain& retain) { leases_.at(id).keep = Keep(retain); }

  // ---- Keeping and forgetting ------------------------------------------------------------------

  // The tokens pinned, or nothing when pins would hold more than their share.
  std::optional<uint32_t> pin(uint32_t scope, const Story& story, uint64_t ttl_ns, uint64_t id);
  bool unpin(uint64_t id);
  void end_session(SessionId session);
  void set_quota(TenantId tenant, uint64_t bytes) { config_.quotas[tenant] = bytes; }
  uint32_t truncate(uint32_t scope, const Story& story, uint32_t keep);
  uint32_t drop_scope(uint32_t scope);
  void reset(uint32_t scopes);
  uint32_t evict(uint32_t blocks);

  // ---- Counted, as Stats does ------------------------------------------------------------------

  Counts counts;
  uint64_t taken_over = 0;  // Sources of copies for which there was no room.
  uint64_t evicted = 0, duplicates = 0, tails = 0, absorbed = 0, forks = 0, rewinds = 0,
           pin_expiries = 0, quota_refusals = 0, orphaned = 0;
  // Of the model about itself: with one class of use, the marks must say "longest unused first".
  std::string doubt;

 private:
  struct Pin {
    Id cell = kNone;
    uint64_t deadline_ns = 0;
  };
  struct Found {
    std::vector<Id> path;  // Whole cells.
    uint32_t matched = 0;  // Positions, the best sibling's share included; may end inside a unit.
  };

  // Trees.
  // Dropping a scope leaves its old root to those who lease below it and begins a new one.
  uint32_t root_of(uint32_t scope) const;
  bool is_known(uint32_t scope) const;
  Found find(uint32_t root, const Story& story) const;
  bool begins_with(const Cell& cell, const Story& story, uint32_t begin, uint32_t end) const;
  bool is_findable(uint32_t root, Id id) const;
  std::vector<Id> children(uint32_t root, Id parent) const;
  std::vector<Id> copy_sources(uint32_t root, const Story& story, const Found& found,
                               uint32_t n) const;
  bool has_children(Id id) const;
  bool is_only_child(Id id) const;
  Id publish(Lease& lease, uint32_t index, uint32_t words);
  void remove(Id id);
  uint32_t forget(const std::vector<Id>& ids);
  void sweep_orphans();

  // Uses.
  std::vector<bool> held() const;
  void touch(Id id, const Keep& keep);
  struct Said {
    Priority priority;
    uint64_t ttl_ns;
  };
  static Said said_of(const Keep& keep, uint32_t position);
  Mark mark_at(const Keep& keep, uint32_t position);
  std::pair<Class, uint64_t> worth(const Mark& mark) const;
  void drop_copies(Lease& lease);
  void count(Lease& lease);

  // Room.
  uint32_t blocks_for(uint32_t tokens) const;
  std::optional<Errc> obstacle(uint32_t blocks, TenantId tenant) const;
  void make_room(uint32_t blocks, TenantId tenant);
  Id victim(std::optional<TenantId> only);
  Id longest_unused(std::optional<TenantId> only, const std::vector<bool>& in_use) const;
  void evict_one(Id id);
  bool is_free(Id id) const;
  bool is_copied_from(Id id) const;
  std::string who_has(Id id) const;
  std::string draft(Lease& lease, const Done& done, uint32_t from);
  std::string take(Lease& lease, const Done& done, uint32_t from) const;
  std::string refusal(uint32_t blocks, TenantId tenant, const Done& done);
  std::string grow(Lease& lease, uint32_t positions, const Done& done);
  std::string step_back(Lease& lease, uint32_t n, uint32_t capacity, const Done& done);
  uint32_t published_cells(const Lease& lease) const;
  static void give_up(Lease& lease, uint32_t n);

  Config config_;
  std::vector<Cell> cells_;  // By block.
  std::map<uint32_t, Lease> leases_;
  std::map<uint64_t, Pin> pins_;
  std::map<uint32_t, uint32_t> roots_;  // Scope to root; a scope not named is its own.
  uint32_t next_root_ = 1000;
  uint64_t now_ns_ = 0;
  uint64_t instant_ = 0;
  uint64_t births_ = 0;
  struct Use {
    Id cell = kNone;
    uint64_t born = 0;
  };
  std::map<SessionId, Use> last_use_;
  std::optional<Class> only_class_;  // Of all touches so far, if they were of one class...
  bool one_class_ = true;            // ...as they are while this is true.
};

}  // namespace stemma::test
