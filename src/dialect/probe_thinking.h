// Finds how a template writes thinking, and the markers around content.
// Threading:  pure functions.
#pragma once

#include <string>
#include <string_view>

#include "dialect/format.h"
#include "dialect/probe_talk.h"

namespace stemma::dialect {

// `prompt` is a rendered question; `plain` is the question with an answer that has neither thinking
// nor calls.
void find_thinking(std::string_view source, const ProbeTalk& talk, std::string_view prompt,
                   std::string_view plain, Format& format);
// Finds only the message field that thinking is read from, and whether thinking is kept. Returns a
// rendered answer with thinking, or an empty string if the template renders none.
std::string find_thinking_field(const ProbeTalk& talk, Format& format);

// `text` without thinking at its front, which may be empty or only its closer.
std::string_view without_thinking(std::string_view text, const Thinking& thinking);

}  // namespace stemma::dialect
