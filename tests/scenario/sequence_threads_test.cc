// Looking from other threads while the engine's thread works.
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "stemma/log.h"
#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

TEST(SequenceThreads, OthersMayLookWhileTheEngineWorks) {
  for (const EngineOptions& engine : {full_engine(), hybrid_engine(), window_state_engine()}) {
    SequenceOptions options = small_cache();
    options.clock = &Clock::monotonic();  // The rig's own is for one thread.
    SequenceRig rig(engine, options);
    std::atomic<bool> over = false;
    std::atomic<uint64_t> looks = 0;
    std::atomic<uint64_t> things_seen = 0;
    std::vector<std::thread> lookers;
    for (uint32_t t = 0; t < 2; ++t) {
      lookers.emplace_back([&, t] {
        uint64_t seen = 0;
        for (uint32_t i = 0; !over.load(); ++i) {
          const Text text = tokens(80, 1 + i % 3) + tokens(20, 10 + t);
          const Result<SequenceReport> report = rig.cache.lookup(rig.scope, text);
          EXPECT_TRUE(report.has_value());
          if (report) seen += report->reused_tokens;
          const SequenceStats stats = rig.cache.stats();
          EXPECT_EQ(stats.free_sequences + stats.idle_sequences + stats.leased_sequences +
                        stats.broken_sequences,
                    stats.sequences);
          seen += rig.cache.can_admit("a") ? 1 : 0;
          seen += rig.cache.session("a").turns + rig.cache.pending();
          seen += rig.cache.sequence(SequenceId{i % 4}).length;
          ++looks;
        }
        things_seen += seen;
      });
    }
    for (uint32_t i = 0; i < 60 || looks.load() < 100; ++i) {
      rig.talk(tokens(80, 1 + i % 3) + tokens(1 + i % 60, 20 + i % 70), tokens(10, 95),
               {.session = i % 2 == 0 ? "a" : "b"});
      if (i % 5 == 0) rig.drain({.items = 1});
      if (i % 20 == 19) rig.take_all_sequences();
    }
    over = true;
    for (std::thread& looker : lookers) looker.join();
    EXPECT_GT(things_seen.load(), 0U);
  }
}

// A logger that makes another thread look at the cache while a line is being logged.
struct LoggedLook {
  const SequenceCache& cache;
  std::thread thread = {};
  std::atomic<bool> looked = false;
  bool in_time = false;

  static void on_line(LogLevel, std::string_view, void* user) {
    auto& it = *static_cast<LoggedLook*>(user);
    if (it.thread.joinable()) return;
    it.thread = std::thread([&it] {
      (void)it.cache.stats();
      it.looked = true;
    });
    for (uint32_t i = 0; i < 6000 && !it.looked; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    it.in_time = it.looked;
  }
};

TEST(SequenceThreads, LinesAreLoggedWithoutTheLock) {
  for (const EngineOptions& engine : {full_engine(), hybrid_engine(), full_state_engine()}) {
    SequenceRig rig(engine);
    rig.chat(tokens(100, 1));
    rig.take_all_sequences();
    LoggedLook look{rig.cache};
    set_log_handler(&LoggedLook::on_line, &look);
    rig.engine.faults.next(Call::load, Fault::halfway);
    rig.chat(tokens(100, 1));
    set_log_handler(nullptr, nullptr);
    ASSERT_TRUE(look.thread.joinable()) << "what could not be restored is told";
    look.thread.join();
    EXPECT_TRUE(look.in_time);
  }
}

}  // namespace
}  // namespace stemma::test
