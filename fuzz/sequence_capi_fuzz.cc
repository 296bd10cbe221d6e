// The C ABI for opaque sequences as a careless binding would call it, over an engine that fails,
// lies and answers nonsense: structs made of any bytes, wrong handles, stale numbers, calls in any
// order. Only pointers and lengths are honest (null, or of the stated length). Every call must
// answer with a status; the books must balance after it; and positions that an honest stretch
// reports available are really there.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "input.h"
#include "stemma/stemma.h"

namespace stemma::fuzz {
namespace {

constexpr uint32_t kSequences = 4;
constexpr uint32_t kContext = 96;

template <class T>
struct Padded {
  T value;
  uint8_t beyond[2048] = {};
};
// Mostly its initial value; now and then some of its 32-bit words, struct_size included, are
// anything.
template <class T>
void scramble(Input& in, Padded<T>& padded) {
  for (uint32_t i = in.below(8) == 0 ? in.below(4) : 0; i > 0; --i) {
    const uint32_t word = in.number();
    std::memcpy(reinterpret_cast<uint8_t*>(&padded) + in.below(sizeof(T) / 4) * 4, &word, 4);
  }
  if (in.below(32) == 0) padded.beyond[0] = 1;
}

// One word per position, in as many sequences as there are; it does what it is asked, or something.
class Engine {
 public:
  explicit Engine(Input& in) : in_(in) {
    functions = {
        sizeof functions, 0, this, &traits, held, clear, trim, copy, size, save, load, shift};
  }
  stemma_engine_traits traits = STEMMA_ENGINE_TRAITS_INIT;
  stemma_engine functions;
  bool erratic = false;
  std::array<std::vector<uint32_t>, kSequences> sequences;

 private:
  static Engine& of(void* user) { return *static_cast<Engine*>(user); }
  // Whether this call goes wrong, and which status it returns then.
  bool odd(stemma_status& status) {
    if (!erratic || in_.below(8) != 0) return false;
    status = in_.below(4) == 0 ? static_cast<stemma_status>(in_.u32())
                               : static_cast<stemma_status>(in_.below(16));
    return true;
  }
  static bool known(uint32_t sequence) { return sequence < kSequences; }
  std::vector<uint32_t>& at(uint32_t sequence) {
    FUZZ_EXPECT(known(sequence));
    return sequences[sequence];
  }

