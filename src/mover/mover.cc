#include "mover/mover.h"

#include <algorithm>
#include <new>
#include <unordered_set>
#include <utility>

#include "base/invalid.h"
#include "mover/cpu_copier.h"
#include "mover/cuda/cuda_copier.h"

namespace stemma::mover {
namespace {

using base::invalid;

Result<void> check(const MoverOptions& options) noexcept {
  if (options.device < -1) return invalid("device is neither STEMMA_MOVER_CPU nor a device");
  if (options.groups.empty() || options.groups.size() > kMaxGroups) {
    return invalid("groups has none, or more than 8");
  }
  if (options.threads > 64) return invalid("threads is more than 64", options.threads);
  if (options.thread_blocks == 0 || options.thread_blocks > 8) {
    return invalid("thread_blocks is not in 1 to 8", options.thread_blocks);
  }
  if (options.ring_bytes < 65'536) return invalid("ring_bytes is less than 65,536");
  if (options.ring_bytes > uint64_t{1} << 30U) return invalid("ring_bytes is more than 1 GiB");
  if (options.arena_bytes > uint64_t{1} << 42U) return invalid("arena_bytes is more than 4 TiB");
  return {};
}

TransferOptions usual(const MoveRequest& request, Way way) {
  TransferOptions options;
  options.host_end.reserve(request.items.size());
  for (const Item& item : request.items) {
    options.host.insert(options.host.end(), item.host.begin(), item.host.end());
    options.host_end.push_back(options.host.size());
  }
  options.way = way;
  options.stream = request.stream;
  options.after_stream = request.after_stream;
  options.done = request.done;
  options.user = request.user;
  return options;
}

}  // namespace

Result<std::unique_ptr<Copier>> make_copier(const CopierOptions& options, void*) {
  if (options.device < 0) return CpuCopier::create(options);
  return make_cuda_copier(options);
}

Result<std::unique_ptr<Mover>> Mover::create(const MoverOptions& options, MakeCopier make,
                                             void* context) {
  STEMMA_TRY_VOID(check(options));
  std::vector<Layout> layouts;
  uint32_t planes = 0;
  for (const GroupPlanes& group : options.groups) {
    STEMMA_TRY(Layout layout, Layout::make(group.planes, group.pages, planes));
    planes += static_cast<uint32_t>(group.planes.size());
    layouts.push_back(std::move(layout));
  }
  std::unique_ptr<Mover> made(new Mover(std::move(layouts)));
  std::vector<Shape> shapes;
  for (const Layout& layout : made->layouts_) {
    made->shapes_of_.push_back(static_cast<uint32_t>(shapes.size()));
    for (const LaidPlane& plane : layout.planes()) shapes.push_back(plane.shape);
    made->token_shapes_of_.push_back(static_cast<uint32_t>(shapes.size()));
    for (const LaidPlane& plane : layout.planes()) shapes.push_back(plane.token_shape);
  }
  CopierOptions copier;
  copier.device = options.device;
  copier.threads = options.threads;
  copier.thread_blocks = options.thread_blocks;
  copier.arena_bytes = options.arena_bytes;
  copier.batch_from_bytes = options.batch_from_bytes;
  copier.ring_bytes = options.ring_bytes;
  copier.layouts = made->layouts_;
  copier.shapes = shapes;
  copier.counters = made->counters_;
  STEMMA_TRY(made->copier_, make(copier, context));
  return made;
}

uint64_t Mover::fingerprint() const noexcept {
  uint64_t all = layouts_.size();
  for (const Layout& layout : layouts_) {
    all = base::word_term(layout.fingerprint(), base::word_key(all)) + all * 31;
  }
  return all;
}

Result<void> Mover::check_group(uint32_t group) const noexcept {
  if (group < layouts_.size()) return {};
  return Error(Errc::out_of_range, "the mover has no such group", group);
}

Result<std::shared_ptr<Transfer>> Mover::begin(Plan plan, BlockPlanner planner,
                                               TransferOptions options) {
  if (options.stream == kNoStream) return invalid("stream is STEMMA_MOVER_NO_STREAM");
  const Way way = options.way;
  const bool on_device = options.on_device;
  const uint64_t bytes = plan.bytes;
  const auto transfer = std::make_shared<Transfer>(std::move(plan), std::move(planner),
                                                   std::move(options), counters_);
  counters_->running.fetch_add(1, std::memory_order_relaxed);
  Result<void> started;
  try {
    started = copier_->start(transfer);
  } catch (const std::bad_alloc&) {  // Nothing runs.
    started = Error(Errc::out_of_memory, "the system gave no memory for a transfer");
  }
  if (!started) {
    counters_->running.fetch_sub(1, std::memory_order_relaxed);
    return started.error();
  }
  const bool copy = on_device || way == Way::between_pages;
  auto& count = copy                   ? counters_->copies
                : way == Way::to_pages ? counters_->loads
                                       : counters_->stores;
  auto& moved = copy                   ? counters_->copy_bytes
                : way == Way::to_pages ? counters_->load_bytes
                                       : counters_->store_bytes;
  count.fetch_add(1, std::memory_order_relaxed);
  moved.fetch_add(bytes, std::memory_order_relaxed);
  return transfer;
}

Result<std::shared_ptr<Transfer>> Mover::move(const MoveRequest& request, Way way) {
  STEMMA_TRY_VOID(check_group(request.group));
  const Layout& layout = layouts_[request.group];
  STEMMA_TRY_VOID(check_items(layout, request.items));
  TransferOptions options = usual(request, way);
  options.items = request.items.size();
  options.sum = request.check;
  if (request.check && way == Way::to_pages) {
    options.expected.reserve(request.items.size());
    for (const Item& item : request.items) options.expected.push_back(item.sum);
  }
  // The transfer may go on when the caller's array of items is gone, but it has a copy of the host
  // pieces.
  std::vector<Item> items(request.items.begin(), request.items.end());
  for (size_t i = 0, begin = 0; i < items.size(); begin = options.host_end[i++]) {
    items[i].host = std::span(options.host).subspan(begin, options.host_end[i] - begin);
  }
  BlockPlanner planner(layout, items, request.layers_at_once, shapes_of_[request.group],
                       copier_->largest_piece());
  Plan outline = planner.outline();
  return begin(std::move(outline), std::move(planner), std::move(options));
}

Result<std::shared_ptr<Transfer>> Mover::load(const MoveRequest& request) {
  return move(request, Way::to_pages);
}

Result<std::shared_ptr<Transfer>> Mover::store(const MoveRequest& request) {
  return move(request, Way::from_pages);
}

Result<std::shared_ptr<Transfer>> Mover::copy(std::span<const BlockOfGroup> copies,
                                              const MoveRequest& request) {
  std::vector<std::unordered_set<uint32_t>> targets(layouts_.size());
  for (size_t i = 0; i < copies.size(); ++i) {
    const BlockOfGroup& copy = copies[i];
    const auto number = static_cast<uint32_t>(i);
    if (copy.group >= layouts_.size()) {
      return Error(Errc::out_of_range, "the mover has no group of this copy", number);
    }
    const uint32_t pages = layouts_[copy.group].pages();
    if (copy.source >= pages || copy.target >= pages) {
      return Error(Errc::out_of_range, "the group has no page of this copy", number);
    }
    if (!targets[copy.group].insert(copy.target).second) {
      return invalid("a page is the target of two copies", number);
    }
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    if (targets[copies[i].group].contains(copies[i].source)) {
      return invalid("the source of a copy is also a target", static_cast<uint32_t>(i));
    }
  }
  TransferOptions options = usual(request, Way::between_pages);
  options.items = copies.size();
  options.on_device = true;
  return begin(plan_copies(layouts_, copies, token_shapes_of_, copier_->largest_piece()), {},
               std::move(options));
}

Result<std::shared_ptr<Transfer>> Mover::pack(Way way, uint32_t group,
                                              std::span<const uint32_t> pages, uint64_t packed,
                                              uint64_t stream) {
  STEMMA_TRY_VOID(check_group(group));
  const Layout& layout = layouts_[group];
  if (packed == 0 || packed % kAlignment != 0) {
    return invalid("packed is null or not a multiple of 16");
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(pages.size(), layout.block_bytes(), &bytes) ||
      (bytes != 0 && !copier_->owns(packed, bytes))) {
    return invalid("packed has too little memory of the device for these pages");
  }
  std::unordered_set<uint32_t> seen;
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto number = static_cast<uint32_t>(i);
    if (pages[i] >= layout.pages()) {
      return Error(Errc::out_of_range, "the group has no such page", number);
    }
    if (way == Way::to_pages && !seen.insert(pages[i]).second) {
      return invalid("a page appears twice", number);
    }
  }
  TransferOptions options;
  options.way = way;
  options.items = pages.size();
  options.stream = stream;
  options.on_device = true;
  return begin(plan_packed(layout, pages, packed, shapes_of_[group], copier_->largest_piece()), {},
               std::move(options));
}

Result<void> Mover::gate(Transfer& transfer, uint32_t layer, uint64_t stream) {
  if (stream >= kOwnStream) return invalid("a gate needs a stream of the caller's");
  STEMMA_TRY(const uint32_t step, transfer.step_of(layer));
  return copier_->gate(transfer, step, stream);
}

Result<uint64_t> Mover::event(Transfer& transfer, uint32_t layer) {
  STEMMA_TRY(const uint32_t step, transfer.step_of(layer));
  return copier_->event(transfer, step);
}

}  // namespace stemma::mover
