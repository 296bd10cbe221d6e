// An Engine uses leases as a real engine does, over FakeEngine's memory. It fails its test when it
// reads KV that belongs elsewhere.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "stemma/cache.h"
#include "support/cache_fixture.h"
#include "support/fake_engine.h"

namespace stemma::test {

// The KV that this text should have. Texts of different scopes have different KV.
inline Story story_of(const Text& text, uint64_t scope = 1) { return {scope, text}; }

class Engine {
 public:
  explicit Engine(const std::vector<GroupOptions>& groups) : memory(groups) {}

  // Carries out the lease's copies; loaded states must be those of depth `reused`.
  void load(Lease& lease, const Story& story) {
    if (lease.copies().empty()) return;
    EXPECT_EQ(memory.load(lease.copies(), story, lease.committed()), "");
    ok(lease.copies_done());
  }
  // Reads everything that a kernel continuing at `n` would read.
  void expect_right(const Lease& lease, const Story& story, uint32_t n) const {
    EXPECT_EQ(memory.verify(lease, story, n), "");
  }
  void write(const Lease& lease, const Story& story, uint32_t begin, uint32_t end) {
    memory.compute(lease, begin, end, story);
  }
  // Makes [0, end) available, from wherever the lease stands.
  void run(Lease& lease, const Story& story, uint32_t end) {
    load(lease, story);
    expect_right(lease, story, lease.committed());
    write(lease, story, lease.committed(), end);
    ok(lease.commit(end));
  }
  // Saves the running state of a recurrent group at the depth that is committed now.
  BlockId save(Lease& lease, const Story& story, GroupIndex group) {
    const BlockId slot = ok(lease.draft_checkpoint(group));
    memory.save_state(group, slot, story, lease.committed());
    ok(lease.commit_checkpoint(group, lease.committed()));
    return slot;
  }

  FakeEngine memory;
};

}  // namespace stemma::test
