#include "model/model.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace stemma::test {
namespace {

constexpr uint32_t kFirstNewRoot = 1000;  // Below: scopes that were never dropped.

// The largest border of the story that leaves `units` units after it.
uint32_t leave_units(const Story& story, uint32_t units) {
  uint32_t n = story.size();
  for (uint32_t i = 0; i < units && n > 0; ++i) n = story.floor(n - 1);
  return n;
}

std::string name(std::optional<Errc> error) {
  return error ? std::string(to_string(*error)) : "ok";
}

}  // namespace

// ---- Trees --------------------------------------------------------------------------------------

uint32_t Model::root_of(uint32_t scope) const {
  const auto it = roots_.find(scope);
  return it == roots_.end() ? scope : it->second;
}

bool Model::is_findable(uint32_t root, Id id) const {
  if (id != kNone) return cells_[id].findable;
  return root < kFirstNewRoot
             ? !roots_.contains(root)
             : std::ranges::any_of(roots_, [&](const auto& entry) { return entry.second == root; });
}

std::vector<Model::Id> Model::children(uint32_t root, Id parent) const {
  std::vector<Id> out;
  for (Id id = 0; id < cells_.size(); ++id) {
    const Cell& cell = cells_[id];
    if (cell.live && !cell.cut && cell.root == root && cell.parent == parent) out.push_back(id);
  }
  return out;
}

bool Model::has_children(Id id) const {
  return std::ranges::any_of(cells_, [&](const Cell& c) { return c.live && c.parent == id; });
}

bool Model::is_only_child(Id id) const {
  return children(cells_[id].root, cells_[id].parent).size() == 1;
}

// Whether the cell's first words are those of positions [begin, end) of the story.
bool Model::begins_with(const Cell& cell, const Story& story, uint32_t begin, uint32_t end) const {
  return cell.words.size() >= end - begin &&
         std::equal(story.words().begin() + begin, story.words().begin() + end, cell.words.begin());
}

Model::Found Model::find(uint32_t root, const Story& story) const {
  Found found;
  const uint32_t size = config_.block_tokens;
  Id at = kNone;
  for (bool deeper = true; deeper;) {
    deeper = false;
    const uint32_t begin = found.matched;
    for (const Id id : children(root, at)) {
      const auto [ours, theirs] =
          std::ranges::mismatch(cells_[id].words, std::span(story.words()).subspan(begin));
      const auto common = static_cast<uint32_t>(ours - cells_[id].words.begin());
      found.matched = std::max(found.matched, begin + common);
      if (common == size) {
        found.path.push_back(at = id);
        deeper = true;
        break;
      }
    }
  }
  return found;
}

// All cells that could be copied from to get positions [n / size * size, n).
std::vector<Model::Id> Model::copy_sources(uint32_t root, const Story& story, const Found& found,
                                           uint32_t n) const {
  std::vector<Id> out;
  const uint32_t index = n / config_.block_tokens;
  for (const Id id : children(root, index == 0 ? kNone : found.path[index - 1])) {
    if (begins_with(cells_[id], story, index * config_.block_tokens, n)) out.push_back(id);
  }
  return out;
}

// The lease's block `index` becomes a cell of `words` words below its tip.
Model::Id Model::publish(Lease& lease, uint32_t index, uint32_t words) {
  const uint32_t begin = index * config_.block_tokens;
  const Id id = lease.table[index];
  const auto first = lease.story.words().begin() + begin;
  // Tails that the new cell begins with have nothing of their own any more.
  const std::vector<bool> in_use = held();
  for (const Id other : children(lease.root, lease.tip)) {
    const bool covered = cells_[other].words.size() < words &&
                         begins_with(cells_[other], lease.story, begin,
                                     begin + static_cast<uint32_t>(cells_[other].words.size()));
    if (covered && !in_use[other]) {
      remove(other);
      ++absorbed;
    }
  }
  cells_[id] = {.live = true,
                .findable = is_findable(lease.root, lease.tip),
                .cut = false,
                .root = lease.root,
                .tenant = lease.tenant,
                .parent = lease.tip,
                .begin = begin,
                .words = {first, first + words},
                .born = ++births_,
                .covered = 0,
                .mark = {},
                .user = kNoSession,
                .text = lease.text};
  lease.own[index] = false;
  return id;
}

void Model::remove(Id id) { cells_[id] = Cell(); }

// Cells that must no longer be found: those that nobody holds go, the rest are orphaned.
uint32_t Model::forget(const std::vector<Id>& ids) {
  for (const Id id : ids) {
    cells_[id].findable = false;
    cells_[id].mark.reset();
  }
  std::erase_if(pins_, [&](const auto& pin) { return !cells_[pin.second.cell].findable; });
  const std::vector<bool> in_use = held();
  for (const Id id : ids) orphaned += in_use[id] ? 1 : 0;
  sweep_orphans();
  return static_cast<uint32_t>(ids.size());
}

