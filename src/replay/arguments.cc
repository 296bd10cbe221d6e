#include "replay/arguments.h"

#include <algorithm>
#include <functional>

#include "flags/flags.h"
#include "replay/replay.h"
#include "replay/sizes.h"
#include "retain/policies.h"

namespace stemma::replay {

const char* const kReplayHelp =
    R"(usage: stemma replay TRACE [OPTIONS]

Plays a recorded hour or day of requests through the cache and says how much of the prompts would
have been found cached, for each policy at each size of the cache. It is the real cache with its
real policies; only the model is missing. TRACE is a file of JSON lines in Mooncake's format or in
our own (docs/formats/trace.md), plain or compressed with zstd; '-' is standard input. If you have no
trace, 'stemma trace make' generates one.

what to try:
  --policy NAME          may be given several times (lru, adaptive, min, infinite); 'all' is every policy
                           %POLICIES%
                           adaptive  learns when conversations come back; default is its old name
                           min       knows the future: nobody can do better
                           infinite  a cache without limits
  --capacity SIZE        may be given several times: blocks (5000), bytes (40GB, 40GiB; needs
                         --model-kv-bytes), or a share of all different blocks of the trace (5%),
                         rounded down
  --sweep LIST           several capacities as percentages (0.5,1,2,3,5,10,20,40)
  --hints on|off         whether to tell the cache to which session a request belongs and how it
                         ended, where the trace says so (on)

what a block is:
  --model-kv-bytes N     KV bytes of one token of your model, all layers: 2 x layers x KV heads x head
                         size x bytes per number (131072 for an 8B Llama in f16). Sizes are then given
                         in bytes too
  --block-tokens N       tokens behind one of the trace's ids (512)

how long users would wait:
  --tiers LIST           storage below the device, fastest first: NAME=SIZE@BANDWIDTH, as in
                         host=64GB@25GB/s,disk=1TB@3GB/s; adds the expected time to first token;
                         needs --model-kv-bytes and --prefill-tokens-per-s
  --prefill-tokens-per-s N   how fast the model reads a prompt

how to run and report:
  --json                 prints an array on standard output, with an object per policy and capacity
  --report FILE          writes a page with curves; a browser shows it without any other file
  --lenient              leaves out lines that cannot be used, and counts them
  --jobs N               threads (as many as there are cores); results do not depend on it

  stemma replay trace.jsonl.zst
  stemma replay trace.jsonl --model-kv-bytes 131072 --capacity 20GB --capacity 40GB --report out.html
  stemma replay trace.jsonl --policy lru --policy min --sweep 1,5,25 --json > numbers.json

In tables and JSON, hit_ratio is blocks found / blocks asked for; cost_weighted_hit_ratio weighs a block
by 1 + its depth in tokens / 32768, since deep blocks cost more to compute again.

Exit codes: 0 done, 1 the trace cannot be used or a file not be written, 2 bad arguments.
)";

namespace {

using Unit = CapacityWish::Unit;

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
  const auto number = parse_number(text);
  if (!number || *number <= 0 || *number > 100) {
    return "'" + std::string(text) + "' is no percentage above 0, up to 100";
  }
  out.capacities.push_back({Unit::percent, *number, std::string(text) + " %"});
  return {};
}

std::string add_capacity(std::string_view text, ReplayArguments& out) {
  if (text.ends_with('%')) return add_percent(text.substr(0, text.size() - 1), out);
  if (const auto bytes = parse_bytes(text)) {
    out.capacities.push_back({Unit::bytes, static_cast<double>(*bytes), std::string(text)});
    return {};
  }
  uint64_t blocks = 0;
  if (!flags::parse_whole(text, blocks) || blocks == 0) {
    return "--capacity is blocks (5000), bytes (40GB) or a part (5%), not '" + std::string(text) +
           "'";
  }
  if (blocks > kMostBlocks) {
    return "--capacity " + std::string(text) + ": a cache has at most 134217728 blocks";
  }
  out.capacities.push_back({Unit::blocks, static_cast<double>(blocks), std::string(text)});
  return {};
}

