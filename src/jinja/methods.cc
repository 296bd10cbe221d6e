// Methods of strings, dicts and lists, with Python's meaning.
#include <algorithm>
#include <array>
#include <string>

#include "jinja/letter_case.h"
#include "jinja/renderer.h"
#include "jinja/strings.h"

namespace stemma::jinja {
namespace {

struct MethodEntry {
  std::string_view name;
  MethodId id;
};

// Sorted by name.
constexpr std::array kMethods = {
    MethodEntry{"append", MethodId::append},
    MethodEntry{"capitalize", MethodId::capitalize},
    MethodEntry{"center", MethodId::center},
    MethodEntry{"clear", MethodId::clear},
    MethodEntry{"copy", MethodId::copy},
    MethodEntry{"count", MethodId::count},
    MethodEntry{"endswith", MethodId::endswith},
    MethodEntry{"extend", MethodId::extend},
    MethodEntry{"find", MethodId::find},
    MethodEntry{"format", MethodId::format},
    MethodEntry{"get", MethodId::get},
    MethodEntry{"index", MethodId::index},
    MethodEntry{"insert", MethodId::insert},
    MethodEntry{"isalnum", MethodId::isalnum},
    MethodEntry{"isalpha", MethodId::isalpha},
    MethodEntry{"isdigit", MethodId::isdigit},
    MethodEntry{"islower", MethodId::islower},
    MethodEntry{"isspace", MethodId::isspace},
    MethodEntry{"isupper", MethodId::isupper},
    MethodEntry{"items", MethodId::items},
    MethodEntry{"join", MethodId::join},
    MethodEntry{"keys", MethodId::keys},
    MethodEntry{"ljust", MethodId::ljust},
    MethodEntry{"lower", MethodId::lower},
    MethodEntry{"lstrip", MethodId::lstrip},
    MethodEntry{"partition", MethodId::partition},
    MethodEntry{"pop", MethodId::pop},
    MethodEntry{"popitem", MethodId::popitem},
    MethodEntry{"remove", MethodId::remove},
    MethodEntry{"removeprefix", MethodId::removeprefix},
    MethodEntry{"removesuffix", MethodId::removesuffix},
    MethodEntry{"replace", MethodId::replace},
    MethodEntry{"reverse", MethodId::reverse},
    MethodEntry{"rfind", MethodId::rfind},
    MethodEntry{"rjust", MethodId::rjust},
    MethodEntry{"rpartition", MethodId::rpartition},
    MethodEntry{"rsplit", MethodId::rsplit},
    MethodEntry{"rstrip", MethodId::rstrip},
    MethodEntry{"setdefault", MethodId::setdefault},
    MethodEntry{"sort", MethodId::sort},
    MethodEntry{"split", MethodId::split},
    MethodEntry{"splitlines", MethodId::splitlines},
    MethodEntry{"startswith", MethodId::startswith},
    MethodEntry{"strip", MethodId::strip},
    MethodEntry{"swapcase", MethodId::swapcase},
    MethodEntry{"title", MethodId::title},
    MethodEntry{"update", MethodId::update},
    MethodEntry{"upper", MethodId::upper},
    MethodEntry{"values", MethodId::values},
    MethodEntry{"zfill", MethodId::zfill},
};
static_assert(std::is_sorted(kMethods.begin(), kMethods.end(),
                             [](const MethodEntry& a, const MethodEntry& b) {
                               return a.name < b.name;
                             }));

const Text& text_argument(const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (!value.is(Kind::string)) {
    fail(std::string(what) + " is a string, not '" + std::string(type_name(value)) + "'");
  }
  return value.as_text();
}

// Returns null for None and for a missing argument.
const Text* optional_text(const Value* value, std::string_view what) {
  if (value == nullptr || value->is(Kind::none)) return nullptr;
  return &text_argument(*value, what);
}

bool begins_or_ends(Renderer& renderer, const Text& self, const Arguments& arguments, bool begins) {
  arguments.only({"prefix"});
  const Value& what = arguments.need(0, "prefix");
  const auto one = [&](const Value& value) {
    const std::string_view part = text_argument(value, "what a string begins or ends with").view();
    renderer.budget().look(part.size());
    return begins ? self.view().starts_with(part) : self.view().ends_with(part);
  };
  if (!what.is(Kind::list) || what.as_list().kind != ListKind::tuple) return one(what);
  const std::vector<Value>& parts = what.as_list().items;
  return std::any_of(parts.begin(), parts.end(), one);
}

// find, rfind, index, count: their bounds count characters.
Value search(Renderer& renderer, const Value& self, MethodId method, const Arguments& arguments) {
  arguments.only({"sub", "start", "end"});
  Budget& budget = renderer.budget();
  const Text& what = text_argument(arguments.need(0, "sub"), "what is looked for");
  const Value none = Value::none();
  const Value* start = arguments.get(1, "start");
  const Value* end = arguments.get(2, "end");
  const Value part =
      start == nullptr ? self : slice(renderer, self, *start, end != nullptr ? *end : none, none);
  const std::string_view view = part.as_text().view();
  if (method == MethodId::count) {
    if (what.bytes.empty()) {
      return Value::integer(static_cast<int64_t>(renderer.length_of(part)) + 1);
    }
    int64_t count = 0;
    for (size_t at = 0; (at = find(budget, view, what.view(), at)) != std::string_view::npos;) {
      at += what.bytes.size();
      ++count;
    }
    return Value::integer(count);
  }
  const size_t at = method == MethodId::rfind ? find_last(budget, view, what.view())
                                              : find(budget, view, what.view());
  if (at == std::string_view::npos) {
    if (method == MethodId::index) fail("what is looked for is not in the string");
    return Value::integer(-1);
  }
  // Count the characters before `start` too.
  int64_t before = 0;
  if (start != nullptr && !start->is(Kind::none)) {
    const auto size = static_cast<int64_t>(renderer.length_of(self));
    before = integral(*start) < 0 ? std::max<int64_t>(0, size + integral(*start))
                                  : std::min(size, integral(*start));
  }
  budget.read(at);
  return Value::integer(before + static_cast<int64_t>(count_characters(view.substr(0, at))));
}

Value partition(Renderer& renderer, const TextPtr& self, const Arguments& arguments, bool last) {
  arguments.only({"sep"});
  Budget& budget = renderer.budget();
  const Text& separator = text_argument(arguments.need(0, "sep"), "the separator");
  if (separator.bytes.empty()) fail("a string cannot be split at nothing");
  const size_t at = last ? find_last(budget, self->view(), separator.view())
                         : find(budget, self->view(), separator.view());
  std::vector<Value> parts;
  if (at == std::string_view::npos) {
    const Value empty = make_text(budget, "");
    parts = last ? std::vector<Value>{empty, empty, Value::of(self)}
                 : std::vector<Value>{Value::of(self), empty, empty};
  } else {
    const size_t end = at + separator.bytes.size();
    parts = {cut(budget, self, 0, at), cut(budget, self, at, end),
             cut(budget, self, end, self->bytes.size())};
  }
  return make_list(budget, std::move(parts), ListKind::tuple);
}

Value join(Renderer& renderer, const Text& separator, const Arguments& arguments) {
  arguments.only({"iterable"});
  TextBuilder out(renderer.budget());
  bool first = true;
  for (const Value& item : renderer.items_of(arguments.need(0, "iterable"))) {
    if (!first) out.add(separator);
    first = false;
    out.add(text_argument(item, "what is joined"));
  }
  return renderer.own_text(out);
}

// Whether there is a character and all of them satisfy `is`.
template <class Is>
Value every(Renderer& renderer, const Text& text, Is is) {
  renderer.budget().read(text.bytes.size());
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    if (!is(c.code)) return Value::boolean(false);
    at += c.bytes;
  }
  return Value::boolean(!text.bytes.empty());
}

bool is_ascii_digit(uint32_t code) { return code >= '0' && code <= '9'; }

Value all_cased(Renderer& renderer, const Text& text, bool (*is)(uint32_t) noexcept,
                bool (*other)(uint32_t) noexcept) {
  renderer.budget().read(text.bytes.size());
  bool any = false;
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    if (other(c.code) && !is(c.code)) return Value::boolean(false);
    any |= is(c.code);
    at += c.bytes;
  }
  return Value::boolean(any);
}

