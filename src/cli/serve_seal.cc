#ifdef STEMMA_HAS_SERVER

#include "cli/serve_seal.h"

#include <utility>

#ifdef STEMMA_HAS_TIER_SEAL
#include "stemma/tier/key_ring.h"
#include "stemma/tier/sealed_tier.h"
#endif

namespace stemma::cli {

bool Sealer::open(const server::Config& config, std::string& why) {
  if (config.seal_keys.empty()) {
    if (config.seal_disk) why = "--seal-disk on needs --seal-keys DIRECTORY";
    return !config.seal_disk;
  }
  if (config.seal_disk && config.disk.empty()) {
    why = "--seal-disk on needs --disk DIRECTORY";
    return false;
  }
#ifdef STEMMA_HAS_TIER_SEAL
  std::string problem;
  Result<std::shared_ptr<tier::KeyRing>> keys =
      tier::KeyRing::open({.path = config.seal_keys}, problem);
  if (!keys) {
    why = "--seal-keys " + (problem.empty() ? std::string(keys.error().message()) : problem);
    return false;
  }
  keys_ = *std::move(keys);
  path_ = config.seal_keys;
  disk_too_ = config.seal_disk;
  return true;
#else
  why = "--seal-keys: this program was built without OpenSSL, so it cannot encrypt";
  return false;
#endif
}

#ifdef STEMMA_HAS_TIER_SEAL

uint64_t Sealer::more_bytes(bool is_disk) const noexcept {
  return seals(is_disk) ? tier::kSealBytes : 0;
}

uint64_t Sealer::layout(uint64_t layout, bool is_disk) const noexcept {
  return seals(is_disk) ? tier::sealed_layout(layout) : layout;
}

bool Sealer::seal(std::unique_ptr<Tier>& tier, bool is_disk, std::string& why) {
  if (!seals(is_disk)) return true;
  const std::string name = tier->traits().name;
  Result<std::unique_ptr<Tier>> made = tier::make_sealed_tier(std::move(tier), {.keys = keys_});
  if (!made) {
    why = std::string("--seal-keys: ") + made.error().message();
    return false;
  }
  tier = *std::move(made);
  sealed_ += (sealed_.empty() ? "" : ",") + name;
  return true;
}

#else

uint64_t Sealer::more_bytes(bool) const noexcept { return 0; }
uint64_t Sealer::layout(uint64_t layout, bool) const noexcept { return layout; }
bool Sealer::seal(std::unique_ptr<Tier>&, bool, std::string&) { return true; }

#endif

void Sealer::tell(const std::function<void(std::string_view line)>& log) const {
  if (keys_ == nullptr) return;
  if (sealed_.empty()) {
    log("warning: --seal-keys " + path_ +
        " seals nothing: there is no --redis and no --shared-dir, and --seal-disk is off");
    return;
  }
  log("sealed tiers=" + sealed_ + " keys=" + path_);
}

}  // namespace stemma::cli

#endif
