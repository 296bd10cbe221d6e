#include "bench/sequences/baseline.h"

#include <algorithm>
#include <stdexcept>

namespace stemma::bench::sequences {

uint32_t common_prefix(const Tokens& a, const Tokens& b) {
  const auto parted = std::ranges::mismatch(a, b);
  return static_cast<uint32_t>(parted.in1 - a.begin());
}

BaselinePolicy::BaselinePolicy(const Setting& setting)
    : setting_(setting), engine_(engine_options(setting)) {}

Served BaselinePolicy::serve(const Request& request) {
  const auto [sequence, reused] = start(request);
  const auto size = static_cast<uint32_t>(request.prompt.size());
  for (uint32_t begin = reused; begin < size;) {
    const uint32_t end = chunk_end(request, begin);
    before_chunk(request, sequence, {begin, end});
    compute(sequence, std::span(request.prompt).subspan(begin, end - begin));
    begin = end;
  }
  prompt_done(request, sequence);
  compute(sequence, request.answer);
  Served served{.evaluated = size - reused, .wrong = engine_.right(sequence, request.whole())};
  finish(request, sequence);
  return served;
}

uint32_t BaselinePolicy::chunk_end(const Request& request, uint32_t /*begin*/) {
  return static_cast<uint32_t>(request.prompt.size());
}

void BaselinePolicy::before_chunk(const Request& /*request*/, SequenceId /*sequence*/,
                                  Range /*chunk*/) {}

void BaselinePolicy::prompt_done(const Request& /*request*/, SequenceId /*sequence*/) {}

bool BaselinePolicy::give_up_room(SequenceId /*working*/) { return false; }

void BaselinePolicy::compute(SequenceId sequence, std::span<const Token> words) {
  if (words.empty()) return;
  while (true) {
    const Result<void> computed = engine_.compute(sequence, words);
    if (computed) return;
    if (computed.error().code() != Errc::out_of_blocks || !give_up_room(sequence)) {
      throw std::runtime_error("a baseline cannot compute: " + computed.error().to_string());
    }
  }
}

Blob BaselinePolicy::save(SequenceId sequence, Part part, Range range) {
  Blob blob(engine_.size(sequence, part, range).value());
  blob.resize(engine_.save(sequence, part, range, blob).value());
  return blob;
}

bool BaselinePolicy::load(SequenceId sequence, Part part, Range range, const Blob& blob) {
  if (engine_.load(sequence, part, range, range, blob)) return true;
  clear(sequence);
  return false;
}

void BaselinePolicy::clear(SequenceId sequence) { engine_.clear(sequence).value(); }

}  // namespace stemma::bench::sequences
