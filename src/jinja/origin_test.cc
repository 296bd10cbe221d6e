// Tests origins: whatever a template does to a marked string, its bytes stay marked.
#include <gtest/gtest.h>

#include "jinja/template.h"
#include "templates/conversations.h"
#include "templates/judge.h"

namespace stemma::jinja {
namespace {

// Marked bytes in brackets with their origin: "to 1[Ann] and 2[Bob]".
std::string shown(const Text& text) {
  std::string all;
  size_t at = 0;
  for (const Mark& mark : text.marks) {
    all += text.bytes.substr(at, mark.begin - at);
    all += std::to_string(static_cast<uint32_t>(mark.origin)) + "[" +
           text.bytes.substr(mark.begin, mark.end - mark.begin) + "]";
    at = mark.end;
  }
  return all + text.bytes.substr(at);
}

std::string trace(std::string_view source) {
  const Value variables = Value::dict(
      {{"a", Value::string("Hello, World", Origin{1})},
       {"b", Value::string(" x\"y\n", Origin{2})},
       {"l", Value::list({Value::string("p", Origin{3}), Value::string("q", Origin{4})})},
       {"d", Value::dict({{"k", Value::string("v", Origin{5})}})}});
  const auto parsed = Template::parse(source);
  if (const auto* problem = std::get_if<Problem>(&parsed)) return "! " + problem->to_string();
  const auto text = std::get<Template>(parsed).render(variables, judged_options());
  if (const auto* problem = std::get_if<Problem>(&text)) return "! " + problem->to_string();
  return shown(std::get<Text>(text));
}

TEST(Origins, StayWithWhatIsCutAndJoined) {
  EXPECT_EQ(trace("<{{ a }}>"), "<1[Hello, World]>");
  EXPECT_EQ(trace("{{ a + '|' + b }}"), "1[Hello, World]|2[ x\"y\n]");
  EXPECT_EQ(trace("{{ a ~ a }}"), "1[Hello, WorldHello, World]");
  EXPECT_EQ(trace("{{ a[1:4] }}{{ a[0] }}{{ a[::-3] }}{{ a | first }}{{ a | last }}"),
            "1[ellHdo,lHd]");
  EXPECT_EQ(trace("{{ b | trim }}.{{ b.strip() }}.{{ a.lstrip('H') }}"),
            "2[x\"y].2[x\"y].1[ello, World]");
  EXPECT_EQ(trace("{{ a.split(', ') | join('/') }}"), "1[Hello]/1[World]");
  EXPECT_EQ(trace("{{ l | join(', ') }}{{ '-'.join(l) }}"), "3[p], 4[q]3[p]-4[q]");
  EXPECT_EQ(trace("{{ ('<' ~ a ~ '>')[1:-1] }}"), "1[Hello, World]");
  EXPECT_EQ(trace("{{ a.partition(',')[2] }}{{ a.removeprefix('Hello') }}"), "1[ World, World]");
  EXPECT_EQ(trace("{{ a * 2 }}{{ a | list | join }}"), "1[Hello, WorldHello, WorldHello, World]");
  EXPECT_EQ(trace("{{ a | reverse }}"), "1[dlroW ,olleH]");
}

TEST(Origins, StayWithWhatIsChanged) {
  EXPECT_EQ(trace("{{ a | upper }}{{ a.lower() }}{{ a | title }}"),
            "1[HELLO, WORLDhello, worldHello, World]");
  EXPECT_EQ(trace("{{ a | replace('l', '_') }}"), "1[He]__1[o, Wor]_1[d]");
  EXPECT_EQ(trace("{{ 'x-y' | replace('-', a) }}"), "x1[Hello, World]y");
  EXPECT_EQ(trace("{{ b | tojson }}"), "\"2[ x\\\"y\\n]\"");
  EXPECT_EQ(trace("{{ d | tojson }}{{ d }}"), "{\"k\": \"5[v]\"}{'k': '5[v]'}");
  EXPECT_EQ(trace("{{ [b] }}{{ l | string }}"), "['2[ x\"y\\n]']['3[p]', '4[q]']");
  EXPECT_EQ(trace("{{ b | indent(2, true) }}"), "  2[ x\"y]\n");
  EXPECT_EQ(trace("{{ '<%s>' % a }}{{ '{}!'.format(a) }}{{ '%r' | format(a) }}"),
            "<1[Hello, World]>1[Hello, World]!'1[Hello, World]'");
  EXPECT_EQ(trace("{{ b | e }}"), "2[ x&#34;y\n]");
  EXPECT_EQ(trace("{{ 'q'.center(3, d.k) }}"), "5[v]q5[v]");
  EXPECT_EQ(trace("{{ strftime_now(a ~ ' %Y') }}"), "1[Hello, World] 2025");
}

TEST(Origins, GoThroughVariablesMacrosAndBlocks) {
  EXPECT_EQ(trace("{% set x %}({{ a }}){% endset %}{{ x | replace('(', '') }}"),
            "1[Hello, World])");
  EXPECT_EQ(trace("{% macro m(t) %}[{{ t }}]{% endmacro %}{{ m(d.k)[1:] }}"), "5[v]]");
  EXPECT_EQ(trace("{% filter upper %}say {{ d.k }}{% endfilter %}"), "SAY 5[V]");
  EXPECT_EQ(
      trace("{% set ns = namespace(t='') %}{% for x in l %}{% set ns.t = ns.t + x %}{% endfor %}"
            "{{ ns.t }}"),
      "3[p]4[q]");
  EXPECT_EQ(
      trace("{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}<{{ d.k }}>{% endcall %}"),
      "<5[v]>");
  EXPECT_EQ(
      trace("{{ l | map('upper') | join }}{{ {'v': 1}.items() | list }}{{ [d.k, 1] | tojson }}"),
      "3[P]4[Q][('v', 1)][\"5[v]\", 1]");
}

// The danger is a user who writes the same bytes as the template itself.
TEST(Origins, TellAUsersSpecialTokensFromTheTemplates) {
  const auto chat = Template::parse(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% "
      "endfor %}");
  for (const auto& [name, variables] : conversations()) {
    if (name != "looks like a template") continue;
    const Text text = std::get<Text>(std::get<Template>(chat).render(variables));
    Origins origins(text);
    size_t marked = 0;
    size_t plain = 0;
    for (size_t at = 0; (at = text.bytes.find("<|im_end|>", at)) != std::string::npos; ++at) {
      ++(origins.at(at) == kNoOrigin ? plain : marked);
    }
    EXPECT_EQ(plain, 3U);
    EXPECT_EQ(marked, 1U);
  }
}

}  // namespace
}  // namespace stemma::jinja
