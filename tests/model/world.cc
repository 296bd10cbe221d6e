#include "model/world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/random.h"
#include "stemma/log.h"

namespace stemma::test {
namespace {

constexpr Token kPlaceholder = 7;
constexpr size_t kWrittenKept = 24;
constexpr size_t kLinesKept = 80;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

uint64_t Random::next() { return base::next_random(state_); }

void Text::cut(uint32_t n) {
  tokens.resize(n);
  std::erase_if(media, [&](const MediaItem& item) { return item.offset + item.length > n; });
}

// ---- Author -------------------------------------------------------------------------------------

Author::Author(const Options& options, Random& random) : options_(options), random_(random) {
  for (uint32_t letter = 0; letter < options_.letters; ++letter) {
    std::vector<Token> content;
    if (letter > 0) {  // Begins like an earlier one, then parts from it.
      content = contents_[random_.below(letter)];
      content.resize(random_.below(options_.block_tokens));
      content.push_back(10 + letter);
    }
    while (content.size() < options_.block_tokens) content.push_back(random_.between(1, 3));
    contents_.push_back(std::move(content));
  }
}

Text Author::write() {
  Text text;
  if (!written_.empty() && random_.chance(80)) {
    text = written_[random_.below(static_cast<uint32_t>(written_.size()))];
    const uint32_t size = options_.block_tokens;
    if (random_.chance(50)) {
      text.cut(random_.chance(50) ? random_.below(text.size() + 1)
                                  : random_.below(text.size() / size + 1) * size);
    }
  }
  if (text.tokens.empty() || random_.chance(75)) {
    const bool goes_on = random_.chance(options_.long_percent);
    for (uint32_t blocks = goes_on ? random_.between(17, 60) : random_.between(1, 6); blocks > 0;
         --blocks) {
      random_.chance(options_.media_percent) ? add_media(text) : add_block(text);
    }
    if (random_.chance(50)) {
      text.cut(text.size() - std::min(text.size(), random_.below(options_.block_tokens)));
    }
  }
  if (text.size() > options_.longest_tokens) text.cut(options_.longest_tokens);
  if (text.tokens.empty()) add_block(text);
  written_.push_back(text);
  if (written_.size() > kWrittenKept)
    written_.erase(written_.begin() + random_.below(kWrittenKept));
  return text;
}

std::vector<Token> Author::some_tokens(uint32_t count) {
  std::vector<Token> tokens;
  while (tokens.size() < count) {
    const std::vector<Token>& content = contents_[random_.below(options_.letters)];
    tokens.insert(tokens.end(), content.begin(), content.end());
  }
  tokens.resize(count);
  return tokens;
}

void Author::add_block(Text& text) {
  const std::vector<Token>& content = contents_[random_.below(options_.letters)];
  // Now and then out of step with the block grid.
  const size_t count =
      random_.chance(5) ? random_.between(1, options_.block_tokens) : content.size();
  text.tokens.insert(text.tokens.end(), content.begin(), content.begin() + count);
}

void Author::add_media(Text& text) {
  MediaItem item{.kind = random_.chance(80) ? MediaKind::image : MediaKind::audio,
                 .offset = text.size(),
                 .length = random_.between(1, 2 * options_.block_tokens),
                 .causal = random_.chance(10)};
  item.digest[random_.chance(50) ? 0 : 15] = static_cast<uint8_t>(random_.below(2));
  // Now and then over the item before it; both are one unit then.
  if (!text.media.empty() && random_.chance(15)) {
    const MediaItem& before = text.media.back();
    if (before.offset + before.length == text.size()) {
      item.offset -= random_.between(1, before.length);
    }
  }
  text.tokens.resize(std::max(text.size(), item.offset + item.length), kPlaceholder);
  text.media.push_back(item);
}

// ---- RunLength ----------------------------------------------------------------------------------

RunLength RunLength::from_environment() {
  RunLength length;
  length.first_seed = test::from_environment("STEMMA_MODEL_FIRST_SEED", 1);
  if (const uint64_t seed = test::from_environment("STEMMA_MODEL_SEED", 0); seed != 0) {
    length.first_seed = seed;
    length.only_one = true;
  }
  length.seconds = static_cast<double>(test::from_environment("STEMMA_MODEL_SECONDS", 0));
  const uint64_t usual = length.seconds != 0 ? 0 : kSanitized ? 60'000 : 300'000;
  length.operations = test::from_environment("STEMMA_MODEL_OPERATIONS", usual);
  return length;
}

uint64_t RunLength::times_wanted(uint64_t operations, uint64_t enough) {
  return operations >= enough ? 100 : 20 * operations / enough;
}

// ---- StepLog ------------------------------------------------------------------------------------

void StepLog::begin(uint64_t seed, const std::string& configuration) {
  seed_ = seed;
  configuration_ = configuration;
  lines_.clear();
  set_fatal_handler(
      [](std::string_view what, void* user) {
        std::fprintf(stderr, "stemma: %.*s\n%s\n", static_cast<int>(what.size()), what.data(),
                     static_cast<StepLog*>(user)->text().c_str());
      },
      this);
}

void StepLog::end() { set_fatal_handler(nullptr, nullptr); }

void StepLog::step(uint64_t number, std::string line) {
  lines_.push_back("  " + std::to_string(number) + ": " + std::move(line));
  if (lines_.size() > kLinesKept) lines_.pop_front();
}

void StepLog::note(const std::string& more) {
  if (!lines_.empty()) lines_.back() += more;
}

std::string StepLog::text() const {
  std::string out =
      "replay with STEMMA_MODEL_SEED=" + std::to_string(seed_) + "\n" + configuration_ + "\n";
  for (const std::string& line : lines_) out += line + "\n";
  return out;
}

}  // namespace stemma::test
