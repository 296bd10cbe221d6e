#include "cli/replay_arguments.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "replay/replay.h"
#include "replay/sizes.h"
#include "retain/policies.h"

namespace stemma::cli {

const char* const kReplayHelp =
    R"(usage: stemma replay TRACE [OPTIONS]

Plays a recorded hour or day of requests through the cache and says how much of the prompts would have
been found cached: for each policy, at each size of the cache. It is the real cache with its real
policies; only the model is missing. TRACE is a file of JSON lines as Mooncake publishes them, or our own
(docs/formats/trace.md), plain or compressed with zstd; '-' is standard input. 'stemma trace make' makes
one for those who have none.

what to try:
  --policy NAME          repeatable; 'all' is every one of them (lru, default, min, infinite)
                           %POLICIES%
                           default   adaptive: learns when conversations come back
                           min       knows the future: nobody can do better
                           infinite  a cache without limits
  --capacity SIZE        repeatable; blocks (5000), bytes (40GB, 40GiB; needs --model-kv-bytes),
                         or part of all different blocks of the trace (5%), rounded down
  --sweep LIST           percentages (0.5,1,2,3,5,10,20,40)
  --hints on|off         whether the cache is told whose request it is and how it ended, where the
                         trace says so (on)

what a block is:
  --model-kv-bytes N     KV bytes of one token of your model, all layers: 2 x layers x KV heads x head
                         size x bytes per number (131072 for an 8B Llama in f16). Sizes are then given
                         in bytes too
  --block-tokens N       tokens behind one of the trace's ids (512)

what it means for those who wait:
  --tiers LIST           storage below the device, fastest first: NAME=SIZE@BANDWIDTH, as in
                         host=64GB@25GB/s,disk=1TB@3GB/s; adds the expected time to first token;
                         needs --model-kv-bytes and the next
  --prefill-tokens-per-s N   how fast the model reads a prompt

how:
  --json                 an array on standard output, an object per policy and capacity
  --report FILE          a page with curves, for a browser; needs nothing else to be shown
  --lenient              leave out lines that cannot be used, and count them
  --jobs N               threads (as many as there are cores); answers do not depend on it

  stemma replay trace.jsonl.zst
  stemma replay trace.jsonl --model-kv-bytes 131072 --capacity 20GB --capacity 40GB --report out.html
  stemma replay trace.jsonl --policy lru --policy min --sweep 1,5,25 --json > numbers.json

In tables and JSON, hit_ratio is blocks found / blocks asked for; cost_weighted_hit_ratio weighs a block
by 1 + its depth in tokens / 32768, since deep blocks cost more to compute again.

Exit codes: 0 done, 1 the trace cannot be used or a file not be written, 2 bad arguments.
)";

