// Images are compared by content: equal placeholder tokens prove nothing.
#include <cstdio>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

namespace {

MediaItem image(uint8_t content, uint32_t offset) {
  MediaItem item{.kind = MediaKind::image, .offset = offset, .length = 64};
  item.digest.fill(content);  // Really: the first 16 bytes of a SHA-256 over the pixels.
  return item;
}

}  // namespace

int main() {
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 64}};
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});

  // 20 tokens of text, an image, 10 of text, another image, 10 of text.
  std::vector<Token> tokens(168, 0);
  for (uint32_t i = 0; i < 168; ++i) tokens[i] = i < 20 || i - 84 < 10 || i >= 158 ? 100 + i : 0;
  const MediaItem cat = image(1, 20);
  const MediaItem dog = image(2, 94);
  const MediaItem bird = image(3, 94);

  const auto ask = [&](const char* what, const std::vector<MediaItem>& items) {
    Lease lease = *cache.lease(scope, {.tokens = tokens, .media = items});
    std::printf("%-13s %3u reused, encode:", what, lease.reused());
    for (const uint32_t index : lease.media_to_process()) std::printf(" item %u", index);
    std::printf("%s\n", lease.media_to_process().empty() ? " nothing" : "");
    lease.copies_done().value();
    lease.commit(lease.length()).value();
  };
  ask("cat and dog", {cat, dog});
  ask("the same", {cat, dog});
  ask("cat and bird", {cat, bird});  // Equal only up to the second image.
  ask("two birds", {image(3, 20), bird});
}
