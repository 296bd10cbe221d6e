// Reads an index dump.
#include <cstring>
#include <new>

#include "cache/dump/index_dump.h"
#include "key/content_key.h"
#include "key/sha256.h"

namespace stemma::cache {
namespace {

// Reads past the end return zeros and are remembered.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> in) : in_(in) {}
  bool bytes(void* to, size_t count) {
    if (in_.size() < count) {
      ok_ = false;
      std::memset(to, 0, count);
      return false;
    }
    std::memcpy(to, in_.data(), count);
    in_ = in_.subspan(count);
    return true;
  }
  uint8_t u8() {
    uint8_t value;
    bytes(&value, 1);
    return value;
  }
  uint32_t u32() {
    uint8_t b[4];
    bytes(b, 4);
    return static_cast<uint32_t>(b[0]) | static_cast<uint32_t>(b[1]) << 8U |
           static_cast<uint32_t>(b[2]) << 16U | static_cast<uint32_t>(b[3]) << 24U;
  }
  // A count of things of at least `size` bytes each. More than the bytes left can hold is an error.
  uint32_t count(size_t size) {
    const uint32_t value = u32();
    if (value > in_.size() / size) ok_ = false;
    return ok_ ? value : 0;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return in_.empty(); }

 private:
  std::span<const uint8_t> in_;
  bool ok_ = true;
};

bool same_shape(Reader& in, const Books& books) {
  bool same = in.u32() == books.cell_tokens();
  same = in.u32() == books.group_count() && same;
  for (GroupIndex g = 0; same && g < books.group_count(); ++g) {
    const GroupOptions& options = books.group(g).options();
    same = in.u8() == static_cast<uint8_t>(options.attention) && same;
    same = in.u32() == options.block_tokens && same;
    same = in.u32() == options.capacity_blocks && same;
    same = in.u32() == options.window_tokens && same;
    same = in.u32() == options.sink_tokens && same;
  }
  return same;
}

// Reads one scope into an empty store. Everything it takes is linked at once, so dropping the scope
// undoes it.
class ScopeReader {
 public:
  ScopeReader(Reader& in, Store& store) : in_(in), store_(store), books_(store.books) {}

  // Returns false if the dump is corrupt. Throws std::bad_alloc.
  bool read(std::vector<CellIndex>& all) {
    std::array<uint8_t, 32> digest;
    in_.bytes(digest.data(), digest.size());
    const TenantId tenant{in_.u32()};
    const uint32_t items = in_.count(22);
    if (!in_.ok()) return false;
    const Scope scope = Scope::from_digest(digest);
    if (books_.scopes.find(scope) != nullptr) return false;
    const auto root = store_.room.open_root(scope, tenant, {});
    if (!root && root.error().code() == Errc::out_of_memory) throw std::bad_alloc();
    if (!root) return false;
    root_ = (*root)->cell;
    tenant_index_ = nobody_.tenant_index = (*root)->tenant_index;
    store_.holds.hold(root_, 0, tenant_index_);
    bool good;
    try {
      good = read_media(items) && read_cells(all) && read_inner();
    } catch (const std::bad_alloc&) {
      finish();
      throw;
    }
    finish();
    // A scope with nothing in it is never written.
    return good && books_.scopes.find(scope) != nullptr;
  }

 private:
  void finish() {
    for (uint32_t number : numbers_) books_.media.drop_reference(number);
    store_.holds.undo(root_, 0, tenant_index_);
    store_.cells.close_root(root_);
  }

  bool read_media(uint32_t items) {
    numbers_.reserve(items);
    for (uint32_t i = 0; i < items; ++i) {
      key::MediaIdentity item;
      const uint8_t kind = in_.u8();
      item.kind = MediaKind{kind};
      const uint8_t causal = in_.u8();
      item.causal = causal != 0;
      item.length = in_.u32();
      in_.bytes(item.digest.data(), item.digest.size());
      const bool known = (kind >= 1 && kind <= 4) || item.kind == key::kMixedMedia;
      if (!in_.ok() || !known || causal > 1 || item.length == 0) return false;
      const auto number = books_.media.intern(root_, item);
      if (!number) throw std::bad_alloc();
      numbers_.push_back(*number);
    }
    return true;
  }