void Model::sweep_orphans() {
  const std::vector<bool> in_use = held();
  for (Id id = 0; id < cells_.size(); ++id) {
    if (cells_[id].live && !cells_[id].findable && !in_use[id]) remove(id);
  }
}

// ---- Asking -------------------------------------------------------------------------------------

Report Model::lookup(uint32_t scope, const Story& story, const LookupOptions& options) const {
  Report report;
  report.prompt_tokens = report.to_compute_tokens = story.size();
  if (!options.read) {
    report.outcome = Outcome::bypassed;
    report.reason = MissReason::read_off;
    return report;
  }
  const Found found = find(root_of(scope), story);
  const uint32_t size = config_.block_tokens;
  const uint32_t matched = story.floor(found.matched);
  const uint32_t most = leave_units(story, options.evaluate_at_least);
  const uint32_t with_copy = story.floor(std::min({most, options.at_most, matched}));
  uint32_t n = with_copy;
  while (!options.allow_copy && (n % size != 0 || !story.is_border(n))) --n;
  report.matched_tokens = matched;
  report.reused_tokens = n;
  report.copied_tokens = n % size;
  report.to_compute_tokens = story.size() - n;
  report.outcome = n == 0 ? Outcome::miss : n == most ? Outcome::full_hit : Outcome::partial_hit;
  // The first of these that is true.
  const std::pair<MissReason, bool> reasons[] = {
      {MissReason::none, report.outcome == Outcome::full_hit},
      {MissReason::too_short, most == 0},
      {MissReason::unknown_scope, !is_known(scope)},
      {MissReason::no_copy, n < with_copy},
      {MissReason::at_most, options.at_most < std::min(most, matched)},
      {MissReason::media,
       story.media_begins(matched) &&
           (matched < found.matched || matched < std::min(most, options.at_most))},
      {MissReason::first_use, true}};
  report.reason =
      std::ranges::find_if(reasons, [](const auto& entry) { return entry.second; })->first;
  return report;
}

// A scope is known while anything is cached in it.
bool Model::is_known(uint32_t scope) const {
  const uint32_t root = root_of(scope);
  return std::ranges::any_of(cells_, [&](const Cell& c) { return c.findable && c.root == root; });
}

bool Model::is_free(Id id) const {
  if (cells_[id].live) return false;
  return !is_copied_from(id) && std::ranges::none_of(leases_, [&](const auto& entry) {
    const Lease& l = entry.second;
    for (size_t i = 0; i < l.table.size(); ++i) {
      if (l.table[i] == id && l.own[i]) return true;
    }
    return false;
  });
}

bool Model::is_copied_from(Id id) const {
  return std::ranges::any_of(leases_, [&](const auto& entry) {
    return std::ranges::any_of(entry.second.copies,
                               [&](const BlockCopy& c) { return to_index(c.source) == id; });
  });
}

// For complaints.
std::string Model::who_has(Id id) const {
  std::string text;
  if (cells_[id].live) {
    text += std::string("a cell at ") + std::to_string(cells_[id].begin) + ", last used " +
            std::to_string(cells_[id].covered) + " of " + std::to_string(instant_) +
            (cells_[id].findable ? "" : ", orphaned") + (held()[id] ? ", held" : "");
  }
  for (const auto& [lease_id, l] : leases_) {
    if (std::ranges::count(l.table, id) != 0) text += ", lease " + std::to_string(lease_id);
    for (const BlockCopy& copy : l.copies) {
      if (to_index(copy.source) == id) text += ", copied by lease " + std::to_string(lease_id);
    }
  }
  return text;
}

uint32_t Model::free_blocks() const {
  uint32_t count = 0;
  for (Id id = 0; id < cells_.size(); ++id) count += is_free(id);
  return count;
}

uint32_t Model::cached_blocks() const {
  return static_cast<uint32_t>(std::ranges::count_if(cells_, [](const Cell& c) { return c.live; }));
}

uint64_t Model::tenant_bytes(TenantId tenant) const {
  uint64_t blocks = 0;
  for (const Cell& cell : cells_) blocks += cell.live && cell.tenant == tenant;
  for (const auto& [id, l] : leases_) {
    if (l.tenant == tenant) blocks += static_cast<uint64_t>(std::ranges::count(l.own, true));
  }
  return blocks * config_.block_bytes;
}

// ---- Uses ---------------------------------------------------------------------------------------

