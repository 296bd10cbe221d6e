// Where media lie in a prompt, for tests of src/key.
#pragma once

#include <cstddef>
#include <vector>

#include "key/words.h"

namespace stemma::test {

inline std::vector<key::MediaSpan> spans_of(const std::vector<MediaItem>& media,
                                            size_t positions = 100) {
  const std::vector<Token> tokens(positions);
  std::vector<key::MediaSpan> out;
  key::find_media_spans({tokens, media}, out).value();
  return out;
}

}  // namespace stemma::test
