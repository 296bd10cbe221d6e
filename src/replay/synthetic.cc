#include "replay/synthetic.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>
#include <vector>

#include "base/random.h"
#include "replay/chain.h"

namespace stemma::replay {
namespace {

constexpr double kSecond = 1e9;

// The same numbers everywhere, unlike those of <random>'s distributions.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9E37'79B9'7F4A'7C15U + 1) {}
  uint64_t next() { return base::next_random(state_); }
  // In (0, 1).
  double part() { return (static_cast<double>(next() >> 11U) + 0.5) / 9007199254740992.0; }
  bool chance(double p) { return part() < p; }
  // Half of them are below the median; one in forty is above spread^2 times the median.
  double around(double median, double spread) {
    const double normal = std::sqrt(-2 * std::log(part())) * std::cos(6.283185307179586 * part());
    return median * std::pow(spread, normal);
  }
  uint32_t tokens(double median, double spread, double most) {
    return static_cast<uint32_t>(std::clamp(around(median, spread), 1.0, most));
  }
  // 0 is asked for most, and n half as often as n / 2.
  uint32_t popular(uint32_t count) {
    return static_cast<uint32_t>(std::pow(count + 1.0, part())) - 1;
  }

 private:
  uint64_t state_;
};

// One conversation, agent or question.
struct Session {
  Workload kind = Workload::chat;
  uint32_t number = 0;
  uint32_t turn = 1;
  uint32_t tokens = 0;  // Of the next prompt.
  uint64_t node = 0;    // The deepest block that it shares with what was asked before.
  uint64_t at_ns = 0;   // When it comes.
  bool subagent = false;
};
struct Later {
  bool operator()(const Session& a, const Session& b) const {
    return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.number > b.number;
  }
};

class Maker {
 public:
  explicit Maker(const SyntheticOptions& options) : options_(options), dice_(options.seed) {
    trace_.block_tokens = options.block_tokens;
  }

  Trace run() {
    while (trace_.requests.size() < options_.requests) {
      if (coming_.empty() || coming_.top().at_ns > next_start_ns_) {
        start();
      } else {
        const Session session = coming_.top();
        coming_.pop();
        request(session);
      }
    }
    trace_.unique_blocks = chain_.size();
    trace_.sessions = sessions_;
    return std::move(trace_);
  }

 private:
  // The beginning of a prompt that many share: a system prompt, a document.
  struct Shared {
    uint64_t node = 0;
    uint32_t tokens = 0;
  };
  Shared& shared(std::vector<Shared>& all, uint32_t which, double median, double spread,
                 double most) {
    if (all.size() <= which) all.resize(which + 1);
    if (all[which].tokens == 0) all[which].tokens = dice_.tokens(median, spread, most);
    return all[which];
  }

  Workload pick() {
    if (options_.workload != Workload::mix) return options_.workload;
    const double part = dice_.part();
    return part < 0.6 ? Workload::chat : part < 0.9 ? Workload::rag : Workload::agents;
  }

