#include "dialect/probe.h"

#include <array>
#include <vector>

#include "dialect/answer_parser.h"
#include "dialect/families.h"
#include "dialect/probe_calls.h"
#include "dialect/probe_talk.h"
#include "dialect/probe_thinking.h"
#include "dialect/values/json_text.h"

namespace stemma::dialect {

namespace {

constexpr size_t kMostTurnEndBytes = 64;

bool has(std::string_view text, std::string_view word) { return text.find(word) != kNowhere; }

class Probe {
 public:
  Probe(const jinja::Template& chat, std::string_view source, const ProbeOptions& options)
      : source_(source), options_(options), talk_(chat, options) {}

  Format run() {
    prompt_ = talk_.prompt();
    if (!prompt_) {
      // A template may fail on tool definitions; the rest of it can still be probed.
      talk_.with_tools = false;
      prompt_ = talk_.prompt();
    }
    format_.lists_tools = prompt_ && has(*prompt_, kFirstTool);
    plain_ = talk_.answered({});
    const bool family = apply_family(source_, FamilyTurn::before_difference, format_);
    if (prompt_ && plain_ && format_.channels.opener.empty()) {
      find_thinking(source_, talk_, *prompt_, *plain_, format_);
    } else if (prompt_ && plain_) {
      find_thinking_field(talk_, format_);
    }
    learn_turn_end();
    const bool shown = find_calls(family);
    if (!shown && !family) apply_family(source_, FamilyTurn::after_difference, format_);
    if (!supports_tools(format_)) format_.source = "none";
    learn_history();
    return std::move(format_);
  }

 private:
  void learn_turn_end() {
    std::string_view rest = trimmed(end_of_plain_content());
    const std::string_view close = format_.content_close;
    if (!close.empty() && rest.substr(0, close.size()) == close) {
      rest = trimmed(rest.substr(close.size()));
    }
    // Some templates add instructions for the next turn.
    if (rest.size() > kMostTurnEndBytes) rest = rest.substr(0, rest.find_first_of(">]") + 1);
    format_.turn_end = rest;
  }

  // Tries the ways to pass calls to the template, until one of them renders calls that we can read
  // back.
  bool find_calls(bool family) {
    for (const ArgumentsAs as : {ArgumentsAs::object, ArgumentsAs::text}) {
      for (const uint32_t calls : {2U, 1U}) {
        if (find_calls(family, as, calls)) return true;
      }
    }
    return false;
  }

  // Tries each kind of content. The first that works shows what history looks like. Of the formats,
  // keep the one with the shortest opener, because some templates write content as a separate
  // message before the calls.
  bool find_calls(bool family, ArgumentsAs as, uint32_t calls) {
    const Format before = format_;
    std::optional<Format> best;
    for (const ContentAs content : {ContentAs::text, ContentAs::empty, ContentAs::none}) {
      ProbeAnswer answer;
      answer.content = content;
      answer.calls = calls;
      answer.arguments_as = as;
      const auto text = talk_.answered(answer);
      if (!text || !has(after_question(*text), kFirstTool)) continue;
      format_ = before;
      if (!(family ? reads_back(answer_of(*text), calls) : read_calls_of(*text, calls))) continue;
      if (!best) {
        note_history(*text, answer);
        best = format_;
      } else if (opener_size(format_) < opener_size(*best)) {
        format_.history = best->history;
        best = format_;
      } else if (best->call_turn_ends.empty()) {
        best->call_turn_ends = format_.call_turn_ends;
      }
    }
    format_ = best.value_or(before);
    return best.has_value();
  }

  static size_t opener_size(const Format& format) {
    return format.calls.section_open.size() + format.calls.call_open.size();
  }

  // Returns the answer in a rendered conversation: the text after the question and the assistant's
  // header.
  std::string_view answer_of(std::string_view text) const {
    std::string_view rest = after_question(text);
    const std::string_view header = prompt_ ? after_question(*prompt_) : std::string_view();
    size_t same = 0;
    while (same < rest.size() && same < header.size() && rest[same] == header[same]) ++same;
    if (same < header.size()) {
      // Here the prompt differs from the answer: the prompt opens thinking.
      while (same > 0 && header[same - 1] != '>' && header[same - 1] != ']' &&
             !is_blank(header[same - 1])) {
        --same;
      }
    }
    return rest.substr(same);
  }

  bool read_calls_of(std::string_view text, uint32_t calls) {
    const std::string_view answer = answer_of(text);
    const size_t said = answer.find(kSaid);
    const size_t name = answer.find(kFirstTool);
    std::string_view region = answer;
    const bool after_content = said != kNowhere && said < name;
    if (after_content) region.remove_prefix(said + kSaid.size());
    region = without_thinking(region, format_.thinking);
    std::string content_close = format_.content_close;
    if (after_content && content_close.empty()) {
      content_close = trimmed(common_front(region, end_of_plain_content()));
    }
    const std::string_view trimmed_region = trimmed(region);
    if (!content_close.empty() && trimmed_region.substr(0, content_close.size()) == content_close) {
      region = trimmed_region.substr(content_close.size());
    }
    Format found = format_;
    std::string after_calls;
    std::string_view tail;
    const bool tail_is_cut = said != kNowhere && !after_content;
    if (tail_is_cut) {
      region = region.substr(0, region.find(kSaid));
    } else {
      tail = common_back(region, end_of_plain_content());
    }
    const auto read = read_calls(region, tail, after_calls);
    if (!read) return false;
    found.calls = *read;
    found.content_close = content_close;
    found.source = "difference";
    strip_end_token(found.calls.section_close);
    strip_end_token(found.calls.call_close);
    const bool one_marker = after_calls.find('<', 1) == kNowhere;
    if (!after_calls.empty() && one_marker && after_calls != found.turn_end && !tail_is_cut) {
      found.call_turn_ends = {after_calls};
    }
    if (found.calls.section_open.empty() && found.calls.call_open.empty() &&
        has(source_, "<|python_tag|>")) {
      found.calls.optional_opens = {"<|python_tag|>"};
    }
    std::swap(format_, found);
    if (reads_back(answer, calls)) return true;
    std::swap(format_, found);
    return false;
  }

