// Splicer: replaces the text of known answers in a conversation with their sampled tokens.
//
//   ...<|im_end|>\n<|im_start|>assistant\n  I'll look.\n<tool_call>{"name": ...}</tool_call>  <|im_end|>\n...
//                   the frame: the template's  '-------- the answer: spliced --------'  the frame again
//
// The splicer finds an answer's place by the marks of its message, the header that the template
// writes before answers, and the text that it writes at their end. It parses both the text there
// and the tokens with the model's own parser, and splices only if both mean the same (meaning.h):
// the text of a wrong place would not parse to the same meaning.
//
// If a template leaves old thinking out, the tokens behind the thinking are spliced, provided that
// the answer begins with the same bytes there. If the template writes an answer in another form,
// nothing is spliced.
//
// Invariant:  everything outside the places is the template's text, with its own tokens. Places do
//             not overlap and are ascending.
// Threading:  immutable; thread-safe.
// Ownership:  model and format outlive it.
// Cost:       O(the known answers): each is parsed twice, about 0.3 us a token.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_parser.h"
#include "dialect/format.h"
#include "engine/language_model.h"
#include "jinja/text.h"
#include "server/api/conversation.h"
#include "server/chat/transcripts.h"

namespace stemma::server {

// Bytes [begin, end) of a text, and the tokens that replace them.
struct Splice {
  size_t begin = 0;
  size_t end = 0;
  std::vector<Token> tokens;
};

// Restores what clients drop from answers, before the messages are rendered: the thinking of an
// answer that was found by its id, and the ids of calls that the model itself wrote (also in the
// results of those calls). The template decides whether the prompt keeps the thinking.
void put_back(std::span<const Transcripts::Found> found, std::vector<Message>& messages);

class Splicer {
 public:
  // `header`: what the template writes before every answer, in the history and for the next one,
  // behind the end of the turn before. May be empty.
  Splicer(const engine::LanguageModel& model, const dialect::Format& format, std::string header);

  // Returns the splices for the messages that were found. `asks`: the text ends where the next
  // answer begins. Counts in `transcripts` whether each one was spliced.
  std::vector<Splice> splices(const jinja::Text& text, std::span<const Message> messages,
                              std::span<const Transcripts::Found> found,
                              std::span<const dialect::Tool> tools, bool asks,
                              Transcripts& transcripts) const;

 private:
  // Where an answer may be, and in which state parsing it begins.
  struct Place {
    size_t begin = 0;
    size_t end = 0;
    dialect::AnswerStart start = dialect::AnswerStart::text;
    // It begins where the sampled tokens began: behind everything that the template writes before
    // the next answer.
    bool as_sampled = false;
  };
  struct Turn {
    size_t before = 0;  // The end of the text before the answer's header.
    size_t first = 0;   // Where the answer's first mark begins.
    size_t last = 0;    // Where its last mark ends.
    size_t after = 0;   // Where the next message's first mark begins.
  };
  std::vector<Place> places(std::string_view text, const Turn& turn,
                            std::string_view opening) const;
  size_t end_of(std::string_view text, const Turn& turn) const;
  size_t begin_without_header(std::string_view text, const Turn& turn) const;
  bool fits(std::string_view text, const Place& place, const Transcript& transcript,
            std::string_view opening, std::span<const dialect::Tool> tools, Splice& splice) const;
  dialect::ParsedMessage read(std::string_view text, dialect::AnswerStart start,
                              std::span<const dialect::Tool> tools) const;

  const engine::LanguageModel& model_;
  const dialect::Format& format_;
  const std::string header_;
  std::vector<Token>
      printed_;  // Special tokens whose text means something to the parser. Ascending.
};

}  // namespace stemma::server