Value zfill(Renderer& renderer, const TextPtr& self, const Arguments& arguments) {
  Budget& budget = renderer.budget();
  const int64_t width = integer_of(arguments.need(0, "width"), "the width");
  const bool sign = self->bytes.starts_with('-') || self->bytes.starts_with('+');
  const Value head = cut(budget, self, 0, sign ? 1 : 0);
  const Value digits = cut(budget, self, sign ? 1 : 0, self->bytes.size());
  const Value filled =
      pad(budget, digits.text_ptr(), width - (sign ? 1 : 0), Text{"0", {}}, Side::right);
  return calculate(renderer, Op::add, head, filled);
}

Value strip(Renderer& renderer, const TextPtr& text, MethodId method, const Arguments& arguments) {
  arguments.only({"chars"});
  const Side side = method == MethodId::strip    ? Side::both
                    : method == MethodId::lstrip ? Side::left
                                                 : Side::right;
  return strip(renderer.budget(), text,
               optional_text(arguments.get(0, "chars"), "what is stripped"), side);
}

Value split(Renderer& renderer, const TextPtr& text, MethodId method, const Arguments& arguments) {
  Budget& budget = renderer.budget();
  arguments.only({"sep", "maxsplit"});
  const Text* separator = optional_text(arguments.get(0, "sep"), "the separator");
  const Value* given = arguments.get(1, "maxsplit");
  const int64_t limit = given != nullptr ? integer_of(*given, "'maxsplit'") : -1;
  return make_list(budget, method == MethodId::split ? split(budget, text, separator, limit)
                                                     : split_right(budget, text, separator, limit));
}