// Cells that a lease, a copy or a pin needs: themselves and everything above them.
std::vector<bool> Model::held() const {
  std::vector<bool> out(cells_.size());
  const auto hold = [&](Id id) {
    for (; id != kNone && !out[id]; id = cells_[id].parent) out[id] = true;
  };
  for (const auto& [id, l] : leases_) {
    hold(l.tip);
    for (const BlockCopy& copy : l.copies) {
      if (cells_[to_index(copy.source)].live) hold(to_index(copy.source));
    }
  }
  for (const auto& [id, pin] : pins_) hold(pin.cell);
  return out;
}

Model::Said Model::said_of(const Keep& keep, uint32_t position) {
  for (const PriorityRange& range : keep.ranges) {
    if (position >= range.begin && position < range.end) return {range.priority, range.ttl_ns};
  }
  return {keep.retain.priority, keep.retain.ttl_ns};
}

Model::Mark Model::mark_at(const Keep& keep, uint32_t position) {
  const Retain& r = keep.retain;
  auto [priority, ttl_ns] = said_of(keep, position);
  Mark mark;
  mark.now = {r.will_return ? kMaxPriority + 1U : priority, r.phase};
  mark.later = mark.now;
  const uint64_t session_ttl_ns = r.phase == SessionPhase::active ? r.session_ttl_ns : kNever;
  if (ttl_ns != kNever) mark.later.priority = kDefaultPriority;
  if (session_ttl_ns != kNever) mark.later.phase = SessionPhase::ended;
  ttl_ns = std::min(ttl_ns, session_ttl_ns);
  if (ttl_ns != kNever) mark.deadline_ns = now_ns_ + ttl_ns;
  mark.instant = ++instant_;
  one_class_ &= mark.deadline_ns == kNever && only_class_.value_or(mark.now) == mark.now;
  only_class_ = mark.now;
  return mark;
}

// A better mark makes a cell stay longer.
std::pair<Model::Class, uint64_t> Model::worth(const Mark& mark) const {
  return {now_ns_ >= mark.deadline_ns ? mark.later : mark.now, mark.instant};
}

// A use of the path from the root to this cell (of an orphan: to the deepest cell above it that can
// still be found) ends.
void Model::touch(Id id, const Keep& keep) {
  while (id != kNone && !cells_[id].findable) id = cells_[id].parent;
  if (id == kNone) return;
  cells_[id].mark = mark_at(keep, cells_[id].begin);
  cells_[id].user = keep.retain.session;
  if (keep.retain.session != kNoSession) last_use_[keep.retain.session] = {id, cells_[id].born};
  // And where ranges raise the priority on the way to the root.
  Priority highest = said_of(keep, cells_[id].begin).priority;
  for (Id above = cells_[id].parent; above != kNone; above = cells_[above].parent) {
    const Priority priority = said_of(keep, cells_[above].begin).priority;
    if (priority <= highest) continue;
    highest = priority;
    cells_[above].mark = mark_at(keep, cells_[above].begin);
  }
  for (; id != kNone; id = cells_[id].parent) cells_[id].covered = instant_;
}

void Model::drop_copies(Lease& lease) {
  std::vector<BlockCopy> copies;
  copies.swap(lease.copies);
  for (const BlockCopy& copy : copies) {
    if (cells_[to_index(copy.source)].live) touch(to_index(copy.source), lease.keep);
  }
  sweep_orphans();
}

void Model::count(Lease& lease) {
  if (lease.counted) return;
  lease.counted = true;
  const Report& r = lease.report;
  ++counts.lookups;
  ++counts.outcomes[static_cast<uint32_t>(r.outcome)];
  ++counts.reasons[static_cast<uint32_t>(r.reason)];
  counts.queried_tokens += r.prompt_tokens;
  counts.reused_tokens += r.reused_tokens;
  counts.copied_tokens += r.copied_tokens;
}

// ---- Room ---------------------------------------------------------------------------------------

uint32_t Model::blocks_for(uint32_t tokens) const {
  return (tokens + config_.block_tokens - 1) / config_.block_tokens;
}

// The next victim: of the evictable cells, the one with the least mark.
Model::Id Model::victim(std::optional<TenantId> only) {
  const std::vector<bool> in_use = held();
  Id least = kNone;
  for (Id id = 0; id < cells_.size(); ++id) {
    if (!cells_[id].live || in_use[id] || has_children(id)) continue;
    if (!cells_[id].mark || (only && cells_[id].tenant != *only)) continue;
    if (least == kNone || worth(*cells_[id].mark) < worth(*cells_[least].mark)) least = id;
  }
  if (one_class_ && least != longest_unused(only, in_use)) {
    doubt = "the marks do not choose the leaf that is unused for longest";
  }
  return least;
}

