#include "server/setting_text.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

namespace stemma::server {

namespace {

constexpr size_t kColumn = 32;  // Where explanations begin,
constexpr size_t kWidth = 100;  // and where lines end at the latest.

}  // namespace

size_t edits_between(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return number;
}

std::string show_size(uint64_t bytes) {
  if (bytes >= (1U << 30U) && bytes % (1U << 30U) == 0) return std::to_string(bytes >> 30U) + "GiB";
  if (bytes >= (1U << 20U) && bytes % (1U << 20U) == 0) return std::to_string(bytes >> 20U) + "MiB";
  if (bytes >= 1024 && bytes % 1024 == 0) return std::to_string(bytes >> 10U) + "KiB";
  return std::to_string(bytes);
}

std::string unless_among(std::string_view choices, std::string_view word) {
  std::string all;
  while (!choices.empty()) {
    const size_t end = std::min(choices.find(' '), choices.size());
    const std::string_view each = choices.substr(0, end);
    if (each == word) return "";
    choices.remove_prefix(std::min(end + 1, choices.size()));
    if (!all.empty()) all += choices.empty() ? " or " : ", ";
    all += each;
  }
  return all;
}

void append_setting(std::string& out, std::string line, std::string_view explanation) {
  line.resize(std::max(line.size() + 1, kColumn), ' ');
  while (!explanation.empty()) {
    const size_t end = std::min(explanation.find(' '), explanation.size());
    if (line.size() + end > kWidth) {
      out.append(line, 0, line.find_last_not_of(' ') + 1);
      out += '\n';
      line.assign(kColumn, ' ');
    }
    line.append(explanation.substr(0, end));
    line += ' ';
    explanation.remove_prefix(std::min(end + 1, explanation.size()));
  }
  out.append(line, 0, line.find_last_not_of(' ') + 1);
  out += '\n';
}

}  // namespace stemma::server
