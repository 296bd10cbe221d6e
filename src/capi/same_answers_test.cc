// The same operations through C and through C++ get the same answers, down to the block ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "stemma/cache.h"
#include "support/c_cache.h"
#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

std::string say_report(const Report& r) {
  std::ostringstream out;
  out << r.prompt_tokens << ' ' << r.matched_tokens << ' ' << r.reused_tokens << ' '
      << r.copied_tokens << ' ' << r.to_compute_tokens << ' ' << r.checkpoint_would_help_at << ' '
      << r.limiting_group << ' ' << uint32_t(r.outcome) << ' ' << uint32_t(r.reason);
  return out.str();
}
std::string say_report(const stemma_report& r) {
  std::ostringstream out;
  out << r.prompt_tokens << ' ' << r.matched_tokens << ' ' << r.reused_tokens << ' '
      << r.copied_tokens << ' ' << r.to_compute_tokens << ' ' << r.checkpoint_would_help_at << ' '
      << r.limiting_group << ' ' << r.outcome << ' ' << r.reason;
  return out.str();
}

// One request through both APIs.
struct LeasePair {
  Lease cpp;
  stemma_lease c = 0;
};

std::string say_lease(const Lease& lease) {
  std::ostringstream out;
  out << say_report(lease.report()) << " | " << lease.reused() << ' ' << lease.committed() << ' '
      << lease.length() << ' ' << lease.capacity() << " |";
  for (const BlockId block : blocks_of(lease)) out << ' ' << to_index(block);
  out << " |";
  for (const BlockCopy& copy : lease.copies()) {
    out << ' ' << copy.group << ' ' << to_index(copy.source) << ' ' << to_index(copy.target) << ' '
        << copy.tokens;
  }
  out << " |";
  for (const uint32_t item : lease.media_to_process()) out << ' ' << item;
  return out.str();
}
std::string say_lease(stemma_lease lease) {
  std::ostringstream out;
  stemma_report report = STEMMA_REPORT_INIT;
  stemma_positions at{};
  EXPECT_OK(stemma_lease_report(lease, &report));
  EXPECT_OK(stemma_lease_positions(lease, &at));
  out << say_report(report) << " | " << at.reused << ' ' << at.committed << ' ' << at.length << ' '
      << at.capacity << " |";
  uint32_t blocks = 0;
  EXPECT_OK(stemma_lease_block_count(lease, 0, &blocks));
  std::vector<uint32_t> table(blocks);
  EXPECT_OK(stemma_lease_block_table(lease, 0, table.data(), blocks, STEMMA_NO_BLOCK, nullptr));
  for (const uint32_t block : table) out << ' ' << block;
  out << " |";
  stemma_block_copy copies[64];
  size_t count = 0;
  EXPECT_OK(stemma_lease_copies(lease, copies, 64, &count));
  for (size_t i = 0; i < count; ++i) {
    out << ' ' << copies[i].group << ' ' << copies[i].source << ' ' << copies[i].target << ' '
        << copies[i].tokens;
  }
  out << " |";
  uint32_t items[8];
  EXPECT_OK(stemma_lease_media_to_process(lease, items, 8, &count));
  for (size_t i = 0; i < count; ++i) out << ' ' << items[i];
  return out.str();
}

std::string say_cache_stats(const Stats& s) {
  std::ostringstream out;
  for (const Counts* counts : {&s.total, &s.window}) {
    for (const uint64_t n : counts->outcomes) out << n << ' ';
    for (const uint64_t n : counts->reasons) out << n << ' ';
    out << counts->lookups << ' ' << counts->queried_tokens << ' ' << counts->reused_tokens << ' '
        << counts->copied_tokens << ' ' << counts->computed_tokens << " | ";
  }
  const GroupStats& g = s.groups[0];
  out << g.free_blocks << ' ' << g.cached_blocks << ' ' << g.draft_blocks << ' '
      << g.evictable_blocks << ' ' << g.peak_used_blocks << " | " << s.window_ns << ' ' << s.leases
      << ' ' << s.scopes << ' ' << s.evicted_blocks << ' ' << s.duplicate_blocks << ' '
      << s.tails_published << ' ' << s.forks << ' ' << s.rewinds << ' ' << s.pin_expiries << ' '
      << s.quota_refusals << ' ' << s.orphaned_blocks << ' ' << s.pinned_blocks << ' '
      << s.kv_bytes_used << ' ' << s.kv_bytes_capacity << " |";
  for (const uint64_t n : s.match_tokens) out << ' ' << n;
  for (const uint64_t n : s.eviction_age_us) out << ' ' << n;
  return out.str();
}
std::string say_cache_stats(const stemma_stats& s) {
  std::ostringstream out;
  for (const stemma_counts* counts : {&s.total, &s.window}) {
    for (uint32_t i = 0; i < kOutcomeCount; ++i) out << counts->outcomes[i] << ' ';
    for (uint32_t i = 0; i < kMissReasonCount; ++i) out << counts->reasons[i] << ' ';
    out << counts->lookups << ' ' << counts->queried_tokens << ' ' << counts->reused_tokens << ' '
        << counts->copied_tokens << ' ' << counts->computed_tokens << " | ";
  }
  const stemma_group_stats& g = s.groups[0];
  out << g.free_blocks << ' ' << g.cached_blocks << ' ' << g.draft_blocks << ' '
      << s.evictable_blocks[0] << ' ' << g.peak_used_blocks << " | " << s.window_ns << ' '
      << s.leases << ' ' << s.scopes << ' ' << s.evicted_blocks << ' ' << s.duplicate_blocks << ' '
      << s.tails_published << ' ' << s.forks << ' ' << s.rewinds << ' ' << s.pin_expiries << ' '
      << s.quota_refusals << ' ' << s.orphaned_blocks << ' ' << s.pinned_blocks << ' '
      << s.kv_bytes_used << ' ' << s.kv_bytes_capacity << " |";
  for (const uint64_t n : s.match_tokens.buckets) out << ' ' << n;
  for (const uint64_t n : s.eviction_age_us.buckets) out << ' ' << n;
  return out.str();
}

