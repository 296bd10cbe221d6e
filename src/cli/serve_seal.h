// Decides which tiers of `stemma serve` are sealed: --seal-keys and --seal-disk.
//
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/config.h"
#include "stemma/tier/tier.h"

namespace stemma::tier {
class KeyRing;
}

namespace stemma::cli {

class Sealer {
 public:
  // Returns false after writing the reason, for the operator, to `why`.
  bool open(const server::Config& config, std::string& why);

  // How many bytes sealing adds to a tier's entries, and which layout it gives them. For a tier
  // that is not sealed: 0 bytes and the same layout.
  uint64_t more_bytes(bool is_disk) const noexcept;
  uint64_t layout(uint64_t layout, bool is_disk) const noexcept;

  // Seals the tier if it must be sealed. Returns false after writing the reason to `why`.
  bool seal(std::unique_ptr<Tier>& tier, bool is_disk, std::string& why);

  // Logs which tiers are sealed, or a warning if there are keys but no tier is sealed.
  void tell(const std::function<void(std::string_view line)>& log) const;

 private:
  bool seals(bool is_disk) const noexcept { return keys_ != nullptr && (!is_disk || disk_too_); }

  std::shared_ptr<tier::KeyRing> keys_;  // Null: nothing is sealed.
  std::string path_;
  bool disk_too_ = false;
  std::string sealed_;  // Names, for the log.
};

}  // namespace stemma::cli
