// The identity of a file by its content: SHA-256, remembered so that a model of many gigabytes is
// read completely only once and not at every start.
//
// A remembered digest is used if the file's size, mtime, ctime, inode and device are the same, and
// a sample of its content is too: the first MiB and 64 blocks spread over the rest. So a file that
// was replaced in place is read again, even if its time was restored (`cp -p`) or is always the
// same (Nix, Bazel, layers of containers). A renamed file is read again, too.
//
// Threading:  thread-safe between processes and threads; two at once do the work twice.
// Cost:       if remembered, a small file and at most 2 MiB in 65 places of the file; else one pass
//             over the file, 1 to 2 GB/s.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stemma::engine {

struct FileId {
  std::string sha256;  // 64 hexadecimal digits; empty if it is not known.
  std::string why;     // Why it is not known.
  bool remembered = false;
};

// `memory` is the file that remembers digests; empty = none. If it cannot be read or written, it is
// ignored. `progress` is called now and then with the bytes read and the file's size; returning
// false stops.
FileId file_id(const std::string& path, const std::string& memory,
               const std::function<bool(uint64_t, uint64_t)>& progress = {});

// The files that a model lies in: all of NAME-00001-of-00003.gguf, which llama.cpp loads by the
// first one's name; otherwise the file itself.
std::vector<std::string> model_parts(const std::string& path);

// The usual `memory` file, in the user's cache folder; empty if there is none.
std::string usual_file_memory();

}  // namespace stemma::engine
