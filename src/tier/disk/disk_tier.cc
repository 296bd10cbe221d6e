#include "stemma/disk_tier.h"

#include <new>

#include "stemma/log.h"
#include "tier/disk/engine.h"

namespace stemma::tier::disk {

namespace {

void tell(const Store& store, const DiskOptions& options) {
  const DiskOpening& opening = store.opening;
  const auto text = [](uint64_t number) { return std::to_string(number); };
  std::string line = "disk tier '" + store.path + "': " + text(opening.entries) + " entries in " +
                     text(store.books->chunks()) + " of at most " +
                     text(options.capacity_bytes / store.format.chunk_bytes) + " chunks of " +
                     text(store.format.chunk_bytes) + " bytes, " +
                     (opening.direct ? "O_DIRECT" : "through the page cache") + ", " + opening.io +
                     ", opened in " + text(opening.ns / 1'000'000) + " ms";
  if (opening.damaged != 0) line += "; " + text(opening.damaged) + " damaged";
  if (opening.duplicates != 0) line += "; " + text(opening.duplicates) + " superseded";
  if (opening.dropped != 0) line += "; " + text(opening.dropped) + " given up for the capacity";
  log(opening.damaged != 0 ? LogLevel::warning : LogLevel::info, line);
}

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskOptions& options) {
  const uint64_t begun_ns = Clock::monotonic().now_ns();
  try {
    STEMMA_TRY(auto store, open_directory(options, IfMissing::create));
    STEMMA_TRY(auto found, scan(*store, options.depth, options.progress));
    STEMMA_TRY_VOID(rebuild(*store, options, std::move(found)));
    store->opening.ns = Clock::monotonic().now_ns() - begun_ns;
    const Store& opened = *store;
    auto engine = std::make_unique<Engine>(options, std::move(store));
    STEMMA_TRY_VOID(engine->start());
    tell(opened, options);
    return std::unique_ptr<DiskTier>(std::move(engine));
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a disk tier");
  }
}

}  // namespace stemma::tier::disk
