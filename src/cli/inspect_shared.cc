#if defined(STEMMA_HAS_TIER_SHARED) && defined(STEMMA_HAS_TIER_DISK)

#include "cli/inspect_shared.h"

#include <cstdio>
#include <system_error>

#include "cli/inspect_objects.h"
#include "tier/shared/directory.h"

namespace stemma::cli {

namespace {

using tier::shared::Directory;
using Found = Directory::Found;

const char* to_text(Found found) {
  switch (found) {
    case Found::whole: return "whole";
    case Found::damaged: return "damaged";
    case Found::newer: return "of a newer format";
    case Found::foreign: return "not ours";
    case Found::failed: return "unreadable";
    case Found::absent: return "gone meanwhile";
  }
  return "?";
}

int fail(const std::string& dir, const char* what, int problem) {
  std::fprintf(stderr, "stemma inspect: '%s': %s", dir.c_str(), what);
  if (problem != 0) {
    std::fprintf(stderr, ": %s",
                 std::error_code(problem, std::generic_category()).message().c_str());
  }
  std::fputs("\n", stderr);
  return 1;
}

void print(const tier::shared::Books::Seen& file, const tier::EntryHeader& header, Found found,
           bool json, bool first) {
  const std::string key = file.key.chain.hex();
  const std::string kind(to_string(file.key.kind));
  if (json) {
    std::printf(
        R"(%s
    {"key": "%s", "kind": "%s", "group": %u, "begin": %u, "end": %u, "bytes": %llu, "words": %u, "layout": "%016llx", "written": %llu, "used": %llu, "state": "%s"})",
        first ? "" : ",", key.c_str(), kind.c_str(), file.key.group, header.info.begin,
        header.info.end, static_cast<unsigned long long>(header.info.bytes), header.info.words,
        static_cast<unsigned long long>(header.info.layout),
        static_cast<unsigned long long>(header.written),
        static_cast<unsigned long long>(file.modified_ns / 1'000'000'000), to_text(found));
  } else {
    std::printf("%s  %-10s %3u  [%u, %u)  %llu bytes%s%s\n", key.c_str(), kind.c_str(),
                file.key.group, header.info.begin, header.info.end,
                static_cast<unsigned long long>(header.info.bytes),
                found == Found::whole ? "" : "  ", found == Found::whole ? "" : to_text(found));
  }
}

}  // namespace

bool is_shared_directory(const std::string& dir) {
  return Directory(dir, tier::make_system_files()).check() == 0;
}

int inspect_shared(const std::string& dir, bool verify, bool json) {
  Directory directory(dir, tier::make_system_files());
  const auto version = directory.version();
  if (!version) {
    const bool system = version.error().code() == Errc::copy_failed;
    return fail(dir, version.error().message(),
                system ? static_cast<int>(version.error().value()) : 0);
  }
  if (json) std::printf("{\n  \"version\": %u,\n  \"list\": [", *version);
  uint64_t entries = 0, bytes = 0, bad = 0, temporary_bytes = 0, foreign = 0;
  ObjectSpaces spaces;
  for (uint32_t folder = 0; folder < tier::shared::kFolders; ++folder) {
    Directory::Folder listed;
    if (const int result = directory.list(folder, 0, listed); result < 0) {
      return fail(dir, "a folder cannot be read", -result);
    }
    temporary_bytes += listed.temporary_bytes;
    foreign += listed.foreign;
    for (const auto& file : listed.seen) {
      tier::EntryHeader header;
      const Found found =
          verify ? directory.verify(file.key, header) : directory.look(file.key, header);
      if (found == Found::absent) continue;
      bytes += file.file_bytes;
      spaces.add(header, [&](std::vector<uint8_t>& payload) {
        tier::EntryHeader ignored;
        return directory.verify(file.key, ignored, &payload) == Found::whole;
      });
      bad += found == Found::damaged || found == Found::failed ? 1U : 0U;
      // People look for problems, so text output lists only those.
      if (json || !verify || found != Found::whole) print(file, header, found, json, entries == 0);
      ++entries;
    }
  }
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  if (json) {
    std::printf(
        "\n  ],\n  \"namespaces\": [%s],\n  \"entries\": %llu, \"bytes\": %llu, \"damaged\": %llu, "
        "\"temporary_bytes\": "
        "%llu, "
        "\"foreign\": %llu\n}\n",
        spaces.json().c_str(), number(entries), number(bytes), number(bad), number(temporary_bytes),
        number(foreign));
  } else {
    std::printf("shared tier, format %u: %llu entries, %llu bytes; %llu bytes of temporaries\n",
                *version, number(entries), number(bytes), number(temporary_bytes));
    std::fputs(spaces.lines().c_str(), stdout);
    if (foreign != 0) std::printf("%llu files are not ours\n", number(foreign));
    if (verify) std::printf("%llu entries read, %llu are damaged\n", number(entries), number(bad));
  }
  return bad != 0 ? 1 : 0;
}

}  // namespace stemma::cli

#endif  // STEMMA_HAS_TIER_SHARED
