// A TraceRecorder records the requests that a server accepts, so that its operator can replay them:
// when each came, how long it was, what it shared with earlier ones, how it ended. It never records
// contents.
//
//   look() --taken()--> waits --it and all earlier requests ended()--> written
//     '--- refused: leaves no trace
//
// Every recording is a stream in our own trace format (docs/formats/trace.md), each to its own
// client. Blocks and sessions are identified by digests that never leave the recorder, and written
// as numbers in the order they were first seen. So another recording of the same traffic has the
// same numbers, and no file contains anything made from a prompt or a name. Blocks of different
// scopes are different blocks.
//
// Everything that can grow has a limit. When too many requests wait behind one long request, that
// one is written without the facts that are still unknown. When there are too many blocks or
// sessions, or no memory, the recording ends, and the log says so. A client that is too slow or
// gone ends only its own recording.
//
// Invariant:  requests are written in the order of taken(), each once; time never goes back; the
//             bytes sent so far, with {"end":N} appended, are always a whole trace.
// Threading:  thread-safe. Nothing waits for a client. ended() waits for the numbering of a
//             prompt's blocks only if taken() has not returned yet, so it can be called on the
//             engine's thread.
// Ownership:  holds the replies until their recordings are over. The clock outlives the recorder;
//             requests may outlive it.
// Cost:       while nobody records, one relaxed load a request (3 ns). A recording takes the
//             digests of each prompt, on the caller's thread: 0.35 ms for 100,000 tokens in blocks
//             of 512, 1 ms in blocks of 16, with SHA instructions; then 24 to 48 bytes a new block,
//             96 MiB at most. ended(): 1 to 2 us.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/http/message.h"
#include "server/schedule/generation.h"
#include "stemma/clock.h"
#include "stemma/ids.h"
#include "stemma/retention.h"
#include "stemma/scope.h"

namespace stemma::server {

// Sent while a recording is idle. Readers of traces ignore it.
inline constexpr std::string_view kTraceKeepAlive = "\n";
inline constexpr std::string_view kTraceType = "application/jsonl";

// A request in all recordings that were running when it came.
class RecordedRequest {
 public:
  virtual ~RecordedRequest() = default;
  // The request was accepted. It is ordered behind all that were taken before. Call it once at
  // most.
  virtual void taken() = 0;
  // The request has ended. May be called before taken(). When this returns, the request has its
  // place in the order. Call it once at most.
  virtual void ended(FinishReason finish, uint32_t output_tokens) = 0;
};

class TraceRecorder {
 public:
  static constexpr uint32_t kLeastBlockTokens = 16;
  static constexpr uint32_t kMostBlockTokens = 1024;

  struct Options {
    uint32_t recordings = 4;  // At the same time.
    uint32_t waiting = 4096;  // Requests that wait for an earlier one.
    uint32_t blocks = 4U << 20U;
    uint32_t sessions = 1U << 20U;
    const Clock* clock = nullptr;  // null = monotonic.
    std::function<void(std::string_view line)> log = {};
  };
  explicit TraceRecorder(Options options);
  ~TraceRecorder();  // end_all().

  // Answers with a stream that lasts until end(), or until its client goes. Returns its number,
  // which is also in the header Stemma-Recording. Returns nothing, and leaves the reply alone, if
  // there are too many recordings or end_all() was called.
  // Requires kLeastBlockTokens <= block_tokens <= kMostBlockTokens.
  std::optional<uint64_t> begin(const std::shared_ptr<HttpReply>& reply, uint32_t block_tokens);
  // Writes the waiting requests, without facts that are still unknown, and the last line. Returns
  // false if there is no such recording.
  bool end(uint64_t recording);
  // Ends all recordings. No recording can begin afterwards.
  void end_all();

  // Whether look() has anything to do.
  bool records() const noexcept;
  // Registers a request that is about to be submitted. Returns null while nobody records. Borrows
  // nothing after it returns.
  std::shared_ptr<RecordedRequest> look(const Scope& scope, std::span<const Token> prompt,
                                        std::string_view session);

 private:
  class Recording;
  class Recordings;
  class Request;
  const std::shared_ptr<Recordings> recordings_;
};

// Returns a listener that passes everything on to `listener`, and tells `request` how it ended
// before the client can know.
std::shared_ptr<Listener> tell_too(std::shared_ptr<RecordedRequest> request,
                                   std::shared_ptr<Listener> listener);

}  // namespace stemma::server