Value pad(Renderer& renderer, const TextPtr& text, MethodId method, const Arguments& arguments) {
  arguments.only({"width", "fillchar"});
  const Text* fill = optional_text(arguments.get(1, "fillchar"), "what fills up");
  const Side side = method == MethodId::center  ? Side::both
                    : method == MethodId::ljust ? Side::left
                                                : Side::right;
  return pad(renderer.budget(), text, integer_of(arguments.need(0, "width"), "the width"),
             fill != nullptr ? *fill : Text{" ", {}}, side);
}

Value string_method(Renderer& renderer, const Value& self, MethodId method,
                    const Arguments& arguments) {
  Budget& budget = renderer.budget();
  const TextPtr& text = self.text_ptr();
  switch (method) {
    case MethodId::upper: return change_case(budget, text, Casing::upper);
    case MethodId::lower: return change_case(budget, text, Casing::lower);
    case MethodId::title: return change_case(budget, text, Casing::title);
    case MethodId::capitalize: return change_case(budget, text, Casing::capitalize);
    case MethodId::swapcase: return change_case(budget, text, Casing::swap);
    case MethodId::strip:
    case MethodId::lstrip:
    case MethodId::rstrip: return strip(renderer, text, method, arguments);
    case MethodId::split:
    case MethodId::rsplit: return split(renderer, text, method, arguments);
    case MethodId::splitlines: {
      arguments.only({"keepends"});
      const Value* keep = arguments.get(0, "keepends");
      return make_list(budget, split_lines(budget, text, keep != nullptr && is_true(*keep)));
    }
    case MethodId::startswith:
      return Value::boolean(begins_or_ends(renderer, *text, arguments, true));
    case MethodId::endswith:
      return Value::boolean(begins_or_ends(renderer, *text, arguments, false));
    case MethodId::replace: {
      arguments.only({"old", "new", "count"});
      const Value* count = arguments.get(2, "count");
      return replace(budget, *text, text_argument(arguments.need(0, "old"), "what is replaced"),
                     text_argument(arguments.need(1, "new"), "what replaces"),
                     count != nullptr ? integer_of(*count, "'count'") : -1);
    }
    case MethodId::removeprefix: {
      const Text& part = text_argument(arguments.need(0, "prefix"), "the prefix");
      return cut(budget, text, text->view().starts_with(part.view()) ? part.bytes.size() : 0,
                 text->bytes.size());
    }
    case MethodId::removesuffix: {
      const Text& part = text_argument(arguments.need(0, "suffix"), "the suffix");
      return cut(
          budget, text, 0,
          text->bytes.size() - (text->view().ends_with(part.view()) ? part.bytes.size() : 0));
    }
    case MethodId::find:
    case MethodId::rfind:
    case MethodId::index:
    case MethodId::count: return search(renderer, self, method, arguments);
    case MethodId::partition: return partition(renderer, text, arguments, false);
    case MethodId::rpartition: return partition(renderer, text, arguments, true);
    case MethodId::join: return join(renderer, *text, arguments);
    case MethodId::format: return format_braces(renderer, *text, arguments);
    case MethodId::isdigit: return every(renderer, *text, is_ascii_digit);
    case MethodId::isalpha: return every(renderer, *text, is_letter);
    case MethodId::isalnum:
      return every(renderer, *text, [](uint32_t c) { return is_ascii_digit(c) || is_letter(c); });
    case MethodId::isspace: return every(renderer, *text, is_space);
    case MethodId::islower: return all_cased(renderer, *text, is_lower, is_upper);
    case MethodId::isupper: return all_cased(renderer, *text, is_upper, is_lower);
    case MethodId::zfill: return zfill(renderer, text, arguments);
    case MethodId::center:
    case MethodId::ljust:
    case MethodId::rjust: return pad(renderer, text, method, arguments);
    default: return {};
  }
}

