#include "stemma/tier/shared_tier.h"

#include <new>

#include "stemma/log.h"
#include "tier/shared/core.h"

namespace stemma::tier::shared {

namespace {

class OpenTier final : public SharedTier {
 public:
  explicit OpenTier(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~OpenTier() override { core_->stop(); }

  const TierTraits& traits() const noexcept override { return core_->traits(); }
  void submit(std::shared_ptr<TierBatch> batch) override { core_->submit(std::move(batch)); }
  TierStats stats() const override { return core_->stats(); }
  bool flush(uint64_t until_ns) override { return core_->flush(until_ns); }
  Purged purge(const Purge& what, uint64_t until_ns) override {
    return core_->purge(what, until_ns);
  }
  const SharedOpening& opening() const noexcept override { return core_->opening(); }
  bool scan() override { return core_->scan_now(); }

 private:
  std::shared_ptr<Core> core_;
};

void tell(const SharedOptions& options, const SharedOpening& opening) {
  const auto text = [](uint64_t number) { return std::to_string(number); };
  std::string line = "shared tier '" + options.path + "': " + text(opening.entries) +
                     " entries, opened in " + text(opening.ns / 1'000'000) + " ms";
  if (opening.dropped != 0) line += "; " + text(opening.dropped) + " removed for the capacity";
  if (opening.leftovers != 0) line += "; " + text(opening.leftovers) + " leftovers removed";
  if (opening.foreign != 0) {
    line += "; " + text(opening.foreign) + " files are not ours and are left alone";
  }
  log(opening.foreign != 0 ? LogLevel::warning : LogLevel::info, line);
}

}  // namespace

Result<std::unique_ptr<SharedTier>> SharedTier::open(const SharedOptions& options) {
  constexpr uint64_t kLeastCapacity = uint64_t{16} << 10U;
  constexpr uint32_t kMostThreads = 1024;
  if (options.path.empty()) {
    return Error(Errc::invalid_argument, "a shared tier needs a directory");
  }
  if (options.capacity_bytes < kLeastCapacity) {
    return Error(Errc::invalid_argument, "the capacity must be at least 16 KiB");
  }
  if (options.threads == 0 || options.threads > kMostThreads) {
    return Error(Errc::invalid_argument, "threads must be 1 to 1024", options.threads);
  }
  if (options.max_entry_bytes == 0 || options.max_entry_bytes > kMostPayloadBytes) {
    return Error(Errc::invalid_argument, "max_entry_bytes must be 1 to 2^40");
  }
  try {
    auto core = std::make_shared<Core>(options);
    STEMMA_TRY_VOID(core->open());
    core->start();
    tell(options, core->opening());
    return std::unique_ptr<SharedTier>(std::make_unique<OpenTier>(std::move(core)));
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a shared tier");
  }
}

}  // namespace stemma::tier::shared
