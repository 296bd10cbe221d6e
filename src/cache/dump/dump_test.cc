// The index as bytes and back, through PagedCache. docs/formats/index-dump.md draws the layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "key/sha256.h"
#include "stemma/cache.h"
#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kChecksum = 32;

// Corrects the checksum after the contents were changed.
Bytes sealed(Bytes bytes) {
  bytes.resize(bytes.size() - kChecksum);
  const key::Digest digest = key::sha256(bytes);
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}
size_t head_bytes(const Options& options) { return 8 + 4 + 8 + options.groups.size() * 17; }

struct Kind {
  std::string name;
  Options options;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  const auto add = [&](std::string name, std::vector<GroupOptions> groups) {
    Options options = grouped(std::move(groups));
    options.logits_bytes = 100'000;
    all.push_back({std::move(name), std::move(options)});
  };
  add("Full", {full(200, 4)});
  add("OneToken", {full(600, 1)});
  add("Windows", {full(200, 4), window(10, 150, 4, 3)});
  add("LargerBlocks", {full(200, 4), full(80, 16), window(9, 100, 8)});
  add("OnlyAWindow", {window(7, 300, 4, 4)});
  add("Recurrent", {full(200, 4), recurrent(40)});
  add("OnlyRecurrent", {recurrent(40)});
  add("Everything", {full(80, 16), window(10, 200, 4), recurrent(30)});
  all.push_back(all.back());
  all.back().name = "EverythingWithEventsAndQuotas";
  all.back().options.event_capacity = 50;
  all.back().options.quotas = {{TenantId{1}, 1'000'000}, {TenantId{2}, 1'000'000}};
  return all;
}

class Dump : public PagedFixture, public ::testing::WithParamInterface<Kind> {
 protected:
  struct Request {
    uint32_t scope;
    Text text;
  };

  static Scope scope_number(uint32_t number) {
    return scope_of({.model = "a model", .caller_namespace = std::to_string(number)});
  }
  // Conversations that share prefixes, with images, tails, checkpoints and logits, in three scopes.
  std::vector<Request> converse(PagedCache& cache, uint32_t seed, uint32_t turns = 12) {
    std::mt19937 random(seed);
    std::vector<Request> requests;
    for (uint32_t turn = 0; turn < turns; ++turn) {
      Request request{static_cast<uint32_t>(random() % 3), {}};
      if (!requests.empty() && random() % 3 != 0) {
        const Text& earlier = requests[random() % requests.size()].text;
        request.text = earlier.first(static_cast<uint32_t>(random() % (earlier.size() + 1)));
      }
      request.text = request.text + tokens(1 + random() % 25, 1 + random() % 3);
      if (random() % 3 == 0) {
        const uint32_t length = 1 + random() % 9;
        request.text = request.text + tokens(length).with(image(random() % 3, 0, length));
      }
      request.text = request.text + tokens(random() % 5, 7);
      LeaseOptions options;
      options.tenant = TenantId{request.scope};
      Lease lease = ok(cache.lease(scope_number(request.scope), request.text, options));
      if (!lease.copies().empty()) ok(lease.copies_done());
      const uint32_t middle = lease.committed() + (lease.length() - lease.committed()) / 2;
      for (const uint32_t n : {middle, lease.length()}) {
        ok(lease.commit(n));
        for (GroupIndex g = 0; g < GetParam().options.groups.size(); ++g) {
          if (GetParam().options.groups[g].attention != Attention::recurrent || n == 0) continue;
          (void)lease.draft_checkpoint(g);      // Still drafted if the middle was
          (void)lease.commit_checkpoint(g, n);  // inside an image.
        }
        const std::vector<float> logits(1 + random() % 3, static_cast<float>(turn) + 0.5F);
        if (random() % 2 == 0) (void)lease.attach_logits(n, logits);
      }
      clock.advance_ns(10);
      ok(lease.release());
      requests.push_back(std::move(request));
    }
    cache.check_invariants();
    return requests;
  }
  // Everything a request would see: the report, the shared blocks, the copies, the logits.
  static bool one_cell_blocks(GroupIndex g) {
    uint32_t least = 1024;
    for (const GroupOptions& group : GetParam().options.groups) {
      if (group.attention != Attention::recurrent) least = std::min(least, group.block_tokens);
    }
    return GetParam().options.groups[g].block_tokens == least;
  }
  static std::string answer(PagedCache& cache, const Request& request, bool want_logits) {
    LeaseOptions options;
    options.tenant = TenantId{request.scope};
    options.lookup.want_logits = want_logits;
    Lease lease = ok(cache.lease(scope_number(request.scope), request.text, options));
    const Report report = lease.report();
    std::string out = std::to_string(report.matched_tokens) + " matched, " +
                      std::to_string(report.reused_tokens) + " reused, reason " +
                      std::to_string(static_cast<int>(report.reason)) + "\n";
    const Stats stats = cache.stats();
    for (GroupIndex g = 0; g < stats.group_count; ++g) {
      if (lease.block_count(g) == 0) continue;
      const std::vector<BlockId> blocks = blocks_of(lease, g);
      const uint32_t tokens_a_block = lease.capacity() / lease.block_count(g);
      for (uint32_t i = 0; i < report.reused_tokens / std::max(tokens_a_block, 1U); ++i) {
        out += std::to_string(to_index(blocks[i])) + " ";
      }
    }
    // If several larger blocks begin with the same words, any of them may be the source.
    for (const BlockCopy& copy : lease.copies()) {
      out += " copy " + std::to_string(copy.tokens) + " in group " + std::to_string(copy.group);
      if (copy.target == kNoBlock || one_cell_blocks(copy.group)) {
        out += " from " + std::to_string(to_index(copy.source));
      }
    }
    for (float value : lease.logits()) out += " logit " + std::to_string(value);
    ok(lease.abandon());
    return out;
  }
  bool is_empty(const PagedCache& cache) const {
    const Stats stats = cache.stats();
    for (uint32_t g = 0; g < stats.group_count; ++g) {
      if (stats.groups[g].free_blocks != stats.groups[g].capacity_blocks) return false;
    }
    return stats.scopes == 0 && stats.logits_bytes == 0;
  }
  // A cache of this kind for short use.
  PagedCache fresh() const {
    Options options = GetParam().options;
    options.clock = &clock;
    return ok(PagedCache::create(options));
  }
};

