// Do readers get in each other's way, or in a writer's?
//
// A reader finds, pins and releases one cached prompt of 32k tokens, over and over; readers share
// the first half of their prompts. The writer inserts 64 new blocks every 50 us into a full pool,
// so each of them evicts; when it is late it catches up, and its rate shows whether it could. Short
// windows with one reader and with several alternate. Two readers are compared with the mean of one
// alone on the first core and one alone on the second, because virtual cores are not equally fast.
// A second figure has two readers with a cache each: it shows the machine's own share. These rows
// need a free core for each thread. A window in which a thread had to wait for a core says nothing
// about the cache and is left out, as long as enough windows remain. (The kernel counts that time;
// it does not count waiting for a lock.)
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <thread>

#include "bench/hit_pool.h"
#include "bench/micro/areas.h"

namespace stemma::bench {
namespace {

constexpr uint32_t kArenaBlocks = 65'536;
constexpr uint32_t kWriteBlocks = 64;
constexpr uint64_t kWriteEveryNs = 50'000;
constexpr double kWindowSeconds = 0.02;

// Binds this thread to the n-th core that this process may use: short windows end before the kernel
// has spread new threads.
void settle_on_core(uint32_t n) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const auto cores = static_cast<uint32_t>(CPU_COUNT(&allowed));
  uint32_t left = cores == 0 ? 0 : n % cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || left-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

// Prompts of 64 blocks, each different from all before from its first token on.
class NewPrompts {
 public:
  explicit NewPrompts(uint64_t seed) : rng_(seed) {
    append_random(tokens_, kWriteBlocks * kBlockTokens, rng_);
  }
  const Tokens& next() {
    ++serial_;
    for (uint32_t i = 0; i < kWriteBlocks; ++i) tokens_[i * kBlockTokens] = (1U << 30) + serial_;
    return tokens_;
  }

 private:
  Rng rng_;
  Tokens tokens_;
  uint32_t serial_ = 0;
};

struct Window {
  double lookups_per_second = 0;  // All readers together.
  double writer_rate = 0;         // Over the wanted rate.
  double waited = 0;              // The share of time in which some thread had no core.

  bool undisturbed() const noexcept { return waited < 0.03; }
};

class Arena {
 public:
  explicit Arena(uint32_t readers) : cache_(make_cache(kArenaBlocks)) {
    Rng rng(2);
    constexpr uint32_t kHalf = HitPool::kPathTokens / 2;
    const Tokens common = random_tokens(kHalf, rng);
    for (uint32_t i = 0; i < readers; ++i) {
      Tokens prompt = common;
      append_random(prompt, kHalf + 1, rng);
      prompts_.push_back(std::move(prompt));
    }
    while (cache_.stats().evicted_blocks < 2 * kWriteBlocks) insert(cache_, new_prompts_.next());
    insert(other_, std::span(prompts_.back()).first(prompts_.back().size() - 1));
  }

  struct Setting {
    uint32_t readers = 1;
    bool writer = false;
    bool apart = false;       // The last reader has a cache of its own.
    uint32_t first_core = 0;  // Readers, then the writer, from this core on.
  };
  // Runs readers, and the writer if so wanted, side by side for a while.
  Window run(const Setting& setting) {
    const auto [readers, writer, apart, first_core] = setting;
    bring_back();
    stop_ = false;
    ready_ = 0;
    failed_ = false;
    failure_ = nullptr;
    std::vector<Reader> results(readers);
    Window window;
    {
      const uint32_t all = readers + (writer ? 1 : 0);
      std::vector<std::jthread> threads;
      for (uint32_t i = 0; i < readers; ++i) {
        PagedCache& cache = apart && i + 1 == readers ? other_ : cache_;
        const Tokens& prompt = apart && i + 1 == readers ? prompts_.back() : prompts_[i];
        threads.emplace_back([&, core = first_core + i, result = &results[i]] {
          guarded(core, [&] { read(cache, prompt, all, *result); });
        });
      }
      if (writer) {
        threads.emplace_back(
            [&, core = first_core + readers] { guarded(core, [&] { write(all, window); }); });
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(kWindowSeconds));
      stop_ = true;
    }
    if (failure_) std::rethrow_exception(failure_);
    for (const Reader& reader : results) {
      window.lookups_per_second += static_cast<double>(reader.lookups) / reader.seconds;
      window.waited = std::max(window.waited, reader.waited_seconds / reader.seconds);
    }
    return window;
  }

