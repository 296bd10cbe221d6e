// How rows are printed: a table for people, JSON for programs.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <string>

#include "bench/harness.h"

namespace stemma::bench {
namespace {

std::string number(double value) {
  char text[48];
  const double size = std::fabs(value);
  if (size < 1) {
    std::snprintf(text, sizeof text, "%.3g", value);
  } else {
    std::snprintf(text, sizeof text, "%.*f", size >= 100 ? 0 : size >= 10 ? 1 : 2, value);
  }
  return text;
}

std::string limit_text(const Row& row) {
  if (row.sense == Sense::report) return "-";
  if (row.sense == Sense::at_least) return ">= " + number(row.limit);
  std::string text = "<= " + number(row.limit);
  if (row.memcmp_multiple > 0) {
    text +=
        " or " + number(row.memcmp_multiple) + "x = " + number(row.memcmp_multiple * row.memcmp_us);
  }
  return text;
}

std::string verdict(const Row& row) {
  if (row.wrong) return "WRONG";
  if (row.sense == Sense::report) return "-";
  return row.passes() ? "pass" : "MISS";
}

std::string remarks(const Row& row) {
  std::string text;
  for (const Baseline& baseline : row.baselines) {
    text += (text.empty() ? "" : ", ") + baseline.name + " " + number(baseline.value) + " = " +
            number(baseline.factor) + "x ours";
  }
  if (!row.note.empty()) text += (text.empty() ? "" : "; ") + row.note;
  return text;
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[48];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string json_object(const Row& row) {
  std::string out = "{\"name\": " + json_string(row.name);
  out += ", \"value\": " + (row.wrong ? "null" : json_number(row.value));
  out += ", \"unit\": " + json_string(row.unit);
  const bool limited = row.sense != Sense::report;
  out += ", \"limit\": " + (limited ? json_number(row.effective_limit()) : "null");
  out += std::string(", \"pass\": ") + (row.passes() ? "true" : "false");
  if (limited) {
    out += std::string(", \"sense\": ") +
           (row.sense == Sense::at_most ? "\"at_most\"" : "\"at_least\"");
  }
  if (row.memcmp_multiple > 0) {
    out += ", \"limit_stated\": " + json_number(row.limit);
    out += ", \"limit_memcmp_multiple\": " + json_number(row.memcmp_multiple);
  }
  if (row.memcmp_us > 0) {
    out += ", \"memcmp_us\": " + json_number(row.memcmp_us);
    if (!row.wrong) out += ", \"memcmp_multiple\": " + json_number(row.value / row.memcmp_us);
  }
  if (!row.baselines.empty()) {
    out += ", \"baseline\": [";
    for (size_t i = 0; i < row.baselines.size(); ++i) {
      const Baseline& baseline = row.baselines[i];
      out += (i == 0 ? "" : ", ") + ("{\"name\": " + json_string(baseline.name));
      out += ", \"value\": " + json_number(baseline.value);
      out += ", \"factor\": " + json_number(baseline.factor) + "}";
    }
    out += "]";
  }
  if (!row.note.empty()) out += ", \"note\": " + json_string(row.note);
  return out + "}";
}

}  // namespace

void print_table(std::span<const Row> rows) {
  constexpr int kColumns = 7;
  std::vector<std::vector<std::string>> cells;
  cells.push_back({"benchmark", "value", "unit", "limit", "pass", "x memcmp", "remarks"});
  for (const Row& row : rows) {
    const bool has_memcmp = row.memcmp_us > 0 && !row.wrong;
    cells.push_back({row.name, row.wrong ? "-" : number(row.value), row.unit, limit_text(row),
                     verdict(row), has_memcmp ? number(row.value / row.memcmp_us) : "-",
                     remarks(row)});
  }
  size_t widths[kColumns] = {};
  for (const auto& line : cells) {
    for (int i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : cells) {
    std::string text;
    for (int i = 0; i < kColumns; ++i) {
      const std::string pad(widths[i] - line[i].size(), ' ');
      const bool right = i == 1 || i == 5;
      text += right ? pad + line[i] : line[i] + (i + 1 == kColumns ? "" : pad);
      if (i + 1 < kColumns) text += "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::printf("%s\n", text.c_str());
  }
}

void print_json(std::span<const Row> rows) {
  std::printf("[");
  const char* separator = "\n  ";
  for (const Row& row : rows) {
    std::printf("%s%s", separator, json_object(row).c_str());
    separator = ",\n  ";
  }
  std::printf("\n]\n");
}

}  // namespace stemma::bench
