#include "server/api/answer_reader.h"

#include <algorithm>
#include <utility>

#include "dialect/values/json_text.h"
#include "server/api/random_id.h"

namespace stemma::server {
namespace {

enum class Fit : uint8_t { no, so_far, whole };

// Whether `json` begins with {"input":", blanks allowed; sets `size` to its bytes up to there.
Fit fits_opening(std::string_view json, size_t& size) {
  size = 0;
  const auto blanks = [&] {
    while (size < json.size() && dialect::is_blank(json[size])) ++size;
  };
  for (const std::string_view piece : {"{", "\"input\"", ":", "\""}) {
    blanks();
    const std::string_view rest = json.substr(size, piece.size());
    if (!piece.starts_with(rest)) return Fit::no;
    if (rest.size() < piece.size()) return Fit::so_far;
    size += piece.size();
  }
  return Fit::whole;
}

// Size of the escape at the front of `text`; 0 if it is incomplete.
size_t escape_size(std::string_view text) {
  if (text.size() < 2) return 0;
  if (text[1] != 'u') return 2;
  if (text.size() < 6) return 0;
  // Two \u escapes may form one character.
  const bool high =
      (text[2] == 'd' || text[2] == 'D') &&
      (text[3] == '8' || text[3] == '9' || (text[3] | 0x20) == 'a' || (text[3] | 0x20) == 'b');
  if (!high) return 6;
  if (text.size() >= 7 && text[6] != '\\') return 6;
  if (text.size() >= 8 && text[7] != 'u') return 6;
  return text.size() < 12 ? 0 : 12;
}

}  // namespace

void CustomInput::feed(std::string_view json, std::string& out) {
  if (at_ == At::raw) {
    out += json;
    return;
  }
  if (at_ == At::after) return;
  held_ += json;
  if (at_ == At::before) {
    size_t size = 0;
    const Fit fit = fits_opening(held_, size);
    if (fit == Fit::so_far) return;
    if (fit == Fit::no) {
      at_ = At::raw;
      out += std::exchange(held_, {});
      return;
    }
    at_ = At::inside;
    held_.erase(0, size);
  }
  std::string_view rest = held_;
  while (!rest.empty()) {
    if (rest.front() == '"') {
      at_ = At::after;
      held_.clear();
      return;
    }
    size_t size = std::min(rest.find_first_of("\"\\"), rest.size());
    if (rest.front() == '\\') {
      size = escape_size(rest);
      if (size == 0) break;
      const std::string quoted = '"' + std::string(rest.substr(0, size)) + '"';
      out += dialect::json_unquoted(quoted).value_or(std::string(rest.substr(0, size)));
    } else {
      out += rest.substr(0, size);
    }
    rest.remove_prefix(size);
  }
  held_.erase(0, held_.size() - rest.size());
}

void CustomInput::finish(std::string& out) {
  if (at_ == At::before || at_ == At::inside) out += held_;
  held_.clear();
  at_ = At::after;
}

AnswerReader::AnswerReader(const AnswerReading& how, uint32_t choice) : how_(how), choice_(choice) {
  if (how.format != nullptr) {
    parser_ = std::make_unique<dialect::AnswerParser>(*how.format, how.tools, how.start);
  }
}

void AnswerReader::feed(std::string_view text, std::vector<AnswerPart>& parts) {
  if (text.empty()) return;
  if (parser_ == nullptr) {
    events_.push_back({.kind = dialect::EventKind::content, .text = std::string(text)});
  } else {
    parser_->feed(text, events_);
  }
  take(parts);
}

void AnswerReader::finish(bool cut_off, std::vector<AnswerPart>& parts) {
  if (parser_ == nullptr) return;
  parser_->finish(cut_off ? dialect::AnswerEnd::length : dialect::AnswerEnd::stop, events_);
  take(parts);
}

void AnswerReader::add(AnswerPart part, std::vector<AnswerPart>& parts) {
  part.choice = choice_;
  parts.push_back(std::move(part));
}

void AnswerReader::take(std::vector<AnswerPart>& parts) {
  using Kind = dialect::EventKind;
  for (dialect::Event& event : events_) {
    if (how_.keep_message) message_.add(event);
    const bool custom = input_.has_value();
    switch (event.kind) {
      case Kind::call_begin: {
        AnswerPart part;
        part.call_id = call_ids_.emplace_back(random_id(how_.call_prefix));
        part.custom = std::ranges::find(how_.custom_tools, event.text) != how_.custom_tools.end();
        if (part.custom) input_.emplace();
        part.event = std::move(event);
        add(std::move(part), parts);
        break;
      }
      case Kind::arguments:
        if (custom) {
          std::string text;
          input_->feed(event.text, text);
          if (text.empty()) break;
          event.text = std::move(text);
        }
        add({.event = std::move(event), .custom = custom}, parts);
        break;
      case Kind::call_end:
        if (custom) {
          std::string left;
          input_->finish(left);
          if (!left.empty()) {
            add({.event = {.kind = Kind::arguments, .call = event.call, .text = std::move(left)},
                 .custom = true},
                parts);
          }
          input_.reset();
        }
        add({.event = std::move(event), .custom = custom}, parts);
        break;
      case Kind::content:
      case Kind::reasoning: add({.event = std::move(event)}, parts); break;
    }
  }
  events_.clear();
}

}  // namespace stemma::server
