// Transcripts: remembers the exact tokens that answers were sampled as, so that they can be put
// back into the next prompt.
//
// A client sends an answer back as text: JSON rewritten, a newline dropped, thinking left out.
// Rendered and tokenised again, the text often has other tokens, and everything behind it would
// have to be recomputed. So the server remembers each answer under opaque ids that clients return
// (ids of tool calls, signatures of thinking, ids of items). For answers without such ids it uses a
// digest of their contents and of the message that they answer. If a returned message means the
// same as the sampled one (meaning.h), the sampled tokens are spliced into the prompt (splice.h).
// If anything in it was changed, they are not.
//
//   answer ends --remember()--> memory, the latest used first --> tiers, if there are any: they outlive kill -9
//   next request --find()--> by id, then by digest; in memory, then in the tiers
//
// Invariant:  an id is 128 random bits and reveals nothing about its answer. A transcript is only
//             found under the salt and the model it was made with. An edited answer is never found.
//             At most `bytes` are held.
// Threading:  thread-safe. find() may wait for tiers, for at most `tier_ns`; nothing waits under a
//             lock.
// Ownership:  the stack outlives it.
// Cost:       O(the messages) to compare; a few hundred bytes per transcript besides its tokens and
//             text. In tiers an answer takes one entry, and a small one for each further name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_events.h"
#include "server/api/conversation.h"
#include "server/api/random_id.h"
#include "stemma/ids.h"
#include "stemma/result.h"
#include "stemma/scope.h"
#include "stemma/tier/tier_stack.h"

namespace stemma::server {

struct Transcript {
  std::vector<Token> tokens;  // As sampled, without the end of the turn.
  dialect::ParsedMessage message;
  std::vector<std::string> call_ids;  // Of message.calls, in order, as clients know them.
  // The text of the message that this answers. Only remember() looks at it.
  std::string before;
};

struct TranscriptOptions {
  uint64_t bytes = uint64_t{64} << 20U;  // In memory. 0: nothing is remembered.
  // Returns the scope of a salt. Empty: no tiers, and only the salt separates transcripts.
  std::function<Result<Scope>(const std::string& salt)> scope = {};
  tier::TierStack* stack = nullptr;  // null: transcripts end with the process.
  uint64_t layout = 0;               // EntryInfo::layout of its entries, as for the model's others.
  uint64_t tier_ns = 200'000'000;    // The longest that find() waits for tiers.
};

struct TranscriptStats {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t remembered = 0;
  uint64_t spliced = 0;  // Messages whose tokens were put back.
  uint64_t unfit =
      0;  // Messages that the template writes in another form than they were sampled in.
  uint64_t different = 0;  // Messages that were found but now say something else.
  uint64_t unknown = 0;    // Assistant messages without a known transcript.
  uint64_t evicted = 0;
  uint64_t from_tiers = 0;
};

class Transcripts {
 public:
  explicit Transcripts(const TranscriptOptions& options);
  ~Transcripts();

  // Remembers an answer under `id` (random_id()), under the ids of its calls and under its digest.
  // An answer with an incomplete call is not remembered: nobody can send it back. If `may_save`
  // says false, nothing is remembered. What it says must become false before forget() is called.
  void remember(const std::string& salt, std::string_view id, Transcript transcript,
                const std::function<bool()>& may_save = {});

  struct Found {
    std::shared_ptr<const Transcript> transcript;  // null: not known, or it says something else.
    // It was found by an id, which no other client has. An equal digest may belong to an answer to
    // another client's question.
    bool by_id = false;
  };
  // Returns the transcript of each message; none for messages that are not an assistant's.
  std::vector<Found> find(const std::string& salt, std::span<const Message> messages);

  // Counts whether a found message was spliced.
  void count(bool spliced);

  // Forget one salt's transcripts in memory, or all. Call TierStack::purge() afterwards to make
  // tiers forget too. What find() was already loading is not kept.
  void forget(const std::string& salt);
  void forget_all();
  TranscriptStats stats() const;

 private:
  class Store;
  std::unique_ptr<Store> store_;
};

}  // namespace stemma::server