Model::Id Model::longest_unused(std::optional<TenantId> only,
                                const std::vector<bool>& in_use) const {
  Id longest = kNone;
  for (Id id = 0; id < cells_.size(); ++id) {
    if (!cells_[id].live || in_use[id] || has_children(id)) continue;
    if (only && cells_[id].tenant != *only) continue;
    if (longest == kNone || cells_[id].covered < cells_[longest].covered) longest = id;
  }
  return longest;
}

void Model::evict_one(Id id) {
  const Id parent = cells_[id].parent;
  if (parent != kNone && is_only_child(id)) {
    std::optional<Mark>& above = cells_[parent].mark;
    if (!above || worth(*above) < worth(*cells_[id].mark)) above = cells_[id].mark;
  }
  remove(id);
  ++evicted;
}

uint32_t Model::evictable_blocks() const {
  const std::vector<bool> in_use = held();
  uint32_t blocks = 0;
  for (Id id = 0; id < cells_.size(); ++id) blocks += cells_[id].live && !in_use[id] ? 1 : 0;
  return blocks;
}

// Why so many blocks cannot be drafted now, however much is evicted.
std::optional<Errc> Model::obstacle(uint32_t blocks, TenantId tenant) const {
  if (blocks == 0) return std::nullopt;
  const std::vector<bool> in_use = held();
  uint64_t evictable = 0;
  uint64_t evictable_of_tenant = 0;
  for (Id id = 0; id < cells_.size(); ++id) {
    if (!cells_[id].live || in_use[id]) continue;
    ++evictable;
    evictable_of_tenant += cells_[id].tenant == tenant;
  }
  if (const auto quota = config_.quotas.find(tenant); quota != config_.quotas.end()) {
    const uint64_t least = tenant_bytes(tenant) - evictable_of_tenant * config_.block_bytes;
    if (least + blocks * config_.block_bytes > quota->second) return Errc::over_quota;
  }
  if (free_blocks() + evictable < blocks) return Errc::out_of_blocks;
  return std::nullopt;
}

void Model::make_room(uint32_t blocks, TenantId tenant) {
  const auto quota = config_.quotas.find(tenant);
  while (blocks > 0 && quota != config_.quotas.end() &&
         tenant_bytes(tenant) + blocks * config_.block_bytes > quota->second) {
    evict_one(victim(tenant));
  }
  while (free_blocks() < blocks) evict_one(victim(std::nullopt));
}

// Makes room for the blocks from index `from` on, and takes the blocks that the library took.
std::string Model::draft(Lease& lease, const Done& done, uint32_t from) {
  const auto blocks = static_cast<uint32_t>(done.table.size()) - from;
  if (const auto error = obstacle(blocks, lease.tenant)) return "should be refused: " + name(error);
  make_room(blocks, lease.tenant);
  return take(lease, done, from);
}

std::string Model::take(Lease& lease, const Done& done, uint32_t from) const {
  if (!std::equal(lease.table.begin(), lease.table.begin() + from, done.table.begin())) {
    return "blocks before index " + std::to_string(from) + " are not those of the path";
  }
  lease.table.resize(from);
  lease.own.resize(from);
  for (uint32_t i = from; i < done.table.size(); ++i) {
    if (done.table[i] >= cells_.size() || !is_free(done.table[i])) {
      return "block " + std::to_string(done.table[i]) + " at index " + std::to_string(i) +
             " is not free: " + who_has(done.table[i]);
    }
    lease.table.push_back(done.table[i]);
    lease.own.push_back(true);
  }
  return "";
}

// The library refused: so must we, and for the same reason.
std::string Model::refusal(uint32_t blocks, TenantId tenant, const Done& done) {
  const std::optional<Errc> expected = obstacle(blocks, tenant);
  if (expected != done.error) {
    return "refused with " + name(done.error) + " instead of " + name(expected);
  }
  if (done.error == Errc::over_quota) ++quota_refusals;
  return "";
}

// ---- Leasing ------------------------------------------------------------------------------------

