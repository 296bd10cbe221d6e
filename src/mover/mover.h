// Moves blocks between host memory and an engine's pages. This is the C++ side of
// stemma/stemma_mover.h, which explains the words.
//
// It checks requests and plans them; a Copier carries them out on a CPU or a CUDA device.
//
// Threading:  thread-safe. The destructor waits for running transfers.
// Ownership:  transfers are shared; they may outlive the mover, and are over then.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mover/copier.h"
#include "mover/layout.h"
#include "mover/transfer.h"
#include "stemma/result.h"

namespace stemma::mover {

struct GroupPlanes {
  std::vector<Plane> planes;
  uint32_t pages = 0;
};

struct MoverOptions {
  int32_t device = -1;
  std::vector<GroupPlanes> groups;
  uint32_t threads = 0;
  uint32_t thread_blocks = 8;
  uint64_t arena_bytes = 0;
  uint64_t batch_from_bytes = 0;
  uint64_t ring_bytes = uint64_t{4} << 20U;
};

struct MoveRequest {
  uint32_t group = 0;
  std::span<const Item> items;
  uint64_t stream = kOwnStream;
  uint64_t after_stream = kNoStream;
  bool check = true;  // A load compares sums. A store that does not check makes none.
  uint32_t layers_at_once = 1;
  void (*done)(void* user, std::optional<Errc> outcome) = nullptr;
  void* user = nullptr;
};

using MakeCopier = Result<std::unique_ptr<Copier>> (*)(const CopierOptions& options, void* context);
// The CPU's copier or a CUDA device's, as options.device says.
Result<std::unique_ptr<Copier>> make_copier(const CopierOptions& options, void* context);

class Mover {
 public:
  // Errors: as stemma_mover_create(). Tests put a copier of their own under it.
  static Result<std::unique_ptr<Mover>> create(const MoverOptions& options,
                                               MakeCopier make = make_copier,
                                               void* context = nullptr);
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  size_t groups() const noexcept { return layouts_.size(); }
  const Layout& layout(uint32_t group) const noexcept { return layouts_[group]; }
  uint64_t fingerprint() const noexcept;

  // Errors: as the C calls of these names. The items are borrowed for the call.
  Result<std::shared_ptr<Transfer>> load(const MoveRequest& request);
  Result<std::shared_ptr<Transfer>> store(const MoveRequest& request);
  Result<std::shared_ptr<Transfer>> copy(std::span<const BlockOfGroup> copies,
                                         const MoveRequest& request);
  // `way` is from_pages (gather) or to_pages (scatter).
  Result<std::shared_ptr<Transfer>> pack(Way way, uint32_t group, std::span<const uint32_t> pages,
                                         uint64_t packed, uint64_t stream);

  Result<void> gate(Transfer& transfer, uint32_t layer, uint64_t stream);
  Result<uint64_t> event(Transfer& transfer, uint32_t layer);

  const Counters& counters() const noexcept { return *counters_; }
  Copier& copier() noexcept { return *copier_; }

 private:
  explicit Mover(std::vector<Layout> layouts) : layouts_(std::move(layouts)) {}
  Result<void> check_group(uint32_t group) const noexcept;
  Result<std::shared_ptr<Transfer>> begin(Plan plan, BlockPlanner planner, TransferOptions options);
  Result<std::shared_ptr<Transfer>> move(const MoveRequest& request, Way way);

  std::vector<Layout> layouts_;
  std::vector<uint32_t> shapes_of_;        // For each group: its first plane's shape.
  std::vector<uint32_t> token_shapes_of_;  // Likewise, for copies of part-blocks.
  std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
  std::unique_ptr<Copier> copier_;  // Goes first.
};

}  // namespace stemma::mover
