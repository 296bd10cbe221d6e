#include "dialect/probe_thinking.h"

#include <array>
#include <string>

#include "dialect/probe_calls.h"
#include "dialect/values/json_text.h"

namespace stemma::dialect {

namespace {

constexpr std::array<const char*, 4> kFields = {"reasoning_content", "reasoning", "thinking",
                                                "parts"};

// A quoted thought is a Python dict that the template printed, not an answer.
bool shows_thought(std::string_view text) {
  const size_t at = text.find(kThought);
  return at != kNowhere && at > 0 && text[at - 1] != '\'' && text[at - 1] != '"';
}

// Size of the beginning that the answers share with the prompt: the assistant's header.
size_t header_size(std::string_view prompt, std::string_view plain, std::string_view thought) {
  size_t same = 0;
  while (same < prompt.size() && same < plain.size() && same < thought.size() &&
         prompt[same] == plain[same] && prompt[same] == thought[same]) {
    ++same;
  }
  if (same == prompt.size()) return same;
  const auto ends_marker = [](char byte) { return byte == '>' || byte == ']' || is_blank(byte); };
  while (same > 0 && !ends_marker(prompt[same - 1])) --same;
  return same;
}

// Reads how a template renders thinking, between the header and the content.
void read_thinking(std::string_view prompt, std::string_view plain, std::string_view thought,
                   Format& format) {
  const size_t at = thought.find(kThought);
  const size_t said = thought.find(kSaid, at);
  if (said == kNowhere) return;
  const std::string_view before = trimmed(thought.substr(0, at));
  const std::string_view behind =
      trimmed(thought.substr(at + kThought.size(), said - at - kThought.size()));
  // A closer whose opener stands directly before the thought.
  for (size_t end = 1; end <= behind.size(); ++end) {
    if (behind[end - 1] != '>' && behind[end - 1] != ']') continue;
    const std::string_view closer = behind.substr(0, end);
    for (size_t begin = before.size(); begin-- > 0;) {
      if (before[begin] != '<' && before[begin] != '[') continue;
      if (closer_for(before.substr(begin)) != closer) continue;
      format.thinking.opener = before.substr(begin);
      format.thinking.closer = closer;
      return;
    }
  }
  const size_t header = header_size(prompt, plain, thought);
  const std::string_view opener = trimmed(thought.substr(0, at).substr(header));
  std::string_view closer = behind;
  const size_t plain_said = plain.find(kSaid);
  if (plain_said != kNowhere && plain_said >= header) {
    const std::string_view content_open = trimmed(plain.substr(header, plain_said - header));
    if (!content_open.empty() && closer.ends_with(content_open)) {
      closer = trimmed(closer.substr(0, closer.size() - content_open.size()));
    }
  }
  if (opener.empty() || closer.empty()) return;
  format.thinking.opener = opener;
  format.thinking.closer = closer;
}

// Finds markers around content: the text between header and content, without the thinking.
void read_content_marks(std::string_view prompt, std::string_view plain, Format& format) {
  const size_t said = plain.find(kSaid);
  if (said == kNowhere) return;
  size_t header = header_size(prompt, plain, prompt);
  const std::string_view opener = format.thinking.opener;
  const std::string_view head = trimmed(plain.substr(0, std::min(header, said)));
  if (!opener.empty() && head.ends_with(opener)) header = plain.find(opener);
  if (header > said) return;
  const std::string_view open =
      trimmed(without_thinking(plain.substr(header, said - header), format.thinking));
  if (open.empty() || open == opener || (open.back() != '>' && open.back() != ']')) return;
  if (trimmed(prompt).ends_with(open)) return;  // The prompt already contains it.
  format.content_open = open;
  const std::string closer = closer_for(open);
  const std::string_view behind = trimmed(plain.substr(said + kSaid.size()));
  if (!closer.empty() && behind.starts_with(closer)) format.content_close = closer;
}

// Models that think although their templates render no thinking: the template cuts thinking off by
// its closer, or the prompt opens it.
void known_thinking(std::string_view source, Format& format) {
  struct Pair {
    std::string_view open, close;
  };
  static constexpr std::array kPairs = {
      Pair{"<think>", "</think>"},
      Pair{"[THINK]", "[/THINK]"},
      Pair{"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
      Pair{"<|channel>thought", "<channel|>"},
      Pair{"<|START_THINKING|>", "<|END_THINKING|>"},
      Pair{"<|inner_prefix|>", "<|inner_suffix|>"}};
  for (const Pair& pair : kPairs) {
    if (source.find(pair.open) == kNowhere || source.find(pair.close) == kNowhere) continue;
    format.thinking.opener = pair.open;
    format.thinking.closer = pair.close;
    return;
  }
}

}  // namespace

std::string_view without_thinking(std::string_view text, const Thinking& thinking) {
  const std::string_view inner = trimmed(text);
  if (thinking.closer.empty()) return text;
  if (inner.starts_with(thinking.closer)) return inner.substr(thinking.closer.size());
  if (thinking.opener.empty() || !inner.starts_with(thinking.opener)) return text;
  const size_t end = inner.find(thinking.closer);
  return end == kNowhere ? text : inner.substr(end + thinking.closer.size());
}

std::string find_thinking_field(const ProbeTalk& talk, Format& format) {
  // Some templates render thinking only if told to, or only beside calls.
  for (const uint32_t calls : {0U, 1U}) {
    for (const bool on : {false, true}) {
      ProbeTalk tried = talk;
      tried.thinking_on = on;
      for (const char* field : kFields) {
        ProbeAnswer answer;
        answer.thinking_field = field;
        answer.calls = calls;
        auto text = tried.answered(answer);
        if (!text || !shows_thought(*text)) continue;
        format.thinking.field = field;
        const auto again = tried.asked_again(answer);
        format.thinking.kept_in_history = again && shows_thought(*again);
        return std::move(*text);
      }
    }
  }
  return {};
}

void find_thinking(std::string_view source, const ProbeTalk& talk, std::string_view prompt,
                   std::string_view plain, Format& format) {
  const std::string text = find_thinking_field(talk, format);
  // Beside calls, the content need not follow the thought.
  if (!text.empty() && after_question(text).find(kFirstTool) == kNowhere) {
    read_thinking(after_question(prompt), after_question(plain), after_question(text), format);
  }
  if (format.thinking.opener.empty()) known_thinking(source, format);
  read_content_marks(after_question(prompt), after_question(plain), format);
  format.thinking.opened_by_prompt =
      !format.thinking.opener.empty() && trimmed(prompt).ends_with(format.thinking.opener);
}

}  // namespace stemma::dialect
