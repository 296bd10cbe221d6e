#ifdef STEMMA_HAS_SERVER

#include "cli/serve_tiers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#ifdef STEMMA_HAS_TIER_DISK
#include "stemma/tier/disk_tier.h"
#endif
#ifdef STEMMA_HAS_TIER_REDIS
#include "stemma/tier/redis_tier.h"
#endif
#ifdef STEMMA_HAS_TIER_SHARED
#include "stemma/tier/shared_tier.h"
#endif

#include "cli/serve_seal.h"
#include "server/chat/transcript_entry.h"
#include "stemma/log.h"
#include "tier/late_tier.h"

namespace stemma::cli {

namespace {

using LogLine = std::function<void(std::string_view line)>;
using Levels = std::vector<tier::StackLevel>;

// Returns the size of the largest entry that the engine can make: a segment, a checkpoint, or a
// state of the whole context.
uint64_t largest_entry(const server::Config& config, const EngineTraits& traits) {
  const uint64_t tokens = traits.segments ? config.segment_tokens : traits.context_tokens;
  return traits.fixed_bytes + tokens * traits.bytes_per_token + traits.checkpoint_bytes;
}

// The same, or the size of a transcript if that is larger and the tier is not tiny.
uint64_t largest_of_all(const server::Config& config, const EngineTraits& traits,
                        uint64_t capacity_bytes) {
  const uint64_t transcript = std::min(server::kMostTranscriptBytes, capacity_bytes / 64);
  return std::max(largest_entry(config, traits), transcript);
}

// Warns of entries that the tier would silently drop. There an entry has `more_bytes` more.
void tell_of_small(const server::Config& config, const EngineTraits& traits, const Tier& tier,
                   uint64_t more_bytes, const char* advice, const LogLine& log) {
  const uint64_t most = tier.traits().max_entry_bytes - more_bytes;
  const uint64_t segment = traits.fixed_bytes + config.segment_tokens * traits.bytes_per_token;
  const bool whole = !traits.segments;
  const uint64_t largest =
      whole ? largest_entry(config, traits) : std::max<uint64_t>(segment, traits.checkpoint_bytes);
  if (largest <= most) return;
  const char* what = whole                ? "a state of the whole context"
                     : largest == segment ? "a segment of --segment-tokens"
                                          : "a checkpoint";
  log("warning: " + tier.traits().name + " takes entries of up to " + std::to_string(most) +
      " bytes, but " + what + " of this model has up to " + std::to_string(largest) +
      ": what is larger is not kept there" + advice);
}

}  // namespace

void warn_of_small_budget(const server::Config& config, const EngineTraits& traits,
                          const std::function<void(std::string_view line)>& log) {
  const bool saves = config.reuse == "everything" || config.reuse == "saved";
  if (!saves || config.saved_bytes == 0 || traits.fork == Fork::none) return;
  const auto warn = [&](uint64_t given, const char* what, uint64_t needed, const char* effect) {
    if (given >= needed) return;
    log("warning: --saved-bytes " + std::to_string(config.saved_bytes) + " leaves " +
        std::to_string(given) + " bytes for " + what + ", which needs " + std::to_string(needed) +
        ": " + effect);
  };
  const bool shares = traits.checkpoints && traits.rewind != Rewind::any;
  const auto for_checkpoints =
      shares && traits.bytes_per_token != 0
          ? static_cast<uint64_t>(static_cast<double>(config.saved_bytes) * config.checkpoint_share)
          : 0;
  if (traits.segments) {
    warn(config.saved_bytes - for_checkpoints, "a segment of --segment-tokens",
         traits.fixed_bytes + config.segment_tokens * traits.bytes_per_token, "nothing is saved");
    if (shares) {
      warn(for_checkpoints, "a checkpoint (--checkpoint-share)", traits.checkpoint_bytes,
           "no prompt can go on from what is saved");
    }
    return;
  }
  const uint64_t least = traits.fixed_bytes + traits.checkpoint_bytes;
  if (config.saved_bytes < least) {
    warn(config.saved_bytes, "a state", least, "nothing is saved");
  } else {
    warn(config.saved_bytes, "a state of the whole context", largest_entry(config, traits),
         "longer prompts are not saved");
  }
}

namespace {

// The settings were checked, so `when` is one of three words.
tier::WritePolicy write_of(const std::string& when) {
  if (when == "back") return tier::WritePolicy::write_back;
  return when == "second-use" ? tier::WritePolicy::on_second_use : tier::WritePolicy::write_through;
}

// Describes why a directory could not be opened.
std::string directory_problem(const char* flag, const std::string& path, const Error& error) {
  std::string why = std::string(flag) + " " + path + ": " + error.message();
  if (error.value() == Error::kNoValue) return why;
  if (error.code() == Errc::copy_failed) {
    why += std::string(" (") + std::strerror(static_cast<int>(error.value())) + ")";
  } else if (error.code() == Errc::unsupported) {
    why += " " + std::to_string(error.value());
  }
  return why;
}

// If another process has the directory, or the system refuses, that may pass. The operator must
// mend anything else.
bool may_pass(const Error& error) noexcept {
  return error.code() == Errc::busy || error.code() == Errc::copy_failed;
}

// How often a directory that could not be opened is tried again.
constexpr uint64_t kTryAgainNs = 1'000'000'000;

// Adds a level that is opened later: the server starts without it, and logs that.
bool open_later(const std::string& problem, const TierTraits& traits, tier::OpenTier open,
                const LogLine& log, tier::StackLevel level, Levels& levels, std::string& why) {
  Result<std::unique_ptr<Tier>> late = tier::make_late_tier(
      traits,
      [open = std::move(open), name = traits.name,
       last = std::string(problem)]() mutable -> Result<std::unique_ptr<Tier>> {
        Result<std::unique_ptr<Tier>> opened = open();
        // Only a new reason is logged.
        if (!opened && last.find(opened.error().message()) == std::string::npos) {
          last = opened.error().message();
          stemma::log(LogLevel::warning, name + ": it still cannot be opened: " + last);
        }
        if (opened) {
          const uint64_t entries = (*opened)->stats().entries;
          stemma::log(LogLevel::info, name + ": opened, with " + std::to_string(entries) +
                                          " entries; it is used from now on");
        }
        return opened;
      },
      kTryAgainNs);
  if (!late) {
    why = problem;
    return false;
  }
  log("warning: " + problem + "; the server runs without it, and tries again every second");
  level.tier = *std::move(late);
  levels.push_back(std::move(level));
  return true;
}

#ifdef STEMMA_HAS_TIER_DISK
// A directory of another model is no error, but an operator who expected entries in it should know.
void tell_of_others(const tier::disk::DiskOpening& found, uint64_t layout, const LogLine& log) {
  uint64_t entries = 0, bytes = 0;
  for (const tier::disk::DiskLayout& one : found.layouts) {
    if (one.layout == layout) continue;
    entries += one.entries;
    bytes += one.bytes;
  }
  if (entries == 0) return;
  log("disk: " + std::to_string(entries) + " of these entries (" + std::to_string(bytes) +
      " bytes) are another model's, or of this one with other settings: they are not used here, "
      "and go when "
      "their room is needed");
}

bool add_disk(const server::Config& config, const EngineTraits& traits, uint64_t layout,
              const Sealer& sealer, const LogLine& log, Levels& levels, std::string& why) {
  tier::disk::DiskOptions options;
  options.path = config.disk;
  options.capacity_bytes = config.disk_bytes;
  options.scrub_bytes_per_second = config.scrub_bytes_per_second;
  options.max_entry_bytes =
      largest_of_all(config, traits, config.disk_bytes) + sealer.more_bytes(true);
  // Reading a large store takes a while: show whoever waits that it makes progress.
  constexpr uint64_t kTellNs = 2'000'000'000;
  options.progress = [&log, told_ns = Clock::monotonic().now_ns()](uint64_t done,
                                                                   uint64_t total) mutable {
    const uint64_t now_ns = Clock::monotonic().now_ns();
    if (now_ns - told_ns < kTellNs) return;
    told_ns = now_ns;
    log("disk reading what is there: " + std::to_string(done) + " of " + std::to_string(total) +
        " records");
  };
  // The disk counts as fast until something was read. If it is slow, one request takes longer than
  // necessary. If it counted as slow, a fast GPU would never read from it, so nobody would find
  // out.
  constexpr uint64_t kFastDisk = 4'000'000'000;
  tier::StackLevel level{.tier = nullptr,
                         .write = write_of(config.disk_write),
                         .latency_ns = 200'000,
                         .bytes_per_second = kFastDisk};
  Result<std::unique_ptr<tier::disk::DiskTier>> tier = tier::disk::DiskTier::open(options);
  if (!tier && may_pass(tier.error())) {
    options.progress = {};  // Nobody waits for it by then.
    const auto open = [options]() -> Result<std::unique_ptr<Tier>> {
      STEMMA_TRY(std::unique_ptr<tier::disk::DiskTier> opened, tier::disk::DiskTier::open(options));
      return std::unique_ptr<Tier>(std::move(opened));
    };
    return open_later(directory_problem("--disk", config.disk, tier.error()),
                      {.name = "disk",
                       .capacity_bytes = options.capacity_bytes,
                       .max_entry_bytes = options.max_entry_bytes,
                       .outlives_process = true},
                      open, log, std::move(level), levels, why);
  }
  if (!tier) {
    why = directory_problem("--disk", config.disk, tier.error());
    if (tier.error().code() == Errc::invalid_argument) {
      why += "; --disk-bytes is " + std::to_string(config.disk_bytes) +
             ", and an entry of this model has up to " + std::to_string(options.max_entry_bytes) +
             " bytes";
    }
    return false;
  }
  const tier::disk::DiskOpening& found = (*tier)->opening();
  log("disk path=" + config.disk + " entries=" + std::to_string(found.entries) +
      " damaged=" + std::to_string(found.damaged) + " dropped=" + std::to_string(found.dropped) +
      " foreign_files=" + std::to_string(found.foreign) + " io=" + found.io +
      (found.direct ? " direct" : "") + " open_ms=" + std::to_string(found.ns / 1'000'000));
  tell_of_others(found, sealer.layout(layout, true), log);
  level.tier = *std::move(tier);
  levels.push_back(std::move(level));
  return true;
}
#endif

#ifdef STEMMA_HAS_TIER_REDIS
bool add_redis(const server::Config& config, const EngineTraits& traits, const Sealer& sealer,
               const LogLine& log, Levels& levels, std::string& why) {
  const Result<tier::redis::Place> place = tier::redis::parse_url(config.redis);
  if (!place) {
    why = std::string("--redis: ") + place.error().message();
    return false;
  }
  tier::redis::RedisOptions options;
  options.place = *place;
  Result<std::unique_ptr<tier::redis::RedisTier>> tier = tier::redis::RedisTier::create(options);
  if (!tier) {
    why = "--redis " + place->text() + ": " + tier.error().message();
    return false;
  }
  // A server that is away may come back: until then requests are served without it.
  constexpr uint64_t kPatienceNs = 3'000'000'000;
  const bool ready = (*tier)->wait_ready(Clock::monotonic().now_ns() + kPatienceNs);
  log("redis url=" + place->text() + (ready ? " ready" : " not reached; going on without it"));
  tell_of_small(config, traits, **tier, sealer.more_bytes(false),
                "; fewer --segment-tokens make smaller segments", log);
  levels.push_back({.tier = *std::move(tier),
                    .write = write_of(config.redis_write),
                    .latency_ns = 1'000'000,
                    .bytes_per_second = 500'000'000});
  return true;
}
#endif

#ifdef STEMMA_HAS_TIER_SHARED
// How stale a file's time may be. Other servers learn of a use only from that time, and evict files
// that seem unused. A small directory is replaced sooner: with 60 s, two busy servers on 64 MiB
// evicted entries that the other one was using.
uint64_t touch_ns_of(uint64_t capacity_bytes) noexcept {
  constexpr uint64_t kBytesOfASecond = 64U << 20U;
  return std::clamp<uint64_t>(capacity_bytes / kBytesOfASecond, 1, 60) * 1'000'000'000;
}

bool add_shared(const server::Config& config, const EngineTraits& traits, const Sealer& sealer,
                const LogLine& log, Levels& levels, std::string& why) {
  tier::shared::SharedOptions options;
  options.path = config.shared_dir;
  options.capacity_bytes = config.shared_bytes;
  options.scrub_bytes_per_second = config.scrub_bytes_per_second;
  options.touch_ns = touch_ns_of(config.shared_bytes);
  options.max_entry_bytes =
      largest_of_all(config, traits, config.shared_bytes) + sealer.more_bytes(false);
  tier::StackLevel level{.tier = nullptr,
                         .write = write_of(config.shared_write),
                         .latency_ns = 2'000'000,
                         .bytes_per_second = 500'000'000};
  Result<std::unique_ptr<tier::shared::SharedTier>> tier = tier::shared::SharedTier::open(options);
  if (!tier && may_pass(tier.error())) {
    const auto open = [options]() -> Result<std::unique_ptr<Tier>> {
      STEMMA_TRY(std::unique_ptr<tier::shared::SharedTier> opened,
                 tier::shared::SharedTier::open(options));
      return std::unique_ptr<Tier>(std::move(opened));
    };
    return open_later(directory_problem("--shared-dir", config.shared_dir, tier.error()),
                      {.name = "shared",
                       .capacity_bytes = options.capacity_bytes,
                       .max_entry_bytes = options.max_entry_bytes,
                       .outlives_process = true,
                       .shared = true},
                      open, log, std::move(level), levels, why);
  }
  if (!tier) {
    why = directory_problem("--shared-dir", config.shared_dir, tier.error());
    return false;
  }
  const tier::shared::SharedOpening& found = (*tier)->opening();
  log("shared path=" + config.shared_dir + " entries=" + std::to_string(found.entries) +
      " dropped=" + std::to_string(found.dropped) + " leftovers=" +
      std::to_string(found.leftovers) + " foreign_files=" + std::to_string(found.foreign) +
      " open_ms=" + std::to_string(found.ns / 1'000'000));
  level.tier = *std::move(tier);
  levels.push_back(std::move(level));
  return true;
}
#endif

}  // namespace

bool open_tiers(const server::Config& config, const EngineTraits& traits, uint32_t model,
                const LogLine& log, ServeTiers& out, std::string& why) {
  Levels levels;
  Sealer sealer;
  if (!sealer.open(config, why)) return false;
  const tier::SequenceTiers::Options sequences{
      .traits = traits,
      .segment_tokens = static_cast<uint32_t>(config.segment_tokens),
      .keep_words = config.tier_words,
      .model = model};
  if (!config.disk.empty()) {
#ifdef STEMMA_HAS_TIER_DISK
    if (!add_disk(config, traits, tier::SequenceTiers::layout(sequences), sealer, log, levels,
                  why) ||
        !sealer.seal(levels.back().tier, /*is_disk=*/true, why)) {
      return false;
    }
#else
    why = "--disk: this program was built without the disk tier";
    return false;
#endif
  }
  if (!config.redis.empty()) {
#ifdef STEMMA_HAS_TIER_REDIS
    if (!add_redis(config, traits, sealer, log, levels, why) ||
        !sealer.seal(levels.back().tier, /*is_disk=*/false, why)) {
      return false;
    }
#else
    why = "--redis: this program was built without the Redis tier";
    return false;
#endif
  }
  if (!config.shared_dir.empty()) {
#ifdef STEMMA_HAS_TIER_SHARED
    if (!add_shared(config, traits, sealer, log, levels, why) ||
        !sealer.seal(levels.back().tier, /*is_disk=*/false, why)) {
      return false;
    }
#else
    why = "--shared-dir: this program was built without the shared tier";
    return false;
#endif
  }
  sealer.tell(log);
  if (levels.empty()) return true;
  tier::StackOptions options;
  options.levels = std::move(levels);
  options.queue_bytes = config.tier_queue_bytes;
  options.query_ns = config.tier_wait_ms * 1'000'000;
  // Loaded bytes wait here until the engine's memory for saved prefixes takes them. They always use
  // the same pages, because clearing fresh pages takes as long as a fast disk takes to read them.
  // Pages are taken when they are first used.
  constexpr uint64_t kTransferBytes = uint64_t{256} << 20U;
  options.transfer_bytes = std::min<uint64_t>(kTransferBytes, config.saved_bytes / 4);
  Result<std::unique_ptr<tier::TierStack>> stack = tier::TierStack::create(std::move(options));
  if (!stack) {
    why = stack.error().message();
    return false;
  }
  out.stack = *std::move(stack);
  out.tiers = std::make_unique<tier::SequenceTiers>(*out.stack, sequences);
  return true;
}

}  // namespace stemma::cli

#endif
