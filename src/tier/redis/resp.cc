#include "tier/redis/resp.h"

#include <algorithm>
#include <charconv>

namespace stemma::tier::redis {

namespace {

bool read_number(std::string_view line, int64_t& out) {
  if (!line.empty() && line.front() == '+') line.remove_prefix(1);
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), out);
  return error == std::errc() && end == line.data() + line.size();
}

}  // namespace

void ReplyParser::begin() noexcept {
  stage_ = Stage::inside;
  part_ = Part::type;
  root_.type = Reply::Type::null;
  root_.integer = 0;
  root_.text.clear();
  root_.elements.clear();
  value_ = &root_;
  open_.clear();
  line_.clear();
  elements_ = text_bytes_ = 0;
}

size_t ReplyParser::feed(std::string_view bytes) {
  if (stage_ == Stage::failed || stage_ == Stage::bulk || bytes.empty()) return 0;
  if (stage_ != Stage::inside) begin();
  const size_t all = bytes.size();
  while (!bytes.empty() && stage_ == Stage::inside) {
    switch (part_) {
      case Part::type:
        sign_ = bytes.front();
        bytes.remove_prefix(1);
        part_ = Part::line;
        break;
      case Part::line: {
        const size_t end = bytes.find('\n');
        const std::string_view some = bytes.substr(0, end);
        if (line_.size() + some.size() > limits_.line_bytes) {
          fail("a line of the reply is too long");
          break;
        }
        if (end == std::string_view::npos) {
          line_.append(some);
          return all;
        }
        std::string_view line = some;
        if (!line_.empty()) {
          line_.append(some);
          line = line_;
        }
        bytes.remove_prefix(end + 1);
        if (line.empty() || line.back() != '\r') {
          fail("a line of the reply does not end in CRLF");
          break;
        }
        line.remove_suffix(1);
        if (!read_line(line)) break;
        line_.clear();
        break;
      }
      case Part::body: {
        const std::string_view some = bytes.substr(0, bulk_bytes_);
        value_->text.append(some);
        bytes.remove_prefix(some.size());
        bulk_bytes_ -= some.size();
        if (bulk_bytes_ == 0) part_ = Part::body_end;
        break;
      }
      case Part::body_end:
        if (bytes.front() != "\r\n"[end_bytes_]) {
          fail("a bulk string is not as long as it says");
          break;
        }
        bytes.remove_prefix(1);
        if (++end_bytes_ == 2) value_is_whole();
        break;
    }
  }
  return all - bytes.size();
}

void ReplyParser::end_bulk() noexcept {
  stage_ = Stage::inside;
  part_ = Part::body_end;
  end_bytes_ = 0;
}

bool ReplyParser::add_text(size_t bytes) {
  text_bytes_ += bytes;
  if (text_bytes_ <= limits_.text_bytes) return true;
  fail("the reply holds too much text");
  return false;
}

// Returns false if it failed or stands at `bulk`.
bool ReplyParser::read_line(std::string_view line) {
  int64_t number = 0;
  switch (sign_) {
    case '+':
    case '-':
    case ',':  // A double, a big number: we request neither, so both stay text.
    case '(':
      if (line.find('\r') != std::string_view::npos) return fail("a stray CR in a line"), false;
      if (!add_text(line.size())) return false;
      value_->type = sign_ == '-' ? Reply::Type::error : Reply::Type::text;
      value_->text.assign(line);
      break;
    case ':':
      if (!read_number(line, number)) return fail("a number that is none"), false;
      value_->type = Reply::Type::integer;
      value_->integer = number;
      break;
    case '#':
      if (line != "t" && line != "f") return fail("a truth value that is none"), false;
      value_->type = Reply::Type::integer;
      value_->integer = line == "t" ? 1 : 0;
      break;
    case '_':
      if (!line.empty()) return fail("a null with something in it"), false;
      value_->type = Reply::Type::null;
      break;
    default: {
      if (std::string_view("$!=*~%>").find(sign_) == std::string_view::npos) {
        return fail("no reply begins so"), false;
      }
      if (!read_number(line, number)) return fail("a length that is no number"), false;
      if (sign_ == '$') return read_bulk(number, Reply::Type::text);
      if (sign_ == '=') return read_bulk(number, Reply::Type::text);
      if (sign_ == '!') return read_bulk(number, Reply::Type::error);
      if (sign_ == '>') return read_aggregate(number, Reply::Type::push, 1);
      return read_aggregate(number, Reply::Type::array, sign_ == '%' ? 2 : 1);
    }
  }
  value_is_whole();
  return stage_ == Stage::inside;
}

bool ReplyParser::read_bulk(int64_t bytes, Reply::Type type) {
  value_->type = type;
  if (bytes == -1 && sign_ == '$') {
    value_->type = Reply::Type::null;
    value_is_whole();
    return stage_ == Stage::inside;
  }
  if (bytes < 0) return fail("a bulk string with a negative length"), false;
  bulk_bytes_ = static_cast<uint64_t>(bytes);
  end_bytes_ = 0;
  if (want_bulk_ && sign_ == '$' && value_ == &root_) {
    if (bulk_bytes_ > limits_.bulk_bytes) return fail("a value that is too large"), false;
    line_.clear();
    stage_ = Stage::bulk;
    return false;
  }
  if (bulk_bytes_ > limits_.text_bytes || !add_text(bulk_bytes_)) {
    return fail("the reply holds too much text"), false;
  }
  part_ = bulk_bytes_ == 0 ? Part::body_end : Part::body;
  return true;
}

bool ReplyParser::read_aggregate(int64_t count, Reply::Type type, int64_t each) {
  if (count == -1 && sign_ == '*') {
    value_->type = Reply::Type::null;
    value_is_whole();
    return stage_ == Stage::inside;
  }
  if (count < 0) return fail("an array with a negative length"), false;
  // Compare the count before multiplying: it may be any number.
  if (static_cast<uint64_t>(count) > limits_.elements ||
      elements_ + static_cast<uint64_t>(count * each) > limits_.elements) {
    return fail("the reply has too many elements"), false;
  }
  value_->type = type;
  if (count == 0) {
    value_is_whole();
    return stage_ == Stage::inside;
  }
  if (open_.size() == limits_.depth) return fail("the reply is nested too deeply"), false;
  elements_ += static_cast<uint64_t>(count * each);
  open_.push_back({value_, static_cast<uint64_t>(count * each)});
  // Reserve room only for what has arrived: the elements come one by one.
  value_ = &value_->elements.emplace_back();
  part_ = Part::type;
  return true;
}

void ReplyParser::value_is_whole() {
  part_ = Part::type;
  while (!open_.empty()) {
    Open& open = open_.back();
    if (--open.left != 0) {
      // Pointers to the enclosing arrays stay valid: none of them grows while this one is open.
      value_ = &open.array->elements.emplace_back();
      return;
    }
    open_.pop_back();
  }
  stage_ = Stage::done;
}

}  // namespace stemma::tier::redis
