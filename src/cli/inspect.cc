#ifdef STEMMA_HAS_TIER_DISK

#include "cli/inspect.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <map>
#include <string>
#include <system_error>

#include "cli/inspect_objects.h"
#include "tier/disk/store.h"
#ifdef STEMMA_HAS_TIER_SHARED
#include "cli/inspect_shared.h"
#include "flags/flags.h"
#endif

namespace stemma::cli {
namespace {

using namespace stemma::tier::disk;  // NOLINT(google-build-using-namespace): what is inspected.
using stemma::tier::kPage;

constexpr const char* kInspectHelp =
    R"(usage: stemma inspect DIR [list | verify | compact | export KEY --out FILE] [--json]

Shows what lies in the directory of a disk tier (--disk). Stop the server first: no other process
may have the directory open. The directory of a shared tier (--shared-dir) can be listed and
verified while servers use it.

  list          the default: prints totals, layouts, the namespaces of other engines, and every
                entry. Each model with its settings has a layout of its own
  verify        reads every entry, checks its checksum, and names the damaged ones
  compact       gives unused room back to the file system
  export KEY    writes the payload of one entry to FILE, which must not exist yet (mode 0600).
                KEY is the beginning of a key as `list` shows it, and must be unique. If entries of
                several kinds have this key, add the kind: KEY:checkpoint
  --out FILE    the file that export writes
  --json        prints JSON, for programs

An entry holds the state of a model after a prompt: anyone who has it can find out about the prompt.

Exit codes: 0 done, 1 something is damaged or could not be done, 2 bad arguments.
)";

enum class Action : uint8_t { list, verify, compact, export_one };

struct InspectArguments {
  std::string dir, key, out;
  Action action = Action::list;
  bool json = false, help = false;
};

// Reads the directory, the action, and the key for an export. Returns an error message.
std::string take_word(std::string_view word, bool& has_action, InspectArguments& out) {
  constexpr std::pair<std::string_view, Action> kActions[] = {{"list", Action::list},
                                                              {"verify", Action::verify},
                                                              {"compact", Action::compact},
                                                              {"export", Action::export_one}};
  const auto* const action =
      std::ranges::find(kActions, word, &std::pair<std::string_view, Action>::first);
  if (out.dir.empty()) {
    out.dir = word;
  } else if (out.action == Action::export_one && out.key.empty()) {
    out.key = word;
  } else if (!has_action && action != std::end(kActions)) {
    has_action = true;
    out.action = action->second;
  } else {
    return "unknown argument '" + std::string(word) + "'";
  }
  return {};
}

std::string parse(std::span<const std::string_view> words, InspectArguments& out) {
  bool has_action = false;
  flags::Flags flags;
  flags.on("--json", out.json);
  flags.text("--out", out.out);
  flags.words([&](std::string_view word) { return take_word(word, has_action, out); });
  if (std::string wrong = flags.read(words); !wrong.empty()) return wrong;
  out.help = flags.help();
  if (out.help) return {};
  if (out.dir.empty()) return "which directory?";
  if (out.action == Action::export_one && (out.key.empty() || out.out.empty())) {
    return "export needs a key and --out FILE";
  }
  if (out.action != Action::export_one && !out.out.empty()) return "--out is for export";
  return {};
}

unsigned long long number(uint64_t value) { return value; }

std::string written_at(uint64_t seconds) {
  const auto time = static_cast<time_t>(seconds);
  tm parts = {};
  char text[32] = "?";
  if (gmtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof text, "%FT%TZ", &parts);
  return text;
}

int fail(const std::string& dir, const Error& error) {
  std::fprintf(stderr, "stemma inspect: '%s': %s", dir.c_str(), error.message());
  if (error.code() == Errc::copy_failed) {
    const std::error_code code(static_cast<int>(error.value()), std::generic_category());
    std::fprintf(stderr, ": %s", code.message().c_str());
  } else if (error.value() != Error::kNoValue) {
    std::fprintf(stderr, " (%u)", error.value());
  }
  std::fputs("\n", stderr);
  return 1;
}

// Prints one line of text, or one JSON object, for an entry.
void print_entry(const Scan& scan, const Found& found, const char* state, bool json, bool first) {
  const tier::EntryHeader& header = found.header;
  const std::string kind(to_string(header.key.kind));
  if (json) {
    std::printf(
        R"(%s
    {"key": "%s", "kind": "%s", "group": %u, "begin": %u, "end": %u, "bytes": %llu, "words": %u, "layout": "%016llx", "written": %llu, "serial": %llu, "record": %u, "extents": [)",
        first ? "" : ",", header.key.chain.hex().c_str(), kind.c_str(), header.key.group,
        header.info.begin, header.info.end, number(header.info.bytes), header.info.words,
        number(header.info.layout), number(header.written), number(header.serial), found.record);
    const char* comma = "";
    for (const Extent& one : scan.places(found)) {
      std::printf("%s[%u, %u]", comma, one.first, one.pages);
      comma = ", ";
    }
    std::printf("]%s%s%s}", *state != '\0' ? R"(, "state": ")" : "", state,
                *state != '\0' ? "\"" : "");
  } else {
    std::printf("%s  %-10s %3u  [%u, %u)  %llu bytes  %s%s%s\n", header.key.chain.hex().c_str(),
                kind.c_str(), header.key.group, header.info.begin, header.info.end,
                number(header.info.bytes), written_at(header.written).c_str(),
                *state != '\0' ? "  " : "", state);
  }
}

struct Totals {
  uint64_t entries = 0;
  uint64_t payload_bytes = 0;
  uint64_t pages = 0;  // Pages of entries.
  uint64_t extents = 0;
  uint64_t retired_pages = 0;
  std::vector<DiskLayout> layouts;
  ObjectSpaces spaces;
};

Totals add_up(Store& store, const Scan& scan) {
  Totals totals;
  LayoutCounts layouts;
  for (const Found& found : scan.found) {
    const bool retired = found.kind == TableRecord::Kind::retired;
    for (const Extent& one : scan.places(found)) {
      (retired ? totals.retired_pages : totals.pages) += one.pages;
    }
    if (retired) continue;
    ++totals.entries;
    totals.payload_bytes += found.header.info.bytes;
    totals.extents += found.extent_count;
    layouts.add(found.header.info.layout, found.header.info.bytes);
    totals.spaces.add(found.header, [&](std::vector<uint8_t>& payload) {
      PageMemory buffer;
      uint32_t bad = 0;
      const auto whole = check_payload(store, found.header, scan.places(found), buffer, bad);
      if (whole != Payload::whole) return false;
      payload.assign(buffer.data(), buffer.data() + found.header.info.bytes);
      return true;
    });
  }
  totals.layouts = layouts.sorted();
  return totals;
}

void print_totals(const Totals& totals, const Scan& scan, bool json) {
  const auto unreadable = static_cast<uint64_t>(
      std::count(scan.unreadable_pages.begin(), scan.unreadable_pages.end(), true));
  if (json) {
    std::printf(
        "{\n  \"version\": %u, \"slab_bytes\": %llu, \"used_bytes\": %llu, "
        "\"retired_bytes\": %llu, \"entries\": %llu, \"extents\": %llu, "
        "\"payload_bytes\": %llu, \"damaged_records\": %zu, "
        "\"unreadable_table_pages\": %llu,\n  \"layouts\": [",
        kDiskVersion, number(scan.slab_pages * kPage), number(totals.pages * kPage),
        number(totals.retired_pages * kPage), number(totals.entries), number(totals.extents),
        number(totals.payload_bytes), scan.damaged.size(), number(unreadable));
    for (const DiskLayout& one : totals.layouts) {
      std::printf(R"(%s{"layout": "%016llx", "entries": %llu, "bytes": %llu})",
                  &one == totals.layouts.data() ? "" : ", ", number(one.layout),
                  number(one.entries), number(one.bytes));
    }
    std::printf("],\n  \"namespaces\": [%s],\n  \"list\": [", totals.spaces.json().c_str());
    return;
  }
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  std::printf("format %u, %llu entries, %llu bytes of payload, %.1f %% of the slab's %llu bytes\n",
              kDiskVersion, number(totals.entries), number(totals.payload_bytes),
              100 * share(totals.payload_bytes, scan.slab_pages * kPage),
              number(scan.slab_pages * kPage));
  std::printf("  %.2f extents an entry\n", share(totals.extents, totals.entries));
  for (const DiskLayout& one : totals.layouts) {
    std::printf("  layout %016llx: %llu entries, %llu bytes\n", number(one.layout),
                number(one.entries), number(one.bytes));
  }
  std::fputs(totals.spaces.lines().c_str(), stdout);
  if (totals.retired_pages != 0) {
    std::printf("  %llu pages are retired: they could not be read or written\n",
                number(totals.retired_pages));
  }
  if (!scan.damaged.empty()) std::printf("  %zu records are damaged\n", scan.damaged.size());
  if (unreadable != 0)
    std::printf("  %llu pages of the table are unreadable\n", number(unreadable));
}

int list_or_verify(Store& store, const Scan& scan, const InspectArguments& arguments) {
  const bool verifies = arguments.action == Action::verify;
  const Totals totals = add_up(store, scan);
  const bool json = arguments.json;
  print_totals(totals, scan, json);
  PageMemory buffer;
  uint64_t bad = 0;
  bool first = true;
  for (const Found& found : scan.found) {
    if (found.kind == TableRecord::Kind::retired) continue;
    const char* state = "";
    if (verifies) {
      uint32_t unreadable = 0;
      const Payload payload =
          check_payload(store, found.header, scan.places(found), buffer, unreadable);
      state = payload == Payload::whole     ? "whole"
              : payload == Payload::damaged ? "damaged"
                                            : "unreadable";
      if (payload != Payload::whole) ++bad;
      // People look for problems, so text output lists only those.
      if (payload == Payload::whole && !json) continue;
    }
    print_entry(scan, found, state, json, first);
    first = false;
  }
  if (json) {
    std::printf("\n  ]%s%s\n}\n", verifies ? ", \"damaged\": " : "",
                verifies ? std::to_string(bad).c_str() : "");
  } else if (verifies) {
    std::printf("%llu entries read, %llu are damaged\n", number(totals.entries), number(bad));
  }
  return bad != 0 || (verifies && !scan.damaged.empty()) ? 1 : 0;
}

// Makes holes where there are no records, and cuts the file after the last one.
int compact(Store& store, const Scan& scan, const InspectArguments& arguments) {
  std::vector<Extent> used = scan.extents;
  std::sort(used.begin(), used.end(),
            [](const Extent& a, const Extent& b) { return a.first < b.first; });
  uint64_t given_back = 0;
  uint64_t page = 0;
  int result = 0;
  for (const Extent& one : used) {
    if (one.first > page && result >= 0) {
      result = store.files->punch(store.slab, page * kPage, (one.first - page) * kPage);
      given_back += one.first - page;
    }
    page = std::max(page, uint64_t{one.first} + one.pages);
  }
  if (result >= 0 && page < scan.slab_pages) {
    result = store.files->truncate(store.slab, page * kPage);
    given_back += scan.slab_pages - page;
  }
  if (result < 0) {
    return fail(arguments.dir, Error(Errc::copy_failed, "the file system does not take room back",
                                     static_cast<uint32_t>(-result)));
  }
  if (arguments.json) {
    std::printf("{\"bytes\": %llu}\n", number(given_back * kPage));
  } else {
    std::printf("gave back %llu bytes of unused room\n", number(given_back * kPage));
  }
  return 0;
}

int export_one(Store& store, const Scan& scan, const InspectArguments& arguments) {
  const Found* chosen = nullptr;
  uint64_t matches = 0;
  const std::string_view asked = arguments.key;
  const size_t colon = asked.find(':');
  const std::string_view kind =
      colon == std::string_view::npos ? std::string_view() : asked.substr(colon + 1);
  for (const Found& found : scan.found) {
    if (found.kind == TableRecord::Kind::retired) continue;
    const EntryKey& key = found.header.key;
    if (!key.chain.hex().starts_with(asked.substr(0, colon))) continue;
    if (!kind.empty() && kind != to_string(key.kind)) continue;
    // Of two entries with the same key, the older one is never read.
    if (chosen != nullptr && chosen->header.key == key) {
      if (chosen->header.serial < found.header.serial) chosen = &found;
      continue;
    }
    chosen = &found;
    ++matches;
  }
  if (matches != 1) {
    std::fprintf(stderr, "stemma inspect: %llu entries have a key that begins with '%s'%s\n",
                 number(matches), arguments.key.c_str(),
                 matches > 1 ? "; say more of it, or its kind, as in KEY:checkpoint" : "");
    return 1;
  }
  PageMemory buffer;
  uint32_t bad = 0;
  if (check_payload(store, chosen->header, scan.places(*chosen), buffer, bad) != Payload::whole) {
    std::fputs("stemma inspect: the entry is damaged; nothing was written\n", stderr);
    return 1;
  }
  const int file = open(arguments.out.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const uint8_t* from = buffer.data();
  uint64_t left = chosen->header.info.bytes;
  bool good = file >= 0;
  while (good && left != 0) {
    const ssize_t count = write(file, from, left);
    good = count > 0;
    if (good) from += count, left -= static_cast<uint64_t>(count);
  }
  const int problem = errno;
  if (file >= 0) good = close(file) == 0 && good;
  if (!good) {
    std::fprintf(stderr, "stemma inspect: cannot write '%s': %s\n", arguments.out.c_str(),
                 std::error_code(problem, std::generic_category()).message().c_str());
    return 1;
  }
  if (arguments.json) std::printf("{\n  \"exported\": [");
  print_entry(scan, *chosen, "", arguments.json, true);
  if (arguments.json) std::printf("\n  ]\n}\n");
  return 0;
}

}  // namespace

int run_inspect(std::span<const std::string_view> words) {
  InspectArguments arguments;
  const std::string problem = parse(words, arguments);
  if (arguments.help) {
    std::fputs(kInspectHelp, stdout);
    return 0;
  }
  if (!problem.empty()) {
    std::fprintf(stderr, "stemma inspect: %s (see 'stemma inspect --help')\n", problem.c_str());
    return 2;
  }
#ifdef STEMMA_HAS_TIER_SHARED
  if (is_shared_directory(arguments.dir)) {
    if (arguments.action == Action::list || arguments.action == Action::verify) {
      return inspect_shared(arguments.dir, arguments.action == Action::verify, arguments.json);
    }
    std::fprintf(
        stderr,
        "stemma inspect: '%s' is a shared tier's: its entries are files of their own, so there "
        "is nothing to compact or export\n",
        arguments.dir.c_str());
    return 2;
  }
#endif
  DiskOptions options;
  options.path = arguments.dir;
  auto store = open_directory(options, IfMissing::refuse);
  if (!store) return fail(arguments.dir, store.error());
  auto found = read_table(**store, {});
  if (!found) return fail(arguments.dir, found.error());
  switch (arguments.action) {
    case Action::list:
    case Action::verify: return list_or_verify(**store, *found, arguments);
    case Action::compact: return compact(**store, *found, arguments);
    case Action::export_one: return export_one(**store, *found, arguments);
  }
  return 2;
}

}  // namespace stemma::cli

#endif  // STEMMA_HAS_TIER_DISK
