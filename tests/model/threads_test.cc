// Eight threads over one small cache: lookups, leases, forks, releases on other threads, pins,
// truncates and evictions on prompts that share most of their blocks, while a fake engine checks
// every block that anybody reuses.
//
// A run that happens to take turns proves nothing, so overlaps are counted: an operation overlaps
// when another thread is inside the cache at its entry or exit.
//
//   STEMMA_THREADS_SECONDS=s   how long each test goes on (6; under a sanitizer 3); more if overlaps
//                              are still missing
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/world.h"
#include "stemma/cache.h"
#include "support/fake_engine.h"

namespace stemma::test {
namespace {

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

constexpr uint32_t kThreads = 8;
constexpr uint64_t kOverlapsWanted = 10'000;
constexpr double kSecondsAtMost = 150;

double seconds_wanted() {
  const char* text = std::getenv("STEMMA_THREADS_SECONDS");
  return text != nullptr ? std::atof(text) : kSanitized ? 3.0 : 6.0;
}

Scope scope_named(const std::string& name) {
  return Scope::make({.model = "threads", .caller_namespace = name}).value();
}

// The threads inside the cache now, and how often a thread was not alone there.
class Overlaps {
 public:
  enum class Kind : uint8_t { reader, writer };

  class Inside {
   public:
    Inside(Overlaps& all, Kind kind) : all_(all), kind_(kind) {
      all_.inside_[index(kind_)].fetch_add(1);
      look();
    }
    ~Inside() {
      look();
      all_.inside_[index(kind_)].fetch_sub(1);
      if (met_anybody_) all_.overlaps_.fetch_add(1, std::memory_order_relaxed);
      if (met_writer_ && kind_ == Kind::reader) {
        all_.readers_with_writers_.fetch_add(1, std::memory_order_relaxed);
      }
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    static size_t index(Kind kind) { return static_cast<size_t>(kind); }
    void look() {
      const uint32_t readers = all_.inside_[index(Kind::reader)].load();
      const uint32_t writers = all_.inside_[index(Kind::writer)].load();
      met_anybody_ |= readers + writers > 1;
      met_writer_ |= writers > (kind_ == Kind::writer ? 1U : 0U);
    }

    Overlaps& all_;
    Kind kind_;
    bool met_anybody_ = false;
    bool met_writer_ = false;
  };

  uint64_t overlaps() const { return overlaps_.load(); }
  uint64_t readers_with_writers() const { return readers_with_writers_.load(); }

 private:
  std::atomic<uint32_t> inside_[2]{};
  std::atomic<uint64_t> overlaps_{0};
  std::atomic<uint64_t> readers_with_writers_{0};
};

// A request between its operations. Some change hands: a lease may end on any thread.
struct Request {
  Lease lease;
  Text text;
  Story story;
  bool loaded = false;  // Copies are done.
};

class Storm {
 public:
  explicit Storm(const Options& options)
      : options_(with_engine(options)), cache_(PagedCache::create(options_).value()) {
    scopes_.push_back(scope_named("a"));
    scopes_.push_back(scope_named("b"));
  }

  void run() {
    const SteadyClock::time_point begin = SteadyClock::now();
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) threads.emplace_back([this, t] { work(t + 1); });
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const double seconds = Seconds(SteadyClock::now() - begin).count();
      const bool enough = seconds >= seconds_wanted() && overlaps_.overlaps() >= kOverlapsWanted &&
                          overlaps_.readers_with_writers() >= kOverlapsWanted / 10;
      if (enough || seconds > kSecondsAtMost || failed_.load()) break;
    }
    stop_.store(true);
    threads.clear();
  }

