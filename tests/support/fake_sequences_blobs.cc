// What FakeSequences saves and loads: a header, then cells of full attention, cells of the window,
// recurrent states. As with llama.cpp, nothing in a blob identifies its text or its model.
#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "support/fake_sequences.h"

namespace stemma::test {
namespace {

constexpr uint32_t kMagic = 0x7165'7366;

uint64_t row_word(uint64_t value, uint64_t index) {
  return index == 0 ? value : base::mix(value + index);
}

// Fills `bytes` bytes with a pattern made from the value.
void write_row(uint64_t value, uint8_t* out, uint64_t bytes) {
  for (uint64_t i = 0; i * 8 < bytes; ++i) {
    const uint64_t word = row_word(value, i);
    std::memcpy(out + i * 8, &word, std::min<uint64_t>(8, bytes - i * 8));
  }
}

// The value that the bytes were written from; another value if any bit has changed.
uint64_t read_row(const uint8_t* in, uint64_t bytes) {
  uint64_t value;
  std::memcpy(&value, in, 8);
  uint64_t changed = 0;
  for (uint64_t i = 1; i * 8 < bytes; ++i) {
    const uint64_t length = std::min<uint64_t>(8, bytes - i * 8);
    const uint64_t expected = row_word(value, i);
    if (std::memcmp(in + i * 8, &expected, length) == 0) continue;
    uint64_t found = 0;
    std::memcpy(&found, in + i * 8, length);
    changed = base::mix(changed, found);
  }
  return value ^ changed;
}

void write_number(uint8_t*& out, uint32_t number) {
  std::memcpy(out, &number, 4);
  out += 4;
}

uint32_t read_number(const uint8_t*& in) {
  uint32_t number;
  std::memcpy(&number, in, 4);
  in += 4;
  return number;
}

}  // namespace

Result<void> FakeSequences::check_part(Part part) const {
  const bool offered = part == Part::state     ? options_.fork != Fork::none
                       : part == Part::segment ? options_.segments
                                               : options_.checkpoints;
  if (!offered) return Error(Errc::unsupported, "this engine does not save that");
  return {};
}

Result<void> FakeSequences::check_save(SequenceId sequence, Part part, Range range) const {
  if (!known(sequence)) return kNoSuchSequence;
  STEMMA_TRY_VOID(check_part(part));
  if (range.begin >= range.end || (range.begin != 0 && part != Part::segment)) return kBadRange;
  const Held held = truth(at(sequence));
  if (range.end > held.end || (part == Part::state && range.end != held.end)) return kNotHeld;
  if (part != Part::checkpoint || range.end == held.end) return {};
  if (windowed() && can_resume(traits(), held, range.end)) return {};
  return Error(Errc::wrong_state, "no checkpoint can be made there any more", range.end);
}

// Only the last window of a live one goes into a blob.
FakeSequences::Blob FakeSequences::select(const Sequence& s, Part part, Range range) const {
  Blob blob;
  blob.part = part;
  if (part != Part::checkpoint) {
    for (const uint32_t number : s.full) {
      const Cell& cell = full_.cells[number];
      if (cell.position >= range.begin && cell.position < range.end) blob.full.push_back(cell);
    }
  }
  if (part == Part::segment) return blob;
  const uint32_t reach = range.end - std::min(range.end, options_.rewind_tokens);
  for (const uint32_t number : s.window) {
    const Cell& cell = window_.cells[number];
    if (cell.position >= reach && cell.position < range.end) blob.window.push_back(cell);
  }
  if (s.state) blob.states.push_back(*s.state);
  return blob;
}

uint64_t FakeSequences::bytes_of(const Blob& blob) const {
  return kHeaderBytes + (blob.full.size() + blob.window.size()) * cell_bytes() +
         blob.states.size() * (8 + uint64_t{options_.state_bytes});
}

// Half a blob has half of its cells or states; the rest of `out` stays as it was.
void FakeSequences::write(const Blob& blob, Extent extent, uint8_t* out) const {
  const auto full = static_cast<uint32_t>(blob.full.size());
  const auto window = static_cast<uint32_t>(blob.window.size());
  const auto states = static_cast<uint32_t>(blob.states.size());
  uint32_t records = full + window + states;
  if (extent == Extent::half) records /= 2;
  for (const uint32_t number : {kMagic, static_cast<uint32_t>(blob.part), full, window, states}) {
    write_number(out, number);
  }
  for (const std::vector<Cell>* cells : {&blob.full, &blob.window}) {
    for (const Cell& cell : *cells) {
      if (records-- == 0) return;
      write_number(out, cell.position + 1);  // Bytes never written are not a position.
      write_number(out, cell.word);
      write_row(cell.value, out, options_.row_bytes);
      out += options_.row_bytes;
    }
  }
  for (const State& state : blob.states) {
    if (records-- == 0) return;
    write_number(out, state.depth);
    write_number(out, 0);
    write_row(state.value, out, options_.state_bytes);
    out += options_.state_bytes;
  }
}

std::optional<FakeSequences::Blob> FakeSequences::read(Part part,
                                                       std::span<const uint8_t> bytes) const {
  Blob blob;
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  const uint8_t* in = bytes.data();
  const uint32_t magic = read_number(in);
  const uint32_t found = read_number(in);
  if (magic != kMagic || found != static_cast<uint32_t>(part)) return std::nullopt;
  const uint32_t full = read_number(in);
  const uint32_t window = read_number(in);
  const uint32_t states = read_number(in);
  const uint64_t needed = kHeaderBytes + (uint64_t{full} + window) * cell_bytes() +
                          states * (8 + uint64_t{options_.state_bytes});
  if (needed > bytes.size()) return std::nullopt;
  for (uint32_t i = 0; i < full + window; ++i) {
    Cell cell;
    cell.position = read_number(in) - 1;
    cell.word = read_number(in);
    cell.value = read_row(in, options_.row_bytes);
    in += options_.row_bytes;
    (i < full ? blob.full : blob.window).push_back(cell);
  }
  for (uint32_t i = 0; i < states; ++i) {
    State state;
    state.depth = read_number(in);
    state.depth += read_number(in);  // Always 0, unless somebody changed it.
    state.value = read_row(in, options_.state_bytes);
    in += options_.state_bytes;
    blob.states.push_back(state);
  }
  return blob;
}

Result<uint64_t> FakeSequences::size(SequenceId sequence, Part part, Range range) {
  Fault fault;
  const Extent extent = begin_call(Call::size, &fault);
  STEMMA_TRY_VOID(check_save(sequence, part, range));
  STEMMA_TRY_VOID(end_call(fault));
  const uint64_t bytes = bytes_of(select(at(sequence), part, range));
  if (extent == Extent::nothing) return 0;
  return extent == Extent::half ? bytes / 2 : bytes;
}

Result<uint64_t> FakeSequences::save(SequenceId sequence, Part part, Range range,
                                     std::span<uint8_t> out) {
  Fault fault;
  const Extent extent = begin_call(Call::save, &fault);
  STEMMA_TRY_VOID(check_save(sequence, part, range));
  const Blob blob = select(at(sequence), part, range);
  const uint64_t bytes = bytes_of(blob);
  if (out.size() < bytes) return Error(Errc::out_of_range, "a buffer that is too small");
  if (extent != Extent::nothing) write(blob, extent, out.data());
  counts_.saved_bytes += bytes;
  spend_ns(options_.costs.save_ns + (pieces(sequence, range) - 1) * options_.costs.piece_ns);
  spend_ps(bytes * options_.costs.save_byte_ps);
  STEMMA_TRY_VOID(end_call(fault));
  return bytes;
}

Result<void> FakeSequences::load(SequenceId sequence, Part part, Range saved, Range wanted,
                                 std::span<const uint8_t> bytes) {
  Fault fault;
  const Extent extent = begin_call(Call::load, &fault);
  if (!known(sequence)) return kNoSuchSequence;
  STEMMA_TRY_VOID(check_part(part));
  if (saved.begin >= saved.end || wanted.begin >= wanted.end) return kBadRange;
  if (part != Part::segment && (saved != wanted || saved.begin != 0)) return kBadRange;
  if (wanted.begin < saved.begin || wanted.end > saved.end) return kNotHeld;
  counts_.loaded_bytes += bytes.size();
  spend_ns(options_.costs.load_ns);
  spend_ps(bytes.size() * options_.costs.load_byte_ps);
  if (bytes.empty() || extent == Extent::nothing) return end_call(fault);
  Sequence& s = at(sequence);
  const std::optional<Blob> blob = read(part, bytes);
  const Result<void> loaded =
      blob ? load_blob(s, part, wanted, *blob, extent) : Result<void>(kRefused);
  if (!loaded) {
    if (part == Part::checkpoint) {
      empty_partial(s);
    } else {
      empty(s);
    }
    return loaded;
  }
  return end_call(fault);
}

Result<void> FakeSequences::load_blob(Sequence& s, Part part, Range wanted, const Blob& blob,
                                      Extent extent) {
  if (blob.full.empty() && blob.window.empty() && blob.states.empty()) return {};
  const bool whole = extent == Extent::whole;
  if (part == Part::state) empty(s);
  if (part == Part::checkpoint) empty_partial(s);
  // A segment comes in through a scratch sequence, all of it. In a split context that one has room
  // of its own.
  const bool scratch = part == Part::segment && !options_.unified;
  uint32_t arriving = 0;
  for (const Cell& cell : blob.full) {
    const bool comes = cell.position >= wanted.begin && cell.position < wanted.end;
    arriving += comes || !scratch ? 1 : 0;
  }
  if (arriving > room(full_, s.full) || blob.window.size() > room(window_, s.window)) {
    return kNoRoom;
  }
  const uint32_t end =
      whole ? wanted.end : wanted.begin + (wanted.end - wanted.begin) / 2;  // Of full attention.
  for (const Cell& cell : blob.full) {
    if (cell.position < wanted.begin || cell.position >= end) continue;
    add(full_, s.full, cell.position, cell.word, cell.value);
  }
  if (part == Part::segment) {
    // The scratch sequence has no recurrent state, and the copy overwrote ours.
    s.state.reset();
    s.earlier.clear();
    return {};
  }
  const size_t window = part == Part::state && !whole ? 0
                        : whole                       ? blob.window.size()
                                                      : blob.window.size() / 2;
  for (size_t i = 0; i < window; ++i) {
    const Cell& cell = blob.window[i];
    if (cell.position >= wanted.end) continue;
    add(window_, s.window, cell.position, cell.word, cell.value);
  }
  if (!whole) return {};
  if (recurrent() && !blob.states.empty()) s.state = blob.states.back();
  if (part == Part::checkpoint) drop_outside(full_, s.full, 0, wanted.end);
  return {};
}

uint32_t FakeSequences::pieces(SequenceId sequence, Range range) {
  if (!known(sequence)) return 1;
  uint32_t count = 0;
  uint32_t next = 0;
  for (const uint32_t cell : at(sequence).full) {
    const uint32_t position = full_.cells[cell].position;
    if (position < range.begin || position >= range.end) continue;
    count += count == 0 || cell != next ? 1 : 0;
    next = cell + 1;
  }
  return std::max(count, 1U);
}

// ---- Ranges -------------------------------------------------------------------------------------

Result<void> FakeSequences::cut(Range whole, std::span<const uint8_t> bytes, Range part,
                                std::span<uint8_t> out, ByteSum& sum) const {
  ByteSum of_whole;
  STEMMA_TRY_VOID(join(whole, bytes, part, part, out, of_whole));
  sum.add(out);
  return {};
}

Result<void> FakeSequences::join(Range saved, std::span<const uint8_t> bytes, Range part,
                                 Range whole, std::span<uint8_t> out, ByteSum& sum) const {
  if (options_.range_tokens == 0) return Error(Errc::unsupported, "this engine moves no ranges");
  const auto size_of = [&](Range range) {
    return kHeaderBytes + uint64_t{range.end - range.begin} * cell_bytes();
  };
  if (bytes.size() != size_of(saved) || out.size() != size_of(whole)) {
    return Error(Errc::out_of_range, "not as long as such a segment is");
  }
  if (part.begin < saved.begin || part.end > saved.end || part.begin < whole.begin ||
      part.end > whole.end) {
    return kBadRange;
  }
  // Other ranges write their cells at the same time, so only one writes the header.
  if (part.begin == whole.begin) {
    uint8_t* header = out.data();
    for (const uint32_t number :
         {kMagic, static_cast<uint32_t>(Part::segment), whole.end - whole.begin, 0U, 0U}) {
      write_number(header, number);
    }
  }
  std::memcpy(out.data() + kHeaderBytes + (part.begin - whole.begin) * cell_bytes(),
              bytes.data() + kHeaderBytes + (part.begin - saved.begin) * cell_bytes(),
              (part.end - part.begin) * cell_bytes());
  sum.add(bytes);
  return {};
}

}  // namespace stemma::test