Value dict_method(Renderer& renderer, const Value& self, MethodId method,
                  const Arguments& arguments) {
  Budget& budget = renderer.budget();
  const Dict& dict = self.as_dict();
  if (method == MethodId::get) {
    const Value& key = arguments.need(0, "key");
    arguments.only({"key", "default"});
    if (const Value* value = dict.find(key)) return *value;
    const Value* otherwise = arguments.get(1, "default");
    return otherwise != nullptr ? *otherwise : Value::none();
  }
  arguments.only({});
  if (method == MethodId::copy) return self;
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries()) {
    if (method == MethodId::keys) {
      items.push_back(key);
    } else if (method == MethodId::values) {
      items.push_back(value);
    } else {
      items.push_back(make_list(budget, {key, value}, ListKind::tuple));
    }
  }
  return make_list(budget, std::move(items));
}

Value list_method(Renderer& renderer, const Value& self, MethodId method,
                  const Arguments& arguments) {
  const std::vector<Value>& items = self.as_list().items;
  if (method == MethodId::copy) return self;
  arguments.only({"value"});
  const Value& what = arguments.need(0, "value");
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    renderer.budget().step();
    if (!equal(renderer.budget(), items[i], what)) continue;
    if (method == MethodId::index) return Value::integer(static_cast<int64_t>(i));
    ++count;
  }
  if (method == MethodId::index) fail("what is looked for is not in the list");
  return Value::integer(count);
}

bool changes(MethodId method) { return method >= MethodId::append; }

}  // namespace

MethodId method_of(std::string_view name) noexcept {
  const auto at =
      std::lower_bound(kMethods.begin(), kMethods.end(), name,
                       [](const MethodEntry& e, std::string_view n) { return e.name < n; });
  return at != kMethods.end() && at->name == name ? at->id : MethodId::none;
}

std::string_view name_of(MethodId method) noexcept {
  for (const MethodEntry& entry : kMethods) {
    if (entry.id == method) return entry.name;
  }
  return "?";
}

bool has_method(const Value& self, MethodId method) noexcept {
  if (method == MethodId::none) return false;
  switch (self.kind()) {
    case Kind::string: return method <= MethodId::zfill;
    case Kind::dict:
      switch (method) {
        case MethodId::clear:
        case MethodId::copy:
        case MethodId::get:
        case MethodId::items:
        case MethodId::keys:
        case MethodId::pop:
        case MethodId::popitem:
        case MethodId::setdefault:
        case MethodId::update:
        case MethodId::values: return true;
        default: return false;
      }
    case Kind::list:
      if (self.as_list().kind == ListKind::generator) return false;
      if (method == MethodId::index || method == MethodId::count) return true;
      if (self.as_list().kind == ListKind::tuple) return false;
      return method == MethodId::copy ||
             (changes(method) && method != MethodId::popitem && method != MethodId::setdefault &&
              method != MethodId::update);
    default: return false;
  }
}

Value call_method(Renderer& renderer, const Value& self, MethodId method,
                  const Arguments& arguments) {
  if (changes(method)) {
    fail("method '" + std::string(name_of(method)) + "' of a " + std::string(type_name(self)) +
         " would change it, which a template may not");
  }
  switch (self.kind()) {
    case Kind::string: return string_method(renderer, self, method, arguments);
    case Kind::dict: return dict_method(renderer, self, method, arguments);
    default: return list_method(renderer, self, method, arguments);
  }
}

}  // namespace stemma::jinja