std::string Model::lease(uint32_t id, const Request& request, const Done& done) {
  const uint32_t size = config_.block_tokens;
  const Found found = find(root_of(request.scope), request.story);
  Report report = lookup(request.scope, request.story, request.lookup);
  // Stands for the lease while we find out whether there is room.
  const auto stand = [&](const std::vector<BlockCopy>& copies) {
    const uint32_t index = report.reused_tokens / size;
    return Lease{.root = root_of(request.scope),
                 .tenant = request.tenant,
                 .story = request.story,
                 .text = request.text,
                 .write = request.lookup.write,
                 .keep = Keep(request.retain),
                 .report = report,
                 .reused = report.reused_tokens,
                 .committed = report.reused_tokens,
                 .tip = index == 0 ? kNone : found.path[index - 1],
                 .table = {found.path.begin(), found.path.begin() + index},
                 .own = std::vector<bool>(index, false),
                 .copies = copies,
                 .counted = false};
  };
  const auto wanted = [&] {
    return blocks_for(
        std::max(report.reused_tokens, std::min(request.draft_tokens, request.story.size())));
  };
  const auto try_with = [&](const std::vector<BlockCopy>& copies) {
    leases_[id] = stand(copies);
    const auto error = obstacle(wanted() - report.reused_tokens / size, request.tenant);
    leases_.erase(id);
    return error;
  };
  if (report.copied_tokens != 0 && done.copies.empty()) {
    // A copy's source takes room too. This is right if one of the sources that the library may have
    // chosen leaves too little room. If the lease would evict that source anyway, it takes over the
    // block with its contents; otherwise the lease does without the copy.
    std::vector<Id> sources =
        copy_sources(root_of(request.scope), request.story, found, report.reused_tokens);
    std::erase_if(sources, [&](Id source) {
      return !try_with({BlockCopy{.source = BlockId{source}}}).has_value();
    });
    if (sources.empty()) return "no copy although there is room for it";
    const uint32_t index = report.reused_tokens / size;
    const bool drafts_there = std::min(request.draft_tokens, request.story.size()) > index * size;
    const std::vector<bool> in_use = held();
    const auto goes = [&](Id source) {
      return drafts_there && !in_use[source] && !has_children(source);
    };
    if (!done.error && done.reused == report.reused_tokens) {
      const Id source = done.table.at(index);
      if (std::ranges::count(sources, source) == 0 || !goes(source)) {
        return "took over block " + std::to_string(source) + ": " + who_has(source);
      }
      evict_one(source);
      report.copied_tokens = 0;
      ++taken_over;
    } else if (!done.error && std::ranges::all_of(sources, goes)) {
      return "did without a copy whose source it could have taken over";
    }
  }
  if (report.copied_tokens != 0 && done.copies.empty()) {
    uint32_t n = report.reused_tokens;
    while (n % size != 0 || !request.story.is_border(n)) --n;
    report.reused_tokens = n;
    report.copied_tokens = 0;
    report.to_compute_tokens = request.story.size() - n;
    report.outcome = n == 0 ? Outcome::miss : Outcome::partial_hit;
    report.reason = MissReason::gave_up;
  }
  if (done.error) {
    const std::optional<Errc> expected = try_with({});
    if (expected != done.error) {
      return "refused with " + name(done.error) + " instead of " + name(expected);
    }
    if (done.error == Errc::over_quota) ++quota_refusals;
    Lease refused;
    refused.report = {.prompt_tokens = request.story.size(),
                      .outcome = Outcome::refused,
                      .reason = MissReason::no_room};
    count(refused);
    return "";
  }
  const uint32_t index = report.reused_tokens / size;
  if (done.table.size() != wanted()) {
    return "leased " + std::to_string(done.table.size()) + " blocks instead of " +
           std::to_string(wanted());
  }
  if (done.copies.size() != (report.copied_tokens == 0 ? 0 : 1)) return "a copy too many";
  for (const BlockCopy& copy : done.copies) {
    const std::vector<Id> sources =
        copy_sources(root_of(request.scope), request.story, found, report.reused_tokens);
    if (copy.tokens != report.copied_tokens) return "copies another number of tokens";
    if (to_index(copy.target) != done.table[index]) return "copies to another block";
    if (std::ranges::count(sources, to_index(copy.source)) == 0) {
      return "copies from block " + std::to_string(to_index(copy.source)) + " that does not serve";
    }
  }
  leases_[id] = stand(done.copies);
  return draft(leases_[id], done, index);
}

std::string Model::grow(Lease& l, uint32_t positions, const Done& done) {
  const auto from = static_cast<uint32_t>(l.table.size());
  const uint32_t blocks = std::max(from, blocks_for(positions));
  if (done.error) return refusal(blocks - from, l.tenant, done);
  if (done.table.size() != blocks) {
    return "grew to " + std::to_string(done.table.size()) + " blocks instead of " +
           std::to_string(blocks);
  }
  return draft(l, done, from);
}

std::string Model::extend(uint32_t id, std::span<const Token> tokens, uint32_t text,
                          const Done& done) {
  Lease& l = leases_.at(id);
  const uint32_t length = l.story.size() + static_cast<uint32_t>(tokens.size());
  const std::string complaint = grow(l, length, done);
  if (complaint.empty() && !done.error) {
    l.story.append(tokens);
    l.text = text;
  }
  return complaint;
}

std::string Model::reserve(uint32_t id, uint32_t positions, const Done& done) {
  return grow(leases_.at(id), positions, done);
}

void Model::copies_done(uint32_t id) { drop_copies(leases_.at(id)); }

uint32_t Model::published_cells(const Lease& lease) const {
  return lease.tip == kNone ? 0 : cells_[lease.tip].begin / config_.block_tokens + 1;
}

