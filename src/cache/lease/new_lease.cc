#include "cache/lease/new_lease.h"

#include <algorithm>
#include <new>

#include "cache/check_options.h"
#include "cache/lease/growth.h"
#include "cache/lease/path_finder.h"
#include "cache/lease/placement.h"

namespace stemma::cache {
namespace {

Result<void> check_fill(const Books& books, const LeaseRecord& record, uint32_t fill_to) {
  if (fill_to == 0) return {};
  if (fill_to > record.length) {
    return Error(Errc::invalid_argument, "fill_to is beyond the prompt", fill_to);
  }
  // Powers of two: the largest is a multiple of all.
  if (fill_to % books.unit_tokens() != 0) {
    return Error(Errc::invalid_argument, "fill_to is no multiple of every block_tokens", fill_to);
  }
  if (key::floor_to_unit(record.spans, fill_to) != fill_to) {
    return Error(Errc::invalid_argument, "fill_to is inside a media item", fill_to);
  }
  return {};
}

// A lease that is being made from a borrowed record.
class NewLease {
 public:
  NewLease(Core& core, LeaseRecord& record, const Scope& scope, const Prompt& prompt,
           const LeaseOptions& options) noexcept
      : core_(core),
        record_(record),
        scope_(scope),
        options_(options),
        finder_(core.view(), record, scope, prompt),
        read_(options.lookup.read && core.options().enabled) {}

  Result<void> make();

 private:
  // Finds or makes the scope's root, if the record has none. hold_root() holds it while the lock is
  // released before the record has a tip. leave() undoes both if no lease is made.
  Result<void> open(Store& store);
  void hold_root(Store& store);
  void leave(Store& store);
  // No lease is made: leaves the root and counts the refusal.
  Error refuse(Store& store, const Error& error);
  // The need of a lease that finds nothing cached.
  Need first_need() const;
  // Items must have numbers before the prompt's words can be compared.
  Result<void> open_with_media();
  // Turns a record that has a root into a lease. Error: out_of_blocks, over_quota, out_of_memory.
  // On the last try it gives up a part-block copy for which there is no room.
  Result<void> begin(Store& store, bool last_try);
  Match match(Store& store, Placement::Target& target);
  Result<void> place(Store& store, const Placement::Target& target,
                     Placement::Source source = Placement::Source::copy);
  Result<void> place_without_source(Store& store, Placement::Target& target, Match& match,
                                    Result<void> refused);

  uint32_t draft_positions() const { return std::min(options_.draft_tokens, record_.length); }

