// stemma_lease_*: each is a few lines around the C++ call of the same name.
#include <utility>

#include "base/invalid.h"
#include "capi/decode.h"
#include "capi/handles.h"
#include "capi/last_error.h"

using namespace stemma;
using namespace stemma::capi;

namespace {

using LeaseUse = SlotTable<HeldLease>::Use;

using base::invalid;

// Runs `body` with the lease behind the number; no other call uses the lease meanwhile.
template <class Body>
stemma_status with_lease(const char* call, stemma_lease number, Body&& body) noexcept {
  LeaseUse use(leases(), number);
  if (use.found() != Found::yes) [[unlikely]] {
    return fail(call, why_no_lease(use.found(), number));
  }
  return end(call, caught([&] { return body(use->lease); }));
}

// Runs `last`, which ends the lease with the given fence. If that succeeds, the number is gone.
template <class Last>
stemma_status end_lease(const char* call, stemma_lease number, const stemma_fence* fence,
                        Last&& last) noexcept {
  Home* home = nullptr;
  {
    LeaseUse use(leases(), number);
    if (use.found() != Found::yes) [[unlikely]] {
      return fail(call, why_no_lease(use.found(), number));
    }
    const Result<void> done = caught([&]() -> Result<void> {
      STEMMA_TRY_VOID(check_fence(fence));
      // Ask here first: most fences have signalled, and those need no object.
      Fence* waiting = nullptr;
      if (fence != nullptr && fence->signalled(fence->user) == 0) {
        waiting = use->home->fences().make(*fence);
      }
      Result<void> ended = last(use->lease, waiting);
      if (!ended && waiting != nullptr) use->home->fences().give_back(waiting);
      return ended;
    });
    if (!done) return fail(call, done.error());
    home = use->home;
    use.drop();
  }
  home->let_go();
  return STEMMA_OK;
}

}  // namespace

stemma_status stemma_lease_positions(stemma_lease lease, stemma_positions* out) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    *out = {l.reused(), l.committed(), l.length(), l.capacity()};
    return {};
  });
}

stemma_status stemma_lease_report(stemma_lease lease, stemma_report* out) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    encode(l.report(), out);
    return {};
  });
}

stemma_status stemma_lease_copies(stemma_lease lease, stemma_block_copy* out, size_t capacity,
                                  size_t* count) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    return fill(l.copies(), out, capacity, count, [](const BlockCopy& copy) {
      return stemma_block_copy{copy.group, to_index(copy.source), to_index(copy.target),
                               copy.tokens};
    });
  });
}

stemma_status stemma_lease_copies_done(stemma_lease lease) {
  return with_lease(__func__, lease, [](Lease& l) { return l.copies_done(); });
}

stemma_status stemma_lease_copies_failed(stemma_lease lease) {
  return with_lease(__func__, lease, [](Lease& l) { return l.copies_failed(); });
}

stemma_status stemma_lease_run_copies(stemma_lease lease) {
  return with_lease(__func__, lease, [](Lease& l) { return l.run_copies(); });
}

stemma_status stemma_lease_shrink_to(stemma_lease lease, uint32_t n, uint32_t* reused) {
  return with_lease(__func__, lease, [&](Lease& l) -> Result<void> {
    STEMMA_TRY(const uint32_t now, l.shrink_to(n));
    if (reused != nullptr) *reused = now;
    return {};
  });
}

stemma_status stemma_lease_media_to_process(stemma_lease lease, uint32_t* out, size_t capacity,
                                            size_t* count) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    return fill(l.media_to_process(), out, capacity, count);
  });
}

stemma_status stemma_lease_logits(stemma_lease lease, const float** logits, size_t* count) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    if (logits == nullptr) return invalid("logits is null");
    if (count == nullptr) return invalid("count is null");
    *logits = l.logits().empty() ? nullptr : l.logits().data();
    *count = l.logits().size();
    return {};
  });
}

stemma_status stemma_lease_extend(stemma_lease lease, const uint32_t* tokens, size_t count) {
  return with_lease(__func__, lease, [&](Lease& l) -> Result<void> {
    if (tokens == nullptr && count != 0) return invalid("tokens is null, and count is not 0");
    if (count >= STEMMA_TOKEN_LIMIT) {
      return Error(Errc::out_of_range, "count is more than 2^31 - 1");
    }
    return l.extend({tokens, count});
  });
}

stemma_status stemma_lease_reserve(stemma_lease lease, uint32_t positions) {
  return with_lease(__func__, lease, [&](Lease& l) { return l.reserve(positions); });
}

stemma_status stemma_lease_commit(stemma_lease lease, uint32_t n, stemma_commit* out) {
  return with_lease(__func__, lease, [&](Lease& l) -> Result<void> {
    STEMMA_TRY(const Commit commit, l.commit(n));
    if (out != nullptr) *out = {commit.committed, commit.published, commit.duplicates, 0};
    return {};
  });
}

stemma_status stemma_lease_adopt_canonical(stemma_lease lease, uint32_t* given_up) {
  return with_lease(__func__, lease, [&](Lease& l) -> Result<void> {
    const uint32_t blocks = l.adopt_canonical();
    if (given_up != nullptr) *given_up = blocks;
    return {};
  });
}

