#include "sequences/situation.h"

#include <algorithm>

namespace stemma::schedules {
namespace {

using test::Call;

// In thousandths of what is done, before a situation has its ways. Begin and advance keep turns
// coming and going; operations that empty the cache are rare, so that there is something to empty.
constexpr std::array<uint32_t, kOperations> kUsual = {150, 420, 70, 20, 40, 30, 20, 30, 70, 20, 10,
                                                      60,  12,  25, 6,  10, 8,  3,  2,  2,  8};

constexpr Call kCalls[] = {Call::clear, Call::trim, Call::copy,  Call::size,
                           Call::save,  Call::load, Call::shift, Call::compute};

void choose_sizes(FakeSequences::Options& engine, Dice& dice) {
  engine.sequences = dice.between(1, 5);
  const uint32_t tight = dice.between(24, 160);
  const uint32_t roomy = dice.between(200, 500) * (engine.unified ? engine.sequences : 1);
  engine.context_tokens = dice.chance(35) ? tight : roomy;
  constexpr uint32_t kWindows[] = {1, 4, 16, 33};
  constexpr uint32_t kRewinds[] = {1, 4, 9};
  engine.rewind_tokens =
      engine.rewind == Rewind::bounded ? dice.pick(kRewinds) : dice.pick(kWindows);
  engine.window_slack_tokens = dice.edgy(0, 20);
  engine.row_bytes = dice.between(8, 24);
  engine.state_bytes = dice.chance(20) ? 2000 : dice.between(8, 100);
  engine.model = dice.next();
  // Segments one by one, or several at a time.
  if (dice.chance(40)) engine.range_tokens = dice.between(1, 96);
}

// From a fast model behind a slow bus to the other way round.
void choose_costs(FakeSequences::Options& engine, SequenceOptions& cache, Dice& dice) {
  if (dice.chance(20)) {
    engine.costs.token_ns = 500;
    engine.costs.load_ns = dice.chance(50) ? 20'000'000 : 40'000;
    engine.costs.load_byte_ps = dice.chance(50) ? 5'000'000 : 100;
  }
  if (dice.chance(35)) {
    cache.compute_token_ns = dice.chance(50) ? 1 : 1'000'000'000;
    cache.move_byte_ps = dice.chance(50) ? 1 : 1'000'000;
    cache.move_call_ns = dice.chance(50) ? 1 : 1'000'000'000;
  }
  // Attention so slow that even short prompts gain by dropping what is idle.
  if (dice.chance(30)) {
    engine.costs.cell_ps = 5'000'000;
    if (dice.chance(70)) cache.attention_cell_ps = engine.costs.cell_ps;
  }
}

SequenceOptions choose_cache(const FakeSequences::Options& engine, Dice& dice) {
  SequenceOptions cache;
  cache.reuse = dice.chance(70) ? Reuse::everything : static_cast<Reuse>(dice.below(4));
  switch (dice.below(6)) {
    case 0: cache.saved_bytes = dice.chance(50) ? 0 : dice.between(1, 2'000); break;
    case 1: cache.saved_bytes = dice.between(2'000, 12'000); break;
    case 2: cache.saved_bytes = dice.between(12'000, 100'000); break;
    default: cache.saved_bytes = 8U << 20U; break;
  }
  cache.checkpoint_share = dice.edgy(0, 100) / 100.0;
  constexpr uint64_t kLogitsBytes[] = {0, 40, 400, 100'000};
  cache.logits_bytes = dice.pick(kLogitsBytes);
  cache.segment_tokens = 1U << dice.below(7);
  cache.least_tokens = dice.chance(75) ? dice.below(12) : dice.between(12, 48);
  cache.interval_tokens = dice.chance(50) ? 0 : dice.between(1, 40);
  cache.marks = dice.chance(8) ? 0 : dice.edgy(1, 16);
  cache.pending_captures = dice.chance(40) ? dice.between(1, 3) : dice.between(4, 64);
  cache.sessions = dice.chance(30) ? dice.between(1, 3) : 64;
  if (engine.fork == Fork::none && dice.chance(50)) cache.saved_bytes = 0;
  return cache;
}

}  // namespace

const char* to_string(Operation operation) {
  constexpr const char* kNames[kOperations] = {
      "begin",  "advance", "extend",      "reserve",    "rewind",     "fork",           "shift",
      "attach", "finish",  "abandon",     "destroy",    "drain",      "warm",           "lookup",
      "admit",  "misuse",  "end_session", "drop_scope", "drop_saved", "forget_context", "truncate"};
  return kNames[static_cast<uint32_t>(operation)];
}

std::vector<FakeSequences::Options> every_mix() {
  std::vector<FakeSequences::Options> mixes;
  for (uint32_t bits = 0; bits < 1U << 10U; ++bits) {
    FakeSequences::Options mix;
    mix.rewind = static_cast<Rewind>(bits & 3U);
    mix.fork = static_cast<Fork>(bits >> 2U & 3U);
    mix.unified = (bits >> 4U & 1U) != 0;
    mix.segments = (bits >> 5U & 1U) != 0;
    mix.checkpoints = (bits >> 6U & 1U) != 0;
    mix.full_attention = (bits >> 7U & 1U) != 0;
    mix.shift = (bits >> 8U & 1U) != 0;
    mix.shares_window = (bits >> 9U & 1U) != 0;
    // Only copies can share a window.
    const bool copies = mix.fork == Fork::shared || mix.fork == Fork::copy;
    if (mix.shares_window && (mix.rewind != Rewind::window || !copies)) continue;
    if (FakeSequences::possible(mix)) mixes.push_back(mix);
  }
  return mixes;
}

std::string describe(const FakeSequences::Options& engine) {
  constexpr const char* kRewinds[] = {"any", "window", "bounded", "exact"};
  constexpr const char* kForks[] = {"shared", "copy", "restore", "none"};
  std::string text = std::string("rewind ") + kRewinds[static_cast<uint32_t>(engine.rewind)];
  if (engine.rewind == Rewind::window || engine.rewind == Rewind::bounded) {
    text += " of " + std::to_string(engine.rewind_tokens);
  }
  text += std::string(", fork ") + kForks[static_cast<uint32_t>(engine.fork)];
  text += ", " + std::to_string(engine.sequences) + " sequences of " +
          (engine.unified ? "together " : "each ") + std::to_string(engine.context_tokens);
  for (const auto& [has, name] : {std::pair{engine.segments, ", segments"},
                                  {engine.checkpoints, ", checkpoints"},
                                  {!engine.full_attention, ", recurrent only"},
                                  {engine.shift, ", shift"},
                                  {engine.shares_window, ", shares its window"}}) {
    if (has) text += name;
  }
  return text;
}

Situation Situation::random(uint64_t seed, Faults faults) {
  static const std::vector<FakeSequences::Options> mixes = every_mix();
  Dice dice(seed);
  Situation s;
  s.seed = seed;
  s.faults = faults;
  // One mix after the other, so that a few hundred schedules have met them all.
  s.engine = mixes[seed % mixes.size()];
  choose_sizes(s.engine, dice);
  s.cache = choose_cache(s.engine, dice);
  choose_costs(s.engine, s.cache, dice);

  for (uint32_t i = 0; i < kOperations; ++i) {
    constexpr uint32_t kFactors[] = {0, 2, 2, 2, 2, 4, 8};
    const bool always = i <= static_cast<uint32_t>(Operation::advance);
    s.weights[i] = kUsual[i] * (always ? 2 : dice.pick(kFactors));
  }
  s.steps = dice.between(200, 500);
  s.scopes = dice.between(1, 3);
  s.session_names = dice.between(1, 6);
  const uint32_t context = s.engine.context_tokens;
  s.longest_tokens = std::min(context, dice.between(context / 4 + 1, context));
  s.longest_tokens = std::min(s.longest_tokens, dice.between(60, 260));
  s.message_tokens = std::max(2U, std::min(dice.between(4, 40), s.longest_tokens / 3));
  s.media_percent = dice.chance(50) ? 0 : dice.between(5, 40);
  s.fresh_percent = dice.chance(85) ? 8 : 50;
  s.careless = dice.chance(20);
  s.plain = dice.chance(70);

  if (faults == Faults::calls) {
    // All of them, or a few, which then have it harder.
    for (const Call call : kCalls) {
      if (dice.chance(60)) s.faulty.push_back(call);
    }
    if (s.faulty.empty()) s.faulty.assign(std::begin(kCalls), std::end(kCalls));
  } else if (faults == Faults::held) {
    s.faulty = {Call::held};
    if (dice.chance(50)) s.faulty.push_back(Call::compute);
  }
  constexpr uint32_t kPerMille[] = {5, 30, 100, 250};
  s.fault_per_mille = faults == Faults::none ? 0 : dice.pick(kPerMille);
  constexpr uint32_t kTenants[] = {1, 3, 1000};
  s.tenants = dice.pick(kTenants);
  constexpr const char* kPolicies[] = {"lru",     "lru",  "lru",    "default",
                                       "default", "gdsf", "s3_fifo"};
  s.cache.policy = dice.pick(kPolicies);
  // Now and then the kept entries have more tenants than a policy has classes. That takes many
  // requests, and no operation that empties the cache.
  if (s.tenants == 1000 && dice.chance(5)) {
    s.steps = 5000;
    s.cache.saved_bytes = 8U << 20U;
    s.cache.logits_bytes = 100'000;
    s.weights[static_cast<uint32_t>(Operation::attach_logits)] = 240;
    for (const Operation emptying :
         {Operation::drop_scope, Operation::drop_saved, Operation::truncate}) {
      s.weights[static_cast<uint32_t>(emptying)] = 0;
    }
  }
  return s;
}

bool Situation::reuses() const {
  return cache.reuse != Reuse::disabled &&
         (cache.reuse != Reuse::saved || cache.saved_bytes > 50'000);
}

std::string Situation::text() const {
  constexpr const char* kReuse[] = {"disabled", "live", "saved", "everything"};
  std::string text = describe(engine) + "\n  reuse " + kReuse[static_cast<uint32_t>(cache.reuse)];
  for (const auto& [name, value] :
       {std::pair<const char*, uint64_t>{"saved_bytes", cache.saved_bytes},
        {"logits_bytes", cache.logits_bytes},
        {"segment_tokens", cache.segment_tokens},
        {"least_tokens", cache.least_tokens},
        {"interval_tokens", cache.interval_tokens},
        {"marks", cache.marks},
        {"pending_captures", cache.pending_captures},
        {"sessions", cache.sessions},
        {"compute_token_ns", cache.compute_token_ns},
        {"move_byte_ps", cache.move_byte_ps},
        {"move_call_ns", cache.move_call_ns},
        {"attention_cell_ps", cache.attention_cell_ps},
        {"state_bytes", engine.state_bytes},
        {"row_bytes", engine.row_bytes},
        {"range_tokens", engine.range_tokens},
        {"window_slack_tokens", engine.window_slack_tokens},
        {"longest_tokens", longest_tokens},
        {"tenants", tenants},
        {"fault_per_mille", fault_per_mille}}) {
    text += std::string(", ") + name + " " + std::to_string(value);
  }
  text += ", policy " + cache.policy;
  text += ", checkpoint_share " + std::to_string(cache.checkpoint_share);
  if (careless) text += ", careless";
  if (!faulty.empty()) text += "\n  faulty:";
  for (const Call call : faulty) text += " " + test::to_string(call);
  return text;
}

}  // namespace stemma::schedules