TEST_P(Dump, LoadedCacheGivesTheSameAnswersWithTheSameBlocks) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    PagedCache& cache = cache_with(GetParam().options);
    const std::vector<Request> requests = converse(cache, seed);
    PagedCache& loaded = cache_with(GetParam().options);
    ok(loaded.load(cache.dump()));
    loaded.check_invariants();
    for (GroupIndex g = 0; g < GetParam().options.groups.size(); ++g) {
      EXPECT_EQ(cached_blocks(loaded, g), cached_blocks(cache, g)) << "group " << g;
    }
    EXPECT_EQ(loaded.stats().scopes, cache.stats().scopes);
    EXPECT_EQ(loaded.stats().checkpoints, cache.stats().checkpoints);
    EXPECT_EQ(loaded.stats().logits_bytes, cache.stats().logits_bytes);
    for (uint32_t t = 0; t < 3; ++t) {
      EXPECT_EQ(loaded.tenant_bytes(TenantId{t}), cache.tenant_bytes(TenantId{t}));
    }
    for (Request request : requests) {
      for (const bool want_logits : {false, true}) {
        EXPECT_EQ(answer(loaded, request, want_logits), answer(cache, request, want_logits));
      }
      const uint32_t cut = request.text.size() / 2;
      request.text = request.text.first(cut) + tokens(3, 9);
      EXPECT_EQ(answer(loaded, request, false), answer(cache, request, false));
    }
  }
}

TEST_P(Dump, LoadedCacheGoesOnLikeAnyOther) {
  PagedCache& cache = cache_with(GetParam().options);
  converse(cache, 7);
  PagedCache& loaded = cache_with(GetParam().options);
  ok(loaded.load(cache.dump()));
  converse(loaded, 8, 30);
  while (loaded.evict(3) != 0) loaded.check_invariants();
  EXPECT_EQ(code(loaded.reset()), kOk);
  EXPECT_TRUE(is_empty(loaded)) << "what was loaded can all be forgotten again";
  ok(loaded.load(cache.dump()));
}

TEST_P(Dump, SameIndexGivesTheSameBytes) {
  PagedCache& cache = cache_with(GetParam().options);
  converse(cache, 3);
  const Bytes dump = cache.dump();
  EXPECT_EQ(cache.dump(), dump) << "dumping changes nothing";
  PagedCache& loaded = cache_with(GetParam().options);
  ok(loaded.load(dump));
  // The policy of a loaded cache may also hold inner cells; from then on nothing changes.
  const Bytes again = loaded.dump();
  PagedCache& twice = cache_with(GetParam().options);
  ok(twice.load(again));
  EXPECT_EQ(twice.dump(), again);
}