stemma_status stemma_lease_fork(stemma_lease lease, stemma_lease* out) {
  LeaseUse use(leases(), lease);
  if (use.found() != Found::yes) return fail(__func__, why_no_lease(use.found(), lease));
  return end(__func__, caught([&]() -> Result<void> {
               if (out == nullptr) return invalid("out is null");
               Result<Lease> fork = use->lease.fork();
               return hand_out(fork, *use->home, *out);
             }));
}

stemma_status stemma_lease_rewind(stemma_lease lease, uint32_t n) {
  return with_lease(__func__, lease, [&](Lease& l) { return l.rewind(n); });
}

stemma_status stemma_lease_draft_checkpoint(stemma_lease lease, uint32_t group, uint32_t* block) {
  return with_lease(__func__, lease, [&](Lease& l) -> Result<void> {
    if (block == nullptr) return invalid("block is null");
    STEMMA_TRY(const BlockId slot, l.draft_checkpoint(group));
    *block = to_index(slot);
    return {};
  });
}

stemma_status stemma_lease_commit_checkpoint(stemma_lease lease, uint32_t group, uint32_t depth) {
  return with_lease(__func__, lease, [&](Lease& l) { return l.commit_checkpoint(group, depth); });
}

stemma_status stemma_lease_hold_checkpoint(stemma_lease lease, uint32_t group, uint32_t at_most,
                                           uint32_t* depth, uint32_t* block) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    if (depth == nullptr) return invalid("depth is null");
    if (block == nullptr) return invalid("block is null");
    STEMMA_TRY(const Checkpoint held, l.hold_checkpoint(group, at_most));
    *depth = held.depth;
    *block = to_index(held.slot);
    return {};
  });
}

stemma_status stemma_lease_attach_logits(stemma_lease lease, uint32_t depth, const float* logits,
                                         size_t count) {
  return with_lease(__func__, lease, [&](Lease& l) -> Result<void> {
    if (logits == nullptr && count != 0) return invalid("logits is null, and count is not 0");
    if (count >= STEMMA_TOKEN_LIMIT) {
      return Error(Errc::out_of_range, "count is more than 2^31 - 1");
    }
    return l.attach_logits(depth, {logits, count});
  });
}

stemma_status stemma_lease_release(stemma_lease lease, const stemma_release_options* options) {
  if (options == nullptr) {
    return end_lease(__func__, lease, nullptr, [](Lease& l, Fence*) { return l.release(); });
  }
  const Result<stemma_release_options> given = read_sized(options);
  if (!given) return fail(__func__, given.error());
  return end_lease(__func__, lease, given->fence, [&](Lease& l, Fence* fence) -> Result<void> {
    if (given->reserved != 0) return invalid("release options' reserved is not 0");
    Retain retain;
    STEMMA_TRY_VOID(decode(given->retain, retain));
    return l.release({.retain = given->retain != nullptr ? &retain : nullptr, .fence = fence});
  });
}

stemma_status stemma_lease_abandon(stemma_lease lease, const stemma_fence* fence) {
  return end_lease(__func__, lease, fence,
                   [](Lease& l, Fence* waiting) { return l.abandon(waiting); });
}

stemma_status stemma_lease_block_count(stemma_lease lease, uint32_t group, uint32_t* count) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    if (count == nullptr) return invalid("count is null");
    *count = l.block_count(group);
    return {};
  });
}

stemma_status stemma_lease_block_table(stemma_lease lease, uint32_t group, uint32_t* out,
                                       size_t capacity, uint32_t pad, uint32_t* count) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    if (out == nullptr && capacity != 0) return invalid("out is null, and capacity is not 0");
    static_assert(sizeof(BlockId) == sizeof(uint32_t) && alignof(BlockId) == alignof(uint32_t));
    STEMMA_TRY(const uint32_t blocks,
               l.block_table(group, {reinterpret_cast<BlockId*>(out), capacity}, BlockId{pad}));
    if (count != nullptr) *count = blocks;
    return {};
  });
}

stemma_status stemma_lease_draft_table(stemma_lease lease, uint32_t group, uint32_t* out,
                                       size_t capacity, uint32_t pad, uint32_t* count) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    if (out == nullptr && capacity != 0) return invalid("out is null, and capacity is not 0");
    STEMMA_TRY(const uint32_t blocks,
               l.draft_table(group, {reinterpret_cast<BlockId*>(out), capacity}, BlockId{pad}));
    if (count != nullptr) *count = blocks;
    return {};
  });
}

stemma_status stemma_lease_slot_mapping(stemma_lease lease, uint32_t group, uint32_t begin,
                                        int64_t* out, size_t count, int64_t pad) {
  return with_lease(__func__, lease, [&](const Lease& l) -> Result<void> {
    if (out == nullptr && count != 0) return invalid("out is null, and count is not 0");
    return l.slot_mapping(group, begin, {out, count}, pad);
  });
}

stemma_status stemma_context_lengths(const stemma_lease* numbers, size_t count, uint32_t* out) {
  if (numbers == nullptr && count != 0) {
    return fail(__func__, invalid("leases is null, and count is not 0"));
  }
  if (out == nullptr && count != 0)
    return fail(__func__, invalid("out is null, and count is not 0"));
  for (size_t i = 0; i < count; ++i) {
    LeaseUse use(leases(), numbers[i]);
    if (use.found() != Found::yes) {
      const Error why = why_no_lease(use.found(), numbers[i]);
      return fail(__func__, {why.code(), why.message(), static_cast<uint32_t>(i)});
    }
    out[i] = use->lease.committed();
  }
  return STEMMA_OK;
}