  void start() {
    Session session;
    session.kind = pick();
    session.number = ++sessions_;
    session.at_ns = next_start_ns_;
    // The average number of requests in a session, which makes the rate come out right.
    const double mean = options_.workload == Workload::chat     ? 2.0
                        : options_.workload == Workload::agents ? 30.0
                        : options_.workload == Workload::rag    ? 1.0
                                                                : 4.5;
    next_start_ns_ += static_cast<uint64_t>(-std::log(dice_.part()) * mean /
                                            options_.requests_per_second * kSecond);
    Shared* begin = nullptr;
    switch (session.kind) {
      case Workload::agents:
        begin = &shared(agents_, dice_.popular(4), 16'000, 1.5, 40'000);
        session.tokens = begin->tokens + dice_.tokens(1500, 2.5, 30'000);
        break;
      case Workload::rag:
        begin = &shared(documents_, dice_.popular(2000), 6000, 2.2, 60'000);
        session.tokens = begin->tokens + dice_.tokens(60, 2, 2000);
        break;
      case Workload::chat:
      case Workload::mix:
        begin = &shared(prompts_, dice_.popular(12), 900, 2, 6000);
        session.tokens = begin->tokens + dice_.tokens(700, 5, 60'000);
        break;
    }
    const uint32_t blocks = begin->tokens / options_.block_tokens;
    if (begin->node == 0 && blocks != 0) {
      scratch_.clear();
      (void)chain_.extend(0, blocks, 0, scratch_);
      begin->node = chain_.size();
    }
    // (This request comes at once, so its blocks are still numbered in the order of first
    // appearance.)
    session.node = begin->node;
    request(session);
  }

  void request(Session session) {
    TraceRequest out;
    out.time_ns = session.at_ns / 1'000'000 * 1'000'000;
    out.first_word = trace_.words.size();
    out.blocks = session.tokens / options_.block_tokens;
    out.input_tokens = session.tokens;
    out.session = session.number;
    out.turn = session.turn;
    out.subagent = session.subagent;
    (void)chain_.extend(session.node, out.blocks - chain_.depth(session.node), 0, trace_.words);
    if (out.blocks != 0) session.node = uint64_t{trace_.words.back()} + 1;
    trace_.words.push_back(Trace::kEndWord);
    trace_.block_refs += out.blocks;
    go_on(session, out);
    trace_.requests.push_back(out);
  }

  void go_on(Session& session, TraceRequest& out) {
    out.finish = FinishReason::end_turn;
    double gap_s = 0;
    uint32_t more = 0;
    bool ends = true;
    switch (session.kind) {
      case Workload::rag: out.output_tokens = dice_.tokens(200, 2, 2000); break;
      case Workload::agents: {
        const bool tool = dice_.chance(0.93);
        if (tool) out.finish = FinishReason::tool_use;
        out.output_tokens = dice_.tokens(tool ? 150 : 500, 2.2, 8000);
        more = dice_.tokens(tool ? 900 : 150, 3, 20'000);
        gap_s = tool ? dice_.around(12, 2.3) : dice_.around(180, 4);
        ends = session.tokens > 180'000 || !dice_.chance(tool ? 0.985 : 0.7);
        if (!ends && !session.subagent && dice_.chance(0.02)) start_subagent(session);
        break;
      }
      case Workload::chat:
      case Workload::mix:
        out.output_tokens = dice_.tokens(300, 2.2, 4000);
        more = dice_.tokens(120, 4, 20'000);
        gap_s = dice_.around(138, 2.9);
        ends = session.tokens > 120'000 || !dice_.chance(0.5);
        break;
    }
    if (ends) return;
    ++session.turn;
    session.tokens += out.output_tokens + more;
    session.at_ns += static_cast<uint64_t>(gap_s * kSecond);
    coming_.push(session);
  }

  // Works under the same system prompt for a few calls and does not come back.
  void start_subagent(const Session& parent) {
    Session session;
    session.kind = Workload::agents;
    session.number = parent.number;
    session.subagent = true;
    // Nobody may have asked for its blocks yet: then it shares none.
    const Shared& begin = shared(agents_, 0, 16'000, 1.5, 40'000);
    session.node = begin.node;
    session.tokens = begin.tokens + dice_.tokens(800, 2, 8000);
    session.at_ns = parent.at_ns + static_cast<uint64_t>(dice_.around(3, 1.5) * kSecond);
    coming_.push(session);
  }

  const SyntheticOptions& options_;
  Dice dice_;
  Trace trace_;
  Chain chain_;
  std::vector<Token> scratch_;
  std::vector<Shared> prompts_, agents_, documents_;
  std::priority_queue<Session, std::vector<Session>, Later> coming_;
  uint64_t next_start_ns_ = 0;
  uint32_t sessions_ = 0;
};

}  // namespace

std::optional<Workload> parse_workload(std::string_view name) {
  if (name == "chat") return Workload::chat;
  if (name == "agents") return Workload::agents;
  if (name == "rag") return Workload::rag;
  if (name == "mix") return Workload::mix;
  return {};
}

Trace make_trace(const SyntheticOptions& options) { return Maker(options).run(); }

}  // namespace stemma::replay