Commit Model::commit(uint32_t id, uint32_t n) {
  Lease& l = leases_.at(id);
  if (n > l.reused) count(l);
  Commit result{.committed = n};
  counts.computed_tokens += n - l.committed;
  const uint32_t size = config_.block_tokens;
  const uint32_t whole = l.write ? l.story.floor(n) / size : 0;
  for (uint32_t i = published_cells(l); i < whole; ++i) {
    Id equal = kNone;
    for (const Id child : children(l.root, l.tip)) {
      if (begins_with(cells_[child], l.story, i * size, (i + 1) * size)) equal = child;
    }
    if (equal != kNone) {
      ++result.duplicates;
      l.tip = equal;
    } else {
      l.tip = publish(l, i, size);
      result.published += cells_[l.tip].findable;
    }
  }
  l.committed = n;
  duplicates += result.duplicates;
  return result;
}

uint32_t Model::adopt_canonical(uint32_t id) {
  Lease& l = leases_.at(id);
  uint32_t given_up = 0;
  for (Id cell = l.tip; cell != kNone; cell = cells_[cell].parent) {
    const uint32_t index = cells_[cell].begin / config_.block_tokens;
    if (!l.own[index]) continue;
    l.table[index] = cell;
    l.own[index] = false;
    ++given_up;
  }
  return given_up;
}

std::string Model::fork(uint32_t from, uint32_t id, const Done& done) {
  const Lease& parent = leases_.at(from);
  const uint32_t n = parent.story.floor(parent.committed);
  const uint32_t size = config_.block_tokens;
  const uint32_t shared = published_cells(parent);
  const uint32_t blocks = blocks_for(n);
  Lease l = parent;
  l.story.cut(n);
  l.reused = l.committed = n;
  l.counted = true;  // A fork is no lookup.
  l.report = {.prompt_tokens = n, .matched_tokens = n, .reused_tokens = n};
  l.report.outcome = Outcome::full_hit;
  l.table.resize(shared);
  l.own.assign(shared, false);
  for (Id cell = l.tip; cell != kNone; cell = cells_[cell].parent) {
    l.table[cells_[cell].begin / size] = cell;
  }
  if (done.error) return refusal(blocks - shared, l.tenant, done);
  if (done.table.size() != blocks) return "forked to another number of blocks";
  // Unfindable contents are copied from the parent's own blocks.
  if (done.copies.size() != blocks - shared) return "a copy too many or too few";
  for (uint32_t i = shared; i < blocks; ++i) {
    const BlockCopy& copy = done.copies[i - shared];
    if (to_index(copy.source) != parent.table[i]) return "copies from another block";
    if (to_index(copy.target) != done.table[i]) return "copies to another block";
    if (copy.tokens != std::min(size, n - i * size)) return "copies another number of tokens";
    l.report.copied_tokens = std::max(l.report.copied_tokens, copy.tokens);
  }
  l.copies = done.copies;
  ++forks;
  leases_[id] = l;
  return draft(leases_[id], done, shared);
}

// The lease goes back to n within its published cells, with room for `capacity` positions. The cut
// cell is copied; blocks of its own are used again before others are drafted.
std::string Model::step_back(Lease& l, uint32_t n, uint32_t capacity, const Done& done) {
  const uint32_t size = config_.block_tokens;
  const uint32_t keep = n / size;
  const uint32_t blocks = blocks_for(std::max(n, capacity));
  uint32_t own = 0;
  for (size_t i = 0; i < l.table.size(); ++i) own += l.own[i] && !is_copied_from(l.table[i]);
  const uint32_t missing = blocks - keep > own ? blocks - keep - own : 0;
  if (done.error) return refusal(missing, l.tenant, done);
  if (done.table.size() != blocks) {
    return "stepped back to " + std::to_string(done.table.size()) + " blocks instead of " +
           std::to_string(blocks);
  }
  if (const auto error = obstacle(missing, l.tenant)) return "should be refused: " + name(error);
  make_room(missing, l.tenant);
  const Id old_tip = l.tip;
  Id cut = kNone;
  while (published_cells(l) > keep) {
    cut = l.tip;
    l.tip = cells_[l.tip].parent;
  }
  // Held until the copy is done: before anything else is let go.
  std::vector<BlockCopy> copies = done.copies;
  std::swap(copies, l.copies);
  for (const BlockCopy& copy : copies) {
    if (cells_[to_index(copy.source)].live) touch(to_index(copy.source), l.keep);
  }
  touch(old_tip, l.keep);
  l.table.clear();
  l.own.clear();
  for (Id cell = l.tip; cell != kNone; cell = cells_[cell].parent) {
    l.table.insert(l.table.begin(), cell);
    l.own.push_back(false);
  }
  sweep_orphans();
  if (l.copies.size() != (n % size == 0 ? 0 : 1)) return "a copy too many or too few";
  for (const BlockCopy& copy : l.copies) {
    if (to_index(copy.source) != cut) return "copies from another block";
    if (to_index(copy.target) != done.table[keep]) return "copies to another block";
    if (copy.tokens != n % size) return "copies another number of tokens";
  }
  return take(l, done, keep);
}

