// Inspector: reports what is in the books. It changes nothing.
//
// Threading:  any thread; the caller holds the books' lock.
// Ownership:  the books and the capturer outlive it.
// Cost:       O(sequences); contents() and check_invariants() O(everything).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sequence/books.h"
#include "sequence/capturer.h"

namespace stemma::sequence {

class Inspector {
 public:
  Inspector(const Books& books, const Capturer& capturer) noexcept
      : books_(books), capturer_(capturer) {}

  // Each does what the function of the same name of SequenceCache says.
  SequenceStats stats() const;
  SessionInfo session(std::string_view name) const;
  SequenceInfo sequence(SequenceId id) const;
  Result<std::vector<SequenceContent>> contents() const;
  uint32_t pending() const noexcept;
  void check_invariants() const;

 private:
  void add_saved(SequenceStats& out) const;
  void add_costs(SequenceStats& out) const noexcept;

  const Books& books_;
  const Capturer& capturer_;
};

}  // namespace stemma::sequence