TEST_P(Dump, EmptyCacheMakesAnEmptyDump) {
  PagedCache& cache = cache_with(GetParam().options);
  const Bytes dump = cache.dump();
  EXPECT_EQ(dump.size(), head_bytes(GetParam().options) + 8 + kChecksum);
  PagedCache& loaded = cache_with(GetParam().options);
  ok(loaded.load(dump));
  EXPECT_TRUE(is_empty(loaded));
}

TEST_P(Dump, LeasesAndTheirDraftsStayBehind) {
  PagedCache& cache = cache_with(GetParam().options);
  const std::vector<Request> requests = converse(cache, 4, 4);
  const Bytes before = cache.dump();
  LeaseOptions options;
  options.tenant = TenantId{requests[0].scope};
  Lease lease =
      ok(cache.lease(scope_number(requests[0].scope), requests[0].text + tokens(40, 5), options));
  PagedCache& loaded = cache_with(GetParam().options);
  ok(loaded.load(cache.dump()));
  EXPECT_EQ(loaded.stats().leases, 0U);
  EXPECT_EQ(draft_blocks(loaded), 0U);
  ok(lease.abandon());
  EXPECT_EQ(cache.stats().scopes, loaded.stats().scopes);
}

// ---- What is refused ---------------------------------------------------------------------------

TEST_P(Dump, EveryFlippedByteIsRefused) {
  PagedCache& cache = cache_with(GetParam().options);
  converse(cache, 2, 3);
  const Bytes dump = cache.dump();
  PagedCache& target = cache_with(GetParam().options);
  for (size_t i = 0; i < dump.size(); ++i) {
    for (const uint8_t flip : {0x01, 0x80, 0xFF}) {
      Bytes bad = dump;
      bad[i] = static_cast<uint8_t>(bad[i] ^ flip);
      ASSERT_EQ(code(target.load(bad)), Errc::corrupt) << "byte " << i;
    }
  }
  EXPECT_TRUE(is_empty(target));
  ok(target.load(dump));
}

