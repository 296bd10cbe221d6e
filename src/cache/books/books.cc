#include "cache/books/books.h"

namespace stemma::cache {

Books::Books(const Options& options)
    : options_(options),
      counters(options.stats_window_ns, options.groups.front().capacity_blocks),
      events(options.event_capacity),
      logits(options.logits_bytes) {}

uint64_t chosen_cells(const Options& options, uint32_t cell_tokens) {
  if (options.index_cells != 0) return options.index_cells;
  uint64_t widest = 0;  // The most cells that a group's blocks cover.
  uint64_t slots = 0;
  for (const GroupOptions& group : options.groups) {
    slots = std::max<uint64_t>(slots, group.capacity_blocks);
    if (group.attention == Attention::recurrent) continue;
    widest = std::max(widest, uint64_t{group.capacity_blocks} * (group.block_tokens / cell_tokens));
  }
  // A window needs its ancestors as cells even without their blocks, and checkpoints do not limit
  // the length of their paths. So prompts may be much longer than what blocks cover: there are
  // cells for 2^20 positions in blocks of 16, or for as many as an eighth of a budget pays for.
  constexpr uint64_t kLongPrompts = 65'536;
  constexpr uint64_t kCellBytes = 256;  // About.
  const uint64_t least = options.budget_bytes == 0
                             ? kLongPrompts
                             : std::min(kLongPrompts, options.budget_bytes / 8 / kCellBytes);
  return std::max(least, widest != 0 ? 2 * widest : 64 * slots);
}

bool Books::create() {
  cell_tokens_ = 0;
  uint64_t states = 0;
  for (const GroupOptions& g : options_.groups) {
    if (g.attention == Attention::recurrent) {
      states += g.capacity_blocks;
      continue;
    }
    if (cell_tokens_ == 0 || g.block_tokens < cell_tokens_) cell_tokens_ = g.block_tokens;
    cell_bytes_ += g.block_bytes;
  }
  if (cell_tokens_ == 0) cell_tokens_ = 16;
  const GroupOptions& front = options_.groups.front();
  numbered_ = front.attention == Attention::full && front.block_tokens == cell_tokens_;
  keyed_ = options_.content_keys || options_.event_capacity != 0;
  first_cells_ = numbered_ ? front.capacity_blocks : 0;

  // Roots and anchors inside blocks need extra cells: one root a block, one cell a state, some
  // spare. If no group numbers the cells, those of the prompts come on top.
  constexpr uint32_t kSpare = 4096;
  uint64_t more =
      numbered_ ? first_cells_ + states + kSpare : chosen_cells(options_, cell_tokens_) + kSpare;
  more = std::min<uint64_t>(more, tree::kIndexMask - 2 - first_cells_);

  tree::PrefixTree::Shape shape;
  shape.cell_tokens = cell_tokens_;
  shape.first_cells = first_cells_;
  shape.extra_cells = static_cast<uint32_t>(more);
  shape.keys = keyed_;
  if (!tree.create(shape) || !first.create(first_cells_) || !extra.create(shape.extra_cells)) {
    return false;
  }
  for (size_t i = 0; i < options_.groups.size(); ++i) {
    groups_.push_back(std::make_unique<Group>());
    if (!groups_.back()->create(options_.groups[i], cell_tokens_, i == 0 && numbered_,
                                tree.total_cells())) {
      return false;
    }
    reaches_.push_back(groups_.back()->reach());
    has_loose_groups_ = has_loose_groups_ || groups_.back()->loose();
  }
  policy = make_policy(options_.policy, numbered_ ? first_cells_ : tree.total_cells());
  if (policy == nullptr) return false;
  tracks_contents_ = policy->tracks_contents();
  plain_ = numbered_ && groups_.size() == 1;
  for (const TenantQuota& quota : options_.quotas) quotas.add(quota);
  last_uses.set_cells(numbered_ ? first_cells_ : extra.capacity());
  return true;
}

uint32_t Books::unit_tokens() const noexcept {
  uint32_t tokens = cell_tokens_;
  for (const auto& group : groups_) {
    if (group->paged()) tokens = std::max(tokens, group->options().block_tokens);
  }
  return tokens;
}

bool Books::ensure_cells(CellIndex last) {
  if (last < ready_cells_) return true;
  if (!tree.ensure(last) || !policy->prepare(last)) return false;
  for (auto& group : groups_) {
    if (!group->ensure(last)) return false;
  }
  ready_cells_ = last + 1;
  return true;
}

uint32_t Books::tenant_of(CellIndex cell) const noexcept {
  if (quotas.size() == 1) return 0;
  while (!tree.is_root(cell)) {
    const CellIndex up = tree.is_inner(cell) ? tree.sentinel() : tree.up(cell);
    cell = up != tree.sentinel() ? up : tree.parent(cell);
  }
  const ScopeTable::Root* root = scopes.find(cell);
  return root == nullptr ? 0 : root->tenant_index;
}

namespace {

template <class Each>
void for_each_item(std::span<const uint32_t> words, Each&& each) {
  uint32_t last = key::kPadWord;
  for (uint32_t word : words) {
    if (!key::is_media_word(word) || word == last) continue;
    last = word;
    each(key::media_number(word));
  }
}

}  // namespace

void Books::refer_to_media(std::span<const uint32_t> words) {
  for_each_item(words, [&](uint32_t number) { media.add_reference(number); });
}

void Books::forget_media(std::span<const uint32_t> words) {
  for_each_item(words, [&](uint32_t number) { media.drop_reference(number); });
}

bool Books::empty() const noexcept {
  return first.used_blocks() == 0 && extra.used_blocks() == 0 &&
         std::all_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group->pool().used_blocks() == 0; });
}

uint64_t Books::bytes() const noexcept {
  uint64_t total = tree.bytes() + first.bytes() + extra.bytes() + scopes.bytes() + media.bytes() +
                   policy->bytes() + logits.bytes() + last_uses.bytes() + pins.bytes();
  for (const auto& group : groups_) total += group->bytes();
  return total;
}

}  // namespace stemma::cache
