#include "dialect/probe_calls.h"

#include <algorithm>
#include <array>

#include "dialect/probe_talk.h"
#include "dialect/values/json_text.h"

namespace stemma::dialect {

using jinja::Kind;
using jinja::Value;

namespace {

bool ends_marker(char byte) { return byte == '>' || byte == ']' || byte == '`'; }
bool begins_marker(char byte) { return byte == '<' || byte == '['; }

std::string_view between(std::string_view text, size_t begin, size_t end) {
  return text.substr(begin, end - begin);
}

// Positions of names and arguments. The second call's are kNowhere if only one was rendered.
struct Places {
  size_t open_1 = 0;  // Begin of the first call's object, or of its name.
  size_t close_1 = 0;
  size_t open_2 = kNowhere;
  size_t close_2 = kNowhere;
};

// Returns the text before the end that all answers have.
std::string_view before_tail(std::string_view rest, std::string_view tail) {
  if (rest.size() < tail.size() || rest.substr(rest.size() - tail.size()) != tail) return rest;
  return rest.substr(0, rest.size() - tail.size());
}

// Returns the marker that ends a section: the counterpart of its opener, or all the remaining text.
std::string section_close(std::string_view open, std::string_view rest, std::string_view tail) {
  for (size_t at = 0; at < open.size(); ++at) {
    if (!begins_marker(open[at])) continue;
    const std::string closer = closer_for(open.substr(at));
    if (!closer.empty() && trimmed(rest).starts_with(closer)) return closer;
  }
  return std::string(trimmed(before_tail(rest, tail)));
}

// Returns the text between a section and the end that all answers have.
std::string after_section(std::string_view close, std::string_view rest, std::string_view tail) {
  const size_t at = rest.find(close);
  if (at == kNowhere) return {};
  return std::string(trimmed(before_tail(rest.substr(at + close.size()), tail)));
}

// Splits the text before, between and after two calls into the parts of the section and the parts
// of each call.
void split_around(std::string_view text, const Places& places, std::string_view tail, Calls& calls,
                  std::string& after_calls) {
  const std::string_view before = text.substr(0, places.open_1);
  if (places.open_2 == kNowhere) {
    calls.call_open = trimmed(before);
    calls.call_close = section_close(before, text.substr(places.close_1), tail);
    return;
  }
  calls.parallel = true;
  std::string_view joint = between(text, places.close_1, places.open_2);
  const std::string_view behind = text.substr(places.close_2);
  const std::string_view close = common_front(joint, behind);
  joint.remove_prefix(close.size());
  const std::string_view open = common_back(before, joint);
  calls.call_open = trimmed(open);
  calls.call_close = trimmed(close);
  calls.section_open = trimmed(before.substr(0, before.size() - open.size()));
  const std::string_view rest = behind.substr(close.size());
  if (calls.section_open.empty()) {
    after_calls = trimmed(before_tail(rest, tail));
  } else {
    calls.section_close = section_close(calls.section_open, rest, tail);
    after_calls = after_section(calls.section_close, rest, tail);
  }
}

// --- JSON objects --------------------------------------------------------------------------------

bool is_text(const Value& value, std::string_view text) {
  return value.is(Kind::string) && value.as_text().view() == text;
}

bool has_arguments(const Value& value) {
  return value.is(Kind::dict) && value.as_dict().find(kFirstKey) != nullptr;
}

// Finds the meaning of each member of a call's object.
bool read_members(const Value& object, std::string_view tool, Calls& calls) {
  if (!object.is(Kind::dict)) return false;
  for (const auto& [key, value] : object.as_dict().entries()) {
    if (!key.is(Kind::string)) return false;
    const std::string name(key.as_text().view());
    if (name == tool && has_arguments(value)) {
      calls.name_is_key = true;
      return true;
    }
    if (is_text(value, tool)) {
      calls.name_key = name;
    } else if (has_arguments(value)) {
      calls.arguments_key = name;
    } else if (name.size() >= 2 && name.substr(name.size() - 2) == "id") {
      calls.id_key = name;
    }
  }
  return !calls.name_key.empty() && !calls.arguments_key.empty();
}

// Returns the JSON value that begins at or after `from` and contains the position `inside`.
std::optional<Value> value_around(std::string_view text, size_t from, size_t inside, size_t& begin,
                                  size_t& end) {
  for (begin = from; begin < inside; ++begin) {
    if (text[begin] != '{' && text[begin] != '[') continue;
    end = begin;
    std::optional<Value> value = read_json_at(text, end);
    if (value && end > inside) return value;
  }
  return std::nullopt;
}

std::optional<Calls> read_json_calls(std::string_view text, size_t name_1, std::string_view tail,
                                     std::string& after_calls) {
  Calls calls;
  calls.shape = CallShape::json;
  Places places;
  const auto first = value_around(text, 0, name_1, places.open_1, places.close_1);
  if (!first) return std::nullopt;
  if (first->is(Kind::list)) {
    const auto& items = first->as_list().items;
    if (items.empty() || !read_members(items[0], kFirstTool, calls)) return std::nullopt;
    calls.list = true;
    calls.parallel = items.size() > 1;
    calls.section_open = trimmed(text.substr(0, places.open_1));
    const std::string_view rest = text.substr(places.close_1);
    calls.section_close = section_close(calls.section_open, rest, tail);
    after_calls = after_section(calls.section_close, rest, tail);
    return calls;
  }
  if (!read_members(*first, kFirstTool, calls)) return std::nullopt;
  const size_t name_2 = text.find(kSecondTool, places.close_1);
  if (name_2 != kNowhere) {
    Calls again;
    const auto second = value_around(text, places.close_1, name_2, places.open_2, places.close_2);
    if (!second || !read_members(*second, kSecondTool, again)) return std::nullopt;
  }
  split_around(text, places, tail, calls, after_calls);
  return calls;
}

// --- a name, and what follows it -----------------------------------------------------------------

void add_text(std::vector<Piece>& pieces, std::string_view text) {
  if (!trimmed(text).empty()) pieces.push_back({PieceKind::text, std::string(trimmed(text))});
}

// Adds a text that contains the call's id, as pieces.
void add_with_id(std::vector<Piece>& pieces, std::string_view text) {
  const size_t id = text.find(kId);
  add_text(pieces, text.substr(0, id));
  if (id == kNowhere) return;
  pieces.push_back({PieceKind::id, {}});
  add_text(pieces, text.substr(id + kId.size()));
}

// Adds the texts at one place of two calls; digits that differ become numbers.
void add_numbered(std::vector<Piece>& pieces, std::string_view first, std::string_view second) {
  size_t front = 0;
  while (front < first.size() && front < second.size() && first[front] == second[front]) ++front;
  size_t back = 0;
  while (back < std::min(first.size(), second.size()) - front &&
         first[first.size() - 1 - back] == second[second.size() - 1 - back]) {
    ++back;
  }
  const std::string_view middle = first.substr(front, first.size() - front - back);
  const auto is_digit = [](char byte) { return byte >= '0' && byte <= '9'; };
  if (middle.empty() || !std::all_of(middle.begin(), middle.end(), is_digit)) {
    add_with_id(pieces, first);
    return;
  }
  add_with_id(pieces, first.substr(0, front));
  pieces.push_back({PieceKind::number, {}});
  add_with_id(pieces, first.substr(first.size() - back));
}

// Moves the text before the name into call_open and header; an id there becomes a piece.
void move_id_into_header(Calls& calls) {
  const size_t id = calls.call_open.find(kId);
  std::vector<Piece> front;
  if (id != std::string::npos) {
    front.push_back({PieceKind::id, {}});
    add_text(front, std::string_view(calls.call_open).substr(id + kId.size()));
    calls.call_open = trimmed(calls.call_open.substr(0, id));
  }
  front.push_back({PieceKind::name, {}});
  calls.header.insert(calls.header.begin(), front.begin(), front.end());
}

// Finds the object of arguments that begins after a name.
bool arguments_behind(std::string_view text, size_t name_end, size_t& begin, size_t& end) {
  begin = text.find('{', name_end);
  if (begin == kNowhere) return false;
  end = begin;
  const auto value = read_json_at(text, end);
  return value && has_arguments(*value);
}

std::optional<Calls> read_named_json(std::string_view text, size_t name_1, std::string_view tail,
                                     std::string& after_calls) {
  Calls calls;
  calls.shape = CallShape::named_json;
  Places places{.open_1 = name_1};
  const size_t name_1_end = name_1 + kFirstTool.size();
  size_t begin_1 = 0;
  if (!arguments_behind(text, name_1_end, begin_1, places.close_1)) return std::nullopt;
  const std::string_view middle_1 = between(text, name_1_end, begin_1);
  std::string_view middle_2 = middle_1;
  const size_t name_2 = text.find(kSecondTool, places.close_1);
  if (name_2 != kNowhere) {
    size_t begin_2 = 0;
    const size_t name_2_end = name_2 + kSecondTool.size();
    if (!arguments_behind(text, name_2_end, begin_2, places.close_2)) return std::nullopt;
    places.open_2 = name_2;
    middle_2 = between(text, name_2_end, begin_2);
  }
  split_around(text, places, tail, calls, after_calls);
  add_numbered(calls.header, middle_1, middle_2);
  move_id_into_header(calls);
  return calls;
}

// --- arguments in tags ---------------------------------------------------------------------------

// Positions of the arguments in the first and the second call.
struct TagPlaces {
  size_t key_1, value_1, key_2, value_2, key_3, value_3;
};

bool find_tags(std::string_view text, size_t from, TagPlaces& at) {
  const auto next = [&](std::string_view what, size_t after) {
    return after == kNowhere ? kNowhere : text.find(what, after);
  };
  at.key_1 = next(kFirstKey, from);
  at.value_1 = next(kFirstValue, at.key_1);
  at.key_2 = next(kSecondKey, at.value_1);
  at.value_2 = next(kSecondValue, at.key_2);
  at.key_3 = next(kNumberKey, at.value_2);
  at.value_3 = next(kNumber, at.key_3);
  return at.value_3 != kNowhere;
}

// Reads the text between a key and its value; a type there becomes a piece.
void read_key_close(std::string_view of_text, std::string_view of_number, Calls& calls) {
  if (of_text == of_number) {
    add_text(calls.argument, of_text);
    return;
  }
  // The words differ inside quotes: string="true", type="number".
  size_t front = 0;
  while (front < std::min(of_text.size(), of_number.size()) && of_text[front] == of_number[front]) {
    ++front;
  }
  const size_t open = of_text.rfind('"', front);
  const size_t close = of_text.find('"', front);
  if (open == kNowhere || close == kNowhere) {
    add_text(calls.argument, of_text);
    return;
  }
  add_text(calls.argument, of_text.substr(0, open + 1));
  calls.argument.push_back({PieceKind::type, {}});
  add_text(calls.argument, of_text.substr(close));
}

std::optional<Calls> read_tagged(std::string_view text, size_t name_1, std::string_view tail,
                                 std::string& after_calls) {
  TagPlaces at{};
  const size_t name_1_end = name_1 + kFirstTool.size();
  if (!find_tags(text, name_1_end, at)) return std::nullopt;
  const size_t value_1_end = at.value_1 + kFirstValue.size();
  const size_t values_end = at.value_3 + kNumber.size();
  Calls calls;
  calls.shape = CallShape::tagged;
  const std::string_view joint = between(text, value_1_end, at.key_2);
  const std::string_view close = common_front(joint, text.substr(values_end));
  const std::string_view middle_1 = between(text, name_1_end, at.key_1);
  const std::string_view open = common_back(middle_1, joint.substr(close.size()));
  if (trimmed(close).empty() || trimmed(open).empty()) return std::nullopt;
  calls.value_close = trimmed(close);
  calls.value_on_lines = close.front() == '\n';
  add_text(calls.argument, open);
  calls.argument.push_back({PieceKind::key, {}});
  read_key_close(between(text, at.key_1 + kFirstKey.size(), at.value_1),
                 between(text, at.key_3 + kNumberKey.size(), at.value_3), calls);

  Places places{.open_1 = name_1, .close_1 = values_end + close.size()};
  std::string_view middle_2 = middle_1;
  const size_t name_2 = text.find(kSecondTool, values_end);
  if (name_2 != kNowhere) {
    const size_t key = text.find(kFirstKey, name_2);
    const size_t value = key == kNowhere ? kNowhere : text.find(kFirstValue, key);
    if (value == kNowhere) return std::nullopt;
    places.open_2 = name_2;
    places.close_2 = std::min(text.size(), value + kFirstValue.size() + close.size());
    middle_2 = between(text, name_2 + kSecondTool.size(), key);
  }
  split_around(text, places, tail, calls, after_calls);
  if (calls.call_close.empty()) return std::nullopt;
  const auto header_of = [&](std::string_view middle) {
    return middle.substr(0, middle.size() - std::min(open.size(), middle.size()));
  };
  add_numbered(calls.header, header_of(middle_1), header_of(middle_2));
  move_id_into_header(calls);
  return calls;
}

// --- Gemma's literals and Python's calls ---------------------------------------------------------

std::optional<Calls> read_literals(std::string_view text, size_t name_1, std::string_view tail,
                                   std::string& after_calls) {
  TagPlaces at{};
  const size_t name_1_end = name_1 + kFirstTool.size();
  if (!find_tags(text, name_1_end, at)) return std::nullopt;
  const std::string_view opener = trimmed(between(text, name_1_end, at.key_1));
  const std::string_view separator = between(text, at.key_1 + kFirstKey.size(), at.value_1);
  Calls calls;
  if (opener == "{" && separator.size() > 1 && separator.front() == ':' &&
      trimmed(separator.substr(1)) != "\"") {
    calls.shape = CallShape::literals;
    calls.quote = trimmed(separator.substr(1));
  } else if (opener == "(" && (separator == "='" || separator == "=\"")) {
    calls.shape = CallShape::python;
  } else {
    return std::nullopt;
  }
  const char closer = opener == "{" ? '}' : ')';
  const auto end_of = [&](size_t from) {
    const size_t end = text.find(closer, from);
    return end == kNowhere ? end : end + 1;
  };
  Places places{.open_1 = name_1, .close_1 = end_of(at.value_3)};
  if (places.close_1 == kNowhere) return std::nullopt;
  const size_t name_2 = text.find(kSecondTool, places.close_1);
  if (name_2 != kNowhere) {
    places.open_2 = name_2;
    places.close_2 = end_of(name_2);
    if (places.close_2 == kNowhere) return std::nullopt;
  }
  if (calls.shape == CallShape::python && places.open_1 > 0 && text[places.open_1 - 1] == '[') {
    calls.list = true;
    calls.parallel = name_2 != kNowhere;
    const size_t last = name_2 == kNowhere ? places.close_1 : places.close_2;
    const size_t bracket = text.find(']', last);
    if (bracket == kNowhere) return std::nullopt;
    calls.section_open = trimmed(text.substr(0, places.open_1 - 1));
    calls.section_close = section_close(calls.section_open, text.substr(bracket + 1), tail);
  } else {
    split_around(text, places, tail, calls, after_calls);
  }
  calls.header = {{PieceKind::name, {}}};
  if (calls.shape == CallShape::python) calls.header.push_back({PieceKind::text, "("});
  return calls;
}

}  // namespace

std::string_view common_front(std::string_view a, std::string_view b) {
  size_t size = 0;
  while (size < a.size() && size < b.size() && a[size] == b[size]) ++size;
  if (size == b.size() && size > 0) return a.substr(0, size);
  while (size > 0 && !ends_marker(a[size - 1])) --size;
  return a.substr(0, size);
}

std::string_view common_back(std::string_view a, std::string_view b) {
  size_t size = 0;
  while (size < a.size() && size < b.size() && a[a.size() - 1 - size] == b[b.size() - 1 - size]) {
    ++size;
  }
  const auto clean_before = [&size](std::string_view text) {
    if (size == text.size()) return true;
    const char byte = text[text.size() - 1 - size];
    return ends_marker(byte) || is_blank(byte);
  };
  while (size > 0 && !(clean_before(a) && clean_before(b)) && !begins_marker(a[a.size() - size])) {
    --size;
  }
  return a.substr(a.size() - size);
}

std::string closer_for(std::string_view opener) {
  struct Pair {
    std::string_view open, close;
  };
  static constexpr std::array kPairs = {Pair{"START", "END"}, Pair{"<|open|>", "<|close|>"},
                                        Pair{"BEGIN", "END"}, Pair{"begin", "end"}};
  for (const Pair& pair : kPairs) {
    const size_t at = opener.find(pair.open);
    if (at == kNowhere) continue;
    std::string closer(opener);
    return closer.replace(at, pair.open.size(), pair.close);
  }
  if (opener.size() > 2 && (opener.front() == '<' || opener.front() == '[')) {
    return std::string(1, opener.front()) + "/" + std::string(opener.substr(1));
  }
  return {};
}

std::optional<Calls> read_calls(std::string_view text, std::string_view tail,
                                std::string& after_calls) {
  const size_t name_1 = text.find(kFirstTool);
  if (name_1 == kNowhere) return std::nullopt;
  // The template printed a Python dict: no model was trained on that.
  if (name_1 > 0 && text[name_1 - 1] == '\'') return std::nullopt;
  for (const auto& read : {read_json_calls, read_named_json, read_literals, read_tagged}) {
    after_calls.clear();
    if (auto calls = read(text, name_1, tail, after_calls)) return calls;
  }
  return std::nullopt;
}

}  // namespace stemma::dialect
