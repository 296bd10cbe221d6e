// What both kinds of tiers under a cache share when they forget.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "capi/tiers/handles.h"

namespace stemma::capi {

STEMMA_SIZED(stemma_level_purged, {});

namespace {

template <size_t N>
void copy_text(char (&to)[N], std::string_view text) noexcept {
  const size_t count = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

// The first element's size is the stride.
template <class Levels>
Levels* level_at(Levels* levels, size_t i) noexcept {
  using Byte = std::conditional_t<std::is_const_v<Levels>, const uint8_t, uint8_t>;
  return reinterpret_cast<Levels*>(reinterpret_cast<Byte*>(levels) + i * size_of(levels[0]));
}

}  // namespace

Result<void> Forgetting::read(const stemma_scope* in, const stemma_prompt* words,
                              const stemma_level_purged* levels, size_t level_count,
                              const uint32_t* complete) {
  const auto invalid = [](const char* what, uint32_t value = Error::kNoValue) {
    return Error(Errc::invalid_argument, what, value);
  };
  if (complete == nullptr) return invalid("complete is null");
  if (in == nullptr && words != nullptr) return invalid("prefix is not null, but scope is");
  if (in != nullptr) {
    STEMMA_TRY(scope, decode(in));
  }
  if (words != nullptr) {
    STEMMA_TRY(prefix, decode(words, room));
  }
  if (levels == nullptr) return {};
  for (size_t i = 0; i < std::min<size_t>(level_count, tier::kMostLevels); ++i) {
    const stemma_level_purged* const one = level_at(levels, i);
    STEMMA_TRY_VOID(check_room(*one));
    if (size_of(*one) != size_of(levels[0])) {
      return invalid("struct_size of this level differs from that of the first",
                     static_cast<uint32_t>(i));
    }
  }
  return {};
}

void tell(const std::vector<tier::LevelPurged>& purged, stemma_level_purged* levels,
          size_t level_count, uint32_t* complete) noexcept {
  *complete = std::all_of(purged.begin(), purged.end(),
                          [](const tier::LevelPurged& one) { return one.purged.complete; })
                  ? 1
                  : 0;
  if (levels == nullptr) return;
  for (size_t i = 0; i < std::min(level_count, purged.size()); ++i) {
    stemma_level_purged c{};
    c.complete = purged[i].purged.complete ? 1 : 0;
    copy_text(c.name, purged[i].name);
    c.entries = purged[i].purged.entries;
    c.bytes = purged[i].purged.bytes;
    c.unsure = purged[i].purged.unsure;
    copy_text(c.error, purged[i].purged.error);
    write_sized(level_at(levels, i), c);
  }
}

}  // namespace stemma::capi