  void check_the_end() {
    ASSERT_EQ(failure_, "");
    handed_over_.clear();
    for (auto& fence : fences_) fence->signal();
    cache_.poll();
    cache_.check_invariants();
    EXPECT_EQ(cache_.stats().leases, 0U);
    ASSERT_TRUE(cache_.reset());
    const Stats stats = cache_.stats();
    for (GroupIndex g = 0; g < stats.group_count; ++g) {
      EXPECT_EQ(stats.groups[g].free_blocks, stats.groups[g].capacity_blocks) << "group " << g;
    }
    cache_.check_invariants();
    std::printf(
        "operations %llu, reused %llu tokens, copied %llu, evicted %llu, duplicates %llu, orphans "
        "%llu, stale walks %llu\noverlaps %llu, readers meeting writers %llu\n",
        as_printed(operations_.load()), as_printed(stats.total.reused_tokens),
        as_printed(stats.total.copied_tokens), as_printed(stats.evicted_blocks),
        as_printed(stats.duplicate_blocks), as_printed(stats.orphaned_blocks),
        as_printed(stats.stale_walks), as_printed(overlaps_.overlaps()),
        as_printed(overlaps_.readers_with_writers()));
    EXPECT_GE(overlaps_.overlaps(), kOverlapsWanted);
    EXPECT_GE(overlaps_.readers_with_writers(), kOverlapsWanted / 10);
    EXPECT_GT(stats.total.reused_tokens, 0U);
    EXPECT_GT(stats.evicted_blocks, 0U);
  }

 private:
  using Kind = Overlaps::Kind;

  static unsigned long long as_printed(uint64_t value) { return value; }

  Options with_engine(Options options) {
    engine_ = std::make_unique<FakeEngine>(options.groups);
    engine_->set_mode(FakeEngine::Mode::deferred);
    options.block_io = engine_.get();
    return options;
  }

  // One line per failure; the first one is what matters.
  bool expect(bool truth, const std::string& what) {
    if (truth) return true;
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = what;
    failed_.store(true);
    return false;
  }
  bool expect_nothing_wrong(const std::string& wrong) { return expect(wrong.empty(), wrong); }

  void work(uint64_t seed) {
    Random random(seed);
    // Every thread's author has the same letters, so that threads write the same prompts.
    Random letters(42);
    Author author({.block_tokens = cell_tokens(),
                   .letters = 3,
                   .longest_tokens = cell_tokens() * 48,
                   .media_percent = 3,
                   .long_percent = 50},
                  letters);
    while (!stop_.load(std::memory_order_relaxed)) {
      operations_.fetch_add(1, std::memory_order_relaxed);
      const uint32_t scope = random.chance(85) ? 0 : 1;
      for (uint32_t skip = random.below(4); skip > 0; --skip) author.write();
      const Text text = author.write();
      const uint32_t dice = random.below(100);
      if (dice < 30) {
        look(scope, text);
      } else if (dice < 86) {
        request(random, scope, text, author);
      } else if (dice < 92) {
        end_somebody_elses(random);
      } else {
        interfere(random, scope, text);
      }
    }
  }

  void look(uint32_t scope, const Text& text) {
    const Overlaps::Inside inside(overlaps_, Kind::reader);
    for (uint32_t i = 0; i < 4; ++i) {
      const Result<Report> report = cache_.lookup(scopes_[scope], text.prompt());
      expect(report.has_value(), "lookup failed");
      if (report) expect(report->reused_tokens < text.size(), "a lookup left nothing to evaluate");
    }
  }