  static void held(void* user, uint32_t sequence, stemma_held* out) {
    Engine& self = of(user);
    *out = {0, static_cast<uint32_t>(self.at(sequence).size()), 1};
    stemma_status status = 0;
    if (self.odd(status)) *out = {self.in_.number(), self.in_.number(), self.in_.below(3)};
  }
  static stemma_status clear(void* user, uint32_t sequence) { return trim(user, sequence, 0); }
  static stemma_status trim(void* user, uint32_t sequence, uint32_t n) {
    Engine& self = of(user);
    stemma_status status = STEMMA_OK;
    if (self.odd(status)) return status;
    std::vector<uint32_t>& words = self.at(sequence);
    FUZZ_EXPECT(self.erratic || n <= words.size());
    words.resize(std::min<size_t>(n, words.size()));
    return STEMMA_OK;
  }
  static stemma_status copy(void* user, uint32_t from, uint32_t to, const stemma_range* range) {
    Engine& self = of(user);
    stemma_status status = STEMMA_OK;
    if (self.odd(status)) return status;
    const std::vector<uint32_t>& source = self.at(from);
    std::vector<uint32_t>& target = self.at(to);
    FUZZ_EXPECT(range->begin < range->end);
    if (range->end > source.size() || range->begin != target.size()) return STEMMA_OUT_OF_RANGE;
    target.insert(target.end(), source.begin() + range->begin, source.begin() + range->end);
    return STEMMA_OK;
  }
  static stemma_status size(void* user, uint32_t sequence, uint32_t, const stemma_range* range,
                            uint64_t* bytes) {
    Engine& self = of(user);
    stemma_status status = STEMMA_OK;
    *bytes = uint64_t{range->end - range->begin} * 4;
    if (self.odd(status)) {
      *bytes = self.in_.number();
      return status;
    }
    return range->end > self.at(sequence).size() ? STEMMA_OUT_OF_RANGE : STEMMA_OK;
  }
  static stemma_status save(void* user, uint32_t sequence, uint32_t, const stemma_range* range,
                            uint8_t* out, size_t capacity, uint64_t* written) {
    Engine& self = of(user);
    stemma_status status = STEMMA_OK;
    std::fill_n(out, capacity, uint8_t{0});  // All of it may be written.
    if (self.odd(status)) {
      *written = self.in_.number();
      return status;
    }
    const std::vector<uint32_t>& words = self.at(sequence);
    const size_t wanted = size_t{range->end - range->begin} * 4;
    if (range->end > words.size() || wanted > capacity) return STEMMA_OUT_OF_RANGE;
    std::memcpy(out, words.data() + range->begin, wanted);
    *written = wanted;
    return STEMMA_OK;
  }
  static stemma_status load(void* user, uint32_t sequence, uint32_t, const stemma_range* saved,
                            const stemma_range* wanted, const uint8_t* bytes, size_t size) {
    Engine& self = of(user);
    stemma_status status = STEMMA_OK;
    FUZZ_EXPECT(saved->begin <= wanted->begin && wanted->begin < wanted->end &&
                wanted->end <= saved->end);
    std::vector<uint32_t> words(size / 4);
    if (!words.empty()) std::memcpy(words.data(), bytes, words.size() * 4);
    if (self.odd(status)) return status;
    std::vector<uint32_t>& target = self.at(sequence);
    if (target.size() != wanted->begin || words.size() != saved->end - saved->begin) {
      return STEMMA_CORRUPT;
    }
    target.insert(target.end(), words.begin() + (wanted->begin - saved->begin),
                  words.begin() + (wanted->end - saved->begin));
    return STEMMA_OK;
  }
  static stemma_status shift(void* user, uint32_t sequence, uint32_t keep, uint32_t discard) {
    Engine& self = of(user);
    stemma_status status = STEMMA_OK;
    if (self.odd(status)) return status;
    std::vector<uint32_t>& words = self.at(sequence);
    if (uint64_t{keep} + discard > words.size()) return STEMMA_OUT_OF_RANGE;
    words.erase(words.begin() + keep, words.begin() + keep + discard);
    return STEMMA_OK;
  }

  Input& in_;
};

// A part that a listener was told of, with all that it needs to come back.
struct Heard {
  stemma_scope scope{};
  std::vector<uint32_t> tokens;
  std::vector<stemma_media_item> media;
  stemma_saved_part part{};
  std::vector<uint8_t> bytes;
};

struct Run {
  explicit Run(const uint8_t* data, size_t size) : in(data, size), engine(in) {}
  Input in;
  Engine engine;
  stemma_sequences* cache = nullptr;
  std::vector<stemma_turn> turns = {0, 1, ~uint64_t{0}};
  std::map<stemma_turn, std::vector<uint32_t>> texts;  // Of each turn, as the caller knows it.
  stemma_scope scope{};
  std::vector<uint32_t> tokens;
  std::vector<stemma_media_item> media;
  std::array<uint32_t, 3> ends{};
  std::vector<Heard> heard;
  bool honest = false;  // The engine has never failed, and its traits are true.
  bool destroyed = false;

