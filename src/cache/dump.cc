// The whole index as bytes, and back. The layout is drawn in docs/formats/index-dump.md.
//
// A dump is read as if an enemy had written it: every count is checked against what is left, every
// number against the books, every cell against its siblings, before anything is believed. A load
// that fails leaves the cache as empty as it was.
#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_map>

#include "cache/shared.h"
#include "key/content_key.h"
#include "key/sha256.h"

namespace stemma::cache {

namespace {

constexpr char kMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'I', 'X'};
constexpr uint32_t kVersion = 1;
constexpr size_t kChecksumBytes = 32;

class Writer {
 public:
  Writer() { out_.reserve(4096); }
  void bytes(const void* data, size_t count) {
    const auto* p = static_cast<const uint8_t*>(data);
    out_.insert(out_.end(), p, p + count);
  }
  void u8(uint8_t value) { out_.push_back(value); }
  void u32(uint32_t value) {
    for (int i = 0; i < 4; ++i) out_.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }
  std::vector<uint8_t> finish() {
    const key::Digest digest = key::sha256(out_);
    bytes(digest.data(), digest.size());
    return std::move(out_);
  }

 private:
  std::vector<uint8_t> out_;
};

// Reads past the end give zeros and are remembered.
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
  // A count of things of at least `size` bytes each; more than can be left is an error.
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

void write_shape(Writer& out, const Store& store) {
  out.u32(store.cell_tokens());
  out.u32(store.group_count());
  for (GroupIndex g = 0; g < store.group_count(); ++g) {
    const GroupOptions& options = store.group(g).options();
    out.u8(static_cast<uint8_t>(options.attention));
    out.u32(options.block_tokens);
    out.u32(options.capacity_blocks);
    out.u32(options.window_tokens);
    out.u32(options.sink_tokens);
  }
}

bool same_shape(Reader& in, const Store& store) {
  bool same = in.u32() == store.cell_tokens();
  same = in.u32() == store.group_count() && same;
  for (GroupIndex g = 0; same && g < store.group_count(); ++g) {
    const GroupOptions& options = store.group(g).options();
    same = in.u8() == static_cast<uint8_t>(options.attention) && same;
    same = in.u32() == options.block_tokens && same;
    same = in.u32() == options.capacity_blocks && same;
    same = in.u32() == options.window_tokens && same;
    same = in.u32() == options.sink_tokens && same;
  }
  return same;
}

// Writes one scope at a time: its media, its cells, its inner anchors.
class ScopeWriter {
 public:
  ScopeWriter(Writer& out, Store& store) : out_(out), store_(store) {}

  // `numbers`: the place of each cell among all that were written, over all scopes.
  void write(const ScopeTable::Root& root, std::unordered_map<CellIndex, uint32_t>& numbers) {
    const tree::PrefixTree& tree = store_.tree();
    std::vector<CellIndex> cells;
    tree.descendants(root.cell, cells);
    std::vector<CellIndex> inner;
    tree.inner_children(root.cell, inner);
    for (CellIndex cell : cells) tree.inner_children(cell, inner);
    number_media(cells);
    number_media(inner);

    out_.bytes(root.scope.digest().data(), root.scope.digest().size());
    out_.u32(static_cast<uint32_t>(root.tenant));
    out_.u32(static_cast<uint32_t>(items_.size()));
    for (uint32_t number : items_) {
      const key::MediaIdentity& item = store_.media().identity(number);
      out_.u8(static_cast<uint8_t>(item.kind));
      out_.u8(item.causal ? 1 : 0);
      out_.u32(item.length);
      out_.bytes(item.digest.data(), item.digest.size());
    }
    std::unordered_map<CellIndex, uint32_t> index;
    index[root.cell] = 0;
    out_.u32(static_cast<uint32_t>(cells.size()));
    for (CellIndex cell : cells) {
      out_.u32(index.at(tree.parent(cell)));
      out_.u32(store_.numbered() ? cell : 0);
      write_words(cell);
      for (GroupIndex g = 0; g < store_.group_count(); ++g) {
        const Group& group = store_.group(g);
        if (group.numbers_cells()) continue;
        const uint32_t page = group.at(cell);
        out_.u32(page != kNoPage && group.home(page) == cell ? page + 1 : 0);
      }
      write_logits(cell);
      index.emplace(cell, static_cast<uint32_t>(index.size()));
      numbers.emplace(cell, static_cast<uint32_t>(numbers.size()));
    }
    out_.u32(static_cast<uint32_t>(inner.size()));
    for (CellIndex cell : inner) {
      out_.u32(index.at(tree.parent(cell)));
      write_words(cell);
      for (GroupIndex g = 0; g < store_.group_count(); ++g) {
        const Group& group = store_.group(g);
        if (!group.recurrent()) continue;
        out_.u32(group.at(cell) == kNoPage ? 0 : group.at(cell) + 1);
      }
      write_logits(cell);
    }
  }