std::string add_tier(std::string_view text, TtftModel& model) {
  std::string wrong =
      "--tiers is NAME=SIZE@BANDWIDTH (host=64GB@25GB/s), not '" + std::string(text) + "'";
  const size_t equals = text.find('=');
  const size_t at = text.find('@');
  if (equals == std::string_view::npos || at == std::string_view::npos || at < equals ||
      equals == 0 || !text.ends_with("/s")) {
    return wrong;
  }
  const auto size = parse_bytes(text.substr(equals + 1, at - equals - 1));
  const auto speed = parse_bytes(text.substr(at + 1, text.size() - at - 3));
  if (!size || !speed || *size == 0 || *speed == 0) return wrong;
  model.tiers.push_back({std::string(text.substr(0, equals)), *size, static_cast<double>(*speed)});
  return {};
}

std::string add_policy(std::string_view name, ReplayArguments& out) {
  if (name == "all") {
    for (const std::string_view known : retain::policy_names()) out.policies.emplace_back(known);
    out.policies.emplace_back("min");
    out.policies.emplace_back("infinite");
    return {};
  }
  if (!can_replay(std::string(name))) {
    std::string known;
    for (const std::string_view one : retain::policy_names()) known += std::string(one) + ", ";
    return "there is no policy '" + std::string(name) + "'; there are " + known +
           "min and infinite";
  }
  out.policies.emplace_back(name == "default" ? "adaptive" : name);
  return {};
}

// The error that `add` returns for the first bad part of a list.
std::string add_each(std::string_view list,
                     const std::function<std::string(std::string_view)>& add) {
  for (const std::string_view part : split(list, ',')) {
    if (std::string problem = add(part); !problem.empty()) return problem;
  }
  return {};
}

void describe(flags::Flags& flags, ReplayArguments& out) {
  flags.take("--policy", [&](std::string_view value) { return add_policy(value, out); });
  flags.take("--capacity", [&](std::string_view value) { return add_capacity(value, out); });
  flags.take("--sweep", [&](std::string_view value) {
    const std::string problem =
        add_each(value, [&](std::string_view part) { return add_percent(part, out); });
    return problem.empty() ? problem : "--sweep: " + problem;
  });
  flags.choice("--hints", out.hints, {{"on", true}, {"off", false}});
  flags.whole("--model-kv-bytes", out.model.kv_bytes_per_token, uint64_t{1},
              (uint64_t{1} << 30U) - 1);
  flags.whole("--block-tokens", out.block_tokens);
  flags.whole("--jobs", out.threads);
  flags.take("--tiers", [&](std::string_view value) {
    return add_each(value, [&](std::string_view part) { return add_tier(part, out.model); });
  });
  flags.take("--prefill-tokens-per-s", [&](std::string_view value) {
    const auto speed = parse_number(value);
    out.model.prefill_tokens_per_second = speed.value_or(0);
    return std::string(speed && *speed > 0 ? "" : "--prefill-tokens-per-s needs a number");
  });
  flags.text("--report", out.report);
  flags.on("--json", out.json);
  flags.on("--lenient", out.lenient);
  flags.words([&](std::string_view word) {
    if (!out.trace.empty()) return "one trace at a time: '" + std::string(word) + "' is too many";
    out.trace = word;
    return std::string();
  });
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
    for (const char* name : {"lru", "adaptive", "min", "infinite"}) {
      if (can_replay(name)) out.policies.emplace_back(name);
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
  flags::Flags flags;
  describe(flags, out);
  if (std::string wrong = flags.read(words); !wrong.empty()) return wrong;
  out.help = flags.help();
  return out.help ? std::string() : check(out);
}

std::string capacities_of(const ReplayArguments& arguments, const Trace& trace,
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
  // With two blocks, even 40 % is none: then replay with all of them.
  if (out.empty()) out.push_back(std::max<uint64_t>(1, trace.unique_blocks));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return {};
}

}  // namespace stemma::replay
