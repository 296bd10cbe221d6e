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

#include "tier/disk/store.h"
#ifdef STEMMA_HAS_TIER_SHARED
#include "cli/inspect_shared.h"
#endif

namespace stemma::cli {
namespace {

using namespace stemma::tier::disk;  // NOLINT(google-build-using-namespace): what is inspected.

constexpr const char* kHelp =
    R"(usage: stemma inspect DIR [list | verify | compact | export KEY --out FILE] [--json]

Looks at the directory of a disk tier. Nobody else may have it open meanwhile: stop the server first.
That of a shared tier (--shared-dir) can be listed and verified while servers use it.

  list          what it is made of, and every entry (what is done when nothing is said); each model
                and its settings have a layout of their own
  verify        reads every entry and checks its sum; names those that do not hold
  compact       gives the room of chunks without entries back to the file system
  export KEY    writes the payload of one entry to FILE, which must not be there yet (mode 0600);
                KEY is the beginning of its key as `list` shows it, as long as it is the only one;
                entries of one key are told apart by their kind: KEY:checkpoint
  --out FILE    for export
  --json        for a program to read

An entry's bytes are the state of a model after a prompt: who has them can find out about the prompt.

Exit codes: 0 done, 1 something is damaged or could not be done, 2 bad arguments.
)";

enum class Action : uint8_t { list, verify, compact, export_one };

struct Arguments {
  std::string dir, key, out;
  Action action = Action::list;
  bool json = false, help = false;
};

std::string parse(std::span<const std::string_view> words, Arguments& out) {
  bool has_action = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--help" || word == "-h") return out.help = true, "";
    if (word == "--json") {
      out.json = true;
    } else if (word == "--out" || word.starts_with("--out=")) {
      if (word != "--out") {
        out.out = word.substr(6);
      } else if (i + 1 < words.size()) {
        out.out = words[++i];
      } else {
        return "--out needs a file";
      }
    } else if (out.dir.empty() && !word.starts_with("--")) {
      out.dir = word;
    } else if (out.action == Action::export_one && out.key.empty() && !word.starts_with("--")) {
      out.key = word;
    } else if (!has_action &&
               (word == "list" || word == "verify" || word == "compact" || word == "export")) {
      has_action = true;
      out.action = word == "list"      ? Action::list
                   : word == "verify"  ? Action::verify
                   : word == "compact" ? Action::compact
                                       : Action::export_one;
    } else {
      return "unknown argument '" + std::string(word) + "'";
    }
  }
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

// One line of text, or one object, for an entry.
void print_entry(const FoundSlot& found, const char* state, bool json, bool first) {
  const tier::EntryHeader& header = found.header;
  const std::string kind(to_string(header.key.kind));
  if (json) {
    std::printf(
        R"(%s
    {"key": "%s", "kind": "%s", "group": %u, "begin": %u, "end": %u, "bytes": %llu, "words": %u, "layout": "%016llx", "written": %llu, "serial": %llu, "chunk": %u, "slot": %u%s%s%s})",
        first ? "" : ",", header.key.chain.hex().c_str(), kind.c_str(), header.key.group,
        header.info.begin, header.info.end, number(header.info.bytes), header.info.words,
        number(header.info.layout), number(header.written), number(header.serial), found.chunk,
        found.slot, *state != '\0' ? R"(, "state": ")" : "", state, *state != '\0' ? "\"" : "");
  } else {
    std::printf("%s  %-10s %3u  [%u, %u)  %llu bytes  %s%s%s\n", header.key.chain.hex().c_str(),
                kind.c_str(), header.key.group, header.info.begin, header.info.end,
                number(header.info.bytes), written_at(header.written).c_str(),
                *state != '\0' ? "  " : "", state);
  }
}

struct Totals {
  uint64_t chunks = 0;
  uint64_t payload_bytes = 0;
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> by_class;  // Chunks, entries.
  std::vector<DiskLayout> layouts;
};

Totals add_up(const Scan& scan) {
  Totals totals;
  for (const ChunkHeader& chunk : scan.chunks) {
    if (chunk.slot_pages == 0) continue;
    ++totals.chunks;
    ++totals.by_class[chunk.slot_pages].first;
  }
  for (const FoundSlot& found : scan.slots) {
    totals.payload_bytes += found.header.info.bytes;
    ++totals.by_class[scan.chunks[found.chunk].slot_pages].second;
  }
  totals.layouts = layouts_of(scan.slots);
  return totals;
}

