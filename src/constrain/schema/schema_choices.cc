// `enum` and `const`, and texts with shared beginnings.
#include <algorithm>

#include "constrain/code_points.h"
#include "constrain/schema/schema_compiler.h"

namespace stemma::constrain {
namespace {

// Equality as JSON schema defines it: 1 equals 1.0, and the order of members does not matter.
bool equal(const Json& a, const Json& b) {
  if (a.number() && b.number()) return Decimal::of(a).compare(Decimal::of(b)) == 0;
  if (a.array() != nullptr && b.array() != nullptr) {
    return std::equal(a.array()->begin(), a.array()->end(), b.array()->begin(), b.array()->end(),
                      equal);
  }
  if (a.object() != nullptr && b.object() != nullptr) {
    if (a.object()->size() != b.object()->size()) return false;
    return std::all_of(a.object()->begin(), a.object()->end(), [&](const Json::Member& member) {
      const Json* const other = b.find(member.name);
      return other != nullptr && equal(member.value, *other);
    });
  }
  if (a.value.index() != b.value.index()) return false;
  if (a.string() != nullptr) return *a.string() == *b.string();
  return a.boolean() == nullptr || *a.boolean() == *b.boolean();
}

uint32_t length_of(const std::string& text) {
  return static_cast<uint32_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0U) != 0x80;
  }));
}

constexpr uint32_t kMaxTextDepth = 250;  // Below this depth, texts are plain alternatives.

// Builds texts [begin, end), which are sorted and share their first `common` bytes.
Expr texts_from(GrammarBuilder& build, const std::vector<std::string>& texts, size_t begin,
                size_t end, size_t common, uint32_t depth) {
  const std::string& first = texts[begin];
  const std::string& last = texts[end - 1];
  std::vector<Expr> ways;
  if (depth > kMaxTextDepth) {
    for (size_t i = begin; i < end; ++i) {
      ways.push_back(build.text(std::string_view(texts[i]).substr(common)));
    }
    return build.either(ways);
  }
  size_t shared = common;
  while (shared < first.size() && shared < last.size() && first[shared] == last[shared]) ++shared;
  const Expr head = build.text(std::string_view(first).substr(common, shared - common));
  if (end - begin == 1) return head;
  size_t at = begin;
  if (first.size() == shared) {
    ways.push_back(build.nothing());
    ++at;
  }
  while (at < end) {
    size_t next = at + 1;
    while (next < end && texts[next][shared] == texts[at][shared]) ++next;
    ways.push_back(texts_from(build, texts, at, next, shared, depth + 1));
    at = next;
  }
  return build.sequence({head, build.either(ways)});
}

}  // namespace

Expr one_of_texts(GrammarBuilder& build, std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  if (texts.empty()) return build.never();
  return texts_from(build, texts, 0, texts.size(), 0, 0);
}

// Returns the values that every `enum` and `const` allows; nothing if there is no such keyword.
std::optional<std::vector<const Json*>> SchemaCompiler::choices_of(const Conjunction& parts) {
  std::optional<std::vector<const Json*>> choices;
  const auto keep = [&](const std::vector<const Json*>& allowed) {
    if (!choices) {
      choices = allowed;
      return;
    }
    std::erase_if(*choices, [&](const Json* choice) {
      return std::none_of(allowed.begin(), allowed.end(),
                          [&](const Json* other) { return equal(*choice, *other); });
    });
  };
  for (const SchemaPart& part : parts) {
    if (const Json* only = part.find("const")) keep({only});
    const Json* const list = part.find("enum");
    if (list == nullptr) continue;
    if (list->array() == nullptr) {
      fail("enum is not a list", part.pointer);
      return std::nullopt;
    }
    std::vector<const Json*> allowed;
    for (const Json& one : *list->array()) allowed.push_back(&one);
    keep(allowed);
  }
  return choices;
}

// Whether a value of an enum satisfies the other keywords. Does not look inside arrays and objects;
// their keywords count as not enforced.
bool SchemaCompiler::choice_fits(const Json& choice, uint8_t types, const Conjunction& parts) {
  if (choice.is_null()) return (types & kNull) != 0;
  if (choice.boolean() != nullptr) return (types & kBoolean) != 0;
  if (choice.number()) {
    const bool whole = Decimal::of(choice).fraction.empty();
    return (types & (whole ? kInteger : kFraction)) != 0 &&
           in_range(Decimal::of(choice), number_range(parts, false));
  }
  if (const std::string* text = choice.string()) {
    if ((types & kString) == 0) return false;
    const StringFacts facts = string_facts(parts);
    const uint32_t length = length_of(*text);
    return length >= facts.min && length <= facts.max &&
           std::all_of(facts.patterns.begin(), facts.patterns.end(),
                       [&](const Regex& regex) { return regex_matches(regex, *text); });
  }
  const bool is_array = choice.array() != nullptr;
  for (const SchemaPart& part : parts) {
    for (const char* keyword :
         {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
          "minProperties", "maxProperties", "items", "prefixItems", "minItems", "maxItems"}) {
      if (part.find(keyword) != nullptr) leave_out(keyword, part);
    }
  }
  return (types & (is_array ? kArray : kObject)) != 0;
}

Expr SchemaCompiler::one_of_choices(const std::vector<const Json*>& choices) {
  std::vector<std::string> texts;
  std::vector<Expr> ways;
  for (const Json* choice : choices) {
    if (choice->array() != nullptr || choice->object() != nullptr) {
      ways.push_back(rules_.exactly(*choice));
      continue;
    }
    append_json(texts.emplace_back(), *choice);
  }
  if (!texts.empty()) ways.push_back(one_of_texts(build_, std::move(texts)));
  return build_.either(ways);
}

}  // namespace stemma::constrain