  void create() {
    Padded<stemma_engine_traits> traits{STEMMA_ENGINE_TRAITS_INIT};
    traits.value.sequences = kSequences;
    traits.value.context_tokens = kContext;
    traits.value.unified = in.below(2);
    traits.value.fork = in.below(4);
    traits.value.segments = in.below(2);
    traits.value.shift = in.below(2);
    traits.value.bytes_per_token = 4;
    honest = in.below(2) == 0;
    if (!honest) {
      traits.value.rewind = in.below(4);
      traits.value.rewind_tokens = in.below(20);
      traits.value.checkpoints = in.below(2);
      traits.value.checkpoint_bytes = in.number();
      scramble(in, traits);
      traits.value.sequences = std::min(traits.value.sequences, kSequences);
      traits.value.context_tokens = std::min(traits.value.context_tokens, 4096U);
    }
    engine.erratic = !honest;
    engine.traits = traits.value;
    engine.functions.traits = &traits.value;
    Padded<stemma_sequence_options> options{STEMMA_SEQUENCE_OPTIONS_INIT};
    options.value.saved_bytes = 1 + in.below(255) * 64;
    options.value.logits_bytes = in.below(2) * 512;
    options.value.segment_tokens = 1U << in.below(5);
    options.value.least_tokens = in.below(16);
    options.value.interval_tokens = in.below(3) * 8;
    options.value.sessions = 2;
    scramble(in, options);
    // Memory is not what this is about.
    options.value.saved_bytes %= 1U << 20U;
    options.value.logits_bytes %= 1U << 20U;
    options.value.sessions %= 64;
    options.value.quotas = nullptr;
    options.value.quota_count = in.below(32) == 0;
    options.value.policy = nullptr;
    options.value.clock = {};
    options.value.closed = nullptr;
    options.value.listener.saved = in.below(4) != 0 ? saved : nullptr;
    options.value.listener.user = this;
    options.value.listener.wants = in.below(4) != 0 ? wants : nullptr;
    options.value.listener.take = in.below(8) != 0 ? take : nullptr;
    options.value.listener.keep_words = in.below(2);
    if (in.below(16) == 0) engine.functions.shift = nullptr;
    if (in.below(16) == 0) engine.functions.copy = nullptr;
    if (in.below(16) == 0) {
      engine.functions.size = nullptr;
      engine.functions.save = nullptr;
      engine.functions.load = nullptr;
    }
    (void)stemma_sequences_create(&engine.functions, &options.value, &cache);
  }

  // A listener cannot change the cache. The bytes saved from an honest engine are the words
  // themselves.
  void expect_listener(const stemma_saved_part& part, const uint32_t* words, size_t count) {
    FUZZ_EXPECT(!destroyed && part.range.begin <= part.range.end);
    FUZZ_EXPECT(stemma_sequences_drop_saved(cache) == STEMMA_BUSY);
    const bool of_words = part.kind == STEMMA_SAVED_SEGMENT || part.kind == STEMMA_SAVED_STATE;
    if (!honest || !of_words || count == 0) return;
    FUZZ_EXPECT(part.size == count * 4 && count == part.range.end - part.range.begin);
    FUZZ_EXPECT(std::memcmp(part.bytes, words, part.size) == 0);
  }
  static void saved(void* user, const stemma_scope* in_scope, const stemma_prompt* prompt,
                    const stemma_saved_part* part, const stemma_content_key*, uint32_t) {
    Run& self = *static_cast<Run*>(user);
    const stemma_range range = part->range;
    FUZZ_EXPECT(range.end <= prompt->token_count);
    self.expect_listener(*part, prompt->tokens + range.begin, range.end - range.begin);
    if (self.heard.size() == 16) self.heard.erase(self.heard.begin());
    self.heard.push_back({*in_scope,
                          {prompt->tokens, prompt->tokens + prompt->token_count},
                          {prompt->media, prompt->media + prompt->media_count},
                          *part,
                          {part->bytes, part->bytes + part->size}});
  }
  static uint32_t wants(void* user, uint32_t, const stemma_content_key*, uint32_t seen) {
    FUZZ_EXPECT(seen <= STEMMA_SEEN_LEAVING);
    Run& self = *static_cast<Run*>(user);
    FUZZ_EXPECT(!self.destroyed);
    return self.in.below(3);
  }
  static void take(void* user, const stemma_saved_part* part, const stemma_content_key*, uint32_t,
                   const uint32_t* words, size_t word_count, uint32_t wanted) {
    FUZZ_EXPECT(wanted != 0);
    static_cast<Run*>(user)->expect_listener(*part, words, word_count);
  }
  // Admits parts that a listener was told of; a careless caller gives them any kind and range.
  void admit() {
    if (heard.empty()) return;
    const Heard& one = heard[in.below(static_cast<uint32_t>(heard.size()))];
    const stemma_prompt words{one.tokens.data(), one.tokens.size(), one.media.data(),
                              one.media.size()};
    std::vector<stemma_saved_part> parts;
    for (const Heard& other : heard) {
      const bool same = std::memcmp(&other.scope, &one.scope, sizeof one.scope) == 0 &&
                        other.media.empty() && one.media.empty() && other.tokens == one.tokens;
      if (&other != &one && !same) continue;
      parts.push_back(other.part);
      parts.back().bytes = other.bytes.data();
    }
    std::sort(parts.begin(), parts.end(),
              [](const auto& left, const auto& right) { return left.range.end < right.range.end; });
    if (!honest && in.below(2) == 0) {
      stemma_saved_part& part = parts[in.below(static_cast<uint32_t>(parts.size()))];
      part.kind = in.number();
      part.range = {in.number(), in.number()};
      part.size = in.below(2) == 0 ? 0 : std::min<size_t>(part.size, in.number());
      if (part.size == 0 && in.below(2) == 0) part.bytes = nullptr;
    }
    stemma_admitted out{};
    if (stemma_sequences_admit(cache, &one.scope, &words, parts.data(), parts.size(), nullptr,
                               in.below(2) == 0 ? &out : nullptr) != STEMMA_OK) {
      return;
    }
    FUZZ_EXPECT(uint64_t{out.taken} + out.present + out.refused <= parts.size());
    uint32_t count = 0;
    uint32_t depths[3];
    (void)stemma_sequences_saved_checkpoints(cache, &one.scope, &words, depths, in.below(4),
                                             &count);
    FUZZ_EXPECT(count <= 3);
    FUZZ_EXPECT(stemma_sequences_saved_tokens(cache, &one.scope, &words, &count) == STEMMA_OK);
    FUZZ_EXPECT(count <= words.token_count);
  }
  void hand_on() {
    stemma_handed_on at{};
    at.next = in.below(4) == 0 ? in.number() : 0;
    for (int i = 0; i < 100 && at.over == 0; ++i) {
      if (stemma_sequences_hand_on(cache, at.next, in.number(), &at) != STEMMA_OK) break;
    }
  }