  // The whole road of a request, verifying at every stop.
  void request(Random& random, uint32_t scope, const Text& text, Author& author) {
    Request r{.lease = {}, .text = text, .story = Story(scope, text.prompt())};
    {
      const Overlaps::Inside inside(overlaps_, Kind::writer);
      Result<Lease> lease = cache_.lease(scopes_[scope], r.text.prompt());
      if (!lease) {
        expect(lease.error().code() == Errc::out_of_blocks, lease.error().to_string());
        return;
      }
      r.lease = *std::move(lease);
    }
    engine_->poison(r.lease, r.lease.reused());
    if (!load(random, r)) return;
    if (!expect_nothing_wrong(engine_->verify(r.lease, r.story, r.lease.reused()))) return;

    // Prefill in chunks, then some tokens of an answer.
    while (r.lease.committed() < r.lease.length()) {
      const uint32_t left = r.lease.length() - r.lease.committed();
      if (!advance(r, r.lease.committed() + (random.chance(50) ? left : random.between(1, left)))) {
        return;
      }
    }
    if (random.chance(50)) {
      const std::vector<Token> answer = author.some_tokens(random.between(1, 2 * cell_tokens()));
      if (!extend(r, answer)) return;
      if (r.lease.committed() < r.lease.length() && !advance(r, r.lease.length())) return;
    }
    if (random.chance(20)) fork(random, r, author);
    if (random.chance(15)) rewind(random, r);
    if (!expect_nothing_wrong(engine_->verify(r.lease, r.story, r.lease.committed()))) return;
    finish(random, std::move(r));
  }

  bool load(Random& random, Request& r) {
    if (r.lease.copies().empty()) return true;
    const bool by_io = random.chance(20);
    if (!by_io || has_recurrent()) {
      if (!expect_nothing_wrong(engine_->load(r.lease.copies(), r.story, r.lease.reused()))) {
        return false;
      }
      const Overlaps::Inside inside(overlaps_, Kind::writer);
      return expect(r.lease.copies_done().has_value(), "copies_done failed");
    }
    const Overlaps::Inside inside(overlaps_, Kind::writer);
    return expect(r.lease.run_copies().has_value(), "run_copies failed");
  }

  bool advance(Request& r, uint32_t n) {
    engine_->compute(r.lease, r.lease.committed(), n, r.story);
    if (!expect_nothing_wrong(engine_->verify(r.lease, r.story, n))) return false;
    const Overlaps::Inside inside(overlaps_, Kind::writer);
    return expect(r.lease.commit(n).has_value(), "commit failed");
  }

  bool extend(Request& r, std::span<const Token> tokens) {
    const FakeEngine::Tables before = engine_->tables(r.lease);
    {
      const Overlaps::Inside inside(overlaps_, Kind::writer);
      const Result<void> extended = r.lease.extend(tokens);
      if (!extended) {
        return expect(extended.error().code() == Errc::out_of_blocks, extended.error().to_string());
      }
    }
    r.story.append(tokens);
    engine_->poison_new(r.lease, before);
    return true;
  }

  void fork(Random& random, Request& r, Author& author) {
    Request twin{.lease = {}, .text = r.text, .story = r.story};
    {
      const Overlaps::Inside inside(overlaps_, Kind::writer);
      Result<Lease> lease = r.lease.fork();
      if (!lease) {
        expect(lease.error().code() == Errc::out_of_blocks, lease.error().to_string());
        return;
      }
      twin.lease = *std::move(lease);
    }
    twin.story.cut(twin.lease.length());
    for (const BlockCopy& copy : twin.lease.copies()) {
      if (copy.target != kNoBlock) engine_->poison_block(copy.group, copy.target);
    }
    if (!load(random, twin)) return;
    if (!expect_nothing_wrong(engine_->verify(twin.lease, twin.story, twin.lease.committed()))) {
      return;
    }
    if (!extend(twin, author.some_tokens(random.between(1, cell_tokens())))) return;
    if (twin.lease.committed() < twin.lease.length() && !advance(twin, twin.lease.length())) return;
    finish(random, std::move(twin));
  }

  void rewind(Random& random, Request& r) {
    const uint32_t n = r.story.floor(random.below(r.lease.length() + 1));
    const FakeEngine::Tables before = engine_->tables(r.lease);
    {
      const Overlaps::Inside inside(overlaps_, Kind::writer);
      const Result<void> rewound = r.lease.rewind(n);
      if (!rewound) {
        // A window that moved on cannot go back, and there may be no block for the copy.
        const Errc code = rewound.error().code();
        expect(code == Errc::out_of_range || code == Errc::out_of_blocks || code == Errc::busy,
               rewound.error().to_string());
        return;
      }
    }
    r.story.cut(n);
    engine_->poison_new(r.lease, before);
    if (load(random, r)) expect_nothing_wrong(engine_->verify(r.lease, r.story, n));
  }

