// Traces of any bytes: read strictly and leniently; a trace that was read is written in our format
// and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "replay/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stemma::replay;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const bool lenient : {false, true}) {
    Trace trace;
    LoadReport report;
    if (!load_trace(*ByteSource::of(bytes), {.lenient = lenient}, trace, report).empty()) continue;
    Trace again;
    if (!load_trace(*ByteSource::of(write_trace(trace)), {}, again, report).empty()) std::abort();
    if (again.words != trace.words || again.unique_blocks != trace.unique_blocks) std::abort();
  }
  return 0;
}
