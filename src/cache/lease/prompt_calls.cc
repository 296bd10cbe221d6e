#include "cache/lease/prompt_calls.h"

#include <algorithm>

#include "cache/lease/path_finder.h"
#include "tree/words.h"

namespace stemma::cache {
namespace {

// Reads the prompt and walks along it, for a call that makes no lease.
Result<void> find(Core& core, PathFinder& finder) {
  STEMMA_TRY_VOID(finder.read());
  if (finder.has_media()) {
    core.locked([&](Store& store) {
      const ScopeTable::Root* root = finder.root(store.books);
      (void)finder.number_media(store.books, root == nullptr ? kNoCell : root->cell);
    });
  }
  finder.walk();
  return finder.check_tokens();
}

// Calls `use(store, root, path, words, record)` under the lock, with the prompt's path. Returns
// `unknown` if there is nothing of its scope.
template <class Answer, class Use>
Result<Answer> with_path(Core& core, const Scope& scope, const Prompt& prompt, Answer unknown,
                         Use&& use) {
  RecordPool::Borrowed record(core.records());
  PathFinder finder(core.view(), *record, scope, prompt);
  STEMMA_TRY_VOID(find(core, finder));
  return core.locked([&](Store& store) -> Result<Answer> {
    const ScopeTable::Root* root = finder.root(store.books);
    if (root == nullptr) return unknown;
    const ScopeTable::Root copy = *root;
    const Path path = finder.judge_again(store.books, copy.cell);
    return use(store, copy, path, *record);
  });
}

// The prompt's words behind `boundary` cells, at most one cell of them.
std::span<const uint32_t> words_behind(const Path& path, uint32_t boundary, uint32_t tokens) {
  const std::span<const uint32_t> rest = path.words.subspan(uint64_t{boundary} * tokens);
  return rest.first(std::min<size_t>(rest.size(), tokens));
}

}  // namespace

Result<Report> look_up(Core& core, const Scope& scope, const Prompt& prompt,
                       const LookupOptions& options) {
  RecordPool::Borrowed record(core.records());
  PathFinder finder(core.view(), *record, scope, prompt);
  const bool read = options.read && core.options().enabled;
  if (!read) {
    STEMMA_TRY_VOID(finder.read());
    STEMMA_TRY_VOID(finder.check_tokens());
    Report report;
    report.prompt_tokens = report.to_compute_tokens = finder.length();
    report.outcome = Outcome::bypassed;
    report.reason = MissReason::read_off;
    return report;
  }
  STEMMA_TRY_VOID(find(core, finder));
  return core.locked([&](Store& store) {
    Books& books = store.books;
    const ScopeTable::Root* root = finder.root(books);
    const Path path = root == nullptr ? Path{} : finder.judge_again(books, root->cell);
    const bool scope_known = root != nullptr && books.tree.has_child(root->cell);
    Report report =
        find_match(books, path, record->spans, finder.length(), options, scope_known).report;
    if (root == nullptr) return report;
    for (const tree::GroupReach& reach : books.reaches()) {
      if (reach.kind == tree::Reach::recurrent) continue;
      report.copied_tokens =
          std::max(report.copied_tokens, report.reused_tokens % reach.block_tokens);
    }
    return report;
  });
}

Result<PinResult> pin(Core& core, const Scope& scope, const Prompt& prompt, uint64_t ttl_ns) {
  if (ttl_ns == 0) return Error(Errc::invalid_argument, "a pin needs a time to live");
  return with_path(
      core, scope, prompt, PinResult{},
      [&](Store& store, const ScopeTable::Root&, const Path& path,
          const LeaseRecord& record) -> Result<PinResult> {
        const Books& books = store.books;
        const uint32_t tokens = books.cell_tokens();
        const uint32_t whole = key::floor_to_unit(record.spans, path.whole * tokens) / tokens;
        PinResult result;
        if (whole == 0) return result;
        // Window and recurrent groups evict blocks on their own, so those that serve n are held
        // too.
        uint32_t n = whole * tokens;
        std::vector<LooseBlock> blocks;
        if (books.has_loose_groups()) {
          const Present present(books, path, record.spans);
          n = tree::largest_servable(books.reaches(), n, true, present).n;
          if (n == 0) return result;
          loose_blocks(books, path, n, present, blocks);
        }
        const uint32_t cells = Group::blocks_of(n, tokens);
        STEMMA_TRY(result.id, store.pins.add(path.cells[cells - 1], cells, std::move(blocks),
                                             deadline_after(books.now_ns, ttl_ns)));
        result.pinned_tokens = n;
        return result;
      });
}

Result<uint32_t> truncate(Core& core, const Scope& scope, const Prompt& prompt, uint32_t keep) {
  return with_path(
      core, scope, prompt, uint32_t{0},
      [&](Store& store, const ScopeTable::Root& root, const Path& path, const LeaseRecord&) {
        const tree::PrefixTree& tree = store.books.tree;
        const uint32_t tokens = store.books.cell_tokens();
        const uint32_t boundary = keep / tokens;
        if (boundary > path.whole || uint64_t{boundary} * tokens > path.words.size()) return 0U;
        const CellIndex end = path.ending(boundary);
        const std::span<const uint32_t> rest = words_behind(path, boundary, tokens);
        // Everything below `end` that continues like the prompt, as long as both have words;
        // everything if the prompt ends here.
        std::vector<CellIndex> children;
        if (rest.size() < tokens) {
          tree.children(end, children);
        } else {
          children.reserve(tokens);
          tree.short_prefixes(end, rest, children);
          const CellIndex whole = tree.find_child(end, rest);
          if (whole != kNoCell) children.push_back(whole);
        }
        uint32_t gone = 0;
        store.holds.hold(end, boundary, root.tenant_index);
        for (CellIndex child : children) {
          const auto shared = std::min(tree.word_count(child), static_cast<uint32_t>(rest.size()));
          if (tree::common_words(tree.words(child), rest.data(), shared) == shared) {
            gone += store.forgetter.cut(child, root.tenant_index);
          }
        }
        store.anchors.drop_inner(end, rest, root.tenant_index);
        if (gone == 0) {
          store.holds.undo(end, boundary, root.tenant_index);
        } else {
          LeaseRecord nobody;
          nobody.tenant_index = root.tenant_index;
          store.holds.let_go(end, boundary, nobody);
        }
        return gone;
      });
}

Result<std::vector<uint32_t>> branch_points(Core& core, const Scope& scope, const Prompt& prompt) {
  return with_path(
      core, scope, prompt, std::vector<uint32_t>{},
      [&](Store& store, const ScopeTable::Root&, const Path& path, const LeaseRecord&) {
        const uint32_t tokens = store.books.cell_tokens();
        std::vector<uint32_t> depths;
        for (uint32_t i = 0; i <= path.whole; ++i) {
          store.books.tree.branch_words(path.ending(i), words_behind(path, i, tokens), i * tokens,
                                        depths);
        }
        return depths;
      });
}

}  // namespace stemma::cache