  bool read_words(bool inner) {
    const uint32_t count = in_.u32();
    const uint32_t most = inner ? books_.cell_tokens() - 1 : books_.cell_tokens();
    if (!in_.ok() || count == 0 || count > most) return false;
    words_.resize(count);
    for (uint32_t& word : words_) {
      word = in_.u32();
      if (key::is_token_word(word)) continue;
      if (!key::is_media_word(word) || key::media_number(word) >= numbers_.size()) return false;
      word = key::media_word(numbers_[key::media_number(word)]);
    }
    return in_.ok();
  }

  bool read_logits(CellIndex cell) {
    const uint32_t count = in_.count(sizeof(float));
    if (!in_.ok()) return false;
    if (count == 0) return true;
    std::vector<float> values(count);
    in_.bytes(values.data(), count * sizeof(float));
    if (in_.ok() && books_.logits.fits(count)) store_.anchors.attach_logits(cell, values);
    return in_.ok();
  }

  bool read_pages(CellIndex cell, uint32_t level, bool recurrent_only) {
    for (GroupIndex g = 0; g < books_.group_count(); ++g) {
      Group& group = books_.group(g);
      if (group.numbers_cells() || (recurrent_only && !group.recurrent())) continue;
      const uint32_t entry = in_.u32();
      const bool block_end =
          group.paged() && level % group.ratio() == 0 && words_.size() == books_.cell_tokens();
      if (entry == 0) {
        if (group.full() && block_end) return false;  // A cell has all its full groups' blocks.
        continue;
      }
      const uint32_t page = entry - 1;
      if (!in_.ok() || group.at(cell) != kNoPage ||
          !store_.blocks.draft_exactly(g, page, tenant_index_)) {
        return false;
      }
      if (group.recurrent()) {
        try {
          store_.anchors.attach_checkpoint(g, cell, page, nobody_, 1);
        } catch (const std::bad_alloc&) {
          store_.blocks.discard(g, page, tenant_index_);
          throw;
        }
      } else {
        store_.blocks.attach(g, cell, page, (level - 1) % group.ratio() + 1, tenant_index_,
                             Blocks::Lesser::keep);
        if (group.loose()) group.wait(page, store_.blocks.touch_at(nobody_, 0));
      }
    }
    return in_.ok();
  }

  bool read_cells(std::vector<CellIndex>& all) {
    const uint32_t count = in_.count(12);
    places_.push_back({root_, 0});
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t parent_index = in_.u32();
      const CellIndex wanted = in_.u32();
      if (!in_.ok() || parent_index >= places_.size() || !read_words(false)) return false;
      const auto [parent, above] = places_[parent_index];
      tree::PrefixTree& tree = books_.tree;
      if (tree.is_short(parent) || tree.find_child(parent, words_) != kNoCell) return false;
      ContentKey key;
      if (books_.keyed()) key = key_of(parent, above * books_.cell_tokens());
      CellIndex cell = wanted;
      if (books_.numbered()) {
        if (!store_.blocks.draft_cell_exactly(wanted, tenant_index_)) return false;
      } else {
        cell = wanted == 0 ? store_.room.draft_free_cell() : kNoCell;
        if (cell == kNoCell) return false;
      }
      const uint32_t level = above + 1;
      CellIndex up = tree.sentinel();
      if (level > tree::kHintDistance) up = tree.ancestor(parent, tree::kHintDistance - 1);
      store_.cells.publish(cell, parent, up, words_, books_.keyed() ? &key : nullptr,
                           tenant_index_);
      places_.push_back({cell, level});
      all.push_back(cell);
      if (!read_pages(cell, level, false) || !read_logits(cell)) return false;
    }
    return in_.ok();
  }