class SameAnswers : public ::testing::TestWithParam<uint32_t> {
 protected:
  uint32_t below(uint32_t limit) {
    return std::uniform_int_distribution<uint32_t>(0, limit - 1)(rng_);
  }
  bool chance(uint32_t percent) { return below(100) < percent; }

  void SetUp() override {
    Options options = grouped({full(40, 8)});
    options.clock = &clock_;
    options.quotas = {{TenantId{1}, 30 * 64 * 8}};
    cpp_.emplace(ok(PagedCache::create(options)));
    stemma_group_options group = c_group(40, 8);
    const stemma_tenant_quota quota{1, 0, 30 * 64 * 8};
    stemma_options c = STEMMA_OPTIONS_INIT;
    c.groups = &group;
    c.group_count = 1;
    c.quotas = &quota;
    c.quota_count = 1;
    c.clock = {[](void* user) { return static_cast<ManualClock*>(user)->now_ns(); }, &clock_};
    ASSERT_OK(stemma_cache_create(&c, &c_));
  }

  // A prompt with a few branches, and sometimes an image.
  Text text() {
    Text words = tokens(4 + below(100), 1 + below(2));
    const uint32_t branch = below(words.size());
    if (chance(50)) words.tokens[branch] = 7 + below(3);
    if (chance(20)) words = words.with(image(static_cast<uint8_t>(below(2)), 2, 2));
    return words;
  }
  struct Media {
    std::vector<stemma_media_item> items;
    stemma_prompt prompt;
  };
  static void to_c(const Text& text, Media& out) {
    for (const MediaItem& item : text.media) {
      stemma_media_item& to = out.items.emplace_back();
      to = {static_cast<uint32_t>(item.kind), item.offset, item.length, item.causal ? 1U : 0U, {}};
      std::copy(item.digest.begin(), item.digest.end(), to.digest);
    }
    out.prompt = {text.tokens.data(), text.tokens.size(), out.items.data(), out.items.size()};
  }

  void begin() {
    const Text words = text();
    Media media;
    to_c(words, media);
    LeaseOptions cpp;
    stemma_lookup_options lookup = STEMMA_LOOKUP_OPTIONS_INIT;
    stemma_retain retain = STEMMA_RETAIN_INIT;
    stemma_lease_options c = STEMMA_LEASE_OPTIONS_INIT;
    c.lookup = &lookup;
    c.retain = &retain;
    if (chance(20)) lookup.at_most = cpp.lookup.at_most = below(80);
    if (chance(10)) lookup.evaluate_at_least = cpp.lookup.evaluate_at_least = below(6);
    if (chance(10)) lookup.read = cpp.lookup.read = false;
    if (chance(10)) lookup.write = cpp.lookup.write = false;
    if (chance(20)) lookup.allow_copy = cpp.lookup.allow_copy = false;
    if (chance(20)) c.draft_tokens = cpp.draft_tokens = below(100);
    if (chance(20)) c.fill_to = cpp.fill_to = below(20) * 4;
    if (chance(30)) retain.priority = cpp.retain.priority = static_cast<Priority>(below(102));
    if (chance(30)) retain.ttl_ns = cpp.retain.ttl_ns = below(1000);
    if (chance(30)) {
      retain.session = 1 + below(3);
      cpp.retain.session = SessionId{retain.session};
      retain.phase = below(3);
      cpp.retain.phase = static_cast<SessionPhase>(retain.phase);
    }
    const PriorityRange cpp_range{.begin = 8, .end = 24, .priority = 90};
    const stemma_priority_range c_range{8, 24, 90, 0, STEMMA_NEVER};
    if (chance(20)) {
      cpp.retain.ranges = {&cpp_range, 1};
      retain.ranges = &c_range;
      retain.range_count = 1;
    }
    stemma_report c_report = STEMMA_REPORT_INIT;
    const Result<Report> found = cpp_->lookup(scope_, words, cpp.lookup);
    ASSERT_EQ(answer(stemma_cache_lookup(c_, &c_scope_, &media.prompt, &lookup, &c_report)),
              answer(found));
    if (found) {
      ASSERT_EQ(say_report(c_report), say_report(*found));
    }
    LeasePair pair;
    Result<Lease> lease = cpp_->lease(scope_, words, cpp);
    ASSERT_EQ(answer(stemma_cache_lease(c_, &c_scope_, &media.prompt, &c, &pair.c)), answer(lease));
    if (!lease) return;
    pair.cpp = *std::move(lease);
    requests_.push_back(std::move(pair));
  }

