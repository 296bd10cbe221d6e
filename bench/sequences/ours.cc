#include "bench/sequences/ours.h"

#include <stdexcept>
#include <utility>

namespace stemma::bench::sequences {
namespace {

const Scope& scope() {
  static const Scope scope = Scope::make({.model = "bench"}).value();
  return scope;
}

template <class T>
T must(Result<T> result, const char* what) {
  if (!result) throw std::runtime_error(std::string(what) + ": " + result.error().to_string());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace

Ours::Ours(const Setting& setting, const char* retention)
    : setting_(setting), engine_(engine_options(setting)), clock_(engine_) {
  const test::SequenceCosts costs = engine_options(setting).costs;
  SequenceOptions options;
  options.saved_bytes = setting.stored_bytes;
  options.compute_token_ns = costs.token_ns;
  options.move_byte_ps = costs.load_byte_ps;
  options.move_call_ns = costs.call_ns + costs.load_ns;
  options.clock = &clock_;
  options.policy = retention;
  cache_ = must(SequenceCache::create(engine_, options), "create");
}

void Ours::compute(Turn& turn, const Tokens& words) {
  while (turn.computed() < turn.length()) {
    const uint32_t begin = turn.computed();
    const uint32_t end = turn.next_stop();
    const uint64_t before = engine_.elapsed_ns();
    must(engine_.compute(turn.sequence(), std::span(words).subspan(begin, end - begin)), "compute");
    must(turn.computed(end, engine_.elapsed_ns() - before), "computed");
  }
}

Served Ours::serve(const Request& request) {
  const std::vector<uint32_t> message_ends = request.message_ends();
  TurnOptions options;
  options.session = request.session;
  options.message_ends = message_ends;
  options.reserve_tokens = static_cast<uint32_t>(request.answer.size());
  Turn turn = must(cache_->begin(scope(), {.tokens = request.prompt}, options), "begin");
  const uint32_t available = must(turn.execute(), "execute");
  const Tokens whole = request.whole();
  compute(turn, whole);
  must(turn.extend(request.answer), "extend");
  compute(turn, whole);
  Served served{.evaluated = static_cast<uint32_t>(request.prompt.size()) - available,
                .wrong = engine_.right(turn.sequence(), whole)};
  must(turn.finish(), "finish");
  cache_->drain();
  return served;
}

}  // namespace stemma::bench::sequences
