#include "cache/store/timed_pins.h"

#include <utility>

namespace stemma::cache {

Result<PinId> TimedPins::add(CellIndex cell, uint32_t depth_cells, std::vector<LooseBlock> blocks,
                             uint64_t deadline_ns) {
  if (!census_.pins_within_share(cell, depth_cells, blocks)) {
    return Error(Errc::over_pin_share, "pins may not hold this much of the pool", depth_cells);
  }
  const PinId id = books_.pins.add({cell, depth_cells, std::move(blocks)}, deadline_ns);
  holds_.hold(cell, depth_cells, books_.tenant_of(cell));
  for (const LooseBlock& block : books_.pins.pin(books_.pins.find(id)).blocks) {
    blocks_.pin(block.group, block.page);
  }
  return id;
}

void TimedPins::end(uint32_t slot, Because why) {
  const PinTable::Pin pin = books_.pins.remove(slot);
  LeaseRecord nobody;
  nobody.tenant_index = books_.tenant_of(pin.cell);
  for (const LooseBlock& block : pin.blocks) blocks_.unpin(block.group, block.page, nobody, 0);
  if (why == Because::forgotten) {
    holds_.undo(pin.cell, pin.depth_cells, nobody.tenant_index);
  } else {
    holds_.let_go(pin.cell, pin.depth_cells, nobody);
  }
}

bool TimedPins::end(PinId id) {
  const uint32_t slot = books_.pins.find(id);
  if (slot == PinTable::kNone) return false;
  end(slot, Because::used);
  return true;
}

void TimedPins::expire() {
  for (uint32_t slot; (slot = books_.pins.take_due(books_.now_ns)) != PinTable::kNone;) {
    ++books_.tally.pin_expiries;
    end(slot, Because::used);
  }
}

void TimedPins::forget_at(CellIndex cell) {
  for (uint32_t slot; (slot = books_.pins.at(cell)) != PinTable::kNone;) {
    end(slot, Because::forgotten);
  }
}

void TimedPins::end_all() {
  for (uint32_t slot = 0; slot < books_.pins.slots(); ++slot) {
    if (books_.pins.is_used(slot)) end(slot, Because::used);
  }
}

}  // namespace stemma::cache