  std::string_view end_of_plain_content() const {
    const size_t said = plain_ ? plain_->rfind(kSaid) : kNowhere;
    return said == kNowhere ? std::string_view()
                            : std::string_view(*plain_).substr(said + kSaid.size());
  }

  void strip_end_token(std::string& marker) const {
    const size_t at = options_.eos_token.empty() ? kNowhere : marker.find(options_.eos_token);
    if (at != kNowhere) marker = trimmed(marker.substr(0, at));
  }

  // Whether our parser finds the calls that the template rendered.
  bool reads_back(std::string_view answer, uint32_t calls) const {
    AnswerStart start = AnswerStart::text;
    if (!format_.channels.opener.empty() && has(prompt_.value_or(""), format_.channels.opener)) {
      start = answer_start(format_, *prompt_);
    }
    AnswerParser parser(format_, ProbeTalk::tools(), start);
    std::vector<Event> events;
    parser.feed(answer, events);
    parser.finish(AnswerEnd::stop, events);
    ParsedMessage message;
    for (const Event& event : events) message.add(event);
    if (message.calls.empty() || message.calls.size() > calls) return false;
    if (has(answer, kSecondTool) && message.calls.size() < calls) return false;
    for (size_t i = 0; i < message.calls.size(); ++i) {
      const ParsedCall& call = message.calls[i];
      const std::string expected =
          ProbeTalk::arguments_json(static_cast<uint32_t>(i), ProbeArguments::plain);
      const auto got = read_json(call.arguments);
      const auto want = read_json(expected);
      if (!call.complete || !got || write_json(*got) != write_json(*want)) return false;
    }
    return true;
  }

  void note_history(std::string_view text, const ProbeAnswer& answer) {
    const std::string_view rendered = after_question(text);
    History& history = format_.history;
    history.renders_calls = true;
    history.arguments = answer.arguments_as;
    history.content_hides_calls = answer.content != ContentAs::text;
    history.keeps_content = answer.content == ContentAs::text && has(rendered, kSaid);
    history.content_before_calls =
        history.keeps_content && rendered.find(kSaid) < rendered.find(kFirstTool);
    if (answer.content == ContentAs::none) history.empty_content = EmptyContentAs::none;
    calls_ = answer;
    if (!has(rendered, kSecondTool)) calls_.calls = 1;
  }

  void learn_history() {
    History& history = format_.history;
    if (history.renders_calls) {
      learn_empty_content();
      learn_arguments();
      learn_ids();
      learn_exclusion();
    }
    learn_results();
  }

  bool shows_call(const ProbeAnswer& answer) const {
    const auto text = talk_.answered(answer);
    return text && has(after_question(*text), kFirstTool);
  }

  void learn_empty_content() {
    for (const ContentAs content : {ContentAs::empty, ContentAs::none}) {
      ProbeAnswer answer = calls_;
      answer.content = content;
      if (!shows_call(answer)) continue;
      format_.history.empty_content =
          content == ContentAs::empty ? EmptyContentAs::empty_text : EmptyContentAs::none;
      return;
    }
  }

  void learn_arguments() {
    ProbeAnswer answer = calls_;
    answer.calls = 1;
    answer.arguments = ProbeArguments::nested;
    const auto nested = talk_.answered(answer);
    format_.history.nested_as_text = nested && has(after_question(*nested), "'inner'");
    answer.arguments = ProbeArguments::rough;
    const auto rough = talk_.answered(answer);
    if (rough && has(after_question(*rough), "<![CDATA[")) format_.calls.character_data = true;
  }

  void learn_ids() {
    ProbeAnswer answer = calls_;
    answer.id = "call_0123456789_abcdef";
    format_.history.ids_of_nine = !talk_.answered(answer) && talk_.answered(calls_);
  }

  void learn_exclusion() {
    if (format_.thinking.field.empty() || format_.thinking.field == "parts") return;
    ProbeAnswer answer = calls_;
    answer.thinking_field = format_.thinking.field;
    answer.content = ContentAs::text;
    const bool both = talk_.answered(answer).has_value();
    answer.content = ContentAs::empty;
    format_.history.thinking_excludes_content = !both && talk_.answered(answer);
  }

  void learn_results() {
    ProbeAnswer answer = calls_;
    if (answer.calls == 0) answer.calls = 1;
    const auto kept = [&](bool with_names) {
      const auto text = talk_.with_results(answer, with_names);
      return text && has(after_question(*text), kResult);
    };
    const bool without = kept(false);
    const bool with = without || kept(true);
    format_.history.results = with ? ResultsAs::tool_messages : ResultsAs::user_text;
    format_.history.results_need_name = with && !without;
  }

  std::string_view source_;
  const ProbeOptions& options_;
  ProbeTalk talk_;
  Format format_;
  ProbeAnswer calls_;  // The way to pass calls that worked.
  std::optional<std::string> prompt_;
  std::optional<std::string> plain_;
};

}  // namespace

Format probe(const jinja::Template& chat, std::string_view source, const ProbeOptions& options) {
  return Probe(chat, source, options).run();
}

}  // namespace stemma::dialect
