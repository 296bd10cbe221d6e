// Speculative decoding: append guesses, check them in one step, and rewind the wrong ones.
#include <cstdio>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

namespace {

Token truth(uint32_t position) { return position * 7 % 101; }  // What the large model says.
Token guess(uint32_t position) {                               // The small one is sometimes wrong.
  return position % 5 == 0 ? 9999 : truth(position);
}

}  // namespace

int main() {
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 64}};
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});
  std::vector<Token> text;
  for (uint32_t i = 0; i < 50; ++i) text.push_back(truth(i));

  Lease lease = *cache.lease(scope, {.tokens = text});
  lease.reserve(lease.length() + 64).value();  // Room for the next tokens; optional.
  lease.commit(lease.length()).value();

  uint32_t steps = 0;
  for (; lease.length() < 80; ++steps) {
    const uint32_t begin = lease.length();
    std::vector<Token> draft;
    for (uint32_t i = 0; i < 4; ++i) draft.push_back(guess(begin + i));
    lease.extend(draft).value();
    // One pass of the large model writes the KV of all four and says how many it agrees with.
    uint32_t accepted = 0;
    while (accepted < 4 && draft[accepted] == truth(begin + accepted)) ++accepted;
    lease.commit(begin + accepted).value();
    if (accepted < 4) {
      lease.rewind(begin + accepted).value();
      const Token right = truth(lease.length());
      lease.extend({&right, 1}).value();
      // An engine would compute it together with the next guesses; here it is done at once.
      lease.commit(lease.length()).value();
    }
  }
  std::printf("%u tokens in %u steps, %llu rewinds\n", lease.length() - 50, steps,
              static_cast<unsigned long long>(cache.stats().rewinds));
  const uint32_t length = lease.length();
  lease.release().value();

  // Only the accepted text is cached, none of the wrong guesses.
  text.clear();
  for (uint32_t i = 0; i <= length; ++i) text.push_back(truth(i));
  std::printf("of the same text %u of %u tokens are cached\n",
              cache.lookup(scope, {.tokens = text})->reused_tokens, length);
}