  Core& core_;
  LeaseRecord& record_;
  const Scope& scope_;
  const LeaseOptions& options_;
  PathFinder finder_;
  const bool read_;
};

Result<void> NewLease::make() {
  STEMMA_TRY_VOID(finder_.read());
  record_.set_retain(options_.retain);
  record_.tenant = options_.tenant;
  record_.write = options_.lookup.write && core_.options().enabled;
  record_.length = finder_.length();
  STEMMA_TRY_VOID(check_fill(core_.view(), record_, options_.fill_to));
  if (finder_.has_media()) STEMMA_TRY_VOID(open_with_media());
  if (read_) finder_.walk();
  if (Result<void> checked = finder_.check_tokens(); !checked) {
    if (record_.root != kNoCell) core_.locked([&](Store& store) { leave(store); });
    return checked;
  }
  return core_.until_room([&](Store& store, bool last_try) -> Result<void> {
    Result<void> outcome = open(store);
    if (outcome) outcome = begin(store, last_try);
    if (outcome) return outcome;
    if (last_try) return refuse(store, outcome.error());
    if (record_.root != kNoCell && record_.tip == kNoCell) hold_root(store);
    return outcome;
  });
}

Result<void> NewLease::open_with_media() {
  return core_.until_room([&](Store& store, bool last_try) -> Result<void> {
    if (Result<void> opened = open(store); !opened) {
      return last_try ? Result<void>(refuse(store, opened.error())) : opened;
    }
    hold_root(store);
    Result<void> interned = finder_.intern_media(store.books, record_.root);
    if (!interned) leave(store);
    return interned;
  });
}

Result<void> NewLease::open(Store& store) {
  if (record_.root != kNoCell) return {};
  STEMMA_TRY(const ScopeTable::Root* root,
             store.room.open_root(scope_, record_.tenant, first_need()));
  record_.root = root->cell;
  record_.tenant_index = root->tenant_index;
  return {};
}

void NewLease::hold_root(Store& store) {
  record_.tip = record_.root;
  store.holds.hold(record_.root, 0, record_.tenant_index);
}

void NewLease::leave(Store& store) {
  for (uint32_t number : record_.media_numbers) store.books.media.drop_reference(number);
  record_.media_numbers.clear();
  if (record_.tip != kNoCell) store.holds.undo(record_.root, 0, record_.tenant_index);
  store.cells.close_root(record_.root);
  record_.root = record_.tip = kNoCell;
}

Error NewLease::refuse(Store& store, const Error& error) {
  if (record_.root != kNoCell) leave(store);
  if (error.code() == Errc::invalid_argument) return error;
  Report& report = record_.report;
  report.prompt_tokens = report.to_compute_tokens = record_.length;
  report.outcome = Outcome::refused;
  report.reason = MissReason::no_room;
  if (options_.fill_to == 0) store.books.counters.count(report, store.books.now_ns);
  return error;
}

Need NewLease::first_need() const {
  const Books& books = core_.view();
  const bool fills = options_.fill_to != 0;
  const uint32_t capacity = fills ? options_.fill_to : draft_positions();
  if (capacity == 0) return {};
  Need need = growth(books, record_, capacity);
  for (GroupIndex g = 0; fills && g < books.group_count(); ++g) {
    const Group& group = books.group(g);
    if (!group.window()) continue;
    const uint32_t low = group.window_low(options_.fill_to);
    need.blocks[g] -= low - std::min(low, group.sink_blocks());
  }
  return need;
}

Match NewLease::match(Store& store, Placement::Target& target) {
  const bool scope_known = store.books.tree.has_child(record_.root);
  if (!read_) {
    target.path.root = record_.root;
    target.path.words = finder_.words();
    Match match;
    match.report.prompt_tokens = match.report.to_compute_tokens = record_.length;
    match.report.outcome = Outcome::bypassed;
    match.report.reason = MissReason::read_off;
    return match;
  }
  LookupOptions lookup = options_.lookup;
  if (target.fill != 0) {
    lookup.at_most = std::min(lookup.at_most, target.fill);
    lookup.allow_copy = lookup.want_logits = false;
  }
  target.path = finder_.judge(store.books, record_.root);
  return find_match(store.books, target.path, record_.spans, record_.length, lookup, scope_known);
}

Result<void> NewLease::place(Store& store, const Placement::Target& target,
                             Placement::Source source) {
  const uint32_t tokens = store.books.cell_tokens();
  record_.words.reserve(finder_.words().size() - target.n / tokens * tokens);
  Placement placement(store, record_);
  placement.share_path(target, source);
  return placement.carry_out();
}

// The missing block may be the very source of a part-block copy. If it would be evicted for the
// lease anyway, the lease takes it over; otherwise the lease does without the copy.
Result<void> NewLease::place_without_source(Store& store, Placement::Target& target, Match& match,
                                            Result<void> refused) {
  const Books& books = store.books;
  const uint32_t tokens = books.cell_tokens();
  const auto short_of_source = [&] {
    return !refused && !record_.next_sources.empty() &&
           refused.error().code() != Errc::out_of_memory;
  };
  const bool drafts_in_its_place = draft_positions() > target.n / tokens * tokens;
  if (short_of_source() && drafts_in_its_place && can_take_over(books, record_, target)) {
    refused = place(store, target, Placement::Source::take_over);
  }
  if (!short_of_source()) return refused;
  const Present present(books, target.path, record_.spans);
  target.n = tree::largest_servable(books.reaches(), target.n, false, present).n;
  target.capacity = std::max(draft_positions(), target.n);
  match.logits.reset();
  match.report.reused_tokens = target.n;
  match.report.to_compute_tokens = record_.length - target.n;
  match.report.outcome = target.n == 0 ? Outcome::miss : Outcome::partial_hit;
  match.report.reason = MissReason::gave_up;
  return place(store, target);
}

Result<void> NewLease::begin(Store& store, bool last_try) try {
  store.holds.prepare_live();
  Placement::Target target;
  target.fill = options_.fill_to;
  Match match = this->match(store, target);
  target.n = match.n;
  target.capacity = target.fill != 0 ? target.fill : std::max(draft_positions(), target.n);
  Result<void> room = place(store, target);
  if (!room && last_try) room = place_without_source(store, target, match, room);
  if (!room) return room;
  const std::span<const uint32_t> words = finder_.words();
  record_.words_begin = record_.published * store.books.cell_tokens();
  record_.words.assign(words.begin() + record_.words_begin, words.end());
  record_.reused = record_.committed = target.n;
  record_.filling = target.fill;
  record_.counted = target.fill != 0;  // A lease that fills is not a request.
  record_.report = match.report;
  for (const BlockCopy& copy : record_.copies) {
    if (copy.target == kNoBlock) continue;
    record_.report.copied_tokens = std::max(record_.report.copied_tokens, copy.tokens);
  }
  record_.logits = std::move(match.logits);
  store.holds.add_live(&record_);
  record_.find_media_to_process();
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for another lease");
}

}  // namespace

Result<LeaseRecord*> new_lease(Core& core, const Scope& scope, const Prompt& prompt,
                               const LeaseOptions& options) {
  STEMMA_TRY_VOID(check_retain(options.retain));
  RecordPool::Borrowed record(core.records());
  STEMMA_TRY_VOID(NewLease(core, *record, scope, prompt, options).make());
  return record.keep();
}

}  // namespace stemma::cache