 private:
  void number_media(const std::vector<CellIndex>& cells) {
    for (CellIndex cell : cells) {
      if (!store_.tree().has_media(cell)) continue;
      for (uint32_t i = 0; i < store_.tree().word_count(cell); ++i) {
        const uint32_t word = store_.tree().words(cell)[i];
        if (!key::is_media_word(word)) continue;
        const uint32_t number = key::media_number(word);
        if (local_.try_emplace(number, static_cast<uint32_t>(items_.size())).second) {
          items_.push_back(number);
        }
      }
    }
  }
  void write_words(CellIndex cell) {
    const uint32_t count = store_.tree().word_count(cell);
    out_.u32(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t word = store_.tree().words(cell)[i];
      out_.u32(key::is_media_word(word) ? key::media_word(local_.at(key::media_number(word)))
                                        : word);
    }
  }
  void write_logits(CellIndex cell) {
    const Logits logits = store_.peek_logits(cell);
    out_.u32(logits == nullptr ? 0 : static_cast<uint32_t>(logits->size()));
    if (logits != nullptr) out_.bytes(logits->data(), logits->size() * sizeof(float));
  }

  Writer& out_;
  Store& store_;
  std::unordered_map<uint32_t, uint32_t> local_;
  std::vector<uint32_t> items_;
};

// Reads one scope into an empty store. Everything it takes is linked at once, so that dropping the
// scope undoes it.
class ScopeReader {
 public:
  ScopeReader(Reader& in, Store& store) : in_(in), store_(store) {}

  // False: corrupt. Throws std::bad_alloc.
  bool read(std::vector<CellIndex>& all) {
    std::array<uint8_t, 32> digest;
    in_.bytes(digest.data(), digest.size());
    const TenantId tenant{in_.u32()};
    const uint32_t items = in_.count(22);
    if (!in_.ok()) return false;
    const Scope scope = Scope::from_digest(digest);
    if (store_.scopes().find(scope) != nullptr) return false;
    const auto root = store_.open_root(scope, tenant, {});
    if (!root && root.error().code() == Errc::out_of_memory) throw std::bad_alloc();
    if (!root) return false;
    root_ = (*root)->cell;
    tenant_index_ = nobody_.tenant_index = (*root)->tenant_index;
    store_.hold(root_, 0, tenant_index_);
    bool good;
    try {
      good = read_media(items) && read_cells(all) && read_inner();
    } catch (const std::bad_alloc&) {
      finish();
      throw;
    }
    finish();
    // A scope with nothing in it is never written.
    return good && store_.scopes().find(scope) != nullptr;
  }

 private:
  void finish() {
    for (uint32_t number : numbers_) store_.media().drop_reference(number);
    store_.undo_hold(root_, 0, tenant_index_);
    store_.close_root(root_);
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
      const auto number = store_.media().intern(root_, item);
      if (!number) throw std::bad_alloc();
      numbers_.push_back(*number);
    }
    return true;
  }

  bool read_words(bool inner) {
    const uint32_t count = in_.u32();
    const uint32_t most = inner ? store_.cell_tokens() - 1 : store_.cell_tokens();
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
    if (in_.ok() && store_.logits_fit(count)) (void)store_.attach_logits(cell, values);
    return in_.ok();
  }

