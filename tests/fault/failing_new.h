// A memory that runs out on demand: the n-th allocation of this thread fails, once.
//
// failing_new.cc replaces the global operators new and delete for the executable it is linked into,
// which is why these tests have one of their own. They end in malloc() and free(), so sanitizers
// still see every block.
#pragma once

#include <cstdint>

namespace stemma::test {

// While it lives, the `n`-th allocation of this thread from now on throws std::bad_alloc. 0: none.
class FailingNew {
 public:
  explicit FailingNew(uint64_t n) noexcept;
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  // Whether it has failed by now.
  bool fired() const noexcept;
};

// While it lives, every allocation of this thread of more than `above` bytes fails.
class NoMemory {
 public:
  explicit NoMemory(uint64_t above = 0) noexcept;
  ~NoMemory();
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};

}  // namespace stemma::test
