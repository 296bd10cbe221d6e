#include "cache/lease/path_finder.h"

#include <algorithm>

namespace stemma::cache {

Result<void> PathFinder::read() {
  births_ = view_.tree.births();
  if (prompt_.tokens.size() > key::kMaxPromptPositions) {
    return Error(Errc::invalid_argument, "the prompt is longer than 2^31 - 1 positions");
  }
  const size_t cells = prompt_.tokens.size() / view_.cell_tokens() + 1;
  if (record_.cells.size() < cells) record_.cells.resize(cells);
  if (!has_media()) {
    words_ = prompt_.tokens;
    return {};
  }
  if (const Result<void> found = key::find_media_spans(prompt_, record_.spans); !found) {
    const Error& error = found.error();
    const bool memory = error.code() == Errc::out_of_memory;
    return Error(memory ? Errc::out_of_memory : Errc::invalid_argument, error.message(),
                 error.value());
  }
  if (!key::all_tokens_valid(prompt_.tokens)) {
    if (const auto bad = key::first_bad_token(prompt_.tokens, record_.spans)) {
      return Error(Errc::invalid_argument, "not a token (2^31 or more) at this position", *bad);
    }
  }
  record_.query.assign(prompt_.tokens.begin(), prompt_.tokens.end());
  words_ = record_.query;
  record_.media_numbers.reserve(record_.spans.size());
  record_.media_to_process.reserve(prompt_.media.size());
  for (const MediaItem& item : prompt_.media) {
    record_.media_begin_end.push_back(item.offset);
    record_.media_begin_end.push_back(item.offset + item.length);
  }
  return {};
}

void PathFinder::walk() noexcept {
  root_guess_ = view_.scopes.guess(scope_);
  if (root_guess_ == kNoCell) return;
  const auto cells = static_cast<uint32_t>(words_.size() / view_.cell_tokens());
  walk_ = view_.tree.walk(root_guess_, words_.data(), cells, record_.cells.data());
}

Result<void> PathFinder::check_tokens() const {
  if (has_media()) return {};  // read() did it.
  // Matched words are in the tree, where every word of 2^31 or more is a media item: the query must
  // have none. Unmatched words are checked here.
  const auto seen = uint64_t{walk_.cells} * view_.cell_tokens();
  if (key::is_token_word(walk_.word_bits) && key::all_tokens_valid(prompt_.tokens.subspan(seen))) {
    return {};
  }
  return Error(Errc::invalid_argument, "not a token (2^31 or more) at this position",
               key::first_bad_token(prompt_.tokens).value_or(0));
}

void PathFinder::write_item(const key::MediaSpan& span, uint32_t word) {
  std::fill(record_.query.begin() + span.begin, record_.query.begin() + span.end, word);
}

bool PathFinder::number_media(const Books& books, CellIndex root) {
  bool changed = false;
  for (const key::MediaSpan& span : record_.spans) {
    // The highest number is never assigned, so no cell contains its word.
    const uint32_t number =
        books.media.find(root, span.identity).value_or(key::kMediaNumberLimit - 1);
    changed = changed || record_.query[span.begin] != key::media_word(number);
    write_item(span, key::media_word(number));
  }
  return changed;
}

Result<void> PathFinder::intern_media(Books& books, CellIndex root) {
  for (const key::MediaSpan& span : record_.spans) {
    Result<uint32_t> number = books.media.intern(root, span.identity);
    if (!number) return number.error();
    record_.media_numbers.push_back(*number);
    write_item(span, key::media_word(*number));
  }
  return {};
}

Path PathFinder::judge_again(Books& books, CellIndex root) {
  // Nothing held the items' numbers during the walk: an item may have been removed and its number
  // given to another. Then the walk followed the wrong words.
  if (number_media(books, root)) {
    walk_ = {};
    root_guess_ = kNoCell;
  }
  return judge(books, root);
}

Path PathFinder::judge(Books& books, CellIndex root) {
  tree::PrefixTree& tree = books.tree;
  const uint32_t tokens = books.cell_tokens();
  const auto cells = static_cast<uint32_t>(words_.size() / tokens);
  Path path;
  path.root = root;
  path.words = words_;
  tree.keep_young(root);
  if (root == root_guess_) {
    path.whole = tree.valid_prefix(root, record_.cells.data(), walk_.cells, births_);
    if (path.whole != walk_.cells) ++books.tally.stale_walks;
    if (walk_.fallbacks > 2 * tree::kHintDistance && path.whole > 2 * tree::kHintDistance) {
      ++books.tally.hint_repairs;
      tree.repair_hints(record_.cells.data(), path.whole);
    }
  }
  // A walk beside a writer may stop too early: continue from the last verified cell.
  CellIndex current = path.whole == 0 ? root : record_.cells[path.whole - 1];
  while (path.whole < cells) {
    const CellIndex child =
        tree.find_child(current, words_.subspan(uint64_t{path.whole} * tokens, tokens));
    if (child == kNoCell) break;
    tree.keep_young(child);
    record_.cells[path.whole++] = child;
    current = child;
  }
  path.cells = record_.cells.data();
  const std::span<const uint32_t> rest = words_.subspan(uint64_t{path.whole} * tokens);
  if (!rest.empty()) {
    path.partial = tree.best_child(current, rest.first(std::min<size_t>(rest.size(), tokens)));
  }
  return path;
}

}  // namespace stemma::cache
