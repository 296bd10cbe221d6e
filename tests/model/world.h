// What random runs are made of: chance, prompts that share and part, how long to go on, and a log
// of the last steps for when something is wrong.
//
//   STEMMA_MODEL_SEED=n        replay run n and no other
//   STEMMA_MODEL_FIRST_SEED=n  begin with run n (1)
//   STEMMA_MODEL_SECONDS=s     how long all runs together take at least
//   STEMMA_MODEL_OPERATIONS=n  go on, beyond the seconds if need be, until n operations are done
//
// Without either all do 300,000 operations (under a sanitizer 60,000): the same ones on every
// machine.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "stemma/prompt.h"

namespace stemma::test {

// splitmix64: the same numbers everywhere, whatever the standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(next() % limit); }  // limit > 0
  uint32_t between(uint32_t first, uint32_t last) { return first + below(last - first + 1); }
  bool chance(uint32_t percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

struct Text {
  std::vector<Token> tokens;
  std::vector<MediaItem> media;

  Prompt prompt() const { return {tokens, media}; }
  uint32_t size() const { return static_cast<uint32_t>(tokens.size()); }
  void cut(uint32_t n);  // A media item that crosses n goes: its positions become plain tokens.
};

// An Author writes prompts from a few block contents that begin alike, mostly continuing something
// it wrote before: so that prompts share whole blocks, share parts of blocks, repeat and part.
class Author {
 public:
  struct Options {
    uint32_t block_tokens = 4;
    uint32_t letters = 3;         // Different block contents, 2 to 6.
    uint32_t longest_tokens = 0;  // No text is longer.
    uint32_t media_percent = 0;   // Chance that a block is a media item instead.
    uint32_t long_percent = 30;   // Chance that a text goes on for 17 to 60 blocks.
  };
  Author(const Options& options, Random& random);

  Text write();
  std::vector<Token> some_tokens(uint32_t count);

 private:
  void add_block(Text& text);
  void add_media(Text& text);

  Options options_;
  Random& random_;
  std::vector<std::vector<Token>> contents_;
  std::deque<Text> written_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(STEMMA_TSAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

struct RunLength {
  uint64_t first_seed = 1;
  bool only_one = false;
  double seconds = 0;
  uint64_t operations = 0;

  static RunLength from_environment();
  // How often everything that matters must have happened in so many operations, or they have tested
  // less than they say: 100 times in `enough`. In fewer (a slow machine, a sanitizer) much less, so
  // that chance does not decide.
  static uint64_t times_wanted(uint64_t operations, uint64_t enough);
};

// The last lines of what a run did; printed with the seed when it fails or the process stops.
class StepLog {
 public:
  void begin(uint64_t seed, const std::string& configuration);
  void end();
  void step(uint64_t number, std::string line);
  void note(const std::string& more);  // Appended to the current line.
  std::string text() const;

 private:
  std::string configuration_;
  uint64_t seed_ = 0;
  std::deque<std::string> lines_;
};

}  // namespace stemma::test
