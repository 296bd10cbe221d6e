// A TraceRecorder writes down the requests that a server takes, so that their owner can replay them: when
// each came, how long it was, what it had in common with those before it, how it ended. Never what it said.
//
//   look() --taken()--> waits --ended(), and so has all that came before it--> written
//     '--- refused: nothing is left of it
//
// Every recording is a stream of our own trace format (docs/formats/trace.md), to a client of its own. Blocks
// and sessions are told apart by digests that stay in here, and written as numbers in the order they were
// first seen; so another recording of the same traffic has the same numbers, and no file has anything that was
// made from a prompt or a name. Blocks of different scopes are different blocks.
//
// Everything that can grow has a limit. When too many wait behind one long request, that one is written
// without what is not known of it. When there are too many blocks or sessions to tell apart, or no memory, the
// recording ends, and the log says so. A client that is too slow or gone ends its recording and nothing else.
//
// Invariant:  requests are written in the order of taken(), each once; time never goes back; what has been
//             sent, with {"end":N} behind it, is always a whole trace.
// Threading:  thread-safe. Nothing waits for a client. ended() waits for the numbering of a prompt's blocks only
//             where it comes before the end of taken(), so it can be called on the engine's thread.
// Ownership:  holds the replies until their recordings are over. The clock outlives it; requests may.
// Cost:       while nobody records, one relaxed load a request (3 ns). A recording takes the digests of each
//             prompt, on the caller's thread: 0.35 ms for 100,000 tokens in blocks of 512, 1 ms in blocks of
//             16, with SHA instructions; then 24 to 48 bytes a new block, 96 MiB at most. ended(): 1 to 2 us.
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

// What is sent while there is nothing to say: readers of traces pass over it.
inline constexpr std::string_view kTraceKeepAlive = "\n";
inline constexpr std::string_view kTraceType = "application/jsonl";

// A request on its way through all recordings that there were when it came.
class RecordedRequest {
 public:
  virtual ~RecordedRequest() = default;
  // It will be answered: it comes behind all that were taken before it. Once, at most.
  virtual void taken() = 0;
  // It has ended; also before taken() is called. When this returns it is in the order. Once, at most.
  virtual void ended(FinishReason finish, uint32_t output_tokens) = 0;
};

class TraceRecorder {
 public:
  static constexpr uint32_t kLeastBlockTokens = 16;
  static constexpr uint32_t kMostBlockTokens = 1024;

  struct Options {
    uint32_t recordings = 4;  // At one time.
    uint32_t waiting = 4096;  // Requests that wait for one that came before them.
    uint32_t blocks = 4U << 20U;
    uint32_t sessions = 1U << 20U;
    const Clock* clock = nullptr;  // null = monotonic.
    std::function<void(std::string_view line)> log = {};
  };
  explicit TraceRecorder(Options options);
  ~TraceRecorder();  // end_all().

  // Answers with a stream that lasts until end(), or until its client goes; its number is in the header
  // Stemma-Recording. Nothing: there are as many as there may be, or end_all() was called; the reply is
  // untouched then. Requires kLeastBlockTokens <= block_tokens <= kMostBlockTokens.
  std::optional<uint64_t> begin(const std::shared_ptr<HttpReply>& reply, uint32_t block_tokens);
  // Writes what waits, without what is not known of it, and the last line. false: there is no such recording.
  bool end(uint64_t recording);
  // The same of all; there are no more after it.
  void end_all();

  // Whether look() has anything to do.
  bool records() const noexcept;
  // A request that somebody is about to take; null: nobody records. Borrows nothing after it returns.
  std::shared_ptr<RecordedRequest> look(const Scope& scope, std::span<const Token> prompt,
                                        std::string_view session);

 private:
  class Recording;
  class Recordings;
  class Request;
  const std::shared_ptr<Recordings> recordings_;
};

// Says everything on to `listener`, and to `request` how it ended, before its client can know.
std::shared_ptr<Listener> tell_too(std::shared_ptr<RecordedRequest> request,
                                   std::shared_ptr<Listener> listener);

}  // namespace stemma::server