  PagedCache& cache() noexcept { return cache_; }

 private:
  struct Reader {
    uint64_t lookups = 0;
    double seconds = 0, waited_seconds = 0;
  };

  // A writer pushes out prompts that nobody reads meanwhile.
  void bring_back() {
    for (const Tokens& prompt : prompts_) {
      const auto found = must(cache_.lookup(bench_scope(), {.tokens = prompt}), "lookup");
      if (found.reused_tokens + 1 < prompt.size()) {
        insert(cache_, std::span(prompt).first(prompt.size() - 1));
      }
    }
    for (const Tokens& prompt : prompts_) pin_and_release(cache_, prompt);
  }

  template <class Body>
  void guarded(uint32_t core, Body&& body) noexcept {
    settle_on_core(core);
    try {
      body();
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  void wait_for_all(uint32_t threads) {
    ++ready_;
    while (ready_ < threads && !stop_) {
    }
  }

  void read(PagedCache& cache, const Tokens& prompt, uint32_t threads, Reader& out) {
    wait_for_all(threads);
    uint64_t lookups = 0;
    const double waited = waited_seconds();
    const uint64_t begin = now_ns();
    while (!stop_.load(std::memory_order_relaxed)) {
      pin_and_release(cache, prompt);
      ++lookups;
    }
    out.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    out.waited_seconds = waited_seconds() - waited;
    out.lookups = lookups;
  }

  void write(uint32_t threads, Window& out) {
    wait_for_all(threads);
    const double waited = waited_seconds();
    const uint64_t begin = now_ns();
    uint64_t due = begin;
    uint64_t writes = 0;
    while (!stop_.load(std::memory_order_relaxed)) {
      if (now_ns() < due) continue;
      due += kWriteEveryNs;
      const Tokens& tokens = new_prompts_.next();
      Result<Lease> lease = cache_.lease(bench_scope(), {.tokens = tokens}, insert_options());
      require(lease && lease->reused() == 0, "a new prompt was refused, or found");
      const Result<Commit> commit = lease->commit(static_cast<uint32_t>(tokens.size()));
      require(commit && commit->published == kWriteBlocks, "not every new block was published");
      keep(lease->release());
      ++writes;
    }
    const auto elapsed = static_cast<double>(now_ns() - begin);
    out.writer_rate = static_cast<double>(writes) / (elapsed / kWriteEveryNs);
    out.waited = (waited_seconds() - waited) / (elapsed * 1e-9);
  }

  PagedCache cache_;
  PagedCache other_ = make_cache(kArenaBlocks);
  NewPrompts new_prompts_{3};
  std::vector<Tokens> prompts_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> ready_{0};
  std::exception_ptr failure_;
};

// Measures rounds of windows until enough were undisturbed or the time is up. Rounds are kept if
// all their windows were undisturbed, or all rounds if too few were.
class Rounds {
 public:
  explicit Rounds(const Settings& settings)
      : enough_(settings.quick ? 10 : 60),
        give_up_ns_(now_ns() + (settings.quick ? 2 : 15) * kSecond) {}

  bool more() const { return undisturbed_.size() < enough_ && now_ns() < give_up_ns_; }
  void add(std::vector<Window> round) {
    const bool clean = std::all_of(round.begin(), round.end(),
                                   [](const Window& window) { return window.undisturbed(); });
    if (clean) undisturbed_.push_back(round);
    all_.push_back(std::move(round));
  }
  // The median over rounds of `figure`.
  template <class Figure>
  double median(Figure&& figure) const {
    Samples samples;
    for (const auto& round : kept()) samples.add(figure(round));
    return samples.median();
  }
  std::string note() const {
    std::string text = format("%zu of %zu rounds undisturbed", undisturbed_.size(), all_.size());
    if (&kept() == &all_) text += ", so all are used: THE MACHINE IS TOO BUSY FOR THIS ROW";
    return text;
  }

 private:
  static constexpr uint64_t kSecond = 1'000'000'000;
  static constexpr size_t kFewest = 5;
  const std::vector<std::vector<Window>>& kept() const {
    return undisturbed_.size() < kFewest ? all_ : undisturbed_;
  }

  size_t enough_;
  uint64_t give_up_ns_;
  std::vector<std::vector<Window>> undisturbed_, all_;
};

uint32_t core_count() { return static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)); }

void run_together(Sheet& sheet) {
  Arena arena(2);
  Rounds rounds(sheet.settings());
  while (rounds.more()) {
    std::vector<Window> round;
    round.push_back(arena.run({.readers = 1}));
    round.push_back(arena.run({.readers = 1, .writer = true}));
    round.push_back(arena.run({.readers = 2}));
    round.push_back(arena.run({.readers = 2, .apart = true}));
    round.push_back(arena.run({.readers = 1, .first_core = 1}));
    rounds.add(std::move(round));
  }
  const auto speed = [&](size_t which) {
    return rounds.median(
        [&](const std::vector<Window>& round) { return round[which].lookups_per_second; });
  };
  const auto over_alone = [&](size_t which) {
    return rounds.median([&](const std::vector<Window>& round) {
      return round[which].lookups_per_second / round[0].lookups_per_second;
    });
  };
  const auto two_over_one = [&](size_t which) {
    return rounds.median([&](const std::vector<Window>& round) {
      return 2 * round[which].lookups_per_second /
             (round[0].lookups_per_second + round[4].lookups_per_second);
    });
  };
  const double rate =
      rounds.median([](const std::vector<Window>& round) { return round[1].writer_rate; });
  sheet.at_least("reader_beside_writer", over_alone(1), "ratio", 0.8)
      .with_note(format("%.0f k lookups/s beside, %.0f k alone; %llu stale walks; ",
                        speed(1) * 1e-3, speed(0) * 1e-3,
                        static_cast<unsigned long long>(arena.cache().stats().stale_walks)) +
                 rounds.note());
  sheet.at_least("reader_beside_writer_writer_rate", rate, "ratio", 0.95)
      .with_note("of 20,000 times 64 blocks a second");
  sheet.at_least("two_readers_over_one", two_over_one(2), "ratio", 1.7)
      .with_note(format("%.0f k lookups/s together, %.0f k and %.0f k alone; ", speed(2) * 1e-3,
                        speed(0) * 1e-3, speed(4) * 1e-3) +
                 rounds.note());
  sheet.info("two_readers_two_caches_over_one", two_over_one(3), "ratio")
      .with_note("what the machine gives two readers that share nothing");
}

std::vector<uint32_t> reader_counts(const Settings& settings) {
  const uint32_t most = settings.threads != 0 ? settings.threads : core_count();
  std::vector<uint32_t> counts;
  for (const uint32_t count : {1U, 2U, 4U, 8U, 16U}) {
    if (count <= most) counts.push_back(count);
  }
  return counts;
}

std::string count_name(uint32_t count) { return "lookups_per_second_" + std::to_string(count); }

void run_counts(Sheet& sheet) {
  const std::vector<uint32_t> counts = reader_counts(sheet.settings());
  Arena arena(counts.back());
  Rounds rounds(sheet.settings());
  while (rounds.more()) {
    std::vector<Window> round;
    for (const uint32_t count : counts) round.push_back(arena.run({.readers = count}));
    rounds.add(std::move(round));
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    const double speed = rounds.median(
        [&](const std::vector<Window>& round) { return round[i].lookups_per_second; });
    sheet.info(count_name(counts[i]), speed, "lookups/s").with_note(rounds.note());
  }
}

}  // namespace

void add_threads(const Settings& settings, std::vector<Benchmark>& out) {
  out.push_back({{"reader_beside_writer", "reader_beside_writer_writer_rate",
                  "two_readers_over_one", "two_readers_two_caches_over_one"},
                 "How fast is a reader beside a busy writer, and beside another reader?",
                 run_together});
  std::vector<std::string> names;
  for (const uint32_t count : reader_counts(settings)) names.push_back(count_name(count));
  out.push_back(
      {std::move(names), "How many full hits a second do several threads find?", run_counts});
}

}  // namespace stemma::bench
