// `stemma trace record`: records the requests of a running server, in our own trace format.
#pragma once

#include <cstdint>
#include <string>

namespace stemma::cli {

struct RecordOptions {
  std::string url;
  std::string out;       // Empty or "-": standard output.
  uint64_t seconds = 0;  // 0: until a signal or the server ends it.
  uint32_t block_tokens = 512;
  std::string api_key_file;  // Empty: the variable STEMMA_API_KEY, if there is one.
};

// Records until a signal, the time or the server ends it. In every case the output is a whole
// trace, unless it could not be written. Returns the exit code: 0 recorded, 1 not recorded or not
// to the end, 2 bad arguments.
int run_record(const RecordOptions& options);

}  // namespace stemma::cli