  stemma_prompt prompt() {
    tokens.assign(in.below(40), 1);
    if (!tokens.empty()) tokens[in.below(static_cast<uint32_t>(tokens.size()))] = in.below(3);
    if (in.below(32) == 0 && !tokens.empty()) tokens.back() = in.u32();
    media.resize(in.below(8) == 0 ? in.below(3) : 0);
    for (stemma_media_item& item : media) {
      item = {1 + in.below(5),
              in.number(),
              in.number(),
              in.below(3),
              {static_cast<uint8_t>(in.below(2))}};
    }
    return {tokens.data(), tokens.size(), media.data(), media.size()};
  }
  void said(Padded<stemma_turn_options>& options) {
    static constexpr const char* kNames[] = {"", "a", "b", "c"};
    options.value.want_logits = in.below(2);
    options.value.keep = in.below(8) != 0;
    options.value.reserve_tokens = in.below(8) == 0 ? in.number() : 0;
    scramble(in, options);
    const char* name = kNames[in.below(4)];
    options.value.session = {name, std::strlen(name)};
    for (uint32_t& end : ends) end = in.below(40);
    if (in.below(8) != 0) std::sort(ends.begin(), ends.end());
    options.value.message_ends = ends.data();
    options.value.message_end_count = in.below(4);
    options.value.retain = nullptr;
  }
  void keep(stemma_turn turn, const std::vector<uint32_t>& text) {
    if (turn == 0) return;
    turns.push_back(turn);
    texts[turn] = text;
  }
  // The sequence holds the words that the caller gave.
  void expect_right(stemma_turn turn, const stemma_turn_place& at) {
    if (!honest) return;
    const std::vector<uint32_t>& held = engine.sequences[at.sequence];
    const std::vector<uint32_t>& text = texts[turn];
    FUZZ_EXPECT(held.size() == at.computed && text.size() == at.length);
    FUZZ_EXPECT(std::equal(held.begin(), held.end(), text.begin()));
  }
  // Says that [0, n) is computed, and has it computed first. An honest caller says nothing else.
  void compute(stemma_turn turn, uint32_t n) {
    stemma_turn_place at{};
    if (stemma_turn_positions(turn, &at) != STEMMA_OK) return;
    FUZZ_EXPECT(at.available <= at.computed && at.computed <= at.length);
    FUZZ_EXPECT(at.next_stop <= at.length);
    const bool ready = stemma_turn_computed(turn, at.computed, 0) == STEMMA_OK;
    if (ready) {
      expect_right(turn, at);
      std::vector<uint32_t>& words = engine.sequences[at.sequence];
      if (n == STEMMA_ALL) n = at.next_stop;
      if (words.size() == at.computed && at.computed < n && n <= at.length) {
        words.assign(texts[turn].begin(), texts[turn].begin() + n);
      }
    }
    (void)stemma_turn_computed(turn, n, in.number());
  }

