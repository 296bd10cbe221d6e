#include "server/chat/splice.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "server/chat/meaning.h"
#include "server/chat/part_numbers.h"

namespace stemma::server {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool is_blank(char byte) { return kBlanks.find(byte) != std::string_view::npos; }

// The tools of a request, plus those that an answer called but are no longer offered.
std::vector<dialect::Tool> with_called(std::span<const dialect::Tool> tools,
                                       const dialect::ParsedMessage& message) {
  std::vector<dialect::Tool> all(tools.begin(), tools.end());
  for (const dialect::ParsedCall& call : message.calls) {
    if (std::ranges::find(all, call.name, &dialect::Tool::name) == all.end()) {
      all.push_back({.name = call.name, .parameters = {}});
    }
  }
  return all;
}

// Whether two texts of the same meaning begin in the same form.
bool begin_alike(std::string_view one, std::string_view other) {
  constexpr size_t kBytes = 8;
  if (one.empty() || other.empty()) return one.empty() && other.empty();
  if (is_blank(one.front()) || is_blank(other.front())) return false;
  const size_t bytes = std::min({kBytes, one.size(), other.size()});
  return one.substr(0, bytes) == other.substr(0, bytes);
}

}  // namespace

void put_back(std::span<const Transcripts::Found> found, std::vector<Message>& messages) {
  std::map<std::string, std::string, std::less<>> ids;  // From the client's ids to the model's.
  for (size_t m = 0; m < messages.size(); ++m) {
    Message& message = messages[m];
    if (message.role == "tool") {
      if (const auto known = ids.find(message.call_id); known != ids.end()) {
        message.call_id = known->second;
      }
    }
    if (message.role == "assistant") ids.clear();
    if (m >= found.size() || found[m].transcript == nullptr) continue;
    const dialect::ParsedMessage& sampled = found[m].transcript->message;
    if (message.reasoning.empty() && found[m].by_id) message.reasoning = sampled.reasoning;
    for (size_t c = 0; c < message.calls.size() && c < sampled.calls.size(); ++c) {
      if (sampled.calls[c].id.empty()) continue;
      ids[std::exchange(message.calls[c].id, sampled.calls[c].id)] = sampled.calls[c].id;
    }
  }
}

Splicer::Splicer(const engine::LanguageModel& model, const dialect::Format& format,
                 std::string header)
    : model_(model), format_(format), header_(std::move(header)) {
  for (const std::string& marker : dialect::markers(format)) {
    const Result<std::vector<Token>> tokens = model.tokenize(marker, false, true);
    if (!tokens) continue;
    for (const Token token : *tokens) {
      if (model.is_special(token)) printed_.push_back(token);
    }
  }
  std::ranges::sort(printed_);
}

dialect::ParsedMessage Splicer::read(std::string_view text, dialect::AnswerStart start,
                                     std::span<const dialect::Tool> tools) const {
  dialect::AnswerParser parser(format_, {tools.begin(), tools.end()}, start);
  std::vector<dialect::Event> events;
  parser.feed(text, events);
  parser.finish(dialect::AnswerEnd::stop, events);
  dialect::ParsedMessage message;
  for (const dialect::Event& event : events) message.add(event);
  return message;
}

// Returns the first end of a turn after the message's content; npos if there is none before the
// next message.
size_t Splicer::end_of(std::string_view text, const Turn& turn) const {
  size_t end = std::string_view::npos;
  const auto look = [&](std::string_view marker) {
    if (marker.empty()) return;
    const size_t at = text.substr(0, turn.after).find(marker, turn.last);
    end = std::min(end, at);
  };
  look(format_.turn_end);
  for (const std::string& marker : format_.call_turn_ends) look(marker);
  return end;
}

// Returns where an answer without a header begins: at its first marker or word, or at the blanks
// before it.
size_t Splicer::begin_without_header(std::string_view text, const Turn& turn) const {
  size_t begin = turn.first;
  for (const std::string* marker : {&format_.thinking.opener, &format_.content_open,
                                    &format_.calls.section_open, &format_.calls.call_open}) {
    if (marker->empty()) continue;
    begin = std::min(begin, text.substr(0, turn.first).find(*marker, turn.before));
  }
  while (begin > turn.before && is_blank(text[begin - 1])) --begin;
  return begin;
}

