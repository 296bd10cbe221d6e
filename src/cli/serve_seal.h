// Which tiers of `stemma serve` are sealed: --seal-keys and --seal-disk.
//
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/config.h"
#include "stemma/tier.h"

namespace stemma::tier {
class KeyRing;
}

namespace stemma::cli {

class Sealer {
 public:
  // false: `why`, for the operator.
  bool open(const server::Config& config, std::string& why);

  // How much larger entries of a tier are that is sealed, and what their layout is there. As they
  // are where it is not sealed.
  uint64_t more_bytes(bool is_disk) const noexcept;
  uint64_t layout(uint64_t layout, bool is_disk) const noexcept;

  // Seals the tier if it is to be. false: `why`.
  bool seal(std::unique_ptr<Tier>& tier, bool is_disk, std::string& why);

  // Says which tiers are sealed; a warning if there are keys and none is.
  void tell(const std::function<void(std::string_view line)>& log) const;

 private:
  bool seals(bool is_disk) const noexcept { return keys_ != nullptr && (!is_disk || disk_too_); }

  std::shared_ptr<tier::KeyRing> keys_;  // Null: nothing is sealed.
  std::string path_;
  bool disk_too_ = false;
  std::string sealed_;  // Names, for the log.
};

}  // namespace stemma::cli