TEST_P(Dump, EveryTruncationIsRefused) {
  PagedCache& cache = cache_with(GetParam().options);
  converse(cache, 2, 3);
  const Bytes dump = cache.dump();
  PagedCache& target = cache_with(GetParam().options);
  for (size_t size = 0; size < dump.size(); ++size) {
    Bytes bad(dump.begin(), dump.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_EQ(code(target.load(bad)), Errc::corrupt) << size << " bytes";
    // Also if the checksum of the cut dump was made right.
    if (size < 12 + kChecksum) continue;
    const Errc refused = code(target.load(sealed(bad)));
    ASSERT_TRUE(refused == Errc::corrupt || refused == Errc::invalid_argument) << size << " bytes";
    ASSERT_TRUE(is_empty(target)) << size << " bytes";
  }
  Bytes longer = dump;
  longer.insert(longer.end() - kChecksum, 0);
  EXPECT_EQ(code(target.load(sealed(longer))), Errc::corrupt);
  target.check_invariants();
  ok(target.load(dump));
}

TEST_P(Dump, ForgedContentsAreRefusedOrSound) {
  PagedCache& cache = cache_with(GetParam().options);
  const std::vector<Request> requests = converse(cache, 6, 5);
  const Bytes dump = cache.dump();
  const size_t head = head_bytes(GetParam().options);
  std::mt19937 random(99);
  int loads = 0;
  for (int round = 0; round < 1500; ++round) {
    Bytes bad = dump;
    const size_t body = bad.size() - head - kChecksum;
    for (uint32_t change = 0; change <= random() % 3; ++change) {
      const size_t at = head + random() % body;
      switch (random() % 4) {
        case 0: bad[at] = static_cast<uint8_t>(random()); break;
        case 1: bad[at] = static_cast<uint8_t>(bad[at] + (random() % 2 == 0 ? 1 : -1)); break;
        case 2: {  // Another number at a likely place for one.
          const uint32_t value = random() % 2 == 0 ? random() % 20 : random();
          std::memcpy(bad.data() + std::min(head + (at - head) / 4 * 4, bad.size() - kChecksum - 4),
                      &value, 4);
          break;
        }
        default: {  // A piece of the dump in another place.
          const size_t from = head + random() % body;
          const size_t count = std::min({size_t{4} + random() % 60, bad.size() - kChecksum - at,
                                         bad.size() - kChecksum - from});
          std::copy_n(dump.begin() + static_cast<ptrdiff_t>(from), count,
                      bad.begin() + static_cast<ptrdiff_t>(at));
        }
      }
    }
    PagedCache target = fresh();
    const Result<void> loaded = target.load(sealed(bad));
    target.check_invariants();
    if (!loaded) {
      ASSERT_EQ(code(loaded), Errc::corrupt) << "round " << round;
      ASSERT_TRUE(is_empty(target)) << "round " << round;
      if (round % 10 != 0) continue;
    } else {
      ++loads;
    }
    for (const Request& request : requests) {
      LeaseOptions options;
      options.tenant = TenantId{request.scope};
      Result<Lease> lease = target.lease(scope_number(request.scope), request.text, options);
      if (!lease) continue;  // The forger gave the scope to another tenant.
      compute(*lease);
      target.check_invariants();
    }
    target.check_invariants();
    ASSERT_EQ(code(target.reset()), kOk);
    ASSERT_TRUE(is_empty(target)) << "round " << round;
  }
  EXPECT_GT(loads, 10) << "some changes make another, sound index";
}

INSTANTIATE_TEST_SUITE_P(Kinds, Dump, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

// ---- One cache ---------------------------------------------------------------------------------

class DumpRules : public PagedFixture {
 protected:
  Bytes dump_of(const Options& options) {
    PagedCache& cache = cache_with(options);
    fill(cache, tokens(20));
    return cache.dump();
  }
};

TEST_F(DumpRules, OnlyAnEmptyCacheLoads) {
  const Bytes dump = dump_of(grouped({full(10, 4)}));
  PagedCache& cache = cache_with(grouped({full(10, 4)}));
  {
    Lease lease = take(cache, tokens(3));
    EXPECT_EQ(code(cache.load(dump)), Errc::wrong_state) << "a lease is alive";
  }
  fill(cache, tokens(8, 2));
  const std::string before = books(cache);
  EXPECT_EQ(code(cache.load(dump)), Errc::wrong_state);
  EXPECT_EQ(books(cache), before);
  EXPECT_EQ(kept(cache, tokens(8, 2)), 8U) << "nothing changed";
  ok(cache.reset());
  ok(cache.load(dump));
  EXPECT_EQ(kept(cache, tokens(20)), 20U);
}

TEST_F(DumpRules, OnlyAnEqualCacheLoads) {
  const Bytes dump = dump_of(grouped({full(10, 4), window(8, 9, 4, 2)}));
  const std::vector<std::vector<GroupOptions>> others = {
      {full(10, 4)},
      {full(11, 4), window(8, 9, 4, 2)},
      {full(10, 8), window(8, 9, 8, 2)},
      {full(10, 4), window(9, 9, 4, 2)},
      {full(10, 4), window(8, 8, 4, 2)},
      {full(10, 4), window(8, 9, 8, 2)},
      {full(10, 4), window(8, 9, 4, 1)},
      {full(10, 4), full(9, 4)},
      {full(10, 4), recurrent(9)},
      {full(10, 4), window(8, 9, 4, 2), window(8, 9, 4, 2)},
      {window(8, 9, 4, 2), full(10, 4)},
  };
  for (const auto& groups : others) {
    PagedCache& other = cache_with(grouped(groups));
    EXPECT_EQ(code(other.load(dump)), Errc::invalid_argument);
    other.check_invariants();
  }
}

TEST_F(DumpRules, DumpOfMoreCellsThanThereAreIsRefused) {
  Options options = grouped({window(4, 6000, 1)});
  PagedCache& cache = cache_with(options);
  fill(cache, tokens(5000));
  options.index_cells = 1;
  PagedCache& small = cache_with(options);
  EXPECT_EQ(code(small.load(cache.dump())), Errc::corrupt);
  EXPECT_EQ(free_blocks(small), 6000U) << "nothing of it was kept";
  ok(small.load(cache_with(options).dump()));
}

TEST_F(DumpRules, OtherVersionsAreRefusedByNumber) {
  Bytes dump = dump_of(grouped({full(10, 4)}));
  dump[8] = 2;
  PagedCache& cache = cache_with(grouped({full(10, 4)}));
  const Result<void> loaded = cache.load(sealed(dump));
  EXPECT_EQ(code(loaded), Errc::corrupt);
  EXPECT_EQ(loaded.error().value(), 2U);
}

TEST_F(DumpRules, DroppedScopesAndCutBranchesStayBehind) {
  PagedCache& cache = cache_with(grouped({full(20, 4)}));
  const Scope other = scope_of({.model = "another"});
  fill(cache, tokens(20));
  fill(cache, other, tokens(20));
  Lease reader = take(cache, tokens(20));
  ok(cache.truncate(scope, tokens(20), 8));
  Lease other_reader = ok(cache.lease(other, tokens(20)));
  cache.drop_scope(other);
  PagedCache& loaded = cache_with(grouped({full(20, 4)}));
  ok(loaded.load(cache.dump()));
  EXPECT_EQ(kept(loaded, tokens(20)), 8U);
  EXPECT_EQ(hit(loaded, other, tokens(20)), 0U);
  EXPECT_EQ(cached_blocks(loaded), 2U);
}

TEST_F(DumpRules, LogitsThatDoNotFitAreLeftOut) {
  Options options = grouped({full(20, 4)});
  options.logits_bytes = 10'000;
  PagedCache& cache = cache_with(options);
  {
    Lease lease = take(cache, tokens(8));
    compute(lease);
    ok(lease.attach_logits(8, std::vector<float>(500, 1.0F)));
  }
  options.logits_bytes = 100;
  PagedCache& small = cache_with(options);
  ok(small.load(cache.dump()));
  EXPECT_EQ(kept(small, tokens(8)), 8U);
  EXPECT_EQ(small.stats().logits_bytes, 0U);
}

TEST_F(DumpRules, ContentKeysAreMadeAnew) {
  Options options = grouped({full(40, 4)});
  PagedCache& cache = cache_with(options);
  const Text text = tokens(6) + tokens(11).with(image(3, 0, 11)) + tokens(6, 2);
  fill(cache, text);
  options.event_capacity = 20;
  PagedCache& keyed = cache_with(options);
  fill(keyed, text);
  PagedCache& loaded = cache_with(options);
  ok(loaded.load(cache.dump()));
  const EventDump expected = keyed.event_dump();
  const EventDump found = loaded.event_dump();
  ASSERT_EQ(found.events.size(), expected.events.size());
  for (size_t i = 0; i < found.events.size(); ++i) {
    EXPECT_EQ(found.events[i].keys, expected.events[i].keys) << "an image over three blocks";
  }
  std::vector<Event> events;
  loaded.events(0, 100, events);
  EXPECT_FALSE(events.empty()) << "observers hear of what was loaded";
}

TEST_F(DumpRules, EveryByteIsWhereTheDocumentSays) {
  PagedCache& cache = cache_with(grouped({full(10, 2), recurrent(4)}));
  Text text = of({5, 6, 7});
  text = text + tokens(1).with(image(0xAB, 0, 1));
  {
    Lease lease = take(cache, text);
    ok(lease.commit(3));
    ok(lease.draft_checkpoint(1));
    ok(lease.commit_checkpoint(1, 3));
    ok(lease.commit(4));
  }
  Bytes expected;
  const auto u8 = [&](uint32_t value) { expected.push_back(static_cast<uint8_t>(value)); };
  const auto u32 = [&](std::initializer_list<uint32_t> values) {
    for (uint32_t value : values) {
      for (int i = 0; i < 4; ++i) u8(value >> (8 * i));
    }
  };
  for (char letter : std::string("STEMMAIX")) u8(static_cast<uint8_t>(letter));
  u32({1});                   // Version.
  u32({2, 2});                // Words a cell, groups.
  u8(0), u32({2, 10, 0, 0});  // Full: block_tokens, capacity, window, sinks.
  u8(2), u32({16, 4, 0, 0});  // Recurrent.
  u32({1});                   // Scopes.
  for (uint8_t byte : scope.digest()) u8(byte);
  u32({0});                // Tenant.
  u32({1});                // Media items:
  u8(1), u8(0), u32({1});  // an image, not causal, one position,
  for (int i = 0; i < 16; ++i) u8(0xAB);
  u32({2});                              // Cells:
  u32({0, 0, 2, 5, 6, 0, 0});            // below the root, block 0, two words; no slot, no logits
  u32({1, 1, 2, 7, 0x8000'0000, 0, 0});  // below the first, block 1, a token and media item 0.
  u32({1});                              // Inner anchors:
  u32({1, 1, 7, 1, 0});  // below the first cell, one word, slot 0 plus one, no logits.
  u32({1, 1});           // In order of eviction: one, the second cell.
  const key::Digest digest = key::sha256(expected);
  expected.insert(expected.end(), digest.begin(), digest.end());
  EXPECT_EQ(cache.dump(), expected);
}

}  // namespace
}  // namespace stemma::test
