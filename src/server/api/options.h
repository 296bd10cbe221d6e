// Fields that requests of more than one API have in common.
//
// Threading:  pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/fields.h"
#include "server/api/request.h"

namespace stemma::server {

inline constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// Reads one setting that has several names. If several are given, their values must agree.
template <class T, size_t N>
std::optional<T> agreed(Fields& fields, const std::array<std::string_view, N>& names,
                        const std::array<std::optional<T>, N>& values) {
  std::optional<T> said;
  for (size_t i = 0; i < N; ++i) {
    if (!values[i]) continue;
    if (said && *said != *values[i]) {
      fields.fail_value(names[i], "another name of it was given another value");
    }
    said = values[i];
  }
  return said;
}

// Reads the sampling fields: temperature, top_p, top_k, min_p, penalties, seed, logit_bias,
// ignore_eos.
void read_sampling(Fields& fields, const ApiRules& rules, Sampling& sampling);
// Reads the texts that end the answer: one text or a list.
void read_stop(Fields& fields, const ApiRules& rules, std::vector<std::string>& stop);
// Reads the cache fields: prompt_cache_key, cache_salt, cache_prompt, prompt_cache_retention,
// id_slot.
void read_cache(Fields& fields, const ApiRules& rules, RequestOptions& options);

}  // namespace stemma::server
