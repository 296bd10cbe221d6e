#include "cache/books/group.h"

#include "base/check.h"

namespace stemma::cache {

bool Group::create(const GroupOptions& options, uint32_t cell_tokens, bool numbers_cells,
                   uint32_t total_cells) {
  options_ = options;
  numbers_cells_ = numbers_cells;
  ratio_ = paged() ? options.block_tokens / cell_tokens : 1;
  if (numbers_cells) return true;
  if (!pool_.create(options.capacity_blocks) || !homes_.reserve(options.capacity_blocks)) {
    return false;
  }
  home_growth_ = base::Growth(0, options.capacity_blocks);
  if (paged()) {
    if (!entries_.reserve(total_cells)) return false;
    growth_ = base::Growth(0, total_cells);
  }
  if (!loose()) return true;
  order_ = std::make_unique<retain::LruPolicy>(options.capacity_blocks);
  return order_->ok();
}

tree::GroupReach Group::reach() const noexcept {
  tree::GroupReach reach;
  reach.kind = full() ? tree::Reach::full : window() ? tree::Reach::window : tree::Reach::recurrent;
  reach.block_tokens = options_.block_tokens;
  reach.window_tokens = options_.window_tokens;
  reach.sink_tokens = options_.sink_tokens;
  return reach;
}

uint32_t Group::at(CellIndex cell) const noexcept {
  if (numbers_cells_) return cell;
  if (recurrent()) {
    const auto it = slots_.find(cell);
    return it == slots_.end() ? kNoPage : it->second;
  }
  const uint32_t entry = base::load_relaxed(entries_[cell]);
  return entry == 0 ? kNoPage : entry - 1;
}

bool Group::ensure(CellIndex cell) {
  if (numbers_cells_ || !paged() || growth_.covers(cell)) return true;
  const size_t end = growth_.next(cell);
  if (!entries_.commit(growth_.committed(), end)) return false;
  growth_.advance(end);
  return true;
}

bool Group::ensure_page(uint32_t page) {
  if (!home_growth_.covers(page)) {
    const size_t end = home_growth_.next(page);
    if (!homes_.commit(home_growth_.committed(), end)) return false;
    home_growth_.advance(end);
  }
  return !loose() || order_->prepare(page);
}

bool Group::prepare(uint32_t count) {
  if (!pool_.prepare(count)) return false;
  const uint32_t end = pool_.fresh_after(count);
  return end == 0 || ensure_page(end - 1);
}

void Group::enter(CellIndex cell, uint32_t page) {
  if (recurrent()) {
    slots_[cell] = page;
  } else {
    base::store_relaxed(entries_[cell], page + 1);
  }
}

void Group::erase(CellIndex cell) {
  if (recurrent()) {
    slots_.erase(cell);
  } else {
    base::store_relaxed(entries_[cell], 0U);
  }
}

void Group::set_home(uint32_t page, CellIndex cell) { homes_[page] = cell; }

void Group::wait(uint32_t page, const Touch& use) {
  if (!waiting(page)) ++waiting_;
  order_->touch_shared(page, use);
}

void Group::stop_waiting(uint32_t page) {
  if (!waiting(page)) return;
  order_->set_aside(page);
  --waiting_;
}

void Group::forget(uint32_t page) {
  if (waiting(page)) --waiting_;
  order_->remove(page);
}

uint32_t Group::next_to_go(uint64_t now_ns) noexcept {
  const CellIndex page = order_->victim(now_ns, false, kNoTenant).cell;
  return page == kNoCell ? kNoPage : page;
}

uint32_t Group::next_of(uint64_t now_ns, TenantId tenant) noexcept {
  const CellIndex page = order_->victim(now_ns, true, tenant).cell;
  return page == kNoCell ? kNoPage : page;
}

std::vector<uint32_t> Group::next_to_go(uint64_t now_ns, uint64_t count) const {
  std::vector<uint32_t> pages;
  order_->order(now_ns, pages);
  if (pages.size() > count) pages.resize(count);
  return pages;
}

uint64_t Group::bytes() const noexcept {
  return pool_.bytes() + entries_.bytes() + homes_.bytes() + slots_.size() * 32 +
         slots_.bucket_count() * sizeof(void*) + (order_ == nullptr ? 0 : order_->bytes());
}

void Group::check_invariants() const {
  if (numbers_cells_) return;
  pool_.check_invariants();
  if (!loose()) return;
  order_->check_invariants();
  uint32_t waits = 0;
  for (uint32_t page = 0; page < pool_.capacity(); ++page) {
    if (!waiting(page)) continue;
    ++waits;
    STEMMA_CHECK(pool_.is_cached(page) && pool_.pins(page) == 0 && at(homes_[page]) == page);
  }
  STEMMA_CHECK(waits == waiting_);
}

}  // namespace stemma::cache