  void use(LeasePair& pair) {
    const uint32_t n = below(120);
    switch (below(9)) {
      case 0:
        ASSERT_EQ(answer(stemma_lease_copies_done(pair.c)), answer(pair.cpp.copies_done()));
        break;
      case 1:
        ASSERT_EQ(answer(stemma_lease_copies_failed(pair.c)), answer(pair.cpp.copies_failed()));
        break;
      case 2: {
        const std::vector<uint32_t> more = tokens(below(20), 3).tokens;
        ASSERT_EQ(answer(stemma_lease_extend(pair.c, more.data(), more.size())),
                  answer(pair.cpp.extend(more)));
        break;
      }
      case 3:
        ASSERT_EQ(answer(stemma_lease_reserve(pair.c, n)), answer(pair.cpp.reserve(n)));
        break;
      case 4: ASSERT_EQ(answer(stemma_lease_rewind(pair.c, n)), answer(pair.cpp.rewind(n))); break;
      case 5: {
        uint32_t now = 0;
        const Result<uint32_t> shrunk = pair.cpp.shrink_to(n);
        ASSERT_EQ(answer(stemma_lease_shrink_to(pair.c, n, &now)), answer(shrunk));
        if (shrunk) {
          ASSERT_EQ(now, *shrunk);
        }
        break;
      }
      case 6: {
        LeasePair fork;
        Result<Lease> forked = pair.cpp.fork();
        ASSERT_EQ(answer(stemma_lease_fork(pair.c, &fork.c)), answer(forked));
        if (!forked) break;
        fork.cpp = *std::move(forked);
        requests_.push_back(std::move(fork));
        break;
      }
      default: {
        const uint32_t to = chance(80) ? pair.cpp.length() : n;
        stemma_commit done{};
        const Result<Commit> commit = pair.cpp.commit(to);
        ASSERT_EQ(answer(stemma_lease_commit(pair.c, to, &done)), answer(commit));
        if (!commit) break;
        ASSERT_EQ(done.published, commit->published);
        ASSERT_EQ(done.duplicates, commit->duplicates);
        uint32_t given_up = 0;
        ASSERT_OK(stemma_lease_adopt_canonical(pair.c, &given_up));
        ASSERT_EQ(given_up, pair.cpp.adopt_canonical());
      }
    }
  }

  void end(size_t index) {
    LeasePair pair = std::move(requests_[index]);
    requests_.erase(requests_.begin() + static_cast<ptrdiff_t>(index));
    if (chance(30)) {
      ASSERT_EQ(answer(stemma_lease_abandon(pair.c, nullptr)), answer(pair.cpp.abandon()));
    } else {
      ASSERT_EQ(answer(stemma_lease_release(pair.c, nullptr)), answer(pair.cpp.release()));
    }
  }

