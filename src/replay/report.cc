#include "replay/report.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "json/write.h"
#include "replay/recommend.h"
#include "replay/report_template.h"
#include "replay/sizes.h"
#include "replay/sweep.h"

namespace stemma::replay {
namespace {

constexpr size_t kSessionsShown = 10;

// Text inside JSON inside a script: neither may end early.
std::string quoted(const std::string& text) {
  std::string out;
  append_json_string(out, text);
  for (size_t at = 0; (at = out.find('<', at)) != std::string::npos;) out.replace(at, 1, "\\u003c");
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

template <class T, class Write>
std::string list(const std::vector<T>& items, Write&& write) {
  std::string out = "[";
  for (const T& item : items) out += (out.size() == 1 ? "" : ",") + write(item);
  return out + "]";
}
std::string list(const std::vector<uint64_t>& items) {
  return list(items, [](uint64_t n) { return std::to_string(n); });
}

class Writer {
 public:
  explicit Writer(const ReportInput& input) : input_(input), trace_(input.trace) {
    policy_ = recommended_policy(input.policies);
    unlimited_ = trace_.unlimited_ratio();
    view_capacity_ = input.capacities.back();
    if (!policy_.empty()) {
      recommendation_ = recommend(curve(policy_), unlimited_);
      if (recommendation_.good_blocks != 0) view_capacity_ = recommendation_.good_blocks;
    }
  }

  std::string run() {
    add("trace", trace_json());
    add("sentence",
        quoted(policy_.empty() ? "" : to_sentence(recommendation_, [&](uint64_t blocks) {
          return size(blocks);
        })));
    add("policy", quoted(policy_));
    add("unlimited", number(unlimited_));
    add("capacities", list(input_.capacities));
    add("sizes", list(input_.capacities, [&](uint64_t blocks) { return quoted(size(blocks)); }));
    add("enough", std::to_string(recommendation_.enough_blocks));
    add("policies", list(input_.policies, [&](const std::string& p) { return policy_json(p); }));
    add("view", "{\"blocks\":" + std::to_string(view_capacity_) +
                    ",\"size\":" + quoted(size(view_capacity_)) + "}");
    add("depth", depth_json());
    add("sessions", sessions_json());
    const GapView gaps = reuse_gaps(trace_);
    add("gaps", "{\"labels\":" + list(gaps.labels, quoted) + ",\"refs\":" + list(gaps.refs) +
                    ",\"first\":" + std::to_string(gaps.first_uses) + "}");
    return "{" + out_ + "}";
  }

 private:
  void add(const char* name, const std::string& json) {
    out_ += (out_.empty() ? "\"" : ",\"") + std::string(name) + "\":" + json;
  }
  std::string size(uint64_t blocks) const {
    const uint64_t bytes = input_.kv_bytes_per_token * trace_.block_tokens;
    return bytes == 0 ? format_count(blocks) + " blocks" : format_bytes(blocks * bytes);
  }
  std::vector<const ReplayResult*> curve(const std::string& policy) const {
    std::vector<const ReplayResult*> points;
    for (const uint64_t capacity : input_.capacities) {
      if (const auto* point = find_result(input_.results, policy, capacity))
        points.push_back(point);
    }
    return points;
  }
  const ReplayResult* at_view(const std::string& policy) const {
    return find_result(input_.results, policy, view_capacity_);
  }

  std::string trace_json() const {
    const double hours =
        static_cast<double>(trace_.requests.back().time_ns - trace_.requests.front().time_ns) /
        3.6e12;
    return "{\"name\":" + quoted(trace_.name) +
           ",\"requests\":" + std::to_string(trace_.requests.size()) +
           ",\"hours\":" + number(hours) + ",\"refs\":" + std::to_string(trace_.block_refs) +
           ",\"unique\":" + std::to_string(trace_.unique_blocks) +
           ",\"footprint\":" + quoted(size(trace_.unique_blocks)) +
           ",\"block_tokens\":" + std::to_string(trace_.block_tokens) +
           ",\"block_bytes\":" + std::to_string(input_.kv_bytes_per_token * trace_.block_tokens) +
           ",\"hints\":" + (input_.results.front().hints ? "true" : "false") + "}";
  }

  std::string policy_json(const std::string& policy) const {
    const auto points = curve(policy);
    std::string out = "{\"name\":" + quoted(policy);
    out += ",\"ratio\":" + list(points, [](const auto* p) { return number(p->hit_ratio()); });
    out += ",\"weighted\":" +
           list(points, [](const auto* p) { return number(p->weighted_hit_ratio()); });
    // How much more memory lru needs than this policy for lru's hit ratio, at each capacity.
    out += ",\"saved\":" + list(curve("lru"), [&](const ReplayResult* lru) {
             const auto needed = blocks_needed(points, lru->hit_ratio());
             return needed ? number(static_cast<double>(lru->capacity_blocks) - *needed)
                           : std::string("null");
           });
    return out + "}";
  }

  std::string depth_json() const {
    std::string hits;
    DepthView view;
    for (const std::string& policy : input_.policies) {
      const ReplayResult* const result = at_view(policy);
      if (result == nullptr) continue;
      view = by_depth(trace_, *result);
      hits += (hits.empty() ? "" : ",") + quoted(policy) + ":" + list(view.hits);
    }
    return "{\"limits\":" + list(view.limit_tokens) + ",\"refs\":" + list(view.refs) +
           ",\"hits\":{" + hits + "}}";
  }

  std::string sessions_json() const {
    const ReplayResult* const result = policy_.empty() ? nullptr : at_view(policy_);
    if (result == nullptr || trace_.sessions == 0) return "null";
    const SessionView view = by_session(trace_, *result);
    std::vector<SessionView::Session> shown = view.sessions;
    shown.resize(std::min(shown.size(), kSessionsShown));
    return "{\"count\":" + std::to_string(view.sessions.size()) +
           ",\"tenths\":" + list(view.tenths) + ",\"worst\":" +
           list(shown,
                [](const SessionView::Session& s) {
                  return "[" + std::to_string(s.session) + "," + std::to_string(s.requests) + "," +
                         std::to_string(s.refs) + "," + std::to_string(s.hits) + "]";
                }) +
           "}";
  }

  const ReportInput& input_;
  const Trace& trace_;
  std::string policy_;
  double unlimited_ = 0;
  Recommendation recommendation_;
  uint64_t view_capacity_ = 0;
  std::string out_;
};

void put(std::string& page, std::string_view mark, const std::string& text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

std::string report_json(const ReportInput& input) { return Writer(input).run(); }

std::string report_page(const ReportInput& input) {
  std::string page = kReportTemplate;
  put(page, "@STYLE@", kReportStyle);
  put(page, "@SCRIPT@", kReportScript);
  put(page, "@DATA@", report_json(input));
  return page;
}

}  // namespace stemma::replay