std::string Model::rewind(uint32_t id, uint32_t n, uint32_t text, const Done& done) {
  Lease& l = leases_.at(id);
  std::optional<Errc> error;
  if (n > l.story.size() || !l.story.is_border(n)) error = Errc::out_of_range;
  if (!l.copies.empty() && n <= l.story.size()) error = Errc::wrong_state;
  if (error) return error == done.error ? "" : "should fail with " + name(error);
  std::string complaint;
  if (n < published_cells(l) * config_.block_tokens) {
    complaint = step_back(l, n, n, done);
  } else if (n < l.committed &&
             std::any_of(
                 l.table.begin() + std::min<size_t>(l.table.size(), n / config_.block_tokens),
                 l.table.end(), [&](Id block) { return is_copied_from(block); })) {
    // A fork may still copy from these, so they must not be overwritten.
    if (done.error != Errc::busy) complaint = "rewound what a fork still copies from";
  } else if (done.error) {
    complaint = "refused with " + name(done.error);
  } else {
    // Within its own blocks: those that are empty now go back.
    const size_t blocks = std::min<size_t>(l.table.size(), blocks_for(n));
    l.table.resize(blocks);
    l.own.resize(blocks);
    if (l.table != done.table) complaint = "kept other blocks";
  }
  if (done.error || !complaint.empty()) return complaint;
  l.story.cut(n);
  l.text = text;
  l.committed = std::min(l.committed, n);
  l.reused = std::min(l.reused, n);
  ++rewinds;
  return "";
}

std::string Model::shrink(uint32_t id, uint32_t n, const Done& done) {
  Lease& l = leases_.at(id);
  const uint32_t size = config_.block_tokens;
  std::optional<Errc> error;
  if (n > l.reused) error = Errc::out_of_range;
  if (!error && l.committed != l.reused) error = Errc::wrong_state;
  if (error) return error == done.error ? "" : "should fail with " + name(error);
  if (n == l.reused) return done.error ? "refused with " + name(done.error) : "";
  n = l.story.floor(n);
  if (n > published_cells(l) * size) {
    // Fewer of the copied positions count.
    for (auto copy = l.copies.begin(); copy != l.copies.end();) {
      const auto at = std::ranges::find(l.table, to_index(copy->target)) - l.table.begin();
      const uint32_t begin = static_cast<uint32_t>(at) * size;
      copy->tokens = n > begin ? std::min(size, n - begin) : 0;
      copy = copy->tokens == 0 ? l.copies.erase(copy) : copy + 1;
    }
    if (!std::ranges::equal(l.copies, done.copies, [](const BlockCopy& a, const BlockCopy& b) {
          return a.source == b.source && a.target == b.target && a.tokens == b.tokens;
        })) {
      return "copies something else";
    }
  } else {
    const auto capacity = static_cast<uint32_t>(l.table.size()) * size;
    const std::string complaint = step_back(l, n, capacity, done);
    if (done.error || !complaint.empty()) return complaint;
  }
  give_up(l, n);
  return "";
}

std::string Model::copies_failed(uint32_t id, const Done& done) {
  Lease& l = leases_.at(id);
  const uint32_t size = config_.block_tokens;
  uint32_t n = std::min(l.committed, published_cells(l) * size);
  while (n % size != 0 || !l.story.is_border(n)) --n;
  const auto capacity = static_cast<uint32_t>(l.table.size()) * size;
  const std::string complaint = step_back(l, n, capacity, done);
  if (!complaint.empty() || done.error) return complaint;
  if (n < l.reused) give_up(l, n);
  l.committed = n;
  return "";
}

// Only n positions are reused after all.
void Model::give_up(Lease& l, uint32_t n) {
  l.reused = l.committed = n;
  l.report.reused_tokens = n;
  l.report.copied_tokens = 0;
  for (const BlockCopy& copy : l.copies) {
    l.report.copied_tokens = std::max(l.report.copied_tokens, copy.tokens);
  }
  l.report.to_compute_tokens = l.report.prompt_tokens - std::min(n, l.report.prompt_tokens);
  l.report.outcome = n == 0 ? Outcome::miss : Outcome::partial_hit;
  l.report.reason = MissReason::gave_up;
}

