#include "cache/lease/matcher.h"

#include <algorithm>

namespace stemma::cache {

CellIndex Present::deepest_entry(const Group& group, uint32_t block, uint32_t& cells) const {
  const uint64_t first = uint64_t{block} * group.ratio();
  const uint64_t known = uint64_t{path_.whole} + (path_.partial.cell != kNoCell ? 1 : 0);
  if (first >= known) return kNoCell;
  for (uint64_t i = std::min(first + group.ratio(), known); i-- > first;) {
    const CellIndex cell = i < path_.whole ? path_.cells[i] : path_.partial.cell;
    if (group.at(cell) == kNoPage) continue;
    cells = static_cast<uint32_t>(i - first);
    return cell;
  }
  return kNoCell;
}

uint32_t Present::valid_tokens(uint32_t g, uint32_t block) const {
  const Group& group = books_.group(g);
  const uint32_t tokens = books_.cell_tokens();
  uint32_t cells = 0;
  const CellIndex cell = deepest_entry(group, block, cells);
  if (cell == kNoCell) return 0;
  const bool whole = uint64_t{block} * group.ratio() + cells < path_.whole;
  return cells * tokens + (whole ? tokens : path_.partial.words);
}

uint32_t Present::part_block(uint32_t g, uint32_t n) const {
  const Group& group = books_.group(g);
  uint32_t cells = 0;
  const CellIndex cell = deepest_entry(group, n / group.options().block_tokens, cells);
  return cell == kNoCell ? kNoPage : group.at(cell);
}

uint32_t Present::whole_blocks(uint32_t g, uint32_t limit) const {
  // A cell is published together with its blocks of all full groups, and is evicted with them.
  return std::min(limit, path_.whole / books_.group(g).ratio());
}

uint32_t Present::checkpoint_at_most(uint32_t g, uint32_t depth) const {
  const tree::PrefixTree& tree = books_.tree;
  const Group& group = books_.group(g);
  const uint32_t tokens = books_.cell_tokens();
  std::vector<CellIndex> inner;
  for (uint32_t boundary = std::min(depth / tokens, path_.whole);; --boundary) {
    const CellIndex cell = path_.ending(boundary);
    if (tree.is_anchored(cell)) {
      const uint32_t begin = boundary * tokens;
      const uint32_t end =
          std::min({depth, begin + tokens - 1,
                    path_.words_begin + static_cast<uint32_t>(path_.words.size())});
      if (begin < end && begin >= path_.words_begin) {
        inner.clear();
        tree.inner_prefixes(cell, path_.words.subspan(begin - path_.words_begin, end - begin),
                            inner);
        uint32_t best = 0;
        for (CellIndex c : inner) {
          if (group.at(c) != kNoPage) best = std::max(best, tree.word_count(c));
        }
        if (best != 0) return begin + best;
      }
      if (boundary != 0 && group.at(cell) != kNoPage) return begin;
    }
    if (boundary == 0) return 0;
  }
}

CellIndex anchor_cell(const Books& books, const Path& path, uint32_t depth) {
  const uint32_t tokens = books.cell_tokens();
  const uint32_t boundary = depth / tokens;
  if (boundary > path.whole) return kNoCell;
  const CellIndex cell = path.ending(boundary);
  if (depth % tokens == 0) return cell;
  return books.tree.find_inner(
      cell, path.words.subspan(boundary * tokens - path.words_begin, depth % tokens));
}

void loose_blocks(const Books& books, const Path& path, uint32_t n, const Present& present,
                  std::vector<LooseBlock>& out) {
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    const Group& group = books.group(g);
    if (group.recurrent()) {
      out.push_back({g, group.at(anchor_cell(books, path, n))});
    } else if (group.window()) {
      const GroupOptions& options = group.options();
      const uint32_t size = options.block_tokens;
      // A repeated prompt reuses one position less, so its window begins one earlier.
      const uint32_t low = n > options.window_tokens ? (n - 1 - options.window_tokens) / size : 0;
      const uint32_t sinks = (options.sink_tokens + size - 1) / size;
      for (uint32_t j = 0; j < n / size; ++j) {
        if (j < low && j >= sinks) j = low;
        if (j >= n / size) break;
        const uint32_t page = group.at(path.cells[(j + 1) * group.ratio() - 1]);
        if (page != kNoPage) out.push_back({g, page});
      }
      if (n % size != 0) out.push_back({g, present.part_block(g, n)});
    }
  }
}

void conclude(Report& report, uint32_t reusable) {
  report.to_compute_tokens = report.prompt_tokens - report.reused_tokens;
  if (report.reused_tokens == 0) {
    report.outcome = Outcome::miss;
    if (reusable == 0) report.reason = MissReason::too_short;
    return;
  }
  if (report.reused_tokens >= reusable) {
    report.outcome = Outcome::full_hit;
    report.reason = MissReason::none;
  } else {
    report.outcome = Outcome::partial_hit;
  }
}

Match find_match(Books& books, const Path& path, std::span<const key::MediaSpan> spans,
                 uint32_t length, const LookupOptions& options, bool scope_known) {
  Match match;
  Report& report = match.report;
  report.prompt_tokens = length;
  const uint32_t tokens = books.cell_tokens();
  const uint32_t found = std::min(path.tokens(tokens), length);
  const uint32_t matched = key::floor_to_unit(spans, found);
  report.matched_tokens = matched;
  const Present present(books, path, spans);
  const std::span<const tree::GroupReach> reaches = books.reaches();

  if (options.want_logits && length != 0 && matched == length && options.at_most >= length) {
    const CellIndex cell = anchor_cell(books, path, length);
    if (cell != kNoCell && tree::servable(reaches, length, options.allow_copy, present)) {
      if (Logits logits = books.logits.use(cell)) {
        match.logits = std::move(logits);
        match.n = length;
        report.reused_tokens = length;
        conclude(report, length);
        return match;
      }
    }
  }

  const uint32_t reusable =
      key::leave_units(spans, length, std::max(options.evaluate_at_least, 1U));
  const uint32_t limit = std::min({reusable, options.at_most, matched});
  const tree::Serve serve = tree::largest_servable(reaches, limit, options.allow_copy, present);
  match.n = serve.n;
  report.reused_tokens = serve.n;
  if (serve.limited_by_group != tree::Serve::kNone) report.limiting_group = serve.limited_by_group;
  if (serve.n_without_recurrent > serve.n)
    report.checkpoint_would_help_at = serve.n_without_recurrent;

  // The reason why n is not larger: the first obstacle, from the outside in.
  if (serve.n < reusable) {
    const uint32_t wanted = std::min(reusable, options.at_most);
    if (!scope_known) {
      report.reason = MissReason::unknown_scope;
    } else if (serve.n < serve.n_without_recurrent) {
      report.reason = MissReason::no_checkpoint;
    } else if (!options.allow_copy && serve.n < limit &&
               tree::largest_servable(reaches, limit, true, present).n > serve.n) {
      report.reason = MissReason::no_copy;
    } else if (serve.limited_by_group != tree::Serve::kNone) {
      report.reason = MissReason::group_hole;
    } else if (limit == options.at_most && options.at_most < std::min(reusable, matched)) {
      report.reason = MissReason::at_most;
    } else if (matched < found || key::floor_to_unit(spans, limit) < limit ||
               (matched < wanted && std::any_of(
                                        spans.begin(), spans.end(),
                                        [&](const auto& span) { return span.begin == matched; }))) {
      report.reason = MissReason::media;
    } else {
      report.reason = MissReason::first_use;
    }
  }
  conclude(report, reusable);
  return match;
}

}  // namespace stemma::cache