  void about_a_turn(stemma_turn turn, uint32_t n) {
    const float logits[4] = {1, 2, 3, 4};
    const uint32_t more[4] = {0, 1, 2, in.below(16) == 0 ? 0x80000000U : 1U};
    size_t count = 0;
    switch (in.below(14)) {
      case 0:
      case 1: {
        uint32_t available = 0;
        if (stemma_turn_execute(turn, &available) != STEMMA_OK) break;
        stemma_turn_place at{};
        FUZZ_EXPECT(stemma_turn_positions(turn, &at) == STEMMA_OK && at.available == available);
        FUZZ_EXPECT(at.computed == available);
        expect_right(turn, at);
        break;
      }
      case 2:
      case 3:
      case 4: compute(turn, STEMMA_ALL); break;
      case 5: compute(turn, n); break;
      case 6: {
        const uint32_t added = in.below(5);
        if (stemma_turn_extend(turn, more, added) != STEMMA_OK) break;
        texts[turn].insert(texts[turn].end(), more, more + added);
        break;
      }
      case 7:
        if (stemma_turn_rewind(turn, n) == STEMMA_OK) texts[turn].resize(n);
        break;
      case 8: (void)stemma_turn_attach_logits(turn, n, logits, in.below(5)); break;
      case 9: (void)stemma_turn_reserve(turn, n); break;
      case 10: {
        const uint32_t discard = in.number();
        if (stemma_turn_shift(turn, n, discard) != STEMMA_OK) break;
        std::vector<uint32_t>& text = texts[turn];
        text.erase(text.begin() + n, text.begin() + n + discard);
        break;
      }
      case 11: {
        Padded<stemma_turn_options> options{STEMMA_TURN_OPTIONS_INIT};
        said(options);
        stemma_turn fork = 0;
        if (stemma_turn_fork(turn, &options.value, &fork) != STEMMA_OK) break;
        stemma_turn_place at{};
        FUZZ_EXPECT(stemma_turn_positions(fork, &at) == STEMMA_OK);
        std::vector<uint32_t> text = texts[turn];
        text.resize(at.length);
        keep(fork, text);
        if (at.sequence != STEMMA_NO_SEQUENCE) expect_right(fork, at);
        break;
      }
      case 12: {
        const float* kept = nullptr;
        float sum = 0;
        if (stemma_turn_logits(turn, &kept, &count) != STEMMA_OK) break;
        for (size_t i = 0; i < count; ++i) sum += kept[i];
        FUZZ_EXPECT(sum >= static_cast<float>(count));
        uint32_t items[4];
        (void)stemma_turn_media_to_process(turn, items, in.below(4), &count);
        break;
      }
      default:
        (void)(in.below(3) == 0 ? stemma_turn_abandon(turn) : stemma_turn_finish(turn, nullptr));
    }
  }

