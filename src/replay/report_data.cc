#include "replay/report_data.h"

#include <algorithm>

namespace stemma::replay {

std::optional<double> blocks_needed(const std::vector<const ReplayResult*>& curve, double ratio) {
  double last_blocks = 0;
  double last_ratio = 0;
  for (const ReplayResult* point : curve) {
    const auto blocks = static_cast<double>(point->capacity_blocks);
    if (point->hit_ratio() >= ratio) {
      const double rise = point->hit_ratio() - last_ratio;
      return rise <= 0 ? blocks
                       : last_blocks + (blocks - last_blocks) * (ratio - last_ratio) / rise;
    }
    // If a curve falls, what was reached before still counts as reachable.
    last_blocks = blocks;
    last_ratio = std::max(last_ratio, point->hit_ratio());
  }
  return {};
}

std::string recommended_policy(const std::vector<std::string>& policies) {
  if (std::find(policies.begin(), policies.end(), "adaptive") != policies.end()) return "adaptive";
  for (const std::string& policy : policies) {
    if (policy != "min" && policy != "infinite") return policy;
  }
  return {};
}

DepthView by_depth(const Trace& trace, const ReplayResult& result) {
  DepthView view;
  const auto count = [&](uint64_t blocks, std::vector<uint64_t>& into) {
    uint64_t limit = 1024;
    uint64_t before = 0;
    for (size_t bucket = 0; before < blocks; ++bucket, limit *= 2) {
      if (bucket == view.limit_tokens.size()) {
        view.limit_tokens.push_back(limit);
        view.refs.push_back(0);
        view.hits.push_back(0);
      }
      const uint64_t end = std::min(blocks, limit / trace.block_tokens);
      if (end <= before) continue;
      into[bucket] += end - before;
      before = end;
    }
  };
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    count(trace.requests[r].blocks, view.refs);
    count(result.request_hits[r], view.hits);
  }
  return view;
}

SessionView by_session(const Trace& trace, const ReplayResult& result) {
  SessionView view;
  if (trace.sessions == 0) return view;
  struct Later {
    uint64_t refs = 0;
    uint64_t hits = 0;
  };
  std::vector<SessionView::Session> sessions(trace.sessions);
  std::vector<Later> later(trace.sessions);
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const TraceRequest& request = trace.requests[r];
    if (request.session == 0) continue;
    SessionView::Session& session = sessions[request.session - 1];
    if (session.requests != 0) {
      later[request.session - 1].refs += request.blocks;
      later[request.session - 1].hits += result.request_hits[r];
    }
    session.session = request.session;
    ++session.requests;
    session.refs += request.blocks;
    session.hits += result.request_hits[r];
  }
  for (const Later& one : later) {
    if (one.refs == 0) continue;
    ++view.tenths[std::min<uint64_t>(9, 10 * one.hits / one.refs)];
  }
  std::erase_if(sessions, [](const SessionView::Session& s) { return s.refs == 0; });
  std::sort(sessions.begin(), sessions.end(), [](const auto& a, const auto& b) {
    const uint64_t missed_a = a.refs - a.hits;
    const uint64_t missed_b = b.refs - b.hits;
    return missed_a != missed_b ? missed_a > missed_b : a.session < b.session;
  });
  view.sessions = std::move(sessions);
  return view;
}

GapView reuse_gaps(const Trace& trace) {
  struct Bucket {
    const char* label;
    uint64_t below_ns;
  };
  constexpr uint64_t kSecond = 1'000'000'000;
  constexpr Bucket kBuckets[] = {
      {"under 1 s", kSecond},        {"1-5 s", 5 * kSecond},        {"5-15 s", 15 * kSecond},
      {"15-60 s", 60 * kSecond},     {"1-5 min", 300 * kSecond},    {"5-15 min", 900 * kSecond},
      {"15-60 min", 3600 * kSecond}, {"1-4 h", 4 * 3600 * kSecond}, {"over 4 h", ~uint64_t{0}},
  };
  GapView view;
  for (const Bucket& bucket : kBuckets) view.labels.emplace_back(bucket.label);
  view.refs.resize(std::size(kBuckets));
  constexpr uint64_t kNotYet = ~uint64_t{0};
  std::vector<uint64_t> last(trace.unique_blocks, kNotYet);
  for (const TraceRequest& request : trace.requests) {
    for (const Token word : trace.blocks_of(request)) {
      if (last[word] == kNotYet) {
        ++view.first_uses;
      } else {
        const uint64_t gap = request.time_ns - last[word];
        size_t bucket = 0;
        while (gap >= kBuckets[bucket].below_ns) ++bucket;
        ++view.refs[bucket];
      }
      last[word] = request.time_ns;
    }
  }
  return view;
}

}  // namespace stemma::replay