namespace {

using Unit = CapacityWish::Unit;

template <class T>
bool parse_whole(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string add_percent(std::string_view text, ReplayArguments& out) {
  const auto number = replay::parse_number(text);
  if (!number || *number <= 0 || *number > 100) {
    return "'" + std::string(text) + "' is no percentage above 0, up to 100";
  }
  out.capacities.push_back({Unit::percent, *number, std::string(text) + " %"});
  return {};
}

std::string add_capacity(std::string_view text, ReplayArguments& out) {
  if (text.ends_with('%')) return add_percent(text.substr(0, text.size() - 1), out);
  if (const auto bytes = replay::parse_bytes(text)) {
    out.capacities.push_back({Unit::bytes, static_cast<double>(*bytes), std::string(text)});
    return {};
  }
  uint64_t blocks = 0;
  if (!parse_whole(text, blocks) || blocks == 0) {
    return "--capacity is blocks (5000), bytes (40GB) or a part (5%), not '" + std::string(text) +
           "'";
  }
  if (blocks > replay::kMostBlocks) {
    return "--capacity " + std::string(text) + ": a cache has at most 134217728 blocks";
  }
  out.capacities.push_back({Unit::blocks, static_cast<double>(blocks), std::string(text)});
  return {};
}

std::string add_tier(std::string_view text, replay::TtftModel& model) {
  std::string wrong =
      "--tiers is NAME=SIZE@BANDWIDTH (host=64GB@25GB/s), not '" + std::string(text) + "'";
  const size_t equals = text.find('=');
  const size_t at = text.find('@');
  if (equals == std::string_view::npos || at == std::string_view::npos || at < equals ||
      equals == 0 || !text.ends_with("/s")) {
    return wrong;
  }
  const auto size = replay::parse_bytes(text.substr(equals + 1, at - equals - 1));
  const auto speed = replay::parse_bytes(text.substr(at + 1, text.size() - at - 3));
  if (!size || !speed || *size == 0 || *speed == 0) return wrong;
  model.tiers.push_back({std::string(text.substr(0, equals)), *size, static_cast<double>(*speed)});
  return {};
}

std::string add_policy(std::string_view name, ReplayArguments& out) {
  if (name == "all") {
    // By the name that a recommendation is for.
    for (const std::string_view known : retain::policy_names()) {
      out.policies.emplace_back(known == "adaptive" ? "default" : known);
    }
    out.policies.emplace_back("min");
    out.policies.emplace_back("infinite");
    return {};
  }
  if (!replay::can_replay(std::string(name))) {
    std::string known;
    for (const std::string_view one : retain::policy_names()) known += std::string(one) + ", ";
    return "there is no policy '" + std::string(name) + "'; there are " + known +
           "default, min and infinite";
  }
  out.policies.emplace_back(name);
  return {};
}

struct Flag {
  std::string_view name;
  std::function<std::string(std::string_view value)> take;
};

std::vector<Flag> flags(ReplayArguments& out) {
  const auto number = [](const char* name, uint32_t& target) {
    return Flag{name, [name, &target](std::string_view value) {
                  return parse_whole(value, target) && target != 0
                             ? std::string()
                             : std::string(name) + " needs a whole number, at least 1";
                }};
  };
  return {
      {"--policy", [&](std::string_view value) { return add_policy(value, out); }},
      {"--capacity", [&](std::string_view value) { return add_capacity(value, out); }},
      {"--sweep",
       [&](std::string_view value) {
         for (const std::string_view part : split(value, ',')) {
           if (std::string problem = add_percent(part, out); !problem.empty()) {
             return "--sweep: " + problem;
           }
         }
         return std::string();
       }},
      {"--hints",
       [&](std::string_view value) {
         out.hints = value == "on";
         return std::string(out.hints || value == "off" ? "" : "--hints is on or off");
       }},
      {"--model-kv-bytes",
       [&](std::string_view value) {
         uint64_t& bytes = out.model.kv_bytes_per_token;
         return std::string(parse_whole(value, bytes) && bytes != 0 && bytes < 1U << 30U
                                ? ""
                                : "--model-kv-bytes needs a whole number, the bytes of one token");
       }},
      number("--block-tokens", out.block_tokens),
      number("--jobs", out.threads),
      {"--tiers",
       [&](std::string_view value) {
         for (const std::string_view part : split(value, ',')) {
           if (std::string problem = add_tier(part, out.model); !problem.empty()) return problem;
         }
         return std::string();
       }},
      {"--prefill-tokens-per-s",
       [&](std::string_view value) {
         const auto speed = replay::parse_number(value);
         out.model.prefill_tokens_per_second = speed.value_or(0);
         return std::string(speed && *speed > 0 ? "" : "--prefill-tokens-per-s needs a number");
       }},
      {"--report",
       [&](std::string_view value) {
         out.report = value;
         return std::string(value.empty() ? "--report needs a file" : "");
       }},
  };
}

std::string check(ReplayArguments& out) {
  if (out.trace.empty()) return "the trace is missing: a file, or '-'";
  const bool bytes = std::any_of(out.capacities.begin(), out.capacities.end(),
                                 [](const CapacityWish& c) { return c.unit == Unit::bytes; });
  if (bytes && out.model.kv_bytes_per_token == 0) {
    return "a --capacity in bytes needs --model-kv-bytes";
  }
  if (!out.model.tiers.empty() && out.model.kv_bytes_per_token == 0) {
    return "--tiers needs --model-kv-bytes";
  }
  if (!out.model.tiers.empty() && out.model.prefill_tokens_per_second == 0) {
    return "--tiers needs --prefill-tokens-per-s";
  }
  if (out.capacities.empty()) {
    for (const char* percent : {"0.5", "1", "2", "3", "5", "10", "20", "40"}) {
      (void)add_percent(percent, out);
      out.capacities.back().asked_for = false;
    }
  }
  if (out.policies.empty()) {
    for (const char* name : {"lru", "default", "min", "infinite"}) {
      if (replay::can_replay(name)) out.policies.emplace_back(name);
    }
  }
  std::vector<std::string> once;
  for (const std::string& name : out.policies) {
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  }
  out.policies = once;
  return {};
}

}  // namespace

std::string parse_replay(std::span<const std::string_view> words, ReplayArguments& out) {
  const std::vector<Flag> known = flags(out);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--help" || word == "-h") {
      out.help = true;
      return {};
    }
    if (word == "--json") {
      out.json = true;
    } else if (word == "--lenient") {
      out.lenient = true;
    } else if (word == "-" || !word.starts_with("-")) {
      if (!out.trace.empty()) return "one trace at a time: '" + std::string(word) + "' is too many";
      out.trace = word;
    } else {
      const std::string_view name = word.substr(0, word.find('='));
      const auto flag = std::find_if(known.begin(), known.end(),
                                     [&](const Flag& one) { return one.name == name; });
      if (flag == known.end()) return "unknown argument '" + std::string(word) + "'";
      std::string_view value;
      if (name.size() < word.size()) {
        value = word.substr(name.size() + 1);
      } else if (i + 1 < words.size()) {
        value = words[++i];
      } else {
        return std::string(name) + " needs a value";
      }
      if (std::string problem = flag->take(value); !problem.empty()) return problem;
    }
  }
  return check(out);
}

std::string capacities_of(const ReplayArguments& arguments, const replay::Trace& trace,
                          std::vector<uint64_t>& out) {
  out.clear();
  for (const CapacityWish& wish : arguments.capacities) {
    uint64_t blocks = 0;
    switch (wish.unit) {
      case Unit::blocks: blocks = static_cast<uint64_t>(wish.amount); break;
      case Unit::bytes:
        blocks = static_cast<uint64_t>(wish.amount) /
                 (arguments.model.kv_bytes_per_token * trace.block_tokens);
        break;
      case Unit::percent: blocks = trace.blocks_at_percent(wish.amount); break;
    }
    if (blocks == 0 && !wish.asked_for) continue;
    if (blocks == 0) return wish.text + " is less than one block of this trace";
    out.push_back(blocks);
  }
  // Of two blocks even 40 % is none: what is left to ask is what all of them give.
  if (out.empty()) out.push_back(std::max<uint64_t>(1, trace.unique_blocks));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return {};
}

}  // namespace stemma::cli
