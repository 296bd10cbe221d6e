#include "support/fake_sequences.h"

#include <algorithm>
#include <functional>

#include "base/random.h"

namespace stemma::test {
namespace {

constexpr uint64_t kUnsound = 0xBAD;  // Marks everything computed behind wrong contents.

}  // namespace

SequenceCosts device_costs() {
  return {.call_ns = 2'000,
          .save_ns = 900'000,
          .load_ns = 1'000'000,
          .save_byte_ps = 104'000,
          .load_byte_ps = 119'000,
          .token_ns = 34'000,
          .cell_ps = 2'200,
          .pass_ns = 7'000'000,
          .piece_ns = 600'000};
}

bool FakeSequences::possible(const Options& o) {
  const bool recurrent = o.rewind == Rewind::exact || o.rewind == Rewind::bounded;
  if (o.sequences == 0 || o.row_bytes < 8 || o.state_bytes < 8) return false;
  if (o.fork == Fork::shared && !o.unified) return false;
  if (o.fork == Fork::none && (o.segments || o.checkpoints)) return false;
  if (o.rewind == Rewind::any && o.checkpoints) return false;
  if (o.rewind_tokens == 0 && (o.rewind == Rewind::window || o.rewind == Rewind::bounded)) {
    return false;
  }
  return o.full_attention || (recurrent && !o.segments);
}

FakeSequences::FakeSequences(const Options& options)
    : options_(options), sequences_(options.sequences) {
  if (!possible(options)) {
    fail_unchecked_result(Error(Errc::invalid_argument, "traits that no engine has"));
  }
  full_.capacity = options.context_tokens;
  window_.capacity = (window_kept() + 1) * (options.unified ? options.sequences : 1);
}

EngineTraits FakeSequences::traits() const {
  EngineTraits traits;
  traits.sequences = options_.sequences;
  traits.context_tokens = options_.context_tokens;
  traits.unified = options_.unified;
  traits.rewind = options_.rewind;
  const bool counts = windowed() || options_.rewind == Rewind::bounded;
  traits.rewind_tokens = counts ? options_.rewind_tokens : 0;
  traits.fork = options_.fork;
  traits.segments = options_.segments;
  traits.checkpoints = options_.checkpoints;
  traits.shift = options_.shift;
  traits.bytes_per_token = options_.full_attention ? cell_bytes() : 0;
  traits.fixed_bytes = kHeaderBytes;
  if (options_.segments) traits.range_tokens = options_.range_tokens;
  if (windowed()) traits.checkpoint_bytes = kHeaderBytes + options_.rewind_tokens * cell_bytes();
  if (recurrent()) traits.checkpoint_bytes = kHeaderBytes + 8 + options_.state_bytes;
  return traits;
}

// A value is the hash of the prefix, mixed with its place, so a reader can continue from it.
uint64_t FakeSequences::salt(Layer layer, uint32_t position) {
  return base::mix(static_cast<uint64_t>(layer) + 1, position);
}

// ---- Cells --------------------------------------------------------------------------------------

uint32_t FakeSequences::room(const Memory& memory, const Cells& cells) const {
  const auto taken = options_.unified ? memory.used() : static_cast<uint32_t>(cells.size());
  return memory.capacity - std::min(memory.capacity, taken);
}

uint32_t FakeSequences::end_of(const Memory& memory, const Cells& cells) {
  return cells.empty() ? 0 : memory.cells[cells.back()].position + 1;
}

// Whether each position of the range is there exactly once.
bool FakeSequences::holds(const Memory& memory, const Cells& cells, Range range) {
  const auto position = [&](uint32_t cell) { return memory.cells[cell].position; };
  auto next = std::ranges::lower_bound(cells, range.begin, {}, position);
  for (uint32_t p = range.begin; p < range.end; ++p, ++next) {
    if (next == cells.end() || position(*next) != p) return false;
  }
  return next == cells.end() || position(*next) >= range.end;
}

bool FakeSequences::owns(const Memory& memory, const Cells& cells, uint32_t cell) {
  const auto position = [&](uint32_t c) { return memory.cells[c].position; };
  return std::ranges::count(std::ranges::equal_range(cells, position(cell), {}, position), cell) >
         0;
}

uint32_t FakeSequences::Memory::take() {
  uint32_t cell = static_cast<uint32_t>(cells.size());
  if (free.empty()) {
    cells.emplace_back();
  } else {
    std::ranges::pop_heap(free, std::greater<>());
    cell = free.back();
    free.pop_back();
  }
  highest = std::max(highest, cell + 1);
  return cell;
}

void FakeSequences::Memory::let_go(uint32_t cell) {
  free.push_back(cell);
  std::ranges::push_heap(free, std::greater<>());
  while (highest != 0 && cells[highest - 1].owners == 0) --highest;
}

void FakeSequences::put(Memory& memory, Cells& cells, uint32_t cell) {
  const auto position = [&](uint32_t c) { return memory.cells[c].position; };
  ++memory.cells[cell].owners;
  cells.insert(std::ranges::upper_bound(cells, position(cell), {}, position), cell);
}

void FakeSequences::add(Memory& memory, Cells& cells, uint32_t position, Token word,
                        uint64_t value) {
  const uint32_t cell = memory.take();
  memory.cells[cell] = {.position = position, .word = word, .value = value, .owners = 0};
  put(memory, cells, cell);
}

template <class Predicate>
void FakeSequences::drop_if(Memory& memory, Cells& cells, Predicate goes) {
  std::erase_if(cells, [&](uint32_t cell) {
    if (!goes(memory.cells[cell])) return false;
    if (--memory.cells[cell].owners == 0) memory.let_go(cell);
    return true;
  });
}

void FakeSequences::drop_outside(Memory& memory, Cells& cells, uint32_t begin, uint32_t end) {
  drop_if(memory, cells,
          [&](const Cell& cell) { return cell.position < begin || cell.position >= end; });
}

// Forgets [keep, keep + discard) and moves what follows. A cell shared with other sequences is
// moved as a copy of our own. Returns the number of such cells; with `move` false it does nothing
// else.
uint32_t FakeSequences::move_down(Memory& memory, Cells& cells, uint32_t keep, uint32_t discard,
                                  bool move) {
  uint32_t shared = 0;
  Cells all;
  all.swap(cells);
  for (const uint32_t number : all) {
    const Cell cell = memory.cells[number];
    const bool follows = cell.position >= keep + discard;
    shared += follows && cell.owners > 1 ? 1 : 0;
    if (!move || cell.position < keep) {
      cells.push_back(number);
      continue;
    }
    if (--memory.cells[number].owners == 0) memory.let_go(number);
    if (follows) add(memory, cells, cell.position - discard, cell.word, cell.value);
  }
  return shared;
}

// ---- Sequences ----------------------------------------------------------------------------------

uint32_t FakeSequences::end_of(const Sequence& s) const {
  if (options_.full_attention) return end_of(full_, s.full);
  return s.state ? s.state->depth : 0;
}

Held FakeSequences::truth(const Sequence& s) const {
  constexpr Held kUnfinished{.begin = 0, .end = 0, .whole = false};
  const uint32_t end = end_of(s);
  if (options_.full_attention && !holds(full_, s.full, {0, end})) return kUnfinished;
  if (s.state.has_value() != (recurrent() && end > 0)) return kUnfinished;
  if (s.state && s.state->depth != end) return kUnfinished;
  if (end_of(window_, s.window) != (windowed() ? end : 0)) return kUnfinished;
  if (end == 0 || options_.rewind == Rewind::any) return {0, end};
  if (recurrent()) return {(s.earlier.empty() ? end : s.earlier.front().depth) - 1, end};
  uint32_t begin = end;
  while (begin > 0 && holds(window_, s.window, {begin - 1, begin})) --begin;
  return begin == end ? kUnfinished : Held{begin, end};
}

// Reads everything that a decode at the end reads. Returns whether it is consistent, and the hash
// of the prefix to continue from.
bool FakeSequences::in_turn(const Sequence& s, uint64_t* hash) const {
  const uint32_t end = end_of(s);
  bool sound = true;
  const auto held = static_cast<uint32_t>(s.full.size());
  uint32_t next = held - std::min(held, options_.checked_tokens);
  uint64_t h = base::mix(options_.model);
  if (next > 0) h = full_.cells[s.full[next - 1]].value ^ salt(Layer::full, next - 1);
  for (const uint32_t number : std::span(s.full).subspan(next)) {
    const Cell& cell = full_.cells[number];
    const uint64_t found = cell.value ^ salt(Layer::full, cell.position);
    sound = sound && cell.position == next++ && found == base::mix(h, cell.word);
    h = found;
  }
  if (windowed()) {
    const uint32_t reach = end - std::min(end, options_.rewind_tokens);
    sound = sound && end_of(window_, s.window) == end && holds(window_, s.window, {reach, end});
    for (size_t i = 0; sound && i < s.window.size(); ++i) {
      const Cell& cell = window_.cells[s.window[i]];
      const Cell& same = full_.cells[s.full[cell.position]];
      sound = cell.position < reach || (cell.value ^ salt(Layer::window, cell.position)) ==
                                           (same.value ^ salt(Layer::full, cell.position));
    }
  }
  if (recurrent()) {
    const uint64_t found = s.state ? s.state->value ^ salt(Layer::recurrent, s.state->depth) : h;
    if (options_.full_attention) {
      sound = sound && found == h && (s.state ? s.state->depth : 0) == end;
    } else {
      h = found;
    }
  }
  *hash = h;
  return sound;
}

Result<void> FakeSequences::append(Sequence& s, std::span<const Token> words) {
  const auto count = static_cast<uint32_t>(words.size());
  const uint32_t begin = end_of(s);
  const uint32_t end = begin + count;
  const uint32_t free = options_.full_attention
                            ? room(full_, s.full)
                            : options_.context_tokens - std::min(options_.context_tokens, begin);
  if (count > free) return kNoRoom;
  uint64_t hash;
  if (!in_turn(s, &hash)) hash = base::mix(hash, kUnsound);
  if (windowed()) {
    const uint32_t kept = end - std::min(end, window_kept());
    const auto past = [&](const Cell& cell) {
      return cell.position < kept && (!options_.shares_window || cell.owners == 1);
    };
    const auto leaving = static_cast<uint32_t>(
        std::ranges::count_if(s.window, [&](uint32_t c) { return past(window_.cells[c]); }));
    if (end - std::max(begin, kept) > room(window_, s.window) + leaving) return kNoRoom;
    drop_if(window_, s.window, past);
  }
  for (uint32_t p = begin; p < end; ++p) {
    hash = base::mix(hash, words[p - begin]);
    if (options_.full_attention) {
      add(full_, s.full, p, words[p - begin], hash ^ salt(Layer::full, p));
      const uint64_t cells = options_.unified ? full_.highest : p + 1;
      spend_ps(cells * options_.costs.cell_ps);
    }
    if (windowed() && p + window_kept() >= end) {
      add(window_, s.window, p, words[p - begin], hash ^ salt(Layer::window, p));
    }
    if (!recurrent()) continue;
    if (s.state && options_.rewind == Rewind::bounded) {
      if (s.earlier.size() == options_.rewind_tokens) s.earlier.erase(s.earlier.begin());
      s.earlier.push_back(*s.state);
    }
    s.state = State{p + 1, hash ^ salt(Layer::recurrent, p + 1)};
  }
  counts_.computed_tokens += count;
  spend_ns(count * options_.costs.token_ns);
  return {};
}

void FakeSequences::empty(Sequence& s) {
  drop_outside(full_, s.full, 0, 0);
  empty_partial(s);
}

void FakeSequences::empty_partial(Sequence& s) {
  drop_outside(window_, s.window, 0, 0);
  s.state.reset();
  s.earlier.clear();
}

// ---- What tests want to know --------------------------------------------------------------------

std::string FakeSequences::wrong_cells(Layer layer, const Sequence& s, std::span<const Token> words,
                                       std::span<const uint64_t> hashes) const {
  const bool all = layer == Layer::full;
  const Memory& memory = all ? full_ : window_;
  const char* const name = all ? "full attention, position " : "window, position ";
  const auto end = static_cast<uint32_t>(words.size());
  uint32_t next = all ? 0 : end - std::min(end, options_.rewind_tokens);
  std::optional<uint32_t> last;
  for (const uint32_t number : all ? s.full : s.window) {
    const Cell& cell = memory.cells[number];
    const std::string place = name + std::to_string(cell.position);
    if (last == cell.position) return place + " is there twice";
    if (cell.position >= end) return place + " is behind the end";
    if (cell.position > next) return name + std::to_string(next) + " is missing";
    if (cell.word != words[cell.position] ||
        cell.value != (hashes[cell.position + 1] ^ salt(layer, cell.position))) {
      return place + " has other contents";
    }
    next = std::max(next, cell.position + 1);
    last = cell.position;
  }
  return next == end ? "" : name + std::to_string(next) + " is missing";
}

std::string FakeSequences::right(SequenceId sequence, std::span<const Token> words) const {
  if (!known(sequence)) return "no such sequence";
  const Sequence& s = at(sequence);
  std::vector<uint64_t> hashes{base::mix(options_.model)};
  for (const Token word : words) hashes.push_back(base::mix(hashes.back(), word));
  std::string wrong;
  if (options_.full_attention) wrong = wrong_cells(Layer::full, s, words, hashes);
  if (wrong.empty() && windowed()) wrong = wrong_cells(Layer::window, s, words, hashes);
  if (!wrong.empty() || !recurrent()) return wrong;
  if (!s.state) return words.empty() ? "" : "the recurrent state is missing";
  if (s.state->depth != words.size()) {
    return "the recurrent state is that of depth " + std::to_string(s.state->depth);
  }
  const bool same = s.state->value == (hashes.back() ^ salt(Layer::recurrent, s.state->depth));
  return same ? "" : "the recurrent state has other contents";
}

uint64_t FakeSequences::fingerprint(SequenceId sequence) const {
  if (!known(sequence)) return 0;
  const Sequence& s = at(sequence);
  uint64_t print = 1;
  for (const uint32_t number : s.full) {
    const Cell& cell = full_.cells[number];
    print = base::mix(base::mix(print, cell.position), base::mix(cell.word, cell.value));
  }
  print = base::mix(print, s.full.size());
  for (const uint32_t number : s.window) {
    const Cell& cell = window_.cells[number];
    print = base::mix(base::mix(print, cell.position), base::mix(cell.word, cell.value));
  }
  print = base::mix(print, s.window.size());
  for (const State& state : s.earlier)
    print = base::mix(base::mix(print, state.depth), state.value);
  return s.state ? base::mix(base::mix(print, s.state->depth), s.state->value) : print;
}

void FakeSequences::recycle_windows() {
  for (Sequence& s : sequences_) {
    const uint32_t end = end_of(window_, s.window);
    drop_outside(window_, s.window, end - std::min(end, options_.rewind_tokens), end);
  }
}

uint32_t FakeSequences::used_tokens() const { return full_.used(); }

// ---- Calls --------------------------------------------------------------------------------------

FakeSequences::Extent FakeSequences::begin_call(Call call, Fault* fault) {
  ++counts_.calls[static_cast<uint32_t>(call)];
  if (call != Call::held) spend_ns(options_.costs.call_ns);
  *fault = faults.ask(call);
  switch (*fault) {
    case Fault::none:
    case Fault::after: return Extent::whole;
    case Fault::halfway:
    case Fault::lie_half: return Extent::half;
    case Fault::before:
    case Fault::lie_nothing: break;
  }
  return Extent::nothing;
}

Result<void> FakeSequences::end_call(Fault fault) {
  if (fault == Fault::before || fault == Fault::halfway || fault == Fault::after) {
    return Error(Errc::copy_failed, "made to fail");
  }
  return {};
}

Result<void> FakeSequences::compute(SequenceId sequence, std::span<const Token> words) {
  Fault fault;
  const Extent extent = begin_call(Call::compute, &fault);
  if (!known(sequence)) return kNoSuchSequence;
  size_t count = words.size();
  if (extent == Extent::nothing) count = 0;
  if (extent == Extent::half) count /= 2;
  STEMMA_TRY_VOID(append(at(sequence), words.first(count)));
  return end_call(fault);
}

uint64_t FakeSequences::last_value(SequenceId sequence) const {
  const Sequence& s = at(sequence);
  uint64_t value = 0;
  if (!s.full.empty()) value = base::mix(value, full_.cells[s.full.back()].value);
  if (!s.window.empty()) value = base::mix(value, window_.cells[s.window.back()].value);
  if (s.state) value = base::mix(value, s.state->value);
  return value;
}

Held FakeSequences::held(SequenceId sequence) {
  Fault fault;
  begin_call(Call::held, &fault);
  if (!known(sequence) || fault == Fault::lie_nothing) return {};
  Held held = truth(at(sequence));
  if (fault == Fault::lie_half) ++held.end;
  return held;
}

Result<void> FakeSequences::clear(SequenceId sequence) {
  Fault fault;
  const Extent extent = begin_call(Call::clear, &fault);
  if (while_clearing) while_clearing();
  if (!known(sequence)) return kNoSuchSequence;
  Sequence& s = at(sequence);
  if (extent == Extent::whole) empty(s);
  if (extent == Extent::half) drop_outside(full_, s.full, 0, end_of(s) / 2);
  return end_call(fault);
}

Result<void> FakeSequences::trim(SequenceId sequence, uint32_t n) {
  Fault fault;
  const Extent extent = begin_call(Call::trim, &fault);
  if (!known(sequence)) return kNoSuchSequence;
  Sequence& s = at(sequence);
  const bool back = n > 0 && s.state && s.state->depth > n;
  const auto earlier = std::ranges::find(s.earlier, n, &State::depth);
  if (back && earlier == s.earlier.end()) return kTooFarBack;
  if (extent == Extent::half) {
    const uint32_t end = std::max(end_of(s), n);
    drop_outside(full_, s.full, 0, n + (end - n) / 2);
  }
  if (extent != Extent::whole) return end_call(fault);
  if (n == 0) empty(s);
  if (back) {
    s.state = *earlier;
    s.earlier.erase(earlier, s.earlier.end());
  }
  drop_outside(full_, s.full, 0, n);
  drop_outside(window_, s.window, 0, n);
  return end_call(fault);
}

Result<void> FakeSequences::copy(SequenceId from, SequenceId to, Range range) {
  Fault fault;
  const Extent extent = begin_call(Call::copy, &fault);
  if (!known(from) || !known(to) || from == to) return kNoSuchSequence;
  if (range.begin >= range.end) return kBadRange;
  const bool shares = options_.fork == Fork::shared;
  if (!shares && (options_.fork != Fork::copy || range.begin != 0)) {
    return Error(Errc::unsupported, "this engine does not copy that");
  }
  const Sequence& source = at(from);
  Sequence& target = at(to);
  const bool there = options_.full_attention ? holds(full_, source.full, range)
                                             : source.state && range.end <= source.state->depth;
  if (!there) return kNotHeld;
  if (extent == Extent::nothing) return end_call(fault);
  const uint32_t end =
      extent == Extent::half ? range.begin + (range.end - range.begin) / 2 : range.end;

  if (!shares) empty(target);  // Copying buffers overwrites the target's contents.
  if (!shares && options_.full_attention && end > room(full_, target.full)) return kNoRoom;
  Cells window;
  if (extent == Extent::whole) {
    const uint32_t kept = range.end - std::min(range.end, window_kept());
    for (const uint32_t number : source.window) {
      const uint32_t p = window_.cells[number].position;
      if (p >= std::max(range.begin, kept) && p < range.end) window.push_back(number);
    }
    if (!options_.shares_window) {
      drop_outside(window_, target.window, kept, UINT32_MAX);
      if (window.size() > room(window_, target.window)) return kNoRoom;
    }
  }
  for (const uint32_t number : source.full) {
    const Cell cell = full_.cells[number];
    if (cell.position < range.begin || cell.position >= end) continue;
    if (!shares) {
      add(full_, target.full, cell.position, cell.word, cell.value);
      spend_ps(cell_bytes() * options_.costs.load_byte_ps);
    } else if (!owns(full_, target.full, number)) {
      put(full_, target.full, number);
    }
  }
  counts_.copied_tokens += end - range.begin;
  for (const uint32_t number : window) {
    if (options_.shares_window) {
      if (!owns(window_, target.window, number)) put(window_, target.window, number);
      continue;
    }
    const Cell cell = window_.cells[number];
    add(window_, target.window, cell.position, cell.word, cell.value);
  }
  if (extent == Extent::whole && recurrent()) {
    target.state = source.state;
    target.earlier.clear();
  }
  return end_call(fault);
}

Result<void> FakeSequences::shift(SequenceId sequence, uint32_t keep, uint32_t discard) {
  Fault fault;
  const Extent extent = begin_call(Call::shift, &fault);
  if (!known(sequence)) return kNoSuchSequence;
  if (!options_.shift) return Error(Errc::unsupported, "this engine does not shift");
  if (discard == 0) return kBadRange;
  Sequence& s = at(sequence);
  if (uint64_t{keep} + discard > truth(s).end) return kNotHeld;
  if (move_down(full_, s.full, keep, discard, false) > room(full_, s.full) ||
      move_down(window_, s.window, keep, discard, false) > room(window_, s.window)) {
    return kNoRoom;
  }
  if (extent == Extent::half) {
    drop_if(full_, s.full, [&](const Cell& cell) {
      return cell.position >= keep && cell.position < keep + discard;
    });
  }
  if (extent == Extent::whole) {
    move_down(full_, s.full, keep, discard, true);
    move_down(window_, s.window, keep, discard, true);
    s.earlier.clear();
    if (s.state) s.state->depth -= discard;
  }
  return end_call(fault);
}

}  // namespace stemma::test
