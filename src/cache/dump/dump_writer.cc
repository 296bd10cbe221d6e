// Writes an index dump.
#include <algorithm>
#include <unordered_map>

#include "cache/dump/index_dump.h"
#include "key/sha256.h"

namespace stemma::cache {
namespace {

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

void write_shape(Writer& out, const Books& books) {
  out.u32(books.cell_tokens());
  out.u32(books.group_count());
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    const GroupOptions& options = books.group(g).options();
    out.u8(static_cast<uint8_t>(options.attention));
    out.u32(options.block_tokens);
    out.u32(options.capacity_blocks);
    out.u32(options.window_tokens);
    out.u32(options.sink_tokens);
  }
}

// Writes one scope at a time: its media, its cells, its inner anchors.
class ScopeWriter {
 public:
  ScopeWriter(Writer& out, const Books& books) : out_(out), books_(books) {}

  // `numbers`: the index of each cell among all cells written, over all scopes.
  void write(const ScopeTable::Root& root, std::unordered_map<CellIndex, uint32_t>& numbers) {
    const tree::PrefixTree& tree = books_.tree;
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
      const key::MediaIdentity& item = books_.media.identity(number);
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
      out_.u32(books_.numbered() ? cell : 0);
      write_words(cell);
      for (GroupIndex g = 0; g < books_.group_count(); ++g) {
        const Group& group = books_.group(g);
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
      for (GroupIndex g = 0; g < books_.group_count(); ++g) {
        const Group& group = books_.group(g);
        if (!group.recurrent()) continue;
        out_.u32(group.at(cell) == kNoPage ? 0 : group.at(cell) + 1);
      }
      write_logits(cell);
    }
  }

 private:
  void number_media(const std::vector<CellIndex>& cells) {
    for (CellIndex cell : cells) {
      if (!books_.tree.has_media(cell)) continue;
      for (uint32_t i = 0; i < books_.tree.word_count(cell); ++i) {
        const uint32_t word = books_.tree.words(cell)[i];
        if (!key::is_media_word(word)) continue;
        const uint32_t number = key::media_number(word);
        if (local_.try_emplace(number, static_cast<uint32_t>(items_.size())).second) {
          items_.push_back(number);
        }
      }
    }
  }
  void write_words(CellIndex cell) {
    const uint32_t count = books_.tree.word_count(cell);
    out_.u32(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t word = books_.tree.words(cell)[i];
      out_.u32(key::is_media_word(word) ? key::media_word(local_.at(key::media_number(word)))
                                        : word);
    }
  }
  void write_logits(CellIndex cell) {
    const Logits logits = books_.logits.peek(cell);
    out_.u32(logits == nullptr ? 0 : static_cast<uint32_t>(logits->size()));
    if (logits != nullptr) out_.bytes(logits->data(), logits->size() * sizeof(float));
  }

  Writer& out_;
  const Books& books_;
  std::unordered_map<uint32_t, uint32_t> local_;
  std::vector<uint32_t> items_;
};

}  // namespace

std::vector<uint8_t> dump_index(const Books& books) {
  Writer out;
  out.bytes(kDumpMagic, sizeof kDumpMagic);
  out.u32(kDumpVersion);
  write_shape(out, books);
  std::vector<ScopeTable::Root> roots;
  for (const ScopeTable::Root& root : books.scopes.roots()) {
    if (root.cell != kNoCell && !root.hidden && books.tree.has_child(root.cell)) {
      roots.push_back(root);
    }
  }
  // Sorted, so that the same index gives the same bytes in whatever order its scopes came in.
  std::sort(roots.begin(), roots.end(),
            [](const auto& a, const auto& b) { return a.scope.digest() < b.scope.digest(); });
  out.u32(static_cast<uint32_t>(roots.size()));
  std::unordered_map<CellIndex, uint32_t> numbers;
  for (const ScopeTable::Root& root : roots) ScopeWriter(out, books).write(root, numbers);
  std::vector<CellIndex> order;
  books.policy->order(books.now_ns, order);
  std::erase_if(order, [&](CellIndex cell) { return numbers.count(cell) == 0; });
  out.u32(static_cast<uint32_t>(order.size()));
  for (CellIndex cell : order) out.u32(numbers.at(cell));
  return out.finish();
}

}  // namespace stemma::cache