int list_or_verify(Store& store, const Scan& scan, const Arguments& arguments) {
  const bool verifies = arguments.action == Action::verify;
  const Totals totals = add_up(scan);
  const bool json = arguments.json;
  const uint64_t chunk_bytes = store.format.chunk_bytes;
  if (json) {
    std::printf(
        "{\n  \"version\": %u, \"chunk_bytes\": %llu, \"chunks\": %llu, \"entries\": %zu, "
        "\"payload_bytes\": %llu, \"damaged_headers\": %llu,\n  \"layouts\": [",
        kDiskVersion, number(chunk_bytes), number(totals.chunks), scan.slots.size(),
        number(totals.payload_bytes), number(scan.damaged));
    for (const DiskLayout& one : totals.layouts) {
      std::printf(R"(%s{"layout": "%016llx", "entries": %llu, "bytes": %llu})",
                  &one == totals.layouts.data() ? "" : ", ", number(one.layout),
                  number(one.entries), number(one.bytes));
    }
    std::printf("],\n  \"list\": [");
  } else {
    std::printf("format %u, %llu chunks of %llu bytes, %zu entries, %llu bytes of payload\n",
                kDiskVersion, number(totals.chunks), number(chunk_bytes), scan.slots.size(),
                number(totals.payload_bytes));
    for (const auto& [pages, counts] : totals.by_class) {
      std::printf("  slots of %u bytes: %llu of %llu in use\n", pages * kPage,
                  number(counts.second), number(counts.first * slots_in(chunk_bytes, pages)));
    }
    for (const DiskLayout& one : totals.layouts) {
      std::printf("  layout %016llx: %llu entries, %llu bytes\n", number(one.layout),
                  number(one.entries), number(one.bytes));
    }
    if (scan.damaged != 0) std::printf("  %llu headers are damaged\n", number(scan.damaged));
  }
  PageMemory buffer;
  uint64_t bad = 0;
  bool first = true;
  for (const FoundSlot& found : scan.slots) {
    const char* state = "";
    if (verifies) {
      const Payload payload = check_payload(store, found, buffer);
      state = payload == Payload::whole     ? "whole"
              : payload == Payload::damaged ? "damaged"
                                            : "unreadable";
      if (payload != Payload::whole) ++bad;
      // People look for what is wrong.
      if (payload == Payload::whole && !json) continue;
    }
    print_entry(found, state, json, first);
    first = false;
  }
  if (json) {
    std::printf("\n  ]%s%s\n}\n", verifies ? ", \"damaged\": " : "",
                verifies ? std::to_string(bad).c_str() : "");
  } else if (verifies) {
    std::printf("%zu entries read, %llu do not hold\n", scan.slots.size(), number(bad));
  }
  return bad != 0 || (verifies && scan.damaged != 0) ? 1 : 0;
}

int compact(Store& store, const Scan& scan, const Arguments& arguments) {
  std::vector<bool> used(scan.chunks.size());
  for (const FoundSlot& found : scan.slots) used[found.chunk] = true;
  uint64_t given_back = 0;
  for (uint32_t chunk = 0; chunk < scan.chunks.size(); ++chunk) {
    if (used[chunk] || scan.chunks[chunk].slot_pages == 0) continue;
    if (const int result = store.drop_chunk(chunk); result < 0) {
      return fail(arguments.dir, Error(Errc::copy_failed, "the file system does not take room back",
                                       static_cast<uint32_t>(-result)));
    }
    ++given_back;
  }
  size_t last = scan.chunks.size();
  while (last > 0 && !used[last - 1]) --last;
  store.files->truncate(store.slab, last * store.format.chunk_bytes);
  const uint64_t bytes = given_back * store.format.chunk_bytes;
  if (arguments.json) {
    std::printf("{\"chunks\": %llu, \"bytes\": %llu}\n", number(given_back), number(bytes));
  } else {
    std::printf("%llu chunks without entries, %llu bytes given back\n", number(given_back),
                number(bytes));
  }
  return 0;
}

int export_one(Store& store, const Scan& scan, const Arguments& arguments) {
  const FoundSlot* chosen = nullptr;
  uint64_t matches = 0;
  const std::string_view asked = arguments.key;
  const size_t colon = asked.find(':');
  const std::string_view kind =
      colon == std::string_view::npos ? std::string_view() : asked.substr(colon + 1);
  for (const FoundSlot& found : scan.slots) {
    const EntryKey& key = found.header.key;
    if (!key.chain.hex().starts_with(asked.substr(0, colon))) continue;
    if (!kind.empty() && kind != to_string(key.kind)) continue;
    // The older of two with one key is as good as gone.
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
  if (check_payload(store, *chosen, buffer) != Payload::whole) {
    std::fputs("stemma inspect: the entry is damaged; nothing was written\n", stderr);
    return 1;
  }
  const int file = open(arguments.out.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const uint8_t* from = buffer.data() + shape_of(chosen->header.info).payload_at;
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
  print_entry(*chosen, "", arguments.json, true);
  if (arguments.json) std::printf("\n  ]\n}\n");
  return 0;
}

}  // namespace

int run_inspect(std::span<const std::string_view> words) {
  Arguments arguments;
  const std::string problem = parse(words, arguments);
  if (arguments.help) {
    std::fputs(kHelp, stdout);
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
  auto found = scan(**store, options.depth, {});
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
