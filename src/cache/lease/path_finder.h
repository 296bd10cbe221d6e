// A PathFinder finds how much of one prompt the tree has: reads the prompt, walks without the lock,
// and verifies under the lock what it found (docs/concurrency.md, "The optimistic reader").
//
//   read() -> number_media(), if it has media -> walk() -> check_tokens() -> judge()
//
// Threading:  one thread at a time. Only the calls that take Books need the lock.
// Cost:       read() allocates all that the walk needs, in the record's vectors.
#pragma once

#include <cstdint>
#include <span>

#include "cache/lease/lease_record.h"
#include "cache/lease/matcher.h"
#include "stemma/prompt.h"

namespace stemma::cache {

class PathFinder {
 public:
  PathFinder(const Books& view, LeaseRecord& record, const Scope& scope,
             const Prompt& prompt) noexcept
      : view_(view), record_(record), scope_(scope), prompt_(prompt) {}

  // Checks the prompt and finds its units; words() are the caller's tokens unless it has media.
  // Error: invalid_argument, out_of_memory.
  Result<void> read();
  bool has_media() const noexcept { return !prompt_.media.empty(); }
  std::span<const uint32_t> words() const noexcept { return words_; }
  uint32_t length() const noexcept { return static_cast<uint32_t>(prompt_.tokens.size()); }

  // Follows the words and writes the path to record.cells.
  void walk() noexcept;
  // Checks the tokens that the walk did not find in the tree. Error: invalid_argument.
  Result<void> check_tokens() const;

  // The scope's root, or null.
  const ScopeTable::Root* root(const Books& books) const { return books.scopes.find(scope_); }
  // Replaces media items in the words by their numbers; unknown items get a word that no cell has.
  // Returns true if that changed the words.
  bool number_media(const Books& books, CellIndex root);
  // The same, and the record holds a reference to each item from now on. Error: out_of_memory.
  Result<void> intern_media(Books& books, CellIndex root);
  // Verifies the walk: drops cells that were not really there, and goes on where it stopped.
  Path judge(Books& books, CellIndex root);
  // The same for calls that make no lease, and so held no reference to their media.
  Path judge_again(Books& books, CellIndex root);

 private:
  void write_item(const key::MediaSpan& span, uint32_t word);

  const Books& view_;
  LeaseRecord& record_;
  const Scope& scope_;
  const Prompt& prompt_;
  std::span<const uint32_t> words_;
  uint32_t births_ = 0;
  CellIndex root_guess_ = kNoCell;
  tree::WalkResult walk_;
};

}  // namespace stemma::cache
