#include "stemma/tier/disk_tier.h"

#include <new>

#include "stemma/log.h"
#include "tier/disk/local_tier.h"

namespace stemma::tier::disk {

namespace {

void tell(const Store& store, const DiskOptions& options) {
  const DiskOpening& opening = store.opening;
  const auto text = [](uint64_t number) { return std::to_string(number); };
  std::string line = "disk tier '" + store.path + "': " + text(opening.entries) + " entries, " +
                     text(store.books->used_bytes()) + " of " + text(options.capacity_bytes) +
                     " bytes, " + (opening.direct ? "O_DIRECT" : "through the page cache") +
                     ", opened in " + text(opening.ns / 1'000'000) + " ms";
  if (opening.damaged != 0) line += "; " + text(opening.damaged) + " damaged";
  if (opening.duplicates != 0) line += "; " + text(opening.duplicates) + " superseded";
  if (opening.dropped != 0) line += "; " + text(opening.dropped) + " given up for the capacity";
  if (opening.retired_bytes != 0) {
    line += "; " + text(opening.retired_bytes) + " bytes cannot be used";
  }
  log(opening.damaged != 0 ? LogLevel::warning : LogLevel::info, line);
}

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskOptions& options) {
  try {
    STEMMA_TRY(auto store, open_store(options));
    tell(*store, options);
    auto tier = std::make_unique<LocalTier>(options, std::move(store));
    STEMMA_TRY_VOID(tier->start());
    return std::unique_ptr<DiskTier>(std::move(tier));
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a disk tier");
  }
}

}  // namespace stemma::tier::disk