  bool read_pages(CellIndex cell, uint32_t level, bool recurrent_only) {
    for (GroupIndex g = 0; g < store_.group_count(); ++g) {
      Group& group = store_.group(g);
      if (group.numbers_cells() || (recurrent_only && !group.recurrent())) continue;
      const uint32_t entry = in_.u32();
      const bool block_end =
          group.paged() && level % group.ratio() == 0 && words_.size() == store_.cell_tokens();
      if (entry == 0) {
        if (group.full() && block_end) return false;  // A cell has all its full groups' blocks.
        continue;
      }
      const uint32_t page = entry - 1;
      if (!in_.ok() || group.at(cell) != kNoPage || !store_.draft_exactly(g, page, tenant_index_)) {
        return false;
      }
      if (group.recurrent()) {
        try {
          store_.attach_checkpoint(g, cell, page, nobody_, 1);
        } catch (const std::bad_alloc&) {
          store_.discard(g, page, tenant_index_);
          throw;
        }
      } else {
        store_.attach_page(g, cell, page, (level - 1) % group.ratio() + 1, tenant_index_,
                           Store::Lesser::keep);
        if (group.loose()) group.wait(page, store_.touch_at(nobody_, 0));
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
      tree::PrefixTree& tree = store_.tree();
      if (tree.is_short(parent) || tree.find_child(parent, words_) != kNoCell) return false;
      ContentKey key;
      if (store_.keyed()) key = key_of(parent, above * store_.cell_tokens());
      CellIndex cell = wanted;
      if (store_.numbered()) {
        if (!store_.draft_cell_exactly(wanted, tenant_index_)) return false;
      } else {
        cell = wanted == 0 ? store_.draft_free_cell() : kNoCell;
        if (cell == kNoCell) return false;
      }
      const uint32_t level = above + 1;
      CellIndex up = tree.sentinel();
      if (level > tree::kHintDistance) up = tree.ancestor(parent, tree::kHintDistance - 1);
      store_.publish_cell(cell, parent, up, words_, store_.keyed() ? &key : nullptr, tenant_index_);
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
      if (store_.tree().is_short(parent) || store_.inner_cell(parent, words_, false) != kNoCell) {
        return false;
      }
      const CellIndex cell = store_.inner_cell(parent, words_, true);
      if (cell == kNoCell || !read_pages(cell, 0, true) || !read_logits(cell)) return false;
      store_.drop_inner_if_bare(cell);
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
      run.identity = &store_.media().identity(key::media_number(words_[i]));
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
    return key::block_key(store_.tree().key(parent), words_, runs);
  }
  uint32_t words_before(CellIndex cell, uint32_t word, uint32_t begin) const {
    const tree::PrefixTree& tree = store_.tree();
    const uint32_t tokens = store_.cell_tokens();
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
  CellIndex root_ = kNoCell;
  uint32_t tenant_index_ = 0;
  LeaseRecord nobody_;  // Who used what is read.
  std::vector<uint32_t> numbers_;
  std::vector<uint32_t> words_;
  std::vector<Place> places_;
};

}  // namespace

std::vector<uint8_t> Shared::dump() {
  const Section lock(*this);
  Writer out;
  out.bytes(kMagic, sizeof kMagic);
  out.u32(kVersion);
  write_shape(out, store_);
  std::vector<ScopeTable::Root> roots;
  for (const ScopeTable::Root& root : store_.scopes().roots()) {
    if (root.cell != kNoCell && !root.hidden && store_.tree().has_child(root.cell)) {
      roots.push_back(root);
    }
  }
  // The same index gives the same bytes whatever order its scopes came in.
  std::sort(roots.begin(), roots.end(),
            [](const auto& a, const auto& b) { return a.scope.digest() < b.scope.digest(); });
  out.u32(static_cast<uint32_t>(roots.size()));
  std::unordered_map<CellIndex, uint32_t> numbers;
  for (const ScopeTable::Root& root : roots) ScopeWriter(out, store_).write(root, numbers);
  std::vector<CellIndex> order;
  store_.policy().order(store_.now_ns(), order);
  std::erase_if(order, [&](CellIndex cell) { return numbers.count(cell) == 0; });
  out.u32(static_cast<uint32_t>(order.size()));
  for (CellIndex cell : order) out.u32(numbers.at(cell));
  return out.finish();
}

Result<void> Shared::load(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof kMagic + 4 + kChecksumBytes ||
      std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return Error(Errc::corrupt, "not an index dump");
  }
  const std::span<const uint8_t> body = bytes.first(bytes.size() - kChecksumBytes);
  const key::Digest digest = key::sha256(body);
  if (std::memcmp(digest.data(), bytes.data() + body.size(), kChecksumBytes) != 0) {
    return Error(Errc::corrupt, "the dump's checksum does not match its contents");
  }
  Reader in(body.subspan(sizeof kMagic));
  if (const uint32_t version = in.u32(); version != kVersion) {
    return Error(Errc::corrupt, "a dump of another format version", version);
  }
  const Section lock(*this);
  if (!store_.empty()) return Error(Errc::wrong_state, "only an empty cache can load a dump");
  if (!same_shape(in, store_)) {
    return Error(Errc::invalid_argument, "the dump is of a cache with other groups");
  }
  std::vector<CellIndex> all;
  std::vector<CellIndex> order;
  bool memory = true;
  bool good = in.ok();
  try {
    const uint32_t scopes = in.count(44);
    for (uint32_t i = 0; good && i < scopes; ++i) good = ScopeReader(in, store_).read(all);
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
    store_.drop_all();
    store_.relist();
    if (!memory) return Error(Errc::out_of_memory, "no memory for the dump's contents");
    return Error(Errc::corrupt, "the dump contradicts itself; nothing of it was kept");
  }
  store_.relist();
  for (CellIndex cell : order) store_.touch_loaded(cell);
  for (CellIndex cell : all) store_.touch_if_forgotten(cell);
  store_.events().seal();
  return {};
}

}  // namespace stemma::cache
