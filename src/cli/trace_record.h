// `stemma trace record`: writes down what a running server is asked, in our own trace format.
#pragma once

#include <cstdint>
#include <string>

namespace stemma::cli {

struct RecordOptions {
  std::string url;
  std::string out;       // Empty or "-": standard output.
  uint64_t seconds = 0;  // 0: until it is told to end.
  uint32_t block_tokens = 512;
  std::string api_key_file;  // Empty: the variable STEMMA_API_KEY, if there is one.
};

// Records until a signal, the time or the server ends it. However it ends, what was written is a whole trace, unless
// it could not be written. Returns the exit code: 0 recorded, 1 not, or not to its end; 2 bad arguments.
int run_record(const RecordOptions& options);

}  // namespace stemma::cli