  void manage() {
    const Text words = text();
    Media media;
    to_c(words, media);
    uint32_t c = 0;
    const uint32_t n = below(20);
    switch (below(7)) {
      case 6: {
        const Reclaimed reclaimed = ok(cpp_->reclaim(n * 16, 5));
        uint32_t went = 0;
        struct Seen {
          const Reclaimed& reclaimed;
          uint32_t calls = 0;
        } seen{reclaimed};
        const auto same = [](void* user, const stemma_reclaimed_block* blocks, size_t count) {
          Seen& in = *static_cast<Seen*>(user);
          ++in.calls;
          ASSERT_EQ(count, in.reclaimed.blocks().size());
          for (size_t i = 0; i < count; ++i) {
            const Reclaimed::Block& wanted = in.reclaimed.blocks()[i];
            ASSERT_EQ(blocks[i].group, wanted.group);
            ASSERT_EQ(blocks[i].block, to_index(wanted.block));
            ASSERT_EQ(blocks[i].begin, wanted.begin);
            ASSERT_EQ(blocks[i].end, wanted.end);
            ASSERT_TRUE(
                std::equal(wanted.key.bytes.begin(), wanted.key.bytes.end(), blocks[i].key));
            const std::span<const Token> under = in.reclaimed.words(wanted);
            ASSERT_EQ(blocks[i].words == nullptr, under.empty());
            ASSERT_TRUE(std::equal(under.begin(), under.end(), blocks[i].words));
          }
        };
        ASSERT_OK(stemma_cache_reclaim(c_, n * 16, 5, same, &seen, &went));
        ASSERT_EQ(went, reclaimed.evicted());
        ASSERT_EQ(seen.calls, reclaimed.blocks().empty() ? 0U : 1U);
        break;
      }
      case 0:
        ASSERT_OK(stemma_cache_evict(c_, n, &c));
        ASSERT_EQ(c, cpp_->evict(n));
        break;
      case 1: {
        const Result<uint32_t> cut = cpp_->truncate(scope_, words, n);
        ASSERT_EQ(answer(stemma_cache_truncate(c_, &c_scope_, &media.prompt, n, &c)), answer(cut));
        if (cut) {
          ASSERT_EQ(c, *cut);
        }
        break;
      }
      case 2: {
        stemma_pin pin{};
        const Result<PinResult> pinned = cpp_->pin(scope_, words, 500);
        ASSERT_EQ(answer(stemma_cache_pin(c_, &c_scope_, &media.prompt, 500, &pin)),
                  answer(pinned));
        if (!pinned) break;
        ASSERT_EQ(pin.pinned_tokens, pinned->pinned_tokens);
        if (chance(50)) {
          ASSERT_EQ(answer(stemma_cache_unpin(c_, pin.id)), answer(cpp_->unpin(pinned->id)));
        }
        break;
      }
      case 3: {
        uint32_t depths[64];
        size_t count = 0;
        const Result<std::vector<uint32_t>> points = cpp_->branch_points(scope_, words);
        ASSERT_EQ(
            answer(stemma_cache_branch_points(c_, &c_scope_, &media.prompt, depths, 64, &count)),
            answer(points));
        if (points) {
          ASSERT_EQ(std::vector<uint32_t>(depths, depths + count), *points);
        }
        break;
      }
      case 4:
        ASSERT_OK(stemma_cache_end_session(c_, n % 4));
        cpp_->end_session(SessionId{n % 4});
        break;
      default:
        if (chance(90)) break;
        ASSERT_OK(stemma_cache_drop_scope(c_, &c_scope_, &c));
        ASSERT_EQ(c, cpp_->drop_scope(scope_));
    }
  }

  std::mt19937 rng_;
  ManualClock clock_;
  std::optional<PagedCache> cpp_;
  stemma_cache* c_ = nullptr;
  const Scope scope_ = scope_of({.model = "model"});
  const stemma_scope c_scope_ = c_scope("model");
  std::vector<LeasePair> requests_;
};

TEST_P(SameAnswers, ThroughCAndThroughCpp) {
  rng_.seed(GetParam());
  ASSERT_TRUE(std::equal(scope_.digest().begin(), scope_.digest().end(), c_scope_.digest));
  for (int step = 0; step < 1500; ++step) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()) + ", step " + std::to_string(step));
    clock_.advance_ns(below(50));
    const uint32_t what = below(100);
    if (requests_.empty() || what < 25) {
      begin();
    } else if (what < 75) {
      use(requests_[below(static_cast<uint32_t>(requests_.size()))]);
    } else if (what < 92) {
      end(below(static_cast<uint32_t>(requests_.size())));
    } else {
      manage();
    }
    if (HasFatalFailure()) return;
    for (const LeasePair& pair : requests_) ASSERT_EQ(say_lease(pair.c), say_lease(pair.cpp));
    stemma_stats stats{};
    stats.struct_size = sizeof stats;
    ASSERT_OK(stemma_cache_stats(c_, &stats));
    ASSERT_EQ(say_cache_stats(stats), say_cache_stats(cpp_->stats()));
  }
  while (!requests_.empty()) end(requests_.size() - 1);
  ASSERT_OK(stemma_cache_check_invariants(c_));
  ASSERT_OK(stemma_cache_destroy(c_, STEMMA_ON_BUSY_REFUSE));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SameAnswers, ::testing::Range(1U, 7U));

}  // namespace
}  // namespace stemma::test
