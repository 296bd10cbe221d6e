#include "cache/shared.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "base/check.h"
#include "base/thread_number.h"
#include "base/vectors.h"
#include "key/content_key.h"

namespace stemma::cache {

using base::MutexLock;

Shared::Shared(const Options& options)
    : options_(options),
      clock_(options.clock != nullptr ? options.clock : &Clock::monotonic()),
      record_allowance_(record_allowance(options)),
      store_(options),
      view_(store_) {}

bool Shared::create() {
  const Section lock(*this);
  return store_.create(options_);
}

void Shared::disown() {
  bool last;
  {
    const Section lock(*this);
    owned_ = false;
    last = unused();
  }
  if (last) delete this;
}

// ---- Records -----------------------------------------------------------------------------------

LeaseRecord* Shared::take_record() {
  const uint32_t slot = base::thread_number() % kSlots;
  if (LeaseRecord* record = slots_[slot].record.exchange(nullptr, std::memory_order_acq_rel)) {
    return record;
  }
  MutexLock lock(records_mutex_);
  if (!free_records_.empty()) {
    LeaseRecord* record = free_records_.back();
    free_records_.pop_back();
    return record;
  }
  auto record = std::make_unique<LeaseRecord>();
  record->ranges.reserve(kMaxPriorityRanges);
  record->copies.reserve(kMaxGroups);
  record->sources.reserve(kMaxGroups);
  record->next_sources.reserve(kMaxGroups);
  record->record_index = static_cast<uint32_t>(records_.size());
  base::make_room(free_records_, records_.size() + 1 - free_records_.size());
  records_.push_back(std::move(record));
  return records_.back().get();
}

LeaseRecord* Shared::acquire() {
  LeaseRecord* record = take_record();
  // Only what its user would mistake for its own; vectors keep their memory.
  record->root = record->tip = kNoCell;
  record->tenant = kNoTenant;
  record->tenant_index = record->published = record->cell_count = record->own_from = 0;
  record->words.clear();
  record->words_begin = record->length = record->reused = record->committed = 0;
  record->spans.clear();
  record->media_numbers.clear();
  record->media_begin_end.clear();
  record->media_to_process.clear();
  record->copies.clear();
  record->sources.clear();
  for (auto& pages : record->pages) pages.clear();
  record->held_slot.fill(kPageMask);
  record->filling = 0;
  record->write = true;
  record->counted = false;
  record->publish_tail = true;
  record->retain = {};
  record->ranges.clear();
  record->fence = nullptr;
  record->report = {};
  record->computed = 0;
  return record;
}

void Shared::recycle(LeaseRecord* record) {
  record->logits.reset();
  record->past_logits.reset();
  uint64_t words = record->cells.capacity() + record->words.capacity() + record->query.capacity() +
                   record->path.capacity() + record->spare_cells.capacity();
  for (GroupIndex g = 0; g < view_.group_count(); ++g) {
    words += record->pages[g].capacity() + record->next_pages[g].capacity();
  }
  const uint64_t bytes = sizeof(LeaseRecord) + words * sizeof(uint32_t) +
                         record->keys.capacity() * sizeof(ContentKey) +
                         record->ranges.capacity() * sizeof(PriorityRange) +
                         record->spans.capacity() * sizeof(key::MediaSpan);
  if (bytes != record->counted_bytes) {
    record_bytes_.fetch_add(bytes - record->counted_bytes, std::memory_order_relaxed);
    record->counted_bytes = bytes;
  }
  if (record_bytes_.load(std::memory_order_relaxed) > record_allowance_) {
    MutexLock lock(records_mutex_);
    record_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    std::unique_ptr<LeaseRecord>& place = records_[record->record_index];
    records_.back()->record_index = record->record_index;
    std::swap(place, records_.back());
    records_.pop_back();
    return;
  }
  const uint32_t slot = base::thread_number() % kSlots;
  LeaseRecord* expected = nullptr;
  if (slots_[slot].record.compare_exchange_strong(expected, record, std::memory_order_acq_rel)) {
    return;
  }
  MutexLock lock(records_mutex_);
  free_records_.push_back(record);
}

// ---- Prompts -----------------------------------------------------------------------------------

Result<void> Shared::read_prompt(const Prompt& prompt, LeaseRecord& record, Query& query) {
  query.births = view_.tree().births();
  if (prompt.tokens.size() > key::kMaxPromptPositions) {
    return Error(Errc::invalid_argument, "the prompt is longer than 2^31 - 1 positions");
  }
  const size_t cells = prompt.tokens.size() / view_.cell_tokens() + 1;
  if (record.cells.size() < cells) record.cells.resize(cells);
  if (prompt.media.empty()) {
    query.words = prompt.tokens;
    return {};
  }
  if (const Result<void> found = key::find_media_spans(prompt, record.spans); !found) {
    const Error& error = found.error();
    const bool memory = error.code() == Errc::out_of_memory;
    return Error(memory ? Errc::out_of_memory : Errc::invalid_argument, error.message(),
                 error.value());
  }
  if (!key::all_tokens_valid(prompt.tokens)) {
    if (const auto bad = key::first_bad_token(prompt.tokens, record.spans)) {
      return Error(Errc::invalid_argument, "not a token (2^31 or more) at this position", *bad);
    }
  }
  record.query.assign(prompt.tokens.begin(), prompt.tokens.end());
  query.words = record.query;
  record.media_numbers.reserve(record.spans.size());
  record.media_to_process.reserve(prompt.media.size());
  for (const MediaItem& item : prompt.media) {
    record.media_begin_end.push_back(item.offset);
    record.media_begin_end.push_back(item.offset + item.length);
  }
  return {};
}

bool Shared::number_media(CellIndex root, LeaseRecord& record) {
  bool changed = false;
  for (const key::MediaSpan& span : record.spans) {
    const auto number = store_.media().find(root, span.identity);
    // The highest number is never given out, so its word is in no cell.
    const uint32_t word =
        number ? key::media_word(*number) : key::media_word(key::kMediaNumberLimit - 1);
    changed = changed || record.query[span.begin] != word;
    std::fill(record.query.begin() + span.begin, record.query.begin() + span.end, word);
  }
  return changed;
}

Path Shared::judge_again(CellIndex root, LeaseRecord& record, Query& query) {
  // Nobody kept the items' numbers while the walk was on its way: an item may have gone and its number
  // may be another's by now. Then the walk followed the wrong words.
  if (number_media(root, record)) {
    query.walk = {};
    query.root_guess = kNoCell;
  }
  return judge(root, record, query);
}

Result<void> Shared::intern_media(CellIndex root, LeaseRecord& record) {
  for (const key::MediaSpan& span : record.spans) {
    Result<uint32_t> number = store_.media().intern(root, span.identity);
    if (!number) {
      for (uint32_t held : record.media_numbers) store_.media().drop_reference(held);
      record.media_numbers.clear();
      return number.error();
    }
    record.media_numbers.push_back(*number);
    std::fill(record.query.begin() + span.begin, record.query.begin() + span.end,
              key::media_word(*number));
  }
  return {};
}

Result<void> Shared::walk(const Scope& scope, const Prompt& prompt, bool read, LeaseRecord& record,
                          Query& query) {
  query.root_guess = read ? view_.scopes().guess(scope) : kNoCell;
  if (query.root_guess != kNoCell) {
    const auto cells = static_cast<uint32_t>(query.words.size() / view_.cell_tokens());
    query.walk =
        view_.tree().walk(query.root_guess, query.words.data(), cells, record.cells.data());
  }
  if (!prompt.media.empty()) return {};
  // Matched words are in the tree, where every word of 2^31 or more is a media item: none of the
  // query's may be. What was not matched is looked at here.
  const auto seen = uint64_t{query.walk.cells} * view_.cell_tokens();
  if (key::is_token_word(query.walk.word_bits) &&
      key::all_tokens_valid(prompt.tokens.subspan(seen))) {
    return {};
  }
  return Error(Errc::invalid_argument, "not a token (2^31 or more) at this position",
               key::first_bad_token(prompt.tokens).value_or(0));
}

Path Shared::judge(CellIndex root, LeaseRecord& record, const Query& query) {
  tree::PrefixTree& tree = store_.tree();
  const uint32_t tokens = store_.cell_tokens();
  const auto cells = static_cast<uint32_t>(query.words.size() / tokens);
  Path path;
  path.root = root;
  path.words = query.words;
  tree.keep_young(root);
  if (root == query.root_guess) {
    path.whole = tree.valid_prefix(root, record.cells.data(), query.walk.cells, query.births);
    if (path.whole != query.walk.cells) ++store_.tally.stale_walks;
    if (query.walk.fallbacks > 2 * tree::kHintDistance && path.whole > 2 * tree::kHintDistance) {
      ++store_.tally.hint_repairs;
      tree.repair_hints(record.cells.data(), path.whole);
    }
  }
  // A walk beside a writer may stop too early: go on from the last cell that was really there.
  CellIndex current = path.whole == 0 ? root : record.cells[path.whole - 1];
  while (path.whole < cells) {
    const CellIndex child =
        tree.find_child(current, query.words.subspan(uint64_t{path.whole} * tokens, tokens));
    if (child == kNoCell) break;
    tree.keep_young(child);
    record.cells[path.whole++] = child;
    current = child;
  }
  path.cells = record.cells.data();
  const std::span<const uint32_t> rest = query.words.subspan(uint64_t{path.whole} * tokens);
  if (!rest.empty()) {
    path.partial = tree.best_child(current, rest.first(std::min<size_t>(rest.size(), tokens)));
  }
  return path;
}

// ---- Lookup ------------------------------------------------------------------------------------

Result<Report> Shared::lookup(const Scope& scope, const Prompt& prompt,
                              const LookupOptions& options) {
  Borrowed record(*this);
  Query query;
  STEMMA_TRY_VOID(read_prompt(prompt, *record, query));
  const bool read = options.read && options_.enabled;
  if (read && !prompt.media.empty()) {
    const Section lock(*this);
    const ScopeTable::Root* root = store_.scopes().find(scope);
    (void)number_media(root == nullptr ? kNoCell : root->cell, *record);
  }
  STEMMA_TRY_VOID(walk(scope, prompt, read, *record, query));
  Report report;
  report.prompt_tokens = static_cast<uint32_t>(prompt.tokens.size());
  if (!read) {
    report.outcome = Outcome::bypassed;
    report.reason = MissReason::read_off;
    report.to_compute_tokens = report.prompt_tokens;
    return report;
  }
  const Section lock(*this);
  const ScopeTable::Root* root = store_.scopes().find(scope);
  if (root == nullptr) {
    Path nothing;
    return find_match(store_, nothing, record->spans, report.prompt_tokens, options, false).report;
  }
  const Path path = judge_again(root->cell, *record, query);
  report = find_match(store_, path, record->spans, report.prompt_tokens, options,
                      store_.tree().has_child(root->cell))
               .report;
  for (const tree::GroupReach& reach : store_.reaches()) {
    if (reach.kind != tree::Reach::recurrent) {
      report.copied_tokens =
          std::max(report.copied_tokens, report.reused_tokens % reach.block_tokens);
    }
  }
  return report;
}

// ---- Lease -------------------------------------------------------------------------------------

Result<LeaseRecord*> Shared::lease(const Scope& scope, const Prompt& prompt,
                                   const LeaseOptions& options) {
  STEMMA_TRY_VOID(check_retain(options.retain));
  Borrowed record(*this);
  Query query;
  STEMMA_TRY_VOID(read_prompt(prompt, *record, query));
  const bool read = options.lookup.read && options_.enabled;
  set_retain(*record, options.retain);
  record->tenant = options.tenant;
  record->write = options.lookup.write && options_.enabled;
  record->length = static_cast<uint32_t>(prompt.tokens.size());
  record->checkpoint.fill(kPageMask);
  STEMMA_TRY_VOID(check_fill(*record, options.fill_to));

  // Items must have numbers before the prompt's words can be compared.
  if (!prompt.media.empty()) STEMMA_TRY_VOID(open_with_media(scope, options, *record));
  if (Result<void> walked = walk(scope, prompt, read, *record, query); !walked) {
    const Section lock(*this);
    if (record->root != kNoCell) leave(*record);
    return walked.error();
  }
  for (uint32_t tries = 0;; ++tries) {
    {
      const Section lock(*this);
      const bool last_try = give_up(tries);
      Result<void> outcome = open(scope, options, *record);
      if (outcome) outcome = begin(*record, query, options, read, last_try);
      if (outcome) return record.keep();
      if (last_try) return refuse_lease(*record, options, outcome.error());
      if (record->root != kNoCell && record->tip == kNoCell) hold_root(*record);
    }
    poll();
  }
}

Result<void> Shared::open_with_media(const Scope& scope, const LeaseOptions& options,
                                     LeaseRecord& record) {
  for (uint32_t tries = 0;; ++tries) {
    {
      const Section lock(*this);
      Result<void> opened = open(scope, options, record);
      if (opened) {
        hold_root(record);
        Result<void> interned = intern_media(record.root, record);
        if (!interned) leave(record);
        return interned;
      }
      if (give_up(tries)) return refuse_lease(record, options, opened.error());
    }
    poll();
  }
}

Error Shared::refuse_lease(LeaseRecord& record, const LeaseOptions& options, const Error& error) {
  if (record.root != kNoCell) leave(record);
  if (error.code() == Errc::invalid_argument) return error;
  Report& report = record.report;
  report.prompt_tokens = report.to_compute_tokens = record.length;
  report.outcome = Outcome::refused;
  report.reason = MissReason::no_room;
  if (options.fill_to == 0) store_.counters().count(report, store_.now_ns());
  return refuse(error);
}

Result<void> Shared::check_fill(const LeaseRecord& record, uint32_t fill_to) const {
  if (fill_to == 0) return {};
  if (fill_to > record.length) {
    return Error(Errc::invalid_argument, "fill_to is beyond the prompt", fill_to);
  }
  uint32_t grid = view_.cell_tokens();  // Powers of two: the largest is a multiple of all.
  for (const tree::GroupReach& reach : view_.reaches()) {
    if (reach.kind != tree::Reach::recurrent) grid = std::max(grid, reach.block_tokens);
  }
  if (fill_to % grid != 0) {
    return Error(Errc::invalid_argument, "fill_to is no multiple of every block_tokens", fill_to);
  }
  if (key::floor_to_unit(record.spans, fill_to) != fill_to) {
    return Error(Errc::invalid_argument, "fill_to is inside a media item", fill_to);
  }
  return {};
}

Result<void> Shared::open(const Scope& scope, const LeaseOptions& options, LeaseRecord& record) {
  if (record.root != kNoCell) return {};
  STEMMA_TRY(const ScopeTable::Root* root,
             store_.open_root(scope, record.tenant, first_need(record, options)));
  record.root = root->cell;
  record.tenant_index = root->tenant_index;
  return {};
}

void Shared::hold_root(LeaseRecord& record) {
  record.tip = record.root;
  store_.hold(record.root, 0, record.tenant_index);
}

void Shared::leave(LeaseRecord& record) {
  for (uint32_t number : record.media_numbers) store_.media().drop_reference(number);
  record.media_numbers.clear();
  if (record.tip != kNoCell) store_.undo_hold(record.root, 0, record.tenant_index);
  store_.close_root(record.root);
  record.root = record.tip = kNoCell;
}

Result<void> Shared::begin(LeaseRecord& record, const Query& query, const LeaseOptions& options,
                           bool read, bool last_try) try {
  store_.prepare_live();
  const bool scope_known = store_.tree().has_child(record.root);
  Stand stand;
  stand.fill = options.fill_to;
  Match match;
  if (read) {
    LookupOptions lookup = options.lookup;
    if (stand.fill != 0) {
      lookup.at_most = std::min(lookup.at_most, stand.fill);
      lookup.allow_copy = lookup.want_logits = false;
    }
    stand.path = judge(record.root, record, query);
    match = find_match(store_, stand.path, record.spans, record.length, lookup, scope_known);
  } else {
    stand.path.root = record.root;
    stand.path.words = query.words;
    match.report.prompt_tokens = match.report.to_compute_tokens = record.length;
    match.report.outcome = Outcome::bypassed;
    match.report.reason = MissReason::read_off;
  }
  stand.n = match.n;
  stand.capacity = stand.fill != 0
                       ? stand.fill
                       : std::max(std::min(options.draft_tokens, record.length), stand.n);
  const uint32_t tokens = store_.cell_tokens();
  record.words.reserve(query.words.size() - stand.n / tokens * tokens);
  Result<void> room = take_stand(record, stand);
  // The source of a part-block copy may be the very block that is missing. If it would be evicted for
  // the lease anyway, it becomes the lease's own; otherwise the lease does without the copy.
  const auto short_of_source = [&] {
    return !room && last_try && !record.next_sources.empty() &&
           room.error().code() != Errc::out_of_memory;
  };
  const bool drafts_in_its_place =
      std::min(options.draft_tokens, record.length) > stand.n / tokens * tokens;
  if (short_of_source() && drafts_in_its_place && can_take_over(record, stand)) {
    stand.take_over = true;
    room = take_stand(record, stand);
    stand.take_over = false;
  }
  if (short_of_source()) {
    match.n = stand.n = tree::largest_servable(store_.reaches(), stand.n, false,
                                               Present(store_, stand.path, record.spans))
                            .n;
    stand.capacity = std::max(std::min(options.draft_tokens, record.length), stand.n);
    match.logits.reset();
    match.report.reused_tokens = stand.n;
    match.report.to_compute_tokens = record.length - stand.n;
    match.report.outcome = stand.n == 0 ? Outcome::miss : Outcome::partial_hit;
    match.report.reason = MissReason::gave_up;
    record.words.reserve(query.words.size() - stand.n / tokens * tokens);
    room = take_stand(record, stand);
  }
  if (!room) return room.error();
  record.words_begin = record.published * tokens;
  record.words.assign(query.words.begin() + record.words_begin, query.words.end());
  record.reused = record.committed = stand.n;
  record.filling = stand.fill;
  record.counted = stand.fill != 0;  // What fills is no request.
  record.report = match.report;
  for (const BlockCopy& copy : record.copies) {
    if (copy.target == kNoBlock) continue;
    record.report.copied_tokens = std::max(record.report.copied_tokens, copy.tokens);
  }
  record.logits = std::move(match.logits);
  store_.add_live(&record);
  find_media_to_process(record);
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for another lease");
}

void Shared::find_media_to_process(LeaseRecord& lease) {
  lease.media_to_process.clear();
  for (size_t i = 0; i + 1 < lease.media_begin_end.size(); i += 2) {
    if (lease.media_begin_end[i + 1] > lease.reused) {
      lease.media_to_process.push_back(static_cast<uint32_t>(i / 2));
    }
  }
}

uint32_t Shared::poll() {
  if (fenced_count_.load(std::memory_order_relaxed) == 0) return 0;
  LeaseRecord* asked;
  {
    const Section lock(*this);
    asked = std::exchange(fenced_, nullptr);
    fenced_end_ = &fenced_;
  }
  // Fences are the engine's code: asked without the lock.
  LeaseRecord* done = nullptr;
  LeaseRecord** done_end = &done;
  LeaseRecord* waiting = nullptr;
  LeaseRecord** waiting_end = &waiting;
  while (asked != nullptr) {
    LeaseRecord* lease = std::exchange(asked, std::exchange(asked->next_fenced, nullptr));
    LeaseRecord**& end = lease->fence->signalled() ? done_end : waiting_end;
    *end = lease;
    end = &lease->next_fenced;
  }
  uint32_t settled = 0;
  {
    const Section lock(*this);
    for (; done != nullptr; ++settled) {
      LeaseRecord* lease = std::exchange(done, done->next_fenced);
      settle(*lease);
      recycle(lease);
    }
    if (waiting != nullptr) {
      *waiting_end = fenced_;
      if (fenced_ == nullptr) fenced_end_ = waiting_end;
      fenced_ = waiting;
    }
    fenced_count_.fetch_sub(settled, std::memory_order_relaxed);
  }
  return settled;
}

}  // namespace stemma::cache
