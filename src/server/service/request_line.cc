#include "server/service/request_line.h"

#include <algorithm>
#include <cstdio>

namespace stemma::server {
namespace {

// Returns the sources of the reused tokens, such as "fork+segments".
std::string sources(const SequenceReport& report) {
  std::string text;
  for (uint32_t step = 0; step < kStepCount; ++step) {
    if (report.steps[step] == 0) continue;
    if (!text.empty()) text += '+';
    text += to_string(static_cast<Step>(step));
  }
  return text.empty() ? "none" : text;
}

double milliseconds(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace

std::string printable(std::string_view text) {
  constexpr size_t kMostBytes = 200;
  std::string safe(text.substr(0, kMostBytes));
  for (char& c : safe) {
    if (c < ' ' || c > '~' || c == '"') c = '?';
  }
  return safe;
}

std::string header_list(const std::vector<std::string>& names) {
  constexpr size_t kMostBytes = 2000;
  std::string list;
  for (const std::string& name : names) {
    if (list.size() + name.size() > kMostBytes) return list + ", ...";
    if (!list.empty()) list += ", ";
    list += printable(name);
  }
  return list;
}

std::string answered_line(const HttpAsked& asked, int status) {
  std::string path = printable(asked.path);
  std::replace(path.begin(), path.end(), ' ', '?');
  std::string line = "request path=" + path + " method=" + printable(asked.method) +
                     " status=" + std::to_string(status) + " client=" + asked.peer +
                     " request_id=" + asked.id;
  if (!asked.why.empty()) line += " error=\"" + printable(asked.why) + "\"";
  return line;
}

std::string RequestLine::text(int status, const Summary* summary, std::string_view error) const {
  char line[512];
  if (summary != nullptr) {
    const SequenceReport& report = summary->report;
    const Timings& took = summary->timings;
    const uint64_t to_first = took.queued_ns + took.prompt_ns;
    std::snprintf(
        line, sizeof line,
        "request id=%s path=%s status=%d prompt=%u reused=%u evaluated=%u generated=%u "
        "source=%s miss=%s%s matched=%u queue_ms=%.1f ttft_ms=%.1f total_ms=%.1f",
        id.c_str(), path.c_str(), status, prompt_tokens, report.reused_tokens,
        report.evaluated_tokens, summary->generated_tokens, sources(report).c_str(),
        summary->retokenised_at != 0 ? "retokenised@" : to_string(report.reason),
        summary->retokenised_at != 0 ? std::to_string(summary->retokenised_at).c_str() : "",
        report.matched_tokens, milliseconds(took.queued_ns), milliseconds(to_first),
        milliseconds(to_first + took.generated_ns));
  } else {
    std::snprintf(line, sizeof line, "request id=%s path=%s status=%d prompt=%u error=\"%s\"",
                  id.c_str(), path.c_str(), status, prompt_tokens, printable(error).c_str());
  }
  std::string text = line;
  if (summary != nullptr && !summary->parted_in.empty()) {
    text += " parted_in=" + printable(summary->parted_in);
  }
  return text + " client=" + client + " request_id=" + request_id;
}

}  // namespace stemma::server
