#include "server/chat/meaning.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "key/sha256.h"

namespace stemma::server {

namespace {

// Limits for parsing arguments of calls; arguments beyond them are compared as text.
constexpr JsonLimits kLimits = {.depth = 64, .values = 1'000'000};

std::optional<Json> parse_arguments(std::string_view text) {
  if (trimmed(text).empty()) return Json{Json::Object{}};
  auto parsed = parse_json(text, kLimits);
  if (auto* value = std::get_if<Json>(&parsed)) return std::move(*value);
  return {};
}

bool is_number(const Json& value) { return value.number().has_value(); }

std::vector<const Json::Member*> by_name(const Json::Object& object) {
  std::vector<const Json::Member*> members;
  for (const Json::Member& each : object) members.push_back(&each);
  std::ranges::sort(members, {}, &Json::Member::name);
  return members;
}

// Compares without loss: 2^53 + 1 is not the double next to it.
bool same_number(const Json& one, const Json& other) {
  struct Whole {
    bool negative = false;
    uint64_t magnitude = 0;
    bool operator==(const Whole&) const = default;
  };
  const auto whole = [](const Json& value) -> std::optional<Whole> {
    if (const auto* number = std::get_if<int64_t>(&value.value)) {
      const bool negative = *number < 0;
      const auto bits = static_cast<uint64_t>(*number);
      return Whole{negative, negative ? ~bits + 1 : bits};
    }
    if (const auto* number = std::get_if<uint64_t>(&value.value)) return Whole{false, *number};
    const double real = std::get<double>(value.value);
    if (real != std::trunc(real) || std::fabs(real) >= 0x1.0p64) return {};
    return Whole{real < 0, static_cast<uint64_t>(std::fabs(real))};
  };
  const std::optional<Whole> first = whole(one);
  const std::optional<Whole> second = whole(other);
  if (first || second) return first == second;
  return std::get<double>(one.value) == std::get<double>(other.value);
}

// Whether a custom tool's plain text is the one in {"input": text}.
bool same_input(std::string_view plain, std::string_view sampled) {
  const std::optional<Json> value = parse_arguments(sampled);
  if (!value) return plain == sampled;
  const Json* const input = value->find("input");
  const std::string* const text = input == nullptr ? nullptr : input->string();
  return text != nullptr && *text == plain && value->object()->size() == 1;
}

// --- digests -------------------------------------------------------------------------------------

class Digester {
 public:
  void number(uint64_t value) {
    std::array<uint8_t, 8> bytes{};
    for (uint32_t i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    hash_.update(bytes);
  }
  void text(std::string_view text) {
    number(text.size());
    hash_.update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  void call(std::string_view name, std::string_view arguments) {
    text(name);
    const std::optional<Json> value = parse_arguments(arguments);
    std::string written;
    if (value) append_ordered(*value, written);
    text(value ? std::string_view(written) : arguments);
  }
  std::array<uint8_t, 32> finish() { return hash_.finish(); }

 private:
  // Equal bytes for equal values: sorts members by name and writes numbers by value.
  static void append_ordered(const Json& value, std::string& out) {
    if (const Json::Array* array = value.array()) {
      out += '[';
      for (const Json& each : *array) {
        append_ordered(each, out);
        out += ',';
      }
      out += ']';
    } else if (const Json::Object* object = value.object()) {
      out += '{';
      for (const Json::Member* each : by_name(*object)) {
        append_json_string(out, each->name);
        out += ':';
        append_ordered(each->value, out);
        out += ',';
      }
      out += '}';
    } else if (is_number(value)) {
      // Different numbers may get one digest; the messages themselves are compared afterwards.
      append_json_number(out, *value.number() + 0.0);
    } else {
      append_json(out, value);
    }
  }

  key::Sha256 hash_;
};

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

bool same_value(const Json& one, const Json& other) {
  if (is_number(one) && is_number(other)) return same_number(one, other);
  if (one.value.index() != other.value.index()) return false;
  if (const Json::Array* array = one.array()) {
    return std::ranges::equal(*array, *other.array(), same_value);
  }
  if (const Json::Object* object = one.object()) {
    return std::ranges::equal(by_name(*object), by_name(*other.object()),
                              [](const Json::Member* first, const Json::Member* second) {
                                return first->name == second->name &&
                                       same_value(first->value, second->value);
                              });
  }
  if (const std::string* text = one.string()) return *text == *other.string();
  if (const bool* flag = one.boolean()) return *flag == *other.boolean();
  return true;  // null
}

bool same_arguments(std::string_view one, std::string_view other) {
  if (one == other) return true;
  const std::optional<Json> first = parse_arguments(one);
  const std::optional<Json> second = parse_arguments(other);
  return first && second && same_value(*first, *second);
}

bool same_meaning(const Message& returned, const dialect::ParsedMessage& sampled) {
  if (trimmed(returned.text()) != trimmed(sampled.content)) return false;
  const std::string_view thought = trimmed(returned.reasoning);
  if (!thought.empty() && thought != trimmed(sampled.reasoning)) return false;
  return std::ranges::equal(returned.calls, sampled.calls,
                            [](const ToolCall& one, const dialect::ParsedCall& other) {
                              if (one.name != other.name || !other.complete) return false;
                              return one.custom ? same_input(one.arguments, other.arguments)
                                                : same_arguments(one.arguments, other.arguments);
                            });
}

bool same_calls(const dialect::ParsedMessage& one, const dialect::ParsedMessage& other) {
  return std::ranges::equal(
      one.calls, other.calls,
      [](const dialect::ParsedCall& first, const dialect::ParsedCall& second) {
        const bool same_id = first.id.empty() || second.id.empty() || first.id == second.id;
        return same_id && first.name == second.name && first.complete && second.complete &&
               same_arguments(first.arguments, second.arguments);
      });
}

std::array<uint8_t, 32> digest_of(const Message& returned, std::string_view before) {
  Digester digest;
  digest.text(before);
  digest.text(trimmed(returned.text()));
  digest.number(returned.calls.size());
  for (const ToolCall& call : returned.calls) {
    std::string arguments = call.arguments;
    if (call.custom) {
      arguments = R"({"input":)";
      append_json_string(arguments, call.arguments);
      arguments += '}';
    }
    digest.call(call.name, arguments);
  }
  return digest.finish();
}

std::array<uint8_t, 32> digest_of(const dialect::ParsedMessage& sampled, std::string_view before) {
  Digester digest;
  digest.text(before);
  digest.text(trimmed(sampled.content));
  digest.number(sampled.calls.size());
  for (const dialect::ParsedCall& call : sampled.calls) digest.call(call.name, call.arguments);
  return digest.finish();
}

}  // namespace stemma::server