  void about_the_cache(uint32_t n) {
    const auto content = [](void*, const stemma_sequence_content*) {};
    const auto computing = [](void* user, uint32_t sequence, const uint32_t* given, size_t count,
                              uint32_t begin) -> stemma_status {
      std::vector<uint32_t>& words = static_cast<Engine*>(user)->sequences[sequence];
      if (words.size() != begin) return STEMMA_WRONG_STATE;
      words.insert(words.end(), given, given + count);
      return STEMMA_OK;
    };
    Padded<stemma_turn_options> options{STEMMA_TURN_OPTIONS_INIT};
    Padded<stemma_sequence_report> report{STEMMA_SEQUENCE_REPORT_INIT};
    switch (in.below(15)) {
      case 0:
      case 1: (void)stemma_sequences_drain(cache, n, in.number(), in.u8() % 2, nullptr); break;
      case 2: {
        const stemma_prompt words = prompt();
        said(options);
        (void)stemma_sequences_warm(cache, &scope, &words, &options.value, computing, &engine,
                                    nullptr);
        break;
      }
      case 3: {
        const stemma_prompt words = prompt();
        said(options);
        scramble(in, report);
        (void)stemma_sequences_lookup(cache, &scope, &words, &options.value, &report.value);
        break;
      }
      case 4:
        if (in.below(4) != 0) break;
        for (std::vector<uint32_t>& words : engine.sequences) words.clear();
        (void)stemma_sequences_forget_context(cache);
        break;
      case 5: (void)stemma_sequences_drop_scope(cache, &scope); break;
      case 6: (void)stemma_sequences_drop_saved(cache); break;
      case 7: (void)stemma_sequences_end_session(cache, "a", 1); break;
      case 8: (void)stemma_sequences_contents(cache, content, nullptr); break;
      case 9: {
        Padded<stemma_sequence_stats> stats{};
        stats.value.struct_size = sizeof stats.value;
        scramble(in, stats);
        (void)stemma_sequences_stats(cache, &stats.value);
        break;
      }
      case 10: {
        Padded<stemma_sequence_info> info{STEMMA_SEQUENCE_INFO_INIT};
        Padded<stemma_session_info> session{STEMMA_SESSION_INFO_INIT};
        scramble(in, info);
        (void)stemma_sequences_sequence(cache, n, &info.value);
        (void)stemma_sequences_session(cache, "b", 1, &session.value);
        break;
      }
      case 11: {
        const stemma_prompt words = prompt();
        stemma_truncated cut;
        (void)stemma_sequences_truncate(cache, &scope, &words, n, n % 2 == 0 ? &cut : nullptr);
        break;
      }
      case 12: admit(); break;
      case 13: hand_on(); break;
      default: (void)stemma_sequences_drop_saved(nullptr); break;
    }
  }

  void step() {
    const stemma_turn turn = turns[turns.size() - 1 - in.below(8) % turns.size()];
    const uint32_t n = in.number();
    const uint32_t what = in.below(16);
    if (what < 3) {
      scope.digest[0] = static_cast<uint8_t>(in.below(2));
      const stemma_prompt words = prompt();
      Padded<stemma_turn_options> options{STEMMA_TURN_OPTIONS_INIT};
      said(options);
      stemma_turn made = 0;
      (void)stemma_sequences_begin(cache, &scope, &words, &options.value, &made);
      keep(made, tokens);
    } else if (what < 13) {
      about_a_turn(turn, n);
    } else {
      about_the_cache(n);
    }
    if (cache != nullptr) (void)stemma_sequences_check_invariants(cache);
  }

  void end() {
    if (cache != nullptr && in.below(2) != 0) {
      destroyed = true;
      (void)stemma_sequences_destroy(cache, STEMMA_ON_BUSY_DEFER);
      cache = nullptr;
    }
    for (const stemma_turn turn : turns) {
      if (stemma_turn_finish(turn, nullptr) != STEMMA_OK) (void)stemma_turn_abandon(turn);
    }
    if (cache != nullptr) {
      FUZZ_EXPECT(stemma_sequences_destroy(cache, STEMMA_ON_BUSY_REFUSE) == STEMMA_OK);
    }
  }
};

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::Run run(data, size);
  run.create();
  for (int i = 0; i < 200 && !run.in.empty(); ++i) run.step();
  run.end();
  return 0;
}