  bool read_inner() {
    const uint32_t count = in_.count(12);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t parent_index = in_.u32();
      if (!in_.ok() || parent_index >= places_.size() || !read_words(true)) return false;
      const CellIndex parent = places_[parent_index].cell;
      if (books_.tree.is_short(parent) || books_.tree.find_inner(parent, words_) != kNoCell) {
        return false;
      }
      const CellIndex cell = store_.room.inner_cell(parent, words_);
      if (cell == kNoCell || !read_pages(cell, 0, true) || !read_logits(cell)) return false;
      store_.anchors.drop_inner_if_bare(cell);
    }
    return in_.ok();
  }

  // Media runs that began in an earlier cell are found by looking back along the path.
  ContentKey key_of(CellIndex parent, uint32_t begin) {
    std::vector<key::MediaRun> runs;
    for (uint32_t i = 0; i < words_.size();) {
      if (!key::is_media_word(words_[i])) {
        ++i;
        continue;
      }
      key::MediaRun run;
      run.first_word = i;
      run.identity = &books_.media.identity(key::media_number(words_[i]));
      uint32_t before = 0;
      if (i == 0) before = words_before(parent, words_[0], begin) % run.identity->length;
      run.offset_in_item = before;
      const uint32_t left = run.identity->length - before;
      while (run.count < left && i < words_.size() && words_[i] == words_[run.first_word]) {
        ++run.count;
        ++i;
      }
      runs.push_back(run);
    }
    return key::block_key(books_.tree.key(parent), words_, runs);
  }
  uint32_t words_before(CellIndex cell, uint32_t word, uint32_t begin) const {
    const tree::PrefixTree& tree = books_.tree;
    const uint32_t tokens = books_.cell_tokens();
    uint32_t count = 0;
    for (; begin != 0; begin -= tokens, cell = tree.parent(cell)) {
      for (uint32_t i = tokens; i-- > 0; ++count) {
        if (tree.words(cell)[i] != word) return count;
      }
    }
    return count;
  }

  struct Place {
    CellIndex cell;
    uint32_t level;
  };
  Reader& in_;
  Store& store_;
  Books& books_;
  CellIndex root_ = kNoCell;
  uint32_t tenant_index_ = 0;
  LeaseRecord nobody_;  // Stands for the last user of what is read.
  std::vector<uint32_t> numbers_;
  std::vector<uint32_t> words_;
  std::vector<Place> places_;
};

}  // namespace

Result<void> check_dump(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof kDumpMagic + 4 + kDumpChecksumBytes ||
      std::memcmp(bytes.data(), kDumpMagic, sizeof kDumpMagic) != 0) {
    return Error(Errc::corrupt, "not an index dump");
  }
  const std::span<const uint8_t> body = bytes.first(bytes.size() - kDumpChecksumBytes);
  const key::Digest digest = key::sha256(body);
  if (std::memcmp(digest.data(), bytes.data() + body.size(), kDumpChecksumBytes) != 0) {
    return Error(Errc::corrupt, "the dump's checksum does not match its contents");
  }
  Reader in(body.subspan(sizeof kDumpMagic));
  if (const uint32_t version = in.u32(); version != kDumpVersion) {
    return Error(Errc::corrupt, "a dump of another format version", version);
  }
  return {};
}

Result<void> load_index(Store& store, std::span<const uint8_t> bytes) {
  constexpr size_t kHeader = sizeof kDumpMagic + 4;
  Reader in(bytes.subspan(kHeader, bytes.size() - kHeader - kDumpChecksumBytes));
  if (!store.empty()) return Error(Errc::wrong_state, "only an empty cache can load a dump");
  if (!same_shape(in, store.books)) {
    return Error(Errc::invalid_argument, "the dump is of a cache with other groups");
  }
  std::vector<CellIndex> all;
  std::vector<CellIndex> order;
  bool memory = true;
  bool good = in.ok();
  try {
    const uint32_t scopes = in.count(44);
    for (uint32_t i = 0; good && i < scopes; ++i) good = ScopeReader(in, store).read(all);
    const uint32_t ordered = good ? in.count(4) : 0;
    for (uint32_t i = 0; good && i < ordered; ++i) {
      const uint32_t number = in.u32();
      good = in.ok() && number < all.size();
      if (good) order.push_back(all[number]);
    }
    good = good && in.ok() && in.at_end();
  } catch (const std::bad_alloc&) {
    memory = good = false;
  }
  if (!good) {
    store.forgetter.drop_all();
    store.blocks.relist();
    if (!memory) return Error(Errc::out_of_memory, "no memory for the dump's contents");
    return Error(Errc::corrupt, "the dump contradicts itself; nothing of it was kept");
  }
  store.blocks.relist();
  for (CellIndex cell : order) store.holds.touch_loaded(cell);
  for (CellIndex cell : all) {
    // A leaf that the dump's order did not name.
    if (store.books.bare(cell) && !store.books.policy->holds(cell)) store.holds.touch_loaded(cell);
  }
  store.books.events.seal();
  return {};
}

}  // namespace stemma::cache