std::vector<Splicer::Place> Splicer::places(std::string_view text, const Turn& turn,
                                            std::string_view opening) const {
  const size_t end = end_of(text, turn);
  if (end == std::string_view::npos) return {};
  if (header_.empty()) {
    return {{begin_without_header(text, turn), end, dialect::AnswerStart::text, true}};
  }
  const std::string_view gap = text.substr(turn.before, turn.first - turn.before);
  const size_t at = gap.rfind(header_);
  if (at == std::string_view::npos) return {};
  const size_t begin = turn.before + at;
  std::vector<Place> places;
  // Text that the template writes before the next answer, such as the opener of thinking, belongs
  // to the frame.
  if (opening.size() > header_.size() && text.substr(begin).starts_with(opening) &&
      begin + opening.size() <= end) {
    places.push_back({begin + opening.size(), end, dialect::answer_start(format_, opening), true});
  }
  places.push_back({begin + header_.size(), end, dialect::answer_start(format_, header_),
                    opening.size() <= header_.size()});
  return places;
}

bool Splicer::fits(std::string_view text, const Place& place, const Transcript& transcript,
                   std::string_view opening, std::span<const dialect::Tool> tools,
                   Splice& splice) const {
  const std::vector<dialect::Tool> all = with_called(tools, transcript.message);
  const std::string_view shown = text.substr(place.begin, place.end - place.begin);
  const dialect::ParsedMessage rendered = read(shown, place.start, all);
  std::string sampled;
  std::vector<size_t> begins;  // Where each token begins.
  for (const Token token : transcript.tokens) {
    begins.push_back(sampled.size());
    model_.append_text(token, std::ranges::binary_search(printed_, token), sampled);
  }
  const dialect::AnswerStart start = dialect::answer_start(format_, opening);
  const dialect::ParsedMessage said = read(sampled, start, all);
  if (trimmed(rendered.content) != trimmed(said.content) || !same_calls(rendered, said)) {
    return false;
  }
  splice = {.begin = place.begin, .end = place.end, .tokens = transcript.tokens};
  if (place.as_sampled && trimmed(rendered.reasoning) == trimmed(said.reasoning)) return true;
  if (!rendered.reasoning.empty()) return false;
  // The template left out the thinking: use the tokens after it.
  size_t from = 0;
  if (start == dialect::AnswerStart::thinking || !said.reasoning.empty()) {
    const std::string& closer = format_.thinking.closer;
    const size_t closed = closer.empty() ? std::string::npos : sampled.find(closer);
    if (closed == std::string::npos) return false;
    from = std::min(sampled.find_first_not_of(kBlanks, closed + closer.size()), sampled.size());
  }
  if (!begin_alike(shown, std::string_view(sampled).substr(from))) return false;
  const auto token = std::ranges::lower_bound(begins, from);
  if (token == begins.end() || *token != from) return false;
  // The reader would take a second thought here for thinking.
  const dialect::ParsedMessage rest =
      read(std::string_view(sampled).substr(from), dialect::AnswerStart::text, all);
  if (!rest.reasoning.empty() || trimmed(rest.content) != trimmed(rendered.content) ||
      !same_calls(rest, rendered)) {
    return false;
  }
  splice.tokens.erase(splice.tokens.begin(), splice.tokens.begin() + (token - begins.begin()));
  return true;
}

std::vector<Splice> Splicer::splices(const jinja::Text& text, std::span<const Message> messages,
                                     std::span<const Transcripts::Found> found,
                                     std::span<const dialect::Tool> tools, bool asks,
                                     Transcripts& transcripts) const {
  std::vector<Splice> all;
  const PartNumbers numbers(messages);
  const std::string_view bytes = text.view();
  std::string_view opening = header_;
  if (asks && !header_.empty()) {
    const size_t at = bytes.rfind(header_);
    const size_t last = text.marks.empty() ? 0 : text.marks.back().end;
    if (at != std::string_view::npos && at >= last) opening = bytes.substr(at);
  }
  std::vector<bool> seen(messages.size(), false);
  for (size_t m = 0; m < text.marks.size();) {
    const auto owner = numbers.place(text.marks[m].origin);
    size_t next = m + 1;
    if (!owner) {
      m = next;
      continue;
    }
    const uint32_t which = owner->message;
    for (; next < text.marks.size(); ++next) {
      const auto other = numbers.place(text.marks[next].origin);
      if (!other || other->message != which) break;
    }
    const Turn turn{.before = m == 0 ? 0 : text.marks[m - 1].end,
                    .first = text.marks[m].begin,
                    .last = text.marks[next - 1].end,
                    .after = next < text.marks.size() ? text.marks[next].begin : bytes.size()};
    m = next;
    if (seen[which] || which >= found.size() || found[which].transcript == nullptr) continue;
    seen[which] = true;
    bool spliced = false;
    for (const Place& place : places(bytes, turn, opening)) {
      Splice splice;
      if (place.begin > place.end || place.begin < turn.before) continue;
      if (!fits(bytes, place, *found[which].transcript, opening, tools, splice)) continue;
      all.push_back(std::move(splice));
      spliced = true;
      break;
    }
    transcripts.count(spliced);
  }
  return all;
}

}  // namespace stemma::server
