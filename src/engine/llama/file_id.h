// The identity of a file by its content: SHA-256, remembered by size, time, inode and device, so that a
// model of many gigabytes is read through once and not at every start.
//
// Threading:  thread-safe between processes and threads; two at once do the work twice.
// Cost:       a stat() and a small file when known; else one pass over the file, 1 to 2 GB/s.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stemma::engine {

struct FileId {
  std::string sha256;  // 64 hexadecimal digits; empty = `why` it is not known.
  std::string why;
  bool remembered = false;
};

// `memory` is the file that remembers; empty = none. One that cannot be read or written is done without.
// `progress` hears of bytes read and the file's size, now and then; false stops.
FileId file_id(const std::string& path, const std::string& memory,
               const std::function<bool(uint64_t, uint64_t)>& progress = {});

// The files that a model lies in: all of NAME-00001-of-00003.gguf, which llama.cpp loads by the first one's name;
// otherwise the file itself.
std::vector<std::string> model_parts(const std::string& path);

// Where it is usually remembered: in the user's cache folder; empty if there is none.
std::string usual_file_memory();

}  // namespace stemma::engine
