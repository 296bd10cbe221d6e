// Names in a shared directory (docs/formats/shared-tier.md): pure functions between keys and names.
// A file whose name they do not know is not ours, and is never touched.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stemma/tier/tier.h"

namespace stemma::tier::shared {

inline constexpr uint32_t kSharedVersion = 2;
inline constexpr std::string_view kMarkerName = "stemma-shared-tier";
inline constexpr uint32_t kFolders = 16;

// The key's first hexadecimal digit.
std::string folder_name(uint32_t folder);
inline uint32_t folder_of(const EntryKey& key) noexcept { return key.chain.bytes[0] >> 4U; }
// The folder of a scope inside that: the last 16 digits of all its keys. None: not a scope's
// folder.
std::string scope_name(uint64_t owner);
std::optional<uint64_t> parse_scope(std::string_view name) noexcept;
// 64 hexadecimal digits, '.', the kind, '.', the group as two hexadecimal digits.
std::string file_name(const EntryKey& key);
// None: not an entry's name.
std::optional<EntryKey> parse_name(std::string_view name);

// ".stemma-tmp-", the host, '-', the process, '-', a unique number.
std::string temporary_prefix(std::string_view host, uint64_t process, uint64_t random);
bool is_temporary(std::string_view name) noexcept;
// Whether it may be in the directory itself, beside the marker.
bool is_ours_at_top(std::string_view name) noexcept;
// A folder of version 1, whose keys do not tell their scope: two hexadecimal digits.
bool is_old_folder(std::string_view name) noexcept;

std::string marker_text(uint32_t version);
// None: not a marker of ours.
std::optional<uint32_t> parse_marker(std::string_view text);

}  // namespace stemma::tier::shared