void Model::end(uint32_t id, bool with_tail) {
  Lease& l = leases_.at(id);
  count(l);
  const uint32_t begin = published_cells(l) * config_.block_tokens;
  const uint32_t end = l.story.floor(l.committed);
  const bool tail = with_tail && l.write && l.copies.empty() && end > begin;
  drop_copies(l);
  if (tail && std::ranges::none_of(children(l.root, l.tip), [&](Id sibling) {
        return begins_with(cells_[sibling], l.story, begin, end);
      })) {
    l.tip = publish(l, begin / config_.block_tokens, end - begin);
    tails += cells_[l.tip].findable;
  }
  const Id tip = l.tip;
  const Keep keep = l.keep;
  leases_.erase(id);
  touch(tip, keep);
  sweep_orphans();
}

// ---- Keeping and forgetting ---------------------------------------------------------------------

std::optional<uint32_t> Model::pin(uint32_t scope, const Story& story, uint64_t ttl_ns,
                                   uint64_t id) {
  const Found found = find(root_of(scope), story);
  const uint32_t size = config_.block_tokens;
  const uint32_t cells = story.floor(static_cast<uint32_t>(found.path.size()) * size) / size;
  if (cells == 0) return 0;
  Pin pin{.cell = found.path[cells - 1],
          .deadline_ns = ttl_ns >= kNever - now_ns_ ? kNever : now_ns_ + ttl_ns};
  std::set<Id> all;
  const auto add = [&](Id cell) {
    for (; cell != kNone; cell = cells_[cell].parent) all.insert(cell);
  };
  add(pin.cell);
  for (const auto& [other_id, other] : pins_) add(other.cell);
  if (static_cast<double>(all.size()) > config_.pin_share * config_.capacity_blocks) {
    return std::nullopt;
  }
  pins_[id] = pin;
  return cells * size;
}

bool Model::unpin(uint64_t id) {
  const auto it = pins_.find(id);
  if (it == pins_.end()) return false;
  const Id cell = it->second.cell;
  pins_.erase(it);
  touch(cell, Keep());
  sweep_orphans();
  return true;
}

// Pins whose deadline has come end, the earliest first.
void Model::expire_pins() {
  for (;;) {
    const auto first = std::ranges::min_element(
        pins_, {}, [](const auto& entry) { return entry.second.deadline_ns; });
    if (first == pins_.end() || first->second.deadline_ns > now_ns_) return;
    ++pin_expiries;
    unpin(first->first);
  }
}

// The last cell it used, if nobody used that since and its mark still counts, is now an ended
// session's.
void Model::end_session(SessionId session) {
  const auto it = last_use_.find(session);
  if (it == last_use_.end()) return;
  const Use use = it->second;
  last_use_.erase(it);
  const Cell& cell = cells_[use.cell];
  if (!cell.live || cell.born != use.born || cell.user != session || !cell.mark) return;
  Keep ended;
  ended.retain.phase = SessionPhase::ended;
  touch(use.cell, ended);
}

// Everything below the kept cells that goes on like the story, as long as both have words.
uint32_t Model::truncate(uint32_t scope, const Story& story, uint32_t keep) {
  const uint32_t size = config_.block_tokens;
  const uint32_t index = keep / size;
  const uint32_t begin = index * size;
  const Found found = find(root_of(scope), story);
  if (index > found.path.size() || begin > story.size()) return 0;
  const Id end = index == 0 ? kNone : found.path[index - 1];
  std::vector<Id> gone;
  for (const Id child : children(root_of(scope), end)) {
    const auto words = static_cast<uint32_t>(cells_[child].words.size());
    if (!begins_with(cells_[child], story, begin, std::min(story.size(), begin + words))) continue;
    cells_[child].cut = true;
    gone.push_back(child);
  }
  for (size_t i = 0; i < gone.size(); ++i) {
    for (const Id id : children(root_of(scope), gone[i])) gone.push_back(id);
  }
  forget(gone);
  if (!gone.empty()) touch(end, Keep());
  return static_cast<uint32_t>(gone.size());
}

uint32_t Model::drop_scope(uint32_t scope) {
  std::vector<Id> all;
  for (Id id = 0; id < cells_.size(); ++id) {
    if (cells_[id].findable && cells_[id].root == root_of(scope)) all.push_back(id);
  }
  roots_[scope] = next_root_++;
  return forget(all);
}

void Model::reset(uint32_t scopes) {
  while (!pins_.empty()) unpin(pins_.begin()->first);
  for (uint32_t scope = 0; scope < scopes; ++scope) drop_scope(scope);
}

uint32_t Model::evict(uint32_t blocks) {
  for (uint32_t done = 0; done < blocks; ++done) {
    const Id id = victim(std::nullopt);
    if (id == kNone) return done;
    evict_one(id);
  }
  return blocks;
}

}  // namespace stemma::test