  void finish(Random& random, Request r) {
    if (random.chance(25)) {  // Held for a while, checked again and ended by whoever comes by.
      const std::lock_guard lock(mutex_);
      if (handed_over_.size() < kThreads) {
        handed_over_.push_back(std::move(r));
        return;
      }
    }
    ManualFence* fence = nullptr;
    if (random.chance(10)) {
      const std::lock_guard lock(mutex_);
      fences_.push_back(std::make_unique<ManualFence>());
      fence = fences_.back().get();
    }
    const Overlaps::Inside inside(overlaps_, Kind::writer);
    const bool ended = random.chance(80) ? r.lease.release({.fence = fence}).has_value()
                                         : r.lease.abandon(fence).has_value();
    expect(ended, "release failed");
    if (fence != nullptr) fence->signal();
    if (fence != nullptr && random.chance(50)) cache_.poll();
  }

  void end_somebody_elses(Random& random) {
    Request r;
    {
      const std::lock_guard lock(mutex_);
      if (handed_over_.empty()) return;
      const size_t i = random.below(static_cast<uint32_t>(handed_over_.size()));
      r = std::move(handed_over_[i]);
      handed_over_.erase(handed_over_.begin() + static_cast<ptrdiff_t>(i));
    }
    expect_nothing_wrong(engine_->verify(r.lease, r.story, r.lease.committed()));
    const Overlaps::Inside inside(overlaps_, Kind::writer);
    r.lease = Lease();
  }

  void interfere(Random& random, uint32_t scope, const Text& text) {
    const Overlaps::Inside inside(overlaps_, Kind::writer);
    switch (random.below(6)) {
      case 0:
        expect(
            cache_.truncate(scopes_[scope], text.prompt(), random.below(text.size())).has_value(),
            "truncate failed");
        break;
      case 1: cache_.evict(random.between(1, 4)); break;
      case 2:
        if (auto pin = cache_.pin(scopes_[scope], text.prompt(), 100'000)) {
          if (random.chance(50)) (void)cache_.unpin(pin->id);
        }
        break;
      case 3:
        if (random.chance(5)) cache_.drop_scope(scopes_[1]);
        break;
      case 4:
        if (random.chance(2)) expect(cache_.reset(OnBusy::defer).has_value(), "reset failed");
        break;
      default: cache_.stats(); break;
    }
  }

  uint32_t cell_tokens() const { return options_.groups[0].block_tokens; }
  bool has_recurrent() const { return options_.groups.back().attention == Attention::recurrent; }

  std::unique_ptr<FakeEngine> engine_;  // First: with_engine() fills it.
  Options options_;
  std::vector<std::unique_ptr<ManualFence>> fences_;  // Guarded by mutex_; outlive the cache.
  PagedCache cache_;
  std::vector<Scope> scopes_;
  Overlaps overlaps_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> operations_{0};
  std::mutex mutex_;
  std::vector<Request> handed_over_;  // Guarded by mutex_.
  std::string failure_;               // Guarded by mutex_.
};

TEST(Threads, ConcurrentUseNeverServesAWrongBlock) {
  Storm storm({.groups = {{.block_tokens = 4, .capacity_blocks = 320, .block_bytes = 64}}});
  storm.run();
  storm.check_the_end();
}

TEST(Threads, ConcurrentUseOfWindowGroupsNeverServesAWrongBlock) {
  Storm storm({.groups = {{.block_tokens = 4, .capacity_blocks = 320, .block_bytes = 64},
                          {.attention = Attention::window,
                           .block_tokens = 8,
                           .capacity_blocks = 120,
                           .window_tokens = 20,
                           .sink_tokens = 4,
                           .block_bytes = 64}}});
  storm.run();
  storm.check_the_end();
}

}  // namespace
}  // namespace stemma::test
